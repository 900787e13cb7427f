"""What a flow makes of the changes it reads: which namespaces it takes, which columns under which names, which key, and what becomes of
changes of the tables themselves as far as that is the same for all stores (`on_change`).

A column that the flow drops or renames stays so when the source renames it: flows go by `Column.identity` as well as by name.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.errors import ConfigError, DataError
from headrace.flow.spec import FlowSpec
from headrace.on_change import Policy, how_to_go_on
from headrace.ums.change import Cause, ChangeBatch, Clear, End, Statement
from headrace.ums.schema import SYSTEM_FIELDS, Column, Namespace, TableSchema

_SYSTEM = len(SYSTEM_FIELDS)
_KINDS = {
    Cause.TRUNCATED: "truncated",
    Cause.DROPPED: "table_dropped",
    Cause.CREATED: "table_dropped",
    Cause.RENAMED: "table_renamed",
}
"""Which policy of `on_change` says what becomes of a table's rows."""


class Shaper:
    """Applies one flow's `from`, `exclude`, `columns`, `key` and `on_change`. Remembers what it found out per namespace and per schema."""

    def __init__(self, flow: FlowSpec) -> None:
        self.flow = flow
        self._wanted: dict[bytes, bool] = {}
        self._shapes: dict[TableSchema, tuple[TableSchema, list[int]]] = {}

    def wants(self, key: bytes) -> bool:
        """Whether the flow takes the namespace that is the key of a log entry."""
        wanted = self._wanted.get(key)
        if wanted is None:
            namespace = Namespace.parse(key.decode())
            matches = [any(map(namespace.matches, patterns)) for patterns in (self.flow.sources, self.flow.exclude)]
            wanted = self._wanted[key] = matches == [True, False]
        return wanted

    def table(self, table: TableSchema) -> TableSchema:
        """A table as the target is to see it. ConfigError as of `shape`."""
        return self._shape(table)[0]

    def shape(self, change: ChangeBatch | Clear | End) -> ChangeBatch | Clear | End | None:
        """The change as the target is to see it; None when it is not to.

        Raises ConfigError when a key column would be dropped or a named key does not exist, DataError for what `on_change` refuses.
        """
        table, kept = self._shape(change.table)
        if isinstance(change, End):
            successor = self._shape(change.successor)[0]
            self._refuse(table, successor, change.statement)
            return replace(change, table=table, successor=successor)
        if isinstance(change, Clear):
            return replace(change, table=table) if self._clears(change) else None
        if table is change.table:
            return change
        arrays = [change.data.column(index) for index in (*range(_SYSTEM), *(_SYSTEM + index for index in kept))]
        return ChangeBatch(table, pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema()))

    def _shape(self, table: TableSchema) -> tuple[TableSchema, list[int]]:
        if table not in self._shapes:
            self._shapes[table] = self._shape_of(table)
        return self._shapes[table]

    def _clears(self, clear: Clear) -> bool:
        if clear.cause is Cause.RELOADED:
            return True  # nothing has happened to the table: what a load repairs is the target
        policy: Policy = getattr(self.flow.on_change, _KINDS[clear.cause])
        if policy is Policy.FAIL:
            raise self._stop(clear.table, f"was {clear.cause}", _KINDS[clear.cause], clear.statement)
        if clear.cause is Cause.CREATED:
            # To keep the old table's rows beside the new one's would make a table that never was.
            return policy is not Policy.IGNORE
        return policy is Policy.EVOLVE

    def _refuse(self, old: TableSchema, new: TableSchema, statement: Statement) -> None:
        for kind, columns in column_changes(old, new).items():
            if columns and getattr(self.flow.on_change, kind) is Policy.FAIL:
                raise self._stop(old, f"has column(s) {kind}: {', '.join(columns)}", kind, statement)
        if old.key_identities != new.key_identities and self.flow.on_change.rekeyed is Policy.FAIL:
            raise self._stop(old, f"has the key ({', '.join(new.key)}) now", "rekeyed", statement)

    def _stop(self, table: TableSchema, what: str, kind: str, statement: Statement) -> DataError:
        return DataError(
            f"flow {self.flow.name}: {table.namespace.all_versions} {what}, and the flow is to stop then ({statement})",
            fix=how_to_go_on(kind),
        )

    def _shape_of(self, table: TableSchema) -> tuple[TableSchema, list[int]]:
        columns, key = self.flow.columns, self._key_of(table)
        left = {
            column.name: column
            for column in table.columns
            if not _named(column, columns.drop)
            and (not columns.keep or column.name in key or _named(column, columns.keep))
        }
        missing = [name for name in key if name not in left]
        if missing:
            raise ConfigError(
                f"flow {self.flow.name}: {table.namespace.all_versions} needs its key column {missing[0]}",
                fix="take it out of `columns: {drop: …}` or correct `key:`",
            )
        kept = [index for index, column in enumerate(table.columns) if column.name in left]
        if len(kept) == len(table.columns) and not columns.rename and key == table.key:
            return table, kept
        renamed = {column.name: _renamed(column, columns.rename, left) for column in left.values()}
        self._refuse_names(table, [column.name for column in renamed.values()])
        return replace(table, columns=tuple(renamed.values()), key=tuple(renamed[name].name for name in key)), kept

    def _refuse_names(self, table: TableSchema, names: Sequence[str]) -> None:
        """ConfigError for names that another column has."""
        taken = [field.name for field in SYSTEM_FIELDS]
        for name in names:
            if name in taken:
                raise ConfigError(
                    f"flow {self.flow.name}: {table.namespace.all_versions} would have two columns {name}",
                    fix="give one of them another name by `columns: {rename: …}`, or leave it out with `drop`",
                )
            taken.append(name)

    def _key_of(self, table: TableSchema) -> tuple[str, ...]:
        named = self.flow.key.get(f"{table.namespace.schema}.{table.namespace.table}")
        return tuple(named) if named else table.key


def column_changes(old: TableSchema, new: TableSchema) -> dict[str, list[str]]:
    """Names of the columns that were added, dropped, retyped and renamed between two versions, under these words."""
    before, after = ({column.identity: column for column in table.columns} for table in (old, new))
    both = [(before[identity], column) for identity, column in after.items() if identity in before]
    return {
        "added": [column.name for identity, column in after.items() if identity not in before],
        "dropped": [column.name for identity, column in before.items() if identity not in after],
        "retyped": [now.name for was, now in both if was.type != now.type],
        "renamed": [was.name for was, now in both if was.name != now.name],
    }


def _named(column: Column, names: Container[str]) -> bool:
    return column.name in names or column.identity in names


def _renamed(column: Column, names: Mapping[str, str], present: Container[str]) -> Column:
    name = names.get(column.name, column.name)
    if name == column.name and column.identity not in present:
        name = names.get(column.identity, name)
    return replace(column, name=name, born_as="" if column.identity == name else column.identity)
