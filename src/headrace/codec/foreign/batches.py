"""Rows of foreign messages as batches: through the UMS codec, which knows how values of any form become those of a type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.codec.foreign.reading import ForeignRow
from headrace.codec.texts import moment
from headrace.codec.ums import UmsReader, UmsRows
from headrace.codec.ums_schema import Dialect, Kind, rows_head
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Numbered:
    """A row with its `_ums_id_` and its commit time, µs since 1970 UTC."""

    id: int
    commit_ts_us: int
    row: ForeignRow


def batch_of(table: TableSchema, rows: Sequence[Numbered], reader: UmsReader) -> ChangeBatch:
    """One batch of all rows. What a column's type cannot hold is null in it, and its text in `_ums_raw_`."""
    names = [column.name for column in table.columns]
    tuples = [
        {
            "tuple": [
                numbered.id,
                moment(numbered.row.ts_us, 6),
                numbered.row.op,
                moment(numbered.commit_ts_us, 6),
                None,
                *map(numbered.row.values.get, names),
            ]
        }
        for numbered in rows
    ]
    head = rows_head(table, Dialect.HEADRACE, Kind.INCREMENT, None).text
    payload = json.dumps(tuples, ensure_ascii=False, separators=(",", ":"))
    [found] = reader.read([head + payload[1:].encode() + b"}"])
    assert isinstance(found, UmsRows)
    return ChangeBatch(table, found.batch.data.cast(table.arrow_schema()))
