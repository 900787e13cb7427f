"""What only Cassandra has: cells with timestamps, partitions, batches, names; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.cassandra import CassandraSink
from headrace.testing.sink import ORDERS, Change, batch_of, order, version_of
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.servers.cassandra import Cassandra

SHIFT = 2**62
ITEMS = TableSchema(
    Namespace("mysql", "db1", "shop", "items"),
    (Column("order_id", pa.int64(), "bigint"), Column("line", pa.int32(), "int"), Column("note", pa.utf8(), "text")),
    ("order_id", "line"),
)


class Store:
    """Tables of its own in a keyspace."""

    def __init__(self, server: Cassandra, session: Session) -> None:
        self.address, self.prefix, self.session = server.address, server.prefix(), session

    def open(self, **settings: object) -> CassandraSink:
        place = {"hosts": self.address, "keyspace": "shared", "replication": {"datacenter1": 1}}
        config = {"type": "cassandra", "table": f"{self.prefix}{{table}}", **place, **settings}
        return CassandraSink(CassandraSink.Config.model_validate(config), "flow")

    def deliver(self, *changes: ChangeBatch, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for change in changes:
                sink.prepare(change.table)
                sink.write(change)
            sink.commit(Position("topic", 0, 1, 1, 1))

    def rows(self, columns: str, table: str = "orders") -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.session.execute(f"SELECT {columns} FROM shared.{self.prefix}{table}")))

    def scan(self, table: TableSchema) -> list[tuple[Any, ...]]:
        with closing(self.open()) as sink:
            return sorted(tuple(row.values()) for batch in sink.scan(table) for row in batch.to_pylist())


@pytest.fixture
def store(cassandra: Cassandra) -> Iterator[Store]:
    with cassandra.connect() as session:
        yield Store(cassandra, session)


def test_a_row_is_a_row_whose_cells_have_the_changes_time(store: Store) -> None:
    columns = (
        *ORDERS.columns,
        Column("at", pa.timestamp("us"), "datetime(3)"),
        Column("exact", pa.timestamp("us"), "datetime(6)"),
        Column("many", pa.uint64(), "bigint unsigned"),
    )
    moment = pa.scalar(1_704_067_199_999_000, pa.int64()).cast(pa.timestamp("us")).as_py()
    values = {"id": 10, "note": "n", "amount": Decimal("0.50"), "at": moment, "exact": moment, "many": 2**64 - 1}
    store.deliver(batch_of(version_of(ORDERS, 0, *columns), [Change("i", 5, values)]))
    assert store.rows('id, note, amount, at, exact, many, "_ums_id_", "_is_active_", writetime(note)') == [
        (10, "n", Decimal("0.50"), moment, "2023-12-31 23:59:59.999000", 2**64 - 1, 5, 1, SHIFT + 5)
    ]


def test_a_soft_delete_keeps_values_and_a_hard_one_does_not(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10), order(2, 20)]))
    store.deliver(batch_of(ORDERS, [Change("d", 3, {"id": 10})]))
    assert store.rows('id, note, "_ums_id_", "_is_active_"') == [(10, "by 1", 3, 0), (20, "by 2", 2, 1)]
    store.deliver(batch_of(ORDERS, [Change("d", 4, {"id": 20}), Change("d", 5, {"id": 10})]), delete="hard")
    store.deliver(batch_of(ORDERS, [order(3, 20), order(4, 10)]), delete="hard")
    assert store.rows("id") == []


def test_null_hides_an_older_value(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    store.deliver(batch_of(ORDERS, [Change("u", 3, {"id": 10})]))
    store.deliver(batch_of(ORDERS, [order(2, 10)]))
    assert store.scan(ORDERS) == [(10, None, None)]


def test_what_somebody_writes_by_hand_does_not_hide_changes(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    store.session.execute(f"UPDATE shared.{store.prefix}orders SET note = 'by hand' WHERE id = 10")
    store.deliver(batch_of(ORDERS, [order(2, 10)]))
    assert store.scan(ORDERS) == [(10, "by 2", Decimal(2))]


def test_rows_may_lie_together_by_a_part_of_their_key(store: Store) -> None:
    rows = [Change("i", n, {"order_id": n % 3, "line": n, "note": "x" * 200}) for n in range(1, 400)]
    store.deliver(batch_of(ITEMS, rows), partition={"shop.items": ["order_id"]})
    found = store.session.execute(f"SELECT line FROM shared.{store.prefix}items WHERE order_id = 1")
    assert [row.line for row in found] == list(range(1, 400, 3))
    with pytest.raises(ConfigError, match="names the column 'note'"):
        store.deliver(batch_of(ITEMS, []), partition={"shop.items": ["note"]})


def test_a_row_that_is_refused_is_told_with_the_reason(store: Store) -> None:
    table = TableSchema(ORDERS.namespace, (Column("code", pa.utf8(), "varchar(9)"), ORDERS.columns[1]), ("code",))
    rows = [Change("i", n + 1, {"code": code, "note": "n"}) for n, code in enumerate(["a", "", "b"])]
    with pytest.raises(DataError, match=r"code=''.*[Kk]ey may not be empty"):
        store.deliver(batch_of(table, rows))
    with pytest.raises(DataError, match="no value in the key column"):
        store.deliver(batch_of(table, [Change("i", 1, {"note": "n"})]))


def test_names_are_what_cassandra_takes_or_refused(store: Store) -> None:
    upper = replace(ORDERS, namespace=replace(ORDERS.namespace, table="ORDERS"))
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    with pytest.raises(ConfigError, match="would be written to the place of"):
        store.deliver(batch_of(upper, [order(2, 10)]))
    with pytest.raises(ConfigError, match="up to 48 characters"):
        store.deliver(batch_of(replace(ORDERS, namespace=replace(ORDERS.namespace, table="x" * 60)), []))


def test_a_table_that_is_there_must_fit(store: Store) -> None:
    store.session.execute(f"CREATE TABLE shared.{store.prefix}orders (id bigint PRIMARY KEY, note int)")
    with pytest.raises(ConfigError, match='column "note" of type int, which is to be text'):
        store.deliver(batch_of(ORDERS, [order(1, 10)]))


@pytest.mark.parametrize(
    "wrong",
    [{"table": "{tble}"}, {"hosts": ["a:1", "b:2"]}, {"hosts": "a:b"}, {"consistency": "ANY"}, {"keyspace": "a b"}],
    ids=str,
)
def test_wrong_settings_are_told(store: Store, wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        store.open(**wrong)


def test_what_stands_in_the_way_is_told(store: Store) -> None:
    with pytest.raises(RetryableError, match="away"), closing(store.open(hosts="127.0.0.1:1")) as sink:
        sink.check()
    with (
        pytest.raises(ConfigError, match="no keyspace 'nowhere'"),
        closing(store.open(keyspace="nowhere", replication=None)) as sink,
    ):
        sink.check()
    with closing(store.open()) as sink:
        sink.check()
