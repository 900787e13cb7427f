"""The contract of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from headrace.errors import Finding
from headrace.log.base import Log
from headrace.ums.change import ChangeBatch, Clear, End, Heartbeat, Mark
from headrace.ums.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Progress:
    """How far others than the source itself are, once this event and all before it are on the log.

    `passed_us`: of hosts, or of applications that printed their watermark on what is read, the time before which nothing will come any
    more, µs since 1970 UTC. `rows`: how many rows of each host stand in the event. `disordered`: how many of them are older than one of the
    same host before them.
    """

    passed_us: Mapping[str, int]
    rows: Mapping[str, int] = field(default_factory=dict)
    disordered: Mapping[str, int] = field(default_factory=dict)


NO_PROGRESS = Progress({})


@dataclass(frozen=True, slots=True)
class Event:
    """What a source hands out: changes that belong together, then the mark that ends them.

    Without a mark the changes are part of a transaction too large for memory; resuming inside it is not safe. With a mark
    and no changes it says that the source is quiet and complete up to there.
    `caught_up` is True when at that moment the source had nothing more.
    """

    changes: Sequence[ChangeBatch | Clear | End]
    mark: Mark | None
    caught_up: bool = False
    notices: tuple[str, ...] = ()
    """What a person must know: statements at the source whose effect on rows is not in its log."""
    heartbeats: tuple[Heartbeat, ...] = ()
    """Signs of life that have arrived with these changes."""
    progress: Progress = NO_PROGRESS
    """Of a source that does not report for itself, or of one whose changes come from several logs: how far the slowest is, under the source's name.
    Of all others the mark's commit time says how far they are."""


class Source(Protocol):
    """Reads one source in order. One instance belongs to one runner."""

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        """Everything that is wrong with the source or could be better, before anything is started; nothing when all is well.

        `newest` is the mark from which capture would go on. Raises what `follow` would when the source cannot be asked.
        """
        ...

    def tables(self) -> Sequence[TableSchema]:
        """The tables that it captures, as far as they are known now."""
        ...

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        """The tables as they are at the source, or will be to who captures them, as far as that can be told before anything is captured;
        a finding for one that cannot be described. Same errors as `check`, behind which it is called.
        """
        ...

    def follow(self, start: Mark | None) -> Iterator[Event]:
        """Changes from `start` on (None: where the configuration says), then whatever comes, without end.

        Raises RetryableError when the source is away (the runner calls `follow` again from the last mark), SourceError when
        its settings, grants or contents do not allow capture, CorruptError when its bytes are damaged.
        """
        ...

    def skip(self, newest: Mark, to: str) -> Mark:
        """The mark from which capture goes on at `to` (as `start` in the configuration) instead of behind `newest`.

        What lies between is given up. Its id is above that of `newest`, whatever became of the source's log. ConfigError when
        `to` is no such place, or there is nothing to skip.
        """
        ...

    def confirm(self, mark: Mark) -> None:
        """Everything up to `mark` is durable in the log; the source may forget it."""
        ...

    def close(self) -> None:
        """Releases connections and files. Idempotent."""
        ...


class Upstream(Protocol):
    """What others have put on the log, to a source that reads it."""

    is_finite: bool
    """Whether the run ends when it is idle."""
    low_us: Callable[[], int | None] | None
    """Says up to which event time all that it reads was on the log when it was asked, by Watermark Servers, and None while they do not know; None
    itself where there are none, and the commit times of marks say it."""

    def log(self) -> Log:
        """A reader of the log of one's own, to be closed."""
        ...

    def topics(self, log: Log) -> Sequence[str]:
        """Where changes of the sources that it reads are: what is captured and what is loaded."""
        ...

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        """Their tables, as the log will have them. Errors as of `Source.tables_now`."""
        ...

    def end(self, topic: str, partition: int, now: int) -> int | None:
        """Where a partition ends, which ends at `now`: there; or, of a run that ends when it is idle, where it will end, and None while that
        is not known."""
        ...


@runtime_checkable
class ReadsLog(Protocol):
    """A source whose changes come from those of others on the same log."""

    def read_from(self, upstream: Upstream) -> None:
        """Called once, before anything else."""
        ...

    def explained(self) -> str:
        """What it makes of the tables as they are now, how, and what it keeps for that, in words. Errors as of `Source.tables_now`."""
        ...
