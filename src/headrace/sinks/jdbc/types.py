"""Types of columns: what headrace asks for, the database's own names for it, and how values are bound.

A database says with DatabaseMetaData.getTypeInfo which types it has. Of the types that a column could have the first is taken that the
database has in that size, so the table of all types is the same for every database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DataError
from headrace.sinks.database.dialect import StoredType, source_length, unsupported
from headrace.sinks.jdbc.binding import Binding
from headrace.sinks.jdbc.codes import (
    BIGINT,
    BIT,
    BLOB,
    BOOLEAN,
    CLOB,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONGVARBINARY,
    LONGVARCHAR,
    NUMERIC,
    REAL,
    SMALLINT,
    TIMESTAMP,
    VARBINARY,
    VARCHAR,
)
from headrace.sinks.jdbc.jvm import Java
from headrace.sinks.jdbc.products import Product, TypeInfo
from headrace.ums.schema import Column
from headrace.ums.values import Array, to_text

_KEY_LENGTH = 255
_ARROW_DIGITS = 76
_LONGEST_DURATION = len("-838:59:59.999999") + 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """A type that a column could have: `size` in characters, bytes or digits where the type has one."""

    code: int
    size: int | None = None
    scale: int | None = None


def _one_of(*codes: int) -> Callable[[Column], list[Wanted]]:
    return lambda column: [Wanted(code) for code in codes]


def _whole(digits: int, *codes: int) -> Callable[[Column], list[Wanted]]:
    return lambda column: [*(Wanted(code) for code in codes), Wanted(DECIMAL, digits, 0), Wanted(NUMERIC, digits, 0)]


def _exact(column: Column) -> list[Wanted]:
    digits, scale = column.type.precision, column.type.scale  # type: ignore[attr-defined]
    as_text = Wanted(VARCHAR, digits + len("-0."))
    return [Wanted(DECIMAL, digits, scale), Wanted(NUMERIC, digits, scale), as_text]


def _text(column: Column) -> list[Wanted]:
    length = source_length(column)
    return [*([Wanted(VARCHAR, length)] if length else []), Wanted(CLOB), Wanted(LONGVARCHAR)]


def _binary(column: Column) -> list[Wanted]:
    length = source_length(column)
    return [*([Wanted(VARBINARY, length)] if length else []), Wanted(BLOB), Wanted(LONGVARBINARY)]


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Column], list[Wanted]]], ...] = (
    (pa.types.is_boolean, lambda column: [*map(Wanted, (BOOLEAN, BIT, SMALLINT)), Wanted(DECIMAL, 1, 0)]),
    (pa.types.is_int8, _whole(5, SMALLINT)),  # TINYINT has no sign in some databases
    (pa.types.is_uint8, _whole(5, SMALLINT)),
    (pa.types.is_int16, _whole(5, SMALLINT)),
    (pa.types.is_uint16, _whole(10, INTEGER)),
    (pa.types.is_int32, _whole(10, INTEGER)),
    (pa.types.is_uint32, _whole(19, BIGINT)),
    (pa.types.is_int64, _whole(19, BIGINT)),
    (pa.types.is_uint64, _whole(20)),
    (pa.types.is_float32, _one_of(REAL, DOUBLE, FLOAT)),
    (pa.types.is_float64, _one_of(DOUBLE, FLOAT)),
    (pa.types.is_decimal, _exact),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_date32, _one_of(DATE)),
    (pa.types.is_timestamp, lambda column: [Wanted(TIMESTAMP, None, 6)]),  # a point in time: in UTC
    (
        pa.types.is_duration,
        lambda column: [Wanted(VARCHAR, _LONGEST_DURATION)],
    ),  # [-]HH:MM:SS.ffffff; TIME ends at 24:00
)
_OCTETS = {-2, VARBINARY, LONGVARBINARY, BLOB}
_IN_KEYS = {CLOB: VARCHAR, LONGVARCHAR: VARCHAR, BLOB: VARBINARY, LONGVARBINARY: VARBINARY}
_HOLDS: dict[int, pa.DataType] = {
    BOOLEAN: pa.bool_(),
    BIT: pa.bool_(),
    SMALLINT: pa.int16(),
    INTEGER: pa.int32(),
    BIGINT: pa.int64(),
    REAL: pa.float32(),
    DOUBLE: pa.float64(),
    FLOAT: pa.float64(),
    CLOB: pa.utf8(),
    LONGVARCHAR: pa.utf8(),
    BLOB: pa.binary(),
    LONGVARBINARY: pa.binary(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us"),
}
_SIZED: dict[int, pa.DataType] = {VARCHAR: pa.utf8(), VARBINARY: pa.binary()}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_PARAMETERS = re.compile(r"\s*\(([\d, ]*)\)")


class Types:
    """The types of one database."""

    def __init__(self, infos: Iterable[tuple[int, TypeInfo]]) -> None:
        self._infos: dict[int, TypeInfo] = {}
        self._codes: dict[str, int] = {"text": VARCHAR}
        for code, info in infos:
            self._infos.setdefault(code, info)  # the first of a code is the nearest to it
            self._codes.setdefault(_plain(info.name), code)

    @classmethod
    def of(cls, metadata: Java, product: Product) -> Types:
        """As the driver tells them, where the product has none of its own."""
        if product.types:
            return cls(product.types)
        infos, found = [], metadata.getTypeInfo()
        while found.next():
            size = int(found.getLong("PRECISION"))
            takes_size = bool((found.getString("CREATE_PARAMS") or "").strip())
            info = TypeInfo(str(found.getString("TYPE_NAME")), size, takes_size, found.getInt("MAXIMUM_SCALE"))
            infos.append((int(found.getInt("DATA_TYPE")), info))
        found.close()
        return cls(infos)

    def declare(self, column: Column, *, in_key: bool) -> str:
        """The type that a column gets; ConfigError when the database has none for it."""
        wanted = next((wants for matches, wants in _TYPES if matches(column.type)), None)
        for want in [] if wanted is None else wanted(column):
            code, size = want.code, want.size
            if in_key and code in _IN_KEYS:
                code, size = _IN_KEYS[code], _KEY_LENGTH
            info = self._infos.get(code)
            if info is not None and (size or 0) <= info.size and (code == TIMESTAMP or (want.scale or 0) <= info.scale):
                return self.spelled(info.name, code, size, want.scale)
        raise unsupported(column)

    def spelled(self, name: str, code: int, size: int | None, scale: int | None) -> str:
        """A type with its size, as it stands in a definition."""
        self._codes.setdefault(_plain(name), code)
        if code in (DECIMAL, NUMERIC):
            return _sized(name, f"{size},{scale}")
        if code in _SIZED:
            return _sized(name, str(size))
        takes_scale = code == TIMESTAMP and code in self._infos and self._infos[code].takes_size
        return _sized(name, str(scale)) if takes_scale else name

    def code(self, declared: str) -> int:
        """What a type that was declared is in java.sql.Types."""
        return self._codes[_plain(declared)]

    def binding(self, declared: str) -> Binding:
        """How values of a column are bound: all text as text, all binary as bytes."""
        code = self.code(declared)
        if code in (BLOB, LONGVARBINARY):
            return Binding(VARBINARY)
        if code in (CLOB, LONGVARCHAR):
            return Binding(VARCHAR)
        held = self.holds(declared) if code in (DECIMAL, NUMERIC) else None
        return Binding(code, 0 if held is None else held.type.scale)  # type: ignore[attr-defined]

    def holds(self, declared: str) -> StoredType | None:
        code = self._codes.get(_plain(declared), 0)
        sizes = [int(part) for found in _PARAMETERS.findall(declared) for part in found.split(",")]
        if code in _SIZED:
            return StoredType(_SIZED[code], sizes[0] if sizes else None)
        if code in (DECIMAL, NUMERIC):
            return StoredType(pa.decimal256(min(sizes[0], _ARROW_DIGITS), sizes[1])) if len(sizes) == 2 else None
        return StoredType(_HOLDS[code]) if code in _HOLDS else None


def _plain(declared: str) -> str:
    """Its name without sizes."""
    return _PARAMETERS.sub("", declared.replace("()", "")).replace("  ", " ").strip().lower()


def _sized(name: str, sizes: str) -> str:
    return name.replace("()", f"({sizes})") if "()" in name else f"{name}({sizes})"


def texts(column: Array, code: int) -> list[str | None]:
    """Values as text that a driver turns into a stored type (binding.py)."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        _must_be_in_calendar(column)
    if pa.types.is_boolean(kind) and code not in (BOOLEAN, BIT):
        column = column.cast(pa.int8())
    found: list[str | None] = to_text(column).to_pylist()
    if pa.types.is_date32(kind) and code == TIMESTAMP:
        return [None if day is None else f"{day} 00:00:00" for day in found]
    return found


def _must_be_in_calendar(column: Array) -> None:
    """Drivers take dates through java.sql.Date, which makes another date of one in the year 0, without a word."""
    days = column.cast(pa.timestamp("us")).cast(pa.date32(), safe=False).view(pa.int32())
    first, last = pc.min(days).as_py(), pc.max(days).as_py()
    if first is not None and (first < _FIRST_DAY or last > _LAST_DAY):
        raise DataError(
            "a date is not in the years 1 to 9999, which are all that JDBC has",
            fix="correct the value at the source, or leave the column out with `columns: {drop: [...]}`",
        )


def literal(value: Array, code: int, product: Product) -> str:
    """SQL for the one value of a column of that type."""
    [text] = texts(value, code)
    if text is None:
        return "NULL"
    if code in _OCTETS:
        return product.octets.format(text=text)
    if code in (DATE, TIMESTAMP):
        return (product.date if code == DATE else product.timestamp).format(text=text)
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if code in (VARCHAR, CLOB, LONGVARCHAR) else text


def read(results: Java, at: int, code: int) -> Any:
    """A value of a row, as `values.from_values` takes it."""
    found: Any
    if code in (SMALLINT, INTEGER, BIGINT):
        found = int(results.getLong(at))
    elif code in (BOOLEAN, BIT):
        found = bool(results.getBoolean(at))
    elif code in _OCTETS:
        octets = results.getBytes(at)
        found = None if octets is None else bytes(octets)
    else:
        text = results.getString(at)
        found = None if text is None else str(text)
    return None if results.wasNull() else found
