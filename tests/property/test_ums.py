"""Whatever a batch holds comes back from its messages; whatever a message holds is rows or one clear error."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.codec.ums import Limits, MalformedMessage, UmsNotice, UmsReader, UmsRows, UmsWriter
from headrace.codec.ums_schema import Dialect, Kind
from headrace.ums.change import ChangeBatch, Clear, Mark
from headrace.ums.schema import COMMIT_TS, RAW, TableSchema
from tests.ums_tables import TABLE, batches, example

MESSAGES = int(os.environ.get("HEADRACE_MESSAGES", "20000"))
PER_TEST = 5000
EXACT = {column.name: column.type for column in TABLE.columns}


def written(batch: ChangeBatch, dialect: Dialect, limits: Limits | None = None, zone: str = "UTC") -> list[bytes]:
    return [value for _, value in UmsWriter(dialect, limits=limits, zone=zone).rows(batch)]


def only(reader: UmsReader, messages: list[bytes]) -> ChangeBatch:
    (item,) = reader.read(messages)
    assert isinstance(item, UmsRows)
    assert item.kind is Kind.INCREMENT
    item.batch.data.validate(full=True)
    return item.batch


@given(batches(), st.integers(1, 4), st.integers(1, 5000))
@settings(max_examples=60, deadline=None)
def test_the_headrace_dialect_loses_nothing(batch: ChangeBatch, rows: int, size_bytes: int) -> None:
    messages = written(batch, Dialect.HEADRACE, Limits(rows, size_bytes))
    assert len(messages) <= len(batch)
    if not len(batch):
        return
    found = only(UmsReader(), messages)
    assert found.table == batch.table
    assert found.data.schema.equals(batch.data.schema, check_metadata=True)
    assert found.data.equals(batch.data)


@given(batches(), st.sampled_from(["UTC", "Etc/GMT-8"]))
@settings(max_examples=60, deadline=None)
def test_the_dbus_dialect_loses_only_what_it_has_no_place_for(batch: ChangeBatch, zone: str) -> None:
    if not len(batch):
        return
    found = only(UmsReader(exact=EXACT, zone=zone), written(batch, Dialect.DBUS, zone=zone))
    for name in batch.data.schema.names:
        if name not in (RAW, COMMIT_TS):
            assert found.data.column(name).equals(batch.data.column(name)), name


@given(batches(), st.integers(1, 4), st.sampled_from(["UTC", "Etc/GMT-8"]))
@settings(max_examples=60, deadline=None)
def test_the_dbus_dialect_loses_nothing_with_what_others_skip(batch: ChangeBatch, rows: int, zone: str) -> None:
    if not len(batch):
        return
    messages = UmsWriter(Dialect.DBUS, limits=Limits(rows, 1 << 20), zone=zone, whole=True).rows(batch)
    found = only(UmsReader(), [value for _, value in messages])
    assert found.table == batch.table
    assert found.data.equals(batch.data)


@given(batches(), st.sets(st.sampled_from([column.name for column in TABLE.columns])))
@settings(max_examples=50, deadline=None)
def test_only_wanted_columns_are_read(batch: ChangeBatch, names: set[str]) -> None:
    if not len(batch):
        return
    found = only(UmsReader(columns=names), written(batch, Dialect.HEADRACE))
    assert [column.name for column in found.table.columns] == [c.name for c in TABLE.columns if c.name in names]
    assert found.table.key == (("id",) if "id" in names else ())
    for name in names:
        assert found.data.column(name).equals(batch.data.column(name))


def test_not_a_number_travels_too() -> None:
    table = TableSchema(TABLE.namespace, tuple(c for c in TABLE.columns if c.name in ("single", "double")))
    nan = float("nan")
    data = example().data.slice(0, 1).select([*example().data.schema.names[:5], "single", "double"])
    data = data.set_column(5, "single", pa.array([nan], pa.float32())).set_column(6, "double", pa.array([-nan]))
    batch = ChangeBatch(table, pa.RecordBatch.from_arrays(data.columns, schema=table.arrow_schema()))
    for dialect in Dialect:
        (message,) = written(batch, dialect)
        json.loads(message, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        found = only(UmsReader(), [message])
        assert [str(found.data.column(name)[0]) for name in ("single", "double")] == ["nan", "nan"]


def rows_of(reader: UmsReader, message: bytes) -> int | None:
    """How many rows the message has; None when it is refused, with a place in it."""
    error = None
    items: list[UmsRows | UmsNotice | Clear | Mark] = []
    try:
        items = reader.read([message])
    except MalformedMessage as raised:
        error = raised
    if error is not None:
        assert error.index == 0
        assert 0 <= error.at <= len(message)
        return None
    batches = [item.batch for item in items if isinstance(item, UmsRows)]
    for batch in batches:
        batch.data.validate(full=True)
    return sum(map(len, batches))


@pytest.mark.parametrize("dialect", Dialect)
def test_cut_messages_are_refused(dialect: Dialect) -> None:
    message = written(example(), dialect)[0]
    for length in range(len(message)):
        with pytest.raises(MalformedMessage) as raised:
            UmsReader().read([message[:length]])
        assert raised.value.at <= length


@pytest.mark.parametrize("dialect", Dialect)
def test_flipped_bits_are_rows_or_an_error(dialect: Dialect) -> None:
    message = written(example(), dialect)[0]
    random = Random(7)
    found: list[int | None] = []
    for _ in range(3000):
        damaged = bytearray(message)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        found.append(rows_of(UmsReader(), bytes(damaged)))
    assert found.count(None) > 100
    assert len(found) - found.count(None) > 100


def test_deep_and_wide_messages_are_refused_or_read() -> None:
    deep = b"[" * 100_000
    envelope = b'{"protocol":{"type":"data_increment_data"},"schema":%b,"payload":%b}'
    for message in (
        deep,
        b'{"schema":' + deep,
        b'{"payload":' + deep,
        envelope % (b"{}", deep),
        envelope % (deep, b"[]"),
    ):
        with pytest.raises(MalformedMessage):
            UmsReader().read([message])
    wide = {"namespace": "mysql.a.b.c.0.0.0", "fields": [{"name": f"f{i}", "type": "long"} for i in range(20_000)]}
    with pytest.raises(MalformedMessage, match="neither"):
        UmsReader().read([envelope % (json.dumps(wide).encode(), b"[]")])


SCHEMA_PARTS = ["namespace", "fields", "name", "type", "nullable", "encoded", "exact", "source_type", "key", "batchId"]
WORDS = [
    *SCHEMA_PARTS, "protocol", "schema", "payload", "tuple", "columns", "ums_id_", "ums_ts_", "ums_op_", "_ums_id_", "_ums_ts_",
    "_ums_op_", "_ums_raw_", "mysql.db1.shop.orders.0.0.0", "a.b.c.d.*.e.f", "long", "string", "decimal", "datetime", "binary",
    "decimal128(10,2)", "decimal256(76,80)", "timestamp[us,Nowhere]", "int8", "1", "-7", "1e400", "2016-04-11 12:23:34.345", "i", "b", "\0",
    "context", "mark", "clear", "zone", "source", "position", "id", "commit_ts_us", "_ums_commit_ts_", "Asia/Shanghai",
    "data_increment_data", "data_increment_heartbeat", "data_increment_clear", "directive_flow_start", "0000-00-00", "é", "x" * 70,
]  # fmt: skip


def value(random: Random, depth: int = 0) -> object:
    """Any JSON, made of the words of UMS."""
    choice = random.randrange(9 if depth < 5 else 6)
    if choice < 3:
        return random.choice(WORDS)
    if choice < 6:
        return random.choice([None, True, False, 0, -1, 2**63, 10**40, 1.5, 1e300, 103_0000012345678])
    if choice == 6:
        return [value(random, depth + 1) for _ in range(random.randrange(5))]
    return {random.choice(WORDS): value(random, depth + 1) for _ in range(random.randrange(5))}


def message(random: Random, valid: list[bytes]) -> bytes:
    """A message with something of it replaced, or with members in another order, or any bytes at all."""
    choice = random.randrange(20)
    if choice == 0:
        return random.randbytes(random.randrange(60))
    if choice == 1:
        return json.dumps(value(random)).encode()
    found = json.loads(random.choice(valid))
    for _ in range(random.randrange(4)):
        place, key = found, random.choice(list(found))
        while isinstance(place[key], (dict, list)) and place[key] and random.random() < 0.8:
            place = place[key]
            key = random.choice(list(place)) if isinstance(place, dict) else random.randrange(len(place))
        place[key] = value(random)
    if choice < 10:
        found = dict(random.sample(list(found.items()), len(found)))
    data = bytearray(json.dumps(found, ensure_ascii=choice % 2 == 0, indent=random.choice([None, None, 1])).encode())
    if choice == 2:
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("first", range(0, MESSAGES, PER_TEST))
def test_random_messages(first: int) -> None:
    random = Random(first)
    narrow = replace(TABLE, columns=TABLE.columns[:4], key=())
    data = example().data
    batch = ChangeBatch(narrow, pa.RecordBatch.from_arrays(data.columns[:9], schema=narrow.arrow_schema()))
    valid = [m for dialect in Dialect for m in written(batch, dialect)]
    writer = UmsWriter(Dialect.HEADRACE)
    whole = UmsWriter(Dialect.DBUS, whole=True)
    valid += [writer.heartbeat(TABLE.namespace, 1, 2).value, writer.termination(TABLE.namespace, 3).value]
    valid += [next(whole.rows(batch))[1], whole.clear(Clear(narrow, 1, 2)).value]
    valid.append(writer.mark(Mark("db1", {"file": "binlog.000001", "offset": 4}, 1, 2), "mysql").value)
    reader = UmsReader()
    found = [rows_of(reader, message(random, valid)) for _ in range(min(PER_TEST, MESSAGES - first))]
    assert None in found
    assert any(found)
