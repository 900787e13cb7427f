"""Messages of Debezium, canal and Maxwell are, byte for byte, what is written down here by hand; and they are read as what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from headrace.cli.decode import decode
from headrace.codec.binlog import BinlogReader, Rows, decode_file
from headrace.codec.foreign import WRITERS
from headrace.codec.foreign.batches import Numbered, batch_of
from headrace.codec.foreign.changes import Changes, State, of_batch
from headrace.codec.foreign.reading import READERS, ForeignMessage, read_canal, read_debezium, read_json, read_maxwell
from headrace.codec.ums import UmsReader
from headrace.ums.change import Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.ums_tables import example

DATA = Path(__file__).parent / "foreign"
LOG = Path(__file__).parent / "binlog" / "mysql9-cut.000005"
COLUMNS = (
    Column("id", pa.int32(), "int", nullable=False),
    Column("name", pa.utf8(), "varchar(255)"),
    Column("balance", pa.decimal128(10, 2), "decimal(10,2)"),
    Column("flags", pa.utf8(), "set('x','y')"),
    Column("photo", pa.binary(), "blob"),
    Column("born", pa.date32(), "date"),
    Column("seen", pa.timestamp("us", "UTC"), "timestamp(3)", nullable=False),
)
SEEN = datetime(2016, 6, 9, 16, 56, 51, 120_000, tzinfo=UTC)
BORN = '{"born": "0000-00-00"}'
ANNE: dict[str, Any] = {
    "id": 1004, "name": "Anne", "balance": Decimal("12.50"), "flags": "x,y", "photo": b"\x00\xff", "born": None, "seen": SEEN,
}  # fmt: skip
MARIE = ANNE | {
    "name": "Anne Marie",
    "balance": Decimal("-0.01"),
    "flags": "",
    "photo": None,
    "born": date(1988, 2, 29),
}
MOVED = MARIE | {"id": 1005}
NOBODY = dict.fromkeys(ANNE)


def state(rows: list[Mapping[str, Any]], raw: list[str | None]) -> State:
    arrays = [pa.array([row[column.name] for row in rows], column.type) for column in COLUMNS]
    return State(arrays, pa.array(raw, pa.utf8()), [None] * len(rows))


CHANGES = Changes(
    "dbserver1",
    "inventory",
    "customers",
    COLUMNS,
    ("id",),
    [3_000000000161, 3_000000000491, 3_000000000531, 3_000000000812],
    [1_465_491_411_815_000, 1_465_581_029_100_000, 1_465_581_030_000_000, 1_465_581_902_300_000],
    ["i", "u", "u", "d"],
    state([ANNE, MARIE, MOVED, NOBODY], [BORN, None, None, None]),
    state([NOBODY, ANNE, MARIE, MOVED], [None, BORN, None, None]),
    "mysql-bin.000003",
    [154, 484, 484, 805],
)
"""An insert, an update, an update of the key in the same event, a delete."""


def recorded(form: str) -> list[str]:
    return (DATA / f"{form}.jsonl").read_text().splitlines()


def message(value: bytes | None, key: bytes | None = None) -> ForeignMessage:
    return ForeignMessage("shop.t", key, value, 1_465_491_411_815)


@pytest.mark.parametrize("form", ["debezium", "canal", "maxwell"])
def test_messages_are_what_is_recorded(form: str) -> None:
    assert [text for _, text in WRITERS[form].messages(CHANGES)] == recorded(form)


def test_the_envelope_is_what_is_recorded() -> None:
    messages = [json.loads(text) for _, text in WRITERS["debezium-schema"].messages(CHANGES)]
    envelope = json.loads((DATA / "debezium-envelope.json").read_text())
    assert [parsed["payload"] for parsed in messages] == [json.loads(line) for line in recorded("debezium")]
    assert all(list(parsed) == ["schema", "payload"] and parsed["schema"] == envelope for parsed in messages)


def test_a_date_that_is_none_is_1970_where_it_cannot_be_null() -> None:
    columns = (
        Column("d", pa.date32(), "date", nullable=False),
        Column("t", pa.timestamp("us", "UTC"), "timestamp", nullable=False),
    )
    raw = pa.array(['{"d": "0000-00-00", "t": "0000-00-00 00:00:00"}'])
    nulls = State([pa.nulls(1, column.type) for column in columns], raw, [None])
    [(_, text)] = WRITERS["debezium"].messages(Changes("a", "b", "c", columns, (), [1], [0], ["i"], nulls, None))
    assert json.loads(text)["after"] == {"d": 0, "t": "1970-01-01T00:00:00Z"}


def test_columns_that_an_image_lacks_are_left_out() -> None:
    after = State(CHANGES.after.arrays, CHANGES.after.raw, [None, {"photo", "name"}, None, None])
    changes = Changes(*(getattr(CHANGES, field) if field != "after" else after for field in Changes.__slots__))
    for form in ("debezium", "canal", "maxwell"):
        parsed = json.loads([text for _, text in WRITERS[form].messages(changes)][1])
        row = parsed.get("after") or parsed.get("data")
        row = row[0] if isinstance(row, list) else row
        assert list(row) == ["id", "balance", "flags", "born", "seen"]


def test_out_of_a_log_there_are_no_rows_before_changes() -> None:
    changes = of_batch(example())
    updates = {form: json.loads([text for _, text in WRITERS[form].messages(changes)][1]) for form in WRITERS}
    assert updates["debezium"]["op"] == "u"
    assert updates["debezium"]["before"] is None
    assert updates["canal"]["old"] == [{}]
    assert updates["maxwell"]["old"] == {}


def test_rows_of_a_first_load() -> None:
    changes = replace(of_batch(example()), ids=[-3, -2, -1])
    loaded = [json.loads(text) for _, text in WRITERS["debezium"].messages(changes)]
    assert [(one["op"], one["source"]["snapshot"]) for one in loaded] == [("r", "true"), ("u", "true"), ("d", "true")]
    types = [json.loads(text)["type"] for _, text in WRITERS["maxwell"].messages(changes)]
    assert types == ["bootstrap-insert", "update", "delete"]


def test_truncate() -> None:
    clear = Clear(TableSchema(Namespace("mysql", "db1", "shop", "a`b"), COLUMNS), 7, 1_465_491_411_815_000)
    assert WRITERS["maxwell"].clear(clear) is None
    canal = str(WRITERS["canal"].clear(clear))
    assert json.loads(canal)["sql"] == "TRUNCATE TABLE `a``b`"
    for row in (
        *read_canal(message(canal.encode())),
        *read_debezium(message(str(WRITERS["debezium"].clear(clear)).encode())),
        *read_debezium(message(str(WRITERS["debezium-schema"].clear(clear)).encode())),
    ):
        assert (row.schema, row.table, row.op, row.ts_us) == ("shop", "a`b", "t", clear.commit_ts_us)


def read(
    form: str, lines: list[str], columns: tuple[Column, ...] | None = None, key: bytes | None = None
) -> pa.RecordBatch:
    rows = [row for line in lines for row in READERS[form](message(line.encode(), key))]
    described = columns or rows[0].columns
    assert described is not None
    table = TableSchema(Namespace("kafka", "a", "b", "c"), described)
    return batch_of(table, [Numbered(number, row.ts_us, row) for number, row in enumerate(rows)], UmsReader()).data


def without_born(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "born"}


def test_the_envelope_says_what_values_mean() -> None:
    envelope = json.dumps(json.loads((DATA / "debezium-envelope.json").read_text()))
    lines = [f'{{"schema":{envelope},"payload":{line}}}' for line in recorded("debezium")]
    spaced = [f'{{"payload": {line}, "schema": {envelope}}}' for line in recorded("debezium")]
    for form in (lines, spaced):
        data = read("debezium", form)
        assert data.column("_ums_op_").to_pylist() == ["i", "u", "d", "i", "d"]
        assert data.select(range(5, 12)).to_pylist() == [ANNE, MARIE, MARIE, MOVED, MOVED]
        assert data.schema.field("balance").type == pa.decimal128(10, 2)


def test_canal_says_what_values_mean() -> None:
    data = read("canal", recorded("canal"))
    assert data.select(range(5, 12)).to_pylist() == [ANNE, MARIE, MOVED, MOVED]
    assert [column and json.loads(column) for column in data.column("_ums_raw_").to_pylist()] == [
        {"born": "0000-00-00"},
        None,
        None,
        None,
    ]
    [first, *_] = read_canal(message(recorded("canal")[0].encode()))
    assert first.key == ("id",)


def test_types_that_are_known_otherwise_make_values_of_maxwell() -> None:
    data = read("maxwell", recorded("maxwell"), tuple(c for c in COLUMNS if c.name != "flags"))
    rows = [{name: value for name, value in row.items() if name != "flags"} for row in (ANNE, MARIE, MOVED, MOVED)]
    assert data.select(range(5, 11)).to_pylist() == rows


@pytest.mark.parametrize(
    ("key", "names"),
    [
        (None, ()),
        (b'{"id": 1004}', ("id",)),
        (b'{"schema": {"type": "struct"}, "payload": {"id": 1004, "part": 2}}', ("id", "part")),
    ],
)
def test_the_key_of_debezium_is_that_of_its_messages(key: bytes | None, names: tuple[str, ...]) -> None:
    [row] = read_debezium(message(recorded("debezium")[0].encode(), key))
    assert row.key == names
    assert row.columns is None


def test_the_key_of_maxwell() -> None:
    line = recorded("maxwell")[0].encode()
    [by_key] = read_maxwell(message(line, b'{"database": "inventory", "table": "customers", "pk.id": 1004}'))
    [said] = read_maxwell(message(line[:-1] + b', "primary_key_columns": ["id"]}'))
    assert by_key.key == said.key == ("id",)


NO_ROWS = [
    ("canal", {"type": "CREATE", "database": "a", "table": "b", "isDdl": True, "es": 1, "data": None}),
    ("canal", {"type": "QUERY", "database": "a", "table": "", "isDdl": True, "es": 1, "data": None}),
    ("maxwell", {"type": "bootstrap-start", "database": "a", "table": "b", "ts": 1, "data": {}}),
    ("maxwell", {"type": "table-create", "database": "a", "table": "b", "ts": 1, "def": {}}),
]


@pytest.mark.parametrize(("form", "said"), NO_ROWS)
def test_messages_without_rows(form: str, said: dict[str, Any]) -> None:
    assert list(READERS[form](message(json.dumps(said).encode()))) == []


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"null", b"7", b"{}", b'{"op": "x"}', b'{"payload": null}', b'{"schema":{},"payload":{"op":"c"}}',
     b'{"schema":{"fields":[{"field":"after","fields":[{}]}]},"payload":{"op":"c","source":{}}}',
     b'{"type": "INSERT"}', b'{"type": "insert", "database": "a", "table": "b", "ts": "now"}', b"[" * 100_000, b"\xff"],
)  # fmt: skip
def test_what_is_of_no_format_is_refused(form: str, value: bytes) -> None:
    if (
        (form, value) == ("maxwell", b'{"type": "INSERT"}')
        or (form == "json" and value.startswith(b'{"'))
        or (form, value) == ("json", b"{}")
    ):
        return  # a kind of message that has no rows; a row
    with pytest.raises(ValueError, match=r"\w"):
        list(READERS[form](message(value)))


def decoded_rows() -> dict[int, dict[str, Any]]:
    """Every row of the recorded log by its id, as the decoder gives it."""
    found: dict[int, dict[str, Any]] = {}
    with LOG.open("rb") as file:
        items = [item for part in decode_file(BinlogReader(["*.*"]), file, LOG.name) for item in part.items]
    for rows in items:
        if isinstance(rows, Rows):
            found |= {row["_ums_id_"]: row for row in rows.data.to_pylist()}
    return found


@pytest.mark.parametrize("form", ["debezium-schema", "canal"])
def test_every_type_of_a_real_log_comes_back(form: str) -> None:
    result = CliRunner().invoke(decode, ["binlog", str(LOG), "--format", form, "--name", "db1"], catch_exceptions=False)
    wanted, seen = decoded_rows(), set()
    reader = UmsReader()
    for line in result.output.split("\n")[:-1]:
        parsed = json.loads(line)
        id_ = parsed["id"] if form == "canal" else int(parsed["payload"]["source"]["sequence"])
        [row] = READERS[form.removesuffix("-schema")](message(line.encode()))
        assert row.columns is not None
        table = TableSchema(Namespace("kafka", "a", row.schema, row.table), row.columns)
        [back] = batch_of(table, [Numbered(id_, row.ts_us, row)], reader).data.to_pylist()
        if row.op == wanted[id_]["_ums_op_"]:
            expected = wanted[id_]
            seen.add(id_)
            if form == "debezium-schema" and (expected.get("t8u") or 0) >= 2**63:  # which is no long
                assert json.loads(back["_ums_raw_"])["t8u"] == str(expected.pop("t8u"))
                back.pop("t8u")
                row = replace(row, columns=tuple(c for c in row.columns or () if c.name != "t8u"))
            different = [c.name for c in row.columns or () if back[c.name] != expected[c.name]]
            assert not different, [(name, back[name], expected[name]) for name in different]
    assert seen == wanted.keys()


@pytest.mark.parametrize("form", WRITERS)
def test_every_type_can_be_written(form: str) -> None:
    for _, text in WRITERS[form].messages(of_batch(example())):
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_rows_as_json() -> None:
    [row] = read_json(message(b'{"name": "a", "n": 1.50}', b'{"id": 7}'))
    assert (row.schema, row.table, row.key, row.op) == ("shop", "t", ("id",), "u")
    assert (row.values, row.ts_us) == ({"id": 7, "name": "a", "n": "1.50"}, 1_465_491_411_815_000)
    [gone] = read_json(message(None, b'{"id": 7}'))
    assert (gone.op, gone.values) == ("d", {"id": 7})
    [plain] = read_json(ForeignMessage("t", b"7", b'{"id": 7}', 1))
    assert (plain.schema, plain.table, plain.key) == ("topic", "t", ())
    for key in (None, b"7"):
        with pytest.raises(ValueError, match="does not say which"):
            list(read_json(message(None, key)))


@pytest.mark.parametrize("form", ["debezium", "maxwell"])
def test_tombstones_say_nothing_more(form: str) -> None:
    assert list(READERS[form](message(None, b'{"id": 7}'))) == []
