"""How columns stand in ClickHouse: types, and values on their way there and back. Pure; whole columns at a time.

| column | type in ClickHouse |
|---|---|
| integers, float, double, boolean, decimal | of the same width and sign; in a key integers have 64 bits |
| text | String |
| binary | String, called `Binary` here |
| date | Date32 |
| datetime and timestamp | DateTime64(6, 'UTC') |
| time | String: ``-838:59:59.000000`` |

Columns that are not in the key are Nullable.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from headrace.errors import DataError
from headrace.sinks.database.dialect import StoredType
from headrace.sinks.database.widening import common, takes
from headrace.ums.schema import Column
from headrace.ums.values import Array, from_values, is_bytes, is_text, to_text

_DECIMAL = re.compile(r"Decimal\((\d+), (\d+)\)")
TIME = "DateTime64(6, 'UTC')"
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str, pa.DataType], ...] = (
    (pa.types.is_boolean, "Bool", pa.bool_()),
    (pa.types.is_int8, "Int8", pa.int8()),
    (pa.types.is_uint8, "UInt8", pa.uint8()),
    (pa.types.is_int16, "Int16", pa.int16()),
    (pa.types.is_uint16, "UInt16", pa.uint16()),
    (pa.types.is_int32, "Int32", pa.int32()),
    (pa.types.is_uint32, "UInt32", pa.uint32()),
    (pa.types.is_int64, "Int64", pa.int64()),
    (pa.types.is_uint64, "UInt64", pa.uint64()),
    (pa.types.is_float32, "Float32", pa.float32()),
    (pa.types.is_float64, "Float64", pa.float64()),
    (is_bytes, "Binary", pa.binary()),
    (pa.types.is_date32, "Date32", pa.date32()),
    (pa.types.is_timestamp, TIME, pa.timestamp("us", "UTC")),
    (is_text, "String", pa.utf8()),
    (pa.types.is_duration, "String", pa.utf8()),
)
_ARROW = {kind: arrow for _, kind, arrow in _KINDS}


def kind_of(column: Column, held: str | None, *, in_key: bool) -> str | None:
    """The type of a column, which also holds what one of the type `held` has; None when there is none."""
    if in_key and pa.types.is_integer(column.type):
        return "UInt64" if pa.types.is_uint64(column.type) else "Int64"
    kind = _kind(column.type)
    if held in (None, kind):
        return kind
    has, wants = _held(held), _held(kind)
    if takes(StoredType(has), StoredType(wants)):
        return held
    if takes(StoredType(wants), StoredType(has)):
        return kind
    both = common(has, wants)
    return None if both is None else _kind(both)


def declared(kind: str, *, in_key: bool = False) -> str:
    """The type as ClickHouse has it."""
    plain = "String" if kind == "Binary" else kind
    return plain if in_key else f"Nullable({plain})"


def array_of(column: Array, kind: str) -> Array:
    """A column as it is inserted into one of a type; DataError when a value does not fit, into a key's for instance."""
    if kind == "String":
        return column if is_text(column.type) else to_text(column)
    try:
        if pa.types.is_timestamp(column.type) and kind == TIME:
            return column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64()).view(_ARROW[TIME])
        fitting: Array = column.cast(_held(kind))
    except pa.ArrowInvalid as error:
        raise DataError(
            f"a value does not fit a ClickHouse column of type {kind}: {error}",
            fix="correct the value at the source, or give the flow a new place in the target and load the table again",
        ) from error
    return fitting


def column_of(found: Array, column: Column) -> Array:
    """A column of what was selected; ValueError when a value is not of its type."""
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(found.type):
        return found.view(pa.int64()).view(pa.timestamp("us", column.type.tz)).cast(column.type)
    if is_bytes(found.type) and not is_bytes(column.type):
        found = found.cast(pa.utf8())
    if is_text(found.type) and not is_text(column.type):
        return from_values(found.to_pylist(), column.type)
    if is_text(column.type) and not is_text(found.type):
        return to_text(found)
    wide: Array = found.cast(column.type)
    return wide


def default(text: str, kind: str) -> Array:
    """A default (ums.values.to_text), as a column of one row."""
    if kind == "Binary":
        return pa.array([bytes.fromhex(text)], pa.binary())
    return from_values([text], _held(kind))


def literal(text: str | None, kind: str) -> str:
    """SQL for a default (ums.values.to_text)."""
    if text is None:
        return "NULL"
    return f"unhex('{text}')" if kind == "Binary" else f"CAST({quoted_text(text)} AS {declared(kind)})"


def converted(name: str, held: str, kind: str) -> str:
    """SQL for the value of a column of the type `held` in one of the wider type `kind`."""
    if kind != "String":
        return f"CAST({name} AS {declared(kind)})"
    scale = _DECIMAL.fullmatch(held)
    return f"toDecimalString({name}, {scale[2]})" if scale else f"toString({name})"


def quoted_text(text: str) -> str:
    """A text as SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"Decimal({kind.precision}, {kind.scale})"
    return next(name for matches, name, _ in _KINDS if matches(kind))


def _held(kind: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return _ARROW[kind]
    precision, scale = int(decimal[1]), int(decimal[2])
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
