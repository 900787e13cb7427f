"""Tables of a live MySQL or MariaDB server, read as they are: what a full load (capture/load) asks for.

Rows are read in the order of the key, by plain SELECTs that lock nothing and write nothing. A place in that order is kept as literals
of SQL that the server itself compares with the columns, so whatever order a column has (a collation, a sign, bytes), the server's is
taken. For a key of several columns::

    (a, b) > (1, 2)      is written      (a > 1 OR (a = 1 AND b > 2))        for which the server uses the index

A table has no such order when it has no key, or a column of its key is of a type whose literals the server compares in another order
than it sorts them (ENUM, SET, BIT, FLOAT and so on), or is masked, because keys are kept on the log: it is read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.capture.connection import Connection, quoted
from headrace.capture.history import History
from headrace.capture.load.base import Key, NotYetError, Part, Range
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.capture.replica import Replica
from headrace.capture.select import described, select
from headrace.capture.servers import connect
from headrace.errors import ConfigError, TableChangedError
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema

_BATCH_BYTES = 8 << 20
_NOT_ORDERED = (
    "enum",
    "set",
    "bit",
    "float",
    "json",
    "geometry",
    "vector",
    "tinyblob",
    "blob",
    "mediumblob",
    "longblob",
)


class MySqlLoader:
    """A `Loader` on a connection of its own, to a server that has everything that was captured."""

    def __init__(self, config: MySqlConfig, schemas: Path, newest: Callable[[], Mark | None]) -> None:
        """`schemas`: the file of the schema history; `newest` gives the newest mark of the capture."""
        self._config = config
        self._schemas = schemas
        self._newest = newest
        self._replica: Replica | None = None
        self._known: tuple[tuple[int, int] | None, History] | None = None

    def names(self) -> Sequence[tuple[str, str]]:
        return [name for name in self._server.tables() if self._config.delivers(*name)]

    def table(self, schema: str, name: str) -> TableSchema | None:
        now = described(self._connection, self._config.name, schema, name)
        if now is None:
            return None
        known = self._history().like(now)
        if known is None:
            raise NotYetError(
                f"capture has not come to what {schema}.{name} is at the source now",
                fix="wait for it: it is loaded as soon as capture has",
            )
        return known

    def has_past(self, schema: str, name: str) -> bool:
        return self._history().has_past(schema, name)

    def replaced_at(self, schema: str, name: str) -> int | None:
        return self._history().replaced_at(schema, name)

    def end_of_log(self) -> Callable[[Mark], bool]:
        end = self._server.end_for_comparison()
        return lambda mark: BinlogPosition.of(mark).is_behind(end)

    def estimated_rows(self, table: TableSchema) -> int:
        space = table.namespace
        rows = self._connection.rows(
            "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (space.schema, space.table),
        )
        return int(rows[0][0] or 0) if rows else 0

    def last_key(self, table: TableSchema, where: str) -> Key | None:
        order = self.order(table)
        found = self._keys(table, order, _condition(order, Range(None, None), where), descending=True) if order else []
        return found[0] if found else None

    def key_behind(self, table: TableSchema, range_: Range, where: str, rows: int) -> Key | None:
        order = self.order(table)
        found = self._keys(table, order, _condition(order, range_, where), skip=rows - 1)
        return found[0] if found else None

    def read(self, table: TableSchema, range_: Range, where: str, batch_rows: int) -> Iterator[Part]:
        order = self.order(table)
        try:
            for batch in select(
                self._connection,
                table,
                where=_condition(order, range_, where),
                order_by=order,
                batch_rows=batch_rows,
                batch_bytes=_BATCH_BYTES,
            ):
                yield Part(batch, _last(batch, order))
        except TableChangedError as error:
            raise _changed(error) from error
        finally:
            # When the rows are not taken to their end, `select` has ended the connection.
            if not self._connection.is_open:
                self.close()

    def close(self) -> None:
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    def _history(self) -> History:
        """As capture has left it: a file that is replaced whole, so it is read only when it is another one."""
        try:
            found = self._schemas.stat()
            state = (found.st_ino, found.st_mtime_ns)
        except FileNotFoundError:
            state = None
        if self._known is None or self._known[0] != state:
            self._known = state, History.load(self._schemas, self._config.captures)
        return self._known[1]

    @property
    def _server(self) -> Replica:
        if self._replica is None:
            mark = self._newest()
            self._replica = connect(self._config, position=BinlogPosition.of(mark) if mark is not None else None)
        return self._replica

    @property
    def _connection(self) -> Connection:
        return self._server.connection

    def order(self, table: TableSchema) -> tuple[str, ...]:
        key = list(table.key) or self._configured_key(table)
        types = [table.column(column).source_type for column in key]
        space = table.namespace
        masked = any(self._config.is_masked(space.schema, space.table, column) for column in key)
        return () if masked or any(type_.startswith(_NOT_ORDERED) for type_ in types) else tuple(key)

    def _configured_key(self, table: TableSchema) -> list[str]:
        assert self._config.load is not None
        name = f"{table.namespace.schema}.{table.namespace.table}"
        key = self._config.load.key.get(name, [])
        fitting = [column.name for column in table.columns if not column.nullable]
        if not key:
            raise ConfigError(
                f"the table {name} has no key, so its rows cannot be told apart while it is loaded",
                fix=f"name columns that tell them apart, `load: {{key: {{{name}: [column, …]}}}}`, or leave it out with"
                f" `load: {{exclude: [{name}]}}`",
            )
        if wrong := [column for column in key if column not in fitting]:
            raise ConfigError(
                f"`load.key` names the column {wrong[0]} of {name}, which can be NULL or is not there",
                fix=f"use columns that are NOT NULL: {', '.join(fitting) or 'it has none'}",
            )
        return key

    def _keys(
        self, table: TableSchema, order: Sequence[str], condition: str, *, skip: int = 0, descending: bool = False
    ) -> list[Key]:
        keys = replace(table, columns=tuple(table.column(name) for name in order))
        try:
            batches = select(
                self._connection,
                keys,
                where=condition,
                order_by=order,
                descending=descending,
                limit=1,
                offset=skip,
                batch_rows=1,
                batch_bytes=_BATCH_BYTES,
            )
            return [key for batch in batches if (key := _last(batch, order)) is not None]
        except TableChangedError as error:
            raise _changed(error) from error


def _changed(error: TableChangedError) -> NotYetError:
    return NotYetError(f"the table changed while it was read: {error.message}", fix=error.fix)


def _condition(order: Sequence[str], range_: Range, where: str) -> str:
    parts = [f"({where})"] if where else []
    if range_.after is not None:
        parts.append(_beyond(order, range_.after, ">", ">"))
    if range_.to is not None:
        parts.append(_beyond(order, range_.to, "<", "<="))
    return " AND ".join(parts)


def _beyond(order: Sequence[str], key: Key, sign: str, last_sign: str) -> str:
    """The columns, one after the other, beyond a key."""
    (name, *names), (value, *values) = order, key
    column = quoted(name)
    if not names:
        return f"{column} {last_sign} {value}"
    return f"({column} {sign} {value} OR ({column} = {value} AND {_beyond(names, tuple(values), sign, last_sign)}))"


def _last(batch: pa.RecordBatch, order: Sequence[str]) -> Key | None:
    """The key of the last row; None without an order, or when a value has no literal (a date that no calendar has)."""
    if not order or not batch.num_rows:
        return None
    values = [batch.column(name)[batch.num_rows - 1].as_py() for name in order]
    return None if None in values else tuple(_literal(value) for value in values)


def _literal(value: object) -> str:
    return next(write(value) for kind, write in _LITERALS if isinstance(value, kind))


def _moment(value: datetime) -> str:
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return f"'{naive.isoformat(' ')}'"


def _clock(value: timedelta) -> str:
    us = abs(value) // timedelta(microseconds=1)
    seconds, us = divmod(us, 1_000_000)
    sign = "-" if value < timedelta(0) else ""
    return f"'{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{us:06d}'"


_LITERALS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (int, str),
    (Decimal, "{:f}".format),
    (float, "{:.17e}".format),
    (str, lambda text: f"_utf8mb4 X'{text.encode().hex()}'"),
    (bytes, lambda data: f"X'{data.hex()}'"),
    (datetime, _moment),
    (date, "'{}'".format),
    (timedelta, _clock),
)
"""The first that fits is taken."""
