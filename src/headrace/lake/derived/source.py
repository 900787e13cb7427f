"""What is new in a lake for one derived table: changes, clears, and whether its history was changed under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.commit import Manifest
from headrace.lake.derived.columns import Arrays, Columns, newest_shapes
from headrace.lake.derived.pieces import match
from headrace.lake.layout import LakeFile, parse_namespace
from headrace.lake.moment import Moment
from headrace.lake.parquet import open_file, row_groups
from headrace.lake.records import Cause, Commit, Edit, LakeClear, Landing, Shard, shard_of
from headrace.lake.replay import Replay
from headrace.lake.reshape import Reshape
from headrace.lake.versions import schemas_of
from headrace.ums.change import DELETE
from headrace.ums.schema import COMMIT_TS, ID, OP, TS, Column, TableSchema

_SAME_ROWS = {Cause.COMPACT, Cause.STATE, Cause.RETAIN, Cause.SWEEP}
"""Edits after which the newest change of each key is what it was. (Retention gives up what a zipper table has already.)"""


class Journal:
    """A lake and what has happened to it since: commits are read once for all tables."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._known: dict[int, Commit] = {}

    def since(self, number: int) -> Iterator[Commit]:
        """The commits behind a number."""
        for missing in self.manifest.commits(
            each for each in range(number + 1, self.manifest.number + 1) if each not in self._known
        ):
            self._known[missing.number] = missing
        return (self._known[each] for each in range(number + 1, self.manifest.number + 1))


@dataclass(frozen=True)
class Source:
    """One shard of a table of a lake."""

    journal: Journal
    table: str
    shard: Shard

    @cached_property
    def files(self) -> list[LakeFile]:
        """All of its files, in the order of their ids."""
        files = self.journal.manifest.tables.get(self.table, [])
        return sorted((file for file in files if shard_of(file.table) == self.shard), key=lambda file: file.id)

    @cached_property
    def versions(self) -> dict[int, TableSchema]:
        return schemas_of(self.journal.manifest.lake, self.files)

    @cached_property
    def newest(self) -> dict[str, tuple[Column, TableSchema]]:
        return newest_shapes(self.versions)

    @property
    def clears(self) -> list[LakeClear]:
        """Its clears, in the order of their ids."""
        known = self.journal.manifest.clears.get(self.table, [])
        return sorted(filter(self._is_here, known), key=lambda clear: clear.id)

    def _is_here(self, clear: LakeClear) -> bool:
        return shard_of(parse_namespace(clear.namespace)) == self.shard

    def news(self, commit: int) -> News:
        """What has come behind a commit of the lake."""
        news = News([file for file in self.files if file.since > commit])
        for each in self.journal.since(commit):
            if isinstance(each.what, Landing):
                here = [
                    clear for clear in each.what.cleared if parse_namespace(clear.namespace).all_versions == self.table
                ]
                news.clears += filter(self._is_here, here)
            elif _rewrites(each.what, self.table):
                news.rewritten = True
        return news

    def newest_changes(self, files: Sequence[LakeFile], columns: Columns) -> pa.Table:
        """Of each key in those files its newest change: the columns, and the system columns of changes."""
        if not files:
            return pa.table(_no_changes(columns))
        here = {file.table.version: self.versions[file.table.version] for file in files}
        replay = Replay(self.journal.manifest.lake, files, Moment.of(None, None), Reshape(here, here[max(here)]))
        kept = replay.newest(lambda file: self.versions[file.table.version].arrow_schema().names)
        return _together([self._shaped(file, rows, columns) for file, rows in kept], columns)

    def all_changes(self, files: Sequence[LakeFile], columns: Columns) -> pa.Table:
        """All changes in those files, in the same form."""
        found = []
        for file in files:
            opened = open_file(self.journal.manifest.lake, file)
            names = opened.schema_arrow.names
            groups = row_groups(self.journal.manifest.lake, file, opened, names, range(opened.num_row_groups))
            found += [self._shaped(file, rows, columns) for rows in groups]
        return _together(found, columns)

    def deletes(self, keys: pa.Table, after_id: int, columns: Columns) -> pa.Table:
        """All deletes of some keys with larger ids: the key, the id and the commit time.

        A derived table does not remember that a key was deleted which it has never had or has no more; its lake does.
        """
        found = [_no_deletes(columns)]
        for file in self.files:
            if DELETE in file.operations and file.id[1] > after_id:
                opened = open_file(self.journal.manifest.lake, file)
                stored = opened.schema_arrow.names
                groups = row_groups(self.journal.manifest.lake, file, opened, stored, range(opened.num_row_groups))
                found += [self._deletes_in(file, rows, columns) for rows in groups]
        deletes = pa.concat_tables(found)
        return deletes.filter(is_among(deletes, keys, columns.key))

    def _deletes_in(self, file: LakeFile, rows: pa.Table, columns: Columns) -> pa.Table:
        deleted = rows.filter(pc.equal(rows.column(OP), pa.scalar(DELETE)))
        return self._shaped(file, deleted, columns).select([*columns.key, ID, COMMIT_TS])

    def _shaped(self, file: LakeFile, rows: pa.Table, columns: Columns) -> pa.Table:
        version = file.table.version
        shaped = columns.rows(rows, self.versions[version], self.newest)
        return pa.table({**shaped, **{name: rows.column(name) for name in (ID, TS, OP, COMMIT_TS)}})


@dataclass
class News:
    """What has come to a table of a lake."""

    files: list[LakeFile]
    """Files with changes that are new; some of their rows may be older, when files were merged."""
    clears: list[LakeClear] = field(default_factory=list)
    rewritten: bool = False
    """Changes that had been there are no more (a purge, a range that was replaced): what was derived from them must go."""


def _rewrites(edit: Edit, table: str) -> bool:
    return edit.table == table and edit.cause not in _SAME_ROWS


def _together(found: list[pa.Table], columns: Columns) -> pa.Table:
    return pa.concat_tables(found) if found else pa.table(_no_changes(columns))


def _no_changes(columns: Columns) -> Arrays:
    told: dict[str, pa.DataType] = {
        ID: pa.int64(),
        TS: pa.timestamp("us", "UTC"),
        OP: pa.utf8(),
        COMMIT_TS: pa.timestamp("us", "UTC"),
    }
    types = {**{column.name: column.type for column in columns.columns}, **told}
    return {name: pa.array([], type_) for name, type_ in types.items()}


def _no_deletes(columns: Columns) -> pa.Table:
    return pa.table(_no_changes(columns)).select([*columns.key, ID, COMMIT_TS])


def is_among(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Array[Any]:
    """For each row whether its key is one of those."""
    return pc.is_valid(match(rows, keys.group_by(list(key), use_threads=False).aggregate([]), key))
