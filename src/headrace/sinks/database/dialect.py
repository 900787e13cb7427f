"""What the database sink asks of a dialect, and the words for tables on both sides.

A dialect is one connection to one store. It knows SQL, types and errors of that store and nothing about flows: `sink.py`
gathers and reduces, `evolve.py` decides what must change in a table, `tombstones.py` removes rows for good.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import ConfigError, HeadraceError
from headrace.sinks.values import Array
from headrace.ums.schema import ID, TS, Column

ACTIVE = "_is_active_"
SYSTEM_COLUMNS = (
    Column(ID, pa.int64(), "bigint", nullable=False),
    Column(TS, pa.timestamp("us", "UTC"), "timestamp(6)", nullable=False),
    Column(ACTIVE, pa.int16(), "smallint", nullable=False),
)
"""What every target table has after the source's columns. `_is_active_` is 1 in a live row and 0 in a tombstone."""

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

    @cached_property
    def names(self) -> list[str]:
        """The columns that a write brings, in the order of its arrays."""
        return [column.name for column in (*self.target.columns, *SYSTEM_COLUMNS)]

    @cached_property
    def replaced(self) -> list[str]:
        """The columns that a newer change replaces, `_ums_id_` last.

        All but the key: a column that this version does not bring gets its default, so that the row is the same whether the
        older change was stored before or not.
        """
        fixed = {name.lower() for name in (*self.target.key, ID)}
        return [*(c.name for c in self.stored.columns if c.name.lower() not in fixed), ID]

    def declared(self, name: str) -> str:
        """The type of a column as the store declares it."""
        return next(c.declared for c in self.stored.columns if c.name.lower() == name.lower())


def unsupported(column: Column) -> ConfigError:
    """The message for a column whose type no database gets from us."""
    return ConfigError(
        f"column '{column.name}' is of type {column.type}, which the database sink does not store",
        fix="leave the column out with `columns: {drop: [...]}` in the flow",
    )


class Dialect(ABC):
    """One connection to one store. Errors of its driver come out as they are; `translate` sorts them."""

    driver_errors: ClassVar[tuple[type[Exception], ...]]

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

    @abstractmethod
    def quote(self, name: str) -> str:
        """A name as SQL, whatever characters it has."""

    @abstractmethod
    def check_name(self, name: str) -> None:
        """Raises ConfigError when the store cannot have such a name (or would silently cut it)."""

    def fold(self, name: str) -> str:
        """Names that fold to the same are one column to the store."""
        return name.lower()

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

    @abstractmethod
    def change_column(self, target: Target, column: StoredColumn) -> list[str]:
        """Statements that give an existing column the declared type, nullability and default of `column`."""

    @abstractmethod
    def shaping(self, target: Target) -> AbstractContextManager[None]:
        """While it is held nobody else of us shapes this table; commits at the end."""

    # --- rows

    @abstractmethod
    def upsert(self, to: Destination, columns: Sequence[Array]) -> None:
        """Stores rows of distinct keys (arrays in the order of ``to.names``): a row replaces one with a smaller `_ums_id_`."""

    @abstractmethod
    def parameters(self, column: Array) -> list[Any]:
        """A column's values as this driver binds them, to be compared with a stored column of the same type."""

    @abstractmethod
    def select(self, to: Destination, where: str, chunk_rows: int) -> Iterator[list[Row]]:
        """The target's own columns of all rows that fit, in chunks, as values that `values.from_values` reads."""

    @abstractmethod
    def translate(self, error: Exception) -> HeadraceError:
        """An error of the driver, sorted by who must act."""
