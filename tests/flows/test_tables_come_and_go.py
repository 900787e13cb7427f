"""Tables that a source captures from now on, no longer, and again: with the history they had, and without changes that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.lake.asof import as_of
from tests.flows import compare
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer

pytestmark = pytest.mark.demand(16)


@pytest.fixture
def database(binlog_server: BinlogServer) -> Iterator[str]:
    with binlog_server.database() as name:
        binlog_server.execute(
            *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))" for table in ("a", "b")),
            *(f"INSERT INTO {table} VALUES (1, 'one'), (2, 'two'), (3, 'three')" for table in ("a", "b")),
            database=name,
        )
        yield name


def pipeline(directory: Path, server: BinlogServer, tables: list[str], **source: Any) -> Pipeline:
    to: list[dict[str, Any]] = [
        {"type": "lake", "path": str(directory / "lake")},
        {"type": "database", "url": f"sqlite:///{directory}/mart.db"},
    ]
    flows = [{"name": each["type"], "from": "mysql.db1", "to": each} for each in to]
    return Pipeline(directory, server, tables, flows, **source)


def arrived(directory: Path, server: BinlogServer, database: str, table: str) -> bool:
    with server.connect(database) as connection:
        expected = compare.source_rows(connection, table)
    columns = [row[0] for row in server.execute(f"SHOW COLUMNS FROM {table}", database=database)]
    found = as_of(directory / "lake", f"mysql.db1.{database}.{table}").select(columns)
    lake = compare.plain(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return lake == expected == compare.sqlite_target_rows(directory / "mart.db", table, columns)


def test_a_table_that_is_created_while_capture_runs(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    whole = pipeline(tmp_path, binlog_server, [f"{database}.*"], load={"workers": 1})
    whole.run_until_idle()
    with whole.running():
        binlog_server.execute(
            "CREATE TABLE c (id INT PRIMARY KEY, v VARCHAR(20))",
            "INSERT INTO c VALUES (1, 'new')",
            "DROP TABLE b",
            "UPDATE a SET v = 'changed' WHERE id = 1",
            database=database,
        )
    assert arrived(tmp_path, binlog_server, database, "a")
    assert arrived(tmp_path, binlog_server, database, "c")


def test_a_table_that_is_named_later_is_loaded_then(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    pipeline(tmp_path, binlog_server, [f"{database}.a"], load={"workers": 1}).run_until_idle()
    binlog_server.execute("UPDATE a SET v = 'x'", "UPDATE b SET v = 'y' WHERE id = 2", database=database)
    both = pipeline(tmp_path, binlog_server, [f"{database}.a", f"{database}.b"], load={"workers": 1})
    both.run_until_idle()
    assert both.notices == []
    assert arrived(tmp_path, binlog_server, database, "a")
    assert arrived(tmp_path, binlog_server, database, "b")


@pytest.mark.parametrize("loads", [True, False], ids=["loaded", "told"])
def test_a_table_that_is_left_out_and_named_again(
    binlog_server: BinlogServer, database: str, tmp_path: Path, *, loads: bool
) -> None:
    options: dict[str, Any] = {"load": {"workers": 1}} if loads else {"start": "earliest"}
    both = [f"{database}.a", f"{database}.b"]
    pipeline(tmp_path, binlog_server, both, **options).run_until_idle()
    binlog_server.execute("UPDATE b SET v = 'before' WHERE id = 1", database=database)
    pipeline(tmp_path, binlog_server, both, **options).run_until_idle()
    before = as_of(tmp_path / "lake", f"mysql.db1.{database}.b")
    binlog_server.execute("UPDATE a SET v = 'meanwhile'", database=database)
    without = pipeline(tmp_path, binlog_server, both[:1], **options)
    without.run_until_idle()
    assert without.notices == []
    # Not read: rows, and a new column that old rows have a value in.
    binlog_server.execute(
        "DELETE FROM b WHERE id = 3",
        "ALTER TABLE b RENAME COLUMN v TO w, ADD COLUMN more INT DEFAULT 7",
        "INSERT INTO b VALUES (4, 'missed', 8)",
        database=database,
    )
    pipeline(tmp_path, binlog_server, both[:1], **options).run_until_idle()
    again = pipeline(tmp_path, binlog_server, both, **options)
    again.run_until_idle()
    binlog_server.execute("UPDATE b SET w = 'again' WHERE id = 1", database=database)
    again.run_until_idle()
    [told] = again.notices
    assert f"{database}.b is captured again" in told
    assert ("it is loaded again" if loads else "`headrace load`") in told
    assert arrived(tmp_path, binlog_server, database, "b") == loads
    assert arrived(tmp_path, binlog_server, database, "a")
    # What it was before is there still.
    assert before.column_names == ["id", "v"]
    now = as_of(tmp_path / "lake", f"mysql.db1.{database}.b")
    assert now.column_names == ["id", "w", "more"]
    kept = dict(zip(now.column("id").to_pylist(), now.column("w").to_pylist(), strict=True))
    assert (kept[1], kept[2]) == ("again", "two")
