"""Changes as they travel inside headrace: Arrow batches of one table version, and the marks between transactions.

A block, which is what an entry of the embedded log holds (other forms: headrace.codec.entries)::

    +-------+-----------------+------------------+---------------------------------------------+
    | magic | u32 LE          | header           | body                                        |
    | HRB1  | length of header| JSON, UTF-8      | Arrow IPC stream of one record batch        |
    +-------+-----------------+------------------+---------------------------------------------+
    header of changes:  {"kind":"changes","namespace":…,"rows":n,"id":[min,max],"ts":[min µs,max µs]}
    header of a clear:  {"kind":"clear","namespace":…,"id":…,"commit_ts":µs,"cause":…,"sql":…,"at":…}
                                                                                          (body: the table's schema, no batch)
    header of an end:   {"kind":"end","namespace":…,"next":…,"id":…,"commit_ts":µs,"compatible":bool,"sql":…,"at":…}
                                                                     (body: the schemas of the version and of the next one)
    header of a mark:   {"kind":"mark","source":…,"position":{…},"id":…,"commit_ts":µs}          (no body)
    of a heartbeat:     {"kind":"heartbeat","source":…,"namespace":… or null,"id":…,"sent":µs}   (no body)

The entry's key is the namespace for changes, ``~mark`` for a mark and ``~heartbeat`` for a heartbeat, so a reader skips what it
does not want unopened.

A clear ends rows without a row event: TRUNCATE, DROP and RENAME of a table, and a new table under an old name (`cause`). An end says
that a version of a table is over: it stands right before the first change of the next version, its id is one less than that change's,
so whoever reads the log again meets it at the same place, and whoever starts later does not miss what it has not seen; where the source
tells the next version before a change of it, it stands before the mark of that place, with the mark's id. `compatible`:
each old value fits the new version as it is. `sql` and `at` name the statement and its place in the source's log.

A mark says: every change of its source with an id up to `id` stands before it, all transactions up to here are whole, and
capture can resume from `position`. Capture appends changes and their mark as one unit, so log and position cannot disagree:
after a crash either both are there or neither. Only a transaction too large for memory is appended in several units, its mark
with the last; if capture dies in between, it resumes from the mark before and appends the same changes, with the same ids, again.

A heartbeat stands in a unit before its mark, as changes do, and says: what the source (or its table) had committed by `sent` is in
the log up to that mark. It does not say that what comes later was committed later: a transaction gets its commit time before its
place in the source's log, and clocks differ. A mark's commit time does say that: no change behind it has an earlier one. It is that of a
transaction before it, or a time of the source's own clock that was proven since (capture/commit_floor.py).
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace._native import NewestRows
from headrace.errors import CorruptError
from headrace.ums.schema import ID, OP, SYSTEM_FIELDS, TS, Namespace, TableSchema

_MAGIC = b"HRB1"
_PREFIX = struct.Struct("<4sI")
_END_OF_STREAM = struct.pack("<Ii", 0xFFFF_FFFF, 0)
MARK_KEY = b"~mark"
HEARTBEAT_KEY = b"~heartbeat"

INSERT, UPDATE, DELETE = "i", "u", "d"
_SQL_LENGTH = 500
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

    def header(self) -> dict[str, Any]:
        """The header of this batch's block, as drawn above (the batch must not be empty)."""
        return {
            "kind": "changes",
            "namespace": str(self.table.namespace),
            "rows": len(self),
            "id": list(self.id_range),
            "ts": list(self.ts_range),
        }

    def to_block(self) -> bytes:
        """This batch as a block, as drawn above."""
        # What a stream writer would write, without growing a buffer and copying it.
        return b"".join([_prefix(self.header()), self.data.schema.serialize(), self.data.serialize(), _END_OF_STREAM])

    def not_before(self, id_: int | None) -> ChangeBatch:
        """Without the changes that have a smaller `_ums_id_`; all of them when None."""
        if id_ is None or not len(self) or self.id_range[0] >= id_:
            return self
        return ChangeBatch(self.table, self.data.filter(pc.greater_equal(self.data.column(ID), pa.scalar(id_))))

    def newest_per_key(self) -> ChangeBatch:
        """Of each key only the change with the largest `_ums_id_`, in log order; the batch itself when the table has no key.

        Each key is left once, also when a change stands in the batch twice (a replay).
        """
        if not self.table.key or len(self) < 2 or self._keys_grow():
            return self
        numbers = pa.arange(0, len(self))  # type: ignore[attr-defined]  # the stubs lack it
        columns = [self.data.column(ID), numbers, pa.repeat(False, len(self)), *map(self.data.column, self.table.key)]
        newest = NewestRows()
        newest.add(pa.RecordBatch.from_arrays(columns, [str(place) for place in range(len(columns))]))
        if len(newest) == len(self):
            return self
        return ChangeBatch(self.table, self.data.take(pa.record_batch(newest.rows(with_deletes=True)).column(0)))

    def _keys_grow(self) -> bool:
        """Whether each key is larger than the one before, as in a load or where a source numbers new rows: then none is there twice."""
        if len(self.table.key) != 1:
            return False
        keys = self.data.column(self.table.key[0])
        return pc.all(pc.less(keys[:-1], keys[1:]), skip_nulls=False).as_py() is True


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a source, and its place there (``binlog.000003:4711``); empty where they are not known."""

    sql: str = ""
    place: str = ""

    def __str__(self) -> str:
        return f"{self.place or 'place not known'}: {self.sql or 'statement not known'}"

    def header(self) -> dict[str, str]:
        return {"sql": self.sql[:_SQL_LENGTH], "at": self.place}

    @classmethod
    def of(cls, header: dict[str, Any]) -> Statement:
        return cls(header.get("sql", ""), header.get("at", ""))


class Cause(StrEnum):
    """Why the rows of a table are gone at the source."""

    TRUNCATED = "truncated"
    DROPPED = "dropped"
    RENAMED = "renamed"
    """The table has another name now."""
    CREATED = "created"
    """A new table has the name: what an earlier one of that name had is not in it."""
    RELOADED = "reloaded"
    """The table was loaded again, and these rows were not there."""


@dataclass(frozen=True, slots=True)
class Clear:
    """The rows of all changes of the table with a smaller `_ums_id_` are gone at the source, without row events.

    `commit_ts_us` is the statement's commit time in microseconds since 1970 UTC.
    """

    table: TableSchema
    id: int
    commit_ts_us: int
    cause: Cause = Cause.TRUNCATED
    statement: Statement = Statement()

    def __len__(self) -> int:
        return 1

    def key(self) -> bytes:
        """The key of this clear's log entry: that of its table, so that whoever follows the table meets it."""
        return str(self.table.namespace).encode()

    def header(self) -> dict[str, Any]:
        """The header of this clear's block, as drawn above."""
        return {
            "kind": "clear",
            "namespace": str(self.table.namespace),
            "id": self.id,
            "commit_ts": self.commit_ts_us,
            "cause": self.cause,
            **self.statement.header(),
        }

    def to_block(self) -> bytes:
        """This clear as a block, as drawn above."""
        return _prefix(self.header()) + self.table.arrow_schema().serialize().to_pybytes()


@dataclass(frozen=True, slots=True)
class End:
    """No more changes of a table version: those behind are of `successor`."""

    table: TableSchema
    successor: TableSchema
    id: int
    commit_ts_us: int
    statement: Statement = Statement()

    def __len__(self) -> int:
        return 0

    def key(self) -> bytes:
        """The key of this end's log entry: that of the version that ends."""
        return str(self.table.namespace).encode()

    def header(self) -> dict[str, Any]:
        """The header of this end's block, as drawn above."""
        return {
            "kind": "end",
            "namespace": str(self.table.namespace),
            "next": str(self.successor.namespace),
            "id": self.id,
            "commit_ts": self.commit_ts_us,
            "compatible": self.table.fits(self.successor),
            **self.statement.header(),
        }

    def to_block(self) -> bytes:
        """This end as a block, as drawn above."""
        schemas = [table.arrow_schema().serialize().to_pybytes() for table in (self.table, self.successor)]
        return _prefix(self.header()) + b"".join(schemas)


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

    def header(self) -> dict[str, Any]:
        """The header of this mark's block, as drawn above."""
        return {
            "kind": "mark",
            "source": self.source,
            "position": self.position,
            "id": self.id,
            "commit_ts": self.commit_ts_us,
        }

    def to_block(self) -> bytes:
        """This mark as a block, as drawn above."""
        return _prefix(self.header())


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life that has come the way of changes.

    `table`: on whose path; None for the source as a whole. `sent_us`: when it was sent, by the clock of who sent it, microseconds
    since 1970 UTC. `id`: all changes that it proves to be there have smaller ids, or this one.
    """

    source: str
    table: Namespace | None
    id: int
    sent_us: int

    @property
    def path(self) -> str:
        """What it proves to work: a table (its namespace without version), or a source by its name."""
        return self.source if self.table is None else self.table.all_versions

    def header(self) -> dict[str, Any]:
        """The header of this heartbeat's block, as drawn above."""
        return {
            "kind": "heartbeat",
            "source": self.source,
            "namespace": None if self.table is None else str(self.table),
            "id": self.id,
            "sent": self.sent_us,
        }

    def to_block(self) -> bytes:
        """This heartbeat as a block, as drawn above."""
        return _prefix(self.header())


def read_header(block: bytes | memoryview) -> dict[str, Any]:
    """The header of a block without opening its body; CorruptError when the bytes are not a block."""
    header, _ = _split(block)
    return header


def read_block(block: bytes | memoryview) -> ChangeBatch | Clear | End | Mark | Heartbeat:
    """What a block holds; CorruptError when the bytes are not a block."""
    header, body_at = _split(block)
    if header["kind"] == "mark":
        return Mark(header["source"], header["position"], header["id"], header["commit_ts"])
    if header["kind"] == "heartbeat":
        table = None if header["namespace"] is None else Namespace.parse(header["namespace"])
        return Heartbeat(header["source"], table, header["id"], header["sent"])
    body = pa.py_buffer(block)[body_at:]
    try:
        if header["kind"] == "clear":
            cleared = TableSchema.from_arrow(pa.ipc.read_schema(body))
            return Clear(cleared, header["id"], header["commit_ts"], Cause(header["cause"]), Statement.of(header))
        if header["kind"] == "end":
            reader = pa.BufferReader(body)
            messages = [pa.ipc.read_message(reader) for _ in range(2)]
            ended, successor = (TableSchema.from_arrow(pa.ipc.read_schema(message)) for message in messages)
            return End(ended, successor, header["id"], header["commit_ts"], Statement.of(header))
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
