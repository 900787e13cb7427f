"""Rows of any store in one form, and their digest.

Two stores may hold the same value in different types: a decimal as text, a time without its zone, a number in a wider type. Before
rows are compared, each column is brought to the type that the table's schema gives it:

- only when the meaning is certain: text is read as the type writes it, a time without zone is UTC where the schema has a zone, a
  float becomes the decimal that its shortest text says, whole numbers 0 and 1 are booleans; nothing is rounded or cut, except that
  a double becomes the nearest FLOAT where the schema says FLOAT;
- a value that cannot be brought there is a *misfit*. It is never dropped: its text goes into a column of its own, marked with its
  side, so that a row with a misfit is equal to no row of the other side;
- equal values have equal bits: -0.0 becomes 0.0, every NaN the same NaN, JSON (MySQL's own type) is written with ordered keys.

The digest is that of rust/src/digest.rs over those rows: 128 bits, the same in any order and any cut into batches, and a row twice
is not a row once.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace._native import digest_rows
from headrace.ums.schema import RAW, Column, TableSchema

Array: TypeAlias = "pa.Array[Any]"

MISFITS = "~misfits"
"""The column that tells of misfits: null, or a JSON object column -> text. There is none when all values fit."""
_DIGEST_RANGE = 1 << 128
_BATCH_ROWS = 1 << 16
_ZONE = re.compile(r"(Z|\+00(:?00)?)$")
_DURATION = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_UNCASTABLE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in canonical form: the schema's columns, `_ums_raw_` when it was there, MISFITS when there are any."""

    data: pa.Table
    missing: tuple[str, ...]
    """Columns of the schema that the store does not have; null in `data`."""

    def digest(self) -> int:
        parts: list[int] = [digest_rows(batch) for batch in self.data.to_batches(max_chunksize=_BATCH_ROWS)]
        return sum(parts) % _DIGEST_RANGE


def canonical(rows: pa.Table, table: TableSchema, side: str) -> Rows:
    """`rows` in the form that can be compared; `side` says whose they are, for misfits."""
    columns: dict[str, Array] = {}
    misfits: dict[int, dict[str, str]] = {}
    for column in table.columns:
        found = rows.column(column.name) if column.name in rows.column_names else _nulls(len(rows), column.type)
        columns[column.name], unfit = fitted(_in_one(found), column)
        for row, text in unfit.items():
            misfits.setdefault(row, {})[column.name] = text
    if RAW in rows.column_names:
        columns[RAW] = _json(_in_one(rows.column(RAW)))
    if misfits:
        texts = [
            json.dumps({"side": side, **misfits[row]}, ensure_ascii=False) if row in misfits else None
            for row in range(len(rows))
        ]
        columns[MISFITS] = pa.array(texts, pa.utf8())
    missing = tuple(column.name for column in table.columns if column.name not in rows.column_names)
    return Rows(pa.table(columns), missing)


def _in_one(column: pa.ChunkedArray[Any] | Array) -> Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.dictionary_decode() if isinstance(whole, pa.DictionaryArray) else whole


def fitted(values: Array, column: Column) -> tuple[Array, dict[int, str]]:
    """The column in its schema's type, misfits as null, and the text of each misfit by row."""
    misfits: dict[int, str] = {}
    fit = pa.concat_arrays(_cast_parts(values, column.type, 0, misfits))
    if pa.types.is_floating(column.type):
        fit = _one_float(fit)
    elif column.source_type == "json":
        fit = _json(fit)
    return fit, misfits


def _cast_parts(values: Array, to: pa.DataType, first_row: int, misfits: dict[int, str]) -> list[Array]:
    """Casts whole stretches, halving where a value does not fit until it stands alone."""
    try:
        return [_cast(values, to)]
    except _UNCASTABLE:
        if values.null_count == len(values):
            return [_nulls(len(values), to)]
        if len(values) == 1:
            misfits[first_row] = str(values[0])
            return [_nulls(1, to)]
        half = len(values) // 2
        return [
            *_cast_parts(values[:half], to, first_row, misfits),
            *_cast_parts(values[half:], to, first_row + half, misfits),
        ]


def _nulls(count: int, kind: pa.DataType) -> Array:
    return pa.array([None] * count, kind)


def _cast(values: Array, to: pa.DataType) -> Array:
    kind = values.type
    if kind == to or pa.types.is_null(kind):
        return values.cast(to)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _read(values.cast(pa.utf8()), to)
    if pa.types.is_floating(kind):
        # A decimal only where its shortest text says one: Arrow's own cast would round.
        return _read(values.cast(pa.utf8()), to) if pa.types.is_decimal(to) else values.cast(to)
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(to):
        return _zoned(values.cast(pa.timestamp(to.unit, kind.tz)), to)
    if pa.types.is_integer(kind) and pa.types.is_temporal(to):
        raise ValueError("a number does not say its unit")
    cast: Array = values.cast(to)
    if not cast.cast(kind).equals(values):
        raise ValueError("the cast loses something")
    return cast


def _zoned(values: Array, to: pa.DataType) -> Array:
    """Times are UTC with and without a zone."""
    return values.view(pa.int64()).view(to)


def _read(texts: Array, to: pa.DataType) -> Array:
    """Text as `headrace decode` writes values of that type."""
    if pa.types.is_timestamp(to):
        naive = pc.replace_substring_regex(texts, _ZONE.pattern, "") if to.tz else texts
        return _zoned(naive.cast(pa.timestamp(to.unit)), to)
    if pa.types.is_duration(to):
        return pa.array([None if text is None else _duration_us(text) for text in texts.to_pylist()], pa.int64()).view(
            to
        )
    return texts.cast(to)


def _duration_us(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, hours, minutes, seconds, fraction = match.groups()
    us = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int(f"{fraction or 0:0<6}")
    return -us if sign else us


def _one_float(values: Array) -> Array:
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(math.nan, values.type)
    whole: Array = pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))
    return whole


def _json(texts: Array) -> Array:
    return pa.array([None if text is None else _ordered(text) for text in texts.to_pylist()], pa.utf8())


def _ordered(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)
    except ValueError:
        return text
