"""Row keys: two rows never share one, the binary ones sort as the values do; and values are found again in cells."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.hbase.cells import from_cells, kind_of, to_cells
from headrace.sinks.hbase.rowkey import RowKeys
from headrace.testing.sink import TYPES
from headrace.ums.schema import Column, Namespace, TableSchema

SPACE = Namespace("mysql", "db1", "shop", "t")
SORTED: dict[pa.DataType, tuple[st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    # What to make values of a type of, and what they sort by.
    pa.int64(): (st.integers(-(2**63), 2**63 - 1), lambda value: value),
    pa.uint64(): (st.integers(0, 2**64 - 1), lambda value: value),
    pa.int8(): (st.integers(-128, 127), lambda value: value),
    pa.bool_(): (st.booleans(), lambda value: value),
    pa.float64(): (st.floats(allow_nan=False), lambda value: value),
    pa.decimal128(20, 5): (st.decimals(-(10**14), 10**14, places=5), lambda value: value),
    pa.decimal256(65, 30): (st.decimals(-(10**34), 10**34, places=30), lambda value: value),
    pa.date32(): (st.dates(), lambda value: value),
    pa.timestamp("us"): (st.datetimes(), lambda value: value),
    pa.utf8(): (st.text(alphabet="ab\0ü😀%:-", max_size=5), str.encode),
    pa.binary(): (st.binary(max_size=5), lambda value: value),
}


def keys(pattern: str, encoding: str, *columns: pa.Array[Any]) -> list[bytes]:
    names = [f"c{n}" for n in range(len(columns))]
    schema = tuple(Column(name, column.type, "") for name, column in zip(names, columns, strict=True))
    made = RowKeys(pattern, encoding, TableSchema(SPACE, schema, tuple(names)))
    return made.of(pa.RecordBatch.from_arrays(list(columns), names))


@pytest.mark.parametrize("kind", SORTED, ids=str)
@given(data=st.data())
def test_binary_row_keys_sort_as_values_do(kind: pa.DataType, data: st.DataObject) -> None:
    strategy, sorts_by = SORTED[kind]
    values = data.draw(st.lists(strategy, min_size=2, max_size=8))
    rest = data.draw(st.lists(st.integers(-9, 9), min_size=len(values), max_size=len(values)))
    made = keys("{key}", "binary", pa.array(values, kind), pa.array(rest, pa.int32()))
    rows = list(zip(map(sorts_by, values), rest, strict=True))
    for one, row in zip(made, rows, strict=True):
        for other, other_row in zip(made, rows, strict=True):
            assert (one < other) == (row < other_row)
            assert (one == other) == (row == other_row)


PATTERNS = ["{key}", "{c0}:x{hash:2}{c1}", "{c1:reverse}-{c0}", "{salt:7}{hash:3}{c0}/-{c1}", "a{c0}--{c1}b"]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(data=st.data())
def test_rows_of_different_keys_have_different_row_keys(pattern: str, data: st.DataObject) -> None:
    part = st.text(alphabet="ab%:-/2D5\0ü", max_size=4)
    rows = data.draw(st.lists(st.tuples(part, part), min_size=2, max_size=20, unique=True))
    made = keys(pattern, "text", *(pa.array(column) for column in zip(*rows, strict=True)))
    assert len(set(made)) == len(rows)
    assert all(made)


@given(numbers=st.lists(st.integers(0, 10**9 - 1), min_size=2, max_size=9))
def test_numbers_with_zeros_in_front_sort_as_numbers(numbers: list[int]) -> None:
    made = keys("{c0:09}", "text", pa.array(numbers, pa.int64()))
    assert sorted(made) == [key for _, key in sorted(zip(numbers, made, strict=True))]


@pytest.mark.parametrize("encoding", ["text", "binary"])
@given(number=st.integers(-(2**31), 2**31 - 1))
def test_a_row_keeps_its_key_when_its_column_becomes_wider(encoding: str, number: int) -> None:
    narrow, wide = (keys("{key}", encoding, pa.array([number], kind)) for kind in (pa.int32(), pa.int64()))
    assert narrow == wide


def test_times_in_row_keys_are_as_far_reaching_as_columns() -> None:
    times = pa.array([-(2**62), -1, 0, 2**62], pa.int64())
    for kind in (pa.duration("us"), pa.timestamp("us", "UTC")):
        made = keys("{key}", "binary", times.view(kind))
        assert made == sorted(made)
    day, moment = (
        pa.array([19782], pa.int32()).view(pa.date32()),
        pa.array([1_709_168_400_000_000]).view(pa.timestamp("us")),
    )
    assert keys("{key}", "text", day, moment) == [b"2024-02-29:2024-02-29 01%3A00%3A00.000000"]


@pytest.mark.parametrize("values", ["text", "binary"])
@pytest.mark.parametrize("kind", TYPES)
def test_values_are_found_again_in_cells(kind: str, values: str) -> None:
    _, column = TYPES[kind]
    how = kind_of(column.type, values)
    cells = to_cells(column, how)
    assert [cell == b"" for cell in cells] == column.is_null().to_pylist()
    assert from_cells(cells, how, column.type).equals(column)


@given(value=st.decimals(-(10**20), 10**20, places=3))
def test_a_decimal_is_as_big_decimal_writes_it(value: Decimal) -> None:
    [cell] = to_cells(pa.array([value], pa.decimal128(30, 3)), "decimal")
    assert int.from_bytes(cell[:4], "big") == 3
    number = int(value.scaleb(3))
    assert int.from_bytes(cell[4:], "big", signed=True) == number
    assert len(cell) - 4 == 1 or not (-(2 ** (8 * (len(cell) - 5) - 1)) <= number < 2 ** (8 * (len(cell) - 5) - 1))


@given(value=st.binary(max_size=4) | st.just(b"\0\0"))
def test_no_binary_value_is_taken_for_null(value: bytes) -> None:
    [cell] = to_cells(pa.array([value], pa.binary()), "raw")
    assert cell
    assert from_cells([cell], "raw", pa.binary()).to_pylist() == [value]
