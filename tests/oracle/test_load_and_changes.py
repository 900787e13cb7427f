"""Tables that change their shape while, before and after they are loaded: targets are compared with the server's own SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.load.wishes import Request
from headrace.lake.asof import as_of
from tests.flows import compare
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer

FILL = "INSERT INTO t (id, phone) WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 40) SELECT n, n FROM s"


@pytest.fixture
def database(binlog_server: BinlogServer) -> Iterator[str]:
    with binlog_server.database() as name:
        yield name


def pipeline(
    directory: Path, server: BinlogServer, database: str, on_change: str = "evolve", **source: Any
) -> Pipeline:
    flows = [
        {"name": "raw", "from": f"mysql.db1.{database}.*", "to": {"type": "lake", "path": str(directory / "lake")}},
        {
            "name": "lite",
            "from": f"mysql.db1.{database}.*",
            "to": {"type": "database", "url": f"sqlite:///{directory}/mart.db"},
            "on_change": on_change,
        },
    ]
    return Pipeline(directory, server, [f"{database}.*"], flows, **source)


def assert_arrived(directory: Path, server: BinlogServer, database: str, *tables: str) -> None:
    with server.connect(database) as connection:
        for table in tables:
            expected = compare.source_rows(connection, table)
            columns = [row[0] for row in server.execute(f"SHOW COLUMNS FROM {table}", database=database)]
            found = as_of(directory / "lake", f"mysql.db1.{database}.{table}").select(columns)
            assert compare.plain(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
            assert compare.sqlite_target_rows(directory / "mart.db", table, columns) == expected


@pytest.mark.parametrize(
    "statements",
    [
        ["INSERT INTO t VALUES (101, 'x')", "ALTER TABLE t RENAME COLUMN phone TO tel", "INSERT INTO t VALUES (102, 'y')"],
        ["ALTER TABLE t RENAME COLUMN phone TO tel", "INSERT INTO t VALUES (102, 'y')"],
        ["ALTER TABLE t ADD COLUMN z INT DEFAULT 3", "ALTER TABLE t ADD COLUMN y INT DEFAULT 4", "INSERT INTO t VALUES (102, 'y', 1, 2)"],
        ["INSERT INTO t VALUES (101, 'x')", "ALTER TABLE t DROP COLUMN phone", "ALTER TABLE t ADD COLUMN phone INT", "INSERT INTO t VALUES (102, 9)"],
        ["UPDATE t SET phone = 'u' WHERE id = 7", "ALTER TABLE t ADD COLUMN z INT DEFAULT 3", "UPDATE t SET z = 9 WHERE id = 8"],
        ["ALTER TABLE t RENAME TO old", "CREATE TABLE t (id INT PRIMARY KEY, phone INT)", "INSERT INTO t VALUES (5, 5)"],
    ],
    ids=["rename", "rename without rows", "two at once", "dropped and added", "added", "replaced"],
)  # fmt: skip
@pytest.mark.parametrize(("start", "loaded"), [("latest", True), ("latest", None), ("earliest", None)])
def test_altered_while_capture_was_not_there(
    binlog_server: BinlogServer, database: str, statements: list[str], start: str, loaded: bool | None, tmp_path: Path
) -> None:
    """The load reads the table as it is, and the log has it as it was."""
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20))", FILL, database=database)
    file, offset = binlog_server.position()
    # From here on: capture begins at this place, and everything below is before it.
    if start == "latest":
        pipeline(tmp_path, binlog_server, database, load=loaded).run_until_idle()
        binlog_server.execute("INSERT INTO t (id) VALUES (90)", database=database)
        pipeline(tmp_path, binlog_server, database, load=loaded).run_until_idle()
    binlog_server.execute(*statements, database=database)
    place = f"{file}:{offset}" if start == "earliest" else start
    pipeline(tmp_path, binlog_server, database, start=place, load=True).run_until_idle()
    assert_arrived(tmp_path, binlog_server, database, "t")


@pytest.mark.demand(1)
def test_altered_in_the_middle_of_its_load(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20))", FILL, database=database)
    part = pipeline(tmp_path, binlog_server, database, load={"workers": 1, "chunk_rows": 7})
    part.capture()
    part.load(steps=3)
    binlog_server.execute(
        "INSERT INTO t VALUES (60, 'x')",
        "ALTER TABLE t RENAME COLUMN phone TO tel, ADD COLUMN z INT DEFAULT 3",
        "UPDATE t SET z = 5 WHERE id % 9 = 0",
        database=database,
    )
    part.run_until_idle()
    assert_arrived(tmp_path, binlog_server, database, "t")


def test_a_key_that_changes_in_the_middle_of_a_load(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20) NOT NULL)", FILL, database=database)
    part = pipeline(tmp_path, binlog_server, database, load={"workers": 1, "chunk_rows": 7})
    part.capture()
    part.load(steps=3)
    binlog_server.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (phone, id)", database=database)
    assert part.load()
    part.run_until_idle()
    found = as_of(tmp_path / "lake", f"mysql.db1.{database}.t")
    assert sorted(found.column("id").to_pylist()) == list(range(1, 41))
    binlog_server.execute("UPDATE t SET phone = CONCAT('+', phone) WHERE id > 20", database=database)
    part.run_until_idle()
    assert_arrived(tmp_path, binlog_server, database, "t")


@pytest.mark.parametrize(
    "statements",
    [
        ["RENAME TABLE t TO old, fresh TO t"],
        ["RENAME TABLE t TO old", "ALTER TABLE fresh RENAME TO t"],
        ["RENAME TABLE t TO old, fresh TO t", "RENAME TABLE t TO fresh, old TO t", "RENAME TABLE t TO old"],
        ["RENAME TABLE t TO _t_del, _t_gho TO t"],
        ["RENAME TABLE t TO _t_del", "RENAME TABLE _t_gho TO t"],
    ],
    ids=["swapped", "in two steps", "and back, and away", "by gh-ost", "by gh-ost in two steps"],
)
@pytest.mark.parametrize("captured_first", [True, False], ids=["captured first", "loaded first"])
def test_replaced_in_the_middle_of_its_load(
    binlog_server: BinlogServer, database: str, statements: list[str], captured_first: bool, tmp_path: Path
) -> None:
    """What takes the name has rows that no log tells of; and what had the name has another one, under which nothing was loaded."""
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20))", FILL, database=database)
    for copy, sign in (("fresh", "+"), ("_t_gho", "")):
        binlog_server.execute(
            f"CREATE TABLE {copy} LIKE t",
            f"INSERT INTO {copy} SELECT id, CONCAT('{sign}', phone) FROM t",
            database=database,
        )
    load = {"workers": 1, "chunk_rows": 7, "exclude": [f"{database}.fresh"]}
    part = pipeline(tmp_path, binlog_server, database, load=load)
    part.capture()
    part.load(steps=3)
    for statement in statements:
        binlog_server.execute(statement, database=database)
        part.load(steps=1)
    names = {name for (name,) in binlog_server.execute("SHOW TABLES", database=database)} & {"t", "old"}
    for name in names:
        binlog_server.execute(
            f"UPDATE {name} SET phone = 'u' WHERE id % 9 = 0", f"DELETE FROM {name} WHERE id = 3", database=database
        )
    if captured_first:
        part.capture()
    assert part.load()
    part.run_until_idle()
    assert_arrived(tmp_path, binlog_server, database, *names)


@pytest.mark.parametrize("first", ["changes", "loaded rows"])
def test_a_key_that_changes_before_what_was_loaded_is_delivered(
    binlog_server: BinlogServer, database: str, first: str, tmp_path: Path
) -> None:
    """Rows that were loaded under the old key fit the target no more, and come again."""
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20) NOT NULL)", FILL, database=database)
    part = pipeline(tmp_path, binlog_server, database, load={"workers": 1})
    part.capture()
    assert part.load()
    binlog_server.execute(
        "UPDATE t SET phone = 'x' WHERE id = 7",
        "DELETE FROM t WHERE id = 8",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (phone, id)",
        "INSERT INTO t VALUES (8, 'again')",
        "UPDATE t SET phone = 'y' WHERE id IN (7, 9)",
        database=database,
    )
    part.capture()
    assert part.load()
    topics = ["db1", "db1.load.1"] if first == "changes" else ["db1.load.1", "db1"]
    for flow in part.flows:
        for topic in topics:
            part.follow(flow, topic)
    assert_arrived(tmp_path, binlog_server, database, "t")


@pytest.mark.demand(15)
def test_many_tables_loaded_again_at_one_mark(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    """What is captured next wins against all of them."""
    tables = [f"t{number}" for number in range(70)]
    binlog_server.execute(
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in tables),
        *(f"INSERT INTO {table} VALUES (1, 1), (2, 2)" for table in tables),
        database=database,
    )
    part = pipeline(tmp_path, binlog_server, database, load={"workers": 1, "first": False}, start="earliest")
    part.run_until_idle()
    Request([(database, table) for table in tables]).write(tmp_path / "state")
    assert part.load()
    binlog_server.execute(f"UPDATE {tables[-1]} SET v = 7 WHERE id = 1", database=database)
    binlog_server.execute(f"DELETE FROM {tables[-1]} WHERE id = 2", database=database)
    part.run_until_idle()
    assert_arrived(tmp_path, binlog_server, database, tables[0], tables[-1])


def test_a_repair_is_no_change_of_the_table(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    """A flow that is to stop at a TRUNCATE does not stop at what a load ends."""
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20))", FILL, database=database)
    part = pipeline(tmp_path, binlog_server, database, on_change="fail", load=True)
    part.run_until_idle()
    binlog_server.execute("SET sql_log_bin = 0", "DELETE FROM t WHERE id < 10", database=database)
    Request([(database, "t")]).write(tmp_path / "state")
    part.run_until_idle()
    assert_arrived(tmp_path, binlog_server, database, "t")


def test_a_table_that_cannot_be_loaded_is_excluded(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    """It neither stops capture nor the loads of others."""
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20))", FILL, database=database)
    binlog_server.execute("CREATE TABLE odd (id INT PRIMARY KEY, _ums_id_ INT)", database=database)
    part = pipeline(tmp_path, binlog_server, database, load={"exclude": [f"{database}.odd"]})
    part.run_until_idle()
    assert_arrived(tmp_path, binlog_server, database, "t")
