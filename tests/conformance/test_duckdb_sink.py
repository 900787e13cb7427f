"""What only a DuckDB file has: one process at a time, one writer at a time in it, keys whose type stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from headrace.errors import ConfigError, DataError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.database import DatabaseSink
from headrace.testing.sink import ORDERS, Change, batch_of, order, version_of
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, TableSchema

POSITION = Position("topic", 0, 1, 1, 1)
_HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


class File:
    """A DuckDB file that sinks open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, options: str = "", **settings: object) -> DatabaseSink:
        config = {"type": "database", "url": f"duckdb:///{self.path}{options}", **settings}
        return DatabaseSink(DatabaseSink.Config.model_validate(config), "flow")

    def deliver(self, *batches: ChangeBatch, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for batch in batches:
                sink.prepare(batch.table)
                sink.write(batch)
            sink.commit(POSITION)

    def scan(self, table: TableSchema, **settings: object) -> list[dict[str, object]]:
        with closing(self.open(**settings)) as sink:
            return [row for batch in sink.scan(table) for row in batch.to_pylist()]

    def query(self, sql: str) -> list[tuple[object, ...]]:
        with closing(duckdb.connect(str(self.path))) as connection:
            return connection.execute(sql).fetchall()


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "mart.duckdb")


@contextmanager
def _held_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdin=-1, stdout=-1, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_file_that_another_process_has_open_is_told_and_taken_when_it_is_free(file: File) -> None:
    with _held_by_another_process(file.path):
        with pytest.raises(RetryableError, match="Could not set lock on file") as raised:
            file.deliver(batch_of(ORDERS, [order(1, 10)]))
        assert "one process at a time" in raised.value.fix
    file.deliver(batch_of(ORDERS, [order(1, 10)]))
    assert [row["id"] for row in file.scan(ORDERS)] == [10]


def test_a_writer_waits_for_another_one_of_its_process(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sinks.database.duckdb._BUSY_TIMEOUT_S", 0.05)
    with closing(file.open()) as first, closing(file.open()) as second:
        for sink in (first, second):
            sink.prepare(ORDERS)
            sink.commit(POSITION)
        first.write(batch_of(ORDERS, [order(1, 10)]))
        first.flush()
        second.write(batch_of(ORDERS, [order(2, 10)]))
        with pytest.raises(RetryableError, match="has not ended its transaction"):
            second.flush()
        first.commit(POSITION)
        second.write(batch_of(ORDERS, [order(2, 10)]))
        second.commit(POSITION)
    assert [row["note"] for row in file.scan(ORDERS)] == ["by 2"]


def test_a_closed_writer_leaves_nothing_behind_and_lets_others_in(file: File) -> None:
    with closing(file.open()) as first:
        first.prepare(ORDERS)
        first.write(batch_of(ORDERS, [order(1, 10)]))
        first.flush()
    file.deliver(batch_of(ORDERS, [order(2, 20)]))
    assert [row["id"] for row in file.scan(ORDERS)] == [20]


def test_an_integer_key_becomes_wider_and_another_type_of_key_is_refused(file: File) -> None:
    key, *others = ORDERS.columns
    small = replace(ORDERS, columns=(replace(key, type=pa.int32(), source_type="int"), *others))
    file.deliver(batch_of(small, [order(1, 10)]))
    file.deliver(batch_of(version_of(ORDERS, 1, *ORDERS.columns), [order(2, 2**40)]))
    assert [row["id"] for row in file.scan(ORDERS)] == [10, 2**40]
    text = version_of(ORDERS, 2, replace(key, type=pa.utf8(), source_type="varchar(20)"), *others)
    with pytest.raises(DataError, match=r"is in the key of orders .* which DuckDB cannot change"):
        file.deliver(batch_of(text, [Change("i", 3, {"id": "x"})]))


def test_a_column_before_the_key_is_dropped(file: File) -> None:
    key, note, amount = ORDERS.columns
    table = version_of(ORDERS, 0, note, amount, key)
    file.deliver(batch_of(table, [order(1, 10)]))
    later = version_of(ORDERS, 1, amount, key)
    file.deliver(batch_of(later, [order(2, 20)]), on_change={"dropped": "evolve"})
    assert file.scan(later) == [{"amount": Decimal(1), "id": 10}, {"amount": Decimal(2), "id": 20}]
    assert [name for (name,) in file.query("SELECT column_name FROM duckdb_columns() WHERE table_name = 'orders'")][
        :2
    ] == ["id", "amount"]


def test_shards_get_their_columns_one_after_the_other(file: File) -> None:
    """Old rows of a shard are changed between two columns that are added, in a table that the other one has as well."""
    shard = replace(ORDERS, namespace=replace(ORDERS.namespace, schema="shop2"))
    more = (Column("a", pa.int32(), "int", initial_default="7"), Column("b", pa.utf8(), "text", initial_default="x"))
    file.deliver(batch_of(ORDERS, [order(1, 10)]), batch_of(shard, [order(2, 10)]), merge=True)
    for table in (ORDERS, shard):
        file.deliver(batch_of(version_of(table, 1, *table.columns, *more), []), merge=True)
        file.deliver(batch_of(table, [order(3, 30)]), merge=True)
    for table in (ORDERS, shard):
        rows = file.scan(version_of(table, 1, *table.columns, *more), merge=True)
        assert [(row["id"], row["a"], row["b"]) for row in rows] == [(10, 7, "x"), (30, 7, "x")]


def test_indexes_of_the_user_are_made_anew_with_another_key(file: File) -> None:
    file.deliver(batch_of(ORDERS, [order(1, 10)]))
    file.query("CREATE INDEX by_amount ON orders (amount)")
    file.deliver(batch_of(replace(version_of(ORDERS, 1, *ORDERS.columns), key=("note",)), [order(2, 20)]))
    assert file.query("SELECT index_name FROM duckdb_indexes() WHERE table_name = 'orders'") == [("by_amount",)]


def test_settings_of_the_engine_and_the_schema(file: File) -> None:
    with closing(duckdb.connect(str(file.path))) as connection:
        connection.execute("CREATE SCHEMA mart")
    settings = {"options": "?memory_limit=300MB&threads=1", "schema": "mart"}
    for _ in range(2):
        file.deliver(batch_of(ORDERS, [order(1, 10)]), **settings)
    assert file.query("SELECT id FROM mart.mart.orders") == [(10,)]
    with pytest.raises(ConfigError, match="memory_limit"):
        file.deliver(batch_of(ORDERS, [order(1, 10)]), options="?memory_limit=lots")


def test_a_file_of_something_else_is_told(file: File) -> None:
    file.path.write_bytes(b"PAR1" * 5000)
    with pytest.raises(ConfigError, match="not a valid DuckDB database file"):
        file.deliver(batch_of(ORDERS, [order(1, 10)]))
