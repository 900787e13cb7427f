"""Reports and their answers as bytes, little endian, in the bodies of HTTP requests. Needs nothing, so that clients stay small.

::

    report    "HRP1" | count u32 | progress i64 x count, µs since 1970 | member ids u32 x count | rows u32 x count
    answer    "HRA1" | input i64 | output i64 | global i64 | life u64
                       µs since 1970; the smallest i64 where there is none yet; another life: the server remembers no reports, tell all again

Ids are those that joining tells; they stay a member's own for ever. A member may stand in a report more than once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import CorruptError

MEDIA_TYPE = "application/vnd.headrace.watermark"
NEVER = -(1 << 63)
"""No progress is known."""
MOST_ROWS = (1 << 32) - 1
_REPORT, _ANSWER = b"HRP1", b"HRA1"
_HEAD = struct.Struct("<4sI")
_BODY = struct.Struct("<4sqqqQ")
_MEMBER_BYTES = 8 + 4 + 4


@dataclass(frozen=True, slots=True)
class Watermarks:
    """What a stage is told, in µs since 1970; NEVER where there is none yet."""

    input_us: int
    output_us: int
    global_us: int


@dataclass(frozen=True, slots=True)
class Report:
    """The columns of a report as bytes: progress (i64), ids and rows (u32)."""

    progress_us: memoryview
    ids: memoryview
    rows: memoryview


def encode_report(ids: Sequence[int], progress_us: Sequence[int], rows: Sequence[int]) -> bytes:
    count = len(ids)
    columns = struct.pack(f"<{count}q{count}I{count}I", *progress_us, *ids, *rows)
    return _HEAD.pack(_REPORT, count) + columns


def decode_report(body: bytes) -> Report:
    """CorruptError when the bytes are no report."""
    if len(body) < _HEAD.size or body[:4] != _REPORT:
        raise CorruptError("the body is no report", fix="send what headrace.watermark.wire describes, or JSON")
    count = _HEAD.unpack_from(body)[1]
    whole = _HEAD.size + count * _MEMBER_BYTES
    if len(body) != whole:
        raise CorruptError(f"a report of {count} members has {whole} bytes, not {len(body)}", fix="send whole reports")
    view = memoryview(body)
    ids_at = _HEAD.size + 8 * count
    rows_at = ids_at + 4 * count
    return Report(view[_HEAD.size : ids_at], view[ids_at:rows_at], view[rows_at:])


def encode_answer(marks: Watermarks, life: int) -> bytes:
    return _BODY.pack(_ANSWER, marks.input_us, marks.output_us, marks.global_us, life)


def decode_answer(body: bytes) -> tuple[Watermarks, int]:
    """CorruptError when the bytes are no answer."""
    if len(body) != _BODY.size or body[:4] != _ANSWER:
        raise CorruptError("the answer is none of a Watermark Server", fix="look at the server's address")
    _, *marks, life = _BODY.unpack(body)
    return Watermarks(*marks), life
