"""A table as of a moment, from its changes: the newest per key, deletes left out, in one schema.

A moment is an `_ums_id_` (changes with an id up to it) or a time (changes with a `_ums_commit_ts_` up to it). The result has the
columns of the newest version that has a change by then. A row written by an older version is brought to it: what was dropped
is left out, what was widened is cast, what was added since is the column's `initial_default`, or null. The lake sees a version
with its first change, and a renamed column as one dropped and one added.

How it works, so that neither the history nor the table need fit in memory::

    files that can matter          by id and time ranges of the manifest
      sorted into runs             files whose id ranges overlap form one run; runs follow each other in id order
      pass 1: keys only            rows numbered through all runs; after each run the last row number per key is kept and
                                   keys whose last change is a delete are dropped: nothing older can follow
      pass 2: the rows             only row groups that hold a kept row number are read, and only those rows leave them

Memory holds the live keys with one number each, the keys of one run, and one row group. The same change delivered twice has
the same id twice: one of the two is kept. A table without key has its id as key, which serves as long as it has only inserts:
updates and deletes do not say which of the equal rows they mean. A clear (TRUNCATE TABLE) hides all changes with smaller ids.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, DataError
from headrace.lake.commit import LakeClear, Manifest
from headrace.lake.layout import LakeFile, parse_namespace
from headrace.lake.parquet import open_file, restored_schema, row_groups
from headrace.lake.reshape import Reshape
from headrace.ums.change import DELETE, INSERT
from headrace.ums.schema import COMMIT_TS, ID, OP, Namespace, TableSchema

_ROW, _DELETED = "_ums_row_", "_ums_deleted_"
_REDUCE_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as of a moment: its shape, and its rows as they are read (once)."""

    table: TableSchema
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def read_all(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema)


def as_of(lake: Path, name: str, *, id: int | None = None, time: datetime | None = None) -> pa.Table:  # noqa: A002
    """The rows of a table as of an id or a time; the newest state when neither is given.

    `name` is ``type.source.schema.table`` for all versions as one table, or a whole namespace for the changes of that version
    alone. Raises ConfigError for an unknown lake or name, DataError when the changes do not tell, CorruptError for damaged files.
    """
    return snapshot(Manifest.open(lake), name, id=id, time=time).read_all()


def snapshot(
    manifest: Manifest,
    name: str,
    *,
    id: int | None = None,  # noqa: A002
    time: datetime | None = None,
) -> Snapshot:
    """Like `as_of`, from a state of the lake that is already open, and read as it is consumed."""
    moment = _Moment.of(id, time)
    files = _files_named(manifest, name)
    clears = manifest.clears.get(files[0].table.all_versions, [])
    in_time = [file for file in files if moment.can_touch(file)]
    versions = _versions(manifest.lake, in_time or files)
    newest = versions[max(versions) if in_time else min(versions)]
    return _snapshot(manifest.lake, in_time, clears, moment, Reshape(versions, newest))


def live_rows(manifest: Manifest, table: TableSchema) -> Snapshot:
    """The newest state of one shard of a table, in the columns of the given version; empty when the lake has none of it."""
    shard = _shard(table.namespace)
    files = manifest.tables.get(table.namespace.all_versions, [])
    files = [file for file in files if _shard(file.table) == shard]
    clears = manifest.clears.get(table.namespace.all_versions, [])
    reshape = Reshape(_versions(manifest.lake, files), table)
    return _snapshot(manifest.lake, files, clears, _Moment.of(None, None), reshape)


def _snapshot(
    lake: Path, files: Sequence[LakeFile], clears: Sequence[LakeClear], moment: _Moment, reshape: Reshape
) -> Snapshot:
    schema = pa.schema([pa.field(column.name, column.type) for column in reshape.target.columns])
    return Snapshot(reshape.target, schema, _rows_of_shards(lake, files, clears, moment, reshape))


@dataclass(frozen=True, slots=True)
class _Moment:
    """Changes up to `limit` in `column` have happened; all have when there is no limit. Those up to id `cleared` are gone."""

    column: str
    limit: int | None
    cleared: int | None = None

    @classmethod
    def of(cls, id_: int | None, time: datetime | None) -> _Moment:
        if id_ is not None and time is not None:
            raise ConfigError("a moment is an id or a time, not both", fix="give one of them")
        if time is None:
            return cls(ID, id_)
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return cls(COMMIT_TS, pa.scalar(aware, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())

    def after(self, clears: Sequence[LakeClear], shard: tuple[str, str]) -> _Moment:
        """This moment in a shard, with the newest clear that had happened there."""
        happened = [
            clear.id
            for clear in clears
            if _shard(parse_namespace(clear.namespace)) == shard
            and (self.limit is None or (clear.id if self.column == ID else clear.commit_ts_us) <= self.limit)
        ]
        return replace(self, cleared=max(happened, default=None))

    def can_touch(self, file: LakeFile) -> bool:
        in_time = self.limit is None or self._range(file)[0] <= self.limit
        return in_time and (self.cleared is None or file.id[1] > self.cleared)

    def covers(self, file: LakeFile) -> bool:
        in_time = self.limit is None or self._range(file)[1] <= self.limit
        return in_time and (self.cleared is None or file.id[0] > self.cleared)

    def select(self, rows: pa.Table) -> pa.Table:
        """Those rows that have happened and are not cleared."""
        if self.limit is not None:
            moments = rows.column(self.column).cast(pa.int64())
            rows = rows.filter(pc.less_equal(moments, pa.scalar(self.limit, pa.int64())))
        if self.cleared is not None:
            rows = rows.filter(pc.greater(rows.column(ID), pa.scalar(self.cleared, pa.int64())))
        return rows

    def _range(self, file: LakeFile) -> tuple[int, int]:
        return file.id if self.column == ID else file.commit_ts


def _files_named(manifest: Manifest, name: str) -> list[LakeFile]:
    files = manifest.tables.get(name, [])
    if name.count(".") == 6:
        files = [file for file in manifest.tables.get(name.rsplit(".", 3)[0], []) if file.namespace == name]
    if files:
        return files
    known = sorted({*manifest.tables, *(file.namespace for file in manifest.files())})
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.4) or known[:5]
    raise ConfigError(
        f"the lake {manifest.lake} has no table '{name}'",
        fix=f"use one of: {', '.join(near)}" if near else "nothing has been committed to it yet; start the flow first",
    )


def _versions(lake: Path, files: Iterable[LakeFile]) -> dict[int, TableSchema]:
    """Each version's schema, as one of its files describes it."""
    one_each = {file.table.version: file for file in files}
    return {
        version: TableSchema.from_arrow(restored_schema(open_file(lake, file).schema_arrow))
        for version, file in one_each.items()
    }


def _rows_of_shards(
    lake: Path, files: Sequence[LakeFile], clears: Sequence[LakeClear], moment: _Moment, reshape: Reshape
) -> Iterator[pa.RecordBatch]:
    """Shards of a table are tables of their own: the same key may live in two of them."""
    shards: dict[tuple[str, str], list[LakeFile]] = {}
    for file in files:
        shards.setdefault(_shard(file.table), []).append(file)
    for shard, members in sorted(shards.items()):
        here = moment.after(clears, shard)
        yield from _Replay(lake, [file for file in members if here.can_touch(file)], here, reshape).rows()


def _shard(namespace: Namespace) -> tuple[str, str]:
    return namespace.dbshard, namespace.tableshard


class _Replay:
    """The two passes over the files of one shard."""

    def __init__(self, lake: Path, files: Sequence[LakeFile], moment: _Moment, reshape: Reshape) -> None:
        self._lake = lake
        self._files = sorted(files, key=lambda file: file.id)
        self._moment = moment
        self._reshape = reshape
        self._keys = list(reshape.target.key) or [ID]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The live rows, in the order of their last change within each run."""
        alive = self._alive().combine_chunks().sort()
        start = at = 0
        for file in self._files:
            stop = start + file.rows
            until = bisect_left(alive, stop, lo=at, key=_number)
            if until > at:
                yield from self._rows_in(file, alive[at:until], start)
            start, at = stop, until

    def _alive(self) -> pa.ChunkedArray[Any]:
        """Pass 1: the numbers of the rows that are live at the moment."""
        alive = self._key_schema().empty_table()
        pending: list[pa.Table] = []
        waiting = 0
        for run in self._runs():
            pending.append(run)
            waiting += run.num_rows
            if waiting > max(_REDUCE_ROWS, alive.num_rows):
                alive, pending, waiting = self._reduce([alive, *pending]), [], 0
        return self._reduce([alive, *pending]).column(_ROW)

    def _reduce(self, parts: list[pa.Table]) -> pa.Table:
        rows = pa.concat_tables(parts)
        last = rows.group_by(self._keys, use_threads=False).aggregate([(_DELETED, "last"), (_ROW, "last")])
        last = last.select([f"{_DELETED}_last", f"{_ROW}_last", *self._keys]).rename_columns(rows.column_names)
        return last.filter(pc.invert(last.column(_DELETED)))

    def _key_schema(self) -> pa.Schema:
        types: dict[str, pa.DataType] = {column.name: column.type for column in self._reshape.target.columns}
        types[ID] = pa.int64()
        keys = {key: types[key] for key in self._keys}
        return pa.schema(
            [pa.field(name, type_) for name, type_ in {_DELETED: pa.bool_(), _ROW: pa.int64(), **keys}.items()]
        )

    def _runs(self) -> Iterator[pa.Table]:
        """For all rows by the moment: whether they delete, their number, their key. In id order, in pieces."""
        first_row = 0
        for run in _runs_of(self._files):
            pieces = []
            for file in run:
                pieces.append(self._keys_in(file, first_row))
                first_row += file.rows
            if len(pieces) == 1:
                yield from (piece.select(self._key_schema().names) for piece in pieces[0])
            else:
                together = pa.concat_tables([piece for several in pieces for piece in several]).sort_by(ID)
                yield together.select(self._key_schema().names)

    def _keys_in(self, file: LakeFile, first_row: int) -> Iterator[pa.Table]:
        opened = open_file(self._lake, file)
        old_keys = self._reshape.stored_columns(file.table.version, self._keys)
        wanted = list(dict.fromkeys([ID, OP, self._moment.column, *old_keys]))
        for group in row_groups(self._lake, file, opened, wanted, range(opened.num_row_groups)):
            numbers = pc.cumulative_sum(
                pa.repeat(pa.scalar(1, pa.int64()), group.num_rows), start=pa.scalar(first_row - 1)
            )
            first_row += group.num_rows
            numbered = group.append_column(_ROW, numbers)
            happened = numbered if self._moment.covers(file) else self._moment.select(numbered)
            self._check_operations(happened, file)
            deleted = pc.equal(happened.column(OP), pa.scalar(DELETE))
            keys = self._reshape.columns(happened, file.table.version, self._keys)
            yield pa.table({ID: happened.column(ID), _DELETED: deleted, _ROW: happened.column(_ROW), **keys})

    def _check_operations(self, rows: pa.Table, file: LakeFile) -> None:
        if not self._reshape.target.key and set(file.operations) != {INSERT}:
            changed = rows.filter(pc.not_equal(rows.column(OP), pa.scalar(INSERT))).num_rows
            if changed:
                raise DataError(
                    f"{file.table.all_versions} has no key, and {changed} updates or deletes in {file.path} do not say which of "
                    "its equal rows they mean",
                    fix="give the source table a primary key, or read its changes from the lake's files",
                )

    def _rows_in(self, file: LakeFile, alive: pa.Array[Any], first_row: int) -> Iterator[pa.RecordBatch]:
        """Pass 2: the rows with those numbers."""
        opened = open_file(self._lake, file)
        names = [column.name for column in self._reshape.target.columns]
        stored = self._reshape.stored_columns(file.table.version, names)
        start, at = first_row, 0
        for number in range(opened.num_row_groups):
            stop = start + opened.metadata.row_group(number).num_rows
            until = bisect_left(alive, stop, lo=at, key=_number)
            if until > at:
                places = pc.subtract(alive[at:until], start)
                for group in row_groups(self._lake, file, opened, stored or [ID], [number]):
                    rows = group if until - at == group.num_rows else group.take(places)
                    yield from pa.table(self._reshape.columns(rows, file.table.version, names)).to_batches()
            start, at = stop, until


def _runs_of(files: Sequence[LakeFile]) -> Iterator[list[LakeFile]]:
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


def _number(scalar: pa.Scalar[Any]) -> int:
    number: int = scalar.as_py()
    return number
