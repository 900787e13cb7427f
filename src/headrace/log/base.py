"""The contract of a log: topics of partitions of entries, each with an offset that never changes.

A log is where two running processes meet: one appends, any number read, in other processes or on other machines.
Every implementation passes `headrace.testing.log.LogConformance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable


class Entry(NamedTuple):
    """What is appended: an opaque value with a short key that readers may filter by without opening the value."""

    key: bytes
    value: bytes
    time_ms: int
    """Wall clock of the appending process, milliseconds since 1970 UTC; used for retention and start by time, never for order."""


class Record(NamedTuple):
    """An entry at its offset. Offsets ascend in a partition; there may be gaps between them. Like entries they come by the million."""

    offset: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of offsets: `start` is in, `stop` is not."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Log(Protocol):
    """Durable, ordered, re-readable. One writer per partition at a time, many readers."""

    takes_parts: ClassVar[bool]
    """Whether `append_together` takes several partitions; where not, it raises ConfigError, and a source has one partition."""

    def append(self, topic: str, partition: int, entries: Sequence[Entry]) -> Span:
        """Appends `entries` as one unit: all of them or, after a crash, none. Durable on return; the span is theirs.

        Raises StorageError when the disk refuses (nothing is left behind then, and a later append may succeed), FencedError when
        another process has taken over from this one. RetryableError: another process is the partition's writer and stays it, or
        the brokers are away; whether the entries are in the log is decided then before `spans` of this instance returns again.
        """
        ...

    def append_together(self, topic: str, parts: Mapping[int, Sequence[Entry]]) -> Mapping[int, Span]:
        """Appends to several partitions as one unit: after a crash all parts are there or none. Durable on return; errors as of `append`.

        A reader may meanwhile see one part and not yet another. The writer of partition 0 is the one that appends together.
        """
        ...

    def read(self, topic: str, partition: int, span: Span) -> Iterator[Record]:
        """The records of `span`, in order; repeatable: the same span always gives the same records.

        Offsets beyond the end are simply not there yet: the iterator ends early. Offsets below the start of what retention
        has kept raise FatalError. Damaged bytes raise CorruptError with file and position.
        """
        ...

    def spans(self, topic: str) -> Mapping[int, Span]:
        """Per partition what can be read now: from the oldest kept offset to the end of what is durable. Empty for an unknown topic.

        The last record may stand some offsets before the end: who has read a span goes on at its `stop`.
        """
        ...

    def wait(self, topic: str, partition: int, offset: int, timeout_s: float) -> bool:
        """Returns True as soon as a record at `offset` or behind it can be read, False after `timeout_s` without one.

        Cheap to call in a loop.
        """
        ...

    def close(self) -> None:
        """Releases files, connections and the writer's lock. Idempotent."""
        ...


class Holding(Log, Protocol):
    """A log whose retention waits for somebody: those that are headrace's own."""

    def hold(self, topic: str, partition: int, offset: int) -> None:
        """Entries from `offset` on stay, whatever `retention` says, when this instance is the writer: somebody has not read them yet."""
        ...


@runtime_checkable
class Inspectable(Protocol):
    """What a log offers besides for people who look into it."""

    def topics(self) -> list[str]:
        """The names of all topics; ConfigError when there is no log."""
        ...

    def statistics(self, topic: str, partition: int) -> dict[str, int | str]:
        """Figures of a partition that is there, under names of the log's own."""
        ...


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who has read a partition up to `offset`, the next one to read."""

    name: str
    partition: int
    offset: int


@runtime_checkable
class Committed(Protocol):
    """What a log offers besides when those who read it keep in the log itself how far they are."""

    def readers(self, topic: str) -> list[Reader]:
        """Who has read a topic, and how far; headrace's flows are not among them."""
        ...


@runtime_checkable
class TimeIndexed(Protocol):
    """What a log offers besides when it finds offsets by time without reading everything."""

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """See the function `offset_at`."""
        ...


class Form(StrEnum):
    """What the values of entries are: Arrow blocks, or UMS messages in one of two dialects (headrace.codec.entries)."""

    BLOCK = "block"
    UMS = "ums"
    UMS_DBUS = "ums-dbus"


@dataclass(frozen=True, slots=True)
class EntryForm:
    """The form of what is to be appended to a partition."""

    form: Form = Form.BLOCK
    zone: str = "UTC"
    """Time zone of instants in `UMS_DBUS`."""
    rows: int | None = None
    """Rows in one message at most; as many as is usual in the form when None."""
    size_bytes: int | None = None
    """Bytes of one message at most (of one row it may be more); as many as is usual when None."""
    most_bytes: int | None = None
    """No message of many rows may be larger, whatever is usual: what the log takes in one piece."""


@runtime_checkable
class Shared(Protocol):
    """What a log offers besides when other programs read it too, and so want entries in a form that they know."""

    def entry_form(self, topic: str, partition: int) -> EntryForm:
        """The form of what is appended to the partition from now on; what is there may have another. Errors as of `append`."""
        ...


def entry_form(log: Log, topic: str, partition: int) -> EntryForm:
    """See `Shared.entry_form`; blocks where headrace is the only reader."""
    return log.entry_form(topic, partition) if isinstance(log, Shared) else EntryForm()


def last(log: Log, topic: str, partition: int, wanted: Callable[[bytes], bool] | None = None) -> Record | None:
    """The newest entry whose key is `wanted` (the newest of all when it is left out), None when there is none.

    Reads backwards in growing steps: quick when it is near the end.
    """
    kept = log.spans(topic).get(partition, Span(0, 0))
    stop = kept.stop
    step = 4
    while stop > kept.start:
        start = max(kept.start, stop - step)
        found = None
        for record in log.read(topic, partition, Span(start, stop)):
            if wanted is None or wanted(record.entry.key):
                found = record
        if found is not None:
            return found
        stop = start
        step *= 2
    return None


def offset_at(log: Log, topic: str, partition: int, time_ms: int) -> int:
    """The first offset whose entry has this time or a later one; the end of the partition when there is none yet.

    Times may go back in a log, so entries after that offset can still be older.
    """
    if isinstance(log, TimeIndexed):
        return log.offset_at(topic, partition, time_ms)
    kept = log.spans(topic).get(partition, Span(0, 0))
    for record in log.read(topic, partition, kept):
        if record.entry.time_ms >= time_ms:
            return record.offset
    return kept.stop
