"""The contract of a sink, and the one rule of idempotence.

**A change with a lower `_ums_id_` than the stored one loses; a delete leaves a tombstone.** So writing anything again, in any
order, changes nothing, and delivery may always go back to an earlier position.

A follower (stream/deliver.py) calls a sink in one thread, in this order::

    sink = Class(config, flow)          no I/O
    sink.position()                     once, at start: where to read on, when the store itself remembers it
    ( prepare(table)?  (write(batch) | clear(clear))* )* then commit(position), again and again
    close()

When the store refuses rows (DataError of `write`, `clear` or `commit`), the follower closes the sink and finds out which rows those are
(stream/refused.py): each time with a new sink, in which it prepares, writes and flushes a part of what was refused, and which it then
closes without a commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from headrace.errors import ConfigError, Finding, HeadraceError, RetryableError
from headrace.model import Model
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.printed import LowWatermark
from headrace.ums.schema import TableSchema
from headrace.ums.values import has_text


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
    has_year_0: bool = True
    """Dates of the year 0 can be stored; else rows that have one are refused."""
    only_from: str = ""
    """It takes tables of this type of source only."""


def require_key(table: TableSchema, target: str) -> None:
    """ConfigError when a table has no key and the target, ``a database target`` for instance, needs one."""
    if not table.key:
        raise ConfigError(
            f"the table {table.namespace.all_versions} has no key, which {target} needs",
            fix="name its key columns in the flow, `key: {schema.table: [column, …]}`, or leave it out with `exclude`",
        )


def refuse_types(table: TableSchema) -> None:
    """ConfigError when a column is of a type that is none of a source's."""
    for column in table.columns:
        if not has_text(column.type):
            raise ConfigError(
                f"the table {table.namespace.all_versions} has the column {column.name} of type {column.type}, which the target does not store",
                fix=f"leave it out with `columns: {{drop: [{column.name}]}}`",
            )


def refuse_names(table: TableSchema, reserved: Collection[str]) -> None:
    """ConfigError when a column has a name, in upper or lower case, that the target needs for itself."""
    needed = {name.lower() for name in reserved}
    if taken := [column.name for column in table.columns if column.name.lower() in needed]:
        raise ConfigError(
            f"the table {table.namespace.all_versions} has the column {taken[0]}, a name that headrace needs",
            fix=f"rename it with `columns: {{rename: {{{taken[0]}: …}}}}`, leave it out with `drop`, or let headrace's own have another"
            " name by `system_columns`",
        )


def refused(*checks: Callable[[], object]) -> Iterator[Finding]:
    """What checks of a table raise. That the store is away is nothing about the table, and comes out."""
    for check in checks:
        try:
            check()
        except RetryableError:
            raise
        except HeadraceError as error:
            yield Finding.of(error)


def has_other_system_columns(table: TableSchema, names: Sequence[str]) -> ConfigError:
    """The message for rows that are there with other names of headrace's own columns than the flow says."""
    id_, ts, active = names
    return ConfigError(
        f"the rows of {table.namespace.all_versions} in the target have the system columns {', '.join(names)}",
        fix=f"write `system_columns: {{id: {id_}, ts: {ts}, active: {active}}}`, or give the flow a new name and a new place in the target",
    )


@dataclass(frozen=True, slots=True)
class Places:
    """Places in a target, each of which takes one table."""

    fix: str
    """How a flow file tells them apart."""
    _owners: dict[str, str] = field(default_factory=dict)

    def take(self, place: str, table: TableSchema, called: str) -> None:
        """ConfigError when another table has the place; `called`: what a person calls it."""
        family = table.namespace.all_versions
        owner = self._owners.setdefault(place, family)
        if owner != family:
            raise ConfigError(f"{family} and {owner} would both be written to {called}", fix=self.fix)


class Sink(ABC):
    """Delivers changes of any number of tables into one store, for one flow."""

    Config: ClassVar[type[Model]]
    capabilities: ClassVar[Capabilities]
    commit_interval_s: float = 0.0
    """How long `write` may gather before `commit`; 0 means commit as soon as everything that is there was written."""
    prints_every_s: float | None = None
    """A `commit` of what was committed already prints a low watermark that has moved since, after so long; None: it does not."""
    low_watermark: LowWatermark | None = None
    """All rows of the flow with an earlier event time are committed, by its sinks for all partitions; None when nobody knows that. Set by
    the follower before it writes and commits."""

    @abstractmethod
    def prepare(self, table: TableSchema) -> None:
        """Creates the target of `table` or evolves it to this version; called before the first write of a version.

        Safe to repeat and to race with another task. Raises ConfigError when the target cannot take such a table,
        DataError when it cannot be evolved, RetryableError when the store is away.
        """

    @abstractmethod
    def write(self, batch: ChangeBatch) -> None:
        """Takes changes in log order. They may become visible now or at `commit`. Safe to repeat.

        Raises RetryableError (the follower closes the sink, opens another one and goes back to the last committed position), DataError
        (rows that the store refuses: the flow stops, or those rows are set aside), FatalError.
        """

    @abstractmethod
    def clear(self, clear: Clear) -> None:
        """All rows of the table whose `_ums_id_` is smaller than the clear's are gone, as a delete of each of them; such rows that
        come later lose. Same errors as `write`.
        """

    @abstractmethod
    def commit(self, position: Position) -> None:
        """Makes everything written so far durable and visible, as one unit where the store can. Same errors as `write`."""

    def flush(self) -> None:  # noqa: B027 - a sink that sends in `write` holds nothing back
        """Sends what `write` has gathered, so that the store says now what it refuses; nothing has to become visible. Same errors as
        `write`.
        """

    def check(self) -> None:  # noqa: B027 - a store that needs no connection has nothing to check
        """Tells whether the target can be used, before anything is started: raises what `prepare` would."""

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        """Why the target, as it is now, cannot hold these tables, which are all that the flow brings: whatever `prepare` would refuse
        of them, and what is known now of rows that it would refuse later. Makes and changes nothing. Called by `headrace check`,
        behind `check`. RetryableError when the store is away.
        """
        return iter(())

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
