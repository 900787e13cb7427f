"""MySQL and MariaDB: changes from the binlog, of a live server (as a replica) or from recorded files.

Whatever the bytes come from, the rest is one way: the native decoder gathers rows per table version until a transaction
boundary, the schema history gives each table its version at that position, and an `Event` with its mark goes to the runner.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from headrace.capture.base import Event
from headrace.capture.binlog_files import MAGIC, BinlogFiles
from headrace.capture.ddl import Ddl as Statement
from headrace.capture.history import History, Notice, NoticeKind
from headrace.capture.replica import Address, BinlogPosition, Replica, default_server_id
from headrace.codec.binlog import BinlogReader, Ddl, Rows, TableInfo
from headrace.errors import ConfigError, SourceError
from headrace.model import LocalPath, SourceConfig
from headrace.ums.change import ChangeBatch, Clear, Mark
from headrace.ums.schema import ID, SYSTEM_FIELDS, Column, Namespace, TableSchema

_GATHER_ROWS = 50_000
_GATHER_BYTES = 16 << 20
_WAIT_S = 0.05
_HEARTBEAT_S = 1.0
_NOTHING = memoryview(b"")
_START = re.compile(r"(?P<file>[^:]+\.\d+):(?P<offset>\d+)")


def _start_position(value: object) -> object:
    if not isinstance(value, str) or value in ("earliest", "latest"):
        return value
    found = _START.fullmatch(value)
    if found is None:
        raise ValueError("write earliest, latest or FILE:OFFSET, for instance binlog.000003:4")
    return BinlogPosition(found["file"], int(found["offset"]))


class MySqlConfig(SourceConfig):
    """A MySQL or MariaDB source: a server (`host`, `user`, `password`) or recorded binlogs (`files`)."""

    type: Literal["mysql"]
    files: LocalPath | None = None
    """Pattern of recorded binlog files, for instance ``./binlogs/binlog.0000*``; instead of a server."""
    host: str | None = None
    """The server, best a standby (replica with log_replica_updates), so that the primary is not loaded."""
    port: Annotated[int, Field(ge=1, le=65535)] = 3306
    user: str | None = None
    """A user with REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR)."""
    password: SecretStr = SecretStr("")
    tables: Annotated[list[str], Field(min_length=1)]
    """Which tables, as ``schema.table`` patterns with ``*`` and ``?``."""
    start: Annotated[Literal["earliest", "latest"] | BinlogPosition, BeforeValidator(_start_position)] = "earliest"
    """Where the first run begins: earliest, latest or FILE:OFFSET. Later runs go on where the log ends.

    On a server whose log is compressed, ids after a start in the middle of a file are smaller, up to that file's end, than those
    of a capture that read it from its beginning: ordered and repeatable in themselves, but not to be mixed with the others.
    """
    server_id: Annotated[int, Field(ge=1, le=0xFFFF_FFFF)] | None = None
    """The id under which the server knows this replica; must be unique among its replicas. By default made from the name."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.files is None) == (self.host is None):
            raise ValueError("give either `host` (a live server) or `files` (recorded binlogs)")
        if self.host is not None and self.user is None:
            raise ValueError("`user` is missing")
        return self

    def captures(self, schema: str, table: str) -> bool:
        """Whether `tables` names a table."""
        return any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in self.tables)

    @field_validator("tables")
    @classmethod
    def _two_parts(cls, tables: list[str]) -> list[str]:
        for pattern in tables:
            if pattern.count(".") != 1:
                raise ValueError(f"write schema.table, not '{pattern}'")
        return tables


class MySqlSource:
    """A `Source` over the binlog. `state` is the directory in which schema versions are kept."""

    Config = MySqlConfig

    def __init__(self, config: MySqlConfig, state: Path) -> None:
        self._config = config
        self._schemas = state / "schemas.json"
        self._replica: Replica | None = None

    def tables(self) -> Sequence[TableSchema]:
        return self._history().tables()

    def follow(self, start: Mark | None) -> Iterator[Event]:
        if self._config.files is not None:
            return self._follow_files(self._config.files, start)
        return self._follow_server(start)

    def check(self) -> None:
        if self._config.files is not None:
            BinlogFiles(self._config.files).check()
            return
        try:
            replica = self._connect()
            replica.first_position()
            replica.last_position()
        finally:
            self.close()

    def confirm(self, mark: Mark) -> None:
        """A server keeps its binlog whoever has read it: nothing to do."""

    def close(self) -> None:
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    def _follow_files(self, pattern: Path, start: Mark | None) -> Iterator[Event]:
        files = BinlogFiles(pattern)
        position = _position_of(start) or self._first_in(files)
        gatherer = _Gatherer(self._config, self._history(), start, network=False)
        gatherer.go_to(position, files.head(position.file))
        while True:
            goes_on = gatherer.in_payload
            used = gatherer.feed(_NOTHING if goes_on else files.read(position))
            position = BinlogPosition(position.file, position.offset + used)
            if gatherer.is_full:
                yield gatherer.event()
            if used or goes_on:
                continue
            following = files.after(position.file)
            if following is not None:
                gatherer.finish()
                yield gatherer.event()
                position = BinlogPosition(following, len(MAGIC))
                gatherer.go_to(position)
            elif gatherer.is_whole:
                yield gatherer.event(caught_up=True)
                time.sleep(_WAIT_S)
            else:
                size_bytes = files.size_bytes(position.file)
                yield from self._up_to_the_cut(files, gatherer, position.file)
                position = gatherer.position_in(position.file)
                while files.size_bytes(position.file) == size_bytes and files.after(position.file) is None:
                    time.sleep(_WAIT_S)
                    yield gatherer.event(caught_up=True)

    def _up_to_the_cut(self, files: BinlogFiles, gatherer: _Gatherer, file: str) -> Iterator[Event]:
        """The newest file ends within a transaction, as it does while it is written or when its copy is cut off.

        What was gathered mixes whole transactions with the unfinished one, so it is read again from the last mark, one
        transaction at a time; what is unfinished stays in the file.
        """
        head = files.head(file)
        position = gatherer.position_in(file)
        gatherer.go_to(position, head)
        while True:
            goes_on = gatherer.in_payload
            used = gatherer.feed(_NOTHING if goes_on else files.read(position), one_transaction=True)
            if not used and not goes_on:
                break
            position = BinlogPosition(file, position.offset + used)
            if gatherer.is_whole or gatherer.is_full:
                yield gatherer.event()
        position = gatherer.position_in(file)
        gatherer.go_to(position, head)
        told = (
            f"{file} ends in the middle of a transaction that begins at {position.offset}: it is captured when its rest is there"
            " (if the file is a copy, copy it again)"
        )
        yield replace(gatherer.event(caught_up=True), notices=(told,))

    def _follow_server(self, start: Mark | None) -> Iterator[Event]:
        replica = self._connect()
        goal = replica.last_position()
        position = _position_of(start) or self._first_of(replica)
        gatherer = _Gatherer(self._config, self._history(), start, network=True)
        gatherer.go_to(position)
        replica.start_dump(position)
        speak_at = time.monotonic()
        while True:
            replica.consumed(gatherer.feed(_NOTHING if gatherer.in_payload else replica.read(_WAIT_S)))
            now = time.monotonic()
            if gatherer.has_whole_transactions or gatherer.is_full or now >= speak_at:
                speak_at = now + _HEARTBEAT_S
                event = gatherer.event()
                yield replace(event, caught_up=event.mark is not None and _reached(event.mark, goal))

    def _history(self) -> History:
        return History.load(self._schemas, self._config.captures)

    def _connect(self) -> Replica:
        config = self._config
        assert config.host is not None
        assert config.user is not None
        server_id = config.server_id or default_server_id(config.name)
        address = Address(config.host, config.port, config.user, config.password.get_secret_value(), server_id)
        self.close()
        replica = self._replica = Replica(address)
        replica.connect()
        replica.check_settings()
        return replica

    def _first_in(self, files: BinlogFiles) -> BinlogPosition:
        first = self._first_of(files)
        counted = files.counted(first)
        if counted.offset != first.offset and self._config.start != "latest":
            raise ConfigError(
                f"`start: {first}` is within an event",
                fix=f"name a place where a transaction begins; the event before it begins at {counted.offset}",
            )
        return counted

    def _first_of(self, log: BinlogFiles | Replica) -> BinlogPosition:
        start, last = self._config.start, log.last_position()
        if start == "latest":
            return last
        first = log.first_position()
        if not isinstance(start, BinlogPosition):
            return first
        if not first.order <= start.order <= last.order:
            raise ConfigError(
                f"`start: {start}` is not in the source's log, which goes from {first} to {last}",
                fix="name a position in between, or earliest or latest",
            )
        return start


class _Gatherer:
    """Feeds the decoder and turns what it has gathered into events."""

    def __init__(self, config: MySqlConfig, history: History, start: Mark | None, *, network: bool) -> None:
        self._source = config.name
        self._reader = BinlogReader(config.tables, network=network)
        self._history = history
        self._mark = start
        self._in_transaction = False
        """A part of an unfinished transaction was handed out: the mark does not fit what is in the log now."""
        self._described: dict[int, TableSchema] = {}

    def go_to(self, position: BinlogPosition, head: bytes = b"") -> None:
        """Decodes from `position` on; of a recorded file `head` is the beginning, needed in its middle."""
        if self._mark is None:
            self._mark = Mark(self._source, _json(position), _id(position), 0)
        head = head if position.offset > len(MAGIC) else b""
        self._reader.start(
            position.file,
            position.offset,
            expanded=position.expanded,
            commit_ts_us=self._mark.commit_ts_us,
            head=head,
        )
        self._in_transaction = False

    def position_in(self, file: str) -> BinlogPosition:
        """Behind the newest whole transaction that was handed out of a file; the file's beginning when there was none."""
        handed_out = _position_of(self._mark)
        assert handed_out is not None, "go somewhere first"
        return handed_out if handed_out.file == file else BinlogPosition(file, len(MAGIC))

    def feed(self, data: memoryview, *, one_transaction: bool = False) -> int:
        """Decodes `data` up to its last whole event, or to a transaction's end at which much (or one) has been gathered."""
        rows, size_bytes = (1, 1) if one_transaction else (_GATHER_ROWS, _GATHER_BYTES)
        return self._reader.feed(data, rows=rows, size_bytes=size_bytes)

    def finish(self) -> None:
        """The file is followed by another: CorruptError when it ends within an event or transaction."""
        self._reader.finish()

    @property
    def is_full(self) -> bool:
        return self._reader.pending_rows >= _GATHER_ROWS or self._reader.pending_bytes >= _GATHER_BYTES

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
        return self._reader.pending_rows > 0 and self.is_whole

    def event(self, *, caught_up: bool = False) -> Event:
        """What has been gathered. Its mark is the newest whole transaction; none when an unfinished one was taken."""
        decoded = self._reader.take()
        changes: list[ChangeBatch | Clear] = []
        notices: list[str] = []
        for item in decoded.items:
            if isinstance(item, Rows):
                changes.append(self._batch(item))
                continue
            statement = Statement(item.schema, item.sql, item.id, item.ts_us, item.started_us, item.time_zone)
            for notice in self._history.statement(statement):
                changes += self._clear(notice)
                notices += _spoken(notice, item)
        self._history.save()
        boundary = decoded.boundary
        if boundary is not None:
            position = BinlogPosition(boundary.file, boundary.offset, boundary.expanded)
            self._mark = Mark(self._source, _json(position, boundary.gtid), boundary.id, boundary.commit_ts_us)
            self._in_transaction = False
        elif changes:
            self._in_transaction = True
        return Event(changes, None if self._in_transaction else self._mark, caught_up, tuple(notices))

    def _batch(self, rows: Rows) -> ChangeBatch:
        described = self._described.get(rows.index)
        if described is None:
            described = self._described[rows.index] = _described(self._source, rows.table, rows.data.schema)
        table = self._history.table(described, rows.data.column(ID)[0].as_py())
        return ChangeBatch(table, pa.RecordBatch.from_arrays(rows.data.columns, schema=table.arrow_schema()))

    def _clear(self, notice: Notice) -> list[Clear]:
        """TRUNCATE TABLE as a change of its own: the log of the source has no rows for it."""
        table = self._history.at(notice.schema, notice.table, notice.ddl.id)
        if notice.kind is not NoticeKind.TRUNCATED or table is None:
            return []
        return [Clear(table, notice.ddl.id, notice.ddl.ts_us)]


def _described(source: str, info: TableInfo, schema: pa.Schema) -> TableSchema:
    """A table as the log describes it; the history gives it its version."""
    if not info.named:
        raise SourceError(
            f"the binlog does not say the column names of {info.schema}.{info.table}",
            fix="SET GLOBAL binlog_row_metadata = 'FULL' at the source; what was written before cannot be captured yet",
        )
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


def _position_of(mark: Mark | None) -> BinlogPosition | None:
    if mark is None:
        return None
    position = mark.position
    return BinlogPosition(position["file"], position["offset"], position["expanded"])


def _json(position: BinlogPosition, gtid: str = "") -> dict[str, object]:
    return {"file": position.file, "offset": position.offset, "expanded": position.expanded, "gtid": gtid}


def _id(position: BinlogPosition) -> int:
    number, offset = position.order
    return number * 10**12 + offset + position.expanded


def _reached(mark: Mark, goal: BinlogPosition) -> bool:
    position = _position_of(mark)
    return position is not None and position.order >= goal.order
