"""Rows on their way into PostgreSQL: COPY in binary into a temporary table, out of which one INSERT … SELECT takes them.

A column goes in binary when its target declares what headrace would declare for it, else as text that the server casts. It casts to the
type without its length: an explicit cast to varchar(5) cuts silently, the INSERT behind it refuses what is too long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pgpq
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DataError
from headrace.sinks.database.dialect import Destination
from headrace.ums.values import Array, join, to_text

_LENGTH = re.compile(r"\([\d, -]+\)")
_ONE_LONG = {"character": '"bpchar"', "bit": '"bit"'}
"""Types that have the length 1 when nothing is said, and what they are called when they are to have none."""


@dataclass(frozen=True, slots=True)
class Staging:
    """The temporary table of one destination."""

    table: str
    declared: tuple[str, ...]
    """The type of each of its columns, which are named 0, 1, 2, …"""
    taken: tuple[str, ...]
    """What the INSERT takes of each."""
    as_text: tuple[bool, ...]

    @classmethod
    def of(cls, table: str, to: Destination, own: Sequence[str | None]) -> Staging:
        """`own`: what headrace declares for columns of these types; None where they have no binary form."""
        there = [to.declared(name) for name in to.names]
        as_text = tuple(mine != theirs for mine, theirs in zip(own, there, strict=True))
        taken = (f'"{at}"::{without_length(theirs)}' if as_text[at] else f'"{at}"' for at, theirs in enumerate(there))
        return cls(table, tuple(map(_staged_as, there, as_text)), tuple(taken), as_text)

    @property
    def create(self) -> str:
        columns = ", ".join(f'"{at}" {declared}' for at, declared in enumerate(self.declared))
        name = self.table.removeprefix("pg_temp.")
        return f"DROP TABLE IF EXISTS {self.table}; CREATE TEMPORARY TABLE {name} ({columns}) ON COMMIT DELETE ROWS"

    def content(self, columns: Sequence[Array]) -> bytes:
        """Rows as COPY … (FORMAT binary) reads them."""
        arrays = [wire(column) if text else column for column, text in zip(columns, self.as_text, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, [str(at) for at in range(len(arrays))])
        encoder = pgpq.ArrowToPostgresBinaryEncoder(rows.schema)
        try:
            return encoder.write_header() + encoder.write_batch(rows) + encoder.finish()
        except ValueError as error:
            raise DataError(
                f"a value is out of PostgreSQL's reach: {error}",
                fix="correct the value at the source, or leave the column out with `columns: {drop: [...]}`",
            ) from error


def _staged_as(declared: str, is_text: bool) -> str:
    return "text" if is_text else declared


def without_length(declared: str) -> str:
    """A type as it is without a length: ``character varying(5)`` is ``character varying``."""
    bare = _LENGTH.sub("", declared)
    return _ONE_LONG.get(bare, bare)


def is_utc(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def wire(column: Array) -> Array:
    """The column as text that PostgreSQL casts to its type."""
    kind = column.type
    text = to_text(column)
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else f"\\x{v}" for v in text.to_pylist()], pa.utf8())
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        first = pc.min(text).as_py()
        if first is not None and first < "0001":
            text = pa.array([_with_era(v) for v in text.to_pylist()], pa.utf8())
        if is_utc(kind):
            text = join(text, "Z")
    return text


def _with_era(text: str | None) -> str | None:
    """Year 0 is 1 BC, year -1 is 2 BC, as PostgreSQL wants it; Arrow counts as astronomers do."""
    if text is None or (text[:4] > "0000" and not text.startswith("-")):
        return text
    negative = text.startswith("-")
    year, _, rest = text.lstrip("-").partition("-")
    return f"{(int(year) if negative else 0) + 1:04}-{rest} BC"
