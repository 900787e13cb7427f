"""``headrace decode --source``: decoded rows as the masks of their source make them, rows before changes included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.gather import described_table
from headrace.capture.mask import Image, Masker, Plan
from headrace.codec.binlog import BEFORE, BEFORE_RAW, ColumnInfo, Decoded, FileBatch, Rows
from headrace.errors import DataError
from headrace.ums.schema import ID, RAW
from headrace.ums.versions import Versions


def masked_rows(decoded: Iterable[Decoded], masker: Masker, source: str) -> Iterator[Decoded]:
    """DataError at the first value that a mask fails on; what stands before it is yielded. Other errors as in `Masker.mask`."""
    versions = Versions()
    for some in decoded:
        items = []
        for item in some.items:
            try:
                items.append(_masked(item, masker, versions, source) if isinstance(item, Rows) else item)
            except DataError:
                yield replace(some, items=tuple(items))
                raise
        yield replace(some, items=tuple(items))


def _masked(rows: Rows, masker: Masker, versions: Versions, source: str) -> Rows:
    data = rows.data
    table = versions.numbered(described_table(source, rows.table, data.schema))
    plan = masker.plan(table)
    if not plan.steps:
        return rows
    first = data.num_columns - len(table.columns)
    columns = {name: data.column(index) for index, name in enumerate(data.schema.names[:first])}
    after = plan.image(data.columns[first:], columns[RAW])
    _must_be_whole(after, rows)
    columns[RAW] = after.raw
    if BEFORE in columns:
        columns |= _before(plan, rows, columns[BEFORE], columns[BEFORE_RAW])
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    fields += [pa.field(column.name, column.type) for column in plan.table.columns]
    batch = pa.RecordBatch.from_arrays([*columns.values(), *after.columns], schema=pa.schema(fields))
    infos = tuple(ColumnInfo(column.name, column.source_type, column.nullable) for column in plan.table.columns)
    return Rows(rows.index, replace(rows.table, columns=infos), FileBatch(rows.file, batch))


def _before(plan: Plan, rows: Rows, images: pa.Array[Any], raw: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
    members = [pc.struct_field(images, index) for index in range(len(plan.table.columns))]
    before = plan.image(members, raw)
    _must_be_whole(before, rows)
    fields = [pa.field(column.name, column.type) for column in plan.table.columns]
    absent = pc.is_null(images)
    return {BEFORE: pa.StructArray.from_arrays(before.columns, fields=fields, mask=absent), BEFORE_RAW: before.raw}


def _must_be_whole(image: Image, rows: Rows) -> None:
    for row, (step, reason) in sorted(image.failed.items()):
        raise DataError(
            f"mask `{step.pattern}` failed ({reason}) on {rows.table.schema}.{rows.table.table}.{step.source.name},"
            f" change {rows.data.column(ID)[row]} in {rows.file}",
            fix="correct the mask; a capture puts such rows into its error ledger (`headrace errors`)",
        )
