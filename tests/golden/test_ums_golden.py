"""Messages are, byte for byte, what is recorded, fit the published JSON Schema, and read back; those of the original are understood."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from headrace.cli.decode import decode
from headrace.codec import ums_types
from headrace.codec.binlog import BinlogReader, Rows, decode_file
from headrace.codec.ums import Limits, UmsMessage, UmsNotice, UmsReader, UmsRows, UmsWriter
from headrace.codec.ums_schema import Dialect, Kind
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.ums_tables import TABLE, example

DATA = Path(__file__).parent / "ums"
FORMATS = Path(__file__).parents[2] / "docs" / "formats"
ORIGINAL = [line.encode() for line in (DATA / "original.jsonl").read_text().splitlines()]
ROWS, ROWS_PAYLOAD_FIRST, HEARTBEAT, TERMINATION = ORIGINAL


@cache
def validator() -> Draft202012Validator:
    schema = json.loads((FORMATS / "ums.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def messages(dialect: Dialect) -> list[UmsMessage]:
    batch = example()
    writer = UmsWriter(dialect, limits=Limits(2, 1 << 20))
    pairs = [*writer.rows(batch), *writer.rows(ChangeBatch(batch.table, batch.data.slice(2)), Kind.INITIAL)]
    written = [UmsMessage(*pair) for pair in pairs]
    written.append(writer.heartbeat(TABLE.namespace, 103_000012346000, 1_460_377_440_000_000))
    written.append(writer.termination(TABLE.namespace, 1_460_391_814_345_000))
    if dialect is Dialect.HEADRACE:
        written.append(writer.clear(Clear(TABLE, 103_000012347000, 1_460_391_814_345_001)))
    return written


@pytest.mark.parametrize("dialect", Dialect)
def test_messages_are_what_is_recorded(dialect: Dialect) -> None:
    lines = [b'{"key":%b,"value":%b}' % (json.dumps(m.key.decode()).encode(), m.value) for m in messages(dialect)]
    assert lines == (DATA / f"{dialect}.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("dialect", Dialect)
def test_recorded_messages_fit_the_json_schema(dialect: Dialect) -> None:
    for message in messages(dialect):
        validator().validate(json.loads(message.value))


def test_the_json_schema_refuses_what_is_no_ums() -> None:
    for member in ("protocol", "schema", "payload"):
        assert not validator().is_valid({k: v for k, v in json.loads(ROWS).items() if k != member})
    wrong = json.loads(messages(Dialect.HEADRACE)[0].value)
    wrong["schema"]["fields"][1], wrong["schema"]["fields"][2] = (
        wrong["schema"]["fields"][2],
        wrong["schema"]["fields"][1],
    )
    assert not validator().is_valid(wrong)


def test_recorded_messages_read_back() -> None:
    rows, initial, heartbeat, termination, clear = UmsReader().read([m.value for m in messages(Dialect.HEADRACE)])
    assert rows == UmsRows(Kind.INCREMENT, example())
    assert initial == UmsRows(Kind.INITIAL, ChangeBatch(TABLE, example().data.slice(2)))
    assert heartbeat == UmsNotice(Kind.HEARTBEAT, TABLE.namespace, 103_000012346000, 1_460_377_440_000_000)
    assert termination == UmsNotice(Kind.TERMINATION, TABLE.namespace, None, 1_460_391_814_345_000)
    assert clear == Clear(TABLE, 103_000012347000, 1_460_391_814_345_001)


@pytest.mark.parametrize("message", [ROWS, ROWS_PAYLOAD_FIRST], ids=["ours", "payload-first"])
def test_the_original_is_understood(message: bytes) -> None:
    (item,) = UmsReader(exact={"amount": pa.decimal128(10, 2)}).read([message])
    assert isinstance(item, UmsRows)
    assert item.kind is Kind.INCREMENT
    assert item.batch.table.namespace == Namespace("mysql", "db1", "shop", "orders")
    data = item.batch.data.to_pydict()
    assert data["_ums_id_"] == [103_000012345678, 103_000012346000]
    assert [str(ts) for ts in data["_ums_ts_"]] == [
        "2016-04-11 12:23:34.345000+00:00",
        "2016-04-11 12:23:35.001000+00:00",
    ]
    assert data["_ums_op_"] == ["i", "u"]
    assert (data["id"], data["amount"]) == ([23, 23], [Decimal("12.50"), Decimal("13.00")])


def test_the_original_is_written_again() -> None:
    """All but its own sequence numbers (ums_uid_), the row before the update, and that the column is masked."""
    (item,) = UmsReader(exact={"amount": pa.decimal128(10, 2)}).read([ROWS])
    assert isinstance(item, UmsRows)
    ((key, value),) = UmsWriter(Dialect.DBUS).rows(item.batch)
    assert key == b"data_increment_data.mysql.db1.shop.orders.0.0.0.1460377414345|db1.wh_placeholder"
    again, original = json.loads(value), json.loads(ROWS)
    for row in [*again["payload"], *original["payload"]]:
        row["tuple"][3] = "uid"
    del original["payload"][1]
    original["schema"]["fields"][5]["encoded"] = False
    assert again == original


def test_notices_of_the_original_are_written_again() -> None:
    writer = UmsWriter(Dialect.DBUS)
    heartbeat, termination = UmsReader().read([HEARTBEAT, TERMINATION])
    assert isinstance(heartbeat, UmsNotice)
    assert isinstance(termination, UmsNotice)
    assert heartbeat.id is not None
    assert heartbeat.ts_us is not None
    assert termination.ts_us is not None
    beat = writer.heartbeat(heartbeat.namespace, heartbeat.id, heartbeat.ts_us)
    assert json.loads(beat.value) == json.loads(HEARTBEAT)
    time = "1460377440000"
    assert (
        beat.key.decode() == f"data_increment_heartbeat.mysql.db1.shop.orders.0.0.0.{time}|{time}|ok|db1.wh_placeholder"
    )
    assert json.loads(writer.termination(termination.namespace, termination.ts_us).value) == json.loads(TERMINATION)


@pytest.mark.parametrize("form", ["ums", "ums-dbus"])
def test_a_recorded_log_travels_as_ums(form: str) -> None:
    """Every type of a real log, through `headrace decode --format` and back."""
    log = DATA.parent / "binlog" / "mysql9-cut.000005"
    result = CliRunner().invoke(decode, ["binlog", str(log), "--format", form, "--name", "db1"], catch_exceptions=False)
    lines = [line.encode() for line in result.output.splitlines()]
    for line in lines:
        validator().validate(json.loads(line))
    reader = BinlogReader(["*.*"])
    with log.open("rb") as file:
        decoded = [item for part in decode_file(reader, file, log.name) for item in part.items]
    wanted: dict[str, list[pa.RecordBatch]] = {}
    versions: dict[str, list[int]] = {}
    for rows in decoded:
        if isinstance(rows, Rows):
            name = f"{rows.table.schema}.{rows.table.table}"
            indexes = versions.setdefault(name, [])
            if rows.index not in indexes:
                indexes.append(rows.index)
            wanted.setdefault(f"mysql.db1.{name}.{indexes.index(rows.index)}.0.0", []).append(rows.data)
    messages: dict[str, list[bytes]] = {}
    for line in lines:
        messages.setdefault(json.loads(line)["schema"]["namespace"], []).append(line)
    assert messages.keys() == wanted.keys()
    left_out = ["_ums_commit_ts_", "_ums_raw_"] if form == "ums-dbus" else []
    for namespace, batches in wanted.items():
        there = pa.concat_batches(batch.replace_schema_metadata(None) for batch in batches)
        types = {field.name: field.type for field in there.schema} if form == "ums-dbus" else None
        item, *ends = UmsReader(exact=types).read(messages[namespace])
        assert [end.kind for end in ends if isinstance(end, UmsNotice)] == [Kind.TERMINATION] * len(ends)
        assert bool(ends) is (_next_version(namespace) in wanted)
        assert isinstance(item, UmsRows)
        back = item.batch.data.replace_schema_metadata(None)
        assert back.drop_columns(left_out).equals(there.drop_columns(left_out)), namespace


def table_of_types() -> list[list[str]]:
    text = (FORMATS / "ums.md").read_text().partition("<!-- types -->")[2].partition("<!-- /types -->")[0]
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) for line in text.splitlines() if line.startswith("| `")]
    return [[cell.replace("`", "") for cell in row] for row in rows]


@pytest.mark.parametrize(("exact", "source", "type_", "headrace", "dbus"), table_of_types())
def test_the_documented_types_are_the_real_ones(exact: str, source: str, type_: str, headrace: str, dbus: str) -> None:
    values: dict[Dialect, str] = {Dialect.HEADRACE: headrace, Dialect.DBUS: dbus}
    kind = ums_types.exact_type(exact)
    assert ums_types.exact_name(kind) == exact
    table = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("v", kind, source),))
    for dialect, shown in values.items():
        ((_, value),) = UmsWriter(dialect).rows(one_row(table, json.loads(shown)))
        parsed: dict[str, Any] = json.loads(value)
        assert parsed["schema"]["fields"][-1]["type"] == type_
        assert value.endswith(f",{shown}]}}]}}".encode())


def one_row(table: TableSchema, value: object) -> ChangeBatch:
    """A batch with the value, made by the reader from a message of that value."""
    ((_, written),) = UmsWriter(Dialect.HEADRACE).rows(ChangeBatch(replace(table), _null_row(table)))
    envelope = json.loads(written)
    envelope["payload"][0]["tuple"][-1] = value
    (item,) = UmsReader().read([json.dumps(envelope).encode()])
    assert isinstance(item, UmsRows)
    assert item.batch.data.column("_ums_raw_").null_count == 1
    return item.batch


def _null_row(table: TableSchema) -> pa.RecordBatch:
    system = example().data.slice(0, 1).select(range(5)).to_pylist()
    return pa.RecordBatch.from_pylist(system, schema=table.arrow_schema())


def test_every_type_is_documented() -> None:
    documented = {re.sub(r"\(.*|,.*|\]", "", row[0]) for row in table_of_types()}
    for column in TABLE.columns:
        assert re.sub(r"\(.*|,.*|\]", "", ums_types.exact_name(column.type)) in documented


def _next_version(namespace: str) -> str:
    name = Namespace.parse(namespace)
    return str(replace(name, version=name.version + 1))
