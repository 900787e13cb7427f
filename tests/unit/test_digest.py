"""The digest of rows: the native one against its drawing, written out in Python."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._native import digest_rows

WORD = (1 << 64) - 1
SEED = (0x243F6A8885A308D3, 0x13198A2E03707344)
MULTIPLIER = (0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
NULL_MULTIPLIER = (0x8EBC6AF09C88C6E3, 0x589965CC75374CC3)


def fold(x: int, y: int) -> int:
    product = x * y
    return (product & WORD) ^ (product >> 64)


def words(value: object, type_: pa.DataType) -> list[int]:
    if isinstance(value, bool):
        return [int(value)]
    if isinstance(value, (str, bytes)):
        raw = value.encode() if isinstance(value, str) else value
        length = [] if pa.types.is_fixed_size_binary(type_) else [len(raw)]
    else:
        raw = pa.array([value], type_).buffers()[1].to_pybytes()[: type_.bit_width // 8]
        length = []
    return length + [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8)]


def expected(rows: list[tuple[object, ...]], types: list[pa.DataType]) -> int:
    total = 0
    for row in rows:
        state = SEED
        for value, type_ in zip(row, types, strict=True):
            if value is None:
                state = (fold(state[0], NULL_MULTIPLIER[0]), fold(state[1], NULL_MULTIPLIER[1]))
                continue
            for word in words(value, type_):
                state = (fold(state[0] ^ word, MULTIPLIER[0]), fold(state[1] ^ word, MULTIPLIER[1]))
        total += state[0] << 64 | state[1]
    return total % 2**128


COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[object]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint16(), st.integers(0, 65535)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.utf8(), st.text(max_size=20)),
    (pa.large_utf8(), st.text(max_size=20)),
    (pa.binary(), st.binary(max_size=20)),
    (pa.binary(11), st.binary(min_size=11, max_size=11)),
    (pa.decimal128(20, 2), st.integers(-(10**17), 10**17).map(lambda n: Decimal(n).scaleb(-2))),
    (pa.decimal256(60, 0), st.integers(-(10**25), 10**25).map(Decimal)),
    (pa.date32(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
    (pa.timestamp("us", "UTC"), st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))),  # noqa: DTZ001
    (pa.duration("us"), st.timedeltas(timedelta(-900), timedelta(900))),
]
TYPES = [type_ for type_, _ in COLUMNS]
ROWS = st.lists(st.tuples(*(st.none() | values for _, values in COLUMNS)), max_size=8)


def batch_of(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], type_) for at, type_ in enumerate(TYPES)]
    return pa.record_batch(columns, [str(at) for at in range(len(TYPES))])


@given(rows=ROWS, data=st.data())
def test_it_is_what_the_drawing_says(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    batch = batch_of(rows)
    cut = data.draw(st.integers(0, len(rows)))
    assert digest_rows(batch) == expected(rows, TYPES)
    assert digest_rows(batch.slice(cut)) == expected(rows[cut:], TYPES), "a slice is hashed as if it stood alone"


@given(rows=ROWS, data=st.data())
def test_it_does_not_depend_on_order_or_parts(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    parts = digest_rows(batch_of(shuffled[:cut])) + digest_rows(batch_of(shuffled[cut:]))
    assert parts % 2**128 == digest_rows(batch_of(rows))


def test_a_row_twice_is_not_none() -> None:
    row = pa.record_batch({"x": [1]})
    assert digest_rows(pa.record_batch({"x": [1, 1]})) == 2 * digest_rows(row) % 2**128 != 0


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError, match="List"):
        digest_rows(pa.record_batch({"x": [[1]]}))
