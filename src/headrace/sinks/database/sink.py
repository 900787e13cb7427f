"""The database sink: source tables become tables of the same shape in SQLite, PostgreSQL, MySQL or MariaDB.

A target table has the source's columns, then ``_ums_id_``, ``_ums_ts_`` and ``_is_active_``; its primary key is the source's.
`write` gathers, `commit` stores everything in one transaction, so a source transaction becomes visible whole.

Limits: a unique index that a user adds to a MySQL target can make two keys collide there. A column that was dropped at the
source and comes back keeps its old values in rows that are not written again. A table without a key, whose key columns the flow
names, keeps the old row when such a column changes, because its log does not say which row that was. TRUNCATE TABLE at the source
ends the rows that are there when it arrives; an older change of a new key that arrives after it is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from string import Formatter
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict, Field, field_validator

from headrace.errors import ConfigError, DataError, HeadraceError
from headrace.model import Component, StoreUrl
from headrace.sinks.base import Capabilities, Position, Sink
from headrace.sinks.database import positions, tombstones
from headrace.sinks.database.dialect import ACTIVE, PARAMETER, SYSTEM_COLUMNS, Destination, Target
from headrace.sinks.database.evolve import prepare
from headrace.sinks.database.url import dialect_of, parse
from headrace.sinks.values import Array, from_values, to_text
from headrace.ums.change import ChangeBatch, Clear, is_delete, user_columns
from headrace.ums.schema import ID, TS, Namespace, TableSchema

_SCAN_ROWS = 10_000


class DatabaseConfig(Component):
    """Delivers into tables of a relational database."""

    type: Literal["database"]
    url: StoreUrl
    """``sqlite:///./mart.db``, ``postgresql://user:password@host:port/database``, ``mysql://…`` or ``mariadb://…``."""
    db_schema: str | None = Field(default=None, alias="schema")
    """The schema (MySQL: the database) of the target tables, which must exist; by default the connection's own."""
    table: str = "{table}"
    """Name of the target table. May use {type}, {source}, {schema}, {table}."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a deleted row stays with `_is_active_` = 0. hard: it is removed; its key's hash stays in ``_headrace_tombstones``."""
    batch_rows: int = Field(default=5000, ge=1)
    """How many rows are gathered before they are sent; a commit sends what is there."""

    model_config = ConfigDict(hide_input_in_errors=True)  # the URL has a password

    @field_validator("url")
    @classmethod
    def _known_store(cls, url: str) -> str:
        try:
            parse(url)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.fix}") from error
        return url

    @field_validator("table")
    @classmethod
    def _naming_pattern(cls, table: str) -> str:
        try:
            fields = {name for _, name, _, _ in Formatter().parse(table) if name is not None}
        except ValueError:
            fields = {"{"}
        if fields - {"type", "source", "schema", "table"} or not table:
            raise ValueError(
                f"'{table}' is no naming pattern; "
                "use {type}, {source}, {schema}, {table} and plain text, for instance '{schema}_{table}'"
            )
        return table


class DatabaseSink(Sink):
    """One connection to one database."""

    Config = DatabaseConfig
    capabilities = Capabilities(needs_key=True, remembers_position=True, scans=True)

    def __init__(self, config: DatabaseConfig, flow: str) -> None:
        self._config = config
        self._flow = flow
        self._positions: Destination | None = None
        self._dialect = dialect_of(config.url, config.db_schema)
        self._destinations: dict[Namespace, Destination] = {}
        self._newest: dict[str, TableSchema] = {}
        self._written_by: dict[str, str] = {}
        self._tombstones: Destination | None = None
        self._pending: dict[Namespace, list[ChangeBatch]] = {}
        self._pending_rows = 0

    def prepare(self, table: TableSchema) -> None:
        if not table.key:
            raise ConfigError(
                f"the table {table.namespace.all_versions} has no key, which a database target needs",
                fix="name its key columns in the flow, `key: {schema.table: [column, …]}`, or leave it out with `exclude`",
            )
        target = self._target(table)
        family = table.namespace.all_versions
        if self._written_by.setdefault(target.name, family) != family:
            raise ConfigError(
                f"{family} and {self._written_by[target.name]} would both be written to the table {target.name}",
                fix="tell them apart in `table`, for instance with '{schema}_{table}'",
            )
        self._flush()
        with self._driver_errors():
            if self._config.delete == "hard" and self._tombstones is None:
                self._tombstones = prepare(self._dialect, tombstones.TARGET)
            self._destinations[table.namespace] = prepare(self._dialect, target, self._dropped(table))
            self._newest[family] = max(
                table, self._newest.get(family, table), key=lambda version: version.namespace.version
            )

    def write(self, batch: ChangeBatch) -> None:
        if len(batch) == 0:
            return
        self._pending.setdefault(batch.table.namespace, []).append(batch)
        self._pending_rows += len(batch)
        if self._pending_rows >= self._config.batch_rows:
            self._flush()

    def clear(self, clear: Clear) -> None:
        self._flush()
        to = self._destinations[clear.table.namespace]
        table = self._dialect.table(to.target)
        with self._driver_errors():
            if self._config.delete == "hard":
                self._dialect.run(f"DELETE FROM {table} WHERE {ID} < {PARAMETER}", [(clear.id,)])
                return
            [ts] = self._dialect.parameters(pa.array([clear.commit_ts_us], pa.timestamp("us", "UTC")))
            self._dialect.run(
                f"UPDATE {table} SET {ACTIVE} = 0, {TS} = {PARAMETER}, {ID} = {PARAMETER} WHERE {ID} < {PARAMETER}",
                [(ts, clear.id, clear.id)],
            )

    def commit(self, position: Position) -> None:
        self._flush()
        with self._driver_errors():
            self._dialect.upsert(self._position_table(), positions.row(self._flow, position))
            self._dialect.commit()

    def position(self, topic: str, partition: int) -> Position | None:
        with self._driver_errors():
            return positions.find(self._dialect, self._position_table(), self._flow, topic, partition)

    def _position_table(self) -> Destination:
        if self._positions is None:
            self._positions = prepare(self._dialect, positions.TARGET)
        return self._positions

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        target = self._target(table)
        reader = dialect_of(self._config.url, self._config.db_schema)  # of its own: it sees what is committed
        schema = pa.schema([pa.field(column.name, column.type) for column in table.columns])
        try:
            with self._driver_errors():
                reader.open()
                stored = reader.describe(target)
                if stored is None:
                    raise ConfigError(f"there is no table {target.name} in the target", fix="run the flow first")
                for rows in reader.select(Destination(target, stored), f"{ACTIVE} = 1", _SCAN_ROWS):
                    yield _to_batch(target.name, rows, schema)
        finally:
            reader.close()

    def check(self) -> None:
        with self._driver_errors():
            self._dialect.open()

    def close(self) -> None:
        self._dialect.close()
        self._pending.clear()
        self._pending_rows = 0

    # --- tables

    def _target(self, table: TableSchema) -> Target:
        reserved = {column.name for column in SYSTEM_COLUMNS}
        if taken := [column.name for column in table.columns if column.name.lower() in reserved]:
            raise ConfigError(
                f"the table {table.namespace.all_versions} has the column {taken[0]}, a name that headrace needs",
                fix="leave it out with `columns: {drop: [...]}`",
            )
        space = table.namespace
        name = self._config.table.format(type=space.type, source=space.source, schema=space.schema, table=space.table)
        return Target(name, table.columns, table.key)

    def _dropped(self, table: TableSchema) -> frozenset[str]:
        before = self._newest.get(table.namespace.all_versions)
        if before is None or before.namespace.version >= table.namespace.version:
            return frozenset()
        return frozenset({c.name for c in before.columns} - {c.name for c in table.columns})

    # --- rows

    def _flush(self) -> None:
        """Sends what was gathered; it is committed by `commit`."""
        pending, self._pending, self._pending_rows = self._pending, {}, 0
        for namespace, batches in pending.items():
            whole = ChangeBatch(batches[0].table, _concat([batch.data for batch in batches]))
            gathered = whole.newest_per_key()
            to = self._destinations[namespace]
            columns = _columns(gathered)
            _refuse_null_keys(to, columns)
            try:
                with self._driver_errors():
                    self._send(to, columns)
            except DataError as error:
                raise self._with_row(error, to, columns) from error

    def _send(self, to: Destination, columns: Sequence[Array]) -> None:
        self._dialect.upsert(to, columns)
        if self._tombstones is not None:
            tombstones.settle(self._dialect, self._tombstones, to, columns)

    def _with_row(self, error: DataError, to: Destination, columns: Sequence[Array]) -> HeadraceError:
        """The error with the key of a row that causes it, found by halving; everything tried is rolled back."""
        first, count = 0, len(columns[0])
        while count > 1:
            half = count // 2
            if self._refuses(to, [column.slice(first, half) for column in columns]):
                count = half
            else:
                first, count = first + half, count - half
        by_name = dict(zip(to.names, columns, strict=True))
        key = ", ".join(f"{name}={to_text(by_name[name].slice(first, 1))[0].as_py()}" for name in to.target.key)
        return DataError(f"table {to.target.name}, row with {key}: {error.message}", fix=error.fix)

    def _refuses(self, to: Destination, columns: Sequence[Array]) -> bool:
        try:
            with self._driver_errors():
                self._dialect.rollback()
                self._send(to, columns)
                self._dialect.rollback()
        except DataError:
            with self._driver_errors():
                self._dialect.rollback()
            return True
        return False

    @contextmanager
    def _driver_errors(self) -> Iterator[None]:
        try:
            yield
        except self._dialect.driver_errors as error:
            raise self._dialect.translate(error) from error


def _concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    joined: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
    return joined


def _columns(batch: ChangeBatch) -> list[Array]:
    """The arrays of a write: the source's columns, then the system columns."""
    data = batch.data
    active = pc.cast(pc.invert(is_delete(data)), pa.int16())
    return [*(data.column(name) for name in user_columns(data)), data.column(ID), data.column(TS), active]


def _refuse_null_keys(to: Destination, columns: Sequence[Array]) -> None:
    for name, column in zip(to.names, columns, strict=True):
        if name in to.target.key and column.null_count:
            raise DataError(
                f"table {to.target.name}: {column.null_count} row(s) have no value in the key column '{name}'",
                fix="name key columns that are never null, or leave the table out",
            )


def _to_batch(name: str, rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            arrays.append(from_values(values, field.type))
        except (ValueError, ArithmeticError, TypeError) as error:
            raise DataError(
                f"table {name}, column '{field.name}': a stored value is not {field.type}: {error}",
                fix="correct the value in the target, or drop the table and load it again",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
