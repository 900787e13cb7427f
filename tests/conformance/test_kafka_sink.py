"""What only the Kafka sink has: records as their readers see them, transactions, tombstones, writers that are taken over or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.capture.topics import KafkaSource
from headrace.errors import ConfigError, DataError, FencedError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.kafka_records import Format, Records
from headrace.stream.refused import Part, Place, refused
from headrace.testing.sink import ORDERS, TYPES, Change, batch_of, order, version_of
from headrace.ums.change import Cause, ChangeBatch, Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.conformance.scanned import of_ums, records, reduced
from tests.servers.kafka import Kafka

POSITION = Position("db1", 0, 7, 7, 7)
FORMATS = ("ums", "ums-dbus", "debezium", "debezium-schema", "canal", "maxwell", "json")


class Topics:
    """Topics of a test, and what is on them."""

    def __init__(self, kafka: Kafka, prefix: str) -> None:
        self.kafka = kafka
        self.prefix = prefix

    def open(self, flow: str = "flow", **settings: Any) -> KafkaSink:
        own = {"topic": f"{self.prefix}{{schema}}.{{table}}", "positions": f"{self.prefix}positions", "timeout": "5s"}
        config = {"type": "kafka", "brokers": self.kafka.brokers, **own, **settings}
        return KafkaSink(KafkaSink.Config.model_validate(config), flow)

    def deliver(self, *changes: ChangeBatch | Clear, position: Position = POSITION, **settings: Any) -> None:
        with closing(self.open(**settings)) as sink:
            put(sink, *changes)
            sink.commit(position)

    def records(
        self, topic: str = "shop.orders", isolation: str = "read_committed"
    ) -> list[tuple[bytes | None, bytes | None, int]]:
        return list(records(self.kafka.client(), self.prefix + topic, isolation))


def put(sink: KafkaSink, *changes: ChangeBatch | Clear) -> None:
    for change in changes:
        sink.prepare(change.table)
        sink.clear(change) if isinstance(change, Clear) else sink.write(change)


def keyed(found: list[tuple[bytes | None, bytes | None, int]]) -> list[tuple[Any, Any]]:
    return [(key and json.loads(key), value and json.loads(value)) for key, value, _ in found]


@pytest.fixture
def topics(kafka: Kafka) -> Iterator[Topics]:
    with kafka.prefix() as prefix:
        yield Topics(kafka, prefix)


# --- what readers see


@pytest.mark.parametrize("form", FORMATS[:-1])
def test_what_is_written_is_what_headrace_reads_as_a_source(form: str, topics: Topics, tmp_path: Path) -> None:
    delete = "hard" if Format(form).has_tombstones else "soft"
    topics.deliver(batch_of(ORDERS, [order(1, 10), order(2, 20)]), format=form, delete=delete)
    topics.deliver(batch_of(ORDERS, [order(3, 10, "u", note="ü"), order(4, 20, "d")]), format=form, delete=delete)
    read_as = {"ums-dbus": "ums", "debezium-schema": "debezium"}.get(form, form)
    config = {"type": "kafka", "name": "k", "brokers": topics.kafka.brokers, "format": read_as}
    config["topics"] = [f"{topics.prefix}shop.orders"]
    source = KafkaSource(KafkaSource.Config.model_validate(config), tmp_path)
    found: list[ChangeBatch] = []
    try:
        for event in source.follow(None):
            found += [change for change in event.changes if isinstance(change, ChangeBatch)]
            if event.caught_up:
                break
    finally:
        source.close()
    rows = [(row["_ums_op_"], int(row["id"]), row["note"]) for batch in found for row in batch.data.to_pylist()]
    assert rows == [("i", 10, "by 1"), ("i", 20, "by 2"), ("u", 10, "ü"), ("d", 20, "by 4")]
    assert all(batch.table.key == ("id",) for batch in found if form != "ums-dbus")


def test_flat_json_is_the_row_as_it_is_now(topics: Topics) -> None:
    table = version_of(ORDERS, 0, *ORDERS.columns, Column("raw", pa.binary(), "blob"))
    row = {"id": 10, "note": 'ü"\n', "amount": None, "raw": b"\0\xff"}
    topics.deliver(batch_of(table, [Change("i", 5, row), Change("d", 2**53 + 1, row)]), format="json")
    expected = {"id": 10, "note": 'ü"\n', "amount": None, "raw": "AP8="}
    [(key, first), (_, last)] = keyed(topics.records())
    assert key == {"id": 10}
    assert first == {**expected, "_ums_id_": "5", "_ums_ts_": "2023-11-14 22:13:20.000005", "_is_active_": 1}
    assert (last["_ums_id_"], last["_is_active_"]) == (str(2**53 + 1), 0)


@pytest.mark.parametrize("form", ["debezium", "debezium-schema", "maxwell", "json"])
def test_a_hard_delete_ends_in_a_tombstone(form: str, topics: Topics) -> None:
    topics.deliver(batch_of(ORDERS, [order(1, 10), order(2, 10, "d")]), format=form, delete="hard")
    found = topics.records()
    assert [value is None for _, value, _ in found] == [False] * (len(found) - 1) + [True]
    assert len(found) == (2 if form == "json" else 3)
    assert len({key for key, _, _ in found}) == 1


def test_keys_stay_in_order_and_spread_over_partitions(topics: Topics) -> None:
    changes = [order(n, n % 20, "u") for n in range(1, 400)]
    topics.deliver(batch_of(ORDERS, changes), format="json", partitions=3)
    found = topics.records()
    assert {partition for _, _, partition in found} == {0, 1, 2}
    by_key = sorted(found, key=lambda record: record[0] or b"")
    for _, group in groupby(by_key, key=lambda record: record[0]):
        together = list(group)
        assert len({partition for _, _, partition in together}) == 1
        ids = [int(json.loads(value or b"")["_ums_id_"]) for _, value, _ in together]
        assert ids == sorted(ids)


def test_a_table_without_a_key_keeps_its_order_in_one_partition(topics: Topics) -> None:
    table = replace(ORDERS, key=())
    topics.deliver(batch_of(table, [order(n, 1) for n in range(1, 30)]), format="json", partitions=3)
    found = topics.records()
    assert {(key, partition) for key, _, partition in found} == {(None, 0)}
    assert [int(json.loads(value or b"")["_ums_id_"]) for _, value, _ in found] == list(range(1, 30))


@pytest.mark.parametrize("form", FORMATS)
def test_the_end_of_all_rows_is_told_or_refused(form: str, topics: Topics) -> None:
    clear = Clear(ORDERS, 5, 5, Cause.TRUNCATED)
    if form in ("maxwell", "json"):
        with pytest.raises(DataError, match=r"no message for the end of all rows .*truncated"):
            topics.deliver(clear, format=form)
        return
    topics.deliver(batch_of(ORDERS, [order(1, 10)]), clear, batch_of(ORDERS, [order(6, 11)]), format=form)
    values = [value or b"" for _, value, _ in topics.records()]
    if form == "ums":
        [live] = reduced(of_ums(values), ORDERS)
        assert live.column("id").to_pylist() == [11]
    assert len(values) == 3


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", TYPES)
def test_values_of_every_type_are_written_or_refused(kind: str, form: str) -> None:
    """Nothing is told by a traceback, and nothing stays away without a word."""
    source_type, values = TYPES[kind]
    table = TableSchema(
        Namespace("mysql", "db1", "shop", "t"),
        (Column("id", pa.int64(), "bigint", nullable=False), Column("value", values.type, source_type)),
        ("id",),
    )
    plain = batch_of(table, [Change("i", n + 1, {"id": n}) for n in range(len(values))])
    data = plain.data.set_column(plain.data.num_columns - 1, table.arrow_schema().field("value"), values)
    records_of = Records(Format(form), "UTC", 1_000_000, tombstones=False).of
    beyond_the_calendar = kind in ("date", "datetime") and form in ("canal", "maxwell", "json")
    if beyond_the_calendar:
        with pytest.raises(DataError, match="a value cannot be written as"):
            list(records_of(ChangeBatch(table, data)))
        data = data.slice(0, 1)
    found = list(records_of(ChangeBatch(table, data)))
    assert form.startswith("ums") or len(found) == data.num_rows
    assert all(json.loads(record.value or b"") for record in found)


# --- the store


def test_names_become_names_of_topics_and_collisions_are_refused(topics: Topics) -> None:
    odd = replace(ORDERS, namespace=Namespace("mysql", "db1", "shop", 'my "ä"'))
    topics.deliver(batch_of(odd, [order(1, 1)]))
    assert len(topics.records("shop.my_20__22__e4__22_")) == 1
    same = replace(ORDERS, namespace=Namespace("mysql", "db1", "shop", "my_20__22__e4__22_"))
    with pytest.raises(ConfigError, match="would both be written to the topic"):
        topics.deliver(batch_of(odd, [order(1, 1)]), batch_of(same, [order(1, 1)]))
    with pytest.raises(ConfigError, match="cannot be the name of a topic"):
        topics.deliver(batch_of(replace(ORDERS, namespace=Namespace("mysql", "d", "s", "x" * 250)), [order(1, 1)]))
    reserved = version_of(ORDERS, 0, *ORDERS.columns, Column("_is_active_", pa.int32(), "int"))
    with pytest.raises(ConfigError, match="the column _is_active_"):
        topics.deliver(batch_of(reserved, [order(1, 1)]), format="json")


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "{x}"},
        {"topic": "{"},
        {"topic": ""},
        {"format": "avro"},
        {"brokers": "host"},
        {"message_bytes": 1},
        {"format": "canal", "delete": "hard"},
        {"zone": "Asia/Shanghai"},
    ],
)
def test_wrong_settings_are_told(wrong: dict[str, Any], topics: Topics) -> None:
    with pytest.raises(ValidationError):
        topics.open(**wrong)


def test_settings_that_the_cluster_refuses_are_told(topics: Topics) -> None:
    for wrong in ({"replicas": 5}, {"topic_settings": {"cleanup.policy": "sometimes"}}):
        with pytest.raises(ConfigError, match="the cluster refuses to make topic"):
            topics.deliver(batch_of(ORDERS, [order(1, 1)]), **wrong)
    topics.deliver(batch_of(ORDERS, [order(1, 1)]), topic_settings={"cleanup.policy": "compact"})


def test_a_broker_that_is_away_is_waited_for() -> None:
    config = {"type": "kafka", "brokers": "127.0.0.1:1", "timeout": "1s"}
    sink = KafkaSink(KafkaSink.Config.model_validate(config), "flow")
    with closing(sink):
        for attempt in (sink.check, lambda: sink.position("db1", 0), lambda: sink.prepare(ORDERS)):
            with pytest.raises(RetryableError, match=r"127\.0\.0\.1:1"):
                attempt()


@pytest.mark.parametrize("limit", ["message_bytes", "topic"])
def test_a_row_that_is_too_large_is_found(limit: str, topics: Topics) -> None:
    settings: dict[str, Any] = {"format": "json", "message_bytes": 5000}
    if limit == "topic":
        settings = {
            "format": "json",
            "topic_settings": {"max.message.bytes": "5000"},
            "message_bytes": 50_000,
            "compression": "none",
        }
    rows = [order(1, 1), order(2, 2, note="x" * 20_000), order(3, 3)]
    batch = batch_of(ORDERS, rows)
    [found] = refused(
        [Part([Place(0, 0, n) for n in range(3)], batch, batch)], lambda: topics.open("probe", **settings)
    )
    assert found.row.places == [Place(0, 0, 1)]
    assert "row with id=2" in found.named().message
    assert topics.records() == []


# --- once, and whole


def test_what_is_open_is_not_seen_and_a_successor_ends_it(topics: Topics) -> None:
    first = topics.open()
    assert first.position("db1", 0) is None
    put(first, batch_of(ORDERS, [order(1, 10), order(2, 20)]))
    first.flush()
    assert topics.records() == []
    with closing(topics.open()) as second:
        assert second.position("db1", 0) is None
        put(second, batch_of(ORDERS, [order(1, 10)]))
        second.commit(POSITION)
        with pytest.raises(FencedError):
            first.commit(POSITION)
        first.close()
        assert second.position("db1", 1) is None
    assert len(topics.records()) == 1
    with closing(topics.open()) as third:
        assert third.position("db1", 0) == POSITION
        assert third.position("db1", 1) is None
    with closing(topics.open(flow="other")) as other:
        assert other.position("db1", 0) is None


def test_positions_are_read_behind_a_transaction_of_another(topics: Topics) -> None:
    """Readers of what is committed stop before a transaction that is open; the position behind it is found all the same."""
    one, two = topics.open("one"), topics.open("two")
    with closing(one), closing(two):
        one.position("db1", 0)
        two.position("db1", 0)
        put(one, batch_of(ORDERS, [order(1, 10)]))
        one.commit(POSITION)
        # As a commit does, up to the moment at which it is killed.
        two._transaction().produce(f"{topics.prefix}positions", b"{}", b"two")
        two.flush()
        put(one, batch_of(ORDERS, [order(2, 10)]))
        one.commit(replace(POSITION, offset=8))
        with (
            pytest.raises(RetryableError, match="could not be read to its end"),
            closing(topics.open("one", timeout="1s")) as late,
        ):
            late.position("db1", 0)
        two.close()
        with closing(topics.open("one")) as now:
            assert now.position("db1", 0) == replace(POSITION, offset=8)


WORK = """
import sys
from headrace.sinks.base import Position
from headrace.sinks.kafka import KafkaSink
from headrace.testing.sink import ORDERS, batch_of, order
sink = KafkaSink(KafkaSink.Config.model_validate_json(sys.argv[1]), "flow")
at = sink.position("db1", 0)
sink.prepare(ORDERS)
for n in range(1 if at is None else at.offset, 7):
    sink.write(batch_of(ORDERS, [order(n, n)]))
    sink.commit(Position("db1", 0, n + 1, n, n))
"""


@pytest.mark.parametrize("crash_at", ["kafka.sent:3", "kafka.committed:3", "kafka.sent:1"])
def test_a_kill_around_a_commit_neither_loses_nor_doubles(crash_at: str, topics: Topics) -> None:
    config = topics.open(format="json")._config.model_dump_json()
    command = [sys.executable, "-c", WORK, config]
    killed = subprocess.run(command, env={**os.environ, "HEADRACE_CRASH_AT": crash_at}, check=False)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run(command, check=True)
    assert [value["id"] for _, value in keyed(topics.records())] == [1, 2, 3, 4, 5, 6]
