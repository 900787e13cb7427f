"""``headrace decode`` and ``headrace log cat --format jsonl``: changes as lines of JSON, in log order.

Values are written exactly: integers and decimals keep all digits, dates keep what no calendar holds, bytes are base64
(headrace.codec.texts).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.binlog import ABSENT, BEFORE, BEFORE_RAW, OFFSET, Ddl, Rows
from headrace.codec.foreign.changes import ForeignWriter, of_rows
from headrace.codec.json_rows import row_objects
from headrace.codec.texts import (
    NULL,
    Texts,
    array_of,
    joined,
    listed,
    moment,
    moments,
    quoted,
    texts,
)
from headrace.ums.change import ChangeBatch, Clear, End
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, SYSTEM_FIELDS, TS


def jsonl_lines(items: Iterable[Rows | Ddl]) -> Iterator[str]:
    """The lines of what was decoded with before images; rows of several tables come in the order of the log."""
    return _in_order(items, _lines)


def foreign_lines(items: Iterable[Rows | Ddl], writer: ForeignWriter, source: str) -> Iterator[str]:
    """The same as messages in a format of others. `source`: what they call the data source."""
    return _in_order(items, lambda rows: writer.messages(of_rows(rows, source)))


def _in_order(items: Iterable[Rows | Ddl], lines: Callable[[Rows], Iterator[tuple[int, str]]]) -> Iterator[str]:
    for is_ddl, group in groupby(items, key=lambda item: isinstance(item, Ddl)):
        if not is_ddl:
            batches = [lines(item) for item in group if isinstance(item, Rows)]
            for _, line in heapq.merge(*batches, key=lambda numbered: numbered[0]):
                yield line


def change_lines(change: ChangeBatch | Clear | End) -> Iterator[str]:
    """The lines of changes out of a log, which has each row as it is after its change (a deleted one as it was)."""
    head = f'"namespace": {quoted(str(change.table.namespace))}'
    if not isinstance(change, ChangeBatch):
        kind = "clear" if isinstance(change, Clear) else "end"
        time = moment(change.commit_ts_us, 6)
        yield f'{{{head}, "ums_id": {change.id}, "ums_ts": "{time}", "commit_ts": "{time}", "op": "{kind}", "row": null}}'
        return
    data = change.data
    images = row_objects(
        change.table.columns, data.columns[len(SYSTEM_FIELDS) :], data.column(RAW), [None] * len(change)
    )
    yield from listed(
        joined(
            f"{{{head}, ",
            '"ums_id": ',
            texts(data.column(ID), ""),
            ', "ums_ts": "',
            _times(data.column(TS)),
            '", "commit_ts": "',
            _times(data.column(COMMIT_TS)),
            '", "op": "',
            data.column(OP).cast(pa.large_utf8()),
            '", "row": ',
            images,
            "}",
        )
    )


def _lines(rows: Rows) -> Iterator[tuple[int, str]]:
    data = rows.data
    table = f'"schema": {quoted(rows.table.schema)}, "table": {quoted(rows.table.table)}'
    columns = rows.table.columns
    absent = [None if text is None else json.loads(text) for text in data.column(ABSENT).to_pylist()]
    befores = row_objects(
        columns,
        _members(data.column(BEFORE), len(columns)),
        data.column(BEFORE_RAW),
        [row and row["before"] for row in absent],
    )
    first = data.num_columns - len(columns)
    afters = row_objects(columns, data.columns[first:], data.column(RAW), [row and row["after"] for row in absent])
    ids: list[Any] = data.column(ID).to_pylist()
    ops = listed(data.column(OP))
    lines = joined(
        f'{{"file": {quoted(rows.file)}, "offset": ', texts(data.column(OFFSET), ""), ', "ums_id": ', texts(data.column(ID), ""),
        ', "ums_ts": "', _times(data.column(TS)), f'", {table}, "op": "', array_of(ops),
        '", "before": ', _unless("i", ops, befores), ', "after": ', _unless("d", ops, afters), "}",
    )  # fmt: skip
    return zip(ids, listed(lines), strict=True)


def _times(column: pa.Array[Any]) -> Texts:
    return moments(column.cast(pa.int64()), 6)


def _unless(op: str, ops: Sequence[str], images: Texts) -> Texts:
    """The images of changes that are not of this kind, which has none."""
    found: Texts = pc.if_else(pa.array([each == op for each in ops]), pa.scalar(NULL, pa.large_utf8()), images)
    return found


def _members(images: pa.Array[Any], count: int) -> list[pa.Array[Any]]:
    return [pc.struct_field(images, index) for index in range(count)]
