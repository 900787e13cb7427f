"""What a flow file says about lines: rules, tried in their order; the first that fits takes the line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headrace.capture.lines.columns import column_of, typed
from headrace.capture.lines.fields import GIVEN, HOST, PATH, Array, Fields, call
from headrace.capture.lines.steps import AnyStep, FieldName, Flatten
from headrace.capture.lines.times import TimeFormat
from headrace.model import Model
from headrace.ums.schema import SYSTEM_FIELDS, Column

UNMATCHED = "_unmatched_"
"""The table of lines that no rule fits."""
_INSTANT = pa.timestamp("us", "UTC")
HEAD = (
    Column("id", pa.int64(), "bigint", nullable=False),
    Column(HOST, pa.utf8(), "varchar(255)"),
    Column("time", _INSTANT, "timestamp(6)"),
    Column(PATH, pa.utf8(), "text"),
    Column("offset", pa.int64(), "bigint"),
)
"""The columns that every table of lines begins with; the first is its key."""
_TAKEN = {column.name for column in HEAD} | {field.name for field in SYSTEM_FIELDS}


def _kind(kind: str) -> str:
    column_of("", kind)
    return kind


class TimeRule(Model):
    """Where the time of a line stands, and how it is written."""

    field: FieldName
    format: str = "iso"
    """`iso` (ISO 8601, also with a blank or a comma), `unix`, `unix_ms`, `unix_us`, `unix_ns`, or a pattern: ``%d/%b/%Y:%H:%M:%S %z``."""
    zone: str = "UTC"
    """The time zone of times that do not say theirs: ``Europe/Berlin``."""

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        self.reader()
        return self

    def reader(self) -> TimeFormat:
        return TimeFormat(self.format, self.zone)


def _time(value: object) -> object:
    return {"field": value} if isinstance(value, str) else value


class Rule(Model):
    """From a line to a row of a table. Several rules may fill one table."""

    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    """The table's name; its schema is `logs`."""
    steps: list[AnyStep] = Field(default_factory=list)
    """Operators, one after another: `filter`, `extract`, `split`, `json`, `flatten`, `trim`, `replace`, `substring`, `concat`. They begin with the
    fields `line`, `host`, `path` and `event` (the whole JSON object of a shipper). A line that does not fit one of them is not of this rule."""
    time: Annotated[TimeRule | None, BeforeValidator(_time)] = None
    """The field that has the line's time; a line without one there is not of this rule. Left out, it is the time that the shipper gave."""
    columns: Annotated[dict[FieldName, Annotated[str, AfterValidator(_kind)]], Field(min_length=1)]
    """The fields that become columns, and their types: text, boolean, int, bigint, double, decimal(p,s), date, timestamp (ISO 8601)."""
    nulls: list[str] = Field(default_factory=lambda: ["", "-"])
    """Texts that mean that there is no value, in columns that are not text."""
    sample: Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = Field(
        default_factory=list
    )
    """Lines (or JSON objects of the shipper) that this rule must take; `headrace check` tries them."""

    @model_validator(mode="after")
    def _fields_are_there(self) -> Self:
        known = set(GIVEN)
        for step in self.steps:
            if missing := sorted(step.takes - known):
                raise ValueError(f"step {step.do} needs the field {missing[0]}, which no step before it makes")
            known = (known - step.ends) | step.makes
        asked = [*self.columns, *([self.time.field] if self.time else [])]
        if missing := sorted(set(asked) - known):
            raise ValueError(f"no step makes the field {missing[0]}")
        if taken := sorted(_TAKEN.intersection(self.columns)):
            raise ValueError(f"`columns` has {taken[0]}, which every table of lines has anyway")
        return self

    @property
    def flattens(self) -> bool:
        """Whether a line may become many rows."""
        return any(isinstance(step, Flatten) for step in self.steps)

    @property
    def asked(self) -> set[str]:
        """The fields that any part of this rule asks for."""
        asked = {HOST, PATH, *self.columns} | ({self.time.field} if self.time else set())
        return asked.union(*(step.takes for step in self.steps))

    def own_columns(self) -> tuple[Column, ...]:
        """The columns that it fills, besides `HEAD`."""
        return tuple(column_of(name, kind) for name, kind in self.columns.items())

    def rows(self, fields: Fields, times_us: Array, now_us: int) -> RuleRows:
        """What the lines that fit become. `times_us`: by line, what a shipper says of its time."""
        found = fields.only(sorted(self.asked))
        for step in self.steps:
            found = step.apply(found)
        if self.time is None:
            return self._typed(found, times_us.take(found.lines), now_us)
        times = self.time.reader().micros(found[self.time.field], now_us)
        fits = call("is_valid", times)
        return self._typed(found.where(fits), times.filter(fits), now_us)

    def _typed(self, found: Fields, times_us: Array, now_us: int) -> RuleRows:
        columns, beyond = {}, {}
        for column in self.own_columns():
            columns[column.name], bad = typed(found[column.name], column, self.nulls, now_us)
            if bad is not None:
                beyond[column.name] = call("if_else", bad, found[column.name], pa.scalar(None, pa.utf8()))
        return RuleRows(found, times_us, columns, beyond)


@dataclass(frozen=True, slots=True)
class RuleRows:
    """Rows of one rule. `beyond`: by column the texts that its type cannot hold, null for all others."""

    fields: Fields
    times_us: Array
    columns: dict[str, Array]
    beyond: dict[str, Array]


def tables_of(rules: Sequence[Rule]) -> dict[str, tuple[Column, ...]]:
    """The tables that rules fill, without `HEAD`; ValueError when two rules have a column in two types."""
    found: dict[str, dict[str, Column]] = {}
    for rule in rules:
        table = found.setdefault(rule.table, {})
        for column in rule.own_columns():
            if table.setdefault(column.name, column) != column:
                raise ValueError(f"two rules have the column {column.name} of table {rule.table} in two types")
    return {name: tuple(columns.values()) for name, columns in found.items()}
