"""Bytes of a binlog into events: the decoder gathers rows per table version until a transaction boundary, the schema history gives
each table its version at that position, and what statements do beyond row events becomes a change or a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from headrace.capture.base import Event
from headrace.capture.befores import with_befores
from headrace.capture.ddl import Ddl as Statement
from headrace.capture.definitions import Definer, Name
from headrace.capture.heartbeat import written_heartbeats
from headrace.capture.history import History, Notice, NoticeKind
from headrace.capture.position import FILE_START, BinlogPosition
from headrace.capture.tokens import without_literals
from headrace.codec.binlog import BinlogReader, Boundary, Ddl, Rows, TableInfo
from headrace.errors import SourceError
from headrace.ums.change import Cause, ChangeBatch, Clear, End, Heartbeat, Mark
from headrace.ums.change import Statement as Told
from headrace.ums.schema import COMMIT_TS, ID, SYSTEM_FIELDS, Column, Namespace, TableSchema

_GATHER_ROWS = 50_000
_GATHER_BYTES = 4 << 20
"""Enough for few appends; with more, memory is new to the processor all the time (docs/decisions/0021)."""
_WITHIN_ROWS = 1 << 16
_WITHIN_BYTES = 16 << 20
"""So much of one transaction is handed out before its end; the decoder stops there as well (rust/src/binlog/decoder.rs)."""


class Gatherer:
    """Feeds the decoder and turns what it has gathered into events."""

    def __init__(
        self,
        source: str,
        reader: BinlogReader,
        history: History,
        helped: Callable[[str, str], str],
        *,
        start: Mark | None,
        not_before: datetime | None,
        heartbeat_table: str | None = None,
        before_images: bool = False,
    ) -> None:
        """`helped` as in History: rows of helper tables are passed over. Rows of `heartbeat_table` (``schema.table``) become heartbeats.
        `before_images`: the reader gives them, and batches have them behind the table's own columns.

        `not_before`: transactions before the first that was committed then or later are passed over.
        """
        self._source = source
        self._reader = reader
        self._history = history
        self._helped = helped
        self._passed_over: set[tuple[str, str]] = set()
        self._mark = start
        self._not_before_us = 0 if not_before is None else round(not_before.timestamp() * 1_000_000)
        self._in_transaction = False
        """A part of an unfinished transaction was handed out: the mark does not fit what is in the log now."""
        self._described: dict[int, TableSchema] = {}
        self.definitions = history.definitions
        """What tables are at a position, for logs that do not say it."""
        self._definer = Definer(reader, history.definitions)
        self._gathered: list[ChangeBatch | Clear | End] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._boundary: Boundary | None = None
        self._notices: list[str] = []
        self._touched: set[Name] = set()
        self._heartbeat_table = heartbeat_table
        self._before_images = before_images
        self._heartbeats: list[Heartbeat] = []

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

    def tell(self, notices: Iterable[str]) -> None:
        """What a person must know goes with the next event."""
        self._notices += notices

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
    def is_too_large(self) -> bool:
        """What has been gathered cannot wait for the end of its transaction."""
        return (
            self._gathered_rows + self._reader.pending_rows >= _WITHIN_ROWS
            or self._gathered_bytes + self._reader.pending_bytes >= _WITHIN_BYTES
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
        heartbeats = tuple(self._heartbeats)
        self._forget()
        if boundary is not None:
            position = replace(
                self._position,
                file=boundary.file,
                offset=boundary.offset,
                expanded=boundary.expanded,
                gtids=boundary.gtids,
                behind_gap=False,
            )
            self._mark = Mark(self._source, position.to_json(), boundary.id, boundary.commit_ts_us)
            self._in_transaction = False
        elif changes:
            self._in_transaction = True
        return Event(changes, None if self._in_transaction else self._mark, caught_up, notices, heartbeats)

    def take_touched(self) -> set[Name]:
        """The tables that statements have touched since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def _forget(self) -> None:
        """Nothing is gathered."""
        self._gathered, self._notices, self._heartbeats, self._boundary = [], [], [], None
        self._gathered_rows = self._gathered_bytes = 0

    def _gather(self) -> None:
        """Takes what the decoder has. The newest boundary is the one of all, unless rows of an unfinished transaction are behind it."""
        self._gathered_rows += self._reader.pending_rows
        self._gathered_bytes += self._reader.pending_bytes
        decoded = self._reader.take()
        for item in decoded.items:
            if isinstance(item, Rows):
                if f"{item.table.schema}.{item.table.table}" == self._heartbeat_table:
                    self._heartbeats += self._beaten(item)
                elif self._helped(item.table.schema, item.table.table):
                    self._pass_over(item.table)
                else:
                    self._gathered += self._batch(item)
                continue
            statement = Statement.of(item)
            clears: dict[str, Clear] = {}
            for notice in self._history.statement(statement):
                # A statement that takes a table away and puts another in its place clears once: the table is a new one.
                clears |= {clear.table.namespace.all_versions: clear for clear in self._clear(notice)}
                self._notices += _spoken(notice, item)
            self._gathered += clears.values()
            self._definer.behind_statement(statement.id)
            self._touched.update(self.definitions.touched)
        if decoded.boundary is not None or decoded.items:
            self._boundary = decoded.boundary

    def _pass_over(self, helper: TableInfo) -> None:
        name = (helper.schema, helper.table)
        if name not in self._passed_over:
            self._passed_over.add(name)
            self._notices.append(
                f"{helper.schema}.{helper.table} is not captured: it looks like the helper table of an online ALTER of"
                f" {self._helped(*name)} (if it is a table of its own, name it in `tables` in full)"
            )

    def _batch(self, rows: Rows) -> list[ChangeBatch | End]:
        """The rows; before them the end of the version before theirs, when theirs starts with them."""
        described = self._described.get(rows.index)
        if described is None:
            described = self._described[rows.index] = described_table(self._source, rows.table, rows.data.schema)
        first_id = rows.data.column(ID)[0].as_py()
        table = self._history.table(described, first_id)
        batch = change_batch(self._as_logged(table), rows.data)
        ended = self._history.ended_by(table, first_id)
        if ended is None:
            return [batch]
        commit_ts_us = rows.data.column(COMMIT_TS).view(pa.int64())[0].as_py()
        return [End(self._as_logged(ended[0]), batch.table, first_id - 1, commit_ts_us, ended[1]), batch]

    def _as_logged(self, table: TableSchema) -> TableSchema:
        return with_befores(table) if self._before_images else table

    def _beaten(self, rows: Rows) -> list[Heartbeat]:
        known = [table.namespace for table in self._history.tables()]
        return written_heartbeats(self._source, rows.data, {(name.schema, name.table): name for name in known})

    def _clear(self, notice: Notice) -> list[Clear]:
        """What ends a table's rows as a change of its own: the log of the source has no rows for it."""
        table = self._history.before(notice.schema, notice.table, notice.ddl.id)
        cause = CAUSES.get(notice.kind)
        if cause is Cause.RENAMED and self._helped(notice.new_schema, notice.new_name) == notice.table:
            return []  # an online ALTER in two steps: a table of the name follows
        if cause is None or table is None:
            return []
        statement = Told(without_literals(notice.ddl.sql), notice.ddl.place)
        return [Clear(self._as_logged(table), notice.ddl.id, notice.ddl.ts_us, cause, statement)]


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


def change_batch(table: TableSchema, decoded: pa.RecordBatch) -> ChangeBatch:
    """What the decoder made of rows of a table; of one `with_befores` it has before images."""
    schema = table.arrow_schema()
    return ChangeBatch(table, pa.RecordBatch.from_arrays([decoded[name] for name in schema.names], schema=schema))


CAUSES = {
    NoticeKind.CREATED: Cause.CREATED,
    NoticeKind.DROPPED: Cause.DROPPED,
    NoticeKind.RENAMED: Cause.RENAMED,
    NoticeKind.TRUNCATED: Cause.TRUNCATED,
}
"""Statements after which the rows of a table are gone."""
_NOTICES = {
    NoticeKind.DROPPED: "was dropped; `on_change` of a flow says what becomes of its rows (table_dropped)",
    NoticeKind.RENAMED: "was renamed; targets get only changes under the new name: load it there",
    NoticeKind.ROWS_REPLACED: "had partitions or tablespaces replaced; targets still have the rows that went with them",
    NoticeKind.COLUMN_FILLED: "got a column whose values in old rows only the source knows; targets have NULL in them",
    NoticeKind.NOT_READ: "is named in a statement that headrace cannot read; compare source and targets",
}


def _spoken(notice: Notice, statement: Ddl) -> list[str]:
    """What a person must know of a statement whose effect on old rows is not in the log."""
    if notice.kind not in _NOTICES:
        return []
    column = f", column {notice.column}" if notice.column else ""
    where = f"{statement.file}:{statement.offset}"
    return [
        f"{notice.schema}.{notice.table}{column} {_NOTICES[notice.kind]} ({where}: {without_literals(statement.sql)[:120]})"
    ]
