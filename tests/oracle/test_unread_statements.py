"""Statements that are no business of a capture, or that it cannot read, between the rows of captured tables: nothing stops, all rows come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows import compare
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb

pytestmark = pytest.mark.demand(9)

STATEMENTS = (
    "CREATE USER {user} IDENTIFIED BY 'it''s (a; secret'",
    "ALTER USER {user} IDENTIFIED BY 'other' PASSWORD EXPIRE NEVER",
    "GRANT SELECT, INSERT ON {db}.* TO {user}",
    "SET PASSWORD FOR {user} = {password}",
    "FLUSH TABLES",
    "FLUSH PRIVILEGES",
    "ANALYZE TABLE t",
    "OPTIMIZE TABLE t",
    "CREATE TABLE defaults (id INT PRIMARY KEY, d DATE DEFAULT (curdate()), e DATETIME DEFAULT (now() + INTERVAL 1 DAY), f INT DEFAULT (ABS(-1)))",
    "INSERT INTO defaults (id) VALUES (1)",
    "CREATE PROCEDURE p (IN a INT) BEGIN DECLARE b INT DEFAULT 0; IF a > 1 THEN SET b = 2; ELSE ALTER TABLE t ADD never INT; END IF; END",
    "CREATE FUNCTION f (a INT) RETURNS INT DETERMINISTIC RETURN a + 1",
    "CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET NEW.v = CONCAT(NEW.v, '!')",
    "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO DROP TABLE t",
    "CREATE VIEW w AS SELECT id, v FROM t WHERE v LIKE '%ALTER TABLE t DROP v%'",
    "CREATE OR REPLACE VIEW w AS SELECT 1 AS id",
    "ALTER DATABASE {db} CHARACTER SET latin1",
    "ALTER TABLE t ADD FULLTEXT INDEX words (v), ALGORITHM = COPY",
    "ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0)",
    "CREATE TABLE t_like LIKE t",
    "/* a comment */ -- another\n ALTER /*!40000 */ TABLE elsewhere ENGINE = InnoDB",
    "CREATE TEMPORARY TABLE hidden (id INT)",
    "DROP TRIGGER r",
    "DROP VIEW w",
    "DROP EVENT e",
    "DROP PROCEDURE p",
    "DROP FUNCTION f",
    "DROP USER {user}",
)
OF_MARIADB = (
    "CREATE SEQUENCE s START WITH 100",
    "CREATE ROLE {user}",
    "SET STATEMENT max_statement_time = 100 FOR ALTER TABLE t COMMENT 'x'",
    "DROP ROLE {user}",
    "DROP SEQUENCE s",
)
OF_MYSQL = (
    "CREATE ROLE {user}",
    "ALTER TABLE t ADD INDEX functional ((id + 1))",
    "ALTER TABLE t ALTER INDEX functional INVISIBLE",
    "DROP ROLE {user}",
)


@pytest.mark.parametrize("moment", ["running", "stopped"])
def test_nothing_stops_and_all_rows_come(binlog_server: BinlogServer, tmp_path: Path, moment: str) -> None:
    of_mariadb = isinstance(binlog_server, MariaDb)
    password = "PASSWORD('new')" if of_mariadb else "'new'"
    own = OF_MARIADB if of_mariadb else OF_MYSQL
    with binlog_server.database() as database:
        flows = [
            {"name": "raw", "from": "mysql.db1", "to": {"type": "lake", "path": str(tmp_path / "lake")}},
            {"name": "lite", "from": "mysql.db1", "to": {"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"}},
        ]
        pipeline = Pipeline(tmp_path, binlog_server, [f"{database}.t", f"{database}.defaults"], flows)
        pipeline.run_until_idle()

        def everything() -> None:
            create = "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(200))"
            binlog_server.execute(create.format("t"), create.format("elsewhere"), database=database)
            for number, statement in enumerate((*STATEMENTS, *own)):
                text = statement.format(db=database, user=f"u_{database}", password=password)
                binlog_server.execute(text, f"INSERT INTO t VALUES ({number + 1}, 'behind')", database=database)

        if moment == "running":
            with pipeline.running():
                everything()
        else:
            everything()
            pipeline.run_until_idle()
        with binlog_server.connect(database) as connection:
            for table, columns in (("t", ["id", "v"]), ("defaults", ["id", "d", "e", "f"])):
                expected = compare.source_rows(connection, table)
                assert compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.{table}") == expected
                assert compare.sqlite_target_rows(tmp_path / "mart.db", table, columns) == expected


def test_what_cannot_be_read_and_names_a_captured_table_is_told_with_its_place(
    binlog_server: BinlogServer, tmp_path: Path
) -> None:
    """A partition that is dropped takes rows with it that the log does not name."""
    with binlog_server.database() as database:
        pipeline = Pipeline(tmp_path, binlog_server, [f"{database}.t"], [])
        pipeline.run_until_idle()
        binlog_server.execute(
            "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))",
            "INSERT INTO t VALUES (1), (11)",
            "ALTER TABLE t DROP PARTITION a",
            "INSERT INTO t VALUES (12)",
            database=database,
        )
        pipeline.run_until_idle()
        [told] = pipeline.notices
        assert f"{database}.t had partitions" in told
        assert "ALTER TABLE t DROP PARTITION a" in told
        assert "(binlog." in told
        assert sum(pipeline.rows.values()) == 3
