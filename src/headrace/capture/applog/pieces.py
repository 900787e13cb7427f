"""Pieces of files into lines, whole columns at a time.

A line's `_ums_id_` begins at 4 x (bytes that were read of all files before it) + 2. It only grows along the log, as the sum does, and a line
of n bytes (its end included, so n is 1 at least) has 4 n ids. Rows take every second one: up to n of them end at 4 x before + 2 n, below
the next line's first. An array of n elements takes n bytes at least, so each line may become all the rows that one array has.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.applog.followed import Piece
from headrace.capture.lines.fields import EVENT, HOST, LINE, PATH, Array, Fields, call, holds_for_any, numbers
from headrace.capture.lines.tables import Lines

IDS_PER_BYTE = 4
_FIRST_ID = 2
_BYTE_ORDER_MARK = "\ufeff"


def splits_at_newlines(encoding: str) -> bool:
    """Whether the byte 10 ends lines in an encoding, and does nothing else; LookupError when there is none of that name."""
    codecs.lookup(encoding)
    return "a\nb".encode(encoding) == b"a\nb"


def lines_of(pieces: Sequence[Piece], before_bytes: int, longest_bytes: int, encoding: str) -> Lines:
    """The lines that are not empty. `before_bytes`: what was read of all files before these pieces."""
    data = b"".join(_ended(piece) for piece in pieces)
    found: Array = pc.split_pattern(pa.array([data], pa.binary()), "\n").flatten()[:-1]
    lengths = call("add", call("binary_length", found).cast(pa.int64()), 1)
    starts = call("subtract", pc.cumulative_sum(lengths), lengths)
    of_piece, offset_shift, id_shift = _shifts(pieces, before_bytes)
    is_cut = pa.array([piece.is_cut for piece in pieces], pa.bool_()).take(of_piece)
    is_long = call("or", is_cut, call("greater", lengths, longest_bytes + 1))
    if holds_for_any(is_long):
        found = call("if_else", is_long, pc.binary_slice(found, 0, longest_bytes), found)
    texts = call("utf8_rtrim", _decoded(found, encoding), options=pc.TrimOptions("\r"))
    texts = call("utf8_ltrim", texts, options=pc.TrimOptions(_BYTE_ORDER_MARK))
    there = call("greater", call("binary_length", texts), 0)
    has_blank = not pc.all(there).as_py()

    def kept(column: Array) -> Array:
        return column.filter(there) if has_blank else column

    ids = call("multiply", call("add", starts, id_shift.take(of_piece)), IDS_PER_BYTE)
    fault = pa.scalar(f"the line is longer than {longest_bytes:,} bytes: this is its beginning")
    return Lines(
        fields=_fields(kept(texts), pieces, kept(of_piece)),
        times_us=pa.nulls(pc.sum(there).as_py() or 0, pa.int64()),
        offsets=kept(call("add", starts, offset_shift.take(of_piece))),
        first_ids=kept(call("add", ids, _FIRST_ID)),
        rooms=kept(lengths),
        faults=kept(call("if_else", is_long, fault, pa.scalar(None, pa.utf8()))),
    )


def _ended(piece: Piece) -> bytes:
    return piece.data if piece.data.endswith(b"\n") or not piece.data else piece.data + b"\n"


def _shifts(pieces: Sequence[Piece], before_bytes: int) -> tuple[Array, Array, Array]:
    """Of which piece each line is; and what leads from its start in all data to its offset, and to the bytes read before it."""
    of_piece: list[int] = []
    offset_shift: list[int] = []
    id_shift: list[int] = []
    start = 0
    for number, piece in enumerate(pieces):
        data = _ended(piece)
        of_piece += [number] * data.count(b"\n")
        offset_shift.append(piece.offset - start)
        id_shift.append(before_bytes - start)
        start += len(data)
        before_bytes += piece.used
    return pa.array(of_piece, pa.int64()), pa.array(offset_shift, pa.int64()), pa.array(id_shift, pa.int64())


def _decoded(lines: Array, encoding: str) -> Array:
    """Text; bytes that are none in the encoding stand as ``\\xff``."""
    if codecs.lookup(encoding).name == "utf-8":
        try:
            return lines.cast(pa.utf8())
        except pa.ArrowInvalid:
            pass
    bytes_of: list[Any] = lines.to_pylist()
    return pa.array([text.decode(encoding, "backslashreplace") for text in bytes_of], pa.utf8())


def _fields(texts: Array, pieces: Sequence[Piece], of_piece: Array) -> Fields:
    by_piece = {HOST: [piece.host for piece in pieces], PATH: [piece.path for piece in pieces]}
    columns: dict[str, Array] = {name: pa.array(values, pa.utf8()).take(of_piece) for name, values in by_piece.items()}
    columns |= {LINE: texts, EVENT: pa.nulls(len(texts), pa.utf8())}
    return Fields(columns, numbers(len(texts)))
