"""The `Log` on a shared file system: what is the same on all of them. A module per file system brings its files and its writer."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Protocol
from urllib.parse import unquote

from headrace.errors import ConfigError, FencedError
from headrace.log.base import Entry, Record, Span
from headrace.log.layout import refuse_foreign, require_partition, topic_name
from headrace.log.retention import Keep, Retention
from headrace.log.shared.reader import SharedReader
from headrace.storage.base import FileStore


class SharedWriter(Protocol):
    """The right to write a partition, from construction on until it is closed or taken over."""

    held_from: int | None
    """Entries from this offset on stay, whatever retention says."""

    @property
    def must_reopen(self) -> bool:
        """True after a failure that left open what was written: a new writer must find out."""
        ...

    def append(self, entries: Sequence[Entry]) -> Span:
        """See `Log.append`; called by one thread at a time."""
        ...

    def close(self) -> None:
        """Lets go."""
        ...


class SharedLog(ABC):
    """Any number of processes read; the first `append` to a partition makes this one its writer, and stops the one before."""

    takes_parts: ClassVar[bool] = False

    def __init__(self, store: FileStore) -> None:
        self._shared = store
        self._pid = os.getpid()
        self._writers: dict[tuple[str, int], SharedWriter] = {}
        self._readers: dict[tuple[str, int], SharedReader] = {}
        self._held: dict[tuple[str, int], int] = {}
        self._writing = threading.Lock()
        self._is_log = False

    @abstractmethod
    def _new_reader(self, directory: str) -> SharedReader:
        """A reader of a partition's directory."""

    @abstractmethod
    def _new_writer(self, directory: str) -> SharedWriter:
        """Takes a partition over."""

    @abstractmethod
    def _mark(self) -> None:
        """Makes the file that marks the root as a log, unless it is there."""

    def append(self, topic: str, partition: int, entries: Sequence[Entry]) -> Span:
        """See `Log.append`. Never refused because of another writer: that one gets FencedError from now on."""
        with self._writing:
            return self._writer(topic, partition).append(entries)

    def append_together(self, topic: str, parts: Mapping[int, Sequence[Entry]]) -> Mapping[int, Span]:
        """See `Log.append_together`. ConfigError for several partitions: there is no unit over several files here."""
        if any(partition > 0 for partition in parts):
            raise ConfigError(
                f"the log {self._shared.root} has one partition for a source",
                fix="leave `partitions` of the source out, or use a log of `type: kafka` or `type: directory`",
            )
        with self._writing:
            writer = self._writer(topic, 0)
            return {partition: writer.append(entries) for partition, entries in parts.items()}

    def read(self, topic: str, partition: int, span: Span) -> Iterator[Record]:
        """See `Log.read`."""
        return self._reader(topic, partition).read(span)

    def spans(self, topic: str) -> Mapping[int, Span]:
        """See `Log.spans`. An append of this process whose fate was open is decided first."""
        with self._writing:
            for place, writer in list(self._writers.items()):
                if place[0] == topic and writer.must_reopen:
                    self._writer(*place)
        spans = {partition: self._reader(topic, partition).span() for partition in self._partitions(topic)}
        return {partition: span for partition, span in spans.items() if span is not None}

    def wait(self, topic: str, partition: int, offset: int, timeout_s: float) -> bool:
        """See `Log.wait`."""
        return self._reader(topic, partition).wait(offset, timeout_s)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """See `headrace.log.base.offset_at`."""
        return self._reader(topic, partition).offset_at(time_ms)

    def hold(self, topic: str, partition: int, offset: int) -> None:
        """See `Holding.hold`."""
        with self._writing:
            self._held[topic, partition] = offset
            if (writer := self._writers.get((topic, partition))) is not None:
                writer.held_from = offset

    def close(self) -> None:
        """See `Log.close`."""
        with self._writing:
            while self._writers:
                self._writers.popitem()[1].close()
            self._readers.clear()

    def topics(self) -> list[str]:
        """See `Inspectable.topics`."""
        names = self._shared.names("")
        if not names:
            raise ConfigError(f"there is no log at {self._shared.root}", fix="check the path")
        refuse_foreign(self._shared.root, names)
        return sorted(topic for name in names if topic_name(topic := unquote(name)) == name)

    def statistics(self, topic: str, partition: int) -> dict[str, int | str]:
        """See `Inspectable.statistics`."""
        pieces = self._reader(topic, partition).pieces()
        return {"files": len(pieces), "bytes": sum(piece.size_bytes for piece in pieces)}

    def _reader(self, topic: str, partition: int) -> SharedReader:
        key = (topic, partition)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers.setdefault(key, self._new_reader(self._directory(topic, partition)))
        return reader

    def _writer(self, topic: str, partition: int) -> SharedWriter:
        if os.getpid() != self._pid:
            raise FencedError(
                f"{self._shared.root} was opened by another process than this one, which was forked from it",
                fix="open the log in the process that writes",
            )
        key = (topic, partition)
        writer = self._writers.get(key)
        if writer is not None and not writer.must_reopen:
            return writer
        directory = self._directory(topic, partition)
        if not self._is_log:
            refuse_foreign(self._shared.root, self._shared.names(""))
            self._mark()
            self._is_log = True
        writer = self._writers[key] = self._new_writer(directory)
        writer.held_from = self._held.get(key)
        return writer

    def _partitions(self, topic: str) -> list[int]:
        names = self._shared.names(topic_name(topic))
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def _directory(self, topic: str, partition: int) -> str:
        require_partition(partition)
        return f"{topic_name(topic)}/{partition}"


def keep_of(retention: Retention) -> Keep | None:
    """What retention keeps; None when it keeps everything."""
    if retention.age_s is None and retention.size_bytes is None:
        return None
    return Keep(None if retention.age_s is None else retention.age_s * 1000, retention.size_bytes)
