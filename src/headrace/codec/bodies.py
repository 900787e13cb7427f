"""Messages as the bodies of loads, whole lists at a time: a face of rust/src/body, whose head draws what becomes what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from headrace._native import BodyLines, Separated

__all__ = ["BodyLines", "Made", "Separated", "of_columns", "of_json", "of_separated"]


class Made(NamedTuple):
    """A body. `refused`: the number of a message, and why something of it is not in the body."""

    data: bytes
    rows: int
    refused: list[tuple[int, str]]


def of_json(
    lines: BodyLines, texts: Sequence[bytes | None], places: Sequence[Sequence[str]], constants: Sequence[str]
) -> Made:
    """JSON objects, a row each: what stands at the places, then the constants."""
    return Made(*lines.of_json(texts, places, constants))


def of_separated(
    lines: BodyLines,
    texts: Sequence[bytes | None],
    format_: Separated,
    places: Sequence[int],
    constants: Sequence[str],
) -> Made:
    """Records of separated fields, one or more in a message: the fields at the places, then the constants."""
    return Made(*lines.of_separated(texts, format_, places, constants))


def of_columns(lines: BodyLines, columns: Mapping[str, pa.Array[Any]], constants: Sequence[str]) -> Made:
    """Columns of text, then the constants; `refused` has numbers of rows."""
    return Made(*lines.of_columns(pa.record_batch(dict(columns)), constants))
