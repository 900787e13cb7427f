"""HBase as a source: the changes in its write-ahead log, of tables by name.

::

    entries --changes.py--> rows    _ums_id_: 2 x (changes before it) + 2, the one before a row for the end of the version before
                            position: {"since": ms, "changes": how many, "written": newest write time, ms,
                                       "servers": {log of a server: newest write time of what was read of it, µs since 1970 UTC},
                                       "files": {name: offset behind what was taken, -1: over}, "seen": {log: {region: sequence}}}

`_ums_id_` counts changes as they come onto our log, where ids must grow whatever server a change comes from; what names a change
at HBase is the key of its row: region, sequence, cell (docs/decisions/0035-hbase-wal.md).

Crash story: changes and the position behind them are one unit on the log. What was read and not appended is read again from the newest
mark, behind the same entry of each file, under ids that may differ; what was appended is not. Versions of tables, which change with the flow
file only, are kept in `seen_tables.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field, ValidationInfo

from headrace.capture.base import Event, Progress
from headrace.capture.hbase.changes import KEY, RowChanges, by_region, columns_of, joined, row_changes
from headrace.capture.hbase.following import Following, Piece
from headrace.capture.hbase.mapping import Mappings, TableMapping, full_name, is_table
from headrace.capture.hbase.places import LocalFiles, WalStore, require_log
from headrace.capture.lines.fields import call, numbers
from headrace.capture.seen_tables import SeenTables
from headrace.errors import ConfigError, FatalError, Finding
from headrace.model import BASE, Duration, SourceConfig
from headrace.storage.hdfs import HdfsFileStore
from headrace.storage.options import HdfsOptions
from headrace.ums.change import INSERT, ChangeBatch, End, Mark, Statement
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, TableSchema

IDS_PER_CHANGE = 2
_HDFS = "hdfs://"
_WAIT_S = 0.05
_LOOK_S = 1.0
"""Between two looks at the directories."""
_INSTANT = pa.timestamp("us", "UTC")


def _resolved(root: str, info: ValidationInfo) -> str:
    if root.startswith(_HDFS):
        return root
    if "://" in root:
        raise ValueError(f"write a path on this machine or {_HDFS}namenode:8020/hbase, not {root}")
    return str(Path((info.context or {}).get(BASE, "")) / Path(root).expanduser())


def _named(tables: dict[str, TableMapping]) -> dict[str, TableMapping]:
    for name in tables:
        if not is_table(name):
            raise ValueError(f"write namespace:table, or a table of the default namespace, not '{name}'")
    return tables


class HBaseConfig(SourceConfig):
    """The write-ahead log of an HBase cluster, followed file by file."""

    type: Literal["hbase"] = "hbase"
    root: Annotated[str, AfterValidator(_resolved)]
    """HBase's root directory, or its ``hbase.wal.dir`` where that is set: ``hdfs://namenode:8020/hbase``, or a path on this machine."""
    hdfs: HdfsOptions = HdfsOptions()
    """How HDFS is reached."""
    tables: Annotated[dict[str, TableMapping], Field(min_length=1), AfterValidator(_named)]
    """The tables, ``namespace:table`` with ``*`` and ``?`` (of the default namespace also without it), and what their rows look like: ``{"shop:orders":
    {row: text, columns: {total: {cell: "d:total", type: long}}}}``."""
    start: Literal["earliest", "latest"] | datetime = "earliest"
    """Where to begin at the first start: with all that is in the log, with what comes, or with what was written at a time or later."""

    clock_skew: Annotated[Duration, Field(ge=0)] = 30.0
    """How far the servers' clocks may be from each other's and this machine's, and how late an entry may come to its file: what the source reports as
    complete (`watermark`) lies so long behind. HBase refuses servers that are more than 30 s off."""

    def open_store(self) -> WalStore:
        return open_store(self.root, self.hdfs)


def open_store(root: str, hdfs: HdfsOptions) -> WalStore:
    """The file system that a root is on. Nothing is asked before it is used."""
    return HdfsFileStore(root, hdfs) if root.startswith(_HDFS) else LocalFiles(Path(root))


def milliseconds(moment: datetime) -> int:
    """Since 1970; UTC when it names no zone."""
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


class HBaseSource:
    """A `Source` over the log of an HBase. `state` is the directory in which versions of tables are kept, `clock` gives seconds since 1970.
    `by_region`: each batch is of one region."""

    Config = HBaseConfig

    def __init__(
        self,
        config: HBaseConfig,
        state: Path,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        *,
        by_region: bool = False,
    ) -> None:
        self._config = config
        self._by_region = by_region
        self._clock = clock
        self._sleep = sleep
        self._path = state / "tables.json"

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        store = self._config.open_store()
        try:
            require_log(store)
            self._following(store, self._position(newest)).look()
        except (FatalError, ConfigError) as error:
            yield Finding.of(error)

    def tables(self) -> Sequence[TableSchema]:
        return self._load().tables()

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        yield from self.tables()

    def follow(self, start: Mark | None) -> Iterator[Event]:
        store = self._config.open_store()
        require_log(store)
        position, seen = self._position(start), self._load()
        seen.go_on_behind(start.id if start is not None else 0)
        following = self._following(store, position)
        reading = Reading(self._config, following, seen, position, by_region=self._by_region)
        looked_s = 0.0
        while True:
            now_s = self._clock()
            if following.needs_look or not 0 <= now_s - looked_s < _LOOK_S:
                following.look()
                looked_s = now_s
            event = reading.event(round(looked_s * 1000))
            seen.save()
            yield event
            if not event.changes:
                self._sleep(_WAIT_S)

    def skip(self, newest: Mark, to: str) -> Mark:
        position = newest.position
        if to == "earliest":
            following = self._following(self._config.open_store(), position, forgives=True)
            following.look()
            if not following.take_notices():
                raise ConfigError("there is nothing to skip: all files are there", fix="start the capture")
            position = position | following.to_json()
        else:
            position = position | {"since": self._since(to), "files": {}, "seen": {}}
        # One more than there were: the new mark's id is above the newest one's.
        changes = position["changes"] + 1
        return replace(newest, position=position | {"changes": changes}, id=changes * IDS_PER_CHANGE)

    def confirm(self, mark: Mark) -> None:
        """The files belong to HBase: nothing is removed there."""

    def close(self) -> None:
        """Nothing stays open between two reads."""

    def _since(self, start: object) -> int:
        if start == "earliest":
            return 0
        if start == "latest":
            return round(self._clock() * 1000)
        try:
            moment = start if isinstance(start, datetime) else datetime.fromisoformat(str(start))
        except ValueError as error:
            raise ConfigError(
                f"'{start}' is no place to go on at",
                fix="write earliest, latest, or a time such as 2026-01-31T12:00:00Z",
            ) from error
        return milliseconds(moment)

    def _position(self, mark: Mark | None) -> dict[str, Any]:
        if mark is not None:
            return mark.position
        since = self._since(self._config.start)
        return {"since": since, "changes": 0, "written": 0, "servers": {}, "files": {}, "seen": {}}

    def _following(self, store: WalStore, position: Mapping[str, Any], *, forgives: bool = False) -> Following:
        tables = [full_name(table) for table in self._config.tables]
        return Following(store, tables, position["since"], position, forgives=forgives, sleep=self._sleep)

    def _load(self) -> SeenTables:
        tables = SeenTables(self._path, self._config.type, self._config.name)
        tables.load()
        return tables


class Reading:
    """What is read of the log from a position on, as events."""

    def __init__(
        self,
        config: HBaseConfig,
        following: Following,
        seen: SeenTables,
        position: Mapping[str, Any],
        *,
        by_region: bool,
    ) -> None:
        self._config = config
        self._following = following
        self._seen = seen
        self._mappings = Mappings(config.tables)
        self._by_region = by_region
        self._since: int = position["since"]
        self._changes: int = position["changes"]
        self._written_ms: int = position["written"]
        self._servers: dict[str, int] = dict(position["servers"])

    def event(self, looked_ms: int) -> Event:
        """What the servers' logs have now, up to a size, and the mark behind it. `looked_ms`: when files were looked for."""
        found: dict[str, list[RowChanges]] = {}
        notices: list[str] = []
        for piece in self._following.take():
            notices += _blind_spots(piece)
            for some in row_changes(piece.batch, self._mappings, self._is_masked):
                found.setdefault(some.table, []).append(some)
            newest_ms = pc.max(piece.batch.entries["write_time"]).as_py()
            if newest_ms is not None:
                self._servers[piece.group] = max(self._servers.get(piece.group, 0), newest_ms * 1000)
        changes = [change for some in found.values() for change in self._changes_of(joined(some))]
        notices += self._following.take_notices()
        low_us = self._following.low_ms(looked_ms) * 1000 - round(self._config.clock_skew * 1_000_000)
        progress = Progress({self._config.name: low_us})
        return Event(changes, self.mark(), self._following.caught_up, tuple(notices), progress=progress)

    def mark(self) -> Mark:
        """Where the log has been read to."""
        position = {
            "since": self._since,
            "changes": self._changes,
            "written": self._written_ms,
            "servers": dict(self._servers),
            **self._following.to_json(),
        }
        return Mark(self._config.name, position, self._changes * IDS_PER_CHANGE, self._written_ms * 1000)

    def _is_masked(self, table: str, column: str) -> bool:
        namespace, _, name = full_name(table).partition(":")
        return self._config.is_masked(namespace, name, column)

    def _changes_of(self, found: RowChanges) -> Iterator[ChangeBatch | End]:
        namespace, _, name = full_name(found.table).partition(":")
        mapping = self._mappings.of(found.table)
        assert mapping is not None
        table = self._seen.version_with(namespace, name, columns_of(mapping), KEY)
        first_id, before_ms = (self._changes + 1) * IDS_PER_CHANGE, self._written_ms
        batch = self._batch(table, found.grouped() if self._by_region else found, first_id)
        ended = self._seen.ended_by(table, first_id)
        if ended is not None:
            yield End(ended, table, first_id - 1, before_ms * 1000, Statement(place="the flow file"))
        yield from by_region(batch) if self._by_region else (batch,)

    def _batch(self, table: TableSchema, found: RowChanges, first_id: int) -> ChangeBatch:
        commit_ms = pc.cumulative_max(found.written_ms, start=pa.scalar(self._written_ms, pa.int64()))
        system = {
            ID: call("add", call("multiply", numbers(len(found)), IDS_PER_CHANGE), first_id),
            TS: call("multiply", found.written_ms, 1000).view(_INSTANT),
            OP: pa.repeat(INSERT, len(found)),
            COMMIT_TS: call("multiply", commit_ms, 1000).view(_INSTANT),
            RAW: found.raw,
        }
        named = system | dict(found.columns)
        schema = table.arrow_schema()
        self._changes += len(found)
        self._written_ms = commit_ms[-1].as_py()
        return ChangeBatch(table, pa.RecordBatch.from_arrays([named[field.name] for field in schema], schema=schema))


def _blind_spots(piece: Piece) -> Iterator[str]:
    """What has changed tables without being in the log."""
    tables = piece.batch.entries["table"]
    for note in piece.batch.notes():
        if note.is_bulk_load:
            table = tables[note.entry].as_py().decode()
            at = datetime.fromtimestamp(piece.batch.entries["write_time"][note.entry].as_py() / 1000, UTC)
            yield f"files were loaded into {table} at {at:%Y-%m-%d %H:%M:%S} UTC: what is in them is not in the log"
