"""What stands at places in JSON texts, whole columns at a time: a face of rust/src/json.rs, whose head says what becomes of each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from headrace import _native

Place: TypeAlias = "Sequence[str | int]"
"""Keys of objects and numbers in arrays, from the outside."""


def members(texts: pa.Array[Any], places: Sequence[Place]) -> tuple[pa.Array[Any], list[pa.Array[Any]]]:
    """Which texts are an object or array, and for each place a column of what is there."""
    fits, *columns = pa.record_batch(_native.json_members(_batch(texts), places)).columns
    return fits, columns


def elements(texts: pa.Array[Any], place: Place) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """The elements of the arrays at one place: the numbers of their rows, which never fall, and their values."""
    rows, values = pa.record_batch(_native.json_elements(_batch(texts), place)).columns
    return rows, values


def _batch(texts: pa.Array[Any]) -> pa.RecordBatch:
    return pa.record_batch([texts], ["text"])
