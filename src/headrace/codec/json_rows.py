"""Rows as JSON objects, one text each: numbers as numbers, JSON as it is, all else as MySQL prints it, bytes in base64."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from headrace.codec.texts import (
    Described,
    Images,
    Style,
    Texts,
    all_quoted,
    json_or_null,
    numbers,
    quoted_beyond,
    texts,
)


def row_objects(
    columns: Sequence[Described],
    arrays: Sequence[pa.Array[Any]],
    raw: pa.Array[Any],
    left_out: Sequence[Collection[str] | None],
) -> Texts:
    """The rows of a table (see `Images`)."""
    return Images(columns, arrays, raw, left_out, _STYLE).objects()


def _fragments(array: pa.Array[Any], column: Described) -> Texts:
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        return numbers(array, column.source_type)
    found = texts(array, column.source_type)
    return json_or_null(found) if column.source_type == "json" else all_quoted(found)


_STYLE = Style(_fragments, quoted_beyond)
