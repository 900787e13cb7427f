"""SQLite, through Python's own driver. One file, one writer at a time; others wait up to `_BUSY_TIMEOUT_S`.

WAL with synchronous=FULL: the position in the log is made durable after `commit`, so committed rows must survive a power cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import (
    ConfigError,
    CorruptError,
    DataError,
    FatalError,
    HeadraceError,
    RetryableError,
    StorageError,
)
from headrace.sinks.database.dialect import (
    PARAMETER,
    Destination,
    Row,
    StoredColumn,
    StoredTable,
    StoredType,
    Target,
    unsupported,
)
from headrace.sinks.database.one_file import FileDialect
from headrace.ums.schema import Column
from headrace.ums.values import Array, any_is_nan, to_text

_BUSY_TIMEOUT_S = 10.0
_LARGEST = 2**63 - 1


def _as_numbers(column: Array) -> list[Any]:
    return column.to_pylist()


def _as_bytes(column: Array) -> list[Any]:
    return column.to_pylist()


def _as_text(column: Array) -> list[Any]:
    return to_text(column).to_pylist()


def _as_floats(column: Array) -> list[Any]:
    """SQLite turns NaN into NULL; as text it stays what it is."""
    values = column.cast(pa.float64()).to_pylist()
    return ["NaN" if v is not None and v != v else v for v in values] if any_is_nan(column) else values  # noqa: PLR0124


def _as_unsigned(column: Array) -> list[Any]:
    return [str(v) if v is not None and v > _LARGEST else v for v in column.to_pylist()]


def _as_dated_text(column: Array) -> list[Any]:
    return [None if v is None else f"{v}Z" for v in to_text(column).to_pylist()]


def _is_utc(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str, Callable[[Array], list[Any]], pa.DataType], ...] = (
    # Arrow, declared type, values for the driver, what the declared type can hold
    (pa.types.is_boolean, "INTEGER", _as_numbers, pa.int64()),
    # Has no affinity, so values stay as given: integers up to 2^63-1, decimal text above. Exact, but text sorts after numbers.
    (pa.types.is_uint64, "UNSIGNED64 BLOB", _as_unsigned, pa.decimal256(20, 0)),
    (pa.types.is_integer, "INTEGER", _as_numbers, pa.int64()),
    (pa.types.is_floating, "REAL", _as_floats, pa.float64()),
    (pa.types.is_decimal, "TEXT", _as_text, pa.utf8()),
    (pa.types.is_string, "TEXT", _as_numbers, pa.utf8()),
    (pa.types.is_binary, "BLOB", _as_bytes, pa.binary()),
    (pa.types.is_date32, "TEXT", _as_text, pa.utf8()),
    (_is_utc, "TEXT", _as_dated_text, pa.utf8()),  # 2024-01-31 23:59:59.000000Z
    (pa.types.is_timestamp, "TEXT", _as_text, pa.utf8()),
    (pa.types.is_duration, "TEXT", _as_text, pa.utf8()),  # [-]HH:MM:SS.ffffff
)
_HOLDS = {declared: StoredType(holds) for _, declared, _, holds in _TYPES}


class Sqlite(FileDialect):
    """One SQLite file."""

    product = "SQLite"
    driver_errors = (sqlite3.Error, OverflowError)
    _connection: sqlite3.Connection | None = None

    def open(self) -> None:
        if self._connection is not None:
            return
        self.must_have_folder()
        # isolation_level=None: transactions begin where this module says. A sink may be closed by another thread.
        connection = sqlite3.connect(
            self.address.database, _BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection

    @property
    def _open(self) -> sqlite3.Connection:
        self.open()
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def commit(self) -> None:
        if self._open.in_transaction:
            self._open.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def begin(self) -> sqlite3.Connection:
        if not self._open.in_transaction:
            # IMMEDIATE: a transaction that starts as a reader can fail when it comes to write, without waiting.
            self._open.execute("BEGIN IMMEDIATE")
        return self._open

    def run(self, sql: str, rows: Sequence[Row] | None = None) -> list[Row]:
        connection = self.begin()
        if rows is None:
            return connection.execute(sql).fetchall()
        text = sql.replace(PARAMETER, "?")
        if len(rows) == 1:
            return connection.execute(text, rows[0]).fetchall()
        return connection.executemany(text, rows).fetchall()

    def check_name(self, name: str) -> None:
        if "\0" in name or name.lower().startswith("sqlite_") or not name:
            raise ConfigError(
                f"SQLite cannot have the name {name!r}",
                fix="map the table to another name with `table`, or drop the column with `columns: {drop: [...]}`",
            )

    def declare(self, column: Column, *, in_key: bool) -> str:
        for matches, declared, _, _ in _TYPES:
            if matches(column.type):
                return declared
        raise unsupported(column)

    def holds(self, declared: str) -> StoredType | None:
        return _HOLDS.get(declared.upper())

    def default(self, value: Array, declared: str) -> str:
        quoted: str = self._open.execute("SELECT quote(?)", self.parameters(value)).fetchone()[0]
        return quoted

    def describe(self, target: Target) -> StoredTable | None:
        rows = self._open.execute("SELECT * FROM pragma_table_info(?)", (target.name,)).fetchall()
        if not rows:
            return None
        # cid, name, type, notnull, dflt_value, pk (its place in the key, from 1)
        columns = tuple(StoredColumn(row[1], row[2], not row[3] and not row[5], row[4]) for row in rows)
        key = sorted((row for row in rows if row[5]), key=lambda row: row[5])
        return StoredTable(columns, tuple(row[1] for row in key))

    def change_column(self, target: Target, column: StoredColumn) -> list[str]:
        """SQLite cannot alter a column: a new one takes its values and its name. A key column cannot be replaced so."""
        table, old, new = self.table(target), self.quote(column.name), self.quote(f"_headrace_{column.name}")
        self.must_not_be_key(target, column)
        default = "" if column.default is None else f" DEFAULT {column.default}"
        return [
            f"ALTER TABLE {table} ADD COLUMN {new} {column.declared}{default}",
            f"UPDATE {table} SET {new} = {old}",  # the declared type's affinity converts
            f"ALTER TABLE {table} DROP COLUMN {old}",
            self.rename_column(target, f"_headrace_{column.name}", column.name),
        ]

    def made_for(self, target: Target) -> list[str]:
        found = self.run(
            f"SELECT sql FROM sqlite_schema WHERE tbl_name = {PARAMETER} AND type <> 'table' AND sql IS NOT NULL",
            [(target.name,)],
        )
        return [statement for (statement,) in found]

    def upsert(self, to: Destination, columns: Sequence[Array]) -> None:
        rows = zip(*(self.parameters(column) for column in columns), strict=True)
        self.begin().executemany(self.upsert_of(to, f"VALUES ({', '.join('?' * len(to.names))})"), rows)

    def parameters(self, column: Array) -> list[Any]:
        return next(values for matches, _, values, _ in _TYPES if matches(column.type))(column)

    def select(self, to: Destination, where: str, chunk_rows: int) -> Iterator[list[Row]]:
        names = ", ".join(self.quote(column.name) for column in to.target.columns)
        cursor = self._open.execute(f"SELECT {names} FROM {self.table(to.target)} WHERE {where}")
        while rows := cursor.fetchmany(chunk_rows):
            yield rows

    def translate(self, error: Exception) -> HeadraceError:
        code = (
            getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISMATCH if isinstance(error, OverflowError) else 0)
            & 0xFF
        )
        kind, fix = _ERRORS.get(
            code, (FatalError, "see SQLite's message; if it is not clear, report it with the flow file")
        )
        if code == sqlite3.SQLITE_ERROR and any(words in str(error) for words in _CHANGED):
            kind, fix = RetryableError, "somebody changed the target table; it is prepared again on the next try"
        return kind(f"SQLite file {self.address}: {error}", fix=fix)


_CHANGED = ("no such", "has no column named")
_STORAGE = (
    "free space on that disk and check it (dmesg, smartctl), then start again; nothing that was acknowledged is lost"
)
_ERRORS: dict[int, tuple[type[HeadraceError], str]] = {
    sqlite3.SQLITE_BUSY: (RetryableError, "another process writes to this file; end it if this goes on"),
    sqlite3.SQLITE_LOCKED: (RetryableError, "another connection uses the table; end it if this goes on"),
    sqlite3.SQLITE_FULL: (StorageError, _STORAGE),
    sqlite3.SQLITE_IOERR: (StorageError, _STORAGE),
    sqlite3.SQLITE_READONLY: (StorageError, "give this user the right to write the file and its folder"),
    sqlite3.SQLITE_CANTOPEN: (StorageError, "check that the path is a file that this user can write"),
    sqlite3.SQLITE_PERM: (StorageError, "give this user the right to write the file and its folder"),
    sqlite3.SQLITE_CORRUPT: (
        CorruptError,
        "restore the file from its copy, or remove it and deliver again from the start",
    ),
    sqlite3.SQLITE_NOTADB: (ConfigError, "the file is not a SQLite database; correct the sink's `url`"),
    sqlite3.SQLITE_CONSTRAINT: (DataError, "remove the constraint that headrace did not create, or correct the row"),
    sqlite3.SQLITE_TOOBIG: (DataError, "leave the column out with `columns: {drop: [...]}`"),
    sqlite3.SQLITE_MISMATCH: (DataError, "leave the column out with `columns: {drop: [...]}`"),
}
