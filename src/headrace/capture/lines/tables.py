"""Lines that were read together into changes: rows of the tables that rules fill, and of `_unmatched_`.

Every line becomes a row at least: a line that no rule fits, that is too long, or that would become more rows than it has ids, is a row
of `_unmatched_`, with the reason.

A line's rows have the ids from its own first one on, every second: the one before a row is for the end of the version before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.base import NO_PROGRESS
from headrace.capture.lines.fields import HOST, LINE, PATH, Array, Fields, call, holds_for_any, is_true, numbers
from headrace.capture.lines.host_times import HostTimes, are_beats
from headrace.capture.lines.rules import HEAD, UNMATCHED, Rule, RuleRows, tables_of
from headrace.capture.seen_tables import SeenTables
from headrace.ums.change import INSERT, ChangeBatch, End, Statement
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, TableSchema

SCHEMA = "logs"
"""The schema of all tables of lines."""
IDS_PER_ROW = 2
_MOST_FLATTENED_BYTES = 256 << 10
"""Of lines that may become many rows each, so that what they become at once has bounds."""
_INSTANT = pa.timestamp("us", "UTC")
_UNMATCHED_COLUMNS = (Column(LINE, pa.utf8(), "text"), Column("reason", pa.utf8(), "text"))
_NO_RULE, _TOO_MANY = "no rule fits", "it would become more rows than it has ids"


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines in their order; `fields` numbers them from 0, and the arrays have a value for each.

    `times_us`: what a shipper says, null where nobody does. `rooms`: how many rows the line may become. `faults`: why it is not for any
    rule, null when it is.
    """

    fields: Fields
    times_us: Array
    offsets: Array
    first_ids: Array
    rooms: Array
    faults: Array

    def slices(self, most_bytes: int) -> Iterator[Lines]:
        """The lines in runs of about so many bytes, one line at least."""
        start = size_bytes = 0
        for row, size in enumerate(self.fields.sizes()):
            size_bytes += size
            if size_bytes >= most_bytes or row == len(self.fields) - 1:
                yield self._slice(start, row + 1 - start)
                start, size_bytes = row + 1, 0

    def where(self, kept: Array) -> Lines:
        """Only the lines for which `kept` is true, numbered anew."""
        fields = self.fields.where(kept)
        return Lines(Fields(fields.texts, numbers(len(fields))), *(array.filter(kept) for array in self._arrays()))

    def _slice(self, start: int, count: int) -> Lines:
        return Lines(self.fields.slice(start, count), *(array.slice(start, count) for array in self._arrays()))

    def _arrays(self) -> tuple[Array, ...]:
        return (self.times_us, self.offsets, self.first_ids, self.rooms, self.faults)


@runtime_checkable
class LinesConfig(Protocol):
    """The configuration of a source of lines."""

    @property
    def rules(self) -> Sequence[Rule]:
        """Empty when it is not one of lines."""
        ...

    def lines_of(self, texts: Sequence[str]) -> Lines:
        """Texts as they stand in such a source as its lines; ValueError when one is none."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one table, as columns by name; ids included."""

    table: str
    columns: dict[str, Array]
    raw: Array


class LineTables:
    """The tables of one source's rules."""

    def __init__(self, rules: Sequence[Rule], seen: SeenTables) -> None:
        self._rules = rules
        self._seen = seen
        self._columns = {name: HEAD + columns for name, columns in tables_of(rules).items()}
        self._columns[UNMATCHED] = HEAD + _UNMATCHED_COLUMNS
        self.times = HostTimes()
        self.progress = NO_PROGRESS
        """What the last call of `changes` says of hosts."""

    def changes(self, lines: Lines, commit_ts_us: int, now_us: int) -> Iterator[ChangeBatch | End]:
        """A batch per table, and before a version's first row the end of the version before. `commit_ts_us`: when the lines came."""
        flattens = any(rule.flattens for rule in self._rules)
        for some in lines.slices(_MOST_FLATTENED_BYTES) if flattens else [lines]:
            parts: dict[str, list[_Part]] = {}
            for part in self._parts(self._without_beats(some, now_us), now_us):
                parts.setdefault(part.table, []).append(part)
                self.times.rows(part.columns[HOST], part.columns["time"].view(pa.int64()), part.columns["id"])
            for name, mine in parts.items():
                yield from self._batch(name, mine, commit_ts_us)
        self.progress = self.times.end()

    def _without_beats(self, lines: Lines, now_us: int) -> Lines:
        beats = are_beats(lines.fields)
        if not holds_for_any(beats):
            return lines
        said = lines.where(beats)
        self.times.beats(said.fields, said.first_ids, now_us)
        return lines.where(call("invert", beats))

    def _parts(self, lines: Lines, now_us: int) -> Iterator[_Part]:
        faults = lines.faults
        rest = lines.fields.where(call("is_null", faults))
        for rule in self._rules:
            if not len(rest):
                break
            found = rule.rows(rest, lines.times_us, now_us)
            if not len(found.fields):
                continue
            rest = rest.where(call("invert", _are(rest.lines, found.fields.lines)))
            many = _crowded(found.fields.lines, lines.rooms)
            if len(many):
                faults = _marked(faults, lines, many, _TOO_MANY)
                found = _without(found, many)
            yield _part(rule.table, found, lines)
        faults = _marked(faults, lines, rest.lines, _NO_RULE)
        left = lines.fields.where(call("is_valid", faults))
        if len(left):
            own = {LINE: left[LINE], "reason": faults.take(left.lines)}
            yield _part(UNMATCHED, RuleRows(left, lines.times_us.take(left.lines), own, {}), lines)

    def _batch(self, name: str, parts: Sequence[_Part], commit_ts_us: int) -> Iterator[ChangeBatch | End]:
        table = self._seen.version_with(SCHEMA, name, self._columns[name], (HEAD[0].name,))
        schema = table.arrow_schema()
        batches = [_record_batch(part, table, commit_ts_us) for part in parts]
        data = pa.Table.from_batches(batches, schema).combine_chunks()
        if len(parts) > 1:
            data = data.take(pc.sort_indices(data.column(ID)))
        [batch] = data.to_batches()
        first_id = batch.column(ID)[0].as_py()
        ended = self._seen.ended_by(table, first_id)
        if ended is not None:
            place = (
                f"{batch.column(PATH)[0].as_py() or batch.column(HOST)[0].as_py()}:{batch.column('offset')[0].as_py()}"
            )
            yield End(ended, table, first_id - 1, commit_ts_us, Statement(place=place))
        yield ChangeBatch(table, batch)


def _part(table: str, rows: RuleRows, lines: Lines) -> _Part:
    numbers = rows.fields.lines
    head = {
        "id": call("add", lines.first_ids.take(numbers), call("multiply", _occurrences(numbers), IDS_PER_ROW)),
        HOST: rows.fields[HOST],
        "time": rows.times_us.view(_INSTANT),
        PATH: rows.fields[PATH],
        "offset": lines.offsets.take(numbers),
    }
    return _Part(table, head | rows.columns, _raw(rows.beyond, len(numbers)))


def _record_batch(part: _Part, table: TableSchema, commit_ts_us: int) -> pa.RecordBatch:
    rows = len(part.raw)
    came = pa.repeat(pa.scalar(commit_ts_us, _INSTANT), rows)
    system = {
        ID: part.columns["id"],
        TS: call("coalesce", part.columns["time"], came),
        OP: pa.repeat(INSERT, rows),
        COMMIT_TS: came,
        RAW: part.raw,
    }
    named = system | part.columns
    schema = table.arrow_schema()
    # A rule need not fill every column of its table.
    arrays = [named[field.name] if field.name in named else pa.nulls(rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _occurrences(lines: Array) -> Array:
    """Of each row, which one of its line it is, from 0; lines only grow."""
    if _are_distinct(lines):
        return pa.repeat(pa.scalar(0, pa.int64()), len(lines))
    distinct, counts = _counts(lines)
    starts = call("subtract", pc.cumulative_sum(counts), counts)
    mine = starts.take(call("index_in", lines, options=pc.SetLookupOptions(distinct)))
    return call("subtract", numbers(len(lines)), mine)


def _counts(lines: Array) -> tuple[Array, Array]:
    """The lines that rows are of, each once in their order, and how many rows each one has."""
    counted = pc.value_counts(lines)
    return counted.field("values"), counted.field("counts")


def _crowded(lines: Array, rooms: Array) -> Array:
    """The lines that have become more rows than there is room for, which is one at least."""
    if _are_distinct(lines):
        return lines.slice(0, 0)
    distinct, counts = _counts(lines)
    return distinct.filter(call("greater", counts, rooms.take(distinct)))


def _are_distinct(lines: Array) -> bool:
    """Whether each line is one row; lines only grow."""
    return not holds_for_any(call("equal", lines.slice(1), lines.slice(0, max(0, len(lines) - 1))))


def _are(lines: Array, those: Array) -> Array:
    if lines.equals(those):
        return pa.repeat(pa.scalar(value=True), len(lines))
    return call("is_in", lines, options=pc.SetLookupOptions(those))


def _marked(faults: Array, lines: Lines, those: Array, fault: str) -> Array:
    return call("if_else", _are(lines.fields.lines, those), fault, faults)


def _without(found: RuleRows, lines: Array) -> RuleRows:
    kept = call("invert", _are(found.fields.lines, lines))
    return RuleRows(
        found.fields.where(kept),
        found.times_us.filter(kept),
        {name: values.filter(kept) for name, values in found.columns.items()},
        {name: texts.filter(kept) for name, texts in found.beyond.items()},
    )


def _raw(beyond: dict[str, Array], rows: int) -> Array:
    """The column `_ums_raw_`: null, or a JSON object of the texts that types cannot hold."""
    if not beyond:
        return pa.nulls(rows, pa.utf8())
    found: list[str | None] = [None] * rows
    any_beyond = is_true(call("is_valid", call("coalesce", *beyond.values())))
    rows_beyond: list[Any] = call("indices_nonzero", any_beyond).to_pylist()
    for row in rows_beyond:
        texts = {name: column[row].as_py() for name, column in beyond.items()}
        found[row] = json.dumps({name: text for name, text in texts.items() if text is not None}, ensure_ascii=False)
    return pa.array(found, pa.utf8())
