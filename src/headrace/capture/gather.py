"""Bytes of a binlog into events: the decoder gathers rows per table version until a transaction boundary, the schema history gives
each table its version at that position, and what statements do beyond row events becomes a change or a notice.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from headrace.capture.base import Event
from headrace.capture.ddl import Ddl as Statement
from headrace.capture.definitions import Definer
from headrace.capture.history import History, Notice, NoticeKind
from headrace.capture.position import FILE_START, BinlogPosition
from headrace.codec.binlog import BinlogReader, Boundary, Ddl, Rows, TableInfo
from headrace.errors import SourceError
from headrace.ums.change import ChangeBatch, Clear, Mark
from headrace.ums.schema import ID, SYSTEM_FIELDS, Column, Namespace, TableSchema

_GATHER_ROWS = 50_000
_GATHER_BYTES = 16 << 20


class Gatherer:
    """Feeds the decoder and turns what it has gathered into events."""

    def __init__(
        self,
        source: str,
        reader: BinlogReader,
        history: History,
        *,
        start: Mark | None,
        not_before: datetime | None,
    ) -> None:
        """`not_before`: transactions before the first that was committed then or later are passed over."""
        self._source = source
        self._reader = reader
        self._history = history
        self._mark = start
        self._not_before_us = 0 if not_before is None else round(not_before.timestamp() * 1_000_000)
        self._in_transaction = False
        """A part of an unfinished transaction was handed out: the mark does not fit what is in the log now."""
        self._described: dict[int, TableSchema] = {}
        self.definitions = history.definitions
        """What tables are at a position, for logs that do not say it."""
        self._definer = Definer(reader, history.definitions)
        self._gathered: list[ChangeBatch | Clear] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._boundary: Boundary | None = None
        self._notices: list[str] = []

    def go_to(self, position: BinlogPosition, head: bytes = b"") -> None:
        """Decodes from `position` on; of a recorded file `head` is the beginning, needed in its middle."""
        if self._mark is None:
            self._mark = Mark(self._source, position.to_json(), position.id, 0)
        commit_ts_us = self._mark.commit_ts_us
        self._reader.start(
            position.file,
            position.offset,
            expanded=position.expanded,
            gtids=position.gtids,
            renumbered=position.renumbered,
            commit_ts_us=commit_ts_us,
            skip_until_us=None if commit_ts_us >= self._not_before_us else self._not_before_us,
            head=head if position.offset > FILE_START else b"",
        )
        self._position = position
        self._in_transaction = False
        self._forget()
        self._definer.at(position.id)

    def position_in(self, file: str) -> BinlogPosition:
        """Behind the newest whole transaction that was handed out of a file; the file's beginning when there was none."""
        assert self._mark is not None, "go somewhere first"
        handed_out = BinlogPosition.of(self._mark)
        return handed_out if handed_out.file == file else replace(handed_out, file=file, offset=FILE_START, expanded=0)

    def feed(self, data: memoryview, *, one_transaction: bool = False) -> int:
        """Decodes `data` up to its last whole event, or to a transaction's end at which much (or one) has been gathered."""
        rows, size_bytes = (1, 1) if one_transaction else (_GATHER_ROWS, _GATHER_BYTES)
        used = 0
        while True:
            with data[used:] as rest:
                used += self._reader.feed(rest, rows=rows, size_bytes=size_bytes, stop_at_ddl=True)
            if not self._reader.behind_ddl:
                return used
            # What comes behind a statement is of tables as they are after it.
            self._gather()
            if one_transaction or self.is_full:
                return used

    def finish(self) -> None:
        """The file is followed by another: CorruptError when it ends within an event or transaction."""
        self._reader.finish()

    @property
    def is_full(self) -> bool:
        return (
            self._gathered_rows + self._reader.pending_rows >= _GATHER_ROWS
            or self._gathered_bytes + self._reader.pending_bytes >= _GATHER_BYTES
        )

    @property
    def in_payload(self) -> bool:
        """The bytes of a compressed transaction have been fed, and not all of it decoded: it goes on without more."""
        return self._reader.in_payload

    @property
    def is_whole(self) -> bool:
        """Nothing of an unfinished transaction has been gathered."""
        return self._reader.at_boundary

    @property
    def has_whole_transactions(self) -> bool:
        return self._gathered_rows + self._reader.pending_rows > 0 and self.is_whole

    def event(self, *, caught_up: bool = False) -> Event:
        """What has been gathered. Its mark is the newest whole transaction; none when an unfinished one was taken."""
        self._gather()
        self._history.save()
        changes, notices, boundary = self._gathered, tuple(self._notices), self._boundary
        self._forget()
        if boundary is not None:
            position = replace(
                self._position,
                file=boundary.file,
                offset=boundary.offset,
                expanded=boundary.expanded,
                gtids=boundary.gtids,
            )
            self._mark = Mark(self._source, position.to_json(), boundary.id, boundary.commit_ts_us)
            self._in_transaction = False
        elif changes:
            self._in_transaction = True
        return Event(changes, None if self._in_transaction else self._mark, caught_up, notices)

    def _forget(self) -> None:
        """Nothing is gathered."""
        self._gathered, self._notices, self._boundary = [], [], None
        self._gathered_rows = self._gathered_bytes = 0

    def _gather(self) -> None:
        """Takes what the decoder has. The newest boundary is the one of all, unless rows of an unfinished transaction are behind it."""
        self._gathered_rows += self._reader.pending_rows
        self._gathered_bytes += self._reader.pending_bytes
        decoded = self._reader.take()
        for item in decoded.items:
            if isinstance(item, Rows):
                self._gathered.append(self._batch(item))
                continue
            statement = Statement.of(item)
            for notice in self._history.statement(statement):
                self._gathered += self._clear(notice)
                self._notices += _spoken(notice, item)
            self._definer.behind_statement(statement.id)
        if decoded.boundary is not None or decoded.items:
            self._boundary = decoded.boundary

    def _batch(self, rows: Rows) -> ChangeBatch:
        described = self._described.get(rows.index)
        if described is None:
            described = self._described[rows.index] = described_table(self._source, rows.table, rows.data.schema)
        table = self._history.table(described, rows.data.column(ID)[0].as_py())
        return ChangeBatch(table, pa.RecordBatch.from_arrays(rows.data.columns, schema=table.arrow_schema()))

    def _clear(self, notice: Notice) -> list[Clear]:
        """TRUNCATE TABLE as a change of its own: the log of the source has no rows for it."""
        table = self._history.at(notice.schema, notice.table, notice.ddl.id)
        if notice.kind is not NoticeKind.TRUNCATED or table is None:
            return []
        return [Clear(table, notice.ddl.id, notice.ddl.ts_us)]


def described_table(source: str, info: TableInfo, schema: pa.Schema) -> TableSchema:
    """A table as the log describes it; the history gives it its version."""
    reserved = {field.name for field in SYSTEM_FIELDS} & {column.name for column in info.columns}
    if reserved:
        raise SourceError(
            f"{info.schema}.{info.table} has a column {min(reserved)}, a name that headrace needs",
            fix="name the tables in `tables` so that this one is not among them, or rename the column at the source",
        )
    columns = tuple(
        Column(column.name, schema.field(column.name).type, column.source_type, column.nullable)
        for column in info.columns
    )
    return TableSchema(Namespace("mysql", source, info.schema, info.table), columns, info.key)


_NOTICES = {
    NoticeKind.DROPPED: "was dropped; its rows stay in the targets",
    NoticeKind.RENAMED: "was renamed; targets keep its rows under the old name, and get only changes under the new one",
    NoticeKind.ROWS_REPLACED: "had partitions or tablespaces replaced; targets still have the rows that went with them",
    NoticeKind.COLUMN_RENAMED: "had a column renamed; rows that do not change any more keep its values under the old name",
    NoticeKind.COLUMN_REPLACED: "had a column dropped and added again; rows that do not change any more keep the old values",
    NoticeKind.COLUMN_FILLED: "got a column whose values in old rows only the source knows; targets have NULL in them",
    NoticeKind.NOT_READ: "is named in a statement that headrace cannot read; compare source and targets",
}


def _spoken(notice: Notice, statement: Ddl) -> list[str]:
    """What a person must know of a statement whose effect on old rows is not in the log."""
    if notice.kind not in _NOTICES:
        return []
    column = f", column {notice.column}" if notice.column else ""
    where = f"{statement.file}:{statement.offset}"
    return [f"{notice.schema}.{notice.table}{column} {_NOTICES[notice.kind]} ({where}: {statement.sql[:120]})"]
