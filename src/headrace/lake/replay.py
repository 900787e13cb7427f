"""The newest change per key of one shard, from files of changes and, where there is one, a state to begin with.

Neither the history nor the table need fit in memory::

    delta   files of changes           sorted into runs: files whose id ranges overlap form one run; runs follow each other in id order
      pass 1: keys only                rows numbered through all runs; of each key the row with the largest id is kept, and
                                       without a state keys whose last change is a delete are dropped between runs: nothing older can follow
      pass 2: the rows                 only row groups that hold a kept row number are read, and only those rows leave them
    base    files of a state           each key once, all live: its rows whose key the delta does not touch are live still

Memory holds the keys of the delta (without a state: those that live) with an id and a number each, and one row group. The keys are in a table of
the native core (rust/src/newest.rs), so the work is linear in delta and base. The same change delivered twice has the same id twice: one
of the two is kept. A table without key has its id as key, which serves as long as it has only inserts: updates and deletes do not say which
of the equal rows they mean.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace._native import Batch, NewestRows
from headrace.errors import DataError
from headrace.lake.layout import LakeFile
from headrace.lake.moment import Moment
from headrace.lake.parquet import open_file, row_groups, row_groups_in
from headrace.lake.reshape import Reshape
from headrace.storage.base import FileTree
from headrace.ums.change import DELETE, INSERT
from headrace.ums.schema import ID, OP

_ROW = "_ums_row_"
_FORGET_ROWS = 1 << 20
Columns = Callable[[LakeFile], Sequence[str]]
"""Which stored columns of a file are wanted."""
Kept = tuple[LakeFile, pa.Table]
"""Rows as they are stored, and the file that they are from."""


class Replay:
    """One shard of a table as of a moment. `reshape` gives the keys of all versions one form."""

    def __init__(
        self, lake: FileTree, files: Sequence[LakeFile], moment: Moment, reshape: Reshape, base: Sequence[LakeFile] = ()
    ) -> None:
        """`base`: a state's files; `moment` then has the state's id as its floor, and what was cleared is not in `base`."""
        self._lake = lake
        self._files = sorted(files, key=lambda file: file.id)
        self._base = base
        self._moment = moment
        self._reshape = reshape
        self._keys = list(reshape.target.key) or [ID]

    def live(self, columns: Columns, *, delta: bool = True) -> Iterator[Kept]:
        """The rows that are there at the moment: those of the base, then (unless `delta` says no) the delta's by their last change."""
        newest = self._newest(with_deletes=bool(self._base))
        for file in self._base:
            yield from self._untouched(file, newest, columns(file))
        if delta:
            yield from self._rows(newest.rows(with_deletes=False), columns)

    def newest(self, columns: Columns) -> Iterator[Kept]:
        """The newest change of each key, deletes as well (without a base)."""
        yield from self._rows(self._newest(with_deletes=True).rows(with_deletes=True), columns)

    def _rows(self, found: Batch, columns: Columns) -> Iterator[Kept]:
        """The delta's rows with those numbers, which are sorted; the first row of the first file has number 0."""
        numbers = pa.record_batch(found).column(0)
        start = at = 0
        for file in self._files:
            stop = start + file.rows
            until = bisect_left(numbers, stop, lo=at, key=_number)
            if until > at:
                yield from self._rows_in(file, numbers[at:until], start, columns(file))
            start, at = stop, until

    def _newest(self, *, with_deletes: bool) -> NewestRows:
        """Pass 1: of each key its last change's row number, and whether that is a delete."""
        newest = NewestRows()
        first_row = settled = 0
        for run in runs_of(self._files):
            for file in run:
                for changes in self._changes_in(file, first_row):
                    newest.add(changes)
                first_row += file.rows
            if not with_deletes and first_row - settled > max(_FORGET_ROWS, len(newest)):
                newest.forget_deleted()
                settled = first_row
        return newest

    def _changes_in(self, file: LakeFile, first_row: int) -> Iterator[pa.RecordBatch]:
        """For all rows by the moment: their id, their number, whether they delete, their key."""
        opened = open_file(self._lake, file)
        wanted = list(dict.fromkeys([ID, OP, self._moment.column, *self._stored_keys(file)]))
        for described in row_groups_in(opened):
            if self._moment.can_touch(described):
                for group in row_groups(self._lake, file, opened, wanted, [described.number]):
                    numbered = group.append_column(_ROW, numbers_from(first_row, group.num_rows))
                    happened = numbered if self._moment.covers(described) else self._moment.select(numbered)
                    yield from self._changes_of(happened, file)
            first_row += described.rows

    def _changes_of(self, rows: pa.Table, file: LakeFile) -> list[pa.RecordBatch]:
        self._check_operations(rows, file)
        deleted = pc.equal(rows.column(OP), pa.scalar(DELETE))
        columns = [rows.column(ID), rows.column(_ROW), deleted, *self._keys_of(rows, file).values()]
        return pa.table(columns, [str(place) for place in range(len(columns))]).to_batches()

    def _keys_of(self, rows: pa.Table, file: LakeFile) -> dict[str, pa.ChunkedArray[Any] | pa.Array[Any]]:
        return self._reshape.columns(rows, file.table.version, self._keys)

    def _stored_keys(self, file: LakeFile) -> list[str]:
        return self._reshape.stored_columns(file.table.version, self._keys)

    def _check_operations(self, rows: pa.Table, file: LakeFile) -> None:
        if not self._reshape.target.key and set(file.operations) != {INSERT}:
            changed = rows.filter(pc.not_equal(rows.column(OP), pa.scalar(INSERT))).num_rows
            if changed:
                raise DataError(
                    f"{file.table.all_versions} has no key, and {changed} updates or deletes in {file.path} do not say which of "
                    "its equal rows they mean",
                    fix="give the source table a primary key, or read its changes from the lake's files",
                )

    def _untouched(self, file: LakeFile, touched: NewestRows, columns: Sequence[str]) -> Iterator[Kept]:
        """Those columns of the rows of a base file whose keys the delta does not touch."""
        opened = open_file(self._lake, file)
        for number in range(opened.num_row_groups):
            left = self._others_in(file, opened, number, touched) if len(touched) else None
            if left is None or len(left):
                for group in row_groups(self._lake, file, opened, columns, [number]):
                    yield file, group if left is None or len(left) == group.num_rows else group.take(left)

    def _others_in(self, file: LakeFile, opened: pq.ParquetFile, number: int, touched: NewestRows) -> pa.Array[Any]:
        """The places in a row group of the keys that are not touched."""
        [rows] = row_groups(self._lake, file, opened, self._stored_keys(file) or [ID], [number])
        keys = pa.table(self._keys_of(rows, file)).combine_chunks()
        return pa.record_batch(touched.others(keys.to_batches()[0])).column(0)

    def _rows_in(self, file: LakeFile, chosen: pa.Array[Any], first_row: int, columns: Sequence[str]) -> Iterator[Kept]:
        """Those columns of the rows with those numbers, the first row of the file having number `first_row`."""
        opened = open_file(self._lake, file)
        start, at = first_row, 0
        for number in range(opened.num_row_groups):
            stop = start + opened.metadata.row_group(number).num_rows
            until = bisect_left(chosen, stop, lo=at, key=_number)
            if until > at:
                places = pc.subtract(chosen[at:until], start)
                for group in row_groups(self._lake, file, opened, columns, [number]):
                    yield file, group if until - at == group.num_rows else group.take(places)
            start, at = stop, until


def runs_of(files: Sequence[LakeFile]) -> Iterator[list[LakeFile]]:
    """Files sorted by their smallest id, in groups whose id ranges do not overlap."""
    run: list[LakeFile] = []
    reached = 0
    for file in files:
        if run and file.id[0] > reached:
            yield run
            run = []
        reached = max(reached, file.id[1]) if run else file.id[1]
        run.append(file)
    if run:
        yield run


def portions_of(files: Sequence[LakeFile], rows: int) -> Iterator[list[LakeFile]]:
    """Files in their order, in groups of up to so many rows, or of one file."""
    some: list[LakeFile] = []
    gathered = 0
    for file in files:
        if some and gathered + file.rows > rows:
            yield some
            some, gathered = [], 0
        some.append(file)
        gathered += file.rows
    if some:
        yield some


def numbers_from(first: int, count: int) -> pa.Array[Any]:
    """So many numbers, one behind the other."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    numbers: pa.Array[Any] = pc.cumulative_sum(ones, start=pa.scalar(first - 1))
    return numbers


def _number(row: Any) -> int:
    number: int = row.as_py()
    return number
