"""Every kind of DDL while headrace runs, while it is stopped, and on a table that is not captured: targets against the server's SELECT."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.cli.ums_lines import UmsLines
from headrace.codec.binlog import BinlogReader, decode_file
from headrace.codec.ums_schema import Dialect
from headrace.errors import DataError, RetryableError
from headrace.on_change import OnChange
from headrace.sinks.base import Position
from headrace.sinks.database import DatabaseSink
from headrace.ums.change import ChangeBatch, End, Mark
from tests.flows import compare
from tests.patience import wait_until
from tests.pipeline import SOURCE, Pipeline
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

CREATE = "CREATE TABLE {t} (id INT PRIMARY KEY, name VARCHAR(20), qty INT, price DECIMAL(8,2), born DATE)"
FILL = "INSERT INTO {t} VALUES (1, 'one', 10, 1.5, '2020-01-01'), (2, 'two', 20, 2.5, NULL), (3, 'three', 30, NULL, '2020-03-03')"
TOUCH = "UPDATE {t} SET name = 'touched' WHERE id = 2"
CASES = {
    "add": ["ALTER TABLE {t} ADD more INT", "INSERT INTO {t} VALUES (4, 'four', 40, 4, NULL, 44)", TOUCH],
    "add_default": ["ALTER TABLE {t} ADD more VARCHAR(9) NOT NULL DEFAULT 'new' AFTER id", "INSERT INTO {t} (id) VALUES (4)", TOUCH],
    "add_two": ["ALTER TABLE {t} ADD a INT DEFAULT 1", "ALTER TABLE {t} ADD b INT DEFAULT 2", "INSERT INTO {t} (id) VALUES (4)", "ALTER TABLE {t} ADD c DATE DEFAULT '2020-05-05'", TOUCH],
    "drop": ["ALTER TABLE {t} DROP qty", "INSERT INTO {t} VALUES (4, 'four', 4, NULL)", TOUCH],
    "rename": ["ALTER TABLE {t} RENAME COLUMN qty TO quantity", "INSERT INTO {t} VALUES (4, 'four', 40, 4, NULL)", TOUCH],
    "rename_twice": ["ALTER TABLE {t} CHANGE qty amount INT", "ALTER TABLE {t} CHANGE amount quantity BIGINT", "INSERT INTO {t} VALUES (4, 'four', 40, 4, NULL)", TOUCH, "ALTER TABLE {t} CHANGE quantity q BIGINT", "INSERT INTO {t} VALUES (5, 'five', 50, 4, NULL)"],
    "exchange": ["ALTER TABLE {t} ADD other INT DEFAULT 7", "INSERT INTO {t} (id, other) VALUES (4, 8)", "ALTER TABLE {t} CHANGE qty other INT, CHANGE other qty INT", "INSERT INTO {t} (id, qty, other) VALUES (5, 9, 10)", TOUCH],
    "rename_and_add": ["ALTER TABLE {t} RENAME COLUMN qty TO quantity, ADD qty INT DEFAULT 5", "INSERT INTO {t} (id, quantity) VALUES (4, 40)", TOUCH],
    "drop_and_add": ["ALTER TABLE {t} DROP qty, ADD qty INT DEFAULT 5 AFTER name", "INSERT INTO {t} (id) VALUES (4)", TOUCH],
    "drop_then_add": ["ALTER TABLE {t} DROP qty", "INSERT INTO {t} (id) VALUES (4)", "ALTER TABLE {t} ADD qty INT DEFAULT 6", "INSERT INTO {t} (id) VALUES (5)", TOUCH],
    "rename_key": ["ALTER TABLE {t} CHANGE id nr INT", "INSERT INTO {t} (nr) VALUES (4)", "UPDATE {t} SET name = 'touched' WHERE nr = 2", "DELETE FROM {t} WHERE nr = 3"],
    "rename_back": ["ALTER TABLE {t} CHANGE qty quantity INT", TOUCH, "ALTER TABLE {t} CHANGE quantity qty INT", "INSERT INTO {t} (id, qty) VALUES (4, 40)"],
    "rename_to_dropped": ["ALTER TABLE {t} DROP name", "INSERT INTO {t} (id) VALUES (4)", "ALTER TABLE {t} CHANGE qty name INT", "INSERT INTO {t} (id, name) VALUES (5, 50)"],
    "rename_and_widen": ["ALTER TABLE {t} CHANGE qty quantity BIGINT", "INSERT INTO {t} (id, quantity) VALUES (4, 5000000000)"],
    "rename_in_a_ring": ["ALTER TABLE {t} ADD b INT DEFAULT 2, ADD c INT DEFAULT 3", TOUCH, "ALTER TABLE {t} CHANGE qty b INT, CHANGE b c INT, CHANGE c qty INT", "INSERT INTO {t} (id, qty, b, c) VALUES (4, 1, 2, 3)"],
    "rename_in_a_chain": ["ALTER TABLE {t} ADD b INT DEFAULT 2, ADD c INT DEFAULT 3", TOUCH, "ALTER TABLE {t} CHANGE qty b INT, CHANGE b c INT, CHANGE c d INT", "INSERT INTO {t} (id, b, c, d) VALUES (4, 1, 2, 3)"],
    "drop_all_but_the_key": ["ALTER TABLE {t} DROP name, DROP qty, DROP price, DROP born", "INSERT INTO {t} VALUES (4)"],
    "created_if_missing": ["DROP TABLE {t}", "CREATE TABLE IF NOT EXISTS {t} (id INT PRIMARY KEY, other INT)", "INSERT INTO {t} VALUES (3, 3)", "CREATE TABLE IF NOT EXISTS {t} (id INT PRIMARY KEY)", "INSERT INTO {t} VALUES (4, 4)"],
    "swapped": ["CREATE TABLE {t}_2 LIKE {t}", "RENAME TABLE {t} TO {t}_3, {t}_2 TO {t}", "INSERT INTO {t} (id) VALUES (2), (4)"],
    "widen": ["ALTER TABLE {t} MODIFY qty BIGINT, MODIFY name VARCHAR(200)", "INSERT INTO {t} (id, name, qty) VALUES (4, REPEAT('x', 150), 5000000000)", TOUCH],
    "narrow": ["ALTER TABLE {t} MODIFY qty TINYINT, MODIFY price DECIMAL(4,1)", "INSERT INTO {t} (id, qty, price) VALUES (4, 4, 99.9)", "UPDATE {t} SET name = 'touched'"],
    "to_text": ["ALTER TABLE {t} MODIFY qty VARCHAR(20)", "INSERT INTO {t} (id, qty) VALUES (4, 'many')", TOUCH],
    "reorder": ["ALTER TABLE {t} MODIFY price DECIMAL(8,2) FIRST, MODIFY born DATE AFTER id", "INSERT INTO {t} (id, name) VALUES (4, 'four')", TOUCH],
    "truncate": ["TRUNCATE TABLE {t}", "INSERT INTO {t} (id) VALUES (2), (4)"],
    "drop_create": ["DROP TABLE {t}", "CREATE TABLE {t} (id INT PRIMARY KEY, name VARCHAR(20), fresh INT)", "INSERT INTO {t} VALUES (2, 'again', 5)"],
    "drop_create_same": ["DROP TABLE {t}", CREATE, "INSERT INTO {t} (id) VALUES (9)"],
    "drop_create_empty": ["DROP TABLE {t}", CREATE],
    "partitions": ["ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 3", "ALTER TABLE {t} COALESCE PARTITION 1", "INSERT INTO {t} (id) VALUES (4)", TOUCH, "ALTER TABLE {t} REMOVE PARTITIONING"],
    "key": ["INSERT INTO {t} (id, name) VALUES (4, 'four')", "DELETE FROM {t} WHERE id = 3", "ALTER TABLE {t} MODIFY name VARCHAR(20) NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (name)", "INSERT INTO {t} (id, name) VALUES (4, 'three')", TOUCH, "DELETE FROM {t} WHERE name = 'one'"],
    "key_grows": ["ALTER TABLE {t} ADD region INT NOT NULL DEFAULT 5, DROP PRIMARY KEY, ADD PRIMARY KEY (region, id)", "INSERT INTO {t} (id, region) VALUES (1, 6)", TOUCH, "DELETE FROM {t} WHERE id = 3"],
    "key_goes": ["ALTER TABLE {t} MODIFY name VARCHAR(20) NOT NULL, DROP PRIMARY KEY, DROP id, ADD PRIMARY KEY (name)", "INSERT INTO {t} (name) VALUES ('four')", "UPDATE {t} SET qty = 5 WHERE name = 'two'"],
    "key_and_back": ["ALTER TABLE {t} MODIFY name VARCHAR(20) NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (name, id)", "UPDATE {t} SET name = 'touched' WHERE id = 2", "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id), MODIFY name VARCHAR(20)", "INSERT INTO {t} (id) VALUES (4)", "UPDATE {t} SET name = NULL WHERE id = 1"],
    "index": ["ALTER TABLE {t} ADD INDEX by_name (name), COMMENT 'x'", "INSERT INTO {t} (id) VALUES (4)", "DROP INDEX by_name ON {t}", TOUCH],
}  # fmt: skip
"""What is done to a table that has `FILL`; afterwards the targets must have what the source has."""


@pytest.mark.parametrize("fails", [False, True], ids=["", "commits_fail"])
@pytest.mark.demand(1)
def test_every_ddl_at_every_moment(
    mariadb: MariaDb, postgresql: PostgreSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    if fails:
        every_second_commit_fails(monkeypatch)
    every_ddl_at_every_moment(mariadb, mariadb, postgresql, tmp_path)


@pytest.mark.demand(1)
def test_every_ddl_at_every_moment_of_mysql(
    mysql: MySql, mariadb: MariaDb, postgresql: PostgreSql, tmp_path: Path
) -> None:
    every_ddl_at_every_moment(mysql, mariadb, postgresql, tmp_path)


def every_second_commit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the target was shaped and the rows were sent: all of it is delivered again, into a table of the new shape."""
    commit = DatabaseSink.commit
    calls = itertools.count()

    def failing(sink: DatabaseSink, position: Position) -> None:
        if next(calls) % 2 == 0:
            sink.flush()
            raise RetryableError("the connection is gone", fix="wait", retry_after_s=0)
        commit(sink, position)

    monkeypatch.setattr(DatabaseSink, "commit", failing)


def every_ddl_at_every_moment(
    binlog_server: BinlogServer, mariadb: MariaDb, postgresql: PostgreSql, tmp_path: Path
) -> None:
    with (
        binlog_server.database() as database,
        binlog_server.connect(database) as connection,
        postgresql.database() as pg,
        mariadb.database() as maria,
    ):
        stores = {"lite": f"sqlite:///{tmp_path}/mart.db", "pg": postgresql.url(pg), "maria": mariadb.url(maria)}
        flows: list[dict[str, Any]] = [
            {"name": "raw", "from": "mysql.db1", "to": {"type": "lake", "path": tmp_path / "lake"}}
        ]
        flows += [
            {"name": name, "from": "mysql.db1", "to": {"type": "database", "url": url}} for name, url in stores.items()
        ]
        tables = [f"{database}.{moment}_*" for moment in ("running", "stopped")]
        pipeline = Pipeline(tmp_path, binlog_server, tables, flows)
        pipeline.run_until_idle()
        with connection.cursor() as cursor:
            for case in CASES:
                for moment in ("running", "stopped", "elsewhere"):
                    run(cursor, f"{moment}_{case}", [CREATE, FILL])
            pipeline.run_until_idle()
            with pipeline.running():
                for case, statements in CASES.items():
                    run(cursor, f"running_{case}", statements)
                    run(cursor, f"elsewhere_{case}", statements)
            for case, statements in CASES.items():
                run(cursor, f"stopped_{case}", statements)
        pipeline.run_until_idle()
        wrong = []
        for table in (f"{moment}_{case}" for case in CASES for moment in ("running", "stopped")):
            expected = compare.source_rows(connection, table)
            columns = column_names(connection, table)
            found = {
                "lake": compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.{table}"),
                "lite": compare.sqlite_target_rows(tmp_path / "mart.db", table, columns),
                "pg": compare.postgresql_rows(stores["pg"], table, columns),
                "maria": maria_rows(mariadb, maria, table, columns),
            }
            wrong += [
                f"{table} in {name}: {rows}\n  not {expected}" for name, rows in found.items() if rows != expected
            ]
        assert not wrong, "\n".join(wrong)


def run(cursor: pymysql.cursors.Cursor, table: str, statements: list[str]) -> None:
    for statement in statements:
        cursor.execute(statement.format(t=table))


def column_names(connection: pymysql.Connection[Any], table: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        return [column[0] for column in cursor.description or ()]


def maria_rows(server: MariaDb, database: str, table: str, columns: list[str]) -> compare.Rows:
    with server.connect(database) as connection:
        return compare.mysql_rows(connection, table, columns)


@dataclass(frozen=True)
class Event:
    """Statements that make one kind of change, and what a SQLite target shows afterwards under each policy.

    What is shown are the columns beyond `id` that matter, and the live rows in these columns.
    """

    statements: list[str]
    evolve: tuple[str, list[tuple[Any, ...]]]
    lenient: tuple[str, list[tuple[Any, ...]]]
    ignore: tuple[str, list[tuple[Any, ...]]]


KEPT = ("id", [(1,), (2,), (3,)])
EVENTS = {
    "added": Event(
        ["ALTER TABLE {t} ADD more INT DEFAULT 5", "INSERT INTO {t} (id, more) VALUES (4, 44)"],
        evolve=("id, more", [(1, 5), (2, 5), (3, 5), (4, 44)]),
        lenient=("id, more", [(1, 5), (2, 5), (3, 5), (4, 44)]),
        ignore=("id", [(1,), (2,), (3,), (4,)]),
    ),
    "dropped": Event(
        ["ALTER TABLE {t} DROP qty", "INSERT INTO {t} (id) VALUES (4)", TOUCH],
        evolve=("id, name", [(1, "one"), (2, "touched"), (3, "three"), (4, None)]),
        lenient=("id, qty", [(1, 10), (2, None), (3, 30), (4, None)]),
        ignore=("id, qty", [(1, 10), (2, None), (3, 30), (4, None)]),
    ),
    "renamed": Event(
        ["ALTER TABLE {t} CHANGE qty quantity INT", "INSERT INTO {t} (id, quantity) VALUES (4, 40)"],
        evolve=("id, quantity", [(1, 10), (2, 20), (3, 30), (4, 40)]),
        lenient=("id, qty, quantity", [(1, 10, None), (2, 20, None), (3, 30, None), (4, None, 40)]),
        ignore=("id, qty", [(1, 10), (2, 20), (3, 30), (4, 40)]),
    ),
    "renamed_and_again": Event(
        [
            "ALTER TABLE {t} CHANGE qty quantity INT",
            "INSERT INTO {t} (id, quantity) VALUES (4, 40)",
            "ALTER TABLE {t} ADD qty INT DEFAULT 7",
            "INSERT INTO {t} (id, quantity, qty) VALUES (5, 50, 8)",
        ],
        evolve=("id, quantity, qty", [(1, 10, 7), (2, 20, 7), (3, 30, 7), (4, 40, 7), (5, 50, 8)]),
        lenient=(
            "id, qty_v1, quantity, qty",
            [(1, 10, None, 7), (2, 20, None, 7), (3, 30, None, 7), (4, None, 40, 7), (5, None, 50, 8)],
        ),
        ignore=("id, qty", [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]),
    ),
    "retyped": Event(
        ["ALTER TABLE {t} MODIFY qty VARCHAR(9)", "INSERT INTO {t} (id, qty) VALUES (4, 'many'), (5, '50')"],
        evolve=("id, qty", [(1, "10"), (2, "20"), (3, "30"), (4, "many"), (5, "50")]),
        lenient=("id, qty", [(1, "10"), (2, "20"), (3, "30"), (4, "many"), (5, "50")]),
        ignore=("id, qty", [(1, 10), (2, 20), (3, 30), (4, None), (5, 50)]),
    ),
    "truncated": Event(
        ["TRUNCATE TABLE {t}", "INSERT INTO {t} (id) VALUES (4)"],
        evolve=("id", [(4,)]),
        lenient=("id", [(1,), (2,), (3,), (4,)]),
        ignore=("id", [(1,), (2,), (3,), (4,)]),
    ),
    "table_dropped": Event(["DROP TABLE {t}"], evolve=("id", []), lenient=KEPT, ignore=KEPT),
    "table_renamed": Event(["ALTER TABLE {t} RENAME TO {t}_gone"], evolve=("id", []), lenient=KEPT, ignore=KEPT),
    "made_anew": Event(
        ["DROP TABLE {t}", CREATE, "INSERT INTO {t} (id) VALUES (4)"],
        evolve=("id", [(4,)]),
        lenient=("id", [(4,)]),
        ignore=("id", [(1,), (2,), (3,), (4,)]),
    ),
}


@pytest.mark.demand(1)
def test_every_policy(mariadb: MariaDb, tmp_path: Path) -> None:
    words = ("evolve", "lenient", "ignore")
    with mariadb.database() as database, mariadb.connect(database) as connection, connection.cursor() as cursor:
        flows = [
            {
                "name": word,
                "from": "mysql.db1",
                "to": {"type": "database", "url": f"sqlite:///{tmp_path}/{word}.db"},
                "on_change": word,
            }
            for word in words
        ]
        pipeline = Pipeline(tmp_path, mariadb, [f"{database}.{event}" for event in EVENTS], flows)
        pipeline.run_until_idle()
        for event in EVENTS:
            run(cursor, event, [CREATE, FILL])
        pipeline.run_until_idle()
        for name, event in EVENTS.items():
            for statement in event.statements:
                run(cursor, name, [statement])
        pipeline.run_until_idle()
        for name, event in EVENTS.items():
            for word in words:
                columns, rows = getattr(event, word)
                with closing(sqlite3.connect(tmp_path / f"{word}.db")) as target:
                    sql = f"SELECT {columns} FROM {name} WHERE _is_active_ = 1 ORDER BY id"
                    assert target.execute(sql).fetchall() == rows, (name, word)
        with closing(sqlite3.connect(tmp_path / "evolve.db")) as target:
            shape = [row[1] for row in target.execute("PRAGMA table_info(dropped)")]
            assert "qty" not in shape
            shape = [row[1] for row in target.execute("PRAGMA table_info(renamed)")]
            assert "qty" not in shape
        with closing(sqlite3.connect(tmp_path / "ignore.db")) as target:
            assert "more" not in [row[1] for row in target.execute("PRAGMA table_info(added)")]


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if kind in OnChange.model_fields])
@pytest.mark.demand(1)
def test_fail_stops_the_flow_and_names_the_statement(mariadb: MariaDb, tmp_path: Path, kind: str) -> None:
    with mariadb.database() as database, mariadb.connect(database) as connection, connection.cursor() as cursor:

        def pipeline(policy: str) -> Pipeline:
            to = {"type": "lake", "path": tmp_path / "lake"}
            flow = {"name": "raw", "from": "mysql.db1", "to": to, "on_change": {kind: policy}}
            return Pipeline(tmp_path, mariadb, [f"{database}.*"], [flow])

        pipeline("fail").run_until_idle()
        run(cursor, kind, [CREATE, FILL])
        pipeline("fail").run_until_idle()
        for statement in EVENTS[kind].statements:
            run(cursor, kind, [statement])
        for _ in range(2):
            with pytest.raises(DataError) as failed:
                pipeline("fail").run_until_idle()
            assert f"mysql.db1.{database}.{kind}" in failed.value.message
            assert re.search(r"binlog\.\d+:\d+: (ALTER|TRUNCATE|DROP) TABLE", failed.value.message)
            assert f"on_change: {{{kind}: evolve}}" in failed.value.fix
        pipeline("evolve").run_until_idle()


def test_the_end_of_a_version_stands_on_the_log(mariadb: MariaDb, tmp_path: Path) -> None:
    with mariadb.database() as database, mariadb.connect(database) as connection, connection.cursor() as cursor:
        pipeline = Pipeline(tmp_path, mariadb, [f"{database}.*"], [])
        pipeline.run_until_idle()
        run(cursor, "t", [CREATE, FILL, "ALTER TABLE {t} ADD more INT", "ALTER TABLE {t} COMMENT 'x'", TOUCH])
        run(cursor, "t", ["ALTER TABLE {t} MODIFY name VARCHAR(99)", TOUCH.replace("touched", "longer")])
        run(cursor, "t", ["ALTER TABLE {t} DROP more", TOUCH.replace("touched", "again")])
        pipeline.run_until_idle()
        logged = [change for change in pipeline.logged() if not isinstance(change, Mark)]
        assert [type(change).__name__ for change in logged] == [
            "ChangeBatch", "End", "ChangeBatch", "ChangeBatch", "End", "ChangeBatch",
        ]  # fmt: skip
        ends = [(change, after) for change, after in itertools.pairwise(logged) if isinstance(change, End)]
        for end, after in ends:
            assert end.successor == after.table
            assert end.id + 1 == after.id_range[0]
        assert [end.statement.sql for end, _ in ends] == ["ALTER TABLE t ADD more INT", "ALTER TABLE t DROP more"]
        assert [end.table.fits(end.successor) for end, _ in ends] == [True, False]
        assert [
            (message["protocol"]["type"], message["schema"]["namespace"][-5:]) for message in decoded(mariadb, database)
        ] == [
            ("data_increment_data", "0.0.0"),
            ("data_increment_termination", "0.0.0"),
            ("data_increment_data", "1.0.0"),
            ("data_increment_data", "1.0.0"),
            ("data_increment_termination", "1.0.0"),
            ("data_increment_data", "2.0.0"),
        ]


@pytest.mark.demand(1)
@pytest.mark.parametrize("moment", ["running", "stopped"])
@pytest.mark.parametrize("load", [None, {"workers": 1}], ids=["", "loaded"])
def test_a_statement_reaches_the_targets_without_a_row(
    binlog_server: BinlogServer, tmp_path: Path, moment: str, load: dict[str, Any] | None
) -> None:
    with (
        binlog_server.database() as database,
        binlog_server.connect(database) as connection,
        connection.cursor() as cursor,
    ):
        to = {"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"}
        flow = {"name": "mart", "from": "mysql.db1", "to": to}
        pipeline = Pipeline(tmp_path, binlog_server, [f"{database}.*"], [flow], load=load)
        pipeline.run_until_idle()
        run(cursor, "t", [CREATE, FILL])
        pipeline.run_until_idle()
        alters = ["ALTER TABLE {t} ADD more INT DEFAULT 5, RENAME COLUMN qty TO quantity", "ALTER TABLE {t} ADD z INT"]
        with pipeline.running() if moment == "running" else nullcontext():
            run(cursor, "t", alters)
            if moment == "running":
                wait_until(lambda: {"quantity", "more", "z"} <= set(shape(tmp_path)))
        pipeline.run_until_idle()
        columns = column_names(connection, "t")
        assert set(columns) <= set(shape(tmp_path))
        expected = compare.source_rows(connection, "t")
        assert compare.sqlite_target_rows(tmp_path / "mart.db", "t", columns) == expected
        run(cursor, "t", [TOUCH])
        pipeline.run_until_idle()
        # Once: the first row does not tell it again.
        ends = [
            (end.table.namespace.version, end.successor.namespace.version)
            for end in pipeline.logged()
            if isinstance(end, End)
        ]
        assert ends == sorted(set(ends))
        assert [old for old, _ in ends[1:]] == [new for _, new in ends[:-1]]
        [*_, newest] = [change for change in pipeline.logged() if isinstance(change, ChangeBatch)]
        assert ends[-1][1] == newest.table.namespace.version
        expected = compare.source_rows(connection, "t")
        assert compare.sqlite_target_rows(tmp_path / "mart.db", "t", columns) == expected


def shape(directory: Path) -> list[str]:
    """The columns of the target."""
    with closing(sqlite3.connect(directory / "mart.db")) as target:
        return [row[1] for row in target.execute("PRAGMA table_info(t)")]


def decoded(server: BinlogServer, database: str) -> list[dict[str, Any]]:
    """What `headrace decode binlog --format ums` says of a database."""
    lines = UmsLines(Dialect.HEADRACE, SOURCE)
    found = []
    for path in server.binlogs():
        with path.open("rb") as file:
            for some in decode_file(BinlogReader([f"{database}.*"]), file, path.name):
                found += [json.loads(line) for line in lines.lines(some.items)]
    return found
