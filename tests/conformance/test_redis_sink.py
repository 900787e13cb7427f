"""What only Redis has: keys as their readers see them, writers beside a change of shape, a server that is killed or full."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import redis as client
from pydantic import ValidationError

from headrace.errors import ConfigError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.redis import RedisSink
from headrace.testing.sink import ORDERS, Change, batch_of, order, version_of
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.conformance.two_versions import SWAPPED, written
from tests.servers.redis import Redis

BIG = 103_000_012_345_678_901


def big(change_id: int, key: int) -> Change:
    """A change whose id is too large for its amount."""
    return Change("i", change_id, {"id": key, "note": f"by {change_id}"})


class Store:
    """An empty database of the server."""

    def __init__(self, server: Redis, database: int) -> None:
        self.url = server.url(database)
        self.client: client.Redis = server.connect(database)

    def open(self, **settings: object) -> RedisSink:
        return RedisSink(RedisSink.Config.model_validate({"type": "redis", "url": self.url, **settings}), "flow")

    def deliver(self, *changes: ChangeBatch | Clear, offset: int = 1, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for change in changes:
                sink.prepare(change.table)
                sink.clear(change) if isinstance(change, Clear) else sink.write(change)
            sink.commit(Position("topic", 0, offset, offset, 1))

    def hash(self, key: str) -> dict[str, str]:
        found: Any = self.client.hgetall(key)
        return {name.decode(): value.decode() for name, value in found.items()}

    def scan(self, table: TableSchema, **settings: object) -> list[dict[str, Any]]:
        with closing(self.open(**settings)) as sink:
            return [row for batch in sink.scan(table) for row in batch.to_pylist()]


@pytest.fixture
def store(redis: Redis) -> Iterator[Store]:
    with redis.database() as number:
        made = Store(redis, number)
        yield made
        made.client.close()


def test_a_row_is_a_hash(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [big(BIG, 10), Change("i", BIG + 1, {"id": 11, "amount": Decimal("0.50")})]))
    row = store.hash("shop:orders:10")
    assert row.pop("_ums_ts_") == "5287-10-23 16:45:45.678901"
    assert row == {"id": "10", "note": f"by {BIG}", "_ums_id_": str(BIG), "_is_active_": "1"}
    assert store.hash("shop:orders:11")["amount"] == "0.50"


def test_a_row_is_a_json_text(store: Store) -> None:
    table = version_of(ORDERS, 0, *ORDERS.columns, Column("raw", pa.binary(), "blob"))
    store.deliver(batch_of(table, [Change("i", 5, {"id": 10, "note": 'ü"\n', "raw": b"\0\xff"})]), form="json")
    found: Any = store.client.get("shop:orders:10")
    row = json.loads(found)
    assert {name: row[name] for name in ("id", "note", "amount", "raw", "_ums_id_", "_is_active_")} == {
        "id": "10", "note": 'ü"\n', "amount": None, "raw": "AP8=", "_ums_id_": "5", "_is_active_": 1
    }  # fmt: skip


@pytest.mark.parametrize("form", ["hash", "json"])
def test_a_soft_delete_keeps_values(store: Store, form: str) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]), form=form)
    store.deliver(batch_of(ORDERS, [Change("d", 2, {"id": 10})]), form=form)
    raw: Any = store.client.get("shop:orders:10") if form == "json" else None
    row = json.loads(raw) if raw else store.hash("shop:orders:10")
    assert (row["note"], row["_ums_id_"], str(row["_is_active_"])) == ("by 1", "2", "0")


def test_a_hard_delete_removes_the_key_and_remembers_for_a_time(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(5, 10)]), delete="hard")
    store.deliver(batch_of(ORDERS, [order(6, 10, "d")]), delete="hard", tombstones="1h")
    assert not store.client.exists("shop:orders:10")
    life: Any = store.client.ttl("headrace:gone:shop:orders:10")
    assert 3500 < life <= 3600


def test_ids_are_compared_to_the_last_digit(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [big(BIG, 1), big(-5, 2), big(-(10**10) + 1, 3)]))
    store.deliver(batch_of(ORDERS, [big(BIG - 1, 1), big(-6, 2), big(-(10**10) + 2, 3)]))
    assert {row["note"] for row in store.scan(ORDERS)} == {f"by {BIG}", "by -5", f"by {-(10**10) + 2}"}


def test_rows_may_expire(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]), expire="1h")
    life: Any = store.client.ttl("shop:orders:10")
    assert 3500 < life <= 3600
    store.deliver(batch_of(SWAPPED, [Change("i", 2, {"id": 20})]), expire="1h")
    life = store.client.ttl("shop:orders:10")
    assert 3500 < life <= 3600, "a change of shape is no change of the row"


def test_names_cannot_collide_and_collisions_of_patterns_are_refused(store: Store) -> None:
    one = replace(ORDERS, namespace=Namespace("mysql", "db1", "a:b", "c"))
    two = replace(ORDERS, namespace=Namespace("mysql", "db1", "a", "b:c"))
    store.deliver(batch_of(one, [order(1, 1)]), batch_of(two, [order(2, 1)]))
    assert [row["note"] for table in (one, two) for row in store.scan(table)] == ["by 1", "by 2"]
    with pytest.raises(ConfigError, match="would both be written"):
        store.deliver(batch_of(one, []), batch_of(two, []), key="{source}:{key}")


@pytest.mark.parametrize("wrong", [{"key": "{schema}:{table}"}, {"key": "{key}:{tble}"}, {"url": "http://x"}])
def test_wrong_settings_are_told(store: Store, wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        store.open(**wrong)


@pytest.mark.parametrize("form", ["hash", "json"])
def test_writers_of_two_versions_beside_each_other(store: Store, form: str) -> None:
    """Columns exchange their names while both shapes are written: every value ends where it belongs, once."""
    expected = written(lambda: store.open(form=form, batch_rows=7), 800)
    found = store.scan(SWAPPED, form=form)
    assert {(row["id"], row["amount"], int(row["note"]), row["size"]) for row in found} == expected
    assert len(found) == 40


def test_a_change_of_shape_that_was_broken_off_is_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.deliver(batch_of(ORDERS, [order(n, n) for n in range(1, 1301)]))
    sink = store.open()
    calls = iter(range(100))
    rows = sink._rows

    def dies(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise RetryableError("the connection is lost", fix="")
        return rows(*arguments)

    monkeypatch.setattr(sink, "_rows", dies)
    with pytest.raises(RetryableError, match="lost"):
        sink.prepare(SWAPPED)
    sink.close()
    with closing(store.open()) as sink:
        sink.prepare(ORDERS)
        sink.write(batch_of(ORDERS, [order(5000, 1)]))
        sink.commit(Position("topic", 0, 1, 1, 1))
    found = sorted(store.scan(SWAPPED), key=lambda row: row["id"])
    assert [(row["amount"], int(row["note"])) for row in found] == [
        ("by 5000", 5000),
        *((f"by {n}", n) for n in range(2, 1301)),
    ]


def test_a_server_that_is_killed_has_positions_that_are_not_newer_than_rows() -> None:
    """Killed while it is written to, again and again; what the position says has been written is there."""
    with Redis(appendfsync="everysec") as server:
        store = Store(server, 0)
        offset = 0
        chance = random.Random()
        for _ in range(3):
            timer = threading.Timer(0.1 + chance.random() / 4, lambda: server._end(signal.SIGKILL))
            timer.start()
            try:
                with closing(store.open(batch_rows=50)) as sink:
                    sink.prepare(ORDERS)
                    while True:
                        offset += 1
                        sink.write(batch_of(ORDERS, [order(offset * 1000 + n, n) for n in range(200)]))
                        sink.commit(Position("topic", 0, offset, offset, 1))
            except RetryableError as error:
                assert "away" in error.message  # noqa: PT017 - the time of the kill is random
            timer.join()
            server.start()
            with closing(store.open()) as sink:
                position = sink.position("topic", 0)
            ids = [int(row["note"].removeprefix("by ")) for row in store.scan(ORDERS)]
            if position is not None:
                assert min(ids) >= position.offset * 1000
                assert len(ids) == 200
        store.client.close()


def test_what_stands_in_the_way_is_told() -> None:
    with pytest.raises(RetryableError, match="away"), closing(_open("redis://127.0.0.1:1/0")) as sink:
        sink.check()
    with Redis(maxmemory="3mb", **{"maxmemory-policy": "noeviction"}) as server:
        store = Store(server, 0)
        store.open().check()
        with pytest.raises(RetryableError, match=r"maxmemory|memory"):
            store.deliver(batch_of(ORDERS, [Change("i", n, {"id": n, "note": "x" * 2000}) for n in range(1, 2000)]))
        with (
            pytest.raises(ConfigError, match="user and password"),
            closing(_open(f"redis://:no@127.0.0.1:{server.port}/0")) as sink,
        ):
            sink.check()
        store.client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(ConfigError, match="forgets rows"):
            store.open().check()
        store.client.close()


def _open(url: str) -> RedisSink:
    return RedisSink(RedisSink.Config.model_validate({"type": "redis", "url": url}), "flow")
