"""Changes as they travel inside headrace: Arrow batches of one table version, and the marks between transactions.

What an entry of the log holds ("block")::

    +-------+-----------------+------------------+---------------------------------------------+
    | magic | u32 LE          | header           | body                                        |
    | HRB1  | length of header| JSON, UTF-8      | Arrow IPC stream of one record batch        |
    +-------+-----------------+------------------+---------------------------------------------+
    header of changes:  {"kind":"changes","namespace":…,"rows":n,"id":[min,max],"ts":[min µs,max µs]}
    header of a clear:  {"kind":"clear","namespace":…,"id":…,"commit_ts":µs}             (body: the table's schema, no batch)
    header of a mark:   {"kind":"mark","source":…,"position":{…},"id":…,"commit_ts":µs}          (no body)

The entry's key is the namespace for changes and ``~mark`` for a mark, so a reader skips what it does not want unopened.

A mark says: every change of its source with an id up to `id` stands before it, all transactions up to here are whole, and
capture can resume from `position`. Capture appends changes and their mark as one unit, so log and position cannot disagree:
after a crash either both are there or neither. Only a transaction too large for memory is appended in several units, its mark
with the last; if capture dies in between, it resumes from the mark before and appends the same changes, with the same ids, again.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import CorruptError
from headrace.ums.schema import ID, OP, SYSTEM_FIELDS, TS, TableSchema

_MAGIC = b"HRB1"
_PREFIX = struct.Struct("<4sI")
MARK_KEY = b"~mark"

INSERT, UPDATE, DELETE = "i", "u", "d"
_DELETE = pa.scalar(DELETE)


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes of one table version, in log order. `data` has the columns of ``table.arrow_schema()``."""

    table: TableSchema
    data: pa.RecordBatch

    def __len__(self) -> int:
        return self.data.num_rows

    @property
    def id_range(self) -> tuple[int, int]:
        """Smallest and largest `_ums_id_` (the batch must not be empty)."""
        return _min_max(self.data.column(ID))

    @property
    def ts_range(self) -> tuple[int, int]:
        """Smallest and largest `_ums_ts_` in microseconds since 1970 UTC (the batch must not be empty)."""
        return _min_max(self.data.column(TS).view(pa.int64()))

    def key(self) -> bytes:
        """The key of this batch's log entry."""
        return str(self.table.namespace).encode()

    def to_block(self) -> bytes:
        """The bytes of this batch's log entry, as drawn above."""
        low, high = self.id_range
        header = {
            "kind": "changes",
            "namespace": str(self.table.namespace),
            "rows": len(self),
            "id": [low, high],
            "ts": list(self.ts_range),
        }
        sink = pa.BufferOutputStream()
        sink.write(_prefix(header))
        with pa.ipc.new_stream(sink, self.data.schema) as writer:
            writer.write_batch(self.data)
        return sink.getvalue().to_pybytes()

    def newest_per_key(self) -> ChangeBatch:
        """Of each key only the change with the largest `_ums_id_`, in log order; the batch itself when the table has no key.

        Each key is left once, also when a change stands in the batch twice (a replay).
        """
        if not self.table.key or len(self) < 2:
            return self
        keys = list(self.table.key)
        by_id = pc.sort_indices(self.data.column(ID))
        columns = pa.table([*(self.data.column(key).take(by_id) for key in keys), by_id], [*keys, "\0row"])
        newest = columns.group_by(keys, use_threads=False).aggregate([("\0row", "last")]).column("\0row_last")
        if len(newest) == len(self):
            return self
        rows = newest.combine_chunks()
        return ChangeBatch(self.table, self.data.take(rows.take(pc.sort_indices(rows))))


@dataclass(frozen=True, slots=True)
class Clear:
    """TRUNCATE TABLE at the source: the rows of all changes of the table with a smaller `_ums_id_` are gone.

    `commit_ts_us` is the statement's commit time in microseconds since 1970 UTC.
    """

    table: TableSchema
    id: int
    commit_ts_us: int

    def __len__(self) -> int:
        return 1

    def key(self) -> bytes:
        """The key of this clear's log entry: that of its table, so that whoever follows the table meets it."""
        return str(self.table.namespace).encode()

    def to_block(self) -> bytes:
        """The bytes of this clear's log entry, as drawn above."""
        header = {
            "kind": "clear",
            "namespace": str(self.table.namespace),
            "id": self.id,
            "commit_ts": self.commit_ts_us,
        }
        return _prefix(header) + self.table.arrow_schema().serialize().to_pybytes()


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of whole transactions in the log: what stands before it is complete up to `id`, and capture resumes from `position`.

    `position` belongs to the source that wrote it and is opaque to everybody else. `commit_ts_us` is the monotone commit time
    of the newest transaction before the mark, in microseconds since 1970 UTC.
    """

    source: str
    position: dict[str, Any]
    id: int
    commit_ts_us: int

    def to_block(self) -> bytes:
        """The bytes of this mark's log entry, as drawn above."""
        return _prefix(
            {
                "kind": "mark",
                "source": self.source,
                "position": self.position,
                "id": self.id,
                "commit_ts": self.commit_ts_us,
            }
        )


def read_header(block: bytes | memoryview) -> dict[str, Any]:
    """The header of a block without opening its body; CorruptError when the bytes are not a block."""
    header, _ = _split(block)
    return header


def read_block(block: bytes | memoryview) -> ChangeBatch | Clear | Mark:
    """What a log entry's value holds; CorruptError when the bytes are not a block."""
    header, body_at = _split(block)
    if header["kind"] == "mark":
        return Mark(header["source"], header["position"], header["id"], header["commit_ts"])
    body = pa.py_buffer(block)[body_at:]
    try:
        if header["kind"] == "clear":
            table = TableSchema.from_arrow(pa.ipc.read_schema(body))
            return Clear(table, header["id"], header["commit_ts"])
        batch = pa.ipc.open_stream(body).read_next_batch()
    except (pa.ArrowInvalid, OSError, StopIteration) as error:
        raise _not_a_block(str(error)) from error
    return ChangeBatch(TableSchema.from_arrow(batch.schema), batch)


def empty_batch(table: TableSchema) -> ChangeBatch:
    """A batch of no rows."""
    return ChangeBatch(table, pa.RecordBatch.from_pylist([], schema=table.arrow_schema()))


def is_delete(batch: pa.RecordBatch) -> pa.BooleanArray:
    """Per row whether it is a delete."""
    return pc.equal(batch.column(OP), _DELETE)


def user_columns(batch: pa.RecordBatch) -> list[str]:
    """The names of the columns that are the source's own."""
    return batch.schema.names[len(SYSTEM_FIELDS) :]


def _prefix(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return _PREFIX.pack(_MAGIC, len(text)) + text


def _split(block: bytes | memoryview) -> tuple[dict[str, Any], int]:
    if len(block) < _PREFIX.size:
        raise _not_a_block(f"{len(block)} bytes are too few")
    magic, length = _PREFIX.unpack_from(block)
    end = _PREFIX.size + length
    if magic != _MAGIC or end > len(block):
        raise _not_a_block("wrong magic or length")
    try:
        header: dict[str, Any] = json.loads(bytes(block[_PREFIX.size : end]))
    except ValueError as error:
        raise _not_a_block(str(error)) from error
    return header, end


def _not_a_block(reason: str) -> CorruptError:
    return CorruptError(
        f"a log entry is not a headrace block: {reason}",
        fix="check that the topic was written by headrace; if it was, restore the log from its copy and report this",
    )


def _min_max(column: pa.Array[Any]) -> tuple[int, int]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()
