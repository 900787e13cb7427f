"""Changes of one table as the formats of others see them: row by row, each with what it was before and what it is after."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.binlog import ABSENT, BEFORE, BEFORE_RAW, OFFSET, Rows
from headrace.codec.texts import Described, Images, Style, Texts, array_of, texts, whole_units
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import ID, OP, RAW, SYSTEM_FIELDS, TS


@dataclass(frozen=True, slots=True)
class State:
    """Rows in one state: their columns, the values beyond their types, and the names that each row lacks."""

    arrays: Sequence[pa.Array[Any]]
    raw: pa.Array[Any]
    left_out: Sequence[Collection[str] | None]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one table version in log order. Where `before` is None (out of a log), `after` has deleted rows as they were."""

    source: str
    schema: str
    table: str
    columns: Sequence[Described]
    key: tuple[str, ...]
    ids: Sequence[int]
    times_us: Sequence[int]
    ops: Sequence[str]
    after: State
    before: State | None
    file: str = ""
    offsets: Sequence[int] = ()
    """Where events begin in `file`; empty when that is not known."""

    def id_texts(self) -> Texts:
        """`ids` as text."""
        return array_of(map(str, self.ids))

    def times(self) -> pa.Int64Array:
        """`times_us` as they are reckoned with."""
        return pa.array(self.times_us, pa.int64())

    def time_texts(self, per_unit: int) -> Texts:
        """`times_us` as text, in a unit of so many microseconds, rounded down."""
        return texts(whole_units(self.times(), per_unit), "")

    def are(self, op: str) -> pa.BooleanArray:
        """Which changes are of this kind."""
        return pa.array([each == op for each in self.ops], pa.bool_())

    def images(self, style: Style) -> tuple[Images, Images | None]:
        """The rows after their changes and, where they are known, before, as JSON in a format's own style."""
        after = Images(self.columns, self.after.arrays, self.after.raw, self.after.left_out, style)
        if self.before is None:
            return after, None
        return after, Images(self.columns, self.before.arrays, self.before.raw, self.before.left_out, style)


class ForeignWriter(Protocol):
    """Writes changes in a format of others, a message per change."""

    def messages(self, changes: Changes) -> Iterator[tuple[int, str]]:
        """The messages, each with the `_ums_id_` of its change."""
        ...

    def keys(self, changes: Changes) -> list[str]:
        """The key of each change's message on Kafka, by the table's key, which it must have."""
        ...

    def clear(self, clear: Clear) -> str | None:
        """The message of TRUNCATE TABLE; None when the format has none."""
        ...


def key_images(changes: Changes, style: Style) -> Images:
    """The columns of the table's key; nothing is left out of them."""
    places = [index for name in changes.key for index, column in enumerate(changes.columns) if column.name == name]
    columns = [changes.columns[index] for index in places]
    arrays = [changes.after.arrays[index] for index in places]
    return Images(columns, arrays, changes.after.raw, [None] * len(changes.ids), style)


def of_rows(rows: Rows, source: str) -> Changes:
    """What was decoded with before images. `source`: the data source's name."""
    data, columns = rows.data, rows.table.columns
    absent = [None if text is None else json.loads(text) for text in data.column(ABSENT).to_pylist()]
    befores = data.column(BEFORE)
    first = data.num_columns - len(columns)
    offsets: list[Any] = data.column(OFFSET).to_pylist()
    return Changes(
        source,
        rows.table.schema,
        rows.table.table,
        columns,
        rows.table.key,
        *_system(data),
        State(data.columns[first:], data.column(RAW), [row and row["after"] for row in absent]),
        State(
            [pc.struct_field(befores, index) for index in range(len(columns))],
            data.column(BEFORE_RAW),
            [row and row["before"] for row in absent],
        ),
        rows.file,
        offsets,
    )


def of_batch(batch: ChangeBatch) -> Changes:
    """What a log has: rows after their change."""
    table, data = batch.table, batch.data
    place = table.namespace
    after = State(data.columns[len(SYSTEM_FIELDS) :], data.column(RAW), [None] * len(batch))
    return Changes(place.source, place.schema, place.table, table.columns, table.key, *_system(data), after, None)


def _system(data: pa.RecordBatch) -> tuple[list[int], list[int], list[str]]:
    ids: list[Any] = data.column(ID).to_pylist()
    times_us: list[Any] = data.column(TS).cast(pa.int64()).to_pylist()
    ops: list[Any] = data.column(OP).to_pylist()
    return ids, times_us, ops
