"""Rows of a live table, equal to what the log of the same server gives for them, byte for byte.

::

    SET SESSION … · COM_STMT_PREPARE sql -> id · COM_STMT_EXECUTE id -> columns, row, row, …, end · COM_STMT_CLOSE id

The rows are asked for as a prepared statement without arguments, because then the server sends them in binary form: numbers as they
are stored (in text it would round FLOAT), dates as their parts, also those that no calendar has.

What is set in the session, and why:

- `time_zone`: TIMESTAMP is stored in UTC and logged in UTC, and is sent in the session's zone.
- `character_set_results=NULL`: texts come in their columns' own sets, as the log has them; a conversion by the server would turn
  what is broken into question marks.
- `sql_mode`: nothing that bends values (PAD_CHAR_TO_FULL_LENGTH fills CHAR up) or the words of a condition (ANSI_QUOTES,
  NO_BACKSLASH_ESCAPES); ALLOW_INVALID_DATES, so that a condition may name every date that can be stored.
- `net_write_timeout`: who takes the rows may be slow.
- no limit of a statement's time: the rows of a large table take theirs.

Crash story: nothing is kept. A connection that is left in the middle of its rows is closed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.capture.columns import ColumnDefinition
from headrace.capture.connection import Connection, quoted
from headrace.capture.definitions import defined
from headrace.capture.gather import described_table
from headrace.codec.binlog import DefinedColumn, Definition
from headrace.codec.rows import RowsReader, Stored, describe
from headrace.errors import ConfigError, CorruptError, SourceError, TableChangedError
from headrace.ums.schema import TableSchema

_COM_STMT_PREPARE = 0x16
_COM_STMT_EXECUTE = 0x17
_COM_STMT_CLOSE = 0x19
_NO_CURSOR = 0
_WAIT_S = 1.0
_SILENCE_S = 600
"""How long a server may search for the next rows."""
_SESSION = (
    "SET SESSION time_zone = '+00:00', character_set_results = NULL, sql_mode = 'ALLOW_INVALID_DATES',"
    f" net_write_timeout = {_SILENCE_S}, "
)


def described(connection: Connection, source: str, schema: str, table: str) -> TableSchema | None:
    """A table as the server's catalogue defines it now, equal to what the log makes of it when that describes tables in full.

    None: there is no such table, or the user may not read it. SourceError: its definition or one of its types is not known to
    headrace, or it has a column with a name that headrace needs.
    """
    sql = connection.create_statement(schema, table)
    if sql is None:
        return None
    definition, columns = defined(schema, table, sql)
    if definition is None:
        raise SourceError(
            f"the definition of {schema}.{table} at {connection.address} cannot be read: {sql[:200]}",
            fix="leave the table out of the source's `tables`, and tell the project about the statement",
        )
    logged = definition.for_decoder()
    written = {column.name: column for column in columns}
    both = [_logged(column, written.get(column.name), connection.is_mariadb) for column in logged.columns]
    complete = Definition(tuple(column for column, _ in both), logged.keys)
    info, arrow = describe(schema, table, complete, [stored for _, stored in both])
    return described_table(source, info, arrow)


def _logged(column: DefinedColumn, written: ColumnDefinition | None, is_mariadb: bool) -> tuple[DefinedColumn, Stored]:
    """A column as its server logs it; `written` is None for the two of system versioning that nobody has written."""
    if written is None:
        return column, Stored((6,), nullable=False, compressed=False)
    arguments = () if column.labels else tuple(int(argument) for argument in written.arguments)
    if column.kind == "vector" and is_mariadb:
        # MariaDB logs the bytes that it is made of.
        column, arguments = replace(column, kind="varbinary", charset="binary"), (4 * arguments[0],)
    return column, Stored(arguments, written.nullable, written.compressed)


def select(
    connection: Connection,
    table: TableSchema,
    *,
    where: str = "",
    order_by: Sequence[str] = (),
    descending: bool = False,
    limit: int | None = None,
    offset: int = 0,
    batch_rows: int,
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Rows of a table: its columns in their order, then `_ums_raw_` (ums/schema.py), in batches up to one of these two sizes.

    `where` is a condition in SQL, its values literals; `order_by` names columns; `limit` and `offset` are those of SQL. The rows come as they are wanted, and memory holds
    one batch. When the rows are not taken to their end, the connection is closed. It is changed for good in what its session has
    set (above), and can be within a transaction.

    TableChangedError: the table, or one of its columns, is not there (any more), or has values of another type. RetryableError: the
    server went away. ConfigError: `where` holds a question mark outside of a literal, which asks for an argument. SourceError: the
    user lacks a right, and every other error of the server. CorruptError: the connection's bytes were damaged.
    """
    action = f"read the rows of {table.namespace.schema}.{table.namespace.table} at"
    limits = "max_statement_time = 0" if connection.is_mariadb else "max_execution_time = 0"
    connection.rows(_SESSION + limits)
    order = ", ".join(f"{quoted(name)}{' DESC' if descending else ''}" for name in order_by)
    rows = "" if limit is None else f"LIMIT {limit} OFFSET {offset}"
    whole = False
    try:
        statement = _prepare(connection, _sql(table, where, order, rows), action)
        connection.command(_COM_STMT_EXECUTE, struct.pack("<IBI", statement, _NO_CURSOR, 1), action)
        reader = RowsReader(table)
        yield from _batches(connection, reader, batch_rows, batch_bytes)
        if reader.unfit is not None:
            place = f"{table.namespace.schema}.{table.namespace.table} at {connection.address}"
            raise TableChangedError(f"{place}: {reader.unfit}", fix="look what the table is now, and read it as that")
        if reader.error is not None:
            raise connection.error(action, *reader.error)
        connection.command(_COM_STMT_CLOSE, struct.pack("<I", statement), action)
        whole = True
    finally:
        if not whole:
            connection.close()


def _sql(table: TableSchema, where: str, order: str, rows: str) -> str:
    name = f"{quoted(table.namespace.schema)}.{quoted(table.namespace.table)}"
    parts = [f"SELECT {', '.join(quoted(column.name) for column in table.columns)} FROM {name}"]
    if where:
        parts.append(f"WHERE {where}")
    if order:
        parts.append(f"ORDER BY {order}")
    return " ".join([*parts, rows])


def _prepare(connection: Connection, sql: str, action: str) -> int:
    """The number of a prepared statement.

    ::

        00 | statement u32 | columns u16 | parameters u16 | …        then a packet for each column, and one that ends them
    """
    connection.command(_COM_STMT_PREPARE, sql.encode(), action)
    statement, columns, parameters = struct.unpack_from("<IHH", connection.packet(action), 1)
    if parameters:
        raise ConfigError(
            f"a condition on rows asks for {parameters} arguments: {sql[:200]}",
            fix="write values as literals; a question mark within quotes is one",
        )
    for _ in range(columns + 1):
        connection.packet(action)
    return int(statement)


def _batches(connection: Connection, reader: RowsReader, batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    connection.stream(_SILENCE_S)
    while not reader.at_end:
        with connection.read(_WAIT_S) as data:
            used, full = 0, True
            while full:
                with data[used:] as rest:
                    taken, full = reader.feed(rest, rows=batch_rows, size_bytes=batch_bytes)
                used += taken
                if full:
                    yield reader.take()
            left = len(data) - used
        connection.consumed(used)
    if left and reader.unfit is None:
        raise CorruptError(
            f"the server {connection.address} sent {left} bytes behind the end of its rows",
            fix="read the table again; look for what changes bytes on the way (a proxy), and switch TLS on",
        )
    if reader.rows:
        yield reader.take()
