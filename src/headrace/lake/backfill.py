"""A range of a lake as it came: the changes of tables of one source in log order, with marks between transactions.

Each table version's files are merged as compaction merges them (rewrite.py), and the versions of all tables with each other in the same way: what
has been read of each reaches to its last id, so up to the least of these ids everything is there. That is a *step*. Clears of tables stand
between steps, at their ids. Only files and row groups whose ranges overlap the asked one are read.

Marks. All changes of a transaction have one commit time, and the next transaction may have the same; so changes of the newest commit time of
a step may go on in the next, and a mark is set before them. Rows of a full load are no transactions: many have one id, or a negative one.

Not told: what retention has left out, and ends of versions that no row follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.commit import Manifest
from headrace.lake.layout import LakeFile, parse_namespace
from headrace.lake.moment import Ranges
from headrace.lake.parquet import open_file, row_groups, row_groups_in, table_in
from headrace.lake.records import LakeClear, shard_of
from headrace.lake.replay import runs_of
from headrace.lake.rewrite import Head, merged
from headrace.lake.versions import schemas_of
from headrace.storage.base import FileTree
from headrace.ums.change import ChangeBatch, Clear, End, Mark
from headrace.ums.schema import COMMIT_TS, ID, Namespace, TableSchema

_BATCH_ROWS = 65_536
Change = ChangeBatch | Clear | End | Mark


@dataclass(frozen=True, slots=True)
class Range:
    """Changes from `low` on and before `high`, by id or by commit time in microseconds since 1970 UTC; None is no bound."""

    column: str
    """ID or COMMIT_TS."""
    low: int | None
    high: int | None

    def can_touch(self, rows: Ranges) -> bool:
        """Whether rows in these ranges can be in it."""
        first, last = self._of(rows)
        return (self.low is None or last >= self.low) and (self.high is None or first < self.high)

    def covers(self, rows: Ranges) -> bool:
        """Whether all rows in these ranges are in it."""
        return all(map(self.has, self._of(rows)))

    def has(self, value: int) -> bool:
        """Whether an id, or a commit time, is in it."""
        return (self.low is None or value >= self.low) and (self.high is None or value < self.high)

    def has_clear(self, clear: LakeClear) -> bool:
        """Whether a clear is in it."""
        return self.has(clear.id if self.column == ID else clear.commit_ts_us)

    def select(self, rows: pa.Table, *, inside: bool = True) -> pa.Table:
        """The rows in it, or those outside."""
        values = rows.column(self.column).cast(pa.int64())
        hit: Any = pc.is_valid(values)
        if self.low is not None:
            hit = pc.and_(hit, pc.greater_equal(values, pa.scalar(self.low, pa.int64())))
        if self.high is not None:
            hit = pc.and_(hit, pc.less(values, pa.scalar(self.high, pa.int64())))
        return rows.filter(hit if inside else pc.invert(hit))

    def _of(self, rows: Ranges) -> tuple[int, int]:
        return rows.id if self.column == ID else rows.commit_ts


def changes_in(manifest: Manifest, tables: Sequence[str], range_: Range) -> Iterator[Change]:
    """The changes of some tables (`Namespace.all_versions`, of one source, with files) in a range. Deterministic for a manifest.

    CorruptError for damaged files.
    """
    yield from _Replaying(manifest, tables, range_).changes()


class _Replaying:
    """One pass over the files; `_marked` is up to where what was yielded reaches."""

    def __init__(self, manifest: Manifest, tables: Sequence[str], range_: Range) -> None:
        self._lake = manifest.lake
        self._range = range_
        self._schemas: dict[Namespace, TableSchema] = {}
        self._files: dict[str, list[LakeFile]] = {}
        clears: list[Clear] = []
        for table in tables:
            files = manifest.tables[table]
            for file in filter(range_.can_touch, files):
                self._files.setdefault(file.namespace, []).append(file)
            cleared = list(filter(range_.has_clear, manifest.clears.get(table, [])))
            versions = schemas_of(self._lake, files) if cleared else {}
            clears += (
                Clear(_schema_at(versions, clear), clear.id, clear.commit_ts_us, clear.cause) for clear in cleared
            )
        self._clears = sorted(clears, key=lambda clear: clear.id)
        self._source = Namespace.parse(f"{tables[0]}.0.0.0").source
        self._newest: dict[tuple[str, tuple[str, str]], TableSchema] = {}
        self._marked: tuple[int, int] | None = None

    def changes(self) -> Iterator[Change]:
        heads = {name: Head(self._rows(files)) for name, files in self._files.items()}
        clears = list(self._clears)
        while heads := {name: head for name, head in heads.items() if head.reads_on()}:
            bound = min(head.last_id for head in heads.values())
            clear = clears.pop(0) if clears and clears[0].id <= bound else None
            bound = clear.id if clear else bound
            taken = {name: head.take(bound) for name, head in heads.items()}
            yield from self._step(
                {name: rows for name, rows in taken.items() if rows.num_rows}, whole=clear is not None
            )
            if clear:
                yield from self._cleared(clear)
        for clear in clears:
            yield from self._cleared(clear)
        yield from self._mark()

    def _rows(self, files: Sequence[LakeFile]) -> Iterator[pa.Table]:
        """The rows in the range of files of one table version, by id."""
        for run in runs_of(sorted(files, key=lambda file: file.id)):
            yield from merged([self._rows_of(file) for file in run])

    def _rows_of(self, file: LakeFile) -> Iterator[pa.Table]:
        opened = open_file(self._lake, file)
        numbers = [group.number for group in row_groups_in(opened) if self._range.can_touch(group)]
        self._schemas[file.table] = table_in(opened)
        for rows in row_groups(self._lake, file, opened, opened.schema_arrow.names, numbers):
            yield rows if self._range.covers(file) else self._range.select(rows)

    def _step(self, step: Mapping[str, pa.Table], *, whole: bool) -> Iterator[Change]:
        """`whole`: no transaction goes on behind it."""
        if not step:
            return
        last = max(step.values(), key=lambda rows: _id(rows, -1))
        ended_us = _commit_us(last, -1)
        before, open_ = {}, {}
        for name, rows in step.items():
            going_on = pc.equal(rows.column(COMMIT_TS).cast(pa.int64()), pa.scalar(ended_us))
            is_loaded = _id(rows, -1) < 0 or (rows.num_rows > 1 and _id(rows, 0) == _id(rows, -1))
            before[name], open_[name] = (
                (rows, rows[:0]) if whole or is_loaded else (rows.filter(pc.invert(going_on)), rows.filter(going_on))
            )
        if any(rows.num_rows for rows in before.values()):
            yield from self._batches(before)
            yield from self._mark()
        yield from self._batches(open_)

    def _batches(self, step: Mapping[str, pa.Table]) -> Iterator[Change]:
        there = {name: rows for name, rows in step.items() if rows.num_rows}
        for name, rows in sorted(there.items(), key=lambda item: _id(item[1], 0)):
            table = self._schemas[parse_namespace(name)]
            yield from self._version_begins(table, rows)
            for batch in rows.cast(table.arrow_schema()).to_batches(max_chunksize=_BATCH_ROWS):
                yield ChangeBatch(table, batch)
            self._reach(_id(rows, -1), _commit_us(rows, -1))

    def _version_begins(self, table: TableSchema, rows: pa.Table) -> Iterator[Change]:
        """The end of the version before, as the log has it."""
        family = table.namespace.all_versions, shard_of(table.namespace)
        before = self._newest.get(family)
        if before is None or before.namespace.version < table.namespace.version:
            self._newest[family] = table
            if before is not None:
                yield End(before, table, _id(rows, 0) - 1, _commit_us(rows, 0))

    def _cleared(self, clear: Clear) -> Iterator[Change]:
        yield clear
        self._reach(clear.id, clear.commit_ts_us)
        yield from self._mark()

    def _reach(self, id_: int, commit_ts_us: int) -> None:
        before = self._marked or (id_, commit_ts_us)
        self._marked = max(before[0], id_), max(before[1], commit_ts_us)

    def _mark(self) -> Iterator[Change]:
        """A mark behind what was yielded, if anything was."""
        if self._marked is not None:
            yield Mark(self._source, {}, *self._marked)


def _schema_at(versions: Mapping[int, TableSchema], clear: LakeClear) -> TableSchema:
    """The schema of a clear's version; where the lake has no row of it, that of the nearest one below, or above."""
    space = parse_namespace(clear.namespace)
    below = [number for number in versions if number <= space.version]
    schema = versions[max(below) if below else min(versions)]
    return TableSchema(space, schema.columns, schema.key)


def _id(rows: pa.Table, at: int) -> int:
    found: int = rows.column(ID)[at].as_py()
    return found


def _commit_us(rows: pa.Table, at: int) -> int:
    found: int = rows.column(COMMIT_TS)[at].cast(pa.int64()).as_py()
    return found


def rows_outside(lake: FileTree, file: LakeFile, range_: Range) -> Iterator[pa.Table]:
    """The rows of a file that a range leaves."""
    opened = open_file(lake, file)
    for rows in row_groups(lake, file, opened, opened.schema_arrow.names, range(opened.num_row_groups)):
        yield range_.select(rows, inside=False)
