"""Rows of one side on their way past: counted and summed by part, or kept when their part is to be looked into."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace._native import PartSums, hashes_of_rows, parts_of_rows
from headrace.ums.schema import TableSchema
from headrace.verify.digest import MISFITS, canonical

PARTS = 65_535
"""A row is in the part that its key says, whatever the order of the store: of 10 million rows 150 are in each."""
_HASH_BYTES = 16


def summed(batches: Iterable[pa.RecordBatch], table: TableSchema, side: str) -> PartSums:
    """All rows, whatever their order and their batches."""
    sums = PartSums(PARTS)
    for batch in batches:
        for rows in in_one_form(batch, table, side):
            sums.add(rows, parts_of_rows(rows.select(list(table.key)), PARTS))
    return sums


def kept(batches: Iterable[pa.RecordBatch], table: TableSchema, side: str, parts: Collection[int]) -> pa.Table:
    """The rows of some parts, as the store gave them."""
    wanted = pa.array(sorted(parts), pa.uint16())
    schema = pa.schema([pa.field(column.name, column.type) for column in table.columns])
    found: list[pa.Table] = [schema.empty_table()]
    for batch in batches:
        here: list[pa.Array[Any]] = [pa.array([], pa.uint16())]
        for rows in in_one_form(batch, table, side):
            numbers = parts_of_rows(rows.select(list(table.key)), PARTS)
            here.append(pa.Array.from_buffers(pa.uint16(), len(rows), [None, pa.py_buffer(numbers)]))
        found.append(pa.Table.from_batches([batch]).filter(pc.is_in(pa.concat_arrays(here), wanted)))
    return pa.concat_tables(found[1:], promote_options="default") if len(found) > 1 else found[0]


def in_one_form(batch: pa.RecordBatch, table: TableSchema, side: str) -> Iterator[pa.RecordBatch]:
    """The rows in the types of the table, so that equal rows have equal hashes; what does not fit stands in a column of its own."""
    if not batch.num_rows:
        return
    rows = canonical(pa.Table.from_batches([batch]), table, side).data
    if MISFITS not in rows.column_names:
        rows = rows.append_column(MISFITS, pa.nulls(len(rows), pa.utf8()))
    yield from rows.combine_chunks().to_batches()


def key_hashes(rows: pa.RecordBatch, table: TableSchema) -> list[bytes]:
    """What tells the keys of rows in one form apart."""
    return _split(hashes_of_rows(rows.select(list(table.key))))


def row_hashes(rows: pa.RecordBatch) -> list[bytes]:
    """What tells rows in one form apart."""
    return _split(hashes_of_rows(rows))


def hashes_array(hashes: Collection[bytes]) -> pa.Array[Any]:
    """For comparing many at once."""
    return pa.array(hashes, pa.binary(_HASH_BYTES))


def _split(hashes: bytes) -> list[bytes]:
    return [hashes[at : at + _HASH_BYTES] for at in range(0, len(hashes), _HASH_BYTES)]
