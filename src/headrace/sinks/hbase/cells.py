"""Values as bytes in cells: one table for all types of columns.

::

    type                          values: text (the default)             values: binary (what Bytes.toBytes makes of it)
    boolean                       true, false                            1 byte, FF or 00
    int8, int16, int32, int64     digits                                 1, 2, 4, 8 bytes, big endian
    uint8, uint16, uint32         digits                                 as the next wider signed integer: 2, 4, 8 bytes
    uint64                        digits                                 as a decimal without digits behind the point
    float, double                 digits, shortest that tell it apart    4, 8 bytes of IEEE 754
    decimal                       digits, never with an exponent         4 bytes of scale, then the digits as a number, two's complement
    text                          UTF-8                                  UTF-8
    binary                        as it is                               as it is
    date                          2024-02-29                             2024-02-29
    timestamp                     2024-02-29 23:59:59.000001 (UTC)       the same
    time                          [-]838:59:59.000000                    the same

    NULL                          no bytes at all, of any type

A text or binary of nothing but n bytes 00 is written with n + 1 of them: so the empty one is the byte 00, and is not NULL. NULL is a cell and
not a missing one, because only a cell hides the older one for ever: a delete marker does it until the next major compaction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.ums.values import Array, from_values, is_bytes, is_text, to_text

RAW = "raw"
_NULL = b""
_ZERO = b"\0"
_INTEGER_BYTES: dict[pa.DataType, int] = {
    pa.int8(): 1,
    pa.int16(): 2,
    pa.uint8(): 2,
    pa.int32(): 4,
    pa.uint16(): 4,
    pa.int64(): 8,
    pa.uint32(): 8,
}
_SCALE = struct.Struct(">i")


def kind_of(type_: pa.DataType, values: str) -> str:
    """How the cells of a type are to be read; two types of one kind read each other's."""
    if values == "text":
        return RAW
    if type_ in _INTEGER_BYTES:
        return "integer"
    if pa.types.is_decimal(type_) or type_ == pa.uint64():
        return "decimal"
    if pa.types.is_floating(type_):
        return "float"
    return "boolean" if pa.types.is_boolean(type_) else RAW


def to_cells(column: Array, kind: str) -> list[bytes]:
    """The cells of a column, NULL included."""
    if kind != RAW:
        write = _writer(kind, column.type)
        return [_NULL if value is None else write(value) for value in column.to_pylist()]
    if not is_text(column.type) and not is_bytes(column.type):
        texts: list[Any] = to_text(column).cast(pa.binary()).fill_null(_NULL).to_pylist()
        return texts
    raw: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return [_NULL if value is None else value if value.strip(_ZERO) else value + _ZERO for value in raw]


def from_cells(cells: Sequence[bytes | None], kind: str, type_: pa.DataType) -> Array:
    """The column that cells of a kind hold (None: there is no cell); ValueError or ArithmeticError when one of them cannot be such a value."""
    read = _READERS[kind]
    try:
        values = [None if not cell else read(cell) for cell in cells]
    except struct.error as error:
        raise ValueError(str(error)) from error
    if kind == RAW and not is_bytes(type_):
        values = [None if value is None else value.decode() for value in values]
    return from_values(values, type_)


def _writer(kind: str, type_: pa.DataType) -> Callable[[Any], bytes]:
    if kind == "boolean":
        return lambda value: b"\xff" if value else b"\0"
    if kind == "float":
        letter = ">f" if type_ == pa.float32() else ">d"
        return lambda value: struct.pack(letter, value)
    if kind == "decimal":
        return _decimal_bytes
    width = _INTEGER_BYTES[type_]

    def integer(value: int) -> bytes:
        return value.to_bytes(width, "big", signed=True)

    return integer


def _decimal_bytes(value: Decimal | int) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    number: int = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(exponent, 0)
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1  # as BigInteger.toByteArray
    return _SCALE.pack(max(-exponent, 0)) + number.to_bytes(length, "big", signed=True)


def _read_decimal(cell: bytes) -> Decimal:
    [scale] = _SCALE.unpack_from(cell)
    return Decimal(f"{int.from_bytes(cell[4:], 'big', signed=True)}E{-scale}")


def _read_float(cell: bytes) -> float:
    value: float = struct.unpack(">f" if len(cell) == 4 else ">d", cell)[0]
    return value


_READERS: dict[str, Callable[[bytes], Any]] = {
    RAW: lambda cell: cell if cell.strip(_ZERO) else cell[:-1],
    "boolean": lambda cell: cell != b"\0",
    "integer": lambda cell: int.from_bytes(cell, "big", signed=True),
    "float": _read_float,
    "decimal": _read_decimal,
}
