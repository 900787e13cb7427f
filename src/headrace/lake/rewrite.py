"""Rows of the lake written anew: merged in id order, in files and row groups of a sensible size. Files that are in order and large enough
already become parts of others as they are (joined.py).

Merging files whose id ranges overlap takes one row group of each at a time. Each file is sorted, so what it has read holds all its rows
up to its last id read. Let b be the smallest of these last ids: no file can still bring a row below b, so the rows up to b are taken
from all, sorted and handed on, and the file that ended at b reads on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa

from headrace.errors import CorruptError
from headrace.lake.joined import JoinedFile, is_copied
from headrace.lake.layout import LakeFile
from headrace.lake.parquet import ROW_GROUP_ROWS, open_file, row_groups
from headrace.lake.replay import Columns, Kept, runs_of
from headrace.lake.tally import Tally
from headrace.storage.base import FileTree
from headrace.ums.schema import ID, TableSchema

_ROW_GROUP_BYTES = 64 << 20


class NewFile(Protocol):
    """Opens a new file for a table version, in its own directory or in another one of the lake."""

    def __call__(self, table: TableSchema, directory: str | None = None) -> JoinedFile: ...


class Namer:
    """New files of one process that writes files anew: no name is ever used twice."""

    def __init__(self, lake: FileTree) -> None:
        self._lake = lake
        self._attempt = uuid4().hex
        self._names = count(1)

    def __call__(self, table: TableSchema, directory: str | None = None) -> JoinedFile:
        name = f"{self._attempt}-{next(self._names):06d}.parquet"
        return JoinedFile(self._lake, table, name, directory)


class Rewriter:
    """Writes rows of one table version into files of about so many rows, each sorted by id, in full row groups."""

    def __init__(self, new_file: Callable[[], JoinedFile], rows_per_file: int) -> None:
        self._new_file = new_file
        self._rows_per_file = rows_per_file
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._writer: JoinedFile | None = None
        self._last_id: int | None = None
        self._finished: list[LakeFile] = []

    def add(self, rows: pa.Table) -> None:
        """Takes rows that are sorted among themselves; where they begin lower than those before ended, a new file begins."""
        if not rows.num_rows:
            return
        self._reach(rows.column(ID)[0].as_py(), rows.column(ID)[-1].as_py())
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        while self._pending_rows >= ROW_GROUP_ROWS or self._pending_bytes >= _ROW_GROUP_BYTES:
            self._write(ROW_GROUP_ROWS)

    def copy(self, file: LakeFile) -> None:
        """Takes a whole file as it is, in its place behind what came before; what is waiting for a full row group gets one of its own."""
        self._reach(*file.id)
        if self._pending:
            self._write(self._pending_rows)
        self._writer = self._writer or self._new_file()
        self._writer.copy(file)
        self._end_full_file()

    def finish(self) -> list[LakeFile]:
        """Completes the files; their bytes are durable on return, their names once their directories are synced."""
        self._end_file()
        return self._finished

    def abandon(self) -> None:
        """Throws away what is not complete; complete files stay as orphans."""
        if self._writer is not None:
            self._writer.abandon()

    def _write(self, most_rows: int) -> None:
        rows = pa.concat_tables(self._pending)
        group, rest = rows[:most_rows].combine_chunks(), rows[most_rows:]
        self._pending = [rest] if rest.num_rows else []
        self._pending_rows = rest.num_rows
        self._pending_bytes = rest.nbytes if rest.num_rows else 0
        self._writer = self._writer or self._new_file()
        self._writer.append(group)
        self._end_full_file()

    def _reach(self, first_id: int, last_id: int) -> None:
        """Begins a new file when what comes next is not behind what came before."""
        if self._last_id is not None and first_id < self._last_id:
            self._end_file()
        self._last_id = last_id

    def _end_full_file(self) -> None:
        if self._writer is not None and self._writer.rows >= self._rows_per_file:
            self._finished.append(self._writer.finish())
            self._writer = None

    def _end_file(self) -> None:
        if self._pending:
            self._write(self._pending_rows)
        if self._writer is not None:
            self._finished.append(self._writer.finish())
            self._writer = None
        self._last_id = None


def write_by_version(
    kept: Callable[[Columns], Iterator[Kept]],
    versions: Mapping[int, TableSchema],
    new_file: NewFile,
    rows_per_file: int,
) -> list[LakeFile]:
    """Writes whole rows that a replay keeps into files of their versions."""
    writers: dict[str, Rewriter] = {}
    try:
        for file, rows in kept(lambda file: versions[file.table.version].arrow_schema().names):
            if file.namespace not in writers:
                table = versions[file.table.version]
                writers[file.namespace] = Rewriter(partial(new_file, table), rows_per_file)
            writers[file.namespace].add(rows)
        return [file for writer in writers.values() for file in writer.finish()]
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise


def merge_into(rewriter: Rewriter, lake: FileTree, files: Sequence[LakeFile], table: TableSchema) -> None:
    """All rows of files of one table version, merged (proof above); files that overlap with no other are copied where they can be."""
    for run in runs_of(sorted(files, key=lambda file: file.id)):
        if len(run) == 1 and is_copied(lake, run[0], table):
            rewriter.copy(run[0])
            continue
        for piece in merged([_rows_of(lake, file) for file in run]):
            rewriter.add(piece)


def merged(sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Rows of sources that are sorted by id, in one order, in pieces."""
    if len(sources) == 1:
        yield from sources[0]
        return
    heads = [head for head in map(Head, sources) if head.reads_on()]
    while heads:
        bound = min(head.last_id for head in heads)
        yield pa.concat_tables([head.take(bound) for head in heads]).sort_by(ID)
        heads = [head for head in heads if head.reads_on()]


def in_place_of(old: Sequence[LakeFile], new: Sequence[LakeFile]) -> tuple[LakeFile, ...]:
    """The new files, knowing the newest commit that brought rows of the old ones."""
    since = max(file.since for file in old)
    return tuple(replace(file, since=since) for file in new)


def must_be_the_same(before: Sequence[LakeFile], after: Sequence[LakeFile]) -> None:
    """CorruptError when files that were written anew do not hold what the manifest says of those that they were made of."""
    said, found = (sum((file.tally for file in files), Tally()) for files in (before, after))
    if said != found:
        raise CorruptError(
            f"{before[0].path} and {len(before) - 1} more files hold {found}, but the manifest says {said}",
            fix="restore these files from a copy of the lake; nothing was changed",
        )


def _rows_of(lake: FileTree, file: LakeFile) -> Iterator[pa.Table]:
    opened = open_file(lake, file)
    return row_groups(lake, file, opened, opened.schema_arrow.names, range(opened.num_row_groups))


class Head:
    """What was read of one source and not yet handed on."""

    def __init__(self, source: Iterator[pa.Table]) -> None:
        self._source = source
        self._rows: pa.Table | None = None

    def reads_on(self) -> bool:
        """Has rows, reading on when it must; False at the source's end."""
        while self._rows is None or not self._rows.num_rows:
            self._rows = next(self._source, None)
            if self._rows is None:
                return False
        return True

    @property
    def last_id(self) -> int:
        """The last id that was read."""
        assert self._rows is not None
        last: int = self._rows.column(ID)[-1].as_py()
        return last

    def take(self, bound: int) -> pa.Table:
        """Its rows up to an id."""
        assert self._rows is not None
        ids: Any = self._rows.column(ID)
        until = bisect_right(ids, bound, key=lambda id_: id_.as_py())
        taken, self._rows = self._rows[:until], self._rows[until:]
        return taken
