"""The embedded log on HDFS: segments that grow, as on a local disk, with the NameNode as the one who says who writes.

::

    hdfs://…/.headrace-log                               marks the directory as a log; empty
    hdfs://…/<topic>/<partition>/
        00000000000000000000-0000000001.log              segments: <first offset>-<writer>; batches as in record.py, one per append
        00000000000000041230-0000000003.log
        writer-0000000003                                the newest writer's number; empty

An append writes one batch at the end of its segment and hsyncs it: then its bytes are on the disks of all DataNodes that hold them, and
the NameNode knows the new length. That length is what readers go by, so there is no file `end`: what a listing shows is durable.

One writer. Who wants to write (1) creates the next `writer-…`, which one of several manages, (2) ends the lease on the newest two
segments (recoverLease), (3) reads where the log ends. The one before finds its file taken from it at its next hsync. When it is
between two segments, it has none that could be taken: so whoever has made a segment looks for newer writers before it writes into it.
That is enough: either it made the segment before the other listed (2), or the other's number (1) was there when it looked. A number
stands in a segment's name, so no two writers ever open the same file.

What a crash leaves:

========================= ================================================ ==================================================
crash point               at the NameNode                                  the next writer
========================= ================================================ ==================================================
in mid append             an open file; a part of the batch, or all of it  ends the lease; a batch that is whole stays, a torn one is
                                                                           left behind: the next segment's name says where it begins
append done, not returned the same, with the whole batch                   keeps it; it is there though never acknowledged
roll                      a segment without a batch                        reads nothing from it; of segments with the same first
                                                                           offset that of the newest writer counts
take-over                 a `writer-…` and no segment                      takes one more number
retention                 some of the oldest segments are gone             drops the others with the next ones
a DataNode dies           the append fails, its fate open; this process    as the same process does: take over, look, go on
                          takes over from itself, and asks to try again
                          while no DataNode holds the file's end
========================= ================================================ ==================================================

Readers see a torn batch at the end of the newest segment as not there yet. Segments of writers that died are read as far as the
next segment begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import Field

from headrace.errors import FencedError, HeadraceError
from headrace.log.base import Entry, Span
from headrace.log.layout import MARKER
from headrace.log.record import encode
from headrace.log.retention import Keep, Retention
from headrace.log.shared.log import SharedLog, SharedWriter, keep_of
from headrace.log.shared.reader import Piece, SharedReader
from headrace.model import Component
from headrace.storage.base import Found
from headrace.storage.hdfs import GrowingFile, HdfsFileStore
from headrace.storage.options import HdfsOptions

_MIB = 1 << 20
_SEGMENT = re.compile(r"(\d{20})-\d{10}\.log")
_WRITER = re.compile(r"writer-(\d{10})")


class HdfsConfig(Component, HdfsOptions):
    """The embedded log in a directory of HDFS."""

    type: Literal["hdfs"] = "hdfs"
    path: Annotated[str, Field(pattern=r"^hdfs://[^/\s]+/[^\s]+$")]
    """The log's directory, ``hdfs://namenode:8020/logs/headrace``; made by the first append."""
    segment_bytes: int = Field(default=128 * _MIB, ge=1)
    """A new file is begun when the newest would become longer than this."""
    retention: Retention = Retention()
    """When old entries may go. Everything is kept by default, and the last hour always."""


class HdfsLog(SharedLog):
    """The `Log` on HDFS."""

    Config = HdfsConfig

    def __init__(self, config: HdfsConfig) -> None:
        self._config = config
        self._store = HdfsFileStore(config.path, config)
        super().__init__(self._store)

    def _new_reader(self, directory: str) -> SharedReader:
        return SharedReader(self._store, directory, segments, may_be_torn=True)

    def _new_writer(self, directory: str) -> SharedWriter:
        reader = self._new_reader(directory)
        return SegmentWriter(
            self._store, directory, reader, self._config.segment_bytes, keep_of(self._config.retention)
        )

    def _mark(self) -> None:
        self._store.create(MARKER, b"")


def segments(known: list[Piece], found: Iterable[Found]) -> list[Piece]:
    """The segments by their first offset; of several with the same one that of the newest writer."""
    pieces = list(known)
    for name, size_bytes in found:
        match = _SEGMENT.fullmatch(name)
        if match is None:
            continue
        if pieces and pieces[-1].base == int(match[1]):
            pieces.pop()
        pieces.append(Piece(int(match[1]), name, size_bytes))
    return pieces


class SegmentWriter:
    """Owns one partition from construction until `close` or until another takes it over."""

    def __init__(
        self, store: HdfsFileStore, directory: str, reader: SharedReader, segment_bytes: int, keep: Keep | None
    ) -> None:
        self._store = store
        self._directory = directory
        self._reader = reader
        self._segment_bytes = segment_bytes
        self._keep = keep
        self._file: GrowingFile | None = None
        self._size_bytes = 0
        self._is_fenced = False
        self.must_reopen = False
        self.held_from: int | None = None
        self._number = self._claim()
        self._stop_the_one_before()
        self._next = reader.end() or 0

    def append(self, entries: Sequence[Entry]) -> Span:
        """One batch, on the DataNodes' disks on return; see `Log.append`."""
        if not entries or self._is_fenced:
            self._require()
            return Span(self._next, self._next)
        parts = encode(entries, self._next, self._number)
        self.must_reopen = True
        try:
            self._room_for(sum(map(len, parts)), max(entry.time_ms for entry in entries)).append(parts)
        except (HeadraceError, FileNotFoundError) as error:
            self._require()
            if isinstance(error, FileNotFoundError):
                raise self._store.away("append to", self._directory, str(error)) from error
            raise
        self.must_reopen = False
        self._size_bytes += sum(map(len, parts))
        span = Span(self._next, self._next + len(entries))
        self._next = span.stop
        return span

    def close(self) -> None:
        """Closes the segment, so that the next writer need not wait for its lease."""
        with suppress(HeadraceError, FileNotFoundError):  # whoever takes over ends the lease
            if self._file is not None:
                self._file.close()
        self._file = None

    def _claim(self) -> int:
        """Takes the next number, which makes every earlier writer an old one."""
        while True:
            number = self._newest_claim() + 1
            with suppress(FileExistsError):
                self._store.grow(self._claim_path(number)).close()
                break
        for name, _ in list(self._store.files(self._directory)):
            match = _WRITER.fullmatch(name)
            if match is not None and int(match[1]) < number:
                self._store.delete(f"{self._directory}/{name}")
        return number

    def _stop_the_one_before(self) -> None:
        names = [found.name for found in self._store.files(self._directory) if _SEGMENT.fullmatch(found.name)]
        for name in names[-2:]:
            with suppress(FileNotFoundError):
                self._store.stop_writers(f"{self._directory}/{name}")

    def _require(self) -> None:
        """Raises FencedError when there is a newer writer, and for ever after."""
        if not self._is_fenced and self._newest_claim() == self._number:
            return
        self._is_fenced = True
        self.must_reopen = False
        raise self._reader.taken_over()

    def _newest_claim(self) -> int:
        names = (found.name for found in self._store.files(self._directory))
        return max((int(match[1]) for name in names if (match := _WRITER.fullmatch(name))), default=0)

    def _claim_path(self, number: int) -> str:
        return f"{self._directory}/writer-{number:010d}"

    def _room_for(self, batch_bytes: int, now_ms: int) -> GrowingFile:
        """The open segment, or a new one when there is none or the batch would make it too long."""
        if self._file is not None and (self._size_bytes == 0 or self._size_bytes + batch_bytes <= self._segment_bytes):
            return self._file
        if self._file is not None:
            self._file.close()
        path = f"{self._directory}/{self._next:020d}-{self._number:010d}.log"
        file = self._store.grow(path)
        try:
            self._require()
        except FencedError:
            self._store.delete(path)
            raise
        self._file, self._size_bytes = file, 0
        if self._keep is not None:
            self._drop_expired(self._keep, now_ms)
        return file

    def _drop_expired(self, keep: Keep, now_ms: int) -> None:
        """Oldest first, so that what is left has no gap; with them goes what dead writers left before the new start."""
        _, kept = self._reader.retained(keep, now_ms, self.held_from)
        start = kept[0].base if kept else 0
        for found in list(self._store.files(self._directory)):
            match = _SEGMENT.fullmatch(found.name)
            if match is not None and int(match[1]) < start:
                self._store.delete(f"{self._directory}/{found.name}")
