"""What only ClickHouse has: which rows are seen with FINAL and after a merge, records in comments of tables, messages to people."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.clickhouse import ClickHouseSink
from headrace.sinks.clickhouse.server import Server
from headrace.sinks.clickhouse.tables import Tables
from headrace.sinks.growing import Record
from headrace.testing.sink import ORDERS, Change, batch_of, in_threads, order, retried, version_of
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column
from tests.servers.clickhouse import ClickHouse

POSITION = Position("topic", 0, 1, 1, 1)
KEY, NOTE, AMOUNT = ORDERS.columns


class Store:
    """An empty database and a plain client for it."""

    def __init__(self, server: ClickHouse, database: str) -> None:
        self.url, self._server, self._database = server.url(database), server, database

    def open(self, **settings: object) -> ClickHouseSink:
        config = {"type": "clickhouse", "url": self.url, **settings}
        return ClickHouseSink(ClickHouseSink.Config.model_validate(config), "flow")

    def deliver(self, *changes: ChangeBatch | Clear, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for change in changes:
                sink.prepare(change.table)
                sink.clear(change) if isinstance(change, Clear) else sink.write(change)
            sink.commit(POSITION)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._server.execute(sql, self._database)

    def tables(self) -> Tables:
        config = ClickHouseSink.Config.model_validate({"type": "clickhouse", "url": self.url})
        return Tables(config, Server(config))


@pytest.fixture
def store(clickhouse: ClickHouse) -> Iterator[Store]:
    with clickhouse.database() as name:
        yield Store(clickhouse, name)


def noted(number: int, key: int) -> Change:
    return Change("u", number, {"id": key, "note": f"by {number}"})


def test_the_newest_change_is_seen_with_final_and_without_it_after_a_merge(store: Store) -> None:
    """Also against ids of a full load, which are negative."""
    changes = [noted(n, key) for key in range(3) for n in (-(10**18) - key, -5, 7 + key, 3)]
    chance = random.Random(1)
    for _ in range(2):
        chance.shuffle(changes)
        for change in changes:
            store.deliver(batch_of(ORDERS, [change]))
        seen = "SELECT id, note, toInt64(_ums_id_) = 7 + id FROM orders {} ORDER BY id"
        expected = [(key, f"by {7 + key}", 1) for key in range(3)]
        assert [(int(i), note, ok) for i, note, ok in store.query(seen.format("FINAL"))] == expected
    assert len(store.query("SELECT id FROM orders")) > 3
    store.query("OPTIMIZE TABLE orders FINAL")
    assert [(int(i), note, ok) for i, note, ok in store.query(seen.format(""))] == expected


def test_only_negative_ids_are_in_order(store: Store) -> None:
    for number in (-3, -(2**63), -(10**12)):
        store.deliver(batch_of(ORDERS, [noted(number, 10)]))
    assert store.query("SELECT note FROM orders FINAL") == [("by -3",)]


def test_a_deleted_row_keeps_its_last_values(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10), order(2, 20), order(3, 10, "d", note="before")]))
    rows = store.query("SELECT toInt32(id), note, toInt32(_ums_id_), _is_active_ FROM orders FINAL ORDER BY id")
    assert rows == [(10, "before", 3, 0), (20, "by 2", 2, 1)]


def test_writers_of_the_same_keys_side_by_side(store: Store) -> None:
    chance = random.Random(1)
    changes = [order(n, chance.randrange(20), chance.choice("iuud")) for n in range(1, 241)]
    newest = {change.values["id"]: change for change in changes}
    parts = [chance.sample(changes, len(changes)) for _ in range(3)]

    def write(changes: list[Change]) -> None:
        for start in range(0, len(changes), 30):
            retried(partial(store.deliver, batch_of(ORDERS, changes[start : start + 30])))

    in_threads(*(partial(write, part) for part in parts))
    rows = store.query("SELECT toInt32(id), toInt32(_ums_id_), _is_active_ FROM orders FINAL ORDER BY id")
    assert rows == [(key, newest[key].id, int(newest[key].op != "d")) for key in sorted(newest)]  # type: ignore[type-var]
    assert len(store.query("SELECT name FROM system.tables WHERE database = currentDatabase()")) == 3


def test_of_many_who_replace_a_record_one_does(store: Store) -> None:
    won: list[int] = []

    def replaces(number: int) -> None:
        tables = store.tables()
        for _ in range(5):
            old = tables.read(ORDERS)
            if tables.replace(ORDERS, old, replace(old, number=old.number + 1, owner=f"{number}")):
                won.append(old.number)

    in_threads(*(partial(replaces, number) for number in range(3)))
    assert sorted(won) == sorted(set(won))
    assert store.tables().read(ORDERS).number >= max(won) + 1


def test_who_slept_while_others_replaced_the_record_has_lost(store: Store) -> None:
    sleeper, others = store.tables(), store.tables()
    old = sleeper.read(ORDERS)
    for number in range(1, 4):
        assert others.replace(ORDERS, others.read(ORDERS), Record(number=number))
    assert not sleeper.replace(ORDERS, old, Record(number=100))
    assert others.read(ORDERS).number == 3


def test_a_column_that_was_added_needs_no_change_of_rows(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    later = version_of(ORDERS, 1, KEY, NOTE, AMOUNT, Column("size", pa.int32(), "int", initial_default="7"))
    store.deliver(batch_of(later, [Change("i", 2, {"id": 20})]))
    assert store.query("SELECT toInt32(id), size FROM orders FINAL ORDER BY id") == [(10, 7), (20, None)]
    assert store.query("SELECT command FROM system.mutations WHERE database = currentDatabase()") == []


def test_a_retyped_column_goes_on_beside_the_old_one(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    text = version_of(ORDERS, 1, KEY, NOTE, replace(AMOUNT, type=pa.utf8(), source_type="varchar(20)"))
    store.deliver(batch_of(text, [Change("i", 2, {"id": 20, "amount": "x"})]))
    assert store.query("SELECT amount_v1 FROM orders FINAL ORDER BY id") == [("1.00",), ("x",)]
    blob = version_of(ORDERS, 2, KEY, replace(NOTE, type=pa.binary(), source_type="blob"))
    with pytest.raises(DataError, match="column 'note': no type of the target holds blob"):
        store.deliver(batch_of(blob, []))


def test_a_value_that_a_key_does_not_hold_is_refused(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    unsigned = version_of(ORDERS, 1, replace(KEY, type=pa.uint64(), source_type="bigint unsigned"), NOTE, AMOUNT)
    with pytest.raises(DataError, match="does not fit a ClickHouse column of type Int64"):
        store.deliver(batch_of(unsigned, [Change("i", 2, {"id": 2**63, "amount": Decimal(1)})]))


def test_tables_of_the_user_must_keep_the_newest_change(store: Store) -> None:
    store.query("CREATE TABLE orders (id Int64, note Nullable(String)) ENGINE = MergeTree ORDER BY id")
    with pytest.raises(ConfigError, match="the engine MergeTree, which does not keep the newest change"):
        store.deliver(batch_of(ORDERS, [order(1, 10)]))
    store.deliver(batch_of(ORDERS, [order(1, 10)]), table="{schema}_{table}")
    store.query("ALTER TABLE shop_orders DROP COLUMN note")
    store.query("ALTER TABLE shop_orders ADD COLUMN note Int8")
    with pytest.raises(ConfigError, match="has a column 'note' of type Int8"):
        store.deliver(batch_of(ORDERS, [order(2, 10)]), table="{schema}_{table}")


def test_a_commit_makes_one_part_of_a_table(store: Store) -> None:
    other = replace(ORDERS, namespace=replace(ORDERS.namespace, table="others"))
    with closing(store.open()) as sink:
        for table in (ORDERS, other):
            sink.prepare(table)
        for number in range(10):
            sink.write(batch_of((ORDERS, other)[number % 2], [order(number, number)]))
        sink.commit(POSITION)
    parts = store.query(
        "SELECT table, toInt32(count()) FROM system.parts WHERE database = currentDatabase() GROUP BY 1"
    )
    assert dict(parts) == {"orders": 1, "others": 1, "headrace_positions": 1}


def test_a_table_that_somebody_drops_is_made_again(store: Store) -> None:
    with closing(store.open()) as sink:
        sink.prepare(ORDERS)
        store.query("DROP TABLE orders")
        sink.write(batch_of(ORDERS, [order(1, 10)]))
        with pytest.raises(RetryableError, match="orders"):
            sink.commit(POSITION)
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    assert store.query("SELECT note FROM orders") == [("by 1",)]


def test_a_server_that_is_away_and_a_database_that_is_not_there(store: Store) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        Store.deliver(_at(store, store.url.rpartition("/")[0] + "/nowhere"), batch_of(ORDERS, [order(1, 10)]))
    with pytest.raises(RetryableError, match=r"ClickHouse at 127\.0\.0\.1:1 is away"):
        _at(store, "http://127.0.0.1:1/db").open().check()
    with closing(store.open()) as sink:
        sink.check()


def _at(store: Store, url: str) -> Store:
    other = object.__new__(Store)
    other.__dict__ = store.__dict__ | {"url": url}
    return other


def test_names_that_clickhouse_cannot_have_are_refused(store: Store) -> None:
    for name in ("ü" * 70, "headrace_positions"):
        table = replace(ORDERS, namespace=replace(ORDERS.namespace, table=name))
        with pytest.raises(ConfigError, match="cannot have the table name"), closing(store.open()) as sink:
            sink.prepare(table)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "clickhouse://h/db"}, "write `url: http"),
        ({"url": "http://u:geheim@h:8123/db"}, "settings of their own"),
        ({"url": "http://h:port/db"}, "write `url: http"),
        ({"url": "http://h/db", "table": "{tabel}"}, "may use"),
        ({"url": "http://h/db", "delete": "hard"}, "delete"),
    ],
)
def test_wrong_settings_say_what_to_write(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as raised:
        ClickHouseSink.Config.model_validate({"type": "clickhouse", **settings})
    assert "geheim" not in str(raised.value)
