"""The writer of one partition: takes it over, appends, rolls to new segments, drops old ones. directory.py tells the crash story."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import FencedError, StorageError
from headrace.log.base import Entry, Span
from headrace.log.disk import NEW_FILE, Disk, OpenFile, storage, write_all
from headrace.log.end import END_BYTES, End
from headrace.log.index import IndexWriter, index_path
from headrace.log.ownership import Ownership
from headrace.log.record import encode
from headrace.log.recovery import recover
from headrace.log.retention import Closed, Keep, closed_segments, expired
from headrace.log.segment import segment_bases, segment_path


@dataclass(slots=True)
class _Active:
    """The segment that is being written; `position` is where its next batch goes."""

    file: OpenFile
    base: int
    position: int
    index: IndexWriter


class PartitionWriter:
    """Owns one partition from construction to `close`. Not safe for threads."""

    def __init__(self, disk: Disk, directory: Path, segment_bytes: int, keep: Keep | None, wait_s: float) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._keep = keep
        self._active: _Active | None = None
        self._closed: list[Closed] | None = None
        self.held_from: int | None = None
        """Entries from this offset on stay, whatever retention says."""
        self._in_doubt = False
        with storage("open", directory):
            self._ownership = Ownership(disk, directory, wait_s)
            try:
                self._end_file = OpenFile(disk, directory / "end", os.O_RDWR | os.O_CREAT)
                self._take_over()
            except BaseException:
                self._ownership.release()
                raise

    @property
    def must_reopen(self) -> bool:
        """True after a failure that left memory and disk in doubt: a new writer must take the partition over."""
        return self._in_doubt and not self._ownership.is_lost

    @property
    def epoch(self) -> int:
        """The number of this writer among those of the partition."""
        return self._ownership.epoch

    @property
    def next_offset(self) -> int:
        """Where the next entry goes."""
        return self._end.next_offset

    def require(self) -> None:
        """FencedError when another has become the writer."""
        self._ownership.require()

    def append(self, entries: Sequence[Entry]) -> Span:
        """One batch, durable on return; see `Log.append`."""
        self._ownership.require()
        base_offset = self._end.next_offset
        if not entries:
            return Span(base_offset, base_offset)
        parts = encode(entries, base_offset, self._end.epoch)
        batch_bytes = sum(map(len, parts))
        time_ms = max(entry.time_ms for entry in entries)
        self._in_doubt = True
        active = self._room_for(batch_bytes, time_ms)
        self._commit(active, parts, active.position + batch_bytes, base_offset + len(entries))
        active.index.note(base_offset, active.position, time_ms)
        active.position += batch_bytes
        self._in_doubt = False
        return Span(base_offset, base_offset + len(entries))

    def close(self) -> None:
        """Leaves the mark by which the next writer need not look at the log, and lets go. Idempotent."""
        active = self._active
        try:
            if active is not None and active.base == self._end.segment and not self._in_doubt:
                self._ownership.require()
                with storage("close", self._directory):
                    self._publish(replace(self._end, clean=True))
        except FencedError:
            return  # the partition is another's: there is nothing of ours to mark
        finally:
            self._abandon()

    def give_up(self) -> None:
        """Ends a writer in doubt, for a new one to take over; FencedError when another has done so already."""
        self._ownership.require()
        self._abandon()

    def _abandon(self) -> None:
        """Lets go as a crash would. Idempotent."""
        if self._active is not None:
            self._retire(self._active)
        self._end_file.close()
        self._ownership.release()

    def _take_over(self) -> None:
        published = End.from_bytes(self._disk.pread(self._end_file.fd, END_BYTES, 0))
        bases = segment_bases(self._disk, self._directory)
        is_new = published is None and not bases
        if is_new:
            published = End(epoch=0, start=0, segment=0, position=0, next_offset=0)
        self._ownership.advance(at_least=published.epoch if published is not None else 0)
        if published is not None and self._is_as_closed(published, bases) and self._reopen(published):
            self._end = replace(published, epoch=self._ownership.epoch, clean=False)
            return
        self._disk.fdatasync(self._end_file.fd)  # what recovery deletes because of it must not be asked for again
        found = recover(self._disk, self._directory, published)
        self._publish(replace(found, epoch=self._ownership.epoch, clean=False))
        if is_new:
            self._disk.fdatasync(self._end_file.fd)
        self._disk.fsync_directory(self._directory)

    def _is_as_closed(self, published: End, bases: list[int]) -> bool:
        """Whether the last writer closed, and nobody has opened since: its epoch is still the newest one."""
        is_newest = published.epoch == self._ownership.previous_epoch and bases[-1:] == [published.segment]
        return published.clean and is_newest

    def _reopen(self, published: End) -> bool:
        """Goes on in the newest segment of a writer that closed; False when the file is not as that writer left it."""
        file = OpenFile(self._disk, segment_path(self._directory, published.segment), os.O_RDWR)
        if self._disk.size_bytes(file.fd) != published.position:
            return False
        self._active = self._activate(file, published.segment, published.position)
        return True

    def _activate(self, file: OpenFile, base: int, position: int) -> _Active:
        return _Active(file, base, position, IndexWriter(self._disk, file, base, position))

    def _commit(self, active: _Active, parts: Sequence[bytes], position: int, next_offset: int) -> None:
        """Makes a batch durable, then visible; takes it away again when the disk refuses."""
        end = replace(self._end, segment=active.base, position=position, next_offset=next_offset)
        try:
            with storage("append to", active.file.path):
                write_all(self._disk, active.file.fd, parts, active.position)
                self._disk.fdatasync(active.file.fd)
                self._ownership.require()
                self._publish(end)
        except StorageError:
            self._ownership.require()
            with suppress(OSError):  # when undoing fails too, the doubt remains and the next append opens anew
                self._disk.ftruncate(active.file.fd, active.position)
                self._publish(self._end)
                self._in_doubt = False
            raise

    def _publish(self, end: End) -> None:
        self._disk.pwrite(self._end_file.fd, end.to_bytes(), 0)
        self._end = end

    def _room_for(self, batch_bytes: int, now_ms: int) -> _Active:
        """The active segment, or a new one when there is none or the batch would make it too long."""
        active = self._active
        if active is not None and (active.position == 0 or active.position + batch_bytes <= self._segment_bytes):
            return active
        if active is not None:
            # From here on there is no way back to it: a name made for the next segment may survive although its making failed.
            self._retire(active)
        base = self._end.next_offset
        active = self._active = self._activate(self._create(segment_path(self._directory, base)), base, 0)
        if self._keep is not None:
            self._drop_expired(self._keep, base, now_ms)
        return active

    def _retire(self, active: _Active) -> None:
        if self._closed is not None:
            self._closed.append(Closed(active.base, active.position, active.index.max_time_ms))
        active.index.close()
        active.file.close()
        self._active = None

    def _create(self, path: Path) -> OpenFile:
        """A new segment whose name is durable."""
        try:
            with storage("create", path):
                file = OpenFile(self._disk, path, NEW_FILE)
        except StorageError as error:
            self._ownership.require()  # when the file is there already, another writer has made it
            self._in_doubt = isinstance(error.__cause__, FileExistsError)
            raise
        try:
            with storage("sync the directory of", path):
                self._disk.fsync_directory(self._directory)
        except StorageError:
            with suppress(OSError):
                self._disk.unlink(path)
                self._in_doubt = False
            raise
        return file

    def _drop_expired(self, keep: Keep, newest: int, now_ms: int) -> None:
        """Publishes the new start durably first, so that a gap below it is never taken for damage."""
        with storage("drop old segments of", self._directory):
            if self._closed is None:
                self._closed = closed_segments(self._disk, self._directory, newest)
            dropped = self._closed[: min(expired(self._closed, keep, now_ms), self._not_held(newest))]
            if not dropped:
                return
            del self._closed[: len(dropped)]
            start = self._closed[0].base if self._closed else newest
            self._publish(replace(self._end, start=start, segment=newest, position=0))
            self._disk.fdatasync(self._end_file.fd)
            for segment in dropped:
                path = segment_path(self._directory, segment.base)
                self._disk.unlink(path)
                with suppress(FileNotFoundError):
                    self._disk.unlink(index_path(path))

    def _not_held(self, newest: int) -> int:
        """How many of the oldest segments have nothing that is held."""
        assert self._closed is not None
        stops = [*(segment.base for segment in self._closed[1:]), newest]
        return len(stops) if self.held_from is None else sum(stop <= self.held_from for stop in stops)
