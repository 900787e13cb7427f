"""The newest rows of one input, in the state.

::

    table "rows <type.source.schema.table>"
    _ums_id_ | _ums_ts_ | _ums_commit_ts_ | _headrace_active_ | the columns that the SQL may need, each by its identity

A row has the change with the largest `_ums_id_` of its key, a deleted one too (`_headrace_active_` false), so what comes again or late changes nothing: the
rule of every store. A clear takes the rows with smaller ids and is remembered in `clears`; such rows that come later lose. In a table without a
key each row is its own, by its `_ums_id_`.

Rows of a stream with windows are forgotten when all that they belong to is over (windows.py); those that come behind that are late (late.py), and taken
only in the place of a row that is kept.

Columns are those of the newest version that was met; rows of older ones are brought into it, as in the lake (lake/reshape.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.compute.changing.late import Late
from headrace.compute.changing.windows import Belonging
from headrace.compute.columns import readable
from headrace.compute.engine import Engine
from headrace.compute.steps import quoted
from headrace.errors import DataError
from headrace.lake.reshape import Reshape, initial_value
from headrace.ums.change import INSERT, ChangeBatch, Clear, is_delete
from headrace.ums.schema import COMMIT_TS, ID, OP, TS, TableSchema
from headrace.ums.values import Array

ALIVE = "_headrace_active_"
TOUCHED = "touched"
"""Prefix of the tables that hold what a round has changed: rows as they were, and as they are."""
_SYSTEM = (ID, TS, COMMIT_TS)


class Wants(Protocol):
    """What is to be kept of tables."""

    def wanted(self, table: TableSchema) -> list[str]:
        """The columns that the SQL may need, by name."""
        ...

    def belonging(self, table: TableSchema) -> Belonging | None:
        """What its rows belong to; None when they are never over. ConfigError when it does not have the columns for that."""
        ...


class InputRows:
    """Keeps one input up. Everything happens in the transaction that the engine is in."""

    def __init__(self, engine: Engine, family: str, versions: Iterable[TableSchema], wants: Wants, late: Late) -> None:
        """`family`: the namespace without version. `versions`: those that were met before."""
        self._engine = engine
        self.family = family
        self._wants = wants
        self._late = late
        self._versions = {table.namespace.version: table for table in versions}
        self._name = quoted(f"rows {family}")
        self.touched = quoted(f"{TOUCHED} {family}")
        if self._versions:
            self._aim(self._versions[max(self._versions)])

    @property
    def columns(self) -> dict[str, str]:
        """What it has: name in the newest version -> identity."""
        return {column.name: column.identity for column in self.table.columns}

    @property
    def live(self) -> str:
        """SQL for its rows that are there."""
        return f"(SELECT * FROM {self._name} WHERE {ALIVE})"

    def begin(self) -> None:
        """A round begins: nothing is touched yet."""
        self._engine.run(f"CREATE OR REPLACE TEMP TABLE {self.touched} AS FROM {self._name} LIMIT 0")

    def count(self) -> int:
        """How many rows it keeps."""
        return int(str(self._engine.value(f"SELECT count(*) FROM {self._name}")))

    def take(self, changes: Sequence[ChangeBatch], bound_us: int | None) -> bool:
        """Takes changes of versions that it has met, in any order and repeated or not; whether any is news. `bound_us`: what is over (windows.py)."""
        self._require_key(changes)
        fresh = pa.concat_tables([self._reshaped(change) for change in changes])
        floor = self._engine.run("SELECT max(id) FROM clears WHERE family = ?", self.family)[0][0]
        above = "" if floor is None else f"WHERE {ID} >= {floor}"
        one = f"QUALIFY row_number() OVER (PARTITION BY {self._key()} ORDER BY {ID} DESC) = 1"
        self._engine.put(
            f"""CREATE OR REPLACE TEMP TABLE coming AS
            SELECT f.* FROM (SELECT * FROM fresh {above} {one}) AS f LEFT JOIN {self._name} AS r ON {self._same("f", "r")}
            WHERE r.{ID} IS NULL OR r.{ID} < f.{ID}""",
            fresh=fresh,
        )
        if self.belonging is not None:
            self._set_late_aside(self.belonging, bound_us)
        if not int(self._engine.value("SELECT count(*) FROM coming")):
            return False
        self._touch(f"SELECT r.* FROM {self._name} AS r SEMI JOIN coming AS c ON {self._same('r', 'c')}")
        self._touch("FROM coming")
        self._engine.run(f"DELETE FROM {self._name} AS r USING coming AS c WHERE {self._same('r', 'c')}")
        self._engine.run(f"INSERT INTO {self._name} FROM coming")
        return True

    def _set_late_aside(self, belonging: Belonging, bound_us: int | None) -> None:
        """Late rows are told; but a row that is kept gives way to its change all the same. A delete is as late as the row that it deletes."""
        late = self._late.judged(self.family, belonging, bound_us)
        some = f"SELECT count(*) FROM coming WHERE {late} OR {belonging.late_for_some(bound_us)} OR NOT {ALIVE}"
        if not int(self._engine.value(some)):
            return
        kept = f"EXISTS (SELECT 1 FROM {self._name} AS r WHERE {self._same('r', 'c')})"
        new = f"(SELECT *, NOT {ALIVE} AS is_deleted FROM coming AS c WHERE {ALIVE} OR NOT {kept})"
        gone = f"""(SELECT r.* REPLACE (c.{ID} AS {ID}), true AS is_deleted FROM {self._name} AS r JOIN coming AS c ON {self._same("r", "c")}
            WHERE r.{ALIVE} AND NOT c.{ALIVE})"""
        for rows in (new, gone):
            self._late.add(self.family, belonging, rows, self.columns, bound_us)
        self._engine.run(f"DELETE FROM coming AS c WHERE {late} AND NOT {kept}")

    def over(self, bound_us: int) -> None:
        """Forgets rows that nothing open is of, but for those of sessions: they are told by `lose`."""
        if self.belonging is not None and self.belonging.spec.gap is None:
            self._engine.run(f"DELETE FROM {self._name} WHERE {ALIVE} AND {self.belonging.is_over(bound_us)}")

    def lose(self, rows: str) -> None:
        """Forgets the rows that a SELECT of `row_id` names."""
        self._engine.run(f"DELETE FROM {self._name} WHERE rowid IN ({rows})")

    def tagged(self) -> str:
        """SELECT of its rows with what windows need of them (Belonging.tagged)."""
        assert self.belonging is not None
        of = f"'{self.family}' AS family, rowid AS row_id"
        return f"SELECT {of}, {', '.join(self.belonging.tagged())} FROM {self._name} WHERE {ALIVE}"

    def first_end_us(self) -> int | None:
        """No open answer that its rows are in ends before; None when it has none."""
        assert self.belonging is not None
        first = f"SELECT min({self.belonging.first_end()}) FROM {self._name} WHERE {ALIVE}"
        found = self._engine.run(first)[0][0]
        return None if found is None else int(str(found))

    def clear(self, clear: Clear) -> bool:
        """Takes a clear; whether it is news."""
        self._touch(f"SELECT * FROM {self._name} WHERE {ID} < {clear.id}")
        gone = self._engine.run(f"DELETE FROM {self._name} WHERE {ID} < {clear.id} RETURNING {ALIVE}")
        self._engine.run("INSERT INTO clears VALUES (?, ?)", self.family, clear.id)
        return any(alive for (alive,) in gone)

    def forget(self, before_us: int) -> None:
        """Gives up the keys of rows that were deleted before a time, µs since 1970."""
        self._engine.run(f"DELETE FROM {self._name} WHERE NOT {ALIVE} AND epoch_us({COMMIT_TS}) < {before_us}")

    def meet(self, table: TableSchema) -> bool:
        """Makes itself ready for rows of a version; whether its own columns are others now."""
        version = table.namespace.version
        if self._versions.get(version) == table:
            return False
        before = self.table if self._versions else None
        self._versions[version] = table
        schema = table.arrow_schema().serialize().to_pybytes()
        self._engine.run("INSERT INTO versions VALUES (?, ?, ?)", self.family, version, schema)
        self._aim(self._versions[max(self._versions)])
        if before is None:
            self._create(self._name)
        elif before.columns != self.table.columns or before.key != self.table.key:
            self._become(before)
        else:
            return False
        self.begin()
        return True

    def _aim(self, newest: TableSchema) -> None:
        wanted = self._wants.wanted(newest)
        self.table = replace(newest, columns=tuple(column for column in newest.columns if column.name in wanted))
        self._reshape = Reshape(self._versions, self.table)
        self.belonging = self._wants.belonging(self.table)

    def _become(self, before: TableSchema) -> None:
        """Brings the rows that are there from the version before into the new one."""
        had = {column.identity for column in before.columns}
        values: list[str] = []
        for name, identity in self.columns.items():
            stored = bool(self._reshape.stored_columns(before.namespace.version, [name]))
            if stored and identity not in had:
                raise DataError(
                    f"the SQL needs the column {name} of {self.family} now, which it did not need when its rows were kept",
                    fix="give the source a new name, and it computes everything on the log anew",
                )
            values.append(f"{'r' if stored else 'defaults'}.{quoted(identity)}")
        aside = quoted(f"new {self.family}")
        self._create(aside)
        columns = ", ".join([*(f"r.{name}" for name in (*_SYSTEM, ALIVE)), *values])
        try:
            self._engine.put(
                f"INSERT INTO {aside} SELECT {columns} FROM {self._name} AS r CROSS JOIN defaults",
                defaults=self._defaults(),
            )
        except DataError as error:
            message = f"rows of {self.family} do not fit its new columns: {error.message}"
            raise DataError(
                message, fix="give the source a new name, and it computes everything on the log anew"
            ) from error
        self._engine.run(f"DROP TABLE {self._name}")
        self._engine.run(f"ALTER TABLE {aside} RENAME TO {self._name}")

    def _defaults(self) -> pa.Table:
        """One row: of each column what rows have that are older than it."""
        values = {
            column.identity: readable(pa.array([initial_value(column, self.table)], column.type))
            for column in self.table.columns
        }
        return pa.table({"_": pa.array([0]), **values})

    def _create(self, name: str) -> None:
        empty = ChangeBatch(self.table, pa.RecordBatch.from_pylist([], schema=self.table.arrow_schema()))
        self._engine.put(f"CREATE TABLE {name} AS FROM fresh", fresh=self._reshaped(empty))

    def _reshaped(self, change: ChangeBatch) -> pa.Table:
        """Changes in the columns of the state."""
        data = pa.Table.from_batches([change.data])
        names = list(self.columns)
        columns = self._reshape.columns(data, change.table.namespace.version, names)
        values = [readable(_one(columns[name])) for name in names]
        system = [data.column(name) for name in _SYSTEM]
        alive = pc.invert(is_delete(change.data))
        return pa.Table.from_arrays([*system, alive, *values], [*_SYSTEM, ALIVE, *self.columns.values()])

    def _require_key(self, changes: Sequence[ChangeBatch]) -> None:
        if not self.table.key and any(
            pc.any(pc.not_equal(change.data.column(OP), pa.scalar(INSERT))).as_py() for change in changes
        ):
            raise DataError(
                f"rows of {self.family} were changed or deleted, and without a key it cannot be told which",
                fix='name its key columns, `keys: {"schema.table": [column, …]}` of the source',
            )

    def _touch(self, rows: str) -> None:
        self._engine.run(f"INSERT INTO {self.touched} {rows}")

    def _key(self) -> str:
        return ", ".join(quoted(name) for name in self._key_columns)

    def _same(self, one: str, other: str) -> str:
        """SQL for two rows of one key."""
        return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in self._key_columns)

    @property
    def _key_columns(self) -> tuple[str, ...]:
        return self.table.key_identities or (ID,)


def _one(column: pa.ChunkedArray[Any] | Array) -> Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
