"""Values as text and as fragments of JSON, exactly: integers and decimals keep all digits, dates keep what no calendar holds.

A column is turned into text as a whole, and so are rows put together from the fragments of their columns: nothing is done per value but
for the few types that Arrow does not print as we do. Formats differ in what fragments they make (`Style`). Texts are of Arrow's large
type: the rows of a batch together may have more than 2 GiB.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.ums_types import fraction_digits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_TEXT = pa.large_utf8()
_SPECIAL = r'[\x00-\x1f"\\]'
"""What JSON text cannot have as it is."""
_DAY_US = 86_400 * 10**6
_CALENDAR_US = (-62_135_596_800 * 10**6, 253_402_300_800 * 10**6)
"""From the first moment of year 1 to the end of year 9999."""
NULL = "null"
Texts: TypeAlias = "pa.Array[Any]"
"""An array of text."""


class Described(Protocol):
    """A column as a decoder or a log describes it."""

    @property
    def name(self) -> str: ...
    @property
    def source_type(self) -> str: ...
    @property
    def nullable(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Style:
    """What a format makes of values.

    `fragments`: those of a column as JSON, `NULL` where they are null; `beyond`: one that its column's type cannot hold, from its text.
    """

    fragments: Callable[[pa.Array[Any], Described], Texts]
    beyond: Callable[[Described, str], str]


class Images:
    """Rows of one table in one state, as fragments of JSON, column by column.

    `raw`: the values beyond their type (`_ums_raw_`); `left_out`: per row the names of columns that its image does not have.
    """

    def __init__(
        self,
        columns: Sequence[Described],
        arrays: Sequence[pa.Array[Any]],
        raw: pa.Array[Any],
        left_out: Sequence[Collection[str] | None],
        style: Style,
    ) -> None:
        self._names = [column.name for column in columns]
        self._heads = [f"{quoted(name)}: " for name in self._names]
        self.columns = [style.fragments(array, column) for column, array in zip(columns, arrays, strict=True)]
        self._rows = len(left_out)
        self._there = _there(self._names, left_out)
        beyond = {row: json.loads(text) for row, text in enumerate(raw.to_pylist()) if text is not None}
        if beyond:
            self.columns = [
                _with_beyond(texts, column, beyond, style) for column, texts in zip(columns, self.columns, strict=True)
            ]

    def objects(self) -> Texts:
        """One JSON object per row, with the columns that it has."""
        return joined("{", self.members(), "}")

    def members(self) -> Texts:
        """What stands between the braces of `objects`."""
        if self._there or not self._names:
            return self._those(self._there)
        parts: list[str | Texts] = []
        for head, texts in zip(self._heads, self.columns, strict=True):
            parts += [f", {head}" if parts else head, texts]
        return joined(*parts)

    def changed(self, after: Images) -> Texts:
        """Of each row the columns whose values are others in `after`, as a JSON object of what they are here."""
        there = {}
        for index, name in enumerate(self._names):
            there[name] = pc.not_equal(self.columns[index], after.columns[index])
            for known in (self._there, after._there):
                if name in known:
                    there[name] = pc.and_(there[name], known[name])
        return joined("{", self._those(there), "}")

    def differs(self, other: Images, names: Collection[str]) -> list[bool]:
        """Of each row whether it has another value in one of these columns than in `other`."""
        found = pa.repeat(pa.scalar(value=False), self._rows)
        for name, mine, theirs in zip(self._names, self.columns, other.columns, strict=True):
            if name in names:
                found = pc.or_(found, pc.not_equal(mine, theirs))
        is_other: list[Any] = found.to_pylist()
        return is_other

    def _those(self, there: Mapping[str, pa.Array[Any]]) -> Texts:
        members: list[Texts] = [pa.repeat(_text(""), self._rows)]  # a row may have no column at all
        for name, head, texts in zip(self._names, self._heads, self.columns, strict=True):
            member = joined(f", {head}", texts)
            members.append(pc.if_else(there[name], member, _text("")) if name in there else member)
        return pc.utf8_slice_codeunits(joined(*members), 2)


def _there(names: Sequence[str], left_out: Sequence[Collection[str] | None]) -> dict[str, pa.Array[Any]]:
    """Of each column that a row lacks, which rows have it."""
    lacking = {name for row in left_out if row for name in row}
    return {name: pa.array([not row or name not in row for row in left_out]) for name in names if name in lacking}


def _with_beyond(texts: Texts, column: Described, beyond: Mapping[int, dict[str, str]], style: Style) -> Texts:
    values: list[str] | None = None
    for row, raw in beyond.items():
        if column.name in raw and texts[row].as_py() == NULL:
            values = listed(texts) if values is None else values
            values[row] = style.beyond(column, raw[column.name])
    return texts if values is None else array_of(values)


def quoted(text: str) -> str:
    """Text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def quoted_beyond(_column: Described, text: str) -> str:
    """A value beyond its type as its text. Text in broken characters stays as it could be read."""
    return quoted(text)


def array_of(values: Iterable[str | None]) -> Texts:
    """Texts as they are kept here."""
    return pa.array(values, _TEXT)


def joined(*parts: str | Texts) -> Texts:
    """Row by row one text of all parts, of which at least one is of rows; null where a part is."""
    texts: list[Any] = []
    for is_same, group in groupby(parts, key=lambda part: isinstance(part, str)):
        alike = list(group)
        texts += [_text("".join(map(str, alike)))] if is_same else alike
    found: Texts = pc.binary_join_element_wise(*texts, _text(""))
    return found


def listed(texts: Texts) -> list[str]:
    """Texts of which none is null."""
    values: list[Any] = texts.to_pylist()
    return values


def whole_units(values: pa.Array[Any], per_unit: int) -> pa.Array[Any]:
    """64-bit integers divided, and rounded down, below zero too."""
    quotients = pc.divide(values, pa.scalar(per_unit))
    below = pc.less(values, pc.multiply(quotients, pa.scalar(per_unit)))
    return pc.subtract(quotients, below.cast(pa.int64()))


def json_or_null(texts: Texts) -> Texts:
    """Texts that are JSON, where they are not null."""
    return texts.fill_null(NULL)


def all_quoted(texts: Texts) -> Texts:
    """Texts as JSON, `NULL` where they are null."""
    special = pc.match_substring_regex(texts, _SPECIAL)
    if pc.any(special).as_py():
        escaped = array_of(quoted(text)[1:-1] for text in listed(texts.filter(special)))
        is_special: Any = special.fill_null(False)
        texts = pc.replace_with_mask(texts, is_special, escaped)
    return json_or_null(joined('"', texts, '"'))


def texts(array: pa.Array[Any], source_type: str) -> Texts:
    """The values of a column as text: as MySQL prints them, bytes as base64. OverflowError for a date that no calendar has."""
    return next(print_ for matches, print_ in _PRINTERS if matches(array.type))(array, source_type)


def numbers(array: pa.Array[Any], source_type: str) -> Texts:
    """The values of a column of numbers as JSON; JSON has no word for what is not finite: that is text."""
    found = texts(array, source_type)
    if pa.types.is_floating(array.type) and not pc.all(pc.is_finite(array)).as_py():
        found = each(found, lambda text: text if text[-1].isdigit() else quoted(_NOT_FINITE[text]))
    return json_or_null(found)


def moments(values_us: pa.Array[Any], digits: int, between: str = " ") -> Texts:
    """Microseconds since 1970 as dates and times, `between` them one character. OverflowError when no calendar has one."""
    _require_calendar(values_us, 1)
    found = values_us.cast(pa.timestamp("us")).cast(_TEXT)
    if digits < 6:
        found = pc.utf8_slice_codeunits(found, 0, 20 + digits if digits else 19)
    if between != " ":
        found = pc.replace_substring(found, pattern=" ", replacement=between)
    return found


def moment(value_us: int, digits: int) -> str:
    """Microseconds since 1970 as date and time."""
    found = _EPOCH + value_us * _MICROSECOND
    return f"{found:%Y-%m-%d %H:%M:%S}".zfill(19) + _fraction(found.microsecond, digits)


def duration(value_us: int, digits: int) -> str:
    """Microseconds as hours, minutes and seconds."""
    seconds, micros = divmod(abs(value_us), 1_000_000)
    sign = "-" if value_us < 0 else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{sign}{clock}{_fraction(micros, digits)}"


def base64(value: bytes) -> str:
    """Bytes as JSON has them."""
    return b64encode(value).decode()


def _text(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, _TEXT)


def each(array: pa.Array[Any], encode: Callable[[Any], str]) -> Texts:
    """What `encode` makes of each value that is not null."""
    return array_of(None if value is None else encode(value) for value in array.to_pylist())


def _as_arrow_does(array: pa.Array[Any], _source_type: str) -> Texts:
    return array.cast(_TEXT)


def _single(array: pa.Array[Any], _source_type: str) -> Texts:
    """Arrow prints the shortest digits for the width that a number has; Python knows only 64 bits. As an integer, -0 is 0."""
    found = array.cast(_TEXT)
    below_zero: Texts = pc.if_else(pc.equal(found, _text("-0")), _text("-0.0"), found)
    return below_zero


def _decimals(array: pa.Array[Any], _source_type: str) -> Texts:
    found = array.cast(_TEXT)
    if not pc.any(pc.match_substring(found, "E")).as_py():
        return found
    return each(array, lambda value: f"{value:f}")


def _dates(array: pa.Array[Any], _source_type: str) -> Texts:
    _require_calendar(array.cast(pa.int32()), _DAY_US)
    return array.cast(_TEXT)


def _timestamps(array: pa.Array[Any], source_type: str) -> Texts:
    in_us = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
    return moments(in_us, fraction_digits(array.type, source_type))


def _durations(array: pa.Array[Any], source_type: str) -> Texts:
    digits = fraction_digits(array.type, source_type)
    return each(array.cast(pa.int64()), lambda value: duration(value, digits))


_PRINTERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array[Any], str], Texts]], ...] = (
    (pa.types.is_integer, _as_arrow_does),
    (lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_), _as_arrow_does),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_float32, _single),
    (pa.types.is_floating, lambda array, _: each(array, repr)),
    (pa.types.is_boolean, lambda array, _: array.cast(pa.int8()).cast(_TEXT)),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_duration, _durations),
    (lambda type_: pa.types.is_binary(type_) or pa.types.is_large_binary(type_), lambda array, _: each(array, base64)),
)


def _require_calendar(values: pa.Array[Any], unit_us: int) -> None:
    least, most = pc.min(values).as_py(), pc.max(values).as_py()
    if least is not None and (least * unit_us < _CALENDAR_US[0] or most * unit_us >= _CALENDAR_US[1]):
        raise OverflowError("date value out of range")


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06d}"[: digits + 1] if digits else ""
