"""How columns stand in Cassandra: types, and values on their way there and back. Pure; whole columns at a time.

| column | type in Cassandra |
|---|---|
| integers | bigint; unsigned of 64 bits: varint |
| float, double | double |
| decimal | decimal |
| boolean | boolean |
| date | date |
| datetime and timestamp of up to 3 digits of a second | timestamp |
| datetime and timestamp of more, time, text | text: ``2024-02-29 23:59:59.000001`` (in UTC), ``-838:59:59.000000`` |
| binary | blob |

A type of Cassandra never changes, so those are the widest of their kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.errors import DataError
from headrace.ums.schema import Column
from headrace.ums.values import Array, from_values, is_bytes, is_text, micros, to_text

_MILLISECONDS = re.compile(r"(datetime|timestamp)(\([0-3]\))?", re.IGNORECASE)
_DAYS_BEFORE_1970 = 1 << 31
"""Where dates begin on the wire."""
_NUMBERS = ("bigint", "varint", "decimal", "double")


def kind_of(column: Column, held: str | None) -> str | None:
    """The type of a column, which also holds what one of the type `held` has; None when there is none."""
    kind = _kind(column)
    if held in (None, kind):
        return kind
    if "blob" in (held, kind):
        return None
    if held in _NUMBERS and kind in _NUMBERS:
        return "varint" if {held, kind} == {"bigint", "varint"} else "decimal"
    return "text"


def _kind(column: Column) -> str:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return "timestamp" if _MILLISECONDS.fullmatch(column.source_type) else "text"
    return next(name for matches, name in _KINDS if matches(kind))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_uint64, "varint"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double"),
    (pa.types.is_decimal, "decimal"),
    (is_bytes, "blob"),
    (pa.types.is_date32, "date"),
    (pa.types.is_duration, "text"),
    (is_text, "text"),
)


def values_of(column: Array, kind: str) -> Sequence[Any]:
    """Values as the driver takes them for a type."""
    if kind == "text" and not is_text(column.type):
        return to_text(column).to_pylist()
    if kind == "date":
        return [None if day is None else day + _DAYS_BEFORE_1970 for day in column.view(pa.int32()).to_pylist()]
    if kind == "timestamp":
        return [None if us is None else _milliseconds(us) for us in micros(column).to_pylist()]
    if kind == "decimal":
        return [None if text is None else Decimal(text) for text in to_text(column).to_pylist()]
    return column.to_pylist()


def _milliseconds(us: int) -> int:
    ms, rest = divmod(us, 1000)
    if rest:
        raise DataError(
            f"a time has {us % 1_000_000} microseconds, and its column is said to have milliseconds only",
            fix="correct the type of the column where the change comes from, or leave the column out with `columns: {drop: […]}`",
        )
    return ms


def selected(name: str, kind: str) -> str:
    """How a column is selected: times as bytes, because the driver's go from year 1 to 9999 only."""
    return f"timestampAsBlob({name})" if kind == "timestamp" else name


def column_of(found: Sequence[Any], column: Column, kind: str) -> Array:
    """A column of what was selected; ValueError when a value is not of its type."""
    return from_values([None if value is None else _read(value, kind) for value in found], column.type)


def _read(value: Any, kind: str) -> Any:
    if kind == "timestamp":
        return int.from_bytes(value, "big", signed=True) * 1000
    return value.days_from_epoch if kind == "date" else value


def converted(value: Any, held: str, kind: str) -> Any:
    """A value that was selected from a column of the type `held`, for one of the wider type `kind`."""
    if value is None or held == kind:
        return _again(value, held)
    if kind == "varint":
        return value
    if kind == "decimal":
        return Decimal(repr(value)) if held == "double" else Decimal(value)
    if held == "boolean":
        return "true" if value else "false"
    if held in ("timestamp", "date"):
        to = pa.timestamp("us") if held == "timestamp" else pa.date32()
        return to_text(from_values([_read(value, held)], to))[0].as_py()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _again(value: Any, kind: str) -> Any:
    if value is None or kind not in ("timestamp", "date"):
        return value
    return (
        int.from_bytes(value, "big", signed=True) if kind == "timestamp" else value.days_from_epoch + _DAYS_BEFORE_1970
    )


def default(text: str | None, kind: str, type_: str) -> Any:
    """A default (ums.values.to_text) as the driver takes it; `type_` is that of its column in Arrow."""
    if text is None or kind == "text":
        return text
    if kind == "blob":
        return bytes.fromhex(text)
    if kind == "boolean":
        return text == "true"
    if kind in ("timestamp", "date"):
        to = pa.date32() if type_.startswith("date") else pa.timestamp("us")
        return values_of(from_values([text], to), kind)[0]
    return {"bigint": int, "varint": int, "double": float, "decimal": Decimal}[kind](text)
