"""The database sink: source tables become tables of the same shape in SQLite, DuckDB, PostgreSQL, MySQL or MariaDB; by sinks/jdbc in others.

A target table has the source's columns, then ``_ums_id_``, ``_ums_ts_`` and ``_is_active_``; its primary key is the source's.
`write` gathers, `commit` stores everything in one transaction, so a source transaction becomes visible whole.

Limits: a unique index that a user adds to a MySQL target can make two keys collide there. A table without a key, whose key columns the flow
names, keeps the old row when such a column changes, because its log does not say which row that was.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from string import Formatter
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from headrace.errors import ConfigError, DataError, Finding
from headrace.model import Component, Duration, StoreUrl
from headrace.on_change import OnChange
from headrace.sinks.base import Capabilities, Places, Position, Sink, refuse_names, refused, require_key
from headrace.sinks.database import columns, merging, positions, tombstones
from headrace.sinks.database.dialect import PARAMETER, Destination, Dialect, Target
from headrace.sinks.database.evolve import ensure, placed, prepare, rehearse
from headrace.sinks.database.fit import fitting
from headrace.sinks.database.url import dialect_of, parse
from headrace.ums.change import ChangeBatch, Clear, is_delete, user_columns
from headrace.ums.schema import ID, TS, Namespace, TableSchema
from headrace.ums.system_columns import USUAL, SystemColumns
from headrace.ums.values import Array, Values, from_column, from_values

_SCAN_ROWS = 10_000
_FORGET_EVERY_S = 600.0
_OWN = {columns.TARGET.name, positions.TARGET.name, tombstones.TARGET.name}
_TELL_APART = "tell them apart in `table`, for instance with '{schema}_{table}'; or, if they are shards of one table, write `merge: true`"


class TablesConfig(Component):
    """What every sink has that delivers into tables of a relational database."""

    db_schema: str | None = Field(default=None, alias="schema")
    """The schema (MySQL: the database) of the target tables, which must exist; by default the connection's own."""
    table: str = "{table}"
    """Name of the target table. May use {type}, {source}, {schema}, {table}."""
    merge: bool = False
    """Tables of several shards may have one target table: `_ums_source_` says in each row which one it is of, and is in the key."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a deleted row stays with `_is_active_` = 0. hard: it is removed; its key's hash goes to ``_headrace_tombstones``."""
    tombstones: Annotated[Duration, Field(ge=0)] = 7 * 86400.0
    """How long a hard delete is remembered: longer than an older change of the row can still come."""
    on_change: OnChange = OnChange()
    """What becomes of the target when columns change at the source; set by the flow's `on_change`."""
    system_columns: SystemColumns = USUAL
    """What the columns beside those of the source are called; set by the flow's `system_columns`."""
    batch_rows: int = Field(default=5000, ge=1)
    """How many rows are gathered before they are sent; a commit sends what is there."""

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


class DatabaseConfig(TablesConfig):
    """Delivers into tables of a relational database."""

    type: Literal["database"]
    url: StoreUrl
    """``sqlite:///./mart.db``, ``duckdb:///./mart.duckdb``, ``postgresql://user:password@host:port/database``, ``mysql://…`` or ``mariadb://…``."""

    @field_validator("url")
    @classmethod
    def _known_store(cls, url: str) -> str:
        try:
            parse(url)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.fix}") from error
        return url


class TablesSink(Sink):
    """One connection to one database. Which one, and by which dialect, a subclass says."""

    capabilities = Capabilities(needs_key=True, remembers_position=True, scans=True)

    def __init__(self, config: TablesConfig, flow: str) -> None:
        self._config = config
        self._flow = flow
        self._positions: Destination | None = None
        self._dialect = self._new_dialect()
        self._destinations: dict[Namespace, Destination] = {}
        self._columns: Destination | None = None
        self._versions: dict[Namespace, TableSchema] = {}
        self._places = Places(_TELL_APART)
        self._tombstones: Destination | None = None
        self._forgot_at = -math.inf
        self._pending: dict[Namespace, list[ChangeBatch]] = {}
        self._pending_rows = 0

    def prepare(self, table: TableSchema) -> None:
        require_key(table, "a database target")
        self._refuse_names(table)
        table = self._marked(table)
        target = self._target(table)
        self.flush()
        with self._driver_errors():
            self._dialect.open()
            self._claim(self._places, table)
            if self._config.delete == "hard" and self._tombstones is None:
                self._tombstones = ensure(self._dialect, tombstones.TARGET)
            if self._columns is None:
                self._columns = ensure(self._dialect, columns.TARGET)
            to = prepare(self._dialect, target, table, self._columns, self._config.on_change)
            self._versions[table.namespace] = table
            self._destinations[table.namespace] = to

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        places = Places(_TELL_APART)
        with self._driver_errors():
            self._dialect.open()
        for table in tables:
            of_itself = refused(partial(require_key, table, "a database target"), partial(self._refuse_names, table))
            if findings := list(of_itself):
                yield from findings
            else:
                yield from refused(partial(self._claim, places, table), partial(self._rehearse, self._marked(table)))
        yield from self._dialect.advice([self._target(table) for table in tables])

    def write(self, batch: ChangeBatch) -> None:
        if len(batch) == 0:
            return
        marked = merging.marked_rows(batch, self._config.system_columns) if self._config.merge else batch
        self._pending.setdefault(batch.table.namespace, []).append(marked)
        self._pending_rows += len(batch)
        if self._pending_rows >= self._config.batch_rows:
            self.flush()

    def clear(self, clear: Clear) -> None:
        self.flush()
        with self._driver_errors():
            columns.clear(self._dialect, self._destinations[clear.table.namespace].target.name, clear)
            to, _ = self._held(clear.table.namespace)
            if not to.is_over:
                self._end_rows(to, clear)

    def commit(self, position: Position) -> None:
        self.flush()
        with self._driver_errors():
            self._dialect.upsert_own(self._position_table(), positions.row(self._flow, position))
            self._dialect.commit()
            self._forget_deletes()

    def _forget_deletes(self) -> None:
        """Removes tombstones that were kept long enough, now and then."""
        kept_s, now_s = self._config.tombstones, time.time()
        if self._tombstones is not None and now_s - self._forgot_at >= min(kept_s, _FORGET_EVERY_S):
            self._forgot_at = now_s
            tombstones.forget(self._dialect, round((now_s - kept_s) * 1e6))

    def position(self, topic: str, partition: int) -> Position | None:
        with self._driver_errors():
            return positions.find(self._dialect, self._position_table(), self._flow, topic, partition)

    def _position_table(self) -> Destination:
        if self._positions is None:
            self._positions = ensure(self._dialect, positions.TARGET)
        return self._positions

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        marked = self._marked(table)
        target = self._target(marked)
        reader = self._new_dialect()  # of its own: it sees what is committed
        schema = pa.schema([pa.field(column.name, column.type) for column in marked.columns])
        own = [column.name for column in table.columns]
        try:
            with self._driver_errors():
                reader.open()
                to = placed(reader, target, marked, ensure(reader, columns.TARGET))
                where = f"{reader.quote(self._config.system_columns.active)} = 1"
                if self._config.merge:
                    source = reader.quote(self._config.system_columns.source)
                    where += f" AND {source} = {reader.default(merging.name_of(table), 'text')}"
                for found in reader.columns(to, where, _SCAN_ROWS):
                    yield _to_batch(target.name, found, schema, to.brought).select(own)
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

    def _marked(self, table: TableSchema) -> TableSchema:
        return merging.marked(table, self._config.system_columns) if self._config.merge else table

    def _refuse_names(self, table: TableSchema) -> None:
        refuse_names(table, (*self._config.system_columns.of_rows, self._config.system_columns.source))
        if (name := self._target(table).name).lower() in _OWN:
            raise ConfigError(
                f"{table.namespace.all_versions} would be written to {name}, a table that headrace needs",
                fix="give it another name by `table`, or leave it out with `exclude`",
            )

    def _claim(self, places: Places, table: TableSchema) -> None:
        """ConfigError when another table of the flow goes to the same one."""
        name = self._target(table).name
        if not self._config.merge:
            places.take(self._dialect.fold_table(name), table, f"the table {name}")

    def _rehearse(self, table: TableSchema) -> None:
        """Raises what `prepare` would of this table, which it names."""
        try:
            rehearse(self._dialect, self._target(table), table, self._config.on_change)
        except self._dialect.driver_errors as error:
            said = self._dialect.translate(error)
            raise type(said)(f"{table.namespace.all_versions}: {said.message}", fix=said.fix) from error
        finally:
            self._dialect.rollback()

    def _target(self, table: TableSchema) -> Target:
        space = table.namespace
        name = self._config.table.format(type=space.type, source=space.source, schema=space.schema, table=space.table)
        return Target(name, table.columns, table.key, self._config.system_columns)

    # --- rows

    def flush(self) -> None:
        """Sends what was gathered; it is committed by `commit`."""
        pending, self._pending, self._pending_rows = self._pending, {}, 0
        for namespace, batches in pending.items():
            whole = ChangeBatch(batches[0].table, _concat([batch.data for batch in batches]))
            with self._driver_errors():
                to, cleared = self._held(namespace)
                left = whole.not_before(cleared)
            if to.is_over or not len(left):
                continue
            gathered = left.newest_per_key()
            columns = _columns(gathered, to)
            _refuse_null_keys(to, columns)
            with self._driver_errors():
                self._dialect.upsert(to, columns)
                if self._tombstones is not None:
                    tombstones.settle(self._dialect, self._tombstones, to, columns, time.time_ns() // 1000)

    def _held(self, namespace: Namespace) -> tuple[Destination, int]:
        """Where rows of a version go, found anew when the target was changed since, and the id before which rows are gone; both stay
        so until the commit."""
        to, table = self._destinations[namespace], self._versions[namespace]
        assert self._columns is not None, "prepare comes first"
        number, cleared = columns.hold(self._dialect, to.target.name, namespace.all_versions)
        if number != to.number:
            to = self._destinations[namespace] = placed(self._dialect, self._target(table), table, self._columns)
        return to, cleared

    def _end_rows(self, to: Destination, clear: Clear) -> None:
        """Rows from before a clear are deleted, or kept with `_is_active_` = 0."""
        quote, system = self._dialect.quote, self._config.system_columns
        id_, ts_, active = quote(system.id), quote(system.ts), quote(system.active)
        table, where, row = self._dialect.table(to.target), f"{id_} < {PARAMETER}", (clear.id,)
        if self._config.merge:
            where += f" AND {quote(system.source)} = {self._dialect.default(merging.name_of(clear.table), 'text')}"
        if self._config.delete == "hard":
            self._dialect.run(f"DELETE FROM {table} WHERE {where}", [row])
            return
        [ts] = self._dialect.parameters(pa.array([clear.commit_ts_us], pa.timestamp("us", "UTC")))
        ended = f"{active} = 0, {ts_} = {PARAMETER}, {id_} = {PARAMETER}"
        self._dialect.run(f"UPDATE {table} SET {ended} WHERE {where}", [(ts, clear.id, *row)])

    @abstractmethod
    def _new_dialect(self) -> Dialect:
        """A connection to the database, not yet open."""

    @contextmanager
    def _driver_errors(self) -> Iterator[None]:
        try:
            yield
        except self._dialect.driver_errors as error:
            raise self._dialect.translate(error) from error


class DatabaseSink(TablesSink):
    """One connection to a database that headrace has a dialect for."""

    Config = DatabaseConfig

    def __init__(self, config: DatabaseConfig, flow: str) -> None:
        self._database = config
        super().__init__(config, flow)

    def _new_dialect(self) -> Dialect:
        return dialect_of(self._database.url, self._database.db_schema)


def _concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    joined: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
    return joined


def _columns(batch: ChangeBatch, to: Destination) -> list[Array]:
    """The arrays of a write: those of the source's columns that the target has, then the system columns."""
    data = batch.data
    active = pc.cast(pc.invert(is_delete(data)), pa.int16())
    names = user_columns(data)
    brought = [
        fitting(data.column(names[at]), to.fitted[column.name]) if column.name in to.fitted else data.column(names[at])
        for at, column in zip(to.brought, to.target.columns, strict=True)
    ]
    filled: list[Array] = [pa.repeat(value[0], len(batch)) for value in to.filled.values()]
    return [*brought, *filled, data.column(ID), data.column(TS), active]


def _refuse_null_keys(to: Destination, columns: Sequence[Array]) -> None:
    for name, column in zip(to.names, columns, strict=True):
        if name in to.target.key and column.null_count:
            raise DataError(
                f"table {to.target.name}: {column.null_count} row(s) have no value in the key column '{name}'",
                fix="name key columns that are never null, or leave the table out",
            )


def _to_batch(name: str, found: Sequence[Array | Values], schema: pa.Schema, brought: Sequence[int]) -> pa.RecordBatch:
    """Columns of the store as the version has them; one that the target lacks is null."""
    arrays: list[Array] = [pa.nulls(len(found[0]), field.type) for field in schema]
    for at, values in zip(brought, found, strict=True):
        field = schema.field(at)
        try:
            arrays[at] = (
                from_column(values, field.type) if isinstance(values, pa.Array) else from_values(values, field.type)
            )
        except (ValueError, ArithmeticError, TypeError) as error:
            raise DataError(
                f"table {name}, column '{field.name}': a stored value is not {field.type}: {error}",
                fix="correct the value in the target, or drop the table and load it again",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
