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
from typing import BinaryIO, Protocol

import pyarrow as pa

from headrace import _native
from headrace.errors import HeadraceError

GtidSet = _native.GtidSet
"""A set of transactions: ``GtidSet(text)`` of what servers write (CorruptError when it is none), ``str`` for its
normal form, ``|`` union, ``-`` difference, ``<=`` subset; ``to_wire()`` for COM_BINLOG_DUMP_GTID."""

CHUNK_BYTES = 1 << 20
"""Large enough for few calls, small enough that the bytes stay in the processor's caches from reading to decoding."""
HEAD_BYTES = 4096
"""More than enough for the format description event, which stands first in every file."""
_BEGINNING_OF_TIME_US = -(2**63)

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
    """One version of a table. `named` is False when neither log nor definition has names: columns are ``@1``, ``@2``, … and there is no key."""

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


@dataclass(frozen=True, slots=True)
class DefinedColumn:
    """A column as DDL, a server or a dump defines it: what the log of a table without full metadata leaves out.

    `kind`: the type's name in lower case without synonyms, arguments and sign (rust/src/binlog/definition.rs has them all);
    `charset`: the name of a character column's character set, None when it is not known; `labels`: of ENUM and SET.
    """

    name: str
    kind: str
    unsigned: bool
    charset: str | None
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's columns in their order, and the columns of its primary key and of other unique keys, by rank."""

    columns: tuple[DefinedColumn, ...]
    keys: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Rows:
    """Changes of one table version in log order; `index` stands for that version as long as its reader lives."""

    index: int
    table: TableInfo
    native: _native.RowBatch | FileBatch

    def __len__(self) -> int:
        return len(self.native)

    @property
    def file(self) -> str:
        """The log file that they are in."""
        return self.native.file

    @cached_property
    def data(self) -> pa.RecordBatch:
        return self.native.batch


@dataclass(frozen=True, slots=True)
class FileBatch:
    """What was made of the rows of a log file."""

    file: str
    batch: pa.RecordBatch

    def __len__(self) -> int:
        return self.batch.num_rows


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
    server_charset: str | None
    """The name of the character set that a schema created without one gets."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A position between two transactions, at which decoding can begin again; every change before it has a smaller id."""

    file: str
    offset: int
    expanded: int
    """Bytes that decompression has added before the offset in this file; ids count them."""
    gtids: str
    """All transactions before it, as servers write sets of them; empty when they are not known or have no names."""
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
    With `names_required`, a table whose columns neither the log nor a definition names is a SourceError.
    """

    def __init__(
        self,
        include: Sequence[str],
        *,
        columns: Mapping[str, Sequence[str]] | None = None,
        before_images: bool = False,
        network: bool = False,
        names_required: bool = False,
    ) -> None:
        self._decoder = _native.BinlogDecoder(
            include=include,
            columns=list((columns or {}).items()),
            before_images=before_images,
            network=network,
            names_required=names_required,
        )
        self._tables: dict[int, TableInfo] = {}

    def start(
        self,
        file: str,
        offset: int = 0,
        *,
        expanded: int = 0,
        gtids: str = "",
        renumbered: int = 0,
        commit_ts_us: int = 0,
        skip_until_us: int | None = None,
        head: bytes = b"",
    ) -> None:
        """Begins in a log file; in the middle of a recorded one its first bytes are needed too (`head`).

        `expanded`, `gtids` and `commit_ts_us` are those of the boundary where decoding goes on (without `expanded`, ids are
        smaller than from the file's beginning); `renumbered` is added to the numbers of files in ids. Rows are passed over up to
        the first transaction that was committed at `skip_until_us` or later. What was not taken is forgotten: it comes again,
        with the same ids, from the boundary before it.
        """
        self._decoder.start(
            file,
            offset,
            expanded=expanded,
            gtids=gtids,
            renumbered=renumbered,
            commit_ts_us=commit_ts_us,
            skip_until_us=_BEGINNING_OF_TIME_US if skip_until_us is None else skip_until_us,
        )
        if head:
            self._decoder.prime(head)

    def define(self, schema: str, table: str, definition: Definition | None) -> None:
        """What a table is from where the reader stands on; None: it is not known any more.

        The log's own words go before; a definition that is not that of the table in the log is not used.
        """
        self._decoder.define(schema, table, definition)

    def feed(
        self,
        data: bytes | bytearray | memoryview,
        *,
        rows: int = 1 << 20,
        size_bytes: int = 64 << 20,
        stop_at_ddl: bool = False,
    ) -> int:
        """Decodes whole events up to the first end of a transaction with that much pending; returns the bytes they had.

        A transaction that would fill the memory is left in its middle, to be taken in parts. When that is within a compressed
        one, or within an event (`in_payload`), the next call goes on there before it looks at its data, which may be empty.
        With `stop_at_ddl` it ends behind every statement that changes what tables are (`behind_ddl`), so that they can be
        defined anew before their next rows.
        """
        return self._decoder.feed(data, stop_after_rows=rows, stop_after_bytes=size_bytes, stop_at_ddl=stop_at_ddl)

    def take(self) -> Decoded:
        """Everything decoded since the last time."""
        batches = self._decoder.take()
        boundary = batches.boundary
        return Decoded(
            tuple(self._item(item) for item in batches.items),
            boundary
            and Boundary(
                boundary.file,
                boundary.offset,
                boundary.expanded,
                boundary.gtids,
                boundary.id,
                boundary.commit_ts_us,
            ),
        )

    def _item(self, item: _native.RowBatch | _native.Ddl) -> Rows | Ddl:
        if isinstance(item, _native.Ddl):
            session = (item.started_us, item.time_zone, item.server_charset)
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
    def in_payload(self) -> bool:
        """The bytes of a compressed transaction or of a large event have been taken, and not all of its rows: `feed` goes on with them."""
        return self._decoder.in_payload

    @property
    def behind_ddl(self) -> bool:
        """The newest that was decoded and not taken is a statement."""
        return self._decoder.behind_ddl

    @property
    def incomplete_event_at(self) -> int | None:
        """Where the event begins that the last `feed` found cut."""
        return self._decoder.incomplete_event_at


class LogFile(Protocol):
    """A recorded file, opened for reading its bytes."""

    def seek(self, offset: int, /) -> int: ...
    def read(self, size: int, /) -> bytes | None: ...
    def readinto(self, buffer: bytearray, /) -> int | None: ...


def skim_file(file: BinaryIO, name: str, offset: int) -> tuple[int, int]:
    """Goes over the headers of a recorded file up to `offset`: where the last event ends that is whole by then, and how many bytes
    decompression adds before that place (`Boundary.expanded`). CorruptError when the headers are damaged.
    """
    skim = _native.BinlogSkim(name)
    at, chunk_bytes = 0, CHUNK_BYTES
    while at < offset:
        file.seek(at)
        data = file.read(min(chunk_bytes, offset - at))
        used = skim.feed(data)
        if used == 0 and len(data) < chunk_bytes:
            break
        # An event longer than the chunk needs a larger one.
        chunk_bytes = CHUNK_BYTES if used else chunk_bytes * 2
        at += used
    return at, skim.expanded


def decode_file(
    reader: BinlogReader,
    file: LogFile,
    name: str,
    *,
    offset: int = 0,
    expanded: int = 0,
    skip_until_us: int | None = None,
    rows: int = 1 << 16,
) -> Iterator[Decoded]:
    """Decodes a recorded file to the end that it has now, about `rows` rows at a time; `offset` and what follows as in `start`.

    Behind each DDL statement it yields, so that the caller can define tables anew. An event cut at the end is left
    (`reader.incomplete_event_at`, and `reader.finish` makes it an error). When the file turns out
    to be damaged or not to be captured, what was decoded before is yielded first, then the error is raised.
    """
    head = (file.read(HEAD_BYTES) or b"") if offset else b""
    reader.start(name, offset, expanded=expanded, skip_until_us=skip_until_us, head=head)
    buffer = bytearray(CHUNK_BYTES)
    while True:
        file.seek(offset)
        data = memoryview(buffer)[: file.readinto(buffer) or 0]
        at_end = len(data) < len(buffer)
        used = 0
        while True:
            try:
                taken = reader.feed(data[used:], rows=rows, stop_at_ddl=True)
            except HeadraceError:
                yield reader.take()
                raise
            if reader.pending_rows or reader.at_boundary or reader.behind_ddl:
                yield reader.take()
            used += taken
            if not reader.in_payload and (taken == 0 or used == len(data)):
                break
        offset += used
        if at_end:
            return
        # An event longer than the buffer needs a larger one.
        if used == 0:
            buffer = bytearray(2 * len(buffer))
        elif len(buffer) > CHUNK_BYTES:
            buffer = bytearray(CHUNK_BYTES)
