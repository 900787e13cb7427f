"""The changes of a table in the order in which they happened, in one schema: what as-of, zipper tables and backfill are made of.

Only files whose id or time ranges overlap the asked range are read, merged as they are read (rewrite.py). Up to the table's horizon
retention has left the newest change of each key; a range that begins before it is refused, the whole history is what is kept. A clear
(TRUNCATE TABLE) is no change of a row and not among them. A change that two flows have delivered is there once, as long as
both copies are handed on in one piece of the merge, which ids make sure of unless many rows share one (a full load again).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.asof import files_named
from headrace.lake.commit import Manifest
from headrace.lake.keys import key_values
from headrace.lake.layout import LakeFile
from headrace.lake.moment import Moment
from headrace.lake.parquet import open_file, row_groups, row_groups_in
from headrace.lake.replay import numbers_from, runs_of
from headrace.lake.reshape import Reshape
from headrace.lake.rewrite import merged
from headrace.lake.versions import schemas_of
from headrace.storage.base import FileTree
from headrace.ums.schema import COMMIT_TS, ID, OP, TS, TableSchema

SYSTEM = (ID, TS, OP, COMMIT_TS)


@dataclass(frozen=True, slots=True)
class History:
    """The changes of a table: its shape (the newest version's, behind the system columns), and the rows as they are read."""

    table: TableSchema
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def read_all(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema)


def history(
    manifest: Manifest,
    name: str,
    *,
    after_id: int | None = None,
    id: int | None = None,  # noqa: A002
    time: datetime | None = None,
    key: Mapping[str, str] | None = None,
) -> History:
    """The changes up to an id or a time, behind `after_id` when it is given, of the keys with these values when some are.

    Same errors as `as_of`; ConfigError also for a key that the table has not.
    """
    files = files_named(manifest, name)
    table = files[0].table.all_versions
    for bound in (Moment.of(id, time), Moment.of(after_id, None)):
        bound.must_not_be_before(manifest.horizons.get(table), table)
    moment = Moment.of(id, time).above(after_id)
    files = sorted(filter(moment.can_touch, files), key=lambda file: file.id)
    versions = schemas_of(manifest.lake, files or files_named(manifest, name))
    reshape = Reshape(versions, versions[max(versions)])
    reader = _Reader(manifest.lake, moment, reshape, key_values(reshape.target, reshape.target, key or {}))
    return History(reshape.target, reader.schema, reader.batches(files))


class _Reader:
    """Reads files as changes of one schema."""

    def __init__(self, lake: FileTree, moment: Moment, reshape: Reshape, wanted: Mapping[str, pa.Scalar[Any]]) -> None:
        self._lake = lake
        self._moment = moment
        self._reshape = reshape
        self._wanted = wanted
        self._names = [column.name for column in reshape.target.columns]
        fields = list(reshape.target.arrow_schema())
        self.schema = pa.schema([field for field in fields if field.name in (*SYSTEM, *self._names)])

    def batches(self, files: Sequence[LakeFile]) -> Iterator[pa.RecordBatch]:
        for run in runs_of(files):
            for piece in merged([self._changes(file) for file in run]):
                yield from (piece if len(run) == 1 else self._once(piece)).to_batches()

    def _changes(self, file: LakeFile) -> Iterator[pa.Table]:
        opened = open_file(self._lake, file)
        version = file.table.version
        stored = [*SYSTEM, *self._reshape.stored_columns(version, self._names)]
        numbers = [group.number for group in row_groups_in(opened) if self._moment.can_touch(group)]
        for group in row_groups(self._lake, file, opened, stored, numbers):
            happened = group if self._moment.covers(file) else self._moment.select(group)
            columns = self._reshape.columns(happened, version, self._names).values()
            rows = pa.Table.from_arrays([*(happened.column(name) for name in SYSTEM), *columns], schema=self.schema)
            for name, value in self._wanted.items():
                rows = rows.filter(pc.equal(rows.column(name), value))
            yield rows

    def _once(self, piece: pa.Table) -> pa.Table:
        """Without the second copy of a change."""
        numbered = piece.append_column("", numbers_from(0, piece.num_rows))
        by = [ID, *self._reshape.target.key]
        first = numbered.group_by(by, use_threads=False).aggregate([("", "min")]).column("_min")
        return piece if len(first) == piece.num_rows else piece.take(first.combine_chunks().sort())
