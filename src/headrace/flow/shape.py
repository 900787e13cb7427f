"""What a flow makes of the changes it reads: which namespaces it takes, which columns under which names, which key."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.flow.spec import FlowSpec
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import SYSTEM_FIELDS, Namespace, TableSchema

_SYSTEM = len(SYSTEM_FIELDS)


class Shaper:
    """Applies one flow's `from`, `exclude`, `columns` and `key`. Remembers what it found out per namespace and per schema."""

    def __init__(self, flow: FlowSpec) -> None:
        self._flow = flow
        self._wanted: dict[bytes, bool] = {}
        self._shapes: dict[TableSchema, tuple[TableSchema, list[int]]] = {}

    def wants(self, key: bytes) -> bool:
        """Whether the flow takes the namespace that is the key of a log entry."""
        wanted = self._wanted.get(key)
        if wanted is None:
            namespace = Namespace.parse(key.decode())
            matches = [any(map(namespace.matches, patterns)) for patterns in (self._flow.sources, self._flow.exclude)]
            wanted = self._wanted[key] = matches == [True, False]
        return wanted

    def shape(self, change: ChangeBatch | Clear) -> ChangeBatch | Clear:
        """The change as the target is to see it; ConfigError when a key column would be dropped or a named key does not exist."""
        if change.table not in self._shapes:
            self._shapes[change.table] = self._shape_of(change.table)
        table, kept = self._shapes[change.table]
        if table is change.table:
            return change
        if isinstance(change, Clear):
            return replace(change, table=table)
        arrays = [change.data.column(index) for index in (*range(_SYSTEM), *(_SYSTEM + index for index in kept))]
        return ChangeBatch(table, pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema()))

    def _shape_of(self, table: TableSchema) -> tuple[TableSchema, list[int]]:
        columns, key = self._flow.columns, self._key_of(table)
        missing = [name for name in key if name in columns.drop or name not in [c.name for c in table.columns]]
        if missing:
            raise ConfigError(
                f"flow {self._flow.name}: {table.namespace.all_versions} needs its key column {missing[0]}",
                fix="take it out of `columns: {drop: …}` or correct `key:`",
            )
        kept = [index for index, column in enumerate(table.columns) if column.name not in columns.drop]
        if len(kept) == len(table.columns) and not columns.rename and key == table.key:
            return table, kept
        renamed = tuple(
            replace(table.columns[index], name=columns.rename.get(table.columns[index].name, table.columns[index].name))
            for index in kept
        )
        return replace(table, columns=renamed, key=tuple(columns.rename.get(name, name) for name in key)), kept

    def _key_of(self, table: TableSchema) -> tuple[str, ...]:
        named = self._flow.key.get(f"{table.namespace.schema}.{table.namespace.table}")
        return tuple(named) if named else table.key
