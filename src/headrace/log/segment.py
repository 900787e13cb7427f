"""Segments: files of batches, one after the other, named by the offset of their first entry.

::

    00000000000000000000.log    | batch | batch | batch | ...                        (record.py draws a batch)
    00000000000000041230.log    | batch | batch | what may be torn or not yet published

Invariants. The batches of a segment lie without gaps, and so do their offsets. A segment ends where the next one's name
says, whatever bytes follow: a writer that was fenced may have left some there. The newest segment ends where the published
end says (end.py). A segment of which something was published is never replaced or cut before that place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.errors import CorruptError
from headrace.log.disk import Disk, storage
from headrace.log.record import HEADER, MAGIC, Header, Run, header_at, is_intact, is_plausible, run_at

CHUNK_BYTES = 256 << 10
_HOP_BYTES = 64 << 10
_DIGITS = 20
_SUFFIX = ".log"
UNBOUNDED = 1 << 63
"""An offset that no log reaches: read as far as there are batches."""


class Readable(Protocol):
    """A segment's file, wherever it lies."""

    @property
    def path(self) -> object:
        """What messages call it."""
        ...

    def read(self, size_bytes: int, position: int) -> bytes:
        """`size_bytes` from `position` on, less only where the file ends."""
        ...


class Extent(NamedTuple):
    """The part of a segment that may be read: the bytes before `limit`, the offsets before `stop_offset`."""

    file: Readable
    limit: int
    stop_offset: int


def segment_path(directory: Path, base: int) -> Path:
    return directory / f"{base:0{_DIGITS}d}{_SUFFIX}"


def segment_base(name: str) -> int | None:
    """The first offset of the segment with this file name; None when it is not a segment's name."""
    digits = name.removesuffix(_SUFFIX)
    is_ours = len(digits) == _DIGITS and digits.isascii() and digits.isdecimal() and name.endswith(_SUFFIX)
    return int(digits) if is_ours else None


def segment_bases(disk: Disk, directory: Path) -> list[int]:
    """The first offsets of a partition's segments, oldest first."""
    with storage("list", directory):
        names = disk.names(directory)
    return sorted(base for name in names if (base := segment_base(name)) is not None)


def runs(extent: Extent, position: int, next_offset: int, start: int) -> Iterator[tuple[int, Run]]:
    """The batches from `position` on, where `next_offset` is due: those of a chunk together, and where the chunk begins.

    Only records from `start` on are made. Raises CorruptError at the first batch that is not whole, intact and in its place.
    """
    file, limit, stop_offset = extent
    wanted_bytes = CHUNK_BYTES
    while position < limit and next_offset < stop_offset:
        chunk = _read(file, min(wanted_bytes, limit - position), position)
        run = run_at(chunk, 0, next_offset, start, stop_offset)
        if run.stop_at:
            yield position, run
        at, next_offset = run.stop_at, run.next_offset
        wanted_bytes = CHUNK_BYTES
        if next_offset < stop_offset and len(chunk) - at >= HEADER.size:
            header = header_at(chunk, at)
            _require_in_place(extent, position + at, header, next_offset)
            if header.length <= len(chunk) - at:
                raise damaged(file.path, position + at, "the checksum of a batch differs")
            wanted_bytes = max(CHUNK_BYTES, header.length)
        if len(chunk) < HEADER.size:
            raise damaged(file.path, position, "a batch is incomplete")
        position += at


def headers(
    extent: Extent, position: int, next_offset: int, *, may_be_torn: bool = False
) -> Iterator[tuple[int, Header]]:
    """Positions and headers of the batches from `position` on, where `next_offset` is due; the batches themselves are neither read nor checked.

    With `may_be_torn` a batch that runs beyond `limit` is the end, not damage.
    """
    file, limit, stop_offset = extent
    while limit - position >= HEADER.size and next_offset < stop_offset:
        chunk = _read(file, min(_HOP_BYTES, limit - position), position)
        at = 0
        while len(chunk) - at >= HEADER.size and next_offset < stop_offset:
            header = header_at(chunk, at)
            if may_be_torn and is_plausible(header) and header.length > limit - position - at:
                return
            _require_in_place(extent, position + at, header, next_offset)
            yield position + at, header
            at += header.length
            next_offset = header.next_offset
        position += at


def holds_batch_after(file: Readable, position: int, limit: int, offset: int) -> bool:
    """Whether anywhere after `position` there is an intact batch with offsets above `offset`: then what stands at
    `position` is damage in the middle of the log, not the torn end of it."""
    rest = _read(file, limit - position, position)
    at = rest.find(MAGIC, 1)
    while 0 <= at <= len(rest) - HEADER.size:
        header = header_at(rest, at)
        whole = is_plausible(header) and header.length <= len(rest) - at
        if whole and header.base_offset > offset and is_intact(header, rest, at):
            return True
        at = rest.find(MAGIC, at + 1)
    return False


def damaged(path: object, position: int, reason: str) -> CorruptError:
    return CorruptError(
        f"{path} is damaged at byte {position}: {reason}",
        fix="check the disk; restore this partition from its copy, or move its directory away and capture again",
    )


def _require_in_place(extent: Extent, position: int, header: Header, next_offset: int) -> None:
    path = extent.file.path
    if not is_plausible(header):
        raise damaged(path, position, "there is no batch")
    if header.base_offset != next_offset:
        raise damaged(path, position, f"offset {header.base_offset} stands where {next_offset} is due")
    if header.length > extent.limit - position:
        raise damaged(path, position, f"a batch of {header.length} bytes runs beyond the end")


def _read(file: Readable, size_bytes: int, position: int) -> bytes:
    """Exactly `size_bytes`."""
    chunk = file.read(size_bytes, position)
    if len(chunk) < size_bytes:
        raise damaged(file.path, position + len(chunk), "the file ends before its published end")
    return chunk
