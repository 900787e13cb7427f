"""What a source gives so that its tables can be loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, runtime_checkable

import pyarrow as pa
from pydantic import Field

from headrace.errors import RetryableError
from headrace.model import Model, SourceConfig
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema

Key = tuple[str, ...]
"""A place in a table's order: the values of its key columns, each as text that the same source reads. Opaque to everybody else."""


class LoadConfig(Model):
    """How the tables of a source are loaded."""

    workers: int = Field(default=2, ge=1, le=64)
    """How many connections read in parallel, each in a task of its own."""
    chunk_rows: int = Field(default=100_000, ge=1)
    """Rows of a shard; after a crash at most what one worker was reading is read again."""
    rows_per_s: float | None = Field(default=None, gt=0)
    """How fast all workers together read at most; as fast as they can when left out."""
    exclude: list[str] = Field(default_factory=list)
    """Tables that are captured and not loaded, as ``schema.table`` patterns with ``*`` and ``?``."""
    key: dict[str, list[str]] = Field(default_factory=dict)
    """Columns that tell the rows of a table without a key apart, best indexed ones: ``{"shop.visits": [day, page]}``."""
    first: bool = True
    """Load every table that has not been loaded; false: only what `headrace load` asks for."""

    def excludes(self, schema: str, table: str) -> bool:
        """Whether `exclude` names a table."""
        return any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in self.exclude)


def load_of(config: SourceConfig) -> LoadConfig | None:
    """How the tables of a source are loaded; None when they are not, or it is of a type that cannot."""
    found = getattr(config, "load", None)
    return found if isinstance(found, LoadConfig) else None


def required_load(config: SourceConfig) -> LoadConfig:
    """`load_of` a source that is known to load."""
    found = load_of(config)
    assert found is not None, f"source {config.name} loads nothing"
    return found


@dataclass(frozen=True, slots=True)
class Range:
    """Rows behind `after` up to and with `to`, in the order of the key; None: from the first, to the last."""

    after: Key | None
    to: Key | None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows as they were read. `data` has the columns of the table, then `_ums_raw_`."""

    data: pa.RecordBatch
    last: Key | None
    """The key of the last row, where reading can go on; None in a table that has no order."""


class NotYetError(RetryableError):
    """Capture has not come to where the source is now; what is asked for can be had later, however long that takes."""


class Loader(Protocol):
    """Reads tables as they are now. One instance is one connection and belongs to one worker."""

    def names(self) -> Sequence[tuple[str, str]]:
        """Schema and name of the captured tables that the source has now. RetryableError while it is away."""
        ...

    def table(self, schema: str, name: str) -> TableSchema | None:
        """A table as it is now, in the version that capture gave it; None when it is not there.

        RetryableError while the source is away; NotYetError while capture has not come to the statement that made the table what
        it is.
        """
        ...

    def has_past(self, schema: str, name: str) -> bool:
        """Whether capture has met an end or a beginning of a table of this name: older rows than those behind it count as gone."""
        ...

    def replaced_at(self, schema: str, name: str) -> int | None:
        """The id of the newest statement met by capture that put another table, rows and all, under this name; None: there was none."""
        ...

    def end_of_log(self) -> Callable[[Mark], bool]:
        """Where the source's log ends now, as a question: whether capture has come there by a mark. RetryableError while it is away."""
        ...

    def order(self, table: TableSchema) -> tuple[str, ...]:
        """The columns that reading can go on in the order of; none when the table is read as one. ConfigError without a key."""
        ...

    def estimated_rows(self, table: TableSchema) -> int:
        """About how many rows the table has."""
        ...

    def last_key(self, table: TableSchema, where: str) -> Key | None:
        """The largest key now; None when there is no row, or the table has no order that reading could go on in.

        Keys are kept on the log, so an order of columns that are masked is none.
        """
        ...

    def key_behind(self, table: TableSchema, range_: Range, where: str, rows: int) -> Key | None:
        """The key of row number `rows` in the range; None when it has fewer."""
        ...

    def read(self, table: TableSchema, range_: Range, where: str, batch_rows: int) -> Iterator[Part]:
        """The rows of a range, in the order of the key.

        RetryableError when the source goes away, or when the table is not as `table` says any more: ask for it again.
        """
        ...

    def close(self) -> None:
        """Ends the connection. Idempotent."""
        ...


@runtime_checkable
class Loadable(Protocol):
    """A source whose tables can be loaded."""

    def loader(self, newest: Callable[[], Mark | None]) -> Loader | None:
        """A new loader, not yet connected. What it reads is never older than the mark that `newest` gives. None: there is nothing but
        a recorded log."""
        ...
