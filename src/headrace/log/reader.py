"""The readers' side of one partition. Any number of them, in any process; they take no lock and change nothing."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptError, FatalError
from headrace.log.base import Record, Span
from headrace.log.disk import Disk, OpenFile, storage
from headrace.log.end import END_BYTES, End
from headrace.log.index import SegmentIndex
from headrace.log.record import Run
from headrace.log.segment import Extent, damaged, runs, segment_bases, segment_path

_SHORTEST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.003
_TORN_READS = 100
_MOST_CURSORS = 64


class _Place(NamedTuple):
    """Where a batch stands: in which segment, at which byte, and the offset of its first entry."""

    segment: int
    position: int
    offset: int


class PartitionReader:
    """Reads one partition. Threads may share it: what it remembers are only short cuts."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._end_file: OpenFile | None = None
        self._file: OpenFile | None = None
        self._bases: list[int] = []
        self._index: tuple[int, SegmentIndex] | None = None
        self._cursors: dict[int, _Place] = {}

    def end(self) -> End | None:
        """What the writer has published; None when there is no such partition."""
        file = self._end_file
        if file is None or not self._disk.is_linked(file.fd):
            # At first, and when the partition was deleted and perhaps made anew: what was known is void.
            self._file, self._index = None, None
            self._bases = []
            self._cursors.clear()
            file = self._end_file = self._open_end()
        if file is None:
            return None
        for _ in range(_TORN_READS):
            with storage("read", file.path):
                end = End.from_bytes(self._disk.pread(file.fd, END_BYTES, 0))
            if end is not None:
                return end
            if not segment_bases(self._disk, self._directory):
                return None  # its first writer is just about to publish
            time.sleep(_SHORTEST_PAUSE_S)
        raise CorruptError(
            f"{file.path} is damaged", fix="start the writer (the capture) once: it finds the end of the log anew"
        )

    def read(self, span: Span) -> Iterator[Record]:
        """See `Log.read`."""
        end = self.end()
        stop = min(span.stop, end.next_offset) if end is not None else span.start
        if end is None or span.start >= stop:
            return
        self._require_kept(span.start, end)
        place = self._resume(span.start, end)
        for segment, position, run in self._runs(place, span.start, stop, end):
            yield from run.records
            place = _Place(segment, position + run.last_at, run.last_offset)
            if stop >= run.next_offset:
                place = _Place(segment, position + run.stop_at, run.next_offset)
        if len(self._cursors) >= _MOST_CURSORS:
            self._cursors.clear()
        self._cursors[stop] = place

    def wait(self, offset: int, timeout_s: float) -> bool:
        """See `Log.wait`."""
        give_up_at = time.monotonic() + timeout_s
        pause_s = _SHORTEST_PAUSE_S
        while True:
            end = self.end()
            if end is not None and offset < end.next_offset:
                return True
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.02, _LONGEST_PAUSE_S)

    def offset_at(self, time_ms: int) -> int:
        """The first offset whose entry has this time or a later one; the end of the log when there is none."""
        end = self.end()
        if end is None:
            return 0
        segment = end.start
        while segment < end.next_offset:
            extent = self._extent(segment, end)
            index = self._index_of(segment, extent)
            for _, header in index.walk(extent, index.before_time(time_ms)):
                if header.max_time_ms >= time_ms:
                    found = self.read(Span(header.base_offset, header.next_offset))
                    return next(record.offset for record in found if record.entry.time_ms >= time_ms)
            segment = extent.stop_offset
        return end.next_offset

    def segments(self) -> list[int]:
        """The first offsets of the segments from the oldest kept one on."""
        end = self.end()
        return [base for base in segment_bases(self._disk, self._directory) if end is None or base >= end.start]

    def _open_end(self) -> OpenFile | None:
        path = self._directory / "end"
        with storage("open", path):
            try:
                return OpenFile(self._disk, path)
            except FileNotFoundError:
                return None

    def _runs(self, place: _Place, start: int, stop: int, end: End) -> Iterator[tuple[int, int, Run]]:
        """The batches from `place` up to the one with the entry before `stop`, with their segment and the position of their chunk."""
        segment, position, offset = place
        while offset < stop:
            extent = self._extent(segment, end)
            part = extent._replace(stop_offset=min(stop, extent.stop_offset))
            for chunk_at, run in runs(part, position, offset, start):
                yield segment, chunk_at, run
                offset = run.next_offset
            if offset < part.stop_offset:
                raise damaged(extent.file.path, extent.limit, f"it ends before offset {part.stop_offset}")
            segment, position = offset, 0

    def _resume(self, offset: int, end: End) -> _Place:
        """Where a read ended that may go on at `offset` now; the segment in which it ended may be closed, or gone."""
        place = self._cursors.pop(offset, None)
        if place is None:
            return self._seek(offset, end)
        if place.segment != end.segment and offset in self._known_bases(end):
            return _Place(offset, 0, offset)
        return place

    def _seek(self, offset: int, end: End) -> _Place:
        """Where the batch with `offset` stands, by the index."""
        bases = self._known_bases(end)
        if bases[0] > offset:
            raise damaged(segment_path(self._directory, end.start), 0, "the segment is missing")
        segment = bases[bisect_right(bases, offset) - 1]
        extent = self._extent(segment, end)
        index = self._index_of(segment, extent)
        for position, header in index.walk(extent, index.before_offset(offset)):
            if offset < header.next_offset:
                return _Place(segment, position, header.base_offset)
        raise damaged(extent.file.path, extent.limit, f"it ends before offset {offset}")

    def _extent(self, segment: int, end: End) -> Extent:
        path = segment_path(self._directory, segment)
        file = self._file
        if file is None or file.path != path:
            file = self._file = self._open_segment(path, segment)
        if segment == end.segment:
            return Extent(file, end.position, end.next_offset)
        bases = self._known_bases(end)
        return Extent(file, self._disk.size_bytes(file.fd), bases[bisect_right(bases, segment)])

    def _open_segment(self, path: Path, segment: int) -> OpenFile:
        with storage("open", path):
            try:
                return OpenFile(self._disk, path)
            except FileNotFoundError:
                end = self.end()
                if end is not None:
                    self._require_kept(segment, end)
                raise damaged(path, 0, "the segment is missing") from None

    def _known_bases(self, end: End) -> list[int]:
        """The first offsets of all segments up to the newest, listed again only when there is a newer one."""
        if not self._bases or self._bases[-1] < end.segment:
            self._bases = sorted({*segment_bases(self._disk, self._directory), end.segment})
        return self._bases

    def _index_of(self, segment: int, extent: Extent) -> SegmentIndex:
        known = self._index
        if known is None or known[0] != segment:
            known = self._index = (
                segment,
                SegmentIndex.load(self._disk, segment_path(self._directory, segment), extent, segment),
            )
        return known[1]

    def _require_kept(self, offset: int, end: End) -> None:
        if offset < end.start:
            raise FatalError(
                f"offset {offset} of {self._directory} is no longer kept: the log starts at {end.start}",
                fix="keep more (retention of the log), or start the reader from the oldest entry, or load the tables anew",
            )
