"""A comparison is green for the same rows in any order, cut and type, and red for any single change."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.ums.schema import Column, Namespace, TableSchema
from headrace.verify.compare import compare

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "id": (pa.int64(), st.integers(0, 50)),
    "part": (pa.utf8(), st.sampled_from(["", "a", "A", "0"])),
    "tiny": (pa.int8(), st.sampled_from([0, 1, -1])),
    "big": (pa.uint64(), st.sampled_from([0, 1, 2**64 - 1])),
    "amount": (pa.decimal128(10, 2), st.sampled_from([Decimal("0.00"), Decimal("1.50"), Decimal("-1.50")])),
    "wide": (pa.decimal256(50, 10), st.just(Decimal("12345678901234567890123456789.0000000001"))),
    "ratio": (pa.float64(), st.sampled_from([0.0, 0.1, math.inf, math.nan, 5e-324])),
    "small": (pa.float32(), st.sampled_from([0.0, 0.5, -0.5])),
    "text": (pa.utf8(), st.sampled_from(["", "0", "NULL", "null", "a", "a "])),
    "raw": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0", b"a"])),
    "day": (pa.date32(), st.sampled_from([date(1970, 1, 1), date(2026, 3, 2)])),
    "at": (pa.timestamp("us", "UTC"), st.sampled_from([datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 3, 2, 1, tzinfo=UTC)])),
    "local": (pa.timestamp("us"), st.sampled_from([datetime(2026, 3, 2, 1, 2, 3, 4)])),  # noqa: DTZ001
    "span": (pa.duration("us"), st.sampled_from([timedelta(0), timedelta(hours=-800, microseconds=1)])),
}  # fmt: skip
TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "t"),
    tuple(Column(name, kind, "") for name, (kind, _) in COLUMNS.items()),
    ("id", "part"),
)
KEYLESS = replace(TABLE, key=())
ROW = st.fixed_dictionaries(
    {name: values if name in TABLE.key else st.none() | values for name, (_, values) in COLUMNS.items()}
)
ROWS = st.lists(ROW, min_size=1, max_size=12, unique_by=lambda row: (row["id"], row["part"]))
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
TABLES = st.sampled_from([TABLE, KEYLESS])


def arrow(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


@given(rows=ROWS, data=st.data(), table=TABLES)
def test_order_and_chunks_do_not_matter(rows: list[dict[str, object]], data: st.DataObject, table: TableSchema) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    result = compare(arrow(rows), pa.concat_tables([arrow(shuffled[:cut]), arrow(shuffled[cut:])]), table)
    assert result.ok
    assert (result.differing_keys, result.differences) == (0, ())


@given(rows=ROWS, table=TABLES, data=st.data())
def test_types_that_mean_the_same_are_the_same(
    rows: list[dict[str, object]], table: TableSchema, data: st.DataObject
) -> None:
    others: dict[str, list[pa.DataType]] = {
        "id": [pa.utf8(), pa.float64(), pa.decimal128(20, 0), pa.uint32()],
        "part": [pa.large_utf8(), pa.dictionary(pa.int32(), pa.utf8()), pa.binary()],
        "tiny": [pa.int64(), pa.utf8(), pa.float32()],
        "big": [pa.decimal128(20, 0), pa.utf8()],
        "amount": [pa.decimal128(20, 6), pa.utf8(), pa.float64(), pa.decimal256(60, 2)],
        "ratio": [pa.utf8()],
        "small": [pa.float64(), pa.utf8()],
        "day": [pa.utf8(), pa.timestamp("us"), pa.date64()],
        "at": [pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Asia/Shanghai")],
        "local": [pa.utf8(), pa.timestamp("ns")],
        "span": [pa.duration("ns")],
    }
    actual = arrow(rows)
    for name, kinds in others.items():
        kind = data.draw(st.sampled_from(kinds))
        at = actual.column_names.index(name)
        actual = actual.set_column(at, name, actual.column(name).cast(kind))
    result = compare(arrow(rows), actual, table)
    assert result.ok, result.differences


@given(rows=ROWS, data=st.data(), table=TABLES)
def test_any_changed_value_is_found(rows: list[dict[str, object]], data: st.DataObject, table: TableSchema) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(sorted(set(COLUMNS) - set(TABLE.key))))
    value = data.draw(st.none() | COLUMNS[name][1])
    assume(repr(value) != repr(rows[at][name]))
    changed = [*rows[:at], {**rows[at], name: value}, *rows[at + 1 :]]
    result = compare(arrow(rows), arrow(changed), table)
    assert not result.ok
    if table.key:
        (difference,) = result.differences
        assert (difference.kind, difference.columns) == ("different", (name,))
        assert difference.key == {"id": str(rows[at]["id"]), "part": rows[at]["part"]}
    else:
        assert sorted(difference.kind for difference in result.differences) in (["extra", "missing"], ["repeated"] * 2,
            ["extra", "repeated"], ["missing", "repeated"])  # fmt: skip


@given(rows=ROWS, data=st.data(), table=TABLES)
def test_a_changed_key_is_one_row_missing_and_one_extra(
    rows: list[dict[str, object]], data: st.DataObject, table: TableSchema
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    changed = [*rows[:at], {**rows[at], "id": 99}, *rows[at + 1 :]]
    result = compare(arrow(rows), arrow(changed), table)
    assert sorted(difference.kind for difference in result.differences) == ["extra", "missing"]


@given(rows=ROWS, data=st.data(), table=TABLES)
def test_a_missing_and_a_doubled_row_are_found(
    rows: list[dict[str, object]], data: st.DataObject, table: TableSchema
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    without = [*rows[:at], *rows[at + 1 :]]
    missing, extra, doubled = (
        compare(arrow(rows), arrow(without), table),
        compare(arrow(without), arrow(rows), table),
        compare(arrow(rows), arrow([*rows, rows[at]]), table),
    )
    assert [d.kind for d in missing.differences] == ["missing"]
    assert [d.kind for d in extra.differences] == ["extra"]
    assert [d.kind for d in doubled.differences] == ["repeated"]
    assert not any(result.ok for result in (missing, extra, doubled))


@given(rows=ROWS, data=st.data(), table=TABLES)
def test_one_row_instead_of_another_is_found_though_the_counts_agree(
    rows: list[dict[str, object]], data: st.DataObject, table: TableSchema
) -> None:
    assume(len(rows) > 1)
    at, other = data.draw(st.permutations(range(len(rows))))[:2]
    instead = [*rows]
    instead[at] = rows[other]
    result = compare(arrow(rows), arrow(instead), table)
    assert not result.ok
    assert result.expected_rows == result.actual_rows
    assert result.differing_keys == 2


@given(rows=ROWS, data=st.data(), table=TABLES)
def test_a_value_that_does_not_fit_is_never_dropped(
    rows: list[dict[str, object]], data: st.DataObject, table: TableSchema
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(["id", "tiny", "amount", "ratio", "day", "at", "local", "span"]))
    texts = [None if row[name] is None else "0" for row in rows]
    texts[at] = "soon"
    column = COLUMNS[name][0]
    unfit = arrow([{**row, name: None} for row in rows])
    where = unfit.column_names.index(name)
    unfit = unfit.set_column(
        where, name, pa.array([text if number == at else None for number, text in enumerate(texts)], pa.utf8())
    )
    whole = arrow([{**row, name: None} for row in rows])
    result = compare(whole, unfit, table)
    assert not result.ok, f"a {column} that reads 'soon' must not pass for NULL"
    assert any(row.get(name) == "soon" for difference in result.differences for row in difference.actual)
    assert not compare(unfit, unfit, table).ok, "not even for itself: it cannot be what the source has"
