"""However the answer to a SELECT is cut, damaged or fed, the reader gives its rows, the first of them, or one clear error."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from itertools import repeat

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.codec.rows import RowsReader
from headrace.errors import CorruptError
from headrace.ums.schema import RAW, Namespace, TableSchema
from headrace.ums.schema import Column as TableColumn
from tests.mysql_packets import (
    BINARY,
    BIT,
    BLOB,
    DATETIME,
    DECIMAL,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    UTF8MB4,
    Column,
    answer,
    error,
    packets,
    row,
    sized,
)

COLUMNS = [
    Column("id", LONG),
    Column("amount", DECIMAL, decimals=2),
    Column("created", DATETIME, decimals=3),
    Column("updated", TIMESTAMP, decimals=6),
    Column("took", TIME),
    Column("flags", BIT),
    Column("note", STRING, UTF8MB4),
    Column("data", BLOB, BINARY),
]
TYPES = [
    pa.int32(), pa.decimal128(12, 2), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"), pa.uint64(), pa.utf8(),
    pa.binary(),
]  # fmt: skip
TABLE = TableSchema(
    Namespace("mysql", "src", "shop", "orders"),
    tuple(TableColumn(column.name, type_, "any") for column, type_ in zip(COLUMNS, TYPES, strict=True)),
)


def values(number: int) -> list[bytes | None]:
    moment = struct.pack("<BHBBBBBI", 11, 2024, 2, 1 + number % 29, 1, 2, 3, number)
    found: list[bytes | None] = [
        struct.pack("<i", number - 3),
        sized(f"{number}.25".encode()),
        b"\0" if number % 5 == 2 else moment,
        moment,
        struct.pack("<BBIBBBI", 12, number % 2, number % 30, 1, 2, 3, number),
        sized(b"\1\2"),
        sized("é水".encode() * (number % 100)),
        sized(bytes(number % 300)),
    ]
    return [None if number % (index + 7) == 5 else value for index, value in enumerate(found)]


ROWS = [row(values(number)) for number in range(400)]
WHOLE = answer(COLUMNS, ROWS)


def read(data: bytes, sizes: Iterator[int] | None = None, batch_rows: int = 97) -> tuple[list[object], RowsReader]:
    """Feeds an answer in pieces of the given sizes (whole without them); rows up to an error, which is raised when none came."""
    reader = RowsReader(TABLE)
    batches: list[pa.RecordBatch] = []
    fed, there = 0, 0
    while there < len(data) and not reader.at_end:
        there = min(len(data), there + next(sizes)) if sizes else len(data)
        full = True
        while full:
            taken, full = reader.feed(memoryview(data)[fed:there], rows=batch_rows, size_bytes=1 << 20)
            fed += taken
            if full:
                batches.append(reader.take())
    if reader.rows:
        batches.append(reader.take())
    for batch in batches:
        batch.validate(full=True)
    return [line for batch in batches for line in comparable(batch)], reader


def comparable(batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    plain = [column.cast(pa.int64()) if pa.types.is_temporal(column.type) else column for column in batch.columns]
    return list(zip(*(column.to_pylist() for column in plain), strict=True))


EXPECTED, _ = read(WHOLE)


def test_the_values_are_those_that_were_made() -> None:
    assert len(EXPECTED) == len(ROWS)
    moment = 1_706_749_323_000_000
    took = (25 * 3600 + 2 * 60 + 3) * 1_000_000 + 1
    assert EXPECTED[1] == (
        -2,
        Decimal("1.25"),
        moment + 86_400_000_001,
        moment + 86_400_000_001,
        -took,
        258,
        "é水",
        b"\0",
        None,
    )
    assert EXPECTED[2][2] is None  # type: ignore[index]
    assert EXPECTED[2][8] == '{"created": "0000-00-00 00:00:00.000"}'  # type: ignore[index]
    assert EXPECTED[18][6] is None  # type: ignore[index]


@settings(deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(1, 500))
def test_pieces_do_not_matter(sizes: list[int], batch_rows: int) -> None:
    found, reader = read(WHOLE, (size for _ in repeat(None) for size in sizes), batch_rows)
    assert found == EXPECTED
    assert reader.at_end
    assert reader.error is None


@settings(deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_an_answer_that_is_cut_is_not_at_its_end(length: int) -> None:
    found, reader = read(WHOLE[:length])
    assert found == EXPECTED[: len(found)]
    assert not reader.at_end


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damage_gives_rows_or_one_error(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(WHOLE)
    for place, byte in changes:
        damaged[place] = byte
    with suppress(CorruptError):
        read(bytes(damaged))


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (ROWS[1] + b"x", "a row with 1 bytes more"),
        (ROWS[1][:-1], "bytes are needed"),
        (row([*values(1)[:6], b"\xfe" + b"\xff" * 8, b"\0"]), "bytes are needed"),
        (row([values(1)[0], sized(b"1.2"), *values(1)[2:]]), "'1.2' is not a DECIMAL of this column"),
        (row([*values(1)[:2], b"\5abcde", *values(1)[3:]]), "a date of 5 bytes"),
        (row([*values(1)[:5], sized(bytes(9)), *values(1)[6:]]), "a BIT of 9 bytes"),
        (b"\0", "bytes are needed"),
        (b"", "came out of turn"),
        (b"\1", "came out of turn"),
        (b"\xfe\0\0\x08\0", "more than one result"),
    ],
)
def test_rows_that_are_none(payload: bytes, told: str) -> None:
    with pytest.raises(CorruptError, match=told) as raised:
        read(answer(COLUMNS, [ROWS[0], payload]))
    assert "read the table again" in raised.value.fix


def test_a_packet_that_is_lost() -> None:
    whole = packets([b"\1", b"\2"])
    with pytest.raises(CorruptError, match="packet 2 came behind packet 0"):
        read(whole[5:])


def test_another_number_of_columns() -> None:
    with pytest.raises(CorruptError, match="7 columns came where 8 were asked for"):
        read(answer(COLUMNS[:7], []))


def test_a_column_of_another_type() -> None:
    found, reader = read(answer([Column("id", STRING, UTF8MB4), *COLUMNS[1:]], ROWS))
    assert found == []
    assert reader.unfit == "column id does not hold values of Int32 any more"


def test_an_error_of_the_server_ends_the_rows() -> None:
    found, reader = read(answer(COLUMNS, ROWS[:5], error(1317, "Query execution was interrupted")))
    assert found == EXPECTED[:5]
    assert reader.error == (1317, "Query execution was interrupted")
    found, reader = read(packets([error(1146, "Table 'shop.orders' doesn't exist")]))
    assert reader.error == (1146, "Table 'shop.orders' doesn't exist")


def test_broken_text_has_its_bytes_beside_it() -> None:
    broken = row([*values(1)[:6], sized(b"a\xff"), *values(1)[7:]])
    [line], _ = read(answer(COLUMNS, [broken]))
    assert line[6] == "a\ufffd"  # type: ignore[index]
    assert line[8] == '{"note": "0x61ff"}'  # type: ignore[index]


def test_the_side_text_is_the_last_column() -> None:
    reader = RowsReader(TABLE)
    reader.feed(memoryview(WHOLE), rows=3, size_bytes=1 << 20)
    assert reader.take().schema.names == [*(column.name for column in TABLE.columns), RAW]
