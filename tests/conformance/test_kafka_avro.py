"""The Kafka sink's Avro, as a reader sees it that knows nothing but the records and the registry."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.kafka import KafkaSink
from headrace.testing.sink import ORDERS, TYPES, Change, batch_of, order, version_of
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from headrace.ums.values import to_text
from tests.conformance.scanned import records
from tests.servers.kafka import Kafka
from tests.servers.registry import Registry

POSITION = Position("db1", 0, 7, 7, 7)
Row = dict[str, Any]


class Topics:
    """Topics of a test with their schemas, and what is on them."""

    def __init__(self, kafka: Kafka, registry: Registry, prefix: str) -> None:
        self.kafka, self.registry, self.prefix = kafka, registry, prefix

    def open(self, **settings: Any) -> KafkaSink:
        own = {"topic": f"{self.prefix}{{schema}}.{{table}}", "positions": f"{self.prefix}positions"}
        config = {"type": "kafka", "brokers": self.kafka.brokers, "format": "avro", "registry": self.registry.url}
        return KafkaSink(KafkaSink.Config.model_validate({**config, **own, **settings}), "flow")

    def deliver(self, *changes: ChangeBatch | Clear, **settings: Any) -> None:
        with closing(self.open(**settings)) as sink:
            for change in changes:
                sink.prepare(change.table)
                sink.clear(change) if isinstance(change, Clear) else sink.write(change)
            sink.commit(POSITION)

    def raw(self, table: str = "orders") -> list[tuple[bytes | None, bytes | None]]:
        found = records(self.kafka.client(), f"{self.prefix}shop.{table}", "read_committed")
        return [(key, value) for key, value, _ in found]

    def schema(self, record: bytes) -> Row:
        assert record[0] == 0
        schema: Row = json.loads(self.registry.ask(f"/schemas/ids/{int.from_bytes(record[1:5], 'big')}")["schema"])
        return schema

    def read(self, record: bytes | None, reader: Row | None = None) -> Row | None:
        """A record by its schema, dates and times as the numbers that they are; with the defaults of another schema, when one is given."""
        if record is None:
            return None
        content = io.BytesIO(record[5:])
        row: Any = fastavro.schemaless_reader(content, _numbers(self.schema(record)), reader and _numbers(reader))
        assert content.read() == b""
        return dict(row)

    def values(self, table: str = "orders") -> list[Row | None]:
        return [self.read(value) for _, value in self.raw(table)]


def _numbers(schema: Any) -> Any:
    """A schema without the logical types of dates and times, whose values Python's cannot all be."""
    if isinstance(schema, list):
        return [_numbers(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") in ("date", "timestamp-micros", "local-timestamp-micros"):
        return schema["type"]
    return {name: _numbers(value) for name, value in schema.items()}


@pytest.fixture
def topics(kafka: Kafka, registry: Registry) -> Iterator[Topics]:
    with kafka.prefix() as prefix:
        yield Topics(kafka, registry, prefix)


def test_rows_and_keys_have_schemas_of_their_own(topics: Topics) -> None:
    topics.deliver(batch_of(ORDERS, [order(1, 10, note="ü"), order(2, 10, "d")]))
    [(key, inserted), (same_key, deleted)] = topics.raw()
    assert key is not None
    assert key == same_key
    assert topics.read(key) == {"id": 10}
    row = topics.read(inserted)
    assert row is not None
    assert (row["id"], row["note"], row["amount"], row["_ums_id_"], row["_is_active_"]) == (10, "ü", Decimal(1), 1, 1)
    gone = topics.read(deleted)
    assert gone is not None
    assert (gone["_ums_id_"], gone["_is_active_"]) == (2, 0)
    assert inserted is not None
    kinds = {field["name"]: field["type"] for field in topics.schema(inserted)["fields"]}
    assert kinds["amount"] == ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]
    assert topics.registry.ask(f"/subjects/{topics.prefix}shop.orders-value/versions") == [1]


@pytest.mark.parametrize("kind", TYPES)
def test_values_of_every_type(kind: str, topics: Topics) -> None:
    source_type, values = TYPES[kind]
    columns = (Column("id", pa.int64(), "bigint"), Column("value", values.type, source_type))
    table = TableSchema(Namespace("mysql", "db1", "shop", f"t_{kind}"), columns, ("id",))
    plain = batch_of(table, [Change("i", n + 1, {"id": n}) for n in range(len(values))])
    data = plain.data.set_column(plain.data.num_columns - 1, table.arrow_schema().field("value"), values)
    topics.deliver(ChangeBatch(table, data))
    found = [row["value"] for row in topics.values(f"t_{kind}") if row is not None]
    if pa.types.is_duration(values.type):
        assert found == to_text(values).to_pylist()
    elif pa.types.is_timestamp(values.type):
        assert found == values.view(pa.int64()).to_pylist()
    elif pa.types.is_date32(values.type):
        assert found == values.view(pa.int32()).to_pylist()
    else:
        assert found == values.to_pylist()


def test_what_older_records_have_in_columns_that_came_later(topics: Topics) -> None:
    later = version_of(
        ORDERS, 1, *ORDERS.columns,
        Column("size", pa.int32(), "int", initial_default="7"),
        Column("price", pa.decimal128(8, 3), "decimal(8,3)", initial_default="-1.500"),
        Column("raw", pa.binary(), "varbinary(4)", initial_default="AP8="),
        Column("day", pa.date32(), "date", initial_default="2024-02-29"),
        Column("more", pa.utf8(), "text"),
    )  # fmt: skip
    topics.deliver(batch_of(ORDERS, [order(1, 10)]), batch_of(later, [Change("i", 2, {"id": 20, "size": 3})]))
    topics.deliver(batch_of(ORDERS, [order(3, 30)]))  # a task that lags behind
    found = topics.raw()
    [new] = [value for _, value in found if value is not None and "size" in str(topics.schema(value))]
    rows = [topics.read(value, topics.schema(new)) for _, value in found]
    # fastavro hands out defaults of bytes as they stand in the schema: a sign for each byte.
    price = (-1500).to_bytes(2, "big", signed=True).decode("latin-1")
    assert [(row["id"], row["size"], row["price"], row["raw"], row["day"], row["more"]) for row in rows if row] == [
        (10, 7, price, "\0\xff", 19782, None),
        (20, 3, None, None, None, None),
        (30, 7, price, "\0\xff", 19782, None),
    ]
    assert len(topics.registry.ask(f"/subjects/{topics.prefix}shop.orders-value/versions")) == 2


def test_a_change_that_the_subject_does_not_take_is_told(topics: Topics) -> None:
    topics.deliver(batch_of(ORDERS, [order(1, 10)]))
    key, note, amount = ORDERS.columns
    other = version_of(ORDERS, 1, key, replace(note, type=pa.int64(), source_type="bigint"), amount)
    wider = version_of(ORDERS, 1, *ORDERS.columns, Column("more", pa.int64(), "bigint"))
    new = replace(ORDERS, namespace=replace(ORDERS.namespace, table="new"))
    with closing(topics.open()) as sink:
        assert list(sink.misfits([ORDERS, wider.with_version(0), new])) == []
        [before] = sink.misfits([other])
    assert re.search(r"would refuse the schema of subject .*shop\.orders-value: .+", before.message)
    assert topics.registry.ask(f"/subjects/{topics.prefix}shop.orders-value/versions") == [1]
    with pytest.raises(DataError, match=r"subject .*shop\.orders-value \(409\)") as raised:
        topics.deliver(batch_of(other, [Change("i", 2, {"id": 20, "note": 5})]))
    assert "compatibility" in raised.value.fix
    assert before.fix == raised.value.fix
    assert len(topics.raw()) == 1


def test_a_hard_delete_is_a_tombstone(topics: Topics) -> None:
    topics.deliver(batch_of(ORDERS, [order(1, 10), order(2, 10, "d")]), delete="hard")
    [(key, _), gone] = topics.raw()
    assert gone == (key, None)


def test_names_and_tables_without_a_key(topics: Topics) -> None:
    names = ("select", "Größe", "1st", "ключ")
    columns = tuple(Column(name, pa.int32(), "int") for name in names)
    table = TableSchema(Namespace("mysql", "db-1", "shop", "orders"), columns)
    topics.deliver(batch_of(table, [Change("i", 1, dict(zip(names, range(4), strict=True)))]))
    [(key, value)] = topics.raw()
    assert key is None
    row = topics.read(value)
    assert row is not None
    assert list(row)[:4] == ["select", "Gr_f6__df_e", "_1st", "_43a__43b__44e__447_"]
    assert list(row.values())[:4] == [0, 1, 2, 3]
    twice = replace(table, columns=(replace(columns[0], name="a b"), replace(columns[0], name="a_20_b")))
    with closing(topics.open()) as sink:
        [told] = sink.misfits([twice])
        with pytest.raises(ConfigError, match="same name in Avro") as refused:
            sink.prepare(twice)
    assert refused.value.message == told.message


def test_system_columns_are_called_what_the_flow_says(topics: Topics) -> None:
    system = {"id": "ums_id", "active": "note"}
    table = replace(ORDERS, columns=(ORDERS.columns[0], ORDERS.columns[2]))
    topics.deliver(batch_of(table, [Change("i", 1, {"id": 10})]), system_columns=system)
    [row] = topics.values()
    assert row is not None
    assert list(row) == ["id", "amount", "ums_id", "_ums_ts_", "note"]
    with closing(topics.open(system_columns=system)) as sink:
        [told] = sink.misfits([ORDERS])
    assert "the column note" in told.message


def test_the_end_of_all_rows_has_no_message(topics: Topics) -> None:
    with pytest.raises(DataError, match="`format: avro` has no message for the end of all rows"):
        topics.deliver(Clear(ORDERS, 5, 5_000_000))


def test_a_registry_that_is_away_is_waited_for(kafka: Kafka) -> None:
    with Registry() as registry, kafka.prefix() as prefix:
        topics = Topics(kafka, registry, prefix)
        registry.kill9()
        for attempt in (lambda: topics.deliver(batch_of(ORDERS, [order(1, 10)])), lambda: topics.open().check()):
            with pytest.raises(RetryableError, match=r"schema registry .* is away"):
                attempt()
        registry.start()
        topics.deliver(batch_of(ORDERS, [order(1, 10)]))
        topics.open(registry={"url": registry.url, "user": "u", "password": "p"}).check()
        assert len(topics.raw()) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "avro"}, "needs a `registry`"),
        ({"format": "json", "registry": "http://h:1"}, "needs a `registry`"),
        ({"format": "avro", "registry": "h:8081"}, "registry"),
        ({"format": "avro", "registry": {"url": "http://u:geheim@h:1"}}, "registry"),
    ],
)
def test_wrong_settings_say_what_to_write(settings: Row, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as raised:
        KafkaSink.Config.model_validate({"type": "kafka", "brokers": "h:1", **settings})
    assert "geheim" not in str(raised.value)
