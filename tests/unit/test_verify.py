"""Expected files, the form of results, and what the report shows."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from headrace.errors import CorruptError
from headrace.ums.schema import RAW, Column, Namespace, TableSchema
from headrace.verify.compare import compare
from headrace.verify.expected import read_expected
from headrace.verify.report import Report

TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "orders", 3),
    (
        Column("id", pa.uint64(), "bigint unsigned"),
        Column("total", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("ratio", pa.float32(), "float"),
        Column("day", pa.date32(), "date"),
        Column("at", pa.timestamp("us", "UTC"), "timestamp(3)"),
        Column("span", pa.duration("us"), "time(1)"),
        Column("raw", pa.binary(), "binary(2)"),
        Column("doc", pa.utf8(), "json"),
        Column("text", pa.utf8(), "longtext"),
    ),
    ("id",),
)
ROW = {
    "id": 2**64 - 1,
    "total": "1.50",
    "ratio": 0.1,
    "day": "2026-03-02",
    "at": "2026-03-02 01:02:03.400",
    "span": "-100:00:00.5",
    "raw": "AP8=",
    "doc": {"b": [1, None], "a": "ü"},
    "text": '{"b": 1}',
}


def written(path: Path, *rows: dict[str, object]) -> Path:
    file = path / "orders.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file


def small(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def test_expected_rows_have_the_types_of_the_table(tmp_path: Path) -> None:
    rows = read_expected(written(tmp_path, ROW, {**dict.fromkeys(ROW), "id": 1}), TABLE)
    assert {field.name: field.type for field in rows.schema} == {column.name: column.type for column in TABLE.columns}
    first, second = rows.to_pylist()
    assert (first["id"], first["total"]) == (2**64 - 1, Decimal("1.50"))
    assert first["span"] == -timedelta(hours=100, milliseconds=500)
    assert first["raw"] == b"\x00\xff"
    assert json.loads(first["doc"]) == ROW["doc"]
    assert str(first["at"]) == "2026-03-02 01:02:03.400000+00:00"
    assert second == {**dict.fromkeys(ROW), "id": 1}


def test_no_rows(tmp_path: Path) -> None:
    rows = read_expected(written(tmp_path), TABLE)
    assert compare(rows, rows, TABLE).ok
    assert not Report(()).ok


def test_dates_that_no_type_holds_stand_aside(tmp_path: Path) -> None:
    partial = {**ROW, "day": "0000-00-00", "at": "2024-00-15 00:00:00.000"}
    rows = read_expected(written(tmp_path, partial, {**ROW, "id": 1}), TABLE)
    assert rows.column("day").to_pylist()[0] is None
    assert [raw and json.loads(raw) for raw in rows.column(RAW).to_pylist()] == [
        {"day": "0000-00-00", "at": "2024-00-15 00:00:00.000"},
        None,
    ]
    assert compare(rows, rows.drop_columns([RAW]), TABLE).ok, "a store without side text has NULL"
    other = rows.set_column(rows.column_names.index(RAW), RAW, pa.array(['{"day": "0000-00-00"}', None]))
    assert not compare(rows, other, TABLE).ok


def test_a_value_of_another_type_stays_for_the_comparison_to_find(tmp_path: Path) -> None:
    rows = read_expected(written(tmp_path, {**ROW, "total": "1.505"}), TABLE)
    good = read_expected(written(tmp_path, ROW), TABLE)
    (difference,) = compare(rows, good, TABLE).differences
    assert (difference.kind, difference.columns) == ("different", ("total",))
    assert (difference.expected[0]["total"], difference.actual[0]["total"]) == ("1.505", "1.50")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "orders.jsonl:2: .*Expecting"),
        ("[1]", "orders.jsonl:2: not a JSON object"),
        ('{"id": 1}', "orders.jsonl:2: its columns are not those of .*day"),
        (json.dumps({**ROW, "more": 1}), "orders.jsonl:2: .*more"),
        (json.dumps({**ROW, "raw": "?"}), "orders.jsonl:2: '.' is not base64"),
    ],
)
def test_damaged_files_are_named_with_their_line(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path, ROW)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(CorruptError, match=reason):
        read_expected(path, TABLE)


def test_json_is_compared_by_its_meaning() -> None:
    table = TableSchema(TABLE.namespace, (Column("doc", pa.utf8(), "json"),))
    assert compare(small(doc=['{"a": 1, "b": 2}']), small(doc=['{"b":2,"a":1}']), table).ok
    assert not compare(small(doc=['{"a": 1}']), small(doc=['{"a": null}']), table).ok


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.int32(), pa.array([1]), pa.array([1.5])),
        (pa.bool_(), pa.array([True]), pa.array([2])),
        (pa.date32(), pa.array(["2026-03-02"]), pa.array(["2026-03-02 01:00:00"]).cast(pa.timestamp("us"))),
        (pa.decimal128(5, 2), pa.array(["1.50"]), pa.array([1.499999])),
        (pa.timestamp("us"), pa.array([0], pa.timestamp("us")), pa.array([0])),
        (pa.utf8(), pa.array([""]), pa.array([None], pa.utf8())),
        (pa.int32(), pa.array([0]), pa.array([None], pa.int32())),
        (pa.utf8(), pa.array(["a"]), pa.array([b"\xff"])),
        (pa.int32(), pa.array([1]), pa.array([[1]])),
    ],
)
def test_what_does_not_mean_the_same_is_different(kind: pa.DataType, one: pa.Array, other: pa.Array) -> None:
    table = TableSchema(TABLE.namespace, (Column("c", kind, ""),))
    assert compare(pa.table({"c": one}), pa.table({"c": one}), table).ok
    assert not compare(pa.table({"c": one}), pa.table({"c": other}), table).ok


def test_floats_with_equal_values_are_equal() -> None:
    table = TableSchema(TABLE.namespace, (Column("c", pa.float64(), "double"),))
    assert compare(small(c=[0.0, float("nan")]), small(c=[-float("nan"), -0.0]), table).ok


def test_a_column_that_is_not_there_is_a_difference() -> None:
    table = TableSchema(TABLE.namespace, (Column("id", pa.int64(), ""), Column("c", pa.int32(), "")), ("id",))
    result = compare(small(id=[1], c=[None]), small(id=[1], more=[2]), table)
    assert (result.ok, result.missing_columns) == (False, ("c",))


def test_the_first_differences_are_listed_in_key_order_and_all_are_counted() -> None:
    table = TableSchema(TABLE.namespace, (Column("id", pa.int64(), ""), Column("c", pa.int32(), "")), ("id",))
    expected, actual = small(id=list(range(100, 0, -1)), c=[1] * 100), small(id=list(range(1, 101)), c=[2] * 100)
    result = compare(expected, actual, table, limit=3)
    assert result.differing_keys == 100
    assert [difference.key["id"] for difference in result.differences] == ["1", "2", "3"]


def test_the_report() -> None:
    table = TableSchema(TABLE.namespace, (Column("id", pa.int64(), ""), Column("c", pa.utf8(), "")), ("id",))
    good, bad = small(id=[1, 2], c=["[red]", None]), small(id=[1, 1, 2], c=["[red]", "[red]", ""])
    same, different = compare(good, good, table), compare(good, bad, table)
    assert Report((same,)).ok
    report = Report((same, different))
    assert not report.ok
    lines = [json.loads(line) for line in report.json_lines()]
    assert [(line["ok"], line["table"], line["differing_keys"]) for line in lines] == [
        (True, "mysql.db1.shop.orders", 0),
        (False, "mysql.db1.shop.orders", 2),
    ]
    assert lines[1]["differences"][1] == {
        "kind": "different",
        "key": {"id": "2"},
        "expected": [{"id": "2", "c": None}],
        "actual": [{"id": "2", "c": ""}],
        "columns": ["c"],
    }
    console = Console(width=100, record=True, file=StringIO())
    console.print(report.rendered())
    text = console.export_text()
    assert "DIFFERENT" in text
    assert "2 times: id='1', c='[red]'" in text
    assert "c=NULL" in text
