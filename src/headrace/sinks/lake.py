"""The lake as a sink: every change kept in Parquet, visible and remembered with the flow's position in one commit.

`write` gathers in memory; what grows beyond GATHERED_BYTES per table, or GATHERED_TOTAL_BYTES in all, is written out as row groups
of files that are not visible yet, so a backlog of any size takes bounded memory. `commit` completes the files of all tables and
commits them together (lake/commit.py, with the crash story). Who reads the lake as of a moment sees each change once, by `_ums_id_`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import combinations, count
from typing import ClassVar, Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from headrace.crash import crash_point
from headrace.errors import DataError, Finding
from headrace.lake.asof import live_rows
from headrace.lake.commit import Manifest
from headrace.lake.derived.spec import Derive
from headrace.lake.layout import LakeFile, check_path, remove_orphans
from headrace.lake.parquet import FileWriter, check_types
from headrace.lake.policy import Policy
from headrace.lake.records import LakeClear, Reached, Stream
from headrace.lake.windows import Windows
from headrace.model import Component, Duration
from headrace.sinks.base import Capabilities, Position, Sink, refused
from headrace.storage.base import FileTree
from headrace.storage.location import Location, are_apart, scheme_of, tree_at
from headrace.storage.options import StoreOptions
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import ID, Namespace, TableSchema

GATHERED_BYTES = 16 << 20
GATHERED_TOTAL_BYTES = 256 << 20
IDLE_COMMIT_S = 60.0
IDLE_COMMIT_ENTRIES = 10_000
"""Without rows a position is committed only when it has moved this far or this long ago: what a restart would read again."""
_FINISHERS = 8
"""Threads that complete files; most of their time is fsync and native code without the interpreter's lock."""


class LakeConfig(Component, StoreOptions):
    """A lake: a directory of Parquet files with every change of every table, on this machine, on HDFS or in a bucket of S3."""

    type: Literal["lake"]
    path: Location
    """The lake's directory, ``hdfs://namenode:8020/lake`` or ``s3://bucket/lake``; created when missing. Several flows may share one."""
    commit_interval: Duration = Field(default=1.0, gt=0)
    """Seconds between commits: shorter is fresher, longer makes fewer and larger files."""
    compression_level: int = Field(default=1, ge=1, le=22)
    """zstd level of the Parquet files; 1 is by far the fastest, higher levels save little."""
    care: Policy | None = Policy()
    """What `headrace run` does about small files, states and history; nothing when null."""
    derive: tuple[Derive, ...] = ()
    """Tables for those who read tables, kept up while the flow runs: ``[{current: delta, path: ./current}]`` (docs/how-to/lake.md)."""
    windows: Windows | None = None
    """Windows of event time that close with a certificate: ``1h``, or a mapping; none when left out."""

    @model_validator(mode="after")
    def _derives_elsewhere(self) -> LakeConfig:
        for one, other in combinations([self.path, *(each.path for each in self.derive)], 2):
            if not are_apart(one, other):
                raise ValueError(f"the lake and each of `derive` need directories of their own, not {one} and {other}")
        return self

    @model_validator(mode="after")
    def _options_fit(self) -> LakeConfig:
        self.must_fit({scheme_of(path) for path in (self.path, *(each.path for each in self.derive))})
        return self

    @model_validator(mode="after")
    def _windows_are_closed_by_care(self) -> LakeConfig:
        if self.windows is not None and self.care is None:
            raise ValueError("windows are closed by the care of the lake: leave `care: null` out")
        return self

    def tree(self) -> FileTree:
        """The lake's files."""
        return tree_at(self.path, self.store_options())


class LakeSink(Sink):
    """Writes the changes of one flow into a lake."""

    Config = LakeConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=False, remembers_position=True, scans=True)

    def __init__(self, config: LakeConfig, flow: str, clock: Callable[[], float] = time.time) -> None:
        self.commit_interval_s = config.commit_interval
        self._config = config
        self._flow = flow
        self._clock = clock
        self._attempt = uuid4().hex
        self._names = count(1)
        self._tables: dict[Namespace, _Gathered] = {}
        self._cleared: list[LakeClear] = []
        self.gathered_bytes = 0
        self._opened: Manifest | None = None
        self._finishers: ThreadPoolExecutor | None = None
        self._idle_since: dict[Stream, float] = {}
        self._failure: BaseException | None = None

    def prepare(self, table: TableSchema) -> None:
        """Nothing to create: the first file makes the directory. ConfigError for a column type that the lake cannot keep."""
        check_types(table)
        check_path(table.namespace)

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        for table in tables:
            yield from refused(partial(check_types, table), partial(check_path, table.namespace))

    def position(self, topic: str, partition: int) -> Position | None:
        """Where this flow's last commit ended."""
        reached = self._manifest().reached.get(Stream(self._flow, topic, partition))
        return None if reached is None else Position(topic, partition, reached.offset, reached.id, reached.commit_ts_us)

    def write(self, batch: ChangeBatch) -> None:
        """Gathers changes; writes row groups of hidden files when they grow large."""
        if len(batch):
            with self._usable():
                self._gather(batch)

    def _gather(self, batch: ChangeBatch) -> None:
        gathered = self._tables.get(batch.table.namespace)
        if gathered is None:
            gathered = self._tables[batch.table.namespace] = _Gathered(batch.table, self._new_file)
        self.gathered_bytes += gathered.add(batch)
        if gathered.bytes > GATHERED_BYTES:
            self.gathered_bytes -= gathered.spill()
        elif self.gathered_bytes > GATHERED_TOTAL_BYTES:
            largest = max(self._tables.values(), key=lambda table: table.bytes)
            self.gathered_bytes -= largest.spill()

    def clear(self, clear: Clear) -> None:
        """Remembers the clear for the next commit; the files stay, what they hold is history."""
        self._cleared.append(LakeClear(str(clear.table.namespace), clear.id, clear.commit_ts_us, clear.cause))

    def commit(self, position: Position) -> None:
        """Makes all that was written visible, with the position, at once."""
        stream = Stream(self._flow, position.topic, position.partition)
        end = Reached(position.offset, position.id, position.commit_ts_us)
        with self._usable():
            manifest = self._manifest()
            if (
                not self._tables
                and not self._cleared
                and not self._worth_a_commit(manifest.reached.get(stream), stream, end)
            ):
                return
            added = self._finish_files()
            crash_point("lake.files_named")
            time = datetime.fromtimestamp(self._clock(), UTC).isoformat()
            manifest.commit(stream, end, added, time, self._cleared)
            self._cleared.clear()
            self._idle_since[stream] = self._clock()

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        """The live rows as of the newest commit, in the given version's columns."""
        return live_rows(Manifest.open_to_write(self._lake), table).batches

    def close(self) -> None:
        """Throws away what was not committed."""
        if self._finishers is not None:
            # First the threads: they may still be at files that are abandoned next.
            self._finishers.shutdown(cancel_futures=True)
            self._finishers = None
        for gathered in self._tables.values():
            gathered.abandon()
        self._tables.clear()
        self._cleared.clear()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """After any failure this sink is done for: what it had gathered may be gone, so a later commit would skip rows."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    @cached_property
    def _lake(self) -> FileTree:
        return self._config.tree()

    def _manifest(self) -> Manifest:
        """The commit log as this run has found it and moved it on; never refreshed otherwise, so that another run is noticed."""
        if self._opened is None:
            self._opened = Manifest.open_to_write(self._lake)
            remove_orphans(self._lake, lambda: Manifest.open(self._lake).known_paths())
        return self._opened

    def _worth_a_commit(self, last: Reached | None, stream: Stream, end: Reached) -> bool:
        if last is None or end.offset - last.offset >= IDLE_COMMIT_ENTRIES or end.offset < last.offset:
            return True
        idle_since = self._idle_since.setdefault(stream, self._clock())
        return end.offset > last.offset and self._clock() - idle_since >= IDLE_COMMIT_S

    def _finish_files(self) -> list[LakeFile]:
        """Completes all files, durably; they are named but no commit lists them yet."""
        finishers = self._finishers = self._finishers or ThreadPoolExecutor(_FINISHERS, "lake-finish")
        added = [file for files in finishers.map(_Gathered.finish, self._tables.values()) for file in files]
        directories = {file.path.rpartition("/")[0] for file in added}
        list(finishers.map(lambda directory: self._lake.sync([directory]), directories))
        self._tables.clear()
        self.gathered_bytes = 0
        return added

    def _new_file(self, table: TableSchema) -> FileWriter:
        name = f"{self._attempt}-{next(self._names):06d}.parquet"
        return FileWriter(self._lake, table, name, self._config.compression_level)


class _Gathered:
    """Changes of one table version since the last commit: in memory, and in files that are not visible yet."""

    def __init__(self, table: TableSchema, new_file: Callable[[TableSchema], FileWriter]) -> None:
        self.bytes = 0
        self._table = table
        self._new_file = new_file
        self._batches: list[pa.RecordBatch] = []
        self._writing: FileWriter | None = None
        self._finished: list[LakeFile] = []

    def add(self, batch: ChangeBatch) -> int:
        """Takes a batch; returns its size in bytes."""
        if batch.table is not self._table and not batch.table.same_shape(self._table):
            raise DataError(
                f"{batch.table.namespace} arrives with two different sets of columns",
                fix="report this: a change of columns must make a new version",
            )
        size_bytes = batch.data.nbytes
        self._batches.append(batch.data)
        self.bytes += size_bytes
        return size_bytes

    def spill(self) -> int:
        """Writes what is in memory as row groups; returns how many bytes of memory that frees."""
        freed_bytes, self.bytes = self.bytes, 0
        rows = _sorted_by_id(pa.Table.from_batches(self._batches))
        self._batches.clear()
        first_id = rows.column(ID)[0].as_py()
        if self._writing is not None and first_id < self._writing.last_id:
            # A full load runs beside the stream and its ids are lower: each file stays sorted.
            self._finished.append(self._writing.finish())
            self._writing = None
        if self._writing is None:
            self._writing = self._new_file(self._table)
        self._writing.append(rows)
        return freed_bytes

    def finish(self) -> list[LakeFile]:
        """Completes the files; all their bytes are durable on return, their names once the directory is."""
        if self._batches:
            self.spill()
        if self._writing is not None:
            self._finished.append(self._writing.finish())
            self._writing = None
        return self._finished

    def abandon(self) -> None:
        """Throws away what is not complete. Complete files stay as orphans."""
        if self._writing is not None:
            self._writing.abandon()


def _sorted_by_id(rows: pa.Table) -> pa.Table:
    ids = rows.column(ID)
    in_order = pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py()
    return rows if in_order is not False else rows.sort_by(ID)
