"""The contract of a sink, and the one rule of idempotence.

**A change with a lower `_ums_id_` than the stored one loses; a delete leaves a tombstone.** So writing anything again, in any
order, changes nothing, and delivery may always go back to an earlier position.

A follower (stream/deliver.py) calls a sink in one thread, in this order::

    sink = Class(config, flow)          no I/O
    sink.position()                     once, at start: where to read on, when the store itself remembers it
    ( prepare(table)?  (write(batch) | clear(clear))* )* then commit(position), again and again
    close()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headrace.model import Model
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Position:
    """How far a flow has read its log: the next `offset` of one partition of one topic.

    `id` and `commit_ts_us` are those of the last mark before it (ums/change.py): all changes up to `id` are included.
    """

    topic: str
    partition: int
    offset: int
    id: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do; conformance tests and the flow check go by it."""

    needs_key: bool
    """A table without a key is refused (with a clear message) unless the flow names key columns."""
    remembers_position: bool
    """`commit` stores the position atomically with the rows, so each change is in the store exactly once."""
    scans: bool
    """`scan` works."""


class Sink(ABC):
    """Delivers changes of any number of tables into one store, for one flow."""

    Config: ClassVar[type[Model]]
    capabilities: ClassVar[Capabilities]
    commit_interval_s: float = 0.0
    """How long `write` may gather before `commit`; 0 means commit as soon as everything that is there was written."""

    @abstractmethod
    def prepare(self, table: TableSchema) -> None:
        """Creates the target of `table` or evolves it to this version; called before the first write of a version.

        Safe to repeat and to race with another task. Raises ConfigError when the target cannot take such a table,
        DataError when it cannot be evolved, RetryableError when the store is away.
        """

    @abstractmethod
    def write(self, batch: ChangeBatch) -> None:
        """Takes changes in log order. They may become visible now or at `commit`. Safe to repeat.

        Raises RetryableError (the follower calls `reset` by closing and reopening the sink and goes back to the last
        committed position), DataError (rows that the store refuses), FatalError.
        """

    @abstractmethod
    def clear(self, clear: Clear) -> None:
        """All rows of the table whose `_ums_id_` is smaller than the clear's are gone; as a delete of each of them. Same errors as `write`."""

    @abstractmethod
    def commit(self, position: Position) -> None:
        """Makes everything written so far durable and visible, as one unit where the store can. Same errors as `write`."""

    def check(self) -> None:  # noqa: B027 - a store that needs no connection has nothing to check
        """Tells whether the target can be used, before anything is started: raises what `prepare` would."""

    def position(self, topic: str, partition: int) -> Position | None:
        """The position of the last commit, when the store remembers it (`remembers_position`); else None."""
        return None

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        """The live rows of a table as the store has them (deleted ones left out), for verification and lookups.

        Columns as in ``table.columns``, without system columns. Only when ``capabilities.scans``.
        """
        raise TypeError(f"{type(self).__name__} declares that it cannot be scanned")

    @abstractmethod
    def close(self) -> None:
        """Releases connections and files; what was not committed is gone. Idempotent."""
