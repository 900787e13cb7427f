"""Into this process's memory, for tests and notebooks: the newest row per key, by the same rule as every other store.

``MemorySink.stores["memory"]["mysql.db1.shop.orders"]`` maps each key to its newest change, tombstones included.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.model import Component
from headrace.sinks.base import Capabilities, Position, Sink
from headrace.sinks.values import from_text
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import ID, TableSchema


class MemoryConfig(Component):
    """Delivers into the memory of this process."""

    type: Literal["memory"]
    name: str = "memory"
    """The store's name in `MemorySink.stores`: sinks of one name share it."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """The newest change of a key; `values` maps columns to Arrow scalars."""

    id: int
    is_active: bool
    values: dict[str, pa.Scalar[Any]]


@dataclass
class MemoryStore:
    """All tables of one name, by namespace without version."""

    tables: dict[str, dict[tuple[object, ...], MemoryRow]] = field(default_factory=dict)
    positions: dict[tuple[str, str, int], Position] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemorySink(Sink):
    """Rows become visible at `commit`, together with the position."""

    Config = MemoryConfig
    capabilities = Capabilities(needs_key=True, remembers_position=True, scans=True)
    stores: ClassVar[dict[str, MemoryStore]] = {}

    def __init__(self, config: MemoryConfig, flow: str) -> None:
        self._flow = flow
        self._store = self.stores.setdefault(config.name, MemoryStore())
        self._pending: list[ChangeBatch | Clear] = []

    def prepare(self, table: TableSchema) -> None:
        if not table.key:
            raise ConfigError(
                f"the table {table.namespace.all_versions} has no key, which a memory target needs",
                fix="name its key columns in the flow, `key: {schema.table: [column, …]}`, or leave it out with `exclude`",
            )
        with self._store.lock:
            self._store.tables.setdefault(table.namespace.all_versions, {})

    def write(self, batch: ChangeBatch) -> None:
        self._pending.append(batch)

    def clear(self, clear: Clear) -> None:
        self._pending.append(clear)

    def commit(self, position: Position) -> None:
        with self._store.lock:
            for change in self._pending:
                rows = self._store.tables[change.table.namespace.all_versions]
                if isinstance(change, Clear):
                    _clear(rows, change)
                else:
                    _merge(rows, change.newest_per_key())
            self._store.positions[self._flow, position.topic, position.partition] = position
        self._pending = []

    def position(self, topic: str, partition: int) -> Position | None:
        return self._store.positions.get((self._flow, topic, partition))

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        with self._store.lock:
            live = [row.values for row in self._store.tables[table.namespace.all_versions].values() if row.is_active]
        columns = []
        for column in table.columns:
            default = None if column.initial_default is None else from_text(column.initial_default, column.type)
            missing: pa.Scalar[Any] = pa.scalar(None, column.type) if default is None else default[0]
            values = [row.get(column.name, missing).cast(column.type) for row in live]
            columns.append(pa.array(values, column.type))
        yield pa.RecordBatch.from_arrays(columns, [column.name for column in table.columns])

    def close(self) -> None:
        self._pending = []


def _clear(rows: dict[tuple[object, ...], MemoryRow], clear: Clear) -> None:
    for key, row in rows.items():
        if row.id < clear.id:
            rows[key] = MemoryRow(clear.id, False, row.values)


def _merge(rows: dict[tuple[object, ...], MemoryRow], batch: ChangeBatch) -> None:
    names = [column.name for column in batch.table.columns]
    columns = [batch.data.column(name) for name in names]
    keys = zip(*(batch.data.column(name).to_pylist() for name in batch.table.key), strict=True)
    ids: list[Any] = batch.data.column(ID).to_pylist()
    deletes = is_delete(batch.data).to_pylist()
    for at, (key, change_id, deleted) in enumerate(zip(keys, ids, deletes, strict=True)):
        if key not in rows or rows[key].id < change_id:
            values = {name: column[at] for name, column in zip(names, columns, strict=True)}
            rows[key] = MemoryRow(change_id, not deleted, values)
