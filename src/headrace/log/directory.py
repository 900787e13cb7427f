"""The embedded log: a directory of append-only files.

::

    PATH/.headrace-log                         marks the directory as a log, format 1; empty
    PATH/<topic>/<partition>/                  topic percent-encoded, so that any name is a file name
        lock, epoch                            who writes                                                ownership.py
        end                                    published end: epoch, start, segment, position, offset    end.py
        00000000000000000000.log               segments, named by their first offset                     segment.py
        00000000000000041230.log                 of batches, one per append, with a crc32                record.py
        00000000000000041230.index             where about offsets and times are; never trusted          index.py
    PATH/<topic>/unit-00000000000000000007     the newest append to several partitions                   unit.py

An append writes one batch at the end of the newest segment (1), syncs it (2) and writes the new end into `end` (3). Readers
look at `end` and read nothing beyond it, so they never see what a power loss could take back. `end` itself is not synced at
each append: it may fall behind in a power loss, and the next writer finds the true end by walking on from it (recovery.py).

What a crash leaves, by the place where it strikes, and what becomes of it:

========================= ======================================= ========================================================
crash point               on disk                                 the next writer
========================= ======================================= ========================================================
before-write              nothing                                 -
torn-write (during 1)     some bytes of the batch                 cuts them: no reader has seen them
before-sync (1 to 2)      all, some or none of the batch          keeps it when it is whole, else cuts it
before-publish (2 to 3)   the batch, beyond `end`                 keeps it; it is there though never acknowledged
after-publish             the batch; `end` perhaps old            walks from the old end over it
roll                      an empty or nameless new segment        deletes it and makes its own
retention                 `end` names the new start, old files    deletes them; readers already refuse them
first-open                directories, perhaps an empty `end`     goes on as if new
take-over                 the next epoch in `epoch`               takes one more epoch; the walk starts again
close                     `end` says clean, or does not           trusts it when its epoch is the newest and the segment is as
                                                                  long as it says, else walks
refused write (full disk) the batch is cut off again at once; a crash before that is a torn-write
========================= ======================================= ========================================================

An append that was not acknowledged may be there after a crash or not, but never half. Two writers at once are kept
apart by ownership.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import unquote

from pydantic import Field

from headrace.errors import ConfigError
from headrace.log.base import Entry, Record, Span
from headrace.log.disk import NEW_FILE, Disk, OpenFile, storage
from headrace.log.layout import MARKER, refuse_foreign, require_partition, topic_name
from headrace.log.ownership import holder
from headrace.log.reader import PartitionReader
from headrace.log.retention import Keep, Retention
from headrace.log.segment import segment_path
from headrace.log.unit import Units, unit_epochs
from headrace.log.writer import PartitionWriter
from headrace.model import Component, LocalPath

_MIB = 1 << 20


class DirectoryLog:
    """The `Log` on a directory. Any number of processes read; the first `append` to a partition makes this one its writer."""

    takes_parts: ClassVar[bool] = True

    class Config(Component):
        """The embedded log on a local disk."""

        type: Literal["directory"] = "directory"
        path: LocalPath
        """The log's directory; made by the first append."""
        segment_bytes: int = Field(default=128 * _MIB, ge=1)
        """A new file is begun when the newest would become longer than this."""
        retention: Retention = Retention()
        """When old entries may go. Everything is kept by default, and the last hour always."""
        writer_wait_s: float = Field(default=3.0, ge=0)
        """How long the first append waits for another writer of the partition to end."""

    def __init__(self, config: Config, disk: Disk | None = None) -> None:
        self._config = config
        self._disk = disk or Disk()
        self._writers: dict[tuple[str, int], PartitionWriter] = {}
        self._units: dict[str, Units] = {}
        self._readers: dict[tuple[str, int], PartitionReader] = {}
        self._held: dict[tuple[str, int], int] = {}
        self._writing = threading.Lock()

    def append(self, topic: str, partition: int, entries: Sequence[Entry]) -> Span:
        """See `Log.append`. RetryableError when another process is the writer and stays it."""
        with self._writing:
            return self._writer(topic, partition).append(entries)

    def append_together(self, topic: str, parts: Mapping[int, Sequence[Entry]]) -> Mapping[int, Span]:
        """See `Log.append_together`. What a full disk cut short is finished by the next append to the topic, or the next writer."""
        with self._writing:
            writers = {partition: self._writer(topic, partition) for partition in (0, *sorted(parts.keys() - {0}))}
            filled = {partition: entries for partition, entries in parts.items() if entries}
            units = self._units[topic]
            if len(filled) > 1:
                units.decide(
                    {number: (writers[number].next_offset, entries) for number, entries in filled.items()},
                    writers[0].require,
                )
            spans = {number: writers[number].append(entries) for number, entries in sorted(parts.items())}
            units.left = {}
            return spans

    def read(self, topic: str, partition: int, span: Span) -> Iterator[Record]:
        """See `Log.read`."""
        return self.reader(topic, partition).read(span)

    def spans(self, topic: str) -> Mapping[int, Span]:
        """See `Log.spans`."""
        ends = {partition: self.reader(topic, partition).end() for partition in self._partitions(topic)}
        return {partition: Span(end.start, end.next_offset) for partition, end in ends.items() if end is not None}

    def wait(self, topic: str, partition: int, offset: int, timeout_s: float) -> bool:
        """See `Log.wait`."""
        return self.reader(topic, partition).wait(offset, timeout_s)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """See `headrace.log.base.offset_at`."""
        return self.reader(topic, partition).offset_at(time_ms)

    def hold(self, topic: str, partition: int, offset: int) -> None:
        """See `Holding.hold`."""
        with self._writing:
            self._held[topic, partition] = offset
            if (writer := self._writers.get((topic, partition))) is not None:
                writer.held_from = offset

    def close(self) -> None:
        """See `Log.close`."""
        with self._writing:
            while self._units:
                self._units.popitem()[1].close()
            while self._writers:
                self._writers.popitem()[1].close()
            self._readers.clear()

    def topics(self) -> list[str]:
        """The names of all topics; ConfigError when the path is not a log."""
        root = self._config.path
        with storage("list", root):
            try:
                names = self._disk.names(root)
            except FileNotFoundError:
                raise ConfigError(f"there is no log at {root}", fix="check the path") from None
        refuse_foreign(root, names)
        return sorted(topic for name in names if topic_name(topic := unquote(name)) == name)

    def statistics(self, topic: str, partition: int) -> dict[str, int | str]:
        """For people: segments, bytes, epoch and state of a partition."""
        reader = self.reader(topic, partition)
        directory = self.directory(topic, partition)
        with storage("look into", directory):
            sizes = [segment_path(directory, base).stat().st_size for base in reader.segments()]
        end = reader.end()
        return {
            "segments": len(sizes),
            "bytes": sum(sizes),
            "epoch": 0 if end is None else end.epoch,
            "state": "closed"
            if end is not None and end.clean
            else f"open, last writer {holder(self._disk, directory)}",
        }

    def reader(self, topic: str, partition: int) -> PartitionReader:
        """The reader of a partition that need not exist yet."""
        key = (topic, partition)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers.setdefault(key, PartitionReader(self._disk, self.directory(topic, partition)))
        return reader

    def directory(self, topic: str, partition: int) -> Path:
        """Where a partition's files are."""
        require_partition(partition)
        return self._config.path / topic_name(topic) / str(partition)

    def _writer(self, topic: str, partition: int) -> PartitionWriter:
        """The writer of a partition, once what an append to several was cut short in is finished."""
        units = self._units.get(topic)
        if units is None and (partition == 0 or unit_epochs(self._disk, self.directory(topic, 0).parent)):
            writer = self._opened(topic, 0)
            units = self._units[topic] = Units(self._disk, self.directory(topic, 0).parent, writer.epoch)
            self._finish(topic, units)
            units.take_over()
        elif units is not None:
            self._opened(topic, 0).require()
            units.settle()
            self._finish(topic, units)
        return self._opened(topic, partition)

    def _finish(self, topic: str, units: Units) -> None:
        """Appends the parts of a decided unit that are missing (unit.py says why none can be there in part)."""
        for partition, (base_offset, entries) in sorted(units.left.items()):
            writer = self._opened(topic, partition)
            if writer.next_offset == base_offset:
                writer.append(entries)
        units.left = {}

    def _opened(self, topic: str, partition: int) -> PartitionWriter:
        key = (topic, partition)
        writer = self._writers.get(key)
        if writer is not None and writer.must_reopen:
            writer.give_up()
            del self._writers[key]
            writer = None
        if writer is None:
            config = self._config
            age_s, size_bytes = config.retention.age_s, config.retention.size_bytes
            keep = None
            if age_s is not None or size_bytes is not None:
                keep = Keep(None if age_s is None else age_s * 1000, size_bytes)
            directory = self._make(topic, partition)
            writer = PartitionWriter(self._disk, directory, config.segment_bytes, keep, config.writer_wait_s)
            writer.held_from = self._held.get(key)
            self._writers[key] = writer
        return writer

    def _make(self, topic: str, partition: int) -> Path:
        """The partition's directory and all above it, made and durable: so they are once a writer has made `end` in it."""
        root = self._config.path
        directory = self.directory(topic, partition)
        with storage("create", directory):
            with suppress(FileNotFoundError):
                if "end" in self._disk.names(directory):
                    return directory
            _make_directory(self._disk, root)
            names = self._disk.names(root)
            refuse_foreign(root, names)
            if MARKER not in names:
                with suppress(FileExistsError):
                    OpenFile(self._disk, root / MARKER, NEW_FILE).close()
            _make_directory(self._disk, directory)
            for above in directory.parents:
                with suppress(PermissionError):  # a directory that we may not open was made by somebody else
                    self._disk.fsync_directory(above)
        return directory

    def _partitions(self, topic: str) -> list[int]:
        path = self._config.path / topic_name(topic)
        with storage("list", path):
            try:
                names = self._disk.names(path)
            except FileNotFoundError:
                with suppress(FileNotFoundError):
                    refuse_foreign(self._config.path, self._disk.names(self._config.path))
                return []
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def _make_directory(disk: Disk, directory: Path) -> None:
    """Makes a directory and those above it."""
    try:
        disk.mkdir(directory)
    except FileNotFoundError:
        _make_directory(disk, directory.parent)
        _make_directory(disk, directory)
    except FileExistsError:
        return
