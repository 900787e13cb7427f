"""Masks: what stands in a column before it is written for the first time, so that a value is nowhere in clear behind its source.

A `Masker` stands between every source and the log (runner.py; `headrace decode --source` uses it too). It masks what a table has of
a value: the column, the text beside it in `_ums_raw_` when the column's type cannot hold it, and `Column.initial_default`, which is
the value of old rows. A masked column may have another type (the hash of a number is text); the table on the log says the masked one.

What goes wrong never lets a value through in clear:

* a column that a mask does not fit, and a key column whose mask does not keep rows apart, end the capture before the first row;
* a mask that fails on a value (only plug-ins can) keeps the row off the log; it goes, without that value, to the error ledger
  (error_ledger.py). Of the fault only its kind is told, because messages quote values;
* a masked column that is gone while a new one is there in clear may have been renamed: the capture ends (mask_record.py).

Rows before changes (befores.py), where a query wants them, are masked as the rows behind them.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace import registry
from headrace.capture.befores import has_befores, with_befores, without_befores
from headrace.capture.mask_record import MaskRecord
from headrace.errors import ConfigError, DataError, HeadraceError
from headrace.model import MaskConfig, SourceConfig, names_column
from headrace.ums.change import ChangeBatch, Clear, End
from headrace.ums.schema import RAW, SYSTEM_FIELDS, Column, Namespace, TableSchema
from headrace.ums.values import from_text, to_text

Array: TypeAlias = "pa.Array[Any]"
_SYSTEM = len(SYSTEM_FIELDS)
_RAW_AT = next(index for index, field in enumerate(SYSTEM_FIELDS) if field.name == RAW)


class Mask(ABC):
    """One mask of a configuration. Called in one thread; keeps nothing between calls.

    A plug-in is a subclass that an entry point of the group ``headrace.masks`` names; its `Config` is a subclass of `MaskConfig`.
    """

    Config: ClassVar[type[MaskConfig]]
    others: tuple[str, ...] = ()
    """Other columns of the row that `apply` needs: it gets their values, in clear, as text."""

    @abstractmethod
    def column(self, column: Column) -> Column:
        """What a column is once it is masked: its type, its source's name for that type, whether it can be null.

        Called once for each table version, before any row of it. ValueError with the reason when the mask does not fit the column.
        """

    @abstractmethod
    def apply(self, values: Array, column: Column, others: Sequence[Array]) -> Array:
        """The masked values, as many, in the type that `column` gave. Where a value is null, what is returned does not count.

        `values` are of the type of `column` (as it is at the source), or text when that type cannot hold them (zero dates and the like).
        HeadraceError goes on to the capture (RetryableError: it waits and tries again); any other means that a value cannot be masked,
        and is raised again for that value alone.
        """


@dataclass(frozen=True, slots=True)
class Failed:
    """Rows that a mask failed on, masked everywhere else; null in `column`, where it failed."""

    rows: ChangeBatch
    column: str
    pattern: str
    reason: str
    """The kind of the fault."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A change as it may be written; None when its mask failed on every row."""

    change: ChangeBatch | Clear | End | None
    failed: tuple[Failed, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One masked column of a table version."""

    index: int
    source: Column
    target: Column
    pattern: str
    mask: Mask
    others: tuple[int, ...]


@dataclass(slots=True)
class Image:
    """The columns of rows (after a change, or before it) while they are masked."""

    columns: list[Array]
    raw: Array
    failed: dict[int, tuple[Step, str]]
    """By row the column that failed, and how."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the masks of a source make of one table version."""

    table: TableSchema
    """The table as it is once masked."""
    steps: tuple[Step, ...]

    has_befores: bool = False

    def image(self, columns: Sequence[Array], raw: Array) -> Image:
        """The masked columns; rows on which a mask failed are null in its column."""
        masked = Image(list(columns), raw, {})
        beyond = None if raw.null_count == len(raw) else [json.loads(text) if text else {} for text in raw.to_pylist()]
        for step in self.steps:
            others = [_text_or_nothing(columns[index]) for index in step.others]
            found = _applied(step, columns[step.index], others, 0, masked.failed)
            if beyond is not None:
                texts = pa.array([row.pop(step.source.name, None) for row in beyond], pa.utf8())
                unheld = pc.if_else(pc.is_null(columns[step.index]), texts, pa.scalar(None, pa.utf8()))
                found = pc.coalesce(found, _applied(step, unheld, others, 0, masked.failed))
            masked.columns[step.index] = found
        if beyond is not None:
            masked.raw = pa.array([json.dumps(row, ensure_ascii=False) if row else None for row in beyond], pa.utf8())
        return masked


def _text_or_nothing(column: Array) -> Array:
    text: Array = pc.call_function("coalesce", [to_text(column), pa.scalar("")])
    return text


def _applied(
    step: Step, values: Array, others: Sequence[Array], row: int, failed: dict[int, tuple[Step, str]]
) -> Array:
    """Masks whole stretches, halving where the mask fails until the value that it cannot take stands alone."""
    if values.null_count == len(values):
        return nulls(len(values), step.target.type)
    try:
        return _masked(step, values, others)
    except HeadraceError:
        raise
    except Exception as error:
        # A plug-in may raise anything, and no value may pass for it.
        if len(values) == 1:
            failed[row] = (step, type(error).__name__)
            return nulls(1, step.target.type)
    half = len(values) // 2
    first, second = ([column[part] for column in (values, *others)] for part in (slice(half), slice(half, None)))
    parts = [
        _applied(step, first[0], first[1:], row, failed),
        _applied(step, second[0], second[1:], row + half, failed),
    ]
    return pa.concat_arrays(parts)


def _masked(step: Step, values: Array, others: Sequence[Array]) -> Array:
    found = step.mask.apply(values, step.source, others)
    if found.type != step.target.type or len(found) != len(values):
        raise TypeError(f"mask {step.pattern} returned something else than it said")
    masked: Array = pc.if_else(pc.is_valid(values), found, pa.scalar(None, step.target.type))
    return masked


def nulls(count: int, kind: pa.DataType) -> Array:
    """A column of nothing."""
    return pa.array([None] * count, kind)


class Masker:
    """The masks of one source. `state`: the directory in which is kept what was masked; None when nothing is to be kept."""

    def __init__(self, config: SourceConfig, state: Path | None) -> None:
        self._config = config
        self._record = MaskRecord(state and state / "masks")
        self._masks: dict[str, Mask] = {}
        self._plans: dict[TableSchema, Plan] = {}

    def mask(self, change: ChangeBatch | Clear | End) -> Masked:
        """The change as it may be written. ConfigError when a mask does not fit the table, FatalError when the masks are not those of
        the rows that were written before."""
        plan = self.plan(change.table)
        if isinstance(change, End):
            return Masked(replace(change, table=plan.table, successor=self.plan(change.successor).table))
        if not plan.steps:
            return Masked(change)
        if isinstance(change, Clear):
            return Masked(replace(change, table=plan.table))
        own = change.data.columns[_SYSTEM : -2 if plan.has_befores else None]
        image = plan.image(own, change.data.column(_RAW_AT))
        befores = self._befores(plan, change.data, image) if plan.has_befores else []
        system = [
            image.raw if index == _RAW_AT else column for index, column in enumerate(change.data.columns[:_SYSTEM])
        ]
        data = pa.RecordBatch.from_arrays([*system, *image.columns, *befores], schema=plan.table.arrow_schema())
        return (
            _without_failed(plan.table, data, image.failed) if image.failed else Masked(ChangeBatch(plan.table, data))
        )

    def plan(self, table: TableSchema) -> Plan:
        """What the masks make of a table. Errors as in `mask`."""
        plan = self._plans.get(table)
        if plan is None and has_befores(table):
            own = self.plan(without_befores(table))
            plan = self._plans[table] = replace(own, table=with_befores(own.table), has_befores=True)
        elif plan is None:
            steps = tuple(self._steps(table))
            targets = {step.index: step.target for step in steps}
            columns = tuple(targets.get(index, column) for index, column in enumerate(table.columns))
            plan = Plan(replace(table, columns=columns) if steps else table, steps)
            kept = {c.name for c in table.columns if self._pattern(table, c)} - {step.source.name for step in steps}
            self._record.add(plan.table, masked={step.source.name for step in steps}, kept=kept)
            self._plans[table] = plan
        return plan

    @staticmethod
    def _befores(plan: Plan, data: pa.RecordBatch, after: Image) -> list[Array]:
        """The rows before, masked; one on which a mask failed counts as failed."""
        images, raw = data.columns[-2:]
        before = plan.image([pc.struct_field(images, index) for index in range(len(after.columns))], raw)
        after.failed |= {row: fault for row, fault in before.failed.items() if row not in after.failed}
        kind = plan.table.columns[-2].type
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return [pa.StructArray.from_arrays(before.columns, fields=fields, mask=pc.is_null(images)), before.raw]

    def save(self) -> None:
        """Makes durable what was masked; called before masked changes are written."""
        self._record.save()

    def unmatched(self) -> list[str]:
        """The patterns that match no column of any table captured so far."""
        known = [(table.schema, table.table, column) for table, column in self._record.columns()]
        return [pattern for pattern in self._config.mask if not any(names_column(pattern, *name) for name in known)]

    def _steps(self, table: TableSchema) -> Iterable[Step]:
        for index, column in enumerate(table.columns):
            pattern = self._pattern(table, column)
            config = self._config.mask[pattern] if pattern else None
            if pattern is None or config is None or config.type == "keep":
                continue
            if column.name in table.key and not config.keeps_rows_apart:
                raise _merges_rows(pattern, config, _name(table, column))
            yield self._step(table, index, pattern)

    def _step(self, table: TableSchema, index: int, pattern: str) -> Step:
        column, mask = table.columns[index], self._mask(pattern)
        try:
            target = mask.column(column)
            others = tuple(_index_of(name, table) for name in mask.others)
        except ValueError as error:
            raise ConfigError(
                f"mask `{pattern}` does not fit {_name(table, column)} ({column.source_type}): {error}",
                fix="correct the mask or choose another type for this column (`headrace list masks`)",
            ) from None
        step = Step(index, column, target, pattern, mask, others)
        default = _initial_default(table, step)
        return replace(step, target=replace(target, initial_default=default, born_as=column.born_as))

    def _mask(self, pattern: str) -> Mask:
        if pattern not in self._masks:
            config = self._config.mask[pattern]
            self._masks[pattern] = registry.load("masks", config.type)(config)
        return self._masks[pattern]

    def _pattern(self, table: TableSchema, column: Column) -> str | None:
        """By the column's name, else by the one that it had first: what is masked stays so when the source renames it."""
        name = (table.namespace.schema, table.namespace.table)
        return self._config.mask_pattern(*name, column.name) or self._config.mask_pattern(*name, column.identity)


def _without_failed(table: TableSchema, data: pa.RecordBatch, failed: dict[int, tuple[Step, str]]) -> Masked:
    """The rows on which no mask failed, and the others by column and fault."""
    rows_of: dict[tuple[str, str, str], list[int]] = {}
    for row, (step, reason) in sorted(failed.items()):
        rows_of.setdefault((step.source.name, step.pattern, reason), []).append(row)
    apart = tuple(Failed(ChangeBatch(table, data.take(pa.array(rows))), *fault) for fault, rows in rows_of.items())
    good = [row for row in range(data.num_rows) if row not in failed]
    return Masked(ChangeBatch(table, data.take(pa.array(good))) if good else None, apart)


def _initial_default(table: TableSchema, step: Step) -> str | None:
    """The masked value of rows that are older than the column; null when it hangs on other columns of those rows."""
    text, kind = step.source.initial_default, step.source.type
    if text is None or step.others:
        return None
    held = from_text(text, kind)
    failed: dict[int, tuple[Step, str]] = {}
    masked = _applied(step, pa.array([text], pa.utf8()) if held is None else held, [], 0, failed)
    if failed:
        raise DataError(
            f"mask `{step.pattern}` failed on the default of {_name(table, step.source)} ({failed[0][1]})",
            fix="correct the mask; nothing of this table was written since its column has that default",
        )
    value = masked[0].as_py()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else to_text(masked)[0].as_py()


def _index_of(name: str, table: TableSchema) -> int:
    found = [index for index, column in enumerate(table.columns) if column.name.casefold() == name.casefold()]
    if not found:
        raise ValueError(f"the table has no column {name}")
    return found[0]


def check_masks(config: SourceConfig, columns: Sequence[tuple[str, str, str, bool]]) -> None:
    """Columns as a source has them now: schema, table, name, whether it is of the primary key. ConfigError for a pattern that matches none
    of them, as what it was meant for would be written in clear, and for a key column whose mask does not keep rows apart."""
    for pattern, mask in config.mask.items():
        if not any(names_column(pattern, schema, table, column) for schema, table, column, _ in columns):
            raise ConfigError(
                f"mask `{pattern}` of source {config.name} matches no column of its tables",
                fix="correct the pattern (schema.table.column), or take it out; what it is meant for would be in clear",
            )
        for schema, table, column, in_key in columns:
            if in_key and not mask.keeps_rows_apart and config.mask_pattern(schema, table, column) == pattern:
                raise _merges_rows(pattern, mask, f"{schema}.{table}.{column}")


def _merges_rows(pattern: str, config: MaskConfig, column: str) -> ConfigError:
    return ConfigError(
        f"mask `{pattern}` ({config.type}) would make different rows one: {column} is of the key",
        fix="mask a key column with `hash` without `salt_column`, best hmac_sha256, and where the key is named as a foreign key alike",
    )


def _name(table: TableSchema, column: Column) -> str:
    namespace: Namespace = table.namespace
    return f"{namespace.schema}.{namespace.table}.{column.name}"
