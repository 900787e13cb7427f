"""MySQL and MariaDB binary logs as typed changes: the thin Python face of the native decoder (rust/src/binlog).

::

    bytes of a file or connection -> BinlogReader.feed -> BinlogReader.take -> Decoded(items, boundary)

The decoder keeps no position: who feeds it knows where the bytes come from, and resumes at a boundary that `take` gave.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import pyarrow as pa

from headrace import _native
from headrace.errors import HeadraceError

CHUNK_BYTES = 8 << 20
_HEAD_BYTES = 4096
"""Enough for the format description with which a file begins."""

BEFORE = "_ums_before_"
BEFORE_RAW = "_ums_before_raw_"
OFFSET = "_ums_offset_"
ABSENT = "_ums_absent_"
"""Columns that come behind the system columns when before images are asked for: the row before the change, its side text, where
its event begins in the file, and (JSON) the columns that a minimal row image left out: {"before": [names], "after": [names]}."""


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column as the log describes it. `source_type` is the server's name for its type (``bigint unsigned``)."""

    name: str
    source_type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One version of a table. `named` is False when the log has no names: columns are ``@1``, ``@2``, … and there is no key."""

    schema: str
    table: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[str, ...]
    named: bool

    @classmethod
    def parse(cls, described: str) -> TableInfo:
        description = json.loads(described)
        columns = tuple(ColumnInfo(c["name"], c["source_type"], c["nullable"]) for c in description["columns"])
        key = tuple(description["key"])
        return cls(description["schema"], description["table"], columns, key, description["named"])


@dataclass(frozen=True)
class Rows:
    """Changes of one table version in log order; `index` stands for that version as long as its reader lives."""

    index: int
    table: TableInfo
    native: _native.RowBatch

    def __len__(self) -> int:
        return len(self.native)

    @cached_property
    def data(self) -> pa.RecordBatch:
        return self.native.batch


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement that changes what tables are, with the schema it was run in. `id` is its place in the order of changes."""

    schema: str
    sql: str
    file: str
    offset: int
    id: int
    ts_us: int
    started_us: int
    """When the statement began at the server: what CURRENT_TIMESTAMP is in it."""
    time_zone: str | None
    """The session's, where the log has it: the server writes it when the statement's effect depends on it."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A position between two transactions, at which decoding can begin again; every change before it has a smaller id."""

    file: str
    offset: int
    gtid: str
    id: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """What was decoded since the last time. Without a boundary it ends within a transaction, or nothing is new."""

    items: tuple[Rows | Ddl, ...]
    boundary: Boundary | None


class BinlogReader:
    """The native decoder with typed results. `include` holds patterns ``schema.table`` with ``*`` and ``?``.

    `columns` names the columns to decode of tables like a pattern; several patterns that fit add up. The key is always decoded,
    other columns are stepped over, and tables without a pattern have all of theirs. `feed` raises SourceError at a table that
    lacks a column asked for.
    """

    def __init__(
        self,
        include: Sequence[str],
        *,
        columns: Mapping[str, Sequence[str]] | None = None,
        before_images: bool = False,
        network: bool = False,
    ) -> None:
        named = list((columns or {}).items())
        self._decoder = _native.BinlogDecoder(
            include=include, columns=named, before_images=before_images, network=network
        )
        self._tables: dict[int, TableInfo] = {}

    def start(self, file: str, offset: int = 0, *, commit_ts_us: int = 0, head: bytes = b"") -> None:
        """Begins in a log file; in the middle of a recorded one its first bytes are needed too (`head`).

        What was not taken is forgotten: it comes again, with the same ids, from the boundary before it.
        """
        self._decoder.start(file, offset, commit_ts_us)
        if head:
            self._decoder.prime(head)

    def feed(self, data: bytes | bytearray | memoryview, *, rows: int = 1 << 20, size_bytes: int = 64 << 20) -> int:
        """Decodes whole events up to the first end of a transaction with that much pending; returns the bytes they had."""
        return self._decoder.feed(data, stop_after_rows=rows, stop_after_bytes=size_bytes)

    def take(self) -> Decoded:
        """Everything decoded since the last time."""
        batches = self._decoder.take()
        boundary = batches.boundary
        return Decoded(
            tuple(self._item(item) for item in batches.items),
            boundary and Boundary(boundary.file, boundary.offset, boundary.gtid, boundary.id, boundary.commit_ts_us),
        )

    def _item(self, item: _native.RowBatch | _native.Ddl) -> Rows | Ddl:
        if isinstance(item, _native.Ddl):
            session = (item.started_us, item.time_zone)
            return Ddl(item.schema, item.sql, item.file, item.offset, item.id, item.ts_us, *session)
        table = self._tables.get(item.table)
        if table is None:
            table = self._tables[item.table] = TableInfo.parse(self._decoder.table(item.table))
        return Rows(item.table, table, item)

    def finish(self) -> None:
        """At the end of a file that is not written any more: CorruptError when it ends within an event or transaction."""
        self._decoder.finish()

    @property
    def pending_rows(self) -> int:
        return self._decoder.pending_rows

    @property
    def pending_bytes(self) -> int:
        return self._decoder.pending_bytes

    @property
    def at_boundary(self) -> bool:
        """No transaction is under way."""
        return self._decoder.at_boundary

    @property
    def incomplete_event_at(self) -> int | None:
        """Where the event begins that the last `feed` found cut."""
        return self._decoder.incomplete_event_at


def decode_file(
    reader: BinlogReader, file: BinaryIO, name: str, *, offset: int = 0, commit_ts_us: int = 0, rows: int = 1 << 16
) -> Iterator[Decoded]:
    """Decodes a recorded file from `offset` to the end that it has now, about `rows` rows at a time.

    An event cut at the end is left (`reader.incomplete_event_at`, and `reader.finish` makes it an error). When the file turns out
    to be damaged or not to be captured, what was decoded before is yielded first, then the error is raised.
    """
    file.seek(0)
    reader.start(name, offset, commit_ts_us=commit_ts_us, head=file.read(_HEAD_BYTES) if offset else b"")
    chunk_bytes = CHUNK_BYTES
    while True:
        file.seek(offset)
        data = memoryview(file.read(chunk_bytes))
        at_end = len(data) < chunk_bytes
        used = 0
        while True:
            try:
                taken = reader.feed(data[used:], rows=rows)
            except HeadraceError:
                yield reader.take()
                raise
            if reader.pending_rows or reader.at_boundary:
                yield reader.take()
            used += taken
            if taken == 0 or used == len(data):
                break
        offset += used
        if at_end:
            return
        # An event longer than the chunk needs a larger one.
        chunk_bytes = CHUNK_BYTES if used else chunk_bytes * 2
