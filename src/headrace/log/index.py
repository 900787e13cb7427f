"""The sparse index of a segment: where about an offset or a time is. Never trusted, rebuilt from the segment when in doubt.

::

    00000000000000041230.index     one row per 256 KiB of the segment, each for the first batch after such a step
    +-------------+----------+-----------------+-------+
    | base offset | position | max time before | crc32 |        max time before = largest time of the segment's
    | u64         | u64      | i64             | u32   |        entries that stand before this batch
    +-------------+----------+-----------------+-------+

Crash story: rows are written after their batch was acknowledged, and not synced. Rows that are lost, torn or wrong end the
index where they stand (checksum, growing positions), and the last good one must point at a batch with its offset;
otherwise the index counts as empty. Behind the last good row the segment's headers are read, which is all that is lost.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptError
from headrace.log.disk import Disk, OpenFile
from headrace.log.record import Header
from headrace.log.segment import UNBOUNDED, Extent, headers

STEP_BYTES = 256 << 10
NO_TIME = -(1 << 63)
_FIELDS = struct.Struct("<QQq")
_CRC = struct.Struct("<I")
_ROW_BYTES = _FIELDS.size + _CRC.size


class Row(NamedTuple):
    """The batch with `base_offset` stands at `position`; no entry before it in the segment is newer than `max_time_ms`."""

    base_offset: int
    position: int
    max_time_ms: int

    def to_bytes(self) -> bytes:
        fields = _FIELDS.pack(*self)
        return fields + _CRC.pack(zlib.crc32(fields))


def index_path(segment: Path) -> Path:
    return segment.with_suffix(".index")


class SegmentIndex:
    """The rows of one segment, first the one for its first batch, which is not in the file."""

    def __init__(self, base: int) -> None:
        self.rows = [Row(base, 0, NO_TIME)]

    @classmethod
    def load(cls, disk: Disk, segment: Path, extent: Extent, base: int) -> SegmentIndex:
        """What the segment's index file holds of use about `extent` of it."""
        index = cls(base)
        for row in _rows(_content(disk, index_path(segment))):
            is_inside = row.position < extent.limit and row.base_offset < extent.stop_offset
            if not is_inside or row.position <= index.rows[-1].position:
                break
            index.rows.append(row)
        return index if _points_at_batch(extent, index.rows[-1]) else cls(base)

    def before_offset(self, offset: int) -> Row:
        """The last row at or before `offset`."""
        return self.rows[max(0, bisect_right(self.rows, offset, key=lambda row: row.base_offset) - 1)]

    def before_time(self, time_ms: int) -> Row:
        """The last row before which there is no entry of `time_ms` or later."""
        return self.rows[max(0, bisect_left(self.rows, time_ms, key=lambda row: row.max_time_ms) - 1)]

    def note(self, base_offset: int, position: int, max_time_before_ms: int) -> Row | None:
        """Tells of a batch; its row when the index took one."""
        if position - self.rows[-1].position < STEP_BYTES:
            return None
        row = Row(base_offset, position, max_time_before_ms)
        self.rows.append(row)
        return row

    def walk(self, extent: Extent, row: Row) -> Iterator[tuple[int, Header]]:
        """Positions and headers of the batches from `row` on; adds the rows that the index lacks."""
        max_time_ms = row.max_time_ms
        for position, header in headers(extent, row.position, row.base_offset):
            self.note(header.base_offset, position, max_time_ms)
            max_time_ms = max(max_time_ms, header.max_time_ms)
            yield position, header

    def max_time_ms(self, extent: Extent) -> int:
        """The largest time of all entries of `extent`."""
        last = self.rows[-1]
        times = [header.max_time_ms for _, header in self.walk(extent, last)]
        return max([last.max_time_ms, *times])


class IndexWriter:
    """Keeps the index file of the segment that is being written. It may fail without harm: an index is only a help."""

    def __init__(self, disk: Disk, segment: OpenFile, base: int, limit: int) -> None:
        extent = Extent(segment, limit, UNBOUNDED)
        self._disk = disk
        self._index = SegmentIndex.load(disk, segment.path, extent, base)
        known = len(self._index.rows)
        self.max_time_ms = self._index.max_time_ms(extent)
        self._file = self._open(index_path(segment.path))
        for number, row in enumerate(self._index.rows[known:], known):
            self._write(number, row)

    def note(self, base_offset: int, position: int, batch_time_ms: int) -> None:
        row = self._index.note(base_offset, position, self.max_time_ms)
        self.max_time_ms = max(self.max_time_ms, batch_time_ms)
        if row is not None:
            self._write(len(self._index.rows) - 1, row)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self, path: Path) -> OpenFile | None:
        try:
            return OpenFile(self._disk, path, os.O_RDWR | os.O_CREAT)
        except OSError:
            return None

    def _write(self, number: int, row: Row) -> None:
        if self._file is None:
            return
        try:
            self._disk.pwrite(self._file.fd, row.to_bytes(), (number - 1) * _ROW_BYTES)
        except OSError:
            self.close()
            self._file = None


def _content(disk: Disk, path: Path) -> bytes:
    try:
        file = OpenFile(disk, path)
        return disk.pread(file.fd, disk.size_bytes(file.fd), 0)
    except OSError:
        return b""


def _rows(content: bytes) -> list[Row]:
    """The rows up to the first that is torn or wrong."""
    rows: list[Row] = []
    for at in range(0, len(content) - _ROW_BYTES + 1, _ROW_BYTES):
        row = Row._make(_FIELDS.unpack_from(content, at))
        if content[at : at + _ROW_BYTES] != row.to_bytes():
            break
        rows.append(row)
    return rows


def _points_at_batch(extent: Extent, row: Row) -> bool:
    """Whether `row` points at a batch of its offset. The row of the segment's first batch needs no proof."""
    if row.position == 0:
        return True
    try:
        return next(headers(extent, row.position, row.base_offset), None) is not None
    except CorruptError:
        return False
