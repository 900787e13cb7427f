"""Types that Spark has, for those that headrace has: unsigned numbers become the next wider signed ones, decimals of more than 38 digits text."""

from __future__ import annotations

import pyarrow as pa

_SIGNED: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def spark_type(type_: pa.DataType) -> pa.DataType:
    """The type of a column in Spark."""
    return pa.utf8() if pa.types.is_decimal256(type_) else _SIGNED.get(type_, type_)
