"""Which stored type takes the values of another, and which takes those of both."""

from __future__ import annotations

import math

import pyarrow as pa

from headrace.sinks.database.dialect import StoredType

_ARROW_DIGITS = 76
_LONGEST_TEXT = 27
"""Characters of a float, a date or a time at most."""


def takes(wide: StoredType, narrow: StoredType) -> bool:
    """True when every value of `narrow` can be stored in `wide` unchanged; text takes every value but binary."""
    a, b = wide.type, narrow.type
    if wide.length is not None and _length(narrow) > wide.length:
        return False
    if a == b or pa.types.is_string(a):
        return a == b or not pa.types.is_binary(b)
    if pa.types.is_timestamp(a):
        return pa.types.is_date(b) and a.tz is None
    if pa.types.is_floating(a):
        return _float_takes(a, b)
    outer, inner = _digits(a), _digits(b)
    if outer is None or inner is None or outer[0] < inner[0] or outer[1] < inner[1]:
        return False
    return not (pa.types.is_integer(a) and pa.types.is_integer(b)) or _contains(a, b)


def common(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """A type that takes the values of both, when there is a sensible one."""
    digits = [_digits(kind) for kind in (a, b)]
    if None not in digits:
        whole, fraction = (max(parts) for parts in zip(*filter(None, digits), strict=True))
        return pa.decimal256(whole + fraction, fraction) if whole + fraction <= _ARROW_DIGITS else None
    one_is_text = pa.types.is_string(a) or pa.types.is_string(b)
    return pa.utf8() if one_is_text and not (pa.types.is_binary(a) or pa.types.is_binary(b)) else None


def _length(kind: StoredType) -> float:
    """How long the values are at most, written as text."""
    if pa.types.is_string(kind.type) or pa.types.is_binary(kind.type):
        return math.inf if kind.length is None else kind.length
    digits = _digits(kind.type)
    return _LONGEST_TEXT if digits is None else sum(digits) + len("-0.")


def _float_takes(a: pa.DataType, b: pa.DataType) -> bool:
    if pa.types.is_floating(b):
        return a.bit_width >= b.bit_width
    return pa.types.is_boolean(b) or (pa.types.is_integer(b) and b.bit_width <= a.bit_width // 2)


def _digits(kind: pa.DataType) -> tuple[int, int] | None:
    """How many digits a number has at most before and after its point."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    if pa.types.is_integer(kind):
        return len(str(_range(kind)[1])), 0
    return (1, 0) if pa.types.is_boolean(kind) else None


def _contains(a: pa.DataType, b: pa.DataType) -> bool:
    return _range(a)[0] <= _range(b)[0] and _range(b)[1] <= _range(a)[1]


def _range(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, 2**bits - 1)
