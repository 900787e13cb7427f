"""The contract of a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.ums.change import ChangeBatch, Clear, Mark
from headrace.ums.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Event:
    """What a source hands out: changes that belong together, then the mark that ends them.

    Without a mark the changes are part of a transaction too large for memory; resuming inside it is not safe. With a mark
    and no changes it is a heartbeat: the source is quiet and complete up to there.
    `caught_up` is True when at that moment the source had nothing more.
    """

    changes: Sequence[ChangeBatch | Clear]
    mark: Mark | None
    caught_up: bool = False
    notices: tuple[str, ...] = ()
    """What a person must know: statements at the source whose effect on rows is not in its log."""


class Source(Protocol):
    """Reads one source in order. One instance belongs to one runner."""

    def check(self) -> None:
        """Tells whether the source can be captured, before anything is started: raises what `follow` would."""
        ...

    def tables(self) -> Sequence[TableSchema]:
        """The tables that it captures, as far as they are known now."""
        ...

    def follow(self, start: Mark | None) -> Iterator[Event]:
        """Changes from `start` on (None: where the configuration says), then whatever comes, without end.

        Raises RetryableError when the source is away (the runner calls `follow` again from the last mark), SourceError when
        its settings, grants or contents do not allow capture, CorruptError when its bytes are damaged.
        """
        ...

    def confirm(self, mark: Mark) -> None:
        """Everything up to `mark` is durable in the log; the source may forget it."""
        ...

    def close(self) -> None:
        """Releases connections and files. Idempotent."""
        ...
