"""Fields of lines, which are texts, as columns of a type."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.lines.fields import Array, call, holds_for_any, is_true, texts_of
from headrace.capture.lines.times import TimeFormat, each_cast
from headrace.codec.foreign.mysql_types import decimal_type
from headrace.ums.schema import Column

_ISO = TimeFormat("iso")
_KINDS: dict[str, pa.DataType] = {
    "text": pa.utf8(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_WIDEST_DECIMAL = 76


def column_of(name: str, kind: str) -> Column:
    """A column of a type as flow files call it; ValueError when there is none of that name."""
    if kind in _KINDS:
        return Column(name, _KINDS[kind], "timestamp(6)" if kind == "timestamp" else kind)
    found = _DECIMAL.fullmatch(kind)
    if found is None or not 0 < int(found[1]) <= _WIDEST_DECIMAL or int(found[2]) > int(found[1]):
        raise ValueError(f"there is no type '{kind}'; use one of {', '.join(_KINDS)}, decimal(p,s)")
    return Column(name, decimal_type(int(found[1]), int(found[2])), kind)


def typed(texts: Array, column: Column, nulls: Sequence[str], now_us: int) -> tuple[Array, Array | None]:
    """Texts as values of a column, and which of them are none (None when all are), null there.

    `nulls`: texts that mean that there is no value, except in columns of text.
    """
    if pa.types.is_string(column.type):
        return texts, None
    is_null = call("is_in", texts, options=pc.SetLookupOptions(texts_of(nulls)))
    if holds_for_any(is_null):
        texts = call("if_else", is_null, pa.scalar(None, pa.utf8()), texts)
    if pa.types.is_timestamp(column.type):
        values = _ISO.micros(texts, now_us).view(column.type)
    else:
        values = each_cast(texts, column.type)
    if values.null_count == texts.null_count:
        return values, None
    return values, is_true(call("and", call("is_null", values), call("is_valid", texts)))
