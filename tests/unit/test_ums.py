"""UMS JSON: what a reader takes and refuses, what a writer cuts and names."""

# ruff: noqa: DTZ001 - columns without a zone hold wall clock
from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.codec.ums import Limits, MalformedMessage, UmsNotice, UmsReader, UmsRows, UmsWriter, key_namespace
from headrace.codec.ums_schema import Dialect, Kind
from headrace.errors import ConfigError, DataError
from headrace.ums.change import ChangeBatch, Clear, End
from headrace.ums.schema import SYSTEM_FIELDS, Column, Namespace, TableSchema

NAMESPACE = "mysql.db1.shop.orders.0.0.0"
TABLE = TableSchema(
    Namespace.parse(NAMESPACE), (Column("id", pa.int64(), "bigint"), Column("name", pa.utf8(), "varchar")), ("id",)
)


def original(fields: dict[str, str], *tuples: list[Any], **schema: object) -> bytes:
    """A message as the original writes it, with the system fields in front."""
    system = {"ums_id_": "long", "ums_ts_": "datetime", "ums_op_": "string"}
    described = [{"name": name, "type": type_} for name, type_ in (system | fields).items()]
    rows = [
        {"tuple": [str(10**13 + row), "2016-04-11 12:23:34.345", "i", *values]} for row, values in enumerate(tuples)
    ]
    return json.dumps(
        {
            "protocol": {"type": "data_increment_data", "version": "1.3"},
            "schema": {"namespace": NAMESPACE, "fields": described, **schema},
            "payload": rows,
        }
    ).encode()


def values(writer: UmsWriter, batch: ChangeBatch) -> list[bytes]:
    return [value for _, value in writer.rows(batch)]


def read_rows(*messages: bytes, **options: Any) -> pa.RecordBatch:
    (item,) = UmsReader(**options).read(messages)
    assert isinstance(item, UmsRows)
    return item.batch.data


def read_value(type_: str, value: object) -> tuple[object, str | None]:
    data = read_rows(original({"v": type_}, [value]))
    return data.column("v")[0].as_py(), data.column("_ums_raw_")[0].as_py()


def batch(rows: int) -> ChangeBatch:
    values = [
        {
            "_ums_id_": 10**12 + row,
            "_ums_ts_": row,
            "_ums_op_": "i",
            "_ums_commit_ts_": row,
            "id": row,
            "name": "x" * row,
        }
        for row in range(rows)
    ]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(values, schema=TABLE.arrow_schema()))


@pytest.mark.parametrize(
    ("type_", "value", "read"),
    [
        ("int", "7", 7),
        ("int", 7.0, 7),
        ("long", 7, 7),
        ("long", "7", 7),
        ("long", "1E+3", 1000),
        ("double", "0.5", 0.5),
        ("double", "-Infinity", float("-inf")),
        ("float", 1, 1.0),
        ("decimal", 12.5, Decimal("12.5")),
        ("decimal", "1.25E+3", Decimal(1250)),
        ("boolean", "TRUE", True),
        ("boolean", 0, False),
        ("string", 12.50, "12.5"),
        ("string", True, "true"),
        ("string", {"a": [1, None]}, '{"a": [1, null]}'),
        ("jsonobject", {"a": 1}, '{"a": 1}'),
        ("longarray", [1, 2], "[1, 2]"),
        ("date", "2016-04-11", date(2016, 4, 11)),
        ("date", "2016-04-11 00:00:00", date(2016, 4, 11)),
        ("date", "2016/4/11", date(2016, 4, 11)),
        ("datetime", "2016-04-11", datetime(2016, 4, 11)),
        ("datetime", "2016-04-11 12:23:34", datetime(2016, 4, 11, 12, 23, 34)),
        ("datetime", "2016-04-11T12:23:34.345678", datetime(2016, 4, 11, 12, 23, 34, 345678)),
        ("datetime", "2016-04-11 12:23:34.345678000", datetime(2016, 4, 11, 12, 23, 34, 345678)),
        ("binary", "AP8=", b"\x00\xff"),
        ("string", None, None),
        ("STRING", "upper-case type", "upper-case type"),
    ],
)
def test_values_are_taken_in_many_forms(type_: str, value: object, read: object) -> None:
    assert read_value(type_, value) == (read, None)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("int", 2**31, str(2**31)),
        ("int", "1.5", "1.5"),
        ("int", "", ""),
        ("long", str(2**63), str(2**63)),
        ("decimal", "1e30", "1e30"),
        ("boolean", "maybe", "maybe"),
        ("date", "0000-00-00", "0000-00-00"),
        ("date", "2016-04-11 12:00:00", "2016-04-11 12:00:00"),
        ("datetime", "2016-04-11 12:23:34.345678901", "2016-04-11 12:23:34.345678901"),
        ("datetime", "2016-02-30", "2016-02-30"),
        ("binary", 'no "base64"', 'no "base64"'),
        ("double", {"a": 1}, '{"a": 1}'),
    ],
)
def test_values_beyond_their_type_keep_their_text(type_: str, value: object, text: str) -> None:
    read, raw = read_value(type_, value)
    assert read is None
    assert raw is not None
    assert json.loads(raw) == {"v": text}


def test_values_beyond_join_those_that_came_as_such() -> None:
    ((_, value),) = UmsWriter(Dialect.HEADRACE).rows(batch(1))
    message = json.loads(value)
    message["payload"][0]["tuple"][4:6] = ['{"name":"old"}', "no number"]
    data = read_rows(json.dumps(message).encode())
    assert json.loads(str(data.column("_ums_raw_")[0])) == {"name": "old", "id": "no number"}


def test_members_may_be_unknown_and_in_any_order() -> None:
    message = json.loads(original({"v": "int"}, [1], unFields=[], batchId=3))
    message |= {"extra": [{"a": [[]]}]}
    message["protocol"]["msg_id"] = -1
    message["payload"][0] = {"before": None, "tuple": message["payload"][0]["tuple"]}
    turned = json.dumps(dict(reversed(message.items())), indent=2).encode()
    assert read_rows(turned).column("v").to_pylist() == [1]


def test_commit_times_never_go_back() -> None:
    reader = UmsReader(commit_ts_us=0)
    times = ["2016-04-11 12:00:00", "2016-04-11 11:00:00", "2016-04-11 13:00:00"]
    found = []
    for time in times:
        message = original({}, []).replace(b"2016-04-11 12:23:34.345", time.encode())
        (item,) = reader.read([message])
        assert isinstance(item, UmsRows)
        found.append(item.batch.data.column("_ums_commit_ts_")[0].as_py().hour)
    assert found == [12, 12, 13]


def test_rows_come_together_by_table_and_kind() -> None:
    first, second = original({"a": "int"}, [1]), original({"b": "int"}, [2])
    initial = first.replace(b"data_increment_data", b"DATA_INITIAL_DATA")
    items = UmsReader().read([first, second, initial, first, second])
    assert [(item.kind, len(item.batch)) for item in items if isinstance(item, UmsRows)] == [
        (Kind.INCREMENT, 2),
        (Kind.INCREMENT, 2),
        (Kind.INITIAL, 1),
    ]


def test_no_payload_is_no_rows() -> None:
    message = json.loads(original({"v": "int"}))
    for payload in ([], None):
        assert UmsReader().read([json.dumps(message | {"payload": payload}).encode()]) == []
    del message["payload"]
    assert UmsReader().read([json.dumps(message).encode()]) == []


def test_a_heartbeat_of_all_shards_and_of_wormhole() -> None:
    message = {
        "protocol": {"type": "data_increment_heartbeat"},
        "schema": {
            "namespace": "mysql.db1!topo1.shop.orders.*.0.*",
            "fields": [{"name": "ums_ts_", "type": "datetime"}],
        },
        "payload": [{"tuple": ["2016/04/11 12:24:00"]}],
    }
    (notice,) = UmsReader(zone="Asia/Shanghai").read([json.dumps(message).encode()])
    namespace = Namespace("mysql", "db1!topo1", "shop", "orders", 0, "0", "*")
    assert notice == UmsNotice(Kind.HEARTBEAT, namespace, None, 1_460_348_640_000_000)


GOOD = original({"v": "int"}, [1])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "byte 0: EOF"),
        (b"[]", "byte 0: expected object but found array"),
        (GOOD + b"x", f"byte {len(GOOD)}: trailing characters"),
        (GOOD.replace(b"data_increment_data", b"directive_flow_start"), "byte 22: 'directive_flow_start' is no kind"),
        (GOOD.replace(b'"type": "data_increment_data", ', b""), "protocol has no type"),
        (GOOD.replace(b'"protocol"', b'"protocols"'), "no protocol"),
        (GOOD.replace(b'"schema"', b'"schemas"'), "no schema"),
        (GOOD.replace(b"mysql.db1", b"db1"), "is not a namespace"),
        (GOOD.replace(b'"int"', b'"integer"'), "UMS has no type 'integer'"),
        (GOOD.replace(b'"v"', b'"ums_id_"'), "two fields of fields are named ums_id_"),
        (GOOD.replace(b'"v"', b'"UMS_ID_"'), "not one field _ums_id_ but 2"),
        (GOOD.replace(b'"v"', b'""'), "has no name"),
        (GOOD.replace(b'"v"', b'"' + b"v" * 1001 + b'"'), "more than 1000 characters"),
        (GOOD.replace(b'"ums_op_"', b'"op"'), "not one field _ums_op_ but 0"),
        (GOOD.replace(b", 1]", b"]"), "a tuple of 3 values where the schema has 4 fields"),
        (GOOD.replace(b", 1]", b", 1, 2]"), "a tuple of more values than the schema has fields (4)"),
        (GOOD.replace(b'"tuple"', b'"row"'), "a row without a tuple"),
        (GOOD.replace(b'"i", 1', b'"x", 1'), "ums_op_ cannot be 'x'"),
        (GOOD.replace(b'"i", 1', b"null, 1"), "ums_op_ is null"),
        (GOOD.replace(b'"10000000000000"', b'"abc"'), "ums_id_ cannot be 'abc'"),
        (GOOD.replace(b'"10000000000000"', b'"9999999999999"'), "ums_id_ cannot be '9999999999999'"),
        (GOOD.replace(b'"2016-04-11 12:23:34.345"', b'"yesterday"'), "ums_ts_ cannot be 'yesterday'"),
        (GOOD.replace(b'"payload"', b'"payload": [], "payload"'), "a second payload"),
        (GOOD.replace(b'"payload"', b'"schema": {}, "payload"'), "a second schema"),
        (GOOD.replace(b'"payload": [', b'"payload": "[') + b'"', "byte"),
        (GOOD.replace(b'"i", 1', b'"i", "\xff"'), "invalid unicode"),
    ],
)
def test_what_is_not_ums_is_refused_with_its_place(message: bytes, reason: str) -> None:
    assert message != GOOD
    reader = UmsReader()
    with pytest.raises(MalformedMessage) as raised:
        reader.read([GOOD, message, GOOD])
    assert reason in raised.value.message
    assert raised.value.message.startswith("message 1 is not UMS at byte ")
    assert raised.value.index == 1
    (item,) = reader.read([GOOD, GOOD])
    assert isinstance(item, UmsRows)
    assert len(item.batch) == 2


def test_messages_are_cut_by_rows_and_bytes() -> None:
    by_rows = values(UmsWriter(Dialect.HEADRACE, limits=Limits(4, 1 << 20)), batch(10))
    assert [len(json.loads(value)["payload"]) for value in by_rows] == [4, 4, 2]
    longest = len(by_rows[-1])
    by_bytes = values(UmsWriter(Dialect.HEADRACE, limits=Limits(100, longest)), batch(100))
    sizes = [(len(value), len(json.loads(value)["payload"])) for value in by_bytes]
    assert all(size <= longest or rows == 1 for size, rows in sizes)
    assert len(by_bytes[0]) + len(json.dumps(json.loads(by_bytes[1])["payload"][0])) > longest
    assert read_rows(*by_bytes).equals(batch(100).data)
    assert len(values(UmsWriter(Dialect.HEADRACE, limits=Limits(100, 0)), batch(3))) == 3
    assert values(UmsWriter(Dialect.HEADRACE), batch(0)) == []


def test_a_slice_of_a_batch_is_what_it_shows() -> None:
    sliced = ChangeBatch(TABLE, batch(10).data.slice(3, 4))
    assert read_rows(*values(UmsWriter(Dialect.HEADRACE), sliced)).equals(sliced.data)


def test_keys_say_the_namespace() -> None:
    headrace, dbus = (
        [key for key, _ in UmsWriter(dialect, limits=Limits(2, 1 << 20)).rows(batch(3))] for dialect in Dialect
    )
    assert headrace == [NAMESPACE.encode()] * 2
    assert dbus[1].decode() == f"data_increment_data.{NAMESPACE}.0|db1.wh_placeholder"
    for key in [*headrace, *dbus]:
        assert key_namespace(key) == NAMESPACE
    assert key_namespace(b"data_increment_data.kafka.kafka01.topic.user.*.*.*") == "kafka.kafka01.topic.user.*.*.*"
    assert [key_namespace(key) for key in (None, b"", b"~mark", b"data_increment_data.a.b", b"\xff")] == [None] * 5


def test_the_dbus_dialect_counts_what_it_cannot_say() -> None:
    data = batch(3).data.set_column(4, SYSTEM_FIELDS[4], pa.array([None, '{"name":"\\u0000"}', None], pa.utf8()))
    writer = UmsWriter(Dialect.DBUS)
    writer.rows(ChangeBatch(TABLE, pa.RecordBatch.from_arrays(data.columns, schema=TABLE.arrow_schema())))
    assert writer.rows_beyond == 1


def test_the_dbus_dialect_in_a_zone() -> None:
    columns = (Column("at", pa.timestamp("us", "UTC"), "timestamp"), Column("wall", pa.timestamp("us"), "datetime"))
    table = TableSchema(TABLE.namespace, columns)
    moment = datetime(2016, 4, 11, 4, 23, 34, tzinfo=UTC)
    row = {"_ums_id_": 1, "_ums_ts_": moment, "_ums_op_": "i", "_ums_commit_ts_": moment, "at": moment, "wall": moment}
    there = ChangeBatch(table, pa.RecordBatch.from_pylist([row], schema=table.arrow_schema()))
    ((key, value),) = UmsWriter(Dialect.DBUS, zone="Asia/Shanghai").rows(there)
    assert b'"2016-04-11 12:23:34.000","i","1","2016-04-11 12:23:34","2016-04-11 04:23:34"]' in value
    assert key.endswith(b".1460348614000|db1.wh_placeholder")
    exact = {column.name: column.type for column in columns}
    assert read_rows(value, zone="Asia/Shanghai", exact=exact).equals(there.data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": (Column("UMS_UID_", pa.utf8(), "varchar"),)}, "has a column UMS_UID_"),
        ({"columns": (Column("v", pa.list_(pa.int8()), "array"),)}, r"UMS has no type for Arrow's list<item: int8>"),
    ],
)
def test_what_cannot_be_written_is_refused(change: dict[str, Any], message: str) -> None:
    table = TableSchema(TABLE.namespace, **change)
    with pytest.raises(DataError, match=message):
        UmsWriter(Dialect.DBUS).rows(ChangeBatch(table, pa.RecordBatch.from_pylist([], schema=table.arrow_schema())))


def test_ids_and_clears_that_dbus_cannot_say_are_refused() -> None:
    writer = UmsWriter(Dialect.DBUS)
    last = 922_337 * 10**12 + 5
    for id_, fits in ((last, True), (last + 10**12, False)):
        ids = pa.array([id_], pa.int64())
        data = batch(1).data.set_column(0, SYSTEM_FIELDS[0], ids)
        one = ChangeBatch(TABLE, pa.RecordBatch.from_arrays(data.columns, schema=TABLE.arrow_schema()))
        if fits:
            assert read_rows(*values(writer, one)).column(0) == ids
        else:
            with pytest.raises(DataError, match="too large an id"):
                writer.rows(one)
    with pytest.raises(DataError, match="no message for TRUNCATE"):
        writer.clear(Clear(TABLE, 1, 2))


@pytest.mark.parametrize("dialect", Dialect)
def test_the_end_of_a_version_is_its_termination(dialect: Dialect) -> None:
    message = UmsWriter(dialect).end(End(TABLE, TABLE.with_version(1), 7, 1_460_391_814_345_000))
    assert UmsReader().read([message.value]) == [
        UmsNotice(Kind.TERMINATION, TABLE.namespace, None, 1_460_391_814_345_000)
    ]


def test_the_ends_of_nanoseconds_have_no_wall_clock() -> None:
    table = TableSchema(TABLE.namespace, (Column("at", pa.timestamp("ns", "UTC"), "instant"),))
    at = pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    data = pa.RecordBatch.from_arrays([*batch(1).data.columns[:5], at], schema=table.arrow_schema())
    with pytest.raises(DataError, match="near 2262 has no wall clock in Asia/Shanghai"):
        UmsWriter(Dialect.DBUS, zone="Asia/Shanghai").rows(ChangeBatch(table, data))
    assert read_rows(*values(UmsWriter(Dialect.HEADRACE), ChangeBatch(table, data))).equals(data)


def test_zones_are_checked() -> None:
    with pytest.raises(ConfigError, match="no time zone 'Nowhere'"):
        UmsReader(zone="Nowhere")
    with pytest.raises(ConfigError, match="is in UTC"):
        UmsWriter(Dialect.HEADRACE, zone="Asia/Shanghai")


def test_durations_are_times_of_day_and_more() -> None:
    column = Column("t", pa.duration("us"), "time")
    table = TableSchema(TABLE.namespace, (column,))
    values = [timedelta(hours=838, minutes=59, seconds=59), timedelta(microseconds=-1)]
    rows = [{"_ums_id_": 1, "_ums_ts_": 0, "_ums_op_": "i", "_ums_commit_ts_": 0, "t": value} for value in values]
    there = ChangeBatch(table, pa.RecordBatch.from_pylist(rows, schema=table.arrow_schema()))
    ((_, value),) = UmsWriter(Dialect.HEADRACE).rows(there)
    assert [row["tuple"][-1] for row in json.loads(value)["payload"]] == ["838:59:59", "-00:00:00.000001"]
    assert read_rows(value).equals(there.data)
