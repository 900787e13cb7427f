"""The embedded log on S3 and what speaks its protocol: each append is an object, which one writer only can make.

::

    s3://bucket/…/.headrace-log                                       marks the prefix as a log; empty
    s3://bucket/…/<topic>/<partition>/
        00000000000000000000-00000000000000041230.log                 a segment: <first offset>-<offset behind>, many batches
        00000000000000041230.log                                      a unit: <first offset>, the batch of one append
        00000000000000041233.log                                      batches as in record.py
        00000000000000041234.log                                      a mark: a new writer begins (record.py, HRT1); it stays for ever

An append PUTs a unit under its first offset, on condition that there is no such object (``If-None-Match: *``). With the answer it is
durable, readable and whole, all at once: there is nothing to sync, nothing to publish and nothing that could be torn.

One writer. Who wants to write looks where the log ends and puts a mark there, in the same way. The mark takes an offset. The writer
before is about to put its next unit at that very offset, finds it taken, and stops: it can never write again, as it knows no other
offset. When its unit was quicker, the mark is refused, and the new writer looks again. An empty log needs no mark: whoever is first puts
offset 0, and the other one finds it taken.

For this, an offset that was taken must stay so, however long a writer sleeps before it asks for it. Where a writer may ask for its next
offset, the successor's mark stands, and marks are never deleted, by no merge and no retention: a few bytes for each start of a writer. Of
the other objects merges and retention do delete. Two can be asked for then, and both look once more before they count: a mark (its
writer had looked, and slept) and the unit at offset 0 (its writer had seen an empty log). What was deleted there has a piece behind it,
as the newest one is never deleted; so who finds nothing behind its own object is the writer.

An append without an answer (a time-out) is in doubt, and may even arrive later. This process then takes over from itself: its mark is
refused, so the unit is there, or it stands where the unit would have to come, which so can come no more.

Many small objects are slow to list and to read. When there are MOST_UNITS of them, or `segment_bytes`, the writer puts them together: a
segment is made, then its units are deleted. Units never change, so segments that two writers made at once are equal where they
overlap. What a crash leaves:

========================= ================================================ ==================================================
crash point               in the bucket                                    what becomes of it
========================= ================================================ ==================================================
before or in the PUT      nothing: objects are whole or absent             -
PUT done, not returned    the unit                                         it is there though never acknowledged
take-over                 a mark                                           readers pass over it
first unit, or a mark,    the object, where merged or dropped ones were    it does not count: a segment covers it, or there is a gap
not looked at                                                              behind it
segment made, units not   both                                             readers take the segment; the next merge deletes the units
deleted, or some of them
retention                 some of the oldest objects are gone              what stands before a gap does not count, and goes with the
                                                                           next, but for marks
========================= ================================================ ==================================================
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

from pydantic import Field

from headrace.errors import HeadraceError
from headrace.log.base import Entry, Span
from headrace.log.layout import MARKER
from headrace.log.record import HEADER, encode, encode_taken
from headrace.log.retention import Keep, Retention
from headrace.log.segment import UNBOUNDED, Extent, damaged, runs
from headrace.log.shared.log import SharedLog, SharedWriter, keep_of
from headrace.log.shared.reader import Piece, SharedReader
from headrace.model import Component
from headrace.storage.base import FileStore, Found
from headrace.storage.options import S3Options
from headrace.storage.s3 import S3FileStore

MOST_UNITS = 256
_MIB = 1 << 20
_FETCHERS = 8
_NAME = re.compile(r"(\d{20})(?:-(\d{20}))?\.log")


class S3Config(Component, S3Options):
    """The embedded log under a prefix of a bucket."""

    type: Literal["s3"] = "s3"
    path: Annotated[str, Field(pattern=r"^s3://[^/\s]+(/[^\s]*)?$")]
    """The log's place, ``s3://bucket/logs/headrace``. The bucket must be there."""
    segment_bytes: int = Field(default=64 * _MIB, ge=1)
    """Units are put together into segments of about this size (in memory, by the writer)."""
    retention: Retention = Retention()
    """When old entries may go. Everything is kept by default, and the last hour always."""


class S3Log(SharedLog):
    """The `Log` on S3."""

    Config = S3Config

    def __init__(self, config: S3Config) -> None:
        self._config = config
        self._store = S3FileStore(config.path, config)
        super().__init__(self._store)

    def _new_reader(self, directory: str) -> SharedReader:
        return SharedReader(self._store, directory, pieces, may_be_torn=False)

    def _new_writer(self, directory: str) -> SharedWriter:
        merger = Merger(
            self._store,
            directory,
            self._new_reader(directory),
            self._config.segment_bytes,
            keep_of(self._config.retention),
        )
        return UnitWriter(self._store, directory, self._new_reader(directory), merger)

    def _mark(self) -> None:
        self._store.require_conditional_writes(MARKER)


def pieces(known: list[Piece], found: Iterable[Found]) -> list[Piece]:
    """Segments, and the units and marks that no segment covers; nothing that stands before a gap."""
    counting = list(known)
    for name, size_bytes in found:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        piece = Piece(int(match[1]), name, size_bytes)
        covered_to = _stop(counting[-1]) if counting else 0
        if covered_to and max(piece.base + 1, _stop(piece)) <= covered_to:
            continue
        if counting and counting[-1].base == piece.base:
            counting.pop()
        elif covered_to and covered_to < piece.base:
            counting.clear()
        counting.append(piece)
    return counting


def _stop(piece: Piece) -> int:
    """The offset behind a segment or a mark; 0 for a unit, which neither name nor size tell."""
    match = _NAME.fullmatch(piece.name)
    assert match is not None
    return piece.base + 1 if _is_mark(piece) else int(match[2] or 0)


def _is_mark(piece: Piece) -> bool:
    """Any other batch has an entry behind its header."""
    return piece.size_bytes == HEADER.size


def _is_segment(piece: Piece) -> bool:
    return _stop(piece) > 0 and not _is_mark(piece)


class UnitWriter:
    """Owns one partition from construction until another takes it over. Nothing has to be closed."""

    def __init__(self, store: S3FileStore, directory: str, reader: SharedReader, merger: Merger) -> None:
        self._store = store
        self._directory = directory
        self._reader = reader
        self._merger = merger
        self._number = secrets.randbits(63)
        self._is_fenced = False
        self.must_reopen = False
        self.held_from: int | None = None
        self._next = self._take_over()

    def append(self, entries: Sequence[Entry]) -> Span:
        """One object; see `Log.append`."""
        if self._is_fenced:
            raise self._reader.taken_over()
        if not entries:
            return Span(self._next, self._next)
        content = b"".join(encode(entries, self._next, self._number))
        self.must_reopen = True
        is_ours = self._store.create(self._path(self._next), content)
        self.must_reopen = False
        span = Span(self._next, self._next + len(entries))
        if not is_ours or (span.start == 0 and not self._is_newest(span)):
            self._is_fenced = True
            raise self._reader.taken_over()
        self._next = span.stop
        self._merger.note(len(content), max(entry.time_ms for entry in entries), self.held_from)
        return span

    def close(self) -> None:
        """Waits for a merge that is under way."""
        self._merger.close()

    def _take_over(self) -> int:
        """The offset behind the mark of this writer, or 0 when the log is empty."""
        while True:
            end = self._reader.end()
            if end is None:
                return 0
            mark = Span(end, end + 1)
            if self._store.create(self._path(end), encode_taken(end, self._number)) and self._is_newest(mark):
                return mark.stop

    def _is_newest(self, made: Span) -> bool:
        """Whether the log ends with what was just put there."""
        pieces = self._reader.pieces()
        return [piece.name for piece in pieces[-1:]] == [self._name(made.start)] and self._reader.end() == made.stop

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{self._name(offset)}"

    def _name(self, offset: int) -> str:
        return f"{offset:020d}.log"


class Merger:
    """Puts units together, and drops what retention lets go, in a thread of its own. The log is right without it, only slower."""

    def __init__(
        self, store: FileStore, directory: str, reader: SharedReader, segment_bytes: int, keep: Keep | None
    ) -> None:
        self._store = store
        self._directory = directory
        self._reader = reader
        self._segment_bytes = segment_bytes
        self._keep = keep
        self._units = 0
        self._bytes = 0
        self._now_ms = 0
        self._held_from: int | None = None
        self._thread: threading.Thread | None = None

    def note(self, size_bytes: int, now_ms: int, held_from: int | None) -> None:
        """Tells of a unit, and from which offset on all stays; begins to merge when it is time."""
        self._units += 1
        self._bytes += size_bytes
        self._now_ms = now_ms
        self._held_from = held_from
        if self._is_due() and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="log-merge", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Waits for a merge that is under way."""
        if self._thread is not None:
            self._thread.join()

    def _is_due(self) -> bool:
        return self._units >= MOST_UNITS or self._bytes >= self._segment_bytes

    def _run(self) -> None:
        try:
            while self._is_due():
                self._units = self._bytes = 0
                self.merge()
                if self._keep is not None:
                    self._drop_expired(self._keep, self._now_ms)
        except (HeadraceError, FileNotFoundError):
            return  # the units stay as they are, and the next time it is tried again; a reader tells of damage

    def merge(self) -> None:
        """Makes segments of all units but the newest."""
        counting = self._reader.pieces()
        self._delete_covered(counting)
        run: list[Piece] = []
        for piece in counting[:-1]:
            is_segment = _is_segment(piece)
            if is_segment or sum(unit.size_bytes for unit in run) + piece.size_bytes > self._segment_bytes:
                self._put_together(run, piece.base)
                run = []
            if not is_segment:
                run.append(piece)
        if run:
            self._put_together(run, counting[-1].base)

    def _put_together(self, units: list[Piece], stop: int) -> None:
        if len(units) < 2:
            return
        base = units[0].base
        with ThreadPoolExecutor(_FETCHERS) as fetchers:
            content = b"".join(fetchers.map(self._content, units))
        path = f"{self._directory}/{base:020d}-{stop:020d}.log"
        reached = base
        for _, run in runs(Extent(_Bytes(path, content), len(content), stop), 0, base, start=UNBOUNDED):
            reached = run.next_offset
        if reached != stop:
            raise damaged(f"{self._store.root}/{path}", len(content), f"it ends at offset {reached}")
        self._store.create(path, content)
        for unit in units:
            self._delete(unit)

    def _content(self, piece: Piece) -> bytes:
        return self._store.read(f"{self._directory}/{piece.name}", 0, piece.size_bytes)

    def _delete_covered(self, counting: list[Piece]) -> None:
        """Removes what a merge that was cut short has left."""
        covered = [range(piece.base, _stop(piece)) for piece in counting if _is_segment(piece)]
        for name, size_bytes in list(self._store.files(self._directory)):
            match = _NAME.fullmatch(name)
            if match is None or not counting:
                continue
            piece = Piece(int(match[1]), name, size_bytes)
            # Never a segment that begins where something counts: whoever has just made it may be deleting its units.
            is_covered_unit = not _is_segment(piece) and any(piece.base in offsets for offsets in covered)
            if is_covered_unit or piece.base < counting[0].base:
                self._delete(piece)

    def _drop_expired(self, keep: Keep, now_ms: int) -> None:
        """Oldest first, so that what is left has no gap."""
        gone, _ = self._reader.retained(keep, now_ms, self._held_from)
        for piece in gone:
            self._delete(piece)

    def _delete(self, piece: Piece) -> None:
        if not _is_mark(piece):
            self._store.delete(f"{self._directory}/{piece.name}")


class _Bytes:
    """A `Readable` in memory."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self._content = content

    def read(self, size_bytes: int, position: int) -> bytes:
        return self._content[position : position + size_bytes]
