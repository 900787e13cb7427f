"""Columns on both sides of the engine: what it can read, and what a computed column is called and typed in a target."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.ums.schema import Column
from headrace.ums.values import Array

_WIDEST_DECIMAL = 38
_MICROS = pa.duration("us")
_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "tinyint unsigned",
    pa.uint16(): "smallint unsigned",
    pa.uint32(): "int unsigned",
    pa.uint64(): "bigint unsigned",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.utf8(): "text",
    pa.binary(): "blob",
    pa.date32(): "date",
    pa.timestamp("us"): "datetime(6)",
    pa.timestamp("us", "UTC"): "timestamp(6)",
    _MICROS: "time(6)",
}


def _micros(kind: pa.DataType) -> pa.DataType:
    assert isinstance(kind, pa.TimestampType)
    return pa.timestamp("us", None if kind.tz is None else "UTC")


_AS_OTHERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (pa.types.is_dictionary, lambda kind: pa.utf8()),
    (pa.types.is_timestamp, _micros),
    (pa.types.is_time64, lambda kind: _MICROS),
)
"""Types of the engine that headrace has under another one."""


def readable(column: Array) -> Array:
    """A column as the engine can read it: a decimal of more digits than it has is text there."""
    kind = column.type
    if pa.types.is_decimal(kind) and kind.precision > _WIDEST_DECIMAL:
        return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.utf8())
    return column


def computed(name: str, kind: pa.DataType) -> Column:
    """The column that takes values of a type of the engine; ConfigError when there is none."""
    kind = next((other(kind) for matches, other in _AS_OTHERS if matches(kind)), kind)
    if pa.types.is_decimal(kind):
        return Column(name, kind, f"decimal({kind.precision},{kind.scale})")
    if kind not in _NAMES:
        raise ConfigError(
            f"the SQL computes the column {name} of type {kind}, which targets do not store",
            fix=f"make it a text, to_json({name})::VARCHAR, or a number (an interval: epoch({name}))",
        )
    return Column(name, kind, _NAMES[kind])


def values(column: pa.ChunkedArray[Any], kind: pa.DataType) -> Array:
    """What the engine has computed as a column of that type."""
    found: Array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_time64(found.type):
        return found.view(pa.int64()).view(kind)
    return found if found.type == kind else found.cast(kind)


def answers(found: Sequence[object]) -> Array:
    """Values that a store has handed out as a column; what Arrow has no type for is text, documents are JSON."""
    plain = [
        json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else value
        for value in found
    ]
    try:
        column: Array = pa.array(plain)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        column = pa.array([None if value is None else str(value) for value in plain], pa.utf8())
    return column.cast(pa.utf8()) if pa.types.is_null(column.type) else column
