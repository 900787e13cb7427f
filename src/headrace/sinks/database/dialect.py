"""What the database sink asks of a dialect, and the words for tables on both sides.

A dialect is one connection to one store. It knows SQL, types and errors of that store and nothing about flows: `sink.py`
gathers and reduces, `evolve.py` decides what must change in a table, `tombstones.py` removes rows for good.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import ConfigError, Finding, HeadraceError, RetryableError
from headrace.ums.schema import Column
from headrace.ums.system_columns import USUAL, SystemColumns
from headrace.ums.values import Array, Values

PARAMETER = "\0"
"""Stands for one parameter in SQL that is the same in all dialects (no name can contain it)."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is, as its URL says."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    database: str
    """The database's name; with SQLite the path of its file."""
    options: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.host else self.database


@dataclass(frozen=True, slots=True)
class Target:
    """The table of a store that takes one version of a source's table; `columns` are the source's."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    system: SystemColumns = USUAL

    @property
    def system_columns(self) -> tuple[Column, ...]:
        """What it has after the source's columns. `_is_active_` is 1 in a live row and 0 in a tombstone."""
        return (
            Column(self.system.id, pa.int64(), "bigint", nullable=False),
            Column(self.system.ts, pa.timestamp("us", "UTC"), "timestamp(6)", nullable=False),
            Column(self.system.active, pa.int16(), "smallint", nullable=False),
        )


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as the store has it. `default` is SQL text."""

    name: str
    declared: str
    nullable: bool
    default: str | None = None


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table as the store has it."""

    columns: tuple[StoredColumn, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredType:
    """What a declared type can hold; `length` in characters or bytes, None when nothing limits it."""

    type: pa.DataType
    length: int | None = None


@dataclass(frozen=True, eq=False)
class Destination:
    """A target that is ready to be written: what the version brings and what the table has."""

    target: Target
    stored: StoredTable
    brought: tuple[int, ...] = ()
    """Which columns of the version the target's are, by place."""
    fitted: Mapping[str, StoredType] = field(default_factory=dict)
    """Columns that get only the values that fit the stored type, others as NULL."""
    filled: Mapping[str, Array] = field(default_factory=dict)
    """Columns that the version does not bring, with the value that all its rows have in them, a column of one row (merging.py)."""
    is_over: bool = False
    """The version has a key that the target has no more: all its rows were delivered before, or come again by a load."""
    number: int = 0
    """How often the table had been shaped when this was found out (columns.py)."""

    @cached_property
    def names(self) -> list[str]:
        """The columns that a write brings, in the order of its arrays."""
        system = [column.name for column in self.target.system_columns]
        return [*(column.name for column in self.target.columns), *self.filled, *system]

    @cached_property
    def replaced(self) -> list[str]:
        """The columns that a newer change replaces, `_ums_id_` last.

        All but the key: a column that this version does not bring gets its default, so that the row is the same whether the
        older change was stored before or not.
        """
        id_ = self.target.system.id
        fixed = {name.lower() for name in (*self.target.key, id_)}
        return [*(c.name for c in self.stored.columns if c.name.lower() not in fixed), id_]

    def declared(self, name: str) -> str:
        """The type of a column as the store declares it."""
        return next(c.declared for c in self.stored.columns if c.name.lower() == name.lower())


_LENGTH = re.compile(r"(?:var)?(char|binary)\((\d+)\)", re.IGNORECASE)


def source_length(column: Column) -> int | None:
    """How long a text or binary column is at most at its source, when that says so."""
    found = _LENGTH.match(column.source_type)
    return int(found[2]) if found else None


def unsupported(column: Column) -> ConfigError:
    """The message for a column whose type no database gets from us."""
    return ConfigError(
        f"column '{column.name}' is of type {column.type}, which the database sink does not store",
        fix="leave the column out with `columns: {drop: [...]}` in the flow",
    )


def own_row_gone(own: Target, table: str) -> RetryableError:
    """The message for a row that was made with the target table and is not in one of headrace's own tables any more."""
    return RetryableError(
        f"the row of {table} in {own.name} is gone",
        fix="leave headrace's own tables alone; it is made again on the next try",
    )


class Dialect(ABC):
    """One connection to one store. Errors of its driver come out as they are; `translate` sorts them."""

    driver_errors: ClassVar[tuple[type[Exception], ...]]
    key_first: ClassVar[bool] = False
    """Whether tables begin with the key: a store that drops no column in front of one of its key."""

    def __init__(self, address: Address, schema: str | None) -> None:
        self.address = address
        self.schema = schema
        """Where the tables are; None: where the store puts tables when nothing is said."""

    # --- connection

    @abstractmethod
    def open(self) -> None:
        """Connects; does nothing when it is connected."""

    @abstractmethod
    def close(self) -> None:
        """Ends the connection; what was not committed is gone. Idempotent, never raises."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def run(self, sql: str, rows: Sequence[Row] | None = None) -> list[Row]:
        """Runs SQL inside the transaction: as it is, or once per row of values for its `PARAMETER`s; returns the last result."""

    # --- names, types, shape

    @property
    def share_lock(self) -> str:
        """What makes a SELECT hold the rows that it finds until the commit, against who would change them; empty where a transaction
        that writes is alone anyway."""
        return ""

    @property
    def lock_hint(self) -> str:
        """The same, where it stands behind the table's name."""
        return ""

    @abstractmethod
    def quote(self, name: str) -> str:
        """A name as SQL, whatever characters it has."""

    @abstractmethod
    def check_name(self, name: str) -> None:
        """Raises ConfigError when the store cannot have such a name (or would silently cut it)."""

    def fold(self, name: str) -> str:
        """Names that fold to the same are one column to the store."""
        return name.lower()

    def fold_table(self, name: str) -> str:
        """Names that fold to the same are one table to the store."""
        return self.fold(name)

    def table(self, target: Target) -> str:
        """The target's full name as SQL."""
        return f"{self.quote(self.schema)}.{self.quote(target.name)}" if self.schema else self.quote(target.name)

    @abstractmethod
    def declare(self, column: Column, *, in_key: bool) -> str:
        """The type that a column gets; ConfigError when the store has none for it."""

    @abstractmethod
    def holds(self, declared: str) -> StoredType | None:
        """What a declared type can hold; None for types that headrace does not create: those are left as they are."""

    @abstractmethod
    def default(self, value: Array, declared: str) -> str:
        """SQL for a DEFAULT of the one value in the array."""

    @abstractmethod
    def describe(self, target: Target) -> StoredTable | None:
        """The table as the store has it now; None when there is none."""

    def advice(self, targets: Sequence[Target]) -> Iterator[Finding]:
        """What a person should know of tables that it can hold."""
        yield from ()

    def rehearse(self, target: Target, statement: str) -> None:  # noqa: B027 - a store that cannot take it back is not asked
        """Runs CREATE TABLE, of which nothing stays behind the rollback that comes next: raises what it would raise."""

    @abstractmethod
    def change_column(self, target: Target, column: StoredColumn) -> list[str]:
        """Statements that give an existing column the declared type, nullability and default of `column`."""

    def add_column(self, target: Target, definition: str) -> str:
        """The statement that adds a column."""
        return f"ALTER TABLE {self.table(target)} ADD COLUMN {definition}"

    def drop_column(self, target: Target, name: str) -> str:
        """The statement that drops a column."""
        return f"ALTER TABLE {self.table(target)} DROP COLUMN {self.quote(name)}"

    def rename_column(self, target: Target, old: str, new: str) -> str:
        """The statement that gives a column another name."""
        return f"ALTER TABLE {self.table(target)} RENAME COLUMN {self.quote(old)} TO {self.quote(new)}"

    def keep_newest(self, target: Target, old_key: Sequence[str]) -> None:
        """Removes rows of which others with the same ``target.key`` are live or newer; `old_key`: the table's key as it is."""
        table = self.table(target)
        old, new = (", ".join(map(self.quote, key)) for key in (old_key, target.key))
        id_, active = self.quote(target.system.id), self.quote(target.system.active)
        places = f"ROW_NUMBER() OVER (PARTITION BY {new} ORDER BY {active} DESC, {id_} DESC)"
        later = f"SELECT {old} FROM (SELECT {old}, {places} AS place FROM {table}) AS placed WHERE place > 1"
        self.run(f"DELETE FROM {table} WHERE ({old}) IN ({later})")

    @abstractmethod
    def change_key(self, target: Target, columns: Sequence[StoredColumn]) -> None:
        """Gives the table the primary key ``target.key``; `columns`: those of the old key and of the new one, as they are to be."""

    @abstractmethod
    def shaping(self, target: Target) -> AbstractContextManager[None]:
        """While it is held nobody else of us shapes this table; commits at the end."""

    # --- rows

    @abstractmethod
    def upsert(self, to: Destination, columns: Sequence[Array]) -> None:
        """Stores rows of distinct keys (arrays in the order of ``to.names``): a row replaces one with a smaller `_ums_id_`."""

    def upsert_own(self, to: Destination, row: Sequence[Array]) -> None:
        """`upsert` of one row of a table of headrace's own, which is there most of the time."""
        self.upsert(to, row)

    @abstractmethod
    def parameters(self, column: Array) -> list[Any]:
        """A column's values as this driver binds them, to be compared with a stored column of the same type."""

    @abstractmethod
    def select(self, to: Destination, where: str, chunk_rows: int) -> Iterator[list[Row]]:
        """The target's own columns of all rows that fit, in chunks, as values that `values.from_values` reads."""

    def columns(self, to: Destination, where: str, chunk_rows: int) -> Iterator[Sequence[Array | Values]]:
        """What `select` gives, column by column and of what is committed: for many rows, which some drivers have as Arrow arrays."""
        for rows in self.select(to, where, chunk_rows):
            yield [*zip(*rows, strict=True)]

    @abstractmethod
    def translate(self, error: Exception) -> HeadraceError:
        """An error of the driver, sorted by who must act."""
