"""The same SQL as a batch: what it answers over whole tables, beside what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.compute.changing.config import SqlSourceConfig, WindowSpec
from headrace.compute.changing.late import late_table, path
from headrace.compute.changing.question import Question
from headrace.compute.changing.told import DIFFERENCE, Told
from headrace.compute.changing.windows import END, START, Belonging, windowed
from headrace.compute.columns import readable
from headrace.compute.engine import Engine
from headrace.compute.steps import quoted
from headrace.errors import ConfigError
from headrace.ums.change import DELETE, INSERT, UPDATE, ChangeBatch, Clear, End
from headrace.ums.schema import COMMIT_TS, ID, TS, Namespace, TableSchema
from headrace.ums.values import Array

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """How rows that were told compare with the answer."""

    rows: int
    """Of the answer."""
    missing: int
    """Rows of the answer whose key was never told, or told as gone."""
    different: int
    extra: int
    """Rows that were told and are none of the answer."""
    examples: tuple[str, ...]
    """Keys of some of them."""

    @property
    def ok(self) -> bool:
        return not (self.missing or self.different or self.extra)


@dataclass(frozen=True, slots=True)
class Whole:
    """A table that is an input, as a lake has it."""

    table: TableSchema
    rows: pa.Table
    """Its live rows."""


def compared(
    config: SqlSourceConfig,
    inputs: Mapping[str, Sequence[Whole]],
    told: Iterable[ChangeBatch | Clear | End],
    passed_us: int | None = None,
) -> Compared:
    """`inputs`: by name the tables that are it. `told`: all that was told, in its order. ConfigError when the SQL does not fit.

    `passed_us`: of windows, up to which time they were told; what is told apart as late is none of the rows that they are compared with.
    """
    with closing(Engine(memory=config.memory)) as engine:
        _require_in_lakes(engine, config)
        late = late_table(Namespace(config.type, config.name, "headrace", config.called))
        engine.put("CREATE TABLE late AS FROM fresh", fresh=late.arrow_schema().empty_table())
        rows = Told(engine, None)
        for change in told:
            if change.table.namespace.all_versions != late.namespace.all_versions:
                rows.follow(change)
            elif isinstance(change, ChangeBatch):
                engine.put("INSERT INTO late FROM fresh", fresh=pa.Table.from_batches([change.data]))
        for name, tables in inputs.items():
            _put(engine, config, name, tables)
        if rows.table is None:
            return Compared(0, 0, 0, 0, ())
        is_final = config.windows is not None and not config.windows.early
        until = f" WHERE epoch_us({END}) <= {passed_us}" if is_final else ""
        answer = f"SELECT * FROM (\n{config.sql}\n){until}"
        found = [row for part in rows.difference(answer) for row in part.to_pylist()]
        counts = Counter(row[DIFFERENCE] for row in found)
        examples = tuple(", ".join(f"{name}={row[name]}" for name in config.key) for row in found[:_EXAMPLES])
        return Compared(rows.count(), counts[INSERT], counts[UPDATE], counts[DELETE], examples)


def _require_in_lakes(engine: Engine, config: SqlSourceConfig) -> None:
    times = {spec.time for spec in config.windows.of.values()} if config.windows is not None else set()
    for name in (ID, TS, COMMIT_TS):
        if name in times or name in Question.parse(engine, config.sql, config.inputs).names:
            raise ConfigError(
                f"source {config.name} is computed from {name}, which tables as of a moment do not have: it cannot be compared",
                fix="compute with a column of the table instead, under a new name, where that is to be verified",
            )


def _put(engine: Engine, config: SqlSourceConfig, name: str, tables: Sequence[Whole]) -> None:
    """Makes an input a relation of the SQL."""
    spec = None if config.windows is None else config.windows.of.get(name)
    parts: list[str] = []
    for number, whole in enumerate(tables):
        relation = pa.Table.from_arrays([*map(_whole, whole.rows.columns)], whole.rows.schema.names)
        kept = quoted(f"{name} {number}")
        engine.put(f"CREATE TABLE {kept} AS FROM rows_of_it", rows_of_it=relation)
        parts.append(f"FROM {kept}" if spec is None else _in_time(spec, name, whole, kept))
    union = " UNION ALL BY NAME ".join(parts)
    shown = union if spec is None else _without_late(spec, union)
    engine.run(f"CREATE VIEW {quoted(name)} AS {shown}")


_WHICH = "_headrace_late_"
"""A column: the windows that a row was too late for; its own time, where it has none."""


def _in_time(spec: WindowSpec, name: str, whole: Whole, kept: str) -> str:
    """The rows of a table as `windowed` needs them, each with what it was too late for: told of the same key, or without a key of the same row."""
    belonging = Belonging.of(spec, name, _by_name(whole.table))
    same = " AND ".join(_is_same(column, whole.table.key) for column in whole.table.key or whole.rows.schema.names)
    of_it = f"l.source_table = '{whole.table.namespace.all_versions}' AND {same}"
    late = f"(SELECT list(epoch_us(l.over_at)) FROM late AS l WHERE {of_it})"
    hidden = f" EXCLUDE ({', '.join(there)})" if (there := _hidden(belonging, whole.rows.schema.names)) else ""
    return f"SELECT *{hidden}, {', '.join(belonging.tagged())}, {late} AS {_WHICH} FROM {kept} AS r"


def _is_same(column: str, key: Sequence[str]) -> str:
    told = f"json_extract(l.contents, {path(column)})"
    if key:
        return f"to_json(r.{quoted(column)}) = {told}"
    return f"({told} IS NULL OR coalesce(to_json(r.{quoted(column)}), 'null'::JSON) = {told})"


def _hidden(belonging: Belonging, names: Sequence[str]) -> list[str]:
    """Columns of a table that the SQL does not see, as windows have their names."""
    return [quoted(name) for name in names if belonging.adds_windows and name.casefold() in {START, END}]


def _without_late(spec: WindowSpec, rows: str) -> str:
    if spec.length is None:
        in_time = f"(SELECT * EXCLUDE ({_WHICH}) FROM ({rows}) WHERE {_WHICH} IS NULL)"
        return f"FROM {windowed(spec, in_time)}"
    late = f"list_contains(coalesce({_WHICH}, []), epoch_us({END}))"
    return f"SELECT * EXCLUDE ({_WHICH}) FROM {windowed(spec, f'({rows})')} WHERE NOT {late}"


def _by_name(table: TableSchema) -> TableSchema:
    """A table whose columns are called by their names alone, as in a lake's rows."""
    return replace(table, columns=tuple(replace(column, born_as="") for column in table.columns))


def _whole(column: pa.ChunkedArray[Any]) -> Array:
    return readable(pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type))
