"""Columns between Arrow and text: to text that every database reads, and back from text and from what drivers return.

Whole columns at a time; dates and times go as text, because Arrow's reach (years below 1 and above 9999) is wider than Python's.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError

Array: TypeAlias = "pa.Array[Any]"
Values = Sequence[Any]
_Writer: TypeAlias = Callable[[Array], Array]
_Reader: TypeAlias = Callable[[Values, pa.DataType], Array]

_US_PER_SECOND = 1_000_000
_DECIMAL = Context(prec=76)


def to_text(column: Array) -> Array:
    """The column as text: numbers in digits, ``YYYY-MM-DD HH:MM:SS.ffffff`` (in UTC), ``[-]HH:MM:SS.ffffff``, binary in hex.

    ConfigError when it is of a type that no source has (`has_text`).
    """
    write, _ = _both_ways(column.type)
    return write(column)


def from_values(values: Values, to: pa.DataType) -> Array:
    """Values as drivers return them (numbers, text, days or microseconds since 1970) as a column of that type.

    ValueError (pyarrow's errors are such) when a value does not fit the type; ConfigError when no source has such a type.
    """
    _, read = _both_ways(to)
    return read(values, to)


def from_column(column: Array, to: pa.DataType) -> Array:
    """A column as a store has it, as that type: whole where Arrow casts such types exactly, else value by value (`from_values`)."""
    if column.type == to:
        return column
    if pa.types.is_floating(column.type) and pa.types.is_floating(to):
        return column.cast(to, safe=False)
    if any(matches(column.type) and matches(to) for matches, _, _ in _KINDS) or (
        is_text(column.type) and pa.types.is_decimal(to)
    ):
        try:
            return column.cast(to)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # more digits than the type has, which are rounded
            pass
    if pa.types.is_timestamp(column.type):
        column = micros(column)
    return from_values(column.to_pylist(), to)


def from_text(text: str, to: pa.DataType) -> Array | None:
    """One value written as text (binary in base64), as a column of one row; None when it is not of that type."""
    try:
        return from_values([base64.b64decode(text, validate=True) if is_bytes(to) else text], to)
    except (ValueError, ArithmeticError):
        return None


def cast_or_null(column: Array, to: pa.DataType) -> Array:
    """The column as another type; null where a value does not fit it."""
    try:
        whole: Array = column.cast(to)
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
    ):  # Arrow does not tell which value, or casts no such types at all
        return pa.array([_cast_or_null(value, to) for value in column], to)
    return whole


def _cast_or_null(value: pa.Scalar[Any], to: pa.DataType) -> pa.Scalar[Any]:
    try:
        return value.cast(to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.scalar(None, to)


def is_text(kind: pa.DataType) -> bool:
    """Text, short or large."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Binary, short or large."""
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def has_text(kind: pa.DataType) -> bool:
    """Whether columns of a type can be written as text."""
    return any(matches(kind) for matches, _, _ in _KINDS)


def micros(column: Array) -> Array:
    """A duration or timestamp as microseconds."""
    kind = pa.duration("us") if pa.types.is_duration(column.type) else pa.timestamp("us", column.type.tz)
    return column.cast(kind).view(pa.int64())


def join(*parts: Array | str | bytes, separator: str | bytes = "") -> Array:
    """Columns and constants, all of text or all binary, joined row by row; null where one of them is null."""
    inputs = [*(_constant(part) if isinstance(part, str | bytes) else part for part in parts), _constant(separator)]
    joined: Array = pc.call_function("binary_join_element_wise", inputs)
    return joined


@lru_cache(maxsize=256)
def _constant(part: str | bytes) -> pa.Scalar[Any]:
    return pa.scalar(part)  # 0.1 ms each, because pyarrow looks for dateutil each time


@lru_cache(maxsize=256)
def _both_ways(kind: pa.DataType) -> tuple[_Writer, _Reader]:
    for matches, write, read in _KINDS:
        if matches(kind):
            return write, read
    raise ConfigError(
        f"there is a column of type {kind}, which cannot be written as text",
        fix="leave the column out with `columns: {drop: [...]}` in the flow",
    )


def _as_it_is(column: Array) -> Array:
    return column.cast(pa.utf8())


def _decimal_text(column: Array) -> Array:
    if column.type.scale <= 6:  # never in scientific notation
        return column.cast(pa.utf8())
    return pa.array([None if v is None else format(v, "f") for v in column.to_pylist()], pa.utf8())


def _timestamp_text(column: Array) -> Array:
    return micros(column).view(pa.timestamp("us")).cast(pa.utf8())


def _duration_text(column: Array) -> Array:
    return pa.array([None if us is None else _clock(us) for us in micros(column).to_pylist()], pa.utf8())


def _binary_text(column: Array) -> Array:
    return pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.utf8())


def _clock(us: int) -> str:
    seconds, fraction = divmod(abs(us), _US_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{'-' if us < 0 else ''}{hour:02}:{minute:02}:{second:02}.{fraction:06}"


def _unclock(text: str) -> int:
    hour, minute, second = text.lstrip("-").split(":")
    whole, _, fraction = second.partition(".")
    us = (int(hour) * 3600 + int(minute) * 60 + int(whole)) * _US_PER_SECOND + int(fraction.ljust(6, "0") or 0)
    return -us if text.startswith("-") else us


def _read_bools(values: Values, to: pa.DataType) -> Array:
    return pa.array([None if v is None else v in (True, 1, "1", "true") for v in values], to)


def _read_integers(values: Values, to: pa.DataType) -> Array:
    return pa.array([None if v is None else _integer(v) for v in values], to)


def _integer(value: int | str | Decimal) -> int:
    if isinstance(value, int):
        return value
    number = Decimal(value)
    if number != int(number):
        raise ValueError(f"{value} is not whole")
    return int(number)


def _read_floats(values: Values, to: pa.DataType) -> Array:
    return pa.array([None if v is None else float(v) for v in values], pa.float64()).cast(to, safe=False)


def _read_decimals(values: Values, to: pa.DataType) -> Array:
    unit = Decimal(1).scaleb(-to.scale)  # type: ignore[attr-defined]
    return pa.array([None if v is None else Decimal(v).quantize(unit, context=_DECIMAL) for v in values], to)


def _read_dates(values: Values, to: pa.DataType) -> Array:
    if any(isinstance(v, str) for v in values):
        return pa.array(values, pa.utf8()).cast(to)
    return pa.array(values, pa.int32()).view(pa.date32()).cast(to)


def _read_timestamps(values: Values, to: pa.DataType) -> Array:
    in_micros = pa.timestamp("us", to.tz)  # type: ignore[call-overload,attr-defined]
    if any(isinstance(v, str) for v in values):
        naive = pa.array([None if v is None else v.removesuffix("Z") for v in values], pa.utf8()).cast(
            pa.timestamp("us")
        )
    else:
        naive = pa.array(values, pa.int64()).view(pa.timestamp("us"))
    return naive.view(pa.int64()).view(in_micros).cast(to)


def _read_durations(values: Values, to: pa.DataType) -> Array:
    us = [_unclock(v) if isinstance(v, str) else v for v in values]
    return pa.array(us, pa.int64()).view(pa.duration("us")).cast(to)


def _read_text(values: Values, to: pa.DataType) -> Array:
    return pa.array([v if v is None or isinstance(v, str) else str(v) for v in values], to)


def _read_binary(values: Values, to: pa.DataType) -> Array:
    return pa.array(values, to)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], _Writer, _Reader], ...] = (
    (pa.types.is_boolean, _as_it_is, _read_bools),
    (pa.types.is_integer, _as_it_is, _read_integers),
    (pa.types.is_floating, _as_it_is, _read_floats),
    (pa.types.is_decimal, _decimal_text, _read_decimals),
    (is_text, _as_it_is, _read_text),
    (is_bytes, _binary_text, _read_binary),
    (pa.types.is_date32, _as_it_is, _read_dates),
    (pa.types.is_timestamp, _timestamp_text, _read_timestamps),
    (pa.types.is_duration, _duration_text, _read_durations),
)


def any_is_nan(column: Array) -> bool:
    """True when a float column has a value that is not a number."""
    return bool(pc.any(pc.is_nan(column)).as_py())
