"""What a flow's steps make of changes: each change becomes one change with the same `_ums_id_`, or none.

::

    change      row passes                       row does not pass
    i           i                                nothing: there was no row before. In a table whose source cannot tell an insert
                                                 from an update: d
    u           u                                d: what the row was before may have passed
    d           d                                d: a log may tell the key alone of a deleted row
    clear, end  the same of the table that comes out

In a table without a key nothing can be deleted: a row that does not pass is left out.

Why this is right: a target has, of each key, what the change with the largest `_ums_id_` says, and ids stay what they were. So it ends with exactly the
rows whose newest change passes, in whatever order and however often changes come, and nothing has to be kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace import registry
from headrace.compute.columns import answers, values
from headrace.compute.engine import Engine
from headrace.compute.lookups.base import Lookup
from headrace.compute.lookups.cache import Cached
from headrace.compute.plan import Asked, Plan, plan
from headrace.compute.query import ROW
from headrace.compute.steps import INPUT, LookUp, Step
from headrace.compute.validity import Judged, Validity
from headrace.errors import DataError
from headrace.ums.change import DELETE, INSERT, ChangeBatch
from headrace.ums.schema import OP, RAW, SYSTEM_FIELDS, TableSchema
from headrace.ums.values import Array

_PUTS = {"hbase"}
"""Types of sources whose inserts may be updates."""


class Transform:
    """Applies one flow's steps. Remembers what it found out per version of a table; serves one thread."""

    def __init__(self, flow: str, steps: Sequence[Step], validity: Validity | None = None) -> None:
        self._flow = flow
        self._steps = steps
        self.validity = validity
        self._engine = Engine()
        self._plans: dict[TableSchema, Plan] = {}
        self._lookups: dict[int, Cached] = {}
        """By the number of their step."""

    def table(self, table: TableSchema) -> TableSchema:
        """A table as it comes out. ConfigError when the steps do not fit it."""
        return self._plan(table).table

    def computed(self, table: TableSchema) -> list[str]:
        """The columns of a table that are computed. Errors as of `table`."""
        return self._plan(table).computed

    def changes(self, batch: ChangeBatch) -> ChangeBatch:
        """What becomes of changes, in their order. ConfigError as of `table`, DataError when the SQL fails on a value."""
        computed, passes = self._computed(batch)
        if pc.all(passes).as_py():
            return computed
        return ChangeBatch(computed.table, computed.data.filter(self._told(batch, passes)))

    def judged(self, batch: ChangeBatch, *, anew: bool = False) -> Judged:
        """The same with what `validity` says of each row. `anew`: stores are asked, whatever they have answered before. Errors as of `changes`."""
        computed, passes = self._computed(batch, anew=anew)
        nothing = pa.repeat(False, len(batch))
        lacks = nothing if self.validity is None else pc.and_(self.validity.lacks(computed.data), passes)
        return Judged(computed, self._told(batch, passes), self._told(batch, nothing), lacks)

    def _computed(self, batch: ChangeBatch, *, anew: bool = False) -> tuple[ChangeBatch, Array]:
        """Every row, computed; and whether it passes."""
        planned = self._plan(batch.table)
        relations = {INPUT: planned.relation(batch.data)}
        for asked in planned.asked:
            relations[asked.name] = self._answered(asked, self._engine.rows(asked.keys, relations), anew)
        found = self._engine.rows(planned.sql, relations)
        at: Array = pc.index_in(relations[INPUT].column(ROW).chunk(0), found.column(ROW))
        passes: Array = pc.is_valid(at)
        data = batch.data
        stays: dict[str, Array] = {name: data.column(name) for name in data.schema.names[: len(SYSTEM_FIELDS)]}
        stays[OP] = pc.if_else(passes, stays[OP], pa.scalar(DELETE))
        stays[RAW] = planned.raw(stays[RAW])
        made = {
            column.name: values(found.column(column.name), column.type).take(at)
            for column in planned.table.columns
            if column.name in planned.computed
        }
        columns = [
            made[c.name] if c.name in made else data.column(planned.handed_on[c.name]) for c in planned.table.columns
        ]
        out = pa.RecordBatch.from_arrays([*stays.values(), *columns], schema=planned.table.arrow_schema())
        return ChangeBatch(planned.table, out), passes

    def check(self) -> None:
        """Tells whether what is looked into can be used. Errors as of `Lookup.find`."""
        for number, step in enumerate(self._steps):
            if isinstance(step, LookUp):
                self._lookup(number, step).check()

    def release(self) -> None:
        """Gives up connections; they are made again when they are needed."""
        for lookup in self._lookups.values():
            lookup.close()

    def _lookup(self, number: int, step: LookUp) -> Cached:
        if number not in self._lookups:
            store: Lookup = registry.load("lookups", step.store.type)(
                step.store, list(step.on.values()), step.columns()
            )
            self._lookups[number] = Cached(
                store,
                rows=step.cache_rows,
                ttl_s=step.cache_ttl,
                has_active=step.active is not None,
                clock=time.monotonic,
            )
        return self._lookups[number]

    def _answered(self, asked: Asked, keys: pa.Table, anew: bool) -> pa.Table:
        """What a lookup finds for keys, as the SQL reads it."""
        wanted = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        found = self._lookup(asked.number, asked.step).find((key for key in wanted if None not in key), anew=anew)
        if asked.step.missing == "fail" and (missing := next((key for key in wanted if key not in found), None)):
            named = ", ".join(f"{name}={value}" for name, value in zip(asked.step.on, missing, strict=True))
            raise DataError(
                f"flow {self._flow}: the lookup has no row for {named}",
                fix="bring the row there, write `missing: keep` or `drop`, or set such rows aside with `set_aside`",
            )
        rows = [found.get(key) for key in wanted]
        columns = list(zip(*filter(None, rows), strict=True)) or [()] * len(asked.step.take)
        there = pa.array([row is not None for row in rows], pa.bool_())
        return asked.relation(keys.filter(there), list(map(answers, columns)))

    def _told(self, batch: ChangeBatch, passes: Array) -> Array:
        """The rows of which a target hears, as the table above says."""
        if not batch.table.key:
            return passes
        if batch.table.namespace.type in _PUTS:
            return pa.repeat(True, len(batch))
        return pc.or_(passes, pc.not_equal(batch.data.column(OP), pa.scalar(INSERT)))

    def _plan(self, table: TableSchema) -> Plan:
        if table not in self._plans:
            planned = plan(self._flow, self._steps, table, self._engine)
            if self.validity is not None:
                self.validity.require_columns(self._flow, planned.table)
            self._plans[table] = planned
        return self._plans[table]
