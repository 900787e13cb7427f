"""DuckDB, through its own driver. One file, which one process at a time can open; within it one transaction at a time writes.

Rows go straight from Arrow: one INSERT … ON CONFLICT over the arrays as they are. Writers of one process (the partitions of a flow, or
several flows) wait for each other up to `_BUSY_TIMEOUT_S`, as those of a SQLite file do: DuckDB itself would let them begin and refuse the
later one at its end. A second process gets the file when the first has closed it, and a RetryableError that says so until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
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
    Address,
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
from headrace.ums.values import Array, to_text

_BUSY_TIMEOUT_S = 10.0
_DIGITS = 38
_ROWS = "_headrace_rows"
"""What the arrays of an upsert are called in SQL."""

_MICROS = "epoch_us({})"


def _is_utc(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _is_long_decimal(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and kind.precision > _DIGITS


def _decimal(kind: pa.DataType) -> str:
    return f"DECIMAL({kind.precision},{kind.scale})"  # type: ignore[attr-defined]


_TYPES: tuple[
    tuple[Callable[[pa.DataType], bool], str | Callable[[pa.DataType], str], pa.DataType | None, str], ...
] = (
    # Arrow, declared type, what the declared type can hold, how a scan reads it (dates and times as numbers: theirs reach further than Python's)
    (pa.types.is_boolean, "BOOLEAN", pa.bool_(), "{}"),
    (pa.types.is_int8, "TINYINT", pa.int8(), "{}"),
    (pa.types.is_uint8, "UTINYINT", pa.uint8(), "{}"),
    (pa.types.is_int16, "SMALLINT", pa.int16(), "{}"),
    (pa.types.is_uint16, "USMALLINT", pa.uint16(), "{}"),
    (pa.types.is_int32, "INTEGER", pa.int32(), "{}"),
    (pa.types.is_uint32, "UINTEGER", pa.uint32(), "{}"),
    (pa.types.is_int64, "BIGINT", pa.int64(), "{}"),
    (pa.types.is_uint64, "UBIGINT", pa.uint64(), "{}"),
    (pa.types.is_float32, "FLOAT", pa.float32(), "{}"),
    (pa.types.is_float64, "DOUBLE", pa.float64(), "{}"),
    (_is_long_decimal, "VARCHAR", pa.utf8(), "{}"),  # exact, but text sorts after its digits
    (pa.types.is_decimal, _decimal, None, "{}"),
    (pa.types.is_string, "VARCHAR", pa.utf8(), "{}"),
    (pa.types.is_binary, "BLOB", pa.binary(), "{}"),
    (pa.types.is_date32, "DATE", pa.date32(), "({} - DATE '1970-01-01')"),
    (_is_utc, "TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC"), _MICROS),
    (pa.types.is_timestamp, "TIMESTAMP", pa.timestamp("us"), _MICROS),
    (pa.types.is_duration, "INTERVAL", pa.duration("us"), _MICROS),
)
_HOLDS = {declared: holds for _, declared, holds, _ in _TYPES if holds is not None}
_SCANNED_AS = {declared: scanned for _, declared, _, scanned in _TYPES}
_DESCRIBE = f"""
SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns()
WHERE database_name = current_database() AND schema_name = {PARAMETER} AND table_name = {PARAMETER} ORDER BY column_index
"""
_KEY = f"""
SELECT constraint_column_names FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'
AND database_name = current_database() AND schema_name = {PARAMETER} AND table_name = {PARAMETER}
"""
_OPTIONS = {"threads": "1"}
"""A commit's rows are too few for threads to share; they would spend a second processor on waiting (docs/decisions/0039-speed-of-sinks.md)."""
_writers: dict[str, Lock] = {}
"""File -> who holds it writes."""


class DuckDb(FileDialect):
    """One DuckDB file."""

    product = "DuckDB"
    driver_errors = (duckdb.Error,)
    key_first = True

    def __init__(self, address: Address, schema: str | None) -> None:
        super().__init__(address, schema or "main")
        self._catalog = ""
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._writer = _writers.setdefault(str(Path(address.database).resolve()), Lock())
        self._is_writing = False
        self._shaped: str | None = None

    def open(self) -> None:
        if self._connection is not None:
            return
        self.must_have_folder()
        connection = duckdb.connect(self.address.database)
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _set_up(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("SET TimeZone = 'UTC'")
        [(self._catalog,)] = connection.execute("SELECT current_database()").fetchall()
        for name, value in {**_OPTIONS, **self.address.options}.items():
            try:
                connection.execute(f"SET {name} = {_literal(value)}")
            except duckdb.Error as error:
                raise ConfigError(
                    f"DuckDB does not take the option {name}={value} of the sink's `url`: {error}",
                    fix="write ?memory_limit=2GB or ?threads=2, for instance",
                ) from error

    @property
    def _open(self) -> duckdb.DuckDBPyConnection:
        self.open()
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._ended()

    def commit(self) -> None:
        if self._is_writing:
            try:
                self._open.execute("COMMIT")
            finally:
                self._ended()  # a COMMIT that fails has rolled back

    def rollback(self) -> None:
        if self._is_writing and self._connection is not None:
            with suppress(duckdb.Error):  # the error that we come from may have ended it
                self._connection.execute("ROLLBACK")
            self._ended()

    def _ended(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._writer.release()

    def begin(self) -> duckdb.DuckDBPyConnection:
        connection = self._open
        if not self._is_writing:
            if not self._writer.acquire(timeout=_BUSY_TIMEOUT_S):
                raise RetryableError(
                    f"DuckDB file {self.address}: another flow or partition of this process has not ended its transaction",
                    fix="give flows that are slow a file of their own if this goes on",
                )
            self._is_writing = True
            try:
                connection.execute("BEGIN")
            except duckdb.Error:
                self._ended()
                raise
        return connection

    def run(self, sql: str, rows: Sequence[Row] | None = None) -> list[Row]:
        connection = self.begin()
        if rows is None:
            found = connection.execute(sql).fetchall()
        else:
            text = sql.replace(PARAMETER, "?")
            found = (
                connection.execute(text, rows[0]) if len(rows) == 1 else connection.executemany(text, rows)
            ).fetchall()
        if self._shaped is not None and sql.startswith(f"UPDATE {self._shaped} "):
            # DuckDB 1 cannot add a column to rows that the transaction has changed. The table stays marked as being changed (columns.py).
            connection.execute("COMMIT")
            connection.execute("BEGIN")
        return found

    def check_name(self, name: str) -> None:
        if "\0" in name or not name:
            raise ConfigError(
                f"DuckDB cannot have the name {name!r}",
                fix="map the table to another name with `table`, or drop the column with `columns: {drop: [...]}`",
            )

    def table(self, target: Target) -> str:
        self.open()  # in a file mart.duckdb the schema mart has no other name
        return f"{self.quote(self._catalog)}.{super().table(target)}"

    def declare(self, column: Column, *, in_key: bool) -> str:
        if in_key and pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
            return "BIGINT"  # a column of the key cannot be widened later
        for matches, declared, _, _ in _TYPES:
            if matches(column.type):
                return declared if isinstance(declared, str) else declared(column.type)
        raise unsupported(column)

    def holds(self, declared: str) -> StoredType | None:
        decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", declared)
        if decimal:
            return StoredType(pa.decimal128(int(decimal[1]), int(decimal[2])))
        return StoredType(_HOLDS[declared]) if declared in _HOLDS else None

    def default(self, value: Array, declared: str) -> str:
        text = to_text(value)[0].as_py()
        if text is None:
            return "NULL"
        if pa.types.is_binary(value.type):
            text = "".join(f"\\x{text[at : at + 2]}" for at in range(0, len(text), 2))
        return f"{_literal(text)}::{declared}"

    def describe(self, target: Target) -> StoredTable | None:
        place = [self.schema, target.name]
        connection = self._open
        rows = connection.execute(_DESCRIBE.replace(PARAMETER, "?"), place).fetchall()
        if not rows:
            return None
        keys = connection.execute(_KEY.replace(PARAMETER, "?"), place).fetchall()
        return StoredTable(tuple(StoredColumn(*row) for row in rows), tuple(keys[0][0]) if keys else ())

    def change_column(self, target: Target, column: StoredColumn) -> list[str]:
        self.must_not_be_key(target, column)
        changes = ["DROP DEFAULT", f"TYPE {column.declared}"]
        if column.default is not None:
            changes.append(f"SET DEFAULT ({column.default})::{column.declared}")
        if column.nullable:
            changes.append("DROP NOT NULL")
        return [f"ALTER TABLE {self.table(target)} ALTER {self.quote(column.name)} {change}" for change in changes]

    def made_for(self, target: Target) -> list[str]:
        found = self.run(
            f"SELECT sql FROM duckdb_indexes() WHERE schema_name = {PARAMETER} AND table_name = {PARAMETER} AND sql IS NOT NULL",
            [(self.schema, target.name)],
        )
        return [statement for (statement,) in found]

    @contextmanager
    def shaping(self, target: Target) -> Iterator[None]:
        with super().shaping(target):
            self._shaped = self.table(target)
            try:
                yield
            finally:
                self._shaped = None

    def upsert(self, to: Destination, columns: Sequence[Array]) -> None:
        connection = self.begin()
        rows = pa.table([_for_duckdb(column) for column in columns], [str(n) for n in range(len(columns))])
        connection.register(_ROWS, rows)  # in place of the ones before, when those were refused
        connection.execute(self.upsert_of(to, f"SELECT * FROM {_ROWS}"))
        connection.unregister(_ROWS)

    def upsert_own(self, to: Destination, row: Sequence[Array]) -> None:
        """By an UPDATE with parameters where the row is there: planning an INSERT … ON CONFLICT takes four times as long."""
        values = {name: self.parameters(column)[0] for name, column in zip(to.names, row, strict=True)}
        id_, changes = to.target.system.id, ", ".join(f"{self.quote(name)} = ?" for name in to.replaced)
        where = " AND ".join(f"{self.quote(name)} = ?" for name in to.target.key)
        found = self.begin().execute(
            f"UPDATE {self.table(to.target)} SET {changes} WHERE {where} AND {self.quote(id_)} < ?",
            [values[name] for name in (*to.replaced, *to.target.key, id_)],
        )
        if found.fetchone() == (0,):
            self.upsert(to, row)

    def parameters(self, column: Array) -> list[Any]:
        kind = column.type
        plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        return (column if plain or pa.types.is_binary(kind) else to_text(column)).to_pylist()

    def select(self, to: Destination, where: str, chunk_rows: int) -> Iterator[list[Row]]:
        names = ", ".join(
            _SCANNED_AS.get(to.declared(column.name), "{}").replace("{}", self.quote(column.name))
            for column in to.target.columns
        )
        with (
            self._open.cursor() as cursor
        ):  # a connection of its own, which ends its transaction however far it is read
            cursor.execute(f"SELECT {names} FROM {self.table(to.target)} WHERE {where}")
            while rows := cursor.fetchmany(chunk_rows):
                yield rows

    def translate(self, error: Exception) -> HeadraceError:
        text = str(error).strip()
        kind, fix = next(
            (found for words, found in _ERRORS_SAYING.items() if words in text),
            next((found for of, found in _ERRORS.items() if isinstance(error, of)), _UNKNOWN),
        )
        return kind(f"DuckDB file {self.address}: {text}", fix=fix)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _for_duckdb(column: Array) -> Array:
    """The column as DuckDB reads Arrow: decimals of up to 38 digits are numbers, longer ones text."""
    if not pa.types.is_decimal(column.type):
        return column
    if _is_long_decimal(column.type):
        return to_text(column)
    return column.cast(pa.decimal128(column.type.precision, column.type.scale))


_CHANGED = RetryableError, "somebody changed the target table; it is prepared again on the next try"
_DAMAGED = CorruptError, "restore the file from its copy, or remove it and deliver again from the start"
_STORAGE = (
    StorageError,
    "free space on that disk and check it (dmesg, smartctl), then start again; nothing that was acknowledged is lost",
)
_VALUE = DataError, "correct the value at the source, or leave the column out with `columns: {drop: [...]}`"
_UNKNOWN = FatalError, "see DuckDB's message; if it is not clear, report it with the flow file"
_ERRORS_SAYING: dict[str, tuple[type[HeadraceError], str]] = {
    "Could not set lock on file": (
        RetryableError,
        "one process at a time can have a DuckDB file open: end the other one, or give this flow a file of its own",
    ),
    "not a valid DuckDB database file": (ConfigError, "correct the sink's `url`; the file is something else"),
    "corrupt": _DAMAGED,
    "has been invalidated": (
        RetryableError,
        "an error before this one says why; the file is opened again on the next try",
    ),
    "does not have a column": _CHANGED,
    # Ours never do; but the index has a deleted key as long as a transaction that began before is open.
    "violates primary key constraint": (
        RetryableError,
        "a reader of this process still sees a deleted key; end it if this goes on",
    ),
}
_ERRORS: dict[type[Exception], tuple[type[HeadraceError], str]] = {
    duckdb.ConstraintException: (DataError, "remove the constraint that headrace did not create, or correct the row"),
    duckdb.ConversionException: _VALUE,
    duckdb.OutOfRangeException: _VALUE,
    duckdb.CatalogException: _CHANGED,
    duckdb.BinderException: _CHANGED,
    duckdb.TransactionException: (RetryableError, "another connection changed the same rows; it is tried again"),
    duckdb.DependencyException: (
        DataError,
        "drop the index or view that headrace did not create, and make it again afterwards",
    ),
    duckdb.SerializationException: _DAMAGED,
    duckdb.OutOfMemoryException: (
        StorageError,
        "raise `?memory_limit=` of the sink's `url`, or let `batch_rows` be smaller",
    ),
    duckdb.PermissionException: (StorageError, "give this user the right to write the file and its folder"),
    duckdb.IOException: _STORAGE,
}
