"""Tables of the stand-in: DUPLICATE and UNIQUE keys, a sequence column, the delete sign, range partitions; on SQLite.

A table ``t`` is the SQLite table ``t#rows``, with a column for the delete sign, and a view ``t`` of what queries see. Values are kept in
one form for each type (`values.py`), so that what is equal in Doris is equal here.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.servers.doris.values import canonical

SIGN = "__DORIS_DELETE_SIGN__"
SEQUENCE = "__DORIS_SEQUENCE_COL__"


class TableError(Exception):
    """What Doris would say."""


class RowError(Exception):
    """Why a row is filtered."""


@dataclass
class Field:
    name: str
    type: str
    nullable: bool = True
    default: str | None = None


@dataclass
class Partition:
    """Rows whose value is from `low` up to `high`, not included; texts, None without an end."""

    name: str
    low: str | None
    high: str | None


@dataclass
class Table:
    database: str
    name: str
    fields: list[Field]
    model: str
    keys: list[str]
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: str | None = None
    partitions: list[Partition] = field(default_factory=list)

    def field(self, name: str) -> Field:
        for one in self.fields:
            if one.name.lower() == name.lower():
                return one
        if name == SEQUENCE and self.sequence_type is not None:
            return Field(SEQUENCE, self.sequence_type)
        raise TableError(f"errCode = 2, detailMessage = unknown column, column name={name}")

    @property
    def sequence(self) -> str | None:
        """The column by which of two rows of a key the larger one stays."""
        return self.properties.get("function_column.sequence_col")

    @property
    def sequence_type(self) -> str | None:
        """The type of a hidden column that does the same; loads say what it gets."""
        return None if self.sequence else self.properties.get("function_column.sequence_type")


@dataclass(frozen=True)
class Rows:
    """Rows to be applied: names of columns, values in that order, and for each row whether it deletes."""

    names: Sequence[str]
    values: list[tuple[Any, ...]]
    signs: list[int]


class Store:
    """All databases of the cluster."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tables: dict[tuple[str, str], Table] = {}
        """By database and name, in which capitals are not told from small letters (`lower_case_table_names` = 2)."""
        self.databases: set[str] = set()
        self._sqlite = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)

    def close(self) -> None:
        self._sqlite.close()

    def create_database(self, name: str) -> None:
        with self.lock:
            if name not in self.databases:
                self._sqlite.execute(f"ATTACH ':memory:' AS {_quoted(name)}")
                self.databases.add(name)

    def table(self, database: str, name: str) -> Table:
        if database not in self.databases:
            raise TableError(f"errCode = 2, detailMessage = unknown database, database={database}")
        found = self.tables.get((database, name.lower()))
        if found is None:
            raise TableError(f"errCode = 7, detailMessage = unknown table, tableName={name}")
        return found

    def has_table(self, database: str, name: str) -> bool:
        return (database, name.lower()) in self.tables

    def create(self, table: Table, *, if_not_exists: bool) -> None:
        with self.lock:
            if table.database not in self.databases:
                raise TableError(f"Unknown database '{table.database}'")
            if self.has_table(table.database, table.name):
                if if_not_exists:
                    return
                raise TableError(f"Table '{table.name}' already exists")
            _check(table)
            key = f", PRIMARY KEY ({_names(table.keys)})" if table.model == "UNIQUE" else ""
            hidden = SIGN if table.sequence_type is None else f"{SIGN}, {SEQUENCE}"
            self._sqlite.execute(
                f"CREATE TABLE {_base(table)} ({_names([one.name for one in table.fields])}, {hidden}{key})"
            )
            self.tables[table.database, table.name.lower()] = table
            self._make_view(table)

    def drop(self, database: str, name: str) -> None:
        with self.lock:
            table = self.table(database, name)
            self._sqlite.execute(f"DROP VIEW {_view(table)}")
            self._sqlite.execute(f"DROP TABLE {_base(table)}")
            del self.tables[database, name.lower()]

    def truncate(self, table: Table) -> None:
        with self.lock:
            self._sqlite.execute(f"DELETE FROM {_base(table)}")

    def compact(self, table: Table) -> None:
        """A base compaction: deleted rows are gone, and what was deleted is not known any more."""
        with self.lock:
            self._sqlite.execute(f"DELETE FROM {_base(table)} WHERE {SIGN} = 1")

    def add_column(self, table: Table, column: Field) -> None:
        with self.lock:
            if any(one.name.lower() == column.name.lower() for one in table.fields):
                raise TableError(f"Can not add column which already exists in base table: {column.name}")
            value = None if column.default is None else canonical(column.type, column.default)
            self._sqlite.execute(f"ALTER TABLE {_base(table)} ADD COLUMN {_quoted(column.name)}")
            self._sqlite.execute(f"UPDATE {_base(table)} SET {_quoted(column.name)} = ?", (value,))
            table.fields.append(column)
            self._make_view(table)

    def drop_column(self, table: Table, name: str) -> None:
        with self.lock:
            if name in table.keys:
                raise TableError("Can not drop key column in Unique data model table")
            gone = table.field(name)
            self._sqlite.execute(f"DROP VIEW {_view(table)}")
            self._sqlite.execute(f"ALTER TABLE {_base(table)} DROP COLUMN {_quoted(gone.name)}")
            table.fields.remove(gone)
            self._make_view(table)

    def query(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        with self.lock:
            try:
                cursor = self._sqlite.execute(sql)
            except sqlite3.Error as error:
                raise TableError(f"{error} (the stand-in runs queries on SQLite): {sql}") from error
            return cursor.fetchall(), [column[0] for column in cursor.description or ()]

    def prepared(self, table: Table, names: Sequence[str], row: Sequence[Any], *, strict: bool) -> tuple[Any, ...]:
        """A row's values in one form each, in the order of the names; RowError when it is filtered."""
        values = []
        for name, value in zip(names, row, strict=True):
            column = table.field(name)
            try:
                kept = None if value is None else canonical(column.type, value)
            except (ValueError, ArithmeticError) as error:
                # What a hidden sequence gets is an expression to Doris, for which strict mode does not count.
                if name != SEQUENCE and (strict or not column.nullable or isinstance(error, OverflowError)):
                    raise RowError(f"column_name[{column.name}], {error}") from error
                kept = None
            if kept is None and not column.nullable:
                raise RowError(f"column_name[{column.name}], null value for not null column, type={column.type}")
            values.append(kept)
        self._must_have_partition(table, names, values)
        return tuple(values)

    def apply(self, table: Table, rows: Rows) -> None:
        """Makes rows visible. They are of the columns that the table had when the load began."""
        with self.lock:
            names = [name for name in rows.names if name == SEQUENCE or any(one.name == name for one in table.fields)]
            at = [list(rows.names).index(name) for name in names]
            missing = [one for one in table.fields if one.name not in names]
            defaults = [None if one.default is None else canonical(one.type, one.default) for one in missing]
            all_names = [*names, *(one.name for one in missing), SIGN]
            sql = f"INSERT INTO {_base(table)} ({_names(all_names)}) VALUES ({', '.join('?' * len(all_names))})"
            if table.model == "UNIQUE":
                sql += self._on_conflict(table, all_names)
            self._sqlite.executemany(
                sql,
                ((*(row[n] for n in at), *defaults, sign) for row, sign in zip(rows.values, rows.signs, strict=True)),
            )

    def _on_conflict(self, table: Table, names: Sequence[str]) -> str:
        sets = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in names if name not in table.keys)
        by = table.sequence or (SEQUENCE if table.sequence_type else None)
        where = ""
        if by is not None:
            old, new = f"{_quoted(f'{table.name}#rows')}.{_quoted(by)}", f"excluded.{_quoted(by)}"
            where = f" WHERE {new} >= {old} OR {old} IS NULL"
        return f" ON CONFLICT ({_names(table.keys)}) DO UPDATE SET {sets}{where}"

    def _must_have_partition(self, table: Table, names: Sequence[str], values: Sequence[Any]) -> None:
        if table.partition_by is None:
            return
        value = str(values[list(names).index(table.partition_by)])
        if not any(
            (one.low is None or one.low <= value) and (one.high is None or value < one.high) for one in table.partitions
        ):
            raise RowError(f"no partition for this tuple. tuple=({value})")

    def _make_view(self, table: Table) -> None:
        self._sqlite.execute(f"DROP VIEW IF EXISTS {_view(table)}")
        self._sqlite.execute(
            f"CREATE VIEW {_view(table)} AS SELECT {_names([one.name for one in table.fields])}"
            f" FROM {_quoted(f'{table.name}#rows')} WHERE {SIGN} = 0"
        )


def _check(table: Table) -> None:
    """What Doris refuses when a table is created."""
    leading = [one.name for one in table.fields[: len(table.keys)]]
    if leading != table.keys:
        raise TableError("Key columns should be a ordered prefix of the schema")
    for one in table.fields[: len(table.keys)]:
        if one.type.split("(")[0].upper() in ("STRING", "TEXT", "FLOAT", "DOUBLE", "JSON"):
            raise TableError(f"{one.type} type should not be used in key column[{one.name}]")
    if table.sequence is not None or table.sequence_type is not None:
        kind = (table.sequence_type or table.field(table.sequence or "").type).split("(")[0].upper()
        if kind not in ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT", "DATE", "DATETIME"):
            raise TableError("Sequence type only support integer types and date types")
        if table.model != "UNIQUE":
            raise TableError("Sequence column only support UNIQUE_KEYS")


def _base(table: Table) -> str:
    return f"{_quoted(table.database)}.{_quoted(f'{table.name}#rows')}"


def _view(table: Table) -> str:
    return f"{_quoted(table.database)}.{_quoted(table.name)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
