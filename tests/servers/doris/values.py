"""The form in which a value of each type of Doris is kept and shown; ValueError, or OverflowError when it does not fit."""

from __future__ import annotations

import json
import re
from decimal import Context, Decimal, InvalidOperation
from typing import Any

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "INTEGER": 32, "BIGINT": 64, "LARGEINT": 128}
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_DATETIME = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?)?Z?")
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DECIMAL = Context(prec=80)


def canonical(type_: str, value: Any) -> Any:
    """A value of a load (text, or what JSON has), or of a query, as the type keeps it."""
    name, sizes = _parts(type_)
    if name == "BOOLEAN":
        return _boolean(value)
    if name in _BITS:
        return _integer(value, name)
    if name in ("FLOAT", "DOUBLE"):
        return float(value)
    if name.startswith("DECIMAL"):
        return _decimal(value, *(sizes or [9, 0]))
    if name in ("DATE", "DATEV2"):
        return _date(str(value)[:10])
    if name in ("DATETIME", "DATETIMEV2"):
        return _datetime(str(value), sizes[0] if sizes else 0)
    return _text(value, name, sizes)


def _parts(type_: str) -> tuple[str, list[int]]:
    name, _, sizes = type_.upper().partition("(")
    return name.strip(), [int(size) for size in sizes.rstrip(") ").split(",") if size.strip().isdigit()]


def _boolean(value: Any) -> int:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"parse number fail, string: '{value}'")
    return int(text in ("true", "1"))


def _integer(value: Any, name: str) -> int | str:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"parse number fail, string: '{value}'")
    number = int(value)
    if not -(1 << (_BITS[name] - 1)) <= number < 1 << (_BITS[name] - 1):
        raise ValueError(f"parse number fail, string: '{value}'")
    return str(number) if name == "LARGEINT" else number  # SQLite has 64 bits


def _decimal(value: Any, precision: int, scale: int = 0) -> str:
    try:
        number = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), context=_DECIMAL)
    except InvalidOperation as error:
        raise ValueError(f"parse decimal fail, string: '{value}'") from error
    if number.copy_abs() >= Decimal(10) ** (precision - scale):
        raise OverflowError(f"decimal value is not valid for definition, value={value}, precision={precision}")
    return format(number, "f")


def _date(text: str) -> str:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(f"parse date fail, string: '{text}'")
    year, month, day = map(int, found.groups())
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] + (month == 2 and is_leap):
        raise ValueError(f"parse date fail, string: '{text}'")
    return text


def _datetime(text: str, digits: int) -> str:
    found = _DATETIME.fullmatch(text)
    if found is None:
        raise ValueError(f"parse datetime fail, string: '{text}'")
    day, hour, minute, second, fraction = found.groups(default="")
    _date(day)
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        raise ValueError(f"parse datetime fail, string: '{text}'")
    rest = f".{fraction.ljust(digits, '0')[:digits]}" if digits else ""
    return f"{day} {hour or '00'}:{minute or '00'}:{second or '00'}{rest}"


def _text(value: Any, name: str, sizes: list[int]) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name in ("CHAR", "VARCHAR") and sizes and len(text.encode()) > sizes[0]:
        raise OverflowError(f"the length of input is too long than schema. schema length: {sizes[0]}")
    return text
