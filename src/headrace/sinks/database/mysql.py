"""MySQL 8 and MariaDB 10.6 and later, through PyMySQL: INSERT … ON DUPLICATE KEY UPDATE of many rows, its text built by Arrow; MariaDB gets large
sets as values without SQL (mysql_bulk.py).

`_ums_id_` is assigned last, because MySQL evaluates the assignments from left to right and each compares with the stored id.
Points in time are DATETIME(6) in UTC: TIMESTAMP ends in 2038. Key texts compare by their bytes, so that keys that differ at the
source only in case or trailing blanks stay two rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.constants import FIELD_TYPE
from pymysql.converters import conversions
from pymysql.cursors import SSCursor

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
    source_length,
    unsupported,
)
from headrace.sinks.database.mysql_bulk import BulkConnection
from headrace.ums.schema import Column
from headrace.ums.values import Array, join, to_text

_NAME_CHARACTERS = 64
_KEY_CHARACTERS = 255
_SHORT_TEXT_CHARACTERS = 255
_ARROW_DIGITS = 76
_ROWS_PER_STATEMENT = 2000
_BULK_ROWS = 100
"""From how many rows on values without SQL are quicker: less than that is sent as soon as it would be prepared."""
_BYTES_PER_CHARACTER = 4
_DAY_TYPES = {FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIME}
_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00'",
    "SET SESSION innodb_lock_wait_timeout = 30, SESSION lock_wait_timeout = 30",
    # No gap locks: writers of different keys do not wait for each other.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_DIALECT_TIMEOUT_S = 600
"""How long a statement may go without a word from the server; an ALTER of a large table takes its time."""


def _decimal(column: Column) -> str:
    kind = column.type
    precision, scale = kind.precision, kind.scale  # type: ignore[attr-defined]
    return f"decimal({precision},{scale})" if precision <= 65 and scale <= 30 else "varchar(100)"


def _text(column: Column) -> str:
    length = source_length(column)
    return f"varchar({length})" if length and length <= _SHORT_TEXT_CHARACTERS else "longtext"


def _binary(column: Column) -> str:
    length = source_length(column)
    return f"varbinary({length})" if length and length <= _SHORT_TEXT_CHARACTERS else "longblob"


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str | Callable[[Column], str]], ...] = (
    (pa.types.is_boolean, "tinyint"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_uint8, "tinyint unsigned"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_uint16, "smallint unsigned"),
    (pa.types.is_int32, "int"),
    (pa.types.is_uint32, "int unsigned"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_uint64, "bigint unsigned"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_date32, "date"),
    (pa.types.is_timestamp, "datetime(6)"),
    (pa.types.is_duration, "time(6)"),
)
_HOLDS: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "tinyint unsigned": pa.uint8(),
    "smallint": pa.int16(),
    "smallint unsigned": pa.uint16(),
    "int": pa.int32(),
    "int unsigned": pa.uint32(),
    "bigint": pa.int64(),
    "bigint unsigned": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "longtext": pa.utf8(),
    "longblob": pa.binary(),
    "date": pa.date32(),
    "datetime(6)": pa.timestamp("us"),
    "time(6)": pa.duration("us"),
}
_HERE = (
    f"table_schema = {PARAMETER} AND table_name = {PARAMETER}"  # by value: a join would open every table of the server
)
_COLUMNS = (
    "SELECT column_name, column_type, is_nullable = 'YES', column_default "
    f"FROM information_schema.columns WHERE {_HERE} ORDER BY ordinal_position"
)
_KEY = (
    "SELECT column_name FROM information_schema.statistics "
    f"WHERE {_HERE} AND index_name = 'PRIMARY' ORDER BY seq_in_index"
)


class MySql(Dialect):
    """One database of a MySQL or MariaDB server."""

    driver_errors = (pymysql.err.Error, OSError)
    share_lock = " LOCK IN SHARE MODE"

    def __init__(self, address: Address, schema: str | None) -> None:
        super().__init__(address, schema or address.database)
        self._connection: BulkConnection | None = None
        self._packet_bytes = 0
        self._is_mariadb = False
        self._folds_tables = 0
        self._sql: dict[Destination, tuple[str, str]] = {}

    def open(self) -> None:
        if self._connection is not None:
            return
        at = self.address
        try:
            self._connection = BulkConnection(
                host=at.host,
                port=at.port,
                user=at.user,
                password=at.password.encode(),
                database=at.database or None,
                charset="utf8mb4",
                connect_timeout=10,
                read_timeout=_DIALECT_TIMEOUT_S,
                write_timeout=_DIALECT_TIMEOUT_S,
                autocommit=False,
                conv={code: read for code, read in conversions.items() if code not in _DAY_TYPES},
                **at.options,
            )
        except RuntimeError as error:  # PyMySQL needs a library for some ways to log in
            raise ConfigError(f"MySQL at {at}: {error}", fix="pip install cryptography") from error
        for statement in _SESSION:
            self.run(statement)
        asked = "SELECT version(), @@max_allowed_packet, @@lower_case_table_names"
        [(version, self._packet_bytes, self._folds_tables)] = self.run(asked)
        self._is_mariadb = "mariadb" in version.lower()

    @property
    def _open(self) -> BulkConnection:
        self.open()
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            if self._connection.open:
                self._connection.close()
            self._connection = None

    def commit(self) -> None:
        self._open.commit()

    def rollback(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.rollback()

    def run(self, sql: str, rows: Sequence[Row] | None = None) -> list[Row]:
        with self._open.cursor() as cursor:
            text = sql if rows is None else sql.replace("%", "%%").replace(PARAMETER, "%s")
            for row in (None,) if rows is None else rows:
                cursor.execute(text, row)
            return list(cursor.fetchall())

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def check_name(self, name: str) -> None:
        beyond = any(ord(character) > 0xFFFF for character in name)
        if not name or "\0" in name or len(name) > _NAME_CHARACTERS or name.endswith(" ") or beyond:
            raise ConfigError(
                f"MySQL cannot have the name {name!r}: names have 1 to {_NAME_CHARACTERS} characters, the last no blank, "
                "none beyond U+FFFF",
                fix="map the table to another name with `table`, or drop the column with `columns: {drop: [...]}`",
            )

    def fold_table(self, name: str) -> str:
        return name.lower() if self._folds_tables else name

    def declare(self, column: Column, *, in_key: bool) -> str:
        for matches, declared in _TYPES:
            if matches(column.type):
                text = declared if isinstance(declared, str) else declared(column)
                return self._for_key(column, text) if in_key else text
        raise unsupported(column)

    def _for_key(self, column: Column, declared: str) -> str:
        """Texts in a key need a length, and are equal when their bytes are: also without the padding that ignores blanks."""
        if declared.startswith("long"):
            kind = "varchar" if declared == "longtext" else "varbinary"
            declared = f"{kind}({source_length(column) or _KEY_CHARACTERS})"
        if not declared.startswith("varchar"):
            return declared
        return f"{declared} character set utf8mb4 collate {'utf8mb4_nopad_bin' if self._is_mariadb else 'utf8mb4_0900_bin'}"

    def holds(self, declared: str) -> StoredType | None:
        plain = re.sub(r"int\(\d+\)", "int", declared.partition(" character set")[0].lower())
        found = re.fullmatch(r"(varchar|varbinary|decimal)\((\d+)(?:,(\d+))?\)", plain)
        if found is None:
            return StoredType(_HOLDS[plain]) if plain in _HOLDS else None
        kind, length = found[1], int(found[2])
        if kind == "decimal":
            return StoredType(pa.decimal256(min(length, _ARROW_DIGITS), int(found[3])))
        return StoredType(pa.utf8() if kind == "varchar" else pa.binary(), length)

    def default(self, value: Array, declared: str) -> str:
        literal: str = _literals(value)[0].as_py()
        return f"({literal})" if declared.startswith("long") else literal

    def describe(self, target: Target) -> StoredTable | None:
        here = [(self.schema, target.name)]
        rows = self.run(_COLUMNS, here)
        if not rows:
            return None
        columns = tuple(StoredColumn(row[0], row[1], bool(row[2]), self._default(row[3])) for row in rows)
        return StoredTable(columns, tuple(row[0] for row in self.run(_KEY, here)))

    def _default(self, catalog: str | None) -> str | None:
        """MariaDB's catalog has SQL text, MySQL's has the value."""
        if catalog is None or catalog == "NULL":
            return None
        return catalog if self._is_mariadb else str(_literals(pa.array([catalog]))[0].as_py())

    def rehearse(self, target: Target, statement: str) -> None:
        """As a table of this session; who has no right to make one learns from the real one."""
        try:
            self.run(statement.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
        except pymysql.err.OperationalError as error:
            if error.args[0] not in _NO_TEMPORARY_TABLES:
                raise
        else:
            self.run(f"DROP TEMPORARY TABLE {self.table(target)}")

    def change_column(self, target: Target, column: StoredColumn) -> list[str]:
        return [f"ALTER TABLE {self.table(target)} MODIFY COLUMN {self._definition(column)}"]

    def _definition(self, column: StoredColumn) -> str:
        default = "" if column.default is None else f" DEFAULT {column.default}"
        nullable = "NULL" if column.nullable else "NOT NULL"
        return f"{self.quote(column.name)} {column.declared} {nullable}{default}"

    def change_key(self, target: Target, columns: Sequence[StoredColumn]) -> None:
        """In one statement, so that the table is never without a key."""
        modified = [f"MODIFY COLUMN {self._definition(column)}" for column in columns]
        key = f"ADD PRIMARY KEY ({', '.join(map(self.quote, target.key))})"
        self.run(f"ALTER TABLE {self.table(target)} DROP PRIMARY KEY, {', '.join([*modified, key])}")

    @contextmanager
    def shaping(self, target: Target) -> Iterator[None]:
        self.commit()  # MySQL does so itself before it changes a table
        name = hashlib.sha256(self.table(target).encode()).hexdigest()[:50]
        if self.run(f"SELECT GET_LOCK({PARAMETER}, 60)", [(f"headrace {name}",)]) != [(1,)]:
            raise RetryableError(
                f"MySQL at {self.address}: another process changes {target.name} since a minute",
                fix="wait for it to end (SHOW PROCESSLIST)",
            )
        try:
            yield
            self.commit()
        finally:
            self.run(f"SELECT RELEASE_LOCK({PARAMETER})", [(f"headrace {name}",)])

    def upsert(self, to: Destination, columns: Sequence[Array]) -> None:
        head, tail = self._upsert_sql(to)
        if self._open.takes_bulk and len(columns[0]) >= _BULK_ROWS:
            values = ", ".join("?" * len(columns))
            self._open.insert(f"{head}({values}){tail}", columns, self._packet_bytes // 2)
            return
        rows = join(*map(_literals, columns), separator=",")
        with self._open.cursor() as cursor:
            for part in self._parts(rows.to_pylist()):
                cursor.execute(f"{head}({'),('.join(part)}){tail}")

    def _parts(self, rows: list[Any]) -> Iterator[list[Any]]:
        """The rows in groups, each of which fits into a packet."""
        longest = max(map(len, rows)) * _BYTES_PER_CHARACTER
        step = max(1, min(_ROWS_PER_STATEMENT, self._packet_bytes // 2 // longest))
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    def _upsert_sql(self, to: Destination) -> tuple[str, str]:
        if to not in self._sql:
            names = ", ".join(map(self.quote, to.names))
            id_ = self.quote(to.target.system.id)
            is_newer = f"VALUES({id_}) > {id_}"
            replaced = ", ".join(f"{n} = IF({is_newer}, VALUES({n}), {n})" for n in map(self.quote, to.replaced))
            self._sql[to] = (
                f"INSERT INTO {self.table(to.target)} ({names}) VALUES ",
                f" ON DUPLICATE KEY UPDATE {replaced}",
            )
        return self._sql[to]

    def parameters(self, column: Array) -> list[Any]:
        by_value = (
            pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type)
        )
        return to_text(column).to_pylist() if by_value else column.to_pylist()

    def select(self, to: Destination, where: str, chunk_rows: int) -> Iterator[list[Row]]:
        names = ", ".join(
            # FLOAT as text has six digits only.
            f"CAST({name} AS DOUBLE)" if to.declared(column.name) == "float" else name
            for column in to.target.columns
            for name in (self.quote(column.name),)
        )
        with self._open.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {names} FROM {self.table(to.target)} WHERE {where}")
            while rows := cursor.fetchmany(chunk_rows):
                yield list(rows)

    def translate(self, error: Exception) -> HeadraceError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = error.args[1] if len(error.args) > 1 else str(error)
        if isinstance(error, OSError | pymysql.err.InterfaceError) or 2000 <= code < 2100:
            kind, fix = _AWAY
        else:
            kind, fix = _ERRORS.get(code, (FatalError, f"see the manual of MySQL for error {code}"))
        return kind(f"MySQL at {self.address}: {text} (error {code})", fix=fix)


def _literals(column: Array) -> Array:
    """The column as SQL literals; the session's sql_mode makes a backslash an escape."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    text = to_text(column)
    if pa.types.is_binary(kind):
        text = join("x'", text, "'")
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
        if pa.types.is_string(kind):
            text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), "'", "''")
        text = join("'", text, "'")
    filled: Array = text.fill_null("NULL")
    return filled


_NO_TEMPORARY_TABLES = (1044, 1142)
_AWAY: tuple[type[HeadraceError], str] = (RetryableError, "check that the server runs and can be reached from here")
_BUSY = (RetryableError, "another transaction stands in the way; end it if this goes on")
_LOGIN = (ConfigError, "correct user, password and database in the sink's `url`, or create them on the server")
_GRANT = (ConfigError, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER on the database to the user")
_VALUE = (DataError, "correct the value at the source, or leave the column out with `columns: {drop: [...]}`")
_CONSTRAINT = (DataError, "remove the constraint that headrace did not create, or correct the row")
_CHANGED = (RetryableError, "somebody changed the target table; it is prepared again on the next try")
_DISK = (StorageError, "free space on the server's disk, then start again; nothing that was acknowledged is lost")
_WIDTH = (ConfigError, "leave columns out with `columns: {drop: [...]}`, or use a store without this limit")
_ERRORS: dict[int, tuple[type[HeadraceError], str]] = {
    **dict.fromkeys((1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1927), _AWAY),
    **dict.fromkeys((1205, 1213), _BUSY),
    **dict.fromkeys((1045, 1049, 1130, 1698), _LOGIN),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), _GRANT),
    **dict.fromkeys((1153, 1264, 1265, 1292, 1300, 1366, 1367, 1406, 1411, 1441, 1690), _VALUE),
    **dict.fromkeys((1048, 1062, 1138, 1169, 1364, 1451, 1452, 3819, 4025), _CONSTRAINT),
    **dict.fromkeys((1054, 1146, 1615), _CHANGED),
    1461: (RetryableError, "raise max_prepared_stmt_count of the server, or end what keeps so many statements there"),
    **dict.fromkeys((1021, 1114), _DISK),
    **dict.fromkeys((1070, 1071, 1074, 1118), _WIDTH),
    1290: (RetryableError, "the server is read-only (a replica?); point the sink's `url` to the primary"),
    1836: (RetryableError, "the server is read-only (a replica?); point the sink's `url` to the primary"),
}
