"""Into this process's memory, for tests and notebooks: the newest row per key, by the same rule as every other store.

``MemorySink.stores["memory"]["mysql.db1.shop.orders"]`` maps each key to its newest change, tombstones included.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headrace.errors import Finding
from headrace.model import Component
from headrace.sinks.base import Capabilities, Position, Sink, refused, require_key
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import ID, TableSchema
from headrace.ums.values import from_text


class MemoryConfig(Component):
    """Delivers into the memory of this process."""

    type: Literal["memory"]
    name: str = "memory"
    """The store's name in `MemorySink.stores`: sinks of one name share it."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """The newest change of a key; `values` maps columns (`Column.identity`) to Arrow scalars."""

    id: int
    is_active: bool
    values: dict[str, pa.Scalar[Any]]


@dataclass
class MemoryStore:
    """All tables of one name, by namespace without version."""

    tables: dict[str, dict[tuple[object, ...], MemoryRow]] = field(default_factory=dict)
    cleared: dict[str, int] = field(default_factory=dict)
    """By table, the largest id of a clear."""
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
        require_key(table, "a memory target")
        with self._store.lock:
            self._store.tables.setdefault(table.namespace.all_versions, {})

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        return refused(*(partial(require_key, table, "a memory target") for table in tables))

    def write(self, batch: ChangeBatch) -> None:
        self._pending.append(batch)

    def clear(self, clear: Clear) -> None:
        self._pending.append(clear)

    def commit(self, position: Position) -> None:
        with self._store.lock:
            for change in self._pending:
                table = change.table.namespace.all_versions
                rows, cleared = self._store.tables[table], self._store.cleared
                if isinstance(change, Clear):
                    _clear(rows, change)
                    cleared[table] = max(change.id, cleared.get(table, change.id))
                else:
                    _merge(rows, change.not_before(cleared.get(table)).newest_per_key())
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
            values = [row.get(column.identity, missing).cast(column.type) for row in live]
            columns.append(pa.array(values, column.type))
        yield pa.RecordBatch.from_arrays(columns, [column.name for column in table.columns])

    def close(self) -> None:
        self._pending = []


def _clear(rows: dict[tuple[object, ...], MemoryRow], clear: Clear) -> None:
    for key, row in rows.items():
        if row.id < clear.id:
            rows[key] = MemoryRow(clear.id, False, row.values)


def _merge(rows: dict[tuple[object, ...], MemoryRow], batch: ChangeBatch) -> None:
    names = [column.identity for column in batch.table.columns]
    columns = [batch.data.column(column.name) for column in batch.table.columns]
    keys = zip(*(batch.data.column(name).to_pylist() for name in batch.table.key), strict=True)
    ids: list[Any] = batch.data.column(ID).to_pylist()
    deletes = is_delete(batch.data).to_pylist()
    for at, (key, change_id, deleted) in enumerate(zip(keys, ids, deletes, strict=True)):
        if key not in rows or rows[key].id < change_id:
            values = {name: column[at] for name, column in zip(names, columns, strict=True)}
            rows[key] = MemoryRow(change_id, not deleted, values)
