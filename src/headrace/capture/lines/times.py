"""Times of lines: texts of one format into µs since 1970 UTC, whole columns at a time.

A pattern, written as for strptime, becomes a regular expression with a group per directive; the groups are joined to ISO 8601, which
Arrow reads. `iso` is such a pattern too, tried after Arrow's own reading of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.lines.fields import Array, call, is_true

_INSTANT = pa.timestamp("us", "UTC")
_DAY_US = 86_400_000_000
_FIRST_US, _END_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Years 1 to 9999."""
_UNITS_US = {"unix": 1e6, "unix_ms": 1e3, "unix_us": 1.0, "unix_ns": 1e-3}
_DIRECTIVES = {
    "Y": r"(?P<Y>\d{4})",
    "m": r"(?P<m>\d{1,2})",
    "b": r"(?P<b>[A-Za-z]{3})",
    "d": r"(?P<d>\d{1,2})",
    "e": r" ?(?P<d>\d{1,2})",
    "H": r"(?P<H>\d{1,2})",
    "M": r"(?P<M>\d{1,2})",
    "S": r"(?P<S>\d{1,2})",
    "f": r"(?P<f>\d{1,9})",
    "z": r"(?P<z>Z|[+-]\d{2}:?\d{2})",
    "a": r"[A-Za-z]{3}",
    "A": r"[A-Za-z]+",
    "%": "%",
}
_NEEDED = {"d", "H", "M"}
_ISO = (
    r"(?P<Y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})[T ](?P<H>\d{2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,9}))?)?"
    r" ?(?P<z>Z|[+-]\d{2}:?\d{2})?"
)
_MONTHS = pa.array(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
_GROUP = re.compile(r"\?P<(\w)>")


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How a time is written: `iso`, a number since 1970 (`unix`, `unix_ms`, `unix_us`, `unix_ns`), or a pattern. `zone`: of times without one."""

    text: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """ValueError when there is no such format or zone."""
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"there is no time zone '{self.zone}'") from error
        if self.text not in _UNITS_US:
            _pattern(self.text)

    def micros(self, texts: Array, now_us: int) -> Array:
        """µs since 1970 UTC; null where a text is not of the format. A pattern without a year means the last such day before tomorrow."""
        if self.text in _UNITS_US:
            return _numbers(texts, _UNITS_US[self.text])
        if self.text == "iso":
            try:
                return texts.cast(_INSTANT).view(pa.int64())
            except pa.ArrowInvalid:
                pass  # some have no zone, a comma, or are no times
        found = pc.extract_regex(texts, f"^(?:{_pattern(self.text)})$")
        names = set(_GROUP.findall(_pattern(self.text)))
        parts = {name: pc.struct_field(found, name) for name in names}
        if "Y" in names:
            return self._instants(parts, parts["Y"])
        return self._without_year(parts, now_us)

    def _without_year(self, parts: dict[str, Array], now_us: int) -> Array:
        year = pc.year(pa.scalar(now_us, pa.timestamp("us"))).as_py()
        this, last = (self._instants(parts, pa.repeat(str(each), len(parts["d"]))) for each in (year, year - 1))
        return call("if_else", is_true(call("less", this, now_us + _DAY_US)), this, last)

    def _instants(self, parts: dict[str, Array], years: Array) -> Array:
        zeros = pa.repeat("0", len(years))
        month = _month(parts["b"]) if "b" in parts else parts["m"]
        second = _or(parts.get("S"), zeros)
        digits = call("utf8_slice_codeunits", _or(parts.get("f"), zeros), options=pc.SliceOptions(0, 6))
        fraction = call("utf8_rpad", digits, options=pc.PadOptions(6, "0"))
        day = _joined("-", years, _two(month), _two(parts["d"]))
        clock = _joined(":", _two(parts["H"]), _two(parts["M"]), _two(second))
        local = each_cast(_joined(".", _joined("T", day, clock), fraction), pa.timestamp("us"))
        zones = parts.get("z")
        micros: Array = local.view(pa.int64())
        if zones is None:
            return self._in_zone(local)
        has_zone = is_true(call("greater", call("binary_length", zones), 0))
        shifted = call("subtract", micros, _shift_us(zones))
        if pc.all(has_zone).as_py():
            return shifted
        return call("if_else", has_zone, shifted, self._in_zone(local))

    def _in_zone(self, local: Array) -> Array:
        if self.zone == "UTC":
            return local.view(pa.int64())
        options = pc.AssumeTimezoneOptions(self.zone, ambiguous="earliest", nonexistent="earliest")
        return call("assume_timezone", local, options=options).view(pa.int64())


def _pattern(text: str) -> str:
    """The regular expression of a format, ValueError when it says no time."""
    if text == "iso":
        return _ISO
    pieces = re.split(r"%(.)", text)
    unknown = [f"%{each}" for each in pieces[1::2] if each not in _DIRECTIVES]
    if unknown:
        known = " ".join(f"%{each}" for each in _DIRECTIVES)
        raise ValueError(f"{', '.join(unknown)} is not known in a time; use {known}")
    found = "".join(_DIRECTIVES[each] if at % 2 else re.escape(each) for at, each in enumerate(pieces))
    names = _GROUP.findall(found)
    if not _NEEDED.issubset(names) or not {"m", "b"}.intersection(names) or len(names) != len(set(names)):
        raise ValueError(
            f"'{text}' is no time: write month, day, hour and minute once, or one of iso, {', '.join(_UNITS_US)}"
        )
    return found


def _numbers(texts: Array, unit_us: float) -> Array:
    micros = call("round", call("multiply", each_cast(texts, pa.float64()), unit_us))
    is_time = call("and", call("greater_equal", micros, float(_FIRST_US)), call("less", micros, float(_END_US)))
    return call("if_else", is_true(is_time), micros, pa.scalar(None, pa.float64())).cast(pa.int64())


def each_cast(texts: Array, to: pa.DataType) -> Array:
    """Texts as values of a type; null where one is none."""
    try:
        return texts.cast(to)
    except pa.ArrowInvalid:
        distinct = texts.dictionary_encode()
        values: list[Array] = [_one_cast(text, to) for text in distinct.dictionary.to_pylist()]
        return pa.concat_arrays(values).take(distinct.indices)


def _one_cast(text: str | None, to: pa.DataType) -> Array:
    one: Array = pa.array([text], pa.utf8())
    try:
        return one.cast(to)
    except pa.ArrowInvalid:
        return call("if_else", pa.scalar(None, pa.bool_()), one, one).cast(to)


def _or(texts: Array | None, otherwise: Array) -> Array:
    """A group that took part, else something: a group that did not is empty."""
    if texts is None:
        return otherwise
    return call("if_else", call("equal", call("binary_length", texts), 0), otherwise, texts)


def _two(texts: Array) -> Array:
    return call("utf8_lpad", texts, options=pc.PadOptions(2, "0"))


def _month(names: Array) -> Array:
    options = pc.SetLookupOptions(_MONTHS)
    return call("add", call("index_in", call("utf8_lower", names), options=options), 1).cast(pa.utf8())


def _shift_us(zones: Array) -> Array:
    """How far zones written as +02:00, +0200 or Z are ahead of UTC."""
    text = call("if_else", call("less", call("binary_length", zones), 5), "+0000", zones)
    hours = call("utf8_slice_codeunits", text, options=pc.SliceOptions(1, 3)).cast(pa.int64())
    minutes = call("utf8_slice_codeunits", text, options=pc.SliceOptions(-2)).cast(pa.int64())
    size = call("multiply", call("add", call("multiply", hours, 60), minutes), 60_000_000)
    return call("if_else", pc.starts_with(text, "-"), call("negate", size), size)


def _joined(separator: str, *parts: Array) -> Array:
    return call("binary_join_element_wise", *parts, separator)
