"""The value that ADD COLUMN gives to the rows that are already there, as text in the forms of ``headrace decode``.

A server changes those rows without row events, so the value must come from the statement. It is given only when it is certain:
what cannot be known from the statement alone (an expression, a random value, bytes in an unknown character set, a fraction that
MySQL would round and MariaDB cut) is an UnknownDefaultError, and the table has to be loaded again to be exact.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, localcontext
from ipaddress import IPv4Address, IPv6Address
from zoneinfo import ZoneInfo

from headrace.capture.columns import ColumnDefinition
from headrace.capture.ddl import Ddl
from headrace.capture.tokens import Token


class UnknownDefaultError(Exception):
    """The statement does not tell the value."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A literal. `kind`: number, text, bytes, null or now; `text` is the literal's, for now the digits of its fraction."""

    kind: str
    text: str = ""
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class _Place:
    """What a conversion depends on besides the literal."""

    column: ColumnDefinition
    ddl: Ddl

    @property
    def size(self) -> int:
        """The first argument of the type; 0 without one."""
        return int(self.column.arguments[0]) if self.column.arguments else 0


def initial_default(column: ColumnDefinition, ddl: Ddl) -> str | None:
    """What old rows have in a column that `ddl` adds; None is NULL. UnknownDefaultError when it cannot be told."""
    if column.computed:
        raise UnknownDefaultError
    try:
        return _given(_Place(column, ddl))
    except (ValueError, ArithmeticError, LookupError) as error:
        raise UnknownDefaultError from error


def _given(place: _Place) -> str | None:
    column = place.column
    if column.default is None:
        return None if column.nullable else _implicit(place)
    value = _literal(list(column.default))
    return None if value.kind == "null" else _CONVERSIONS[column.type](value, place)


# --- literals

_NOW = frozenset(["CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"])
_UTF8 = frozenset(["_utf8", "_utf8mb3", "_utf8mb4", "n"])


def _literal(found: list[Token]) -> _Value:
    negative = False
    while found and found[0].kind == "mark":
        if found[0].is_mark("(") and found[-1].is_mark(")"):
            found = found[1:-1]
        elif found[0].is_mark("-") or found[0].is_mark("+"):
            negative ^= found[0].text == "-"
            found = found[1:]
        else:
            raise UnknownDefaultError
    if not found:
        raise UnknownDefaultError
    first, rest = found[0], found[1:]
    if negative:
        if first.kind != "number" or rest:
            raise UnknownDefaultError
        return _Value("number", "-" + first.text)
    if first.kind == "word":
        return _worded(first.text.upper(), rest)
    if first.kind == "string" and all(token.kind == "string" for token in rest):
        return _Value("text", "".join(token.text for token in found))
    if rest or first.kind not in ("number", "hex", "bits"):
        raise UnknownDefaultError
    return _Value("number", first.text) if first.kind == "number" else _bytes(first)


def _bytes(token: Token) -> _Value:
    number = int(token.text or "0", 16 if token.kind == "hex" else 2)
    size = (len(token.text) * (4 if token.kind == "hex" else 1) + 7) // 8
    return _Value("bytes", raw=number.to_bytes(size, "big"))


def _worded(word: str, rest: list[Token]) -> _Value:
    if not rest and word in ("NULL", "TRUE", "FALSE"):
        return _Value("null") if word == "NULL" else _Value("number", str(int(word == "TRUE")))
    strings = bool(rest) and all(token.kind == "string" for token in rest)
    text = "".join(token.text for token in rest)
    if strings and (word.lower() in _UTF8 or (word[0] == "_" and text.isascii())):
        return _Value("text", text)
    if strings and word in ("DATE", "TIME", "TIMESTAMP"):
        return _Value("text", text)
    if word == "_BINARY" and len(rest) == 1 and rest[0].kind in ("hex", "bits"):
        return _bytes(rest[0])
    if word in _NOW:
        digits = "".join(token.text for token in rest if token.kind == "number")
        return _Value("now", digits or "0")
    if word in ("CURRENT_DATE", "CURDATE"):
        return _Value("today")
    raise UnknownDefaultError


# --- numbers


def _number(value: _Value) -> Decimal:
    if value.kind == "bytes":
        return Decimal(int.from_bytes(value.raw, "big"))
    if value.kind in ("number", "text"):
        return Decimal(value.text.strip())
    raise UnknownDefaultError


def _rounded(number: Decimal, scale: int) -> str:
    with localcontext(prec=100):
        return f"{number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP):f}"


def _integer(value: _Value, _: _Place) -> str:
    return str(int(_rounded(_number(value), 0)))


def _decimal(value: _Value, place: _Place) -> str:
    scale = int(place.column.arguments[1]) if len(place.column.arguments) > 1 else 0
    text = _rounded(_number(value), scale)
    return text.removeprefix("-") if Decimal(text) == 0 else text


def _float(value: _Value, place: _Place) -> str:
    number = _number(value)
    if len(place.column.arguments) > 1:
        number = Decimal(_rounded(number, int(place.column.arguments[1])))
    return repr(float(number) + 0.0)


def _bit(value: _Value, _: _Place) -> str:
    if value.kind == "text":
        return str(int.from_bytes(value.text.encode("ascii"), "big"))
    return _integer(value, _)


def _year(value: _Value, _: _Place) -> str:
    number = int(_integer(value, _))
    if number >= 100 or (number == 0 and (value.kind != "text" or len(value.text) == 4)):
        return str(number)
    return str(number + (2000 if number < 70 else 1900))


# --- dates and times

_PARTED = re.compile(
    r"\s*(\d{2}|\d{4})[-/.:^@]+(\d{1,2})[-/.:^@]+(\d{1,2})(?:(?:T|\s+)(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*"
)
_COMPACT = re.compile(r"(\d{2}|\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)(?:\.(\d*))?)?")
_TIME = re.compile(r"\s*(-?)(?:(\d+)\s+)?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?\s*")
_COMPACT_TIME = re.compile(r"(-?)()(\d*?)(\d{0,2}?)(\d{1,2})(?:\.(\d*))?")


def _zone(name: str | None) -> tzinfo:
    if name is None:
        raise UnknownDefaultError
    offset = re.fullmatch(r"([+-])(\d{1,2}):(\d\d)", name)
    if offset is None:
        return ZoneInfo(name)
    span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    return timezone(-span if offset[1] == "-" else span)


def _now(value: _Value, place: _Place, zone: tzinfo) -> tuple[list[int], str]:
    if place.ddl.started_us is None:
        raise UnknownDefaultError
    seconds, micros = divmod(place.ddl.started_us, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).astimezone(zone)
    return list(moment.timetuple()[:6]), f"{micros:06}"[: int(value.text or 0)]


def _moment(value: _Value, place: _Place) -> tuple[list[int], str]:
    """Year to second in the session's time zone, and the digits of the fraction."""
    if value.kind in ("now", "today"):
        parts, fraction = _now(value, place, _zone(place.ddl.time_zone))
        return (parts, fraction) if value.kind == "now" else ([*parts[:3], 0, 0, 0], "")
    if value.kind == "number" and int(value.text) == 0:
        return [0] * 6, ""
    found = _PARTED.fullmatch(value.text) or _COMPACT.fullmatch(value.text)
    if found is None or value.kind == "bytes":
        raise UnknownDefaultError
    parts = [int(part or 0) for part in found.groups()[:6]]
    if len(found[1]) == 2:
        parts[0] += 2000 if parts[0] < 70 else 1900
    return parts, found[7] or ""


def _fraction(digits: str, size: int) -> str:
    if digits[size:].strip("0"):
        raise UnknownDefaultError
    return f".{digits[:size]:0<{size}}" if size else ""


def _date_text(parts: list[int]) -> str:
    return f"{parts[0]:04}-{parts[1]:02}-{parts[2]:02}"


def _time_text(hours: int, minutes: int, seconds: int) -> str:
    return f"{hours:02}:{minutes:02}:{seconds:02}"


def _date(value: _Value, place: _Place) -> str:
    parts, fraction = _moment(value, place)
    if value.kind != "now" and (any(parts[3:]) or fraction.strip("0")):
        raise UnknownDefaultError
    return _date_text(parts)


def _datetime(value: _Value, place: _Place) -> str:
    parts, fraction = _moment(value, place)
    return f"{_date_text(parts)} {_time_text(*parts[3:])}{_fraction(fraction, place.size)}"


def _timestamp(value: _Value, place: _Place) -> str:
    """TIMESTAMP is text in UTC; a literal is in the session's time zone."""
    if value.kind == "now":
        parts, fraction = _now(value, place, UTC)
    else:
        parts, fraction = _moment(value, place)
        if any(parts):
            year, month, day, hour, minute, second = parts
            local = datetime(year, month, day, hour, minute, second, tzinfo=_zone(place.ddl.time_zone))
            parts = list(local.astimezone(UTC).timetuple()[:6])
    return f"{_date_text(parts)} {_time_text(*parts[3:])}{_fraction(fraction, place.size)}"


def _time(value: _Value, place: _Place) -> str:
    if value.kind in ("now", "today"):
        parts, fraction = _moment(value, place)
        return _time_text(*parts[3:]) + _fraction(fraction, place.size)
    found = _TIME.fullmatch(value.text) or _COMPACT_TIME.fullmatch(value.text)
    if found is None or value.kind == "bytes":
        raise UnknownDefaultError
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[2:5])
    if minutes > 59 or seconds > 59:
        raise UnknownDefaultError
    return (
        found[1] + _time_text(hours + 24 * int(found[2] or 0), minutes, seconds) + _fraction(found[6] or "", place.size)
    )


# --- text and bytes


def _text(value: _Value, place: _Place) -> str:
    if value.kind == "bytes":
        known = (place.column.charset or "").startswith("utf8")
        return value.raw.decode("utf-8" if known else "ascii")
    if value.kind == "number":
        return _written(value.text)
    if value.kind == "now":
        parts, fraction = _moment(value, place)
        return f"{_date_text(parts)} {_time_text(*parts[3:])}" + (f".{fraction}" if fraction else "")
    if value.kind == "today":
        return _date(value, place)
    return value.text


def _written(number: str) -> str:
    """A number literal as a server turns it into text."""
    found = re.fullmatch(r"(-?)0*(\d*)((?:\.\d+)?)", number)
    if found is None:
        raise UnknownDefaultError
    return f"{found[1]}{found[2] or '0'}{found[3]}"


def _char(value: _Value, place: _Place) -> str:
    return _text(value, place).rstrip(" ")


def _blob(value: _Value, place: _Place) -> str:
    raw = value.raw if value.kind == "bytes" else _text(value, place).encode("ascii")
    size = place.size if place.column.type == "BINARY" else 0
    return base64.b64encode(raw.ljust(max(size, int(place.column.type == "BINARY")), b"\0")).decode()


def _label(value: str, labels: list[str]) -> str:
    folded = value.rstrip(" ").casefold()
    return next(label for label in labels if label.casefold() == folded)


def _enum(value: _Value, place: _Place) -> str:
    labels = [label.rstrip(" ") for label in place.column.arguments]
    if value.kind == "number":
        return labels[int(value.text) - 1] if int(value.text) else ""
    try:
        return _label(_text(value, place), labels)
    except StopIteration as error:
        raise UnknownDefaultError from error


def _set(value: _Value, place: _Place) -> str:
    labels = [label.rstrip(" ") for label in place.column.arguments]
    if value.kind == "number":
        bits = int(value.text)
        return ",".join(label for number, label in enumerate(labels) if bits >> number & 1)
    wanted = [part for part in _text(value, place).split(",") if part]
    try:
        chosen = {_label(part, labels) for part in wanted}
    except StopIteration as error:
        raise UnknownDefaultError from error
    return ",".join(label for label in labels if label in chosen)


def _uuid(value: _Value, place: _Place) -> str:
    digits = _text(value, place).replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]{32}", digits):
        raise UnknownDefaultError
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _inet4(value: _Value, place: _Place) -> str:
    return str(IPv4Address(_text(value, place)))


def _inet6(value: _Value, place: _Place) -> str:
    text = _text(value, place)
    mapped = IPv6Address(text).ipv4_mapped
    return f"::ffff:{mapped}" if mapped else str(IPv6Address(text))


_CONVERSIONS: dict[str, Callable[[_Value, _Place], str]] = {
    **dict.fromkeys(
        [
            "TINYINT",
            "SMALLINT",
            "MEDIUMINT",
            "INT",
            "INTEGER",
            "BIGINT",
            "INT1",
            "INT2",
            "INT3",
            "INT4",
            "INT8",
            "MIDDLEINT",
            "BOOL",
            "BOOLEAN",
        ],
        _integer,
    ),
    **dict.fromkeys(["DECIMAL", "DEC", "NUMERIC", "FIXED"], _decimal),
    **dict.fromkeys(["FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8"], _float),
    **dict.fromkeys(
        ["VARCHAR", "VARCHARACTER", "NVARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "JSON"], _text
    ),
    **dict.fromkeys(["BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"], _blob),
    "CHAR": _char,
    "BIT": _bit,
    "YEAR": _year,
    "DATE": _date,
    "DATETIME": _datetime,
    "TIMESTAMP": _timestamp,
    "TIME": _time,
    "ENUM": _enum,
    "SET": _set,
    "UUID": _uuid,
    "INET4": _inet4,
    "INET6": _inet6,
}


def _implicit(place: _Place) -> str:
    """What NOT NULL without DEFAULT gives."""
    kind = place.column.type
    if kind == "ENUM":
        return place.column.arguments[0].rstrip(" ")
    fixed = {"UUID": "00000000-0000-0000-0000-000000000000", "INET4": "0.0.0.0", "INET6": "::"}  # noqa: S104
    if kind in fixed:
        return fixed[kind]
    convert = _CONVERSIONS[kind]
    zero = _Value("text") if convert in (_text, _char, _blob, _set) else _Value("number", "0")
    return convert(zero, place)
