"""The one table of types between Arrow and UMS (docs/formats/ums.md shows it).

UMS has few types, after Hive's. The headrace dialect names the exact type beside them (`exact`), so that a reader gets back what was
written; a message without it (the original DBus writes none) is read by `default_type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace.errors import DataError

INT, LONG, FLOAT, DOUBLE, DECIMAL = "int", "long", "float", "double", "decimal"
STRING, BOOLEAN, DATE, DATETIME, BINARY = "string", "boolean", "date", "datetime", "binary"

_OFFSET = re.compile(r"[+-]\d{2}:?\d{2}")


def is_zone(name: str) -> bool:
    """Whether there is a time zone of this name."""
    try:
        ZoneInfo(name)
    except (OSError, KeyError, ValueError):
        return False
    return True


def _timestamp(unit: Any, zone: str | None) -> pa.DataType:
    if zone is not None and not _OFFSET.fullmatch(zone) and not is_zone(zone):
        raise ValueError(f"there is no time zone '{zone}'")
    return pa.timestamp(unit, zone)


_PLAIN: tuple[tuple[str, pa.DataType, str], ...] = (
    ("bool", pa.bool_(), BOOLEAN),
    ("int8", pa.int8(), INT),
    ("int16", pa.int16(), INT),
    ("int32", pa.int32(), INT),
    ("int64", pa.int64(), LONG),
    ("uint8", pa.uint8(), INT),
    ("uint16", pa.uint16(), INT),
    ("uint32", pa.uint32(), LONG),
    ("uint64", pa.uint64(), DECIMAL),  # a long of the original ends at 2^63 - 1
    ("float32", pa.float32(), FLOAT),
    ("float64", pa.float64(), DOUBLE),
    ("string", pa.utf8(), STRING),
    ("large_string", pa.large_utf8(), STRING),
    ("binary", pa.binary(), BINARY),
    ("large_binary", pa.large_binary(), BINARY),
    ("date32", pa.date32(), DATE),
    ("duration[us]", pa.duration("us"), STRING),
)
"""Exact name, Arrow type, UMS type. Decimals and timestamps, which have parameters, are in `_exact_name` and `_PARAMETRIC`."""

_PARAMETRIC: tuple[tuple[re.Pattern[str], Callable[..., pa.DataType]], ...] = (
    (re.compile(r"decimal128\((\d{1,2}),(-?\d{1,2})\)"), lambda p, s: pa.decimal128(int(p), int(s))),
    (re.compile(r"decimal256\((\d{1,2}),(-?\d{1,2})\)"), lambda p, s: pa.decimal256(int(p), int(s))),
    (re.compile(r"timestamp\[(s|ms|us|ns)(?:,([\w/+:-]{1,64}))?\]"), _timestamp),
)

_DEFAULTS: dict[str, pa.DataType] = {
    STRING: pa.utf8(),
    INT: pa.int32(),
    LONG: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    DECIMAL: pa.decimal128(38, 18),  # UMS does not say the scale; this is what Spark takes
    BOOLEAN: pa.bool_(),
    DATE: pa.date32(),
    DATETIME: pa.timestamp("us"),
    BINARY: pa.binary(),
    "raw": pa.binary(),
}
_AS_JSON = {"jsonobject", "jsonarray", "tuple"}
"""Types whose values are kept as the text of their JSON, as are all that end in ``array``."""

_BITS = re.compile(r"bit\((\d+)\)")
_TEMPORAL = re.compile(r"(?:datetime|timestamp|time)(?:\((\d)\))?")
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@lru_cache(maxsize=1024)
def exact_name(kind: pa.DataType) -> str:
    """The name by which `exact_type` gives the type back; DataError for a type that UMS has no form for."""
    for name, plain, _ in _PLAIN:
        if kind == plain:
            return name
    if isinstance(kind, (pa.Decimal128Type, pa.Decimal256Type)):
        return f"decimal{kind.bit_width}({kind.precision},{kind.scale})"
    if isinstance(kind, pa.TimestampType):
        return f"timestamp[{kind.unit},{kind.tz}]" if kind.tz else f"timestamp[{kind.unit}]"
    raise DataError(
        f"UMS has no type for Arrow's {kind}", fix="leave the column out of the flow, or turn it into text before"
    )


@lru_cache(maxsize=1024)
def exact_type(name: str) -> pa.DataType:
    """The inverse of `exact_name`; ValueError when there is no such type."""
    for plain_name, plain, _ in _PLAIN:
        if name == plain_name:
            return plain
    for pattern, make in _PARAMETRIC:
        if found := pattern.fullmatch(name):
            return make(*found.groups())
    raise ValueError(f"there is no exact type '{name[:40]}'")


def ums_type(kind: pa.DataType, source_type: str) -> str:
    """What UMS calls a column's type. `source_type` decides for BIT(n), which Arrow holds in 64 bits whatever n is."""
    if bits := _BITS.fullmatch(source_type):
        width = int(bits[1])
        return INT if width < 32 else LONG if width < 64 else DECIMAL
    for _, plain, name in _PLAIN:
        if kind == plain:
            return name
    return DECIMAL if exact_name(kind).startswith("decimal") else DATETIME


def default_type(name: str) -> pa.DataType:
    """The Arrow type of a UMS type without `exact`; ValueError when UMS has no such type."""
    found = _DEFAULTS.get(name)
    if found is not None:
        return found
    if name in _AS_JSON or name.endswith("array"):
        return pa.utf8()
    raise ValueError(f"UMS has no type '{name[:40]}'")


def fraction_digits(kind: pa.DataType, source_type: str) -> int:
    """Digits of a second that a column declares: those of ``datetime(3)``, else all that its unit has."""
    if not isinstance(kind, (pa.TimestampType, pa.DurationType)):
        return 0
    declared = _TEMPORAL.fullmatch(source_type)
    return int(declared[1] or 0) if declared else _UNIT_DIGITS[kind.unit]
