"""Which partitions of its topic a change goes to.

A row goes by the hash of its key, so that all changes of one key are in one partition, in their order; rows of a table without a key
go by the name of the table. Lines of logs, each of which has a key of its own, go by their host: what a host has written stays in its order. What is about a
whole table goes to all partitions: clears, and ends of versions. The hash is of the values as the log has them (masked, when they are), and of
whole numbers whatever their width; nothing breaks when a key moves to another partition (another number of partitions, another key), as the
larger `_ums_id_` wins in every target.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace._native import parts_of_rows
from headrace.codec.entries import EntryWriter
from headrace.log.base import Entry
from headrace.ums.change import ChangeBatch, Clear, End, Heartbeat, Mark

_Change = ChangeBatch | Clear | End


class Parts:
    """Makes the entries of a unit, by partition."""

    def __init__(self, writer: EntryWriter, partitions: int, parted_by: str = "") -> None:
        """`parted_by`: see `parted`."""
        self._writer = writer
        self._partitions = partitions
        self._parted_by = parted_by

    def of(
        self,
        changes: Sequence[ChangeBatch | Clear | End],
        heartbeats: Sequence[Heartbeat],
        mark: Mark | None,
        now_ms: int,
    ) -> dict[int, list[Entry]]:
        """Changes where they belong, then, in every partition, heartbeats and the mark; nothing when there is neither."""
        parts: dict[int, list[Entry]] = {partition: [] for partition in range(self._partitions)}
        for change in changes:
            for partition, part in parted(change, self._partitions, self._parted_by).items():
                parts[partition] += self._writer.changes(part, now_ms)
        behind = [self._writer.heartbeat(heartbeat, now_ms) for heartbeat in heartbeats]
        if mark is not None:
            behind.append(self._writer.mark(mark, now_ms))
        return {partition: entries + behind for partition, entries in parts.items() if entries or behind}


def parted(change: _Change, partitions: int, parted_by: str = "") -> Mapping[int, _Change]:
    """The parts of a change by partition, those that are not empty. `parted_by`: the column that says where a row goes; empty: its key."""
    if partitions == 1:
        return {0: change}
    if not isinstance(change, ChangeBatch):
        return dict.fromkeys(range(partitions), change)
    columns = (parted_by,) if parted_by else change.table.key
    if not columns:
        return {zlib.crc32(change.table.namespace.all_versions.encode()) % partitions: change}
    numbers = _numbers(change, columns, partitions)
    found = pc.unique(numbers).sort()
    if len(found) == 1:
        return {found[0].as_py(): change}
    return {
        number.as_py(): ChangeBatch(change.table, change.data.filter(pc.equal(numbers, number))) for number in found
    }


def _numbers(batch: ChangeBatch, names: Sequence[str], partitions: int) -> pa.Array[Any]:
    """Of each row the number of its partition, by the values of some columns."""
    columns = [_wide(batch.data.column(name)) for name in names]
    keys = pa.RecordBatch.from_arrays(columns, [str(number) for number in range(len(columns))])
    numbers = pa.py_buffer(parts_of_rows(keys, partitions))
    return pa.Array.from_buffers(pa.uint16(), len(batch), [None, numbers])


def _wide(column: pa.Array[Any]) -> pa.Array[Any]:
    """Whole numbers in 64 bits, so that a key that grows stays where it is."""
    if not pa.types.is_integer(column.type):
        return column
    return pc.cast(column, pa.int64() if pa.types.is_signed_integer(column.type) else pa.uint64())
