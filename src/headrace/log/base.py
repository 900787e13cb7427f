"""The contract of a log: topics of partitions of entries, each with an offset that never changes.

A log is where two running processes meet: one appends, any number read, in other processes or on other machines.
Every implementation passes `headrace.testing.LogConformance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """What is appended: an opaque value with a short key that readers may filter by without opening the value."""

    key: bytes
    value: bytes
    time_ms: int
    """Wall clock of the appending process, milliseconds since 1970 UTC; used for retention and start by time, never for order."""


@dataclass(frozen=True, slots=True)
class Record:
    """An entry at its offset."""

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

    def append(self, topic: str, partition: int, entries: Sequence[Entry]) -> Span:
        """Appends `entries` as one unit: all of them or, after a crash, none. Durable on return; the span is theirs.

        Raises StorageError when the disk refuses, FencedError when another process has become the partition's writer.
        """
        ...

    def read(self, topic: str, partition: int, span: Span) -> Iterator[Record]:
        """The records of `span`, in order; repeatable: the same span always gives the same records.

        Offsets beyond the end are simply not there yet: the iterator ends early. Offsets below the start of what retention
        has kept raise FatalError. Damaged bytes raise CorruptError with file and position.
        """
        ...

    def spans(self, topic: str) -> Mapping[int, Span]:
        """Per partition what can be read now: from the oldest kept offset to the end of what is durable. Empty for an unknown topic."""
        ...

    def wait(self, topic: str, partition: int, offset: int, timeout_s: float) -> bool:
        """Returns True as soon as `offset` can be read, False after `timeout_s` without it. Cheap to call in a loop."""
        ...

    def close(self) -> None:
        """Releases files, connections and the writer's lock. Idempotent."""
        ...
