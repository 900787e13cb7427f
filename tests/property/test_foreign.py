"""What is written in the formats of others reads back as the same values; whatever a message holds is rows or one clear error."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from headrace.capture.seen_tables import SeenTables
from headrace.capture.topic_messages import Arrived, Refusal, Wanted, interpreter_of
from headrace.codec.foreign import WRITERS
from headrace.codec.foreign.batches import Numbered, batch_of
from headrace.codec.foreign.changes import of_batch
from headrace.codec.foreign.reading import READERS, ForeignMessage, ForeignRow
from headrace.codec.ums import UmsReader
from headrace.codec.ums_types import fraction_digits
from headrace.errors import CorruptError
from headrace.log.kafka.tail import Taken
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import SYSTEM_FIELDS, Namespace, TableSchema
from tests.ums_tables import TABLE, batches, example

FOREIGN = ("flag", "coarse", "nano")
"""Columns of types that MySQL does not have."""
FIRST_DAY, LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date(1, 1, 1), date(9999, 12, 31)))
MYSQL = replace(TABLE, columns=tuple(column for column in TABLE.columns if column.name not in FOREIGN))


def of_mysql(batch: ChangeBatch) -> ChangeBatch:
    """The columns that MySQL could have, with no more digits of a second than they declare, and nothing beyond their types."""
    arrays = [*batch.data.columns[: len(SYSTEM_FIELDS) - 1], pa.nulls(len(batch), pa.utf8())]
    for column in MYSQL.columns:
        array = batch.data.column(column.name)
        if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
            unit = 10 ** (6 - fraction_digits(column.type, column.source_type))
            whole = pc.multiply(pc.divide(array.view(pa.int64()), pa.scalar(unit)), pa.scalar(unit))
            array = whole.view(array.type)
        elif column.name == "born":
            days = array.view(pa.int32())
            real = pc.and_(pc.greater_equal(days, FIRST_DAY), pc.less_equal(days, LAST_DAY))
            array = pc.if_else(real, array, pa.scalar(None, array.type))
        elif column.source_type == "json":
            array = pa.array([None if text is None else json.dumps(text) for text in array.to_pylist()], array.type)
        arrays.append(array)
    return ChangeBatch(MYSQL, pa.RecordBatch.from_arrays(arrays, schema=MYSQL.arrow_schema()))


def read_back(form: str, batch: ChangeBatch, table: TableSchema | None = None) -> list[dict[str, Any]]:
    rows: list[ForeignRow] = []
    for _, text in WRITERS[form].messages(of_batch(batch)):
        rows += READERS[form.removesuffix("-schema")](ForeignMessage("t", None, text.encode(), 0))
    if table is None:
        assert rows[0].columns is not None
        table = TableSchema(Namespace("kafka", "a", "b", "c"), rows[0].columns)
    numbered = [Numbered(number, row.ts_us, row) for number, row in enumerate(rows)]
    return batch_of(table, numbered, UmsReader()).data.to_pylist()


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, tuple[object, object]]:
    names = [column.name for column in MYSQL.columns]
    return {name: (found[name], wanted[name]) for name in names if str(found[name]) != str(wanted[name])}


@given(batches())
@settings(max_examples=25, deadline=None)
def test_debezium_with_its_envelope(batch: ChangeBatch) -> None:
    if not len(batch):
        return
    wanted = of_mysql(batch).data.to_pylist()
    for found, row in zip(read_back("debezium-schema", of_mysql(batch)), wanted, strict=True):
        different = differences(found, row)
        if (row["big_u"] or 0) >= 2**63:  # which is no long
            del different["big_u"]
            assert json.loads(found["_ums_raw_"]) == {"big_u": str(row["big_u"])}
        assert different == {}


@pytest.mark.parametrize("form", ["canal", "maxwell"])
@given(batch=batches())
@settings(max_examples=25, deadline=None)
def test_canal_and_maxwell(form: str, batch: ChangeBatch) -> None:
    """canal says the types; those of Maxwell's values are known. JSON comes back from Maxwell as a document, not as its text."""
    if not len(batch):
        return
    wanted = of_mysql(batch)
    if form == "maxwell":
        documents = pa.array(
            [
                None if text is None else json.dumps({"a": [text]}, separators=(",", ":"))
                for text in wanted.data["doc"].to_pylist()
            ]
        )
        at = wanted.data.schema.get_field_index("doc")
        wanted = ChangeBatch(MYSQL, wanted.data.set_column(at, wanted.data.schema.field(at), documents.cast(pa.utf8())))
    found = read_back(form, wanted, MYSQL if form == "maxwell" else None)
    assert [differences(*rows) for rows in zip(found, wanted.data.to_pylist(), strict=True)] == [{}] * len(batch)


def taken(form: str, tables: SeenTables, value: bytes, key: bytes | None = None) -> int | None:
    """How many changes the source makes of a message; None when it is refused."""
    interpreter = interpreter_of(form, Wanted(tables, ["*"]), Refusal(form, skip=False), 0)
    try:
        changes = list(interpreter.changes([Arrived(1, Taken("shop.t/0", 7, key, value, 1))]))
    except CorruptError:
        return None
    for change in changes:
        if isinstance(change, ChangeBatch):
            change.data.validate(full=True)
    return sum(map(len, changes))


@pytest.mark.parametrize("form", WRITERS)
def test_damaged_messages_are_rows_or_an_error(form: str) -> None:
    random, tables = Random(form), SeenTables(Path("unused"), "kafka", "a")
    [_, (_, text), _] = WRITERS[form].messages(of_batch(of_mysql(example())))
    found: list[int | None] = []
    for _ in range(1000):
        damaged = bytearray(text.encode())
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        found.append(taken(form.removesuffix("-schema"), tables, bytes(damaged)))
    assert {None, 1} <= set(found) <= {None, 0, 1}


WORDS = ["schema", "payload", "fields", "field", "after", "before", "type", "int32", "bytes", "struct", "name", "op", "c", "source", "db",
         "table", "ts_ms", "data", "old", "mysqlType", "bigint(20) unsigned", "decimal(99,98)", "pkNames", "es", "ts", "insert", "INSERT",
         "database", "parameters", "scale", "connect.decimal.precision", "org.apache.kafka.connect.data.Decimal", "io.debezium.data.Bits",
         "io.debezium.time.ZonedTimestamp", "io.debezium.data.geometry.Geometry", "primary_key_columns", "é", "", "99"]  # fmt: skip


def value(random: Random, depth: int = 0) -> object:
    """Any JSON, made of the words of these formats."""
    choice = random.randrange(9 if depth < 6 else 5)
    if choice < 3:
        return random.choice(WORDS)
    if choice < 5:
        return random.choice([None, True, 0, -1, 2**63, 10**40, 1.5, 1e300])
    if choice == 5:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(WORDS): value(random, depth + 1) for _ in range(random.randrange(6))}


@pytest.mark.parametrize("form", [*WRITERS, "json"])
def test_random_messages_are_rows_or_an_error(form: str) -> None:
    random, tables = Random(form), SeenTables(Path("unused"), "kafka", "a")
    writer = WRITERS.get(form, WRITERS["maxwell"])
    valid = [json.loads(text) for _, text in writer.messages(of_batch(of_mysql(example())))]
    found: list[int | None] = []
    for number in range(1000):
        message = json.loads(json.dumps(random.choice(valid))) if number % 4 else value(random)
        for _ in range(random.randrange(4)):
            place, key = message, None
            while isinstance(place, (dict, list)) and place and (key is None or random.random() < 0.8):
                parent = place
                key = random.choice(list(place)) if isinstance(place, dict) else random.randrange(len(place))
                place = place[key]
            if key is not None:
                parent[key] = value(random)
        keyed = json.dumps(value(random)).encode() if number % 3 == 0 else None
        found.append(taken(form.removesuffix("-schema"), tables, json.dumps(message).encode(), keyed))
    assert {None, 1} <= set(found)


def test_half_a_character_is_refused() -> None:
    tables = SeenTables(Path("unused"), "kafka", "a")
    assert taken("json", tables, b'{"a": "\\ud83d\\ude00"}') == 1
    assert taken("json", tables, b'{"a": "\\ud83d"}') is None
