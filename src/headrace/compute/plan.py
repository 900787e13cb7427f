"""What steps make of one version of a table: its columns behind them, and the SQL that computes them.

The rows of a batch get numbers and go through one query, the steps one in another, each without looking at other rows. What comes back are
the numbers of the rows that have passed and the columns that were computed; all other columns are taken from the batch as they were,
so no value is changed by passing an engine that does not compute it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from headrace.compute.columns import computed, readable
from headrace.compute.engine import Engine
from headrace.compute.query import ROW, Select
from headrace.compute.steps import INPUT, LookUp, Selecting, Step, quoted
from headrace.errors import ConfigError, HeadraceError
from headrace.ums.change import DELETE
from headrace.ums.schema import OP, SYSTEM_FIELDS, Column, TableSchema
from headrace.ums.values import Array

_SYSTEM = tuple(field.name for field in SYSTEM_FIELDS)


@dataclass(frozen=True, slots=True)
class Asked:
    """A lookup of some step: the query of the keys that it needs, over what comes in and earlier answers, and what the SQL calls its own."""

    number: int
    step: LookUp
    keys: str

    @property
    def name(self) -> str:
        return f"found{self.number}"

    def relation(self, keys: pa.Table, columns: Sequence[Array]) -> pa.Table:
        """The answers: keys that have a row, and the columns that are taken of it."""
        names = [*(f"on{at}" for at in range(keys.num_columns)), *(f"taken{at}" for at in range(len(columns))), "there"]
        return pa.Table.from_arrays([*keys.columns, *columns, pa.repeat(True, len(keys))], names)


@dataclass(frozen=True)
class Plan:
    """Made by `plan`."""

    table: TableSchema
    """The table as it comes out."""
    sql: str
    handed_on: Mapping[str, str]
    """Columns that are only handed on: by name behind the steps, the name in the table that comes in."""
    names: tuple[str, ...]
    """What the SQL calls the columns that come in."""
    asked: tuple[Asked, ...] = ()
    """What is looked up before, in this order."""

    @cached_property
    def computed(self) -> list[str]:
        """The columns that the SQL computes."""
        return [column.name for column in self.table.columns if column.name not in self.handed_on]

    def relation(self, rows: pa.RecordBatch) -> pa.Table:
        """The rows of a batch as the SQL reads them."""
        return numbered(rows, self.names)

    def raw(self, column: Array) -> Array:
        """`_ums_raw_` of rows as they come out: with the columns' names there, and without columns that are not handed on."""
        if column.null_count == len(column):
            return column
        behind: dict[str, str] = {}
        for name, before in self.handed_on.items():
            behind.setdefault(before, name)
        return pa.array([None if text is None else _renamed(text, behind) for text in column.to_pylist()], pa.utf8())


def numbered(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Table:
    """Rows with their numbers, the columns of the table under other names."""
    columns = [*map(readable, rows.columns), pa.arange(0, rows.num_rows)]  # type: ignore[attr-defined]  # not in the stubs
    return pa.Table.from_arrays(columns, [*_SYSTEM, *names, ROW])


def _keys(step: LookUp, relation: str) -> str:
    """The keys for which a step needs rows, nulls among them."""
    names = ", ".join(f"{quoted(name)} AS on{at}" for at, name in enumerate(step.on))
    return f"SELECT DISTINCT {names} FROM {relation} AS rows WHERE {OP} <> '{DELETE}'"


def _named(name: str, relation: str) -> str:
    """A relation under a name. DuckDB would copy all of its columns, as it does with every WITH by default."""
    return f"{name} AS NOT MATERIALIZED (FROM {relation})"


def _renamed(raw: str, names: Mapping[str, str]) -> str | None:
    left = {names[name]: text for name, text in json.loads(raw).items() if name in names}
    return json.dumps(left, ensure_ascii=False, separators=(",", ":")) if left else None


def plan(flow: str, steps: Sequence[Step], table: TableSchema, engine: Engine) -> Plan:
    """ConfigError when the steps do not fit the table.

    SQL that was written before a column was renamed goes on: when it does not fit the columns' names, their first ones are tried.
    """
    names = tuple(column.name for column in table.columns)
    first_names = tuple(column.identity for column in table.columns)
    try:
        try:
            return _Planning(steps, table, engine, names).plan()
        except ConfigError:
            if first_names == names or len(set(first_names)) < len(first_names):
                raise
            try:
                return _Planning(steps, table, engine, first_names).plan()
            except ConfigError:
                pass
            raise
    except HeadraceError as error:
        raise ConfigError(
            f"flow {flow}, table {table.namespace.all_versions}: {error.message}", fix=error.fix
        ) from error


class _Planning:
    """Goes through the steps with one way of naming the columns that come in."""

    def __init__(self, steps: Sequence[Step], table: TableSchema, engine: Engine, names: tuple[str, ...]) -> None:
        self._steps = steps
        self._in = table
        self._engine = engine
        self._names = names
        nothing = pa.RecordBatch.from_pylist([], schema=table.arrow_schema())
        self._empty = {INPUT: numbered(nothing, names)}
        """What the SQL reads, without a row."""
        self._asked: list[Asked] = []

    def plan(self) -> Plan:
        self._refuse_names()
        origins = {name: column.name for name, column in zip(self._names, self._in.columns, strict=True)}
        names, relation = list(self._names), INPUT
        for number, step in enumerate(self._steps):
            if isinstance(step, LookUp):
                relation = self._looked_up(Asked(number, step, _keys(step, relation)), relation)
                names = [*names, *step.take]
                _refuse_twice(names)
                origins = {name: before for name, before in origins.items() if name not in step.take}
                continue
            assert isinstance(step, Selecting)
            select, before_it = self._select(step, names), f"step{number}"
            relation = f"(WITH {_named(before_it, relation)} {select.over(before_it)})"
            columns = [column for column in select.columns(names) if column[0] not in (*_SYSTEM, ROW)]
            names = [name for name, _ in columns]
            _refuse_twice(names)
            origins = {
                name: origins[known]
                for name, before in columns
                if before is not None and (known := _same(before, origins)) is not None
            }
        wanted = ", ".join(map(quoted, [ROW, *(name for name in names if name not in origins)]))
        sql = f"SELECT {wanted} FROM {relation} AS computed"
        return Plan(self._table(names, self._types(sql), origins), sql, origins, self._names, tuple(self._asked))

    def _looked_up(self, asked: Asked, relation: str) -> str:
        """The rows of a relation with what was found for each; nothing for a deleted one, though others have asked for its key."""
        keys = self._engine.rows(asked.keys, self._empty)
        self._empty[asked.name] = asked.relation(keys, [pa.array([], pa.utf8()) for _ in asked.step.take])
        self._asked.append(asked)
        found, rows = asked.name, f"step{asked.number}"
        # Not a condition of the join: on one side alone it would make DuckDB compare each row with each.
        is_there = f"{rows}.{OP} <> '{DELETE}'"
        on = " AND ".join(f"{rows}.{quoted(name)} = {found}.on{at}" for at, name in enumerate(asked.step.on))
        taken = [
            f"CASE WHEN {is_there} THEN CAST({found}.taken{at} AS {taken.type}) END AS {quoted(name)}"
            for at, (name, taken) in enumerate(asked.step.take.items())
        ]
        kept = f" WHERE {found}.there OR NOT ({is_there})" if asked.step.missing == "drop" else ""
        columns = ", ".join([f"{rows}.*", *taken])
        return f"(WITH {_named(rows, relation)} SELECT {columns} FROM {rows} LEFT JOIN {found} ON {on}{kept})"

    def _select(self, step: Selecting, names: Sequence[str]) -> Select:
        select = Select.parse(self._engine, step.select(names))
        if select.table.casefold() not in {INPUT, self._in.namespace.table.casefold()}:
            raise ConfigError(
                f"the SQL reads from {select.table}, and this table is {self._in.namespace.table}",
                fix=f"write FROM {INPUT}, which is each table that the flow takes, or let `from` take {select.table} alone",
            )
        return select

    def _types(self, sql: str) -> dict[str, pa.DataType]:
        """The types of the columns that a query makes of what comes in."""
        return {field.name: field.type for field in self._engine.rows(sql, self._empty).schema}

    def _table(
        self, names: Sequence[str], types: Mapping[str, pa.DataType], handed_on: Mapping[str, str]
    ) -> TableSchema:
        columns: list[Column] = []
        identities: set[str] = set()
        for name in names:
            column = self._handed_on(name, handed_on[name]) if name in handed_on else computed(name, types[name])
            if column.identity in identities:
                column = replace(column, born_as=f"{name}@sql")
            identities.add(column.identity)
            columns.append(column)
        if not columns:
            raise ConfigError("the SQL leaves no column", fix="select one at least")
        return replace(self._in, columns=tuple(columns), key=self._key(handed_on))

    def _handed_on(self, name: str, before: str) -> Column:
        column = self._in.column(before)
        return replace(column, name=name, born_as="" if column.identity == name else column.identity)

    def _key(self, handed_on: Mapping[str, str]) -> tuple[str, ...]:
        names: dict[str, str] = {}
        for name, before in handed_on.items():
            names.setdefault(before, name)
        for part in self._in.key:
            if part not in names:
                raise ConfigError(
                    f"the SQL leaves out the column {part}, which is of the key, or computes it",
                    fix=f"select {part} as it is (another name is fine)",
                )
        return tuple(names[part] for part in self._in.key)

    def _refuse_names(self) -> None:
        taken = {name.casefold() for name in (*_SYSTEM, ROW)}
        for name in self._names:
            if name.casefold() in taken:
                raise ConfigError(
                    f"SQL cannot tell two columns {name} apart",
                    fix="rename one of them with `columns: {rename: …}` of the flow, or leave it out with `drop`",
                )
            taken.add(name.casefold())


def _refuse_twice(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise ConfigError(f"the SQL makes two columns {name}", fix="give one of them another name by AS")
        seen.add(name.casefold())


def _same(name: str, names: Mapping[str, str]) -> str | None:
    """The name among others that SQL takes for the same."""
    return name if name in names else next((other for other in names if other.casefold() == name.casefold()), None)
