"""PostgreSQL 14 and later, through psycopg 3; whole tables are read through ADBC (postgresql_columns.py).

Few rows go as one prepared INSERT over arrays of text (one round trip, one plan whatever the number of rows), many rows as COPY into a
temporary table and one INSERT … SELECT (postgresql_rows.py).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as AdbcError
from psycopg.conninfo import make_conninfo

from headrace.errors import ConfigError, DataError, FatalError, HeadraceError, RetryableError, StorageError
from headrace.sinks.database.dialect import (
    PARAMETER,
    Address,
    Destination,
    Dialect,
    Row,
    StoredColumn,
    StoredTable,
    StoredType,
    Target,
    unsupported,
)
from headrace.sinks.database.postgresql_columns import arrow_columns, read_as
from headrace.sinks.database.postgresql_rows import Staging, is_utc, wire, without_length
from headrace.ums.schema import Column
from headrace.ums.values import Array, Values

# What the driver has to say comes as an error of ours; it would write each lost connection on the screen as well.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
logging.getLogger("psycopg").propagate = False

COPY_FROM_ROWS = 50
"""From so many rows on COPY is faster than arrays (bench/results/sinks.md)."""

_NAME_BYTES = 63
_ARROW_DIGITS = 76
_SESSION = "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET lock_timeout = '30s'; SET standard_conforming_strings = on"
_WATCH = {
    # A server that is gone without a word is noticed after a minute instead of hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


def _numeric(kind: pa.DataType) -> str:
    return f"numeric({kind.precision},{kind.scale})"  # type: ignore[attr-defined]


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str | Callable[[pa.DataType], str]], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_uint8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_uint32, "bigint"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_uint64, "numeric(20,0)"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_decimal, _numeric),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date32, "date"),
    (is_utc, "timestamp with time zone"),
    (pa.types.is_timestamp, "timestamp without time zone"),
    (pa.types.is_duration, "interval"),
)


_HOLDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.utf8(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "timestamp without time zone": pa.timestamp("us"),
    "interval": pa.duration("us"),
}
_DESCRIBE = f"""
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
       array_position(i.indkey::int2[], a.attnum)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE n.nspname = {PARAMETER} AND c.relname = {PARAMETER} ORDER BY a.attnum
"""


class PostgreSql(Dialect):
    """One PostgreSQL database."""

    driver_errors = (psycopg.Error, AdbcError)
    share_lock = " FOR SHARE"

    def __init__(self, address: Address, schema: str | None) -> None:
        super().__init__(address, schema)
        self._connection: psycopg.Connection[Row] | None = None
        self._staging: dict[Destination, Staging] = {}
        self._staged: set[str] = set()  # staging tables with rows, which the commit removes

    def open(self) -> None:
        if self._connection is not None:
            return
        at = self.address
        connection = psycopg.connect(**self._parameters())
        connection.execute(_SESSION)
        found = connection.execute("SELECT current_schema()").fetchone()
        connection.commit()
        self.schema = self.schema or (found[0] if found else None)
        self._connection = connection
        self._staging = {}
        if self.schema is None:
            raise ConfigError(f"PostgreSQL at {at}: the user has no default schema", fix="name one with `schema`")

    def _parameters(self) -> dict[str, Any]:
        """Of libpq, for a connection."""
        at = self.address
        own = {"host": at.host, "port": at.port, "user": at.user, "password": at.password, "dbname": at.database}
        return own | {"connect_timeout": 10} | _WATCH | dict(at.options)

    @property
    def _open(self) -> psycopg.Connection[Row]:
        self.open()
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def commit(self) -> None:
        self._open.commit()
        self._staged.clear()

    def rollback(self) -> None:
        if self._connection is not None and not self._connection.closed:
            self._connection.rollback()
            self._staged.clear()
            self._staging = {}  # temporary tables made in the transaction are gone with it

    def run(self, sql: str, rows: Sequence[Row] | None = None) -> list[Row]:
        with self._open.cursor() as cursor:
            if rows is None:
                cursor.execute(sql.encode())
            else:
                text = sql.replace("%", "%%").replace(PARAMETER, "%s").encode()
                if len(rows) == 1:
                    cursor.execute(text, rows[0])
                else:
                    cursor.executemany(text, rows)
            return cursor.fetchall() if cursor.description else []

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def check_name(self, name: str) -> None:
        if not name or "\0" in name or len(name.encode()) > _NAME_BYTES:
            raise ConfigError(
                f"PostgreSQL cannot have the name {name!r}: names have 1 to {_NAME_BYTES} bytes",
                fix="map the table to another name with `table`, or drop the column with `columns: {drop: [...]}`",
            )

    def fold(self, name: str) -> str:
        return name

    def declare(self, column: Column, *, in_key: bool) -> str:
        declared = _declared(column.type)
        if declared is None:
            raise unsupported(column)
        return declared

    def holds(self, declared: str) -> StoredType | None:
        numeric = re.fullmatch(r"numeric\((\d+),(\d+)\)", declared)
        if numeric and int(numeric[1]) <= _ARROW_DIGITS:
            return StoredType(pa.decimal256(int(numeric[1]), int(numeric[2])))
        return StoredType(_HOLDS[declared]) if declared in _HOLDS else None

    def default(self, value: Array, declared: str) -> str:
        text = wire(value)[0].as_py()
        return "NULL" if text is None else "'" + text.replace("'", "''") + f"'::{declared}"

    def describe(self, target: Target) -> StoredTable | None:
        rows = self.run(_DESCRIBE, [(self.schema, target.name)])
        if not rows:
            return None
        key = sorted((row for row in rows if row[4] is not None), key=lambda row: row[4])
        return StoredTable(tuple(StoredColumn(*row[:4]) for row in rows), tuple(row[0] for row in key))

    def rehearse(self, target: Target, statement: str) -> None:
        self.run(statement)

    def change_column(self, target: Target, column: StoredColumn) -> list[str]:
        name = self.quote(column.name)
        # Without its default first: PostgreSQL refuses to convert some defaults with their column.
        changes = [f"ALTER {name} DROP DEFAULT", f"ALTER {name} TYPE {column.declared} USING {name}::{column.declared}"]
        if column.default is not None:
            changes.append(f"ALTER {name} SET DEFAULT {column.default}::{column.declared}")
        if column.nullable:
            changes.append(f"ALTER {name} DROP NOT NULL")
        return [f"ALTER TABLE {self.table(target)} {change}" for change in changes]

    def change_key(self, target: Target, columns: Sequence[StoredColumn]) -> None:
        table = self.table(target)
        [(name,)] = self.run(
            f"SELECT conname FROM pg_constraint WHERE contype = 'p' AND conrelid = to_regclass({PARAMETER})", [(table,)]
        )
        changes = [f"DROP CONSTRAINT {self.quote(name)}"]
        changes += [f"ALTER {self.quote(column.name)} DROP NOT NULL" for column in columns if column.nullable]
        changes += [f"ADD PRIMARY KEY ({', '.join(map(self.quote, target.key))})"]
        for change in changes:
            self.run(f"ALTER TABLE {table} {change}")

    @contextmanager
    def shaping(self, target: Target) -> Iterator[None]:
        self.commit()
        self.run(
            f"SELECT pg_advisory_xact_lock(hashtextextended({PARAMETER}, 0))", [(f"headrace {self.table(target)}",)]
        )
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def upsert(self, to: Destination, columns: Sequence[Array]) -> None:
        if len(columns[0]) < COPY_FROM_ROWS:
            self._upsert_arrays(to, columns)
        else:
            self._upsert_copy(to, columns)

    def _upsert_arrays(self, to: Destination, columns: Sequence[Array]) -> None:
        arrays = ", ".join(f"%s::text[]::{without_length(to.declared(name))}[]" for name in to.names)
        sql = (
            self._upsert_sql(to, "*", "unnest(").replace("%", "%%")
            + f"{arrays})"
            + self._on_conflict(to).replace("%", "%%")
        )
        self._open.execute(sql.encode(), [wire(column).to_pylist() for column in columns], prepare=True)

    def _upsert_copy(self, to: Destination, columns: Sequence[Array]) -> None:
        staging = self._staging.get(to)
        if staging is None:
            own = [_copied_as(column.type) for column in columns]
            staging = self._staging[to] = Staging.of(f"pg_temp._headrace_{len(self._staging)}", to, own)
            self.run(staging.create)
        content = staging.content(columns)
        with self._open.cursor() as cursor:
            if staging.table in self._staged:
                cursor.execute(f"TRUNCATE {staging.table}".encode())
            self._staged.add(staging.table)
            with cursor.copy(f"COPY {staging.table} FROM STDIN (FORMAT binary)".encode()) as copy:
                copy.write(content)
            cursor.execute(
                (self._upsert_sql(to, ", ".join(staging.taken), staging.table) + self._on_conflict(to)).encode()
            )

    def _upsert_sql(self, to: Destination, taken: str, rows: str) -> str:
        names = ", ".join(map(self.quote, to.names))
        return f"INSERT INTO {self.table(to.target)} AS target ({names}) SELECT {taken} FROM {rows}"

    def _on_conflict(self, to: Destination) -> str:
        key = ", ".join(map(self.quote, to.target.key))
        replaced = ", ".join(f"{name} = excluded.{name}" for name in map(self.quote, to.replaced))
        id_ = self.quote(to.target.system.id)
        return f" ON CONFLICT ({key}) DO UPDATE SET {replaced} WHERE excluded.{id_} > target.{id_}"

    def parameters(self, column: Array) -> list[Any]:
        return wire(column).to_pylist()

    def select(self, to: Destination, where: str, chunk_rows: int) -> Iterator[list[Row]]:
        names = ", ".join(self.quote(column.name) for column in to.target.columns)
        with self._open.cursor("headrace_scan") as cursor:
            cursor.execute(f"SELECT {names} FROM {self.table(to.target)} WHERE {where}".encode())
            while rows := cursor.fetchmany(chunk_rows):
                yield rows

    def columns(self, to: Destination, where: str, chunk_rows: int) -> Iterator[Sequence[Array | Values]]:
        names = ", ".join(read_as(self.quote(column.name), to.declared(column.name)) for column in to.target.columns)
        text = f"SELECT {names} FROM {self.table(to.target)} WHERE {where}"
        yield from arrow_columns(make_conninfo(**self._parameters()), text, chunk_rows)

    def translate(self, error: Exception) -> HeadraceError:
        text = str(error).strip()
        state = getattr(error, "sqlstate", None)
        if state is None:
            kind, fix = _without_state(error, text)
        else:
            kind, fix = next(
                (found for prefix, found in _ERRORS.items() if state.startswith(prefix)),
                (FatalError, f"see PostgreSQL's manual for SQLSTATE {state}"),
            )
        return kind(f"PostgreSQL at {self.address}, database {self.address.database}: {text}", fix=fix)


def _declared(kind: pa.DataType) -> str | None:
    for matches, declared in _TYPES:
        if matches(kind):
            return declared if isinstance(declared, str) else declared(kind)
    return None


def _copied_as(kind: pa.DataType) -> str | None:
    """The type of a temporary table's column that gets such values in binary; None: they go as text."""
    return None if pa.types.is_decimal256(kind) else _declared(kind)


def _without_state(error: Exception, text: str) -> tuple[type[HeadraceError], str]:
    """Errors of the driver itself and of connecting: there is only the message."""
    if isinstance(error, psycopg.DataError):
        return DataError, "correct the value at the source, or leave the column out with `columns: {drop: [...]}`"
    passing = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "terminating")
    if "FATAL" in text and not any(words in text for words in passing):
        return ConfigError, "correct user, password and database in the sink's `url`, or create them on the server"
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return RetryableError, "check that the server runs and can be reached from here"
    return FatalError, "see the driver's message; if it is not clear, report it with the flow file"


_AWAY = (RetryableError, "check that the server runs and can be reached from here")
_BUSY = (RetryableError, "another transaction stands in the way; end it if this goes on")
_GRANT = (ConfigError, "give the user the rights USAGE and CREATE on the schema and own tables there: GRANT … TO …")
_ERRORS: dict[str, tuple[type[HeadraceError], str]] = {
    # The beginning of SQLSTATE; the first that fits.
    "08": _AWAY,
    "57P": _AWAY,
    "53100": (StorageError, "free space on the server's disk, then start again; nothing that was acknowledged is lost"),
    "53": (RetryableError, "the server is short of connections or memory; raise its limits if this goes on"),
    "40": _BUSY,
    "55P03": _BUSY,
    "25006": (RetryableError, "the server is read-only (a standby?); point the sink's `url` to the primary"),
    "28": (ConfigError, "correct user and password in the sink's `url`"),
    "3D000": (ConfigError, "correct the database in the sink's `url`, or create it"),
    "3F000": (ConfigError, "create the schema, or correct `schema`"),
    "42501": _GRANT,
    "42P01": (RetryableError, "somebody changed the target table; it is prepared again on the next try"),
    "42703": (RetryableError, "somebody changed the target table; it is prepared again on the next try"),
    "22": (DataError, "correct the value at the source, or leave the column out with `columns: {drop: [...]}`"),
    "23": (DataError, "remove the constraint that headrace did not create, or correct the row"),
}
