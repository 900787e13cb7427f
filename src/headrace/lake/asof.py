"""A table as of a moment, from its changes: the newest per key, deletes left out, in one schema.

A moment is an `_ums_id_` (changes with an id up to it) or a time (changes with a `_ums_commit_ts_` up to it). The result has the
columns of the newest version that has a change by then. A row written by an older version is brought to it: what was dropped
is left out, what was widened is cast, what was renamed has its new name, what was added since is the column's `initial_default`, or
null. The lake sees a version with its first change. A clear (TRUNCATE TABLE) hides all changes with smaller ids.

What is read: the newest state (states.py) that the moment takes in, and the files that can hold changes between the two, by the id and
time ranges of the manifest; replay.py says how. All changes of a transaction have one commit time, and a commit of the lake has whole
transactions of all its tables: so tables read as of one time from one `Manifest` show each transaction whole or not at all.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.lake.commit import Manifest
from headrace.lake.layout import LakeFile
from headrace.lake.moment import Moment
from headrace.lake.records import Shard, shard_of
from headrace.lake.replay import Replay
from headrace.lake.reshape import Reshape
from headrace.lake.states import newest_state
from headrace.lake.versions import schemas_of
from headrace.storage.base import FileTree
from headrace.ums.schema import ID, TableSchema


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows of a table as of a moment, to be read anywhere: it can be pickled."""

    lake: FileTree
    files: tuple[LakeFile, ...]
    base: tuple[LakeFile, ...]
    moment: Moment
    reshape: Reshape
    delta: bool = True
    """Whether the live rows of `files` are among them, or only those of `base` that `files` do not touch."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in self.reshape.target.columns]
        replay = Replay(self.lake, self.files, self.moment, self.reshape, self.base)
        stored = {number: self.reshape.stored_columns(number, names) or [ID] for number in self.reshape.numbers}
        for file, rows in replay.live(lambda file: stored[file.table.version], delta=self.delta):
            yield from pa.table(self.reshape.columns(rows, file.table.version, names)).to_batches()

    def split(self) -> Iterator[Part]:
        """The same rows in parts that can be read side by side: one per file of the base, and the delta."""
        for file in self.base:
            yield replace(self, base=(file,), delta=False)
        if self.files:
            yield replace(self, base=())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as of a moment: its shape, and its parts, one per shard."""

    table: TableSchema
    parts: tuple[Part, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.table.columns])

    @property
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, read as they are consumed."""
        for part in self.parts:
            yield from part.batches()

    def read_all(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema)


def as_of(lake: Path | str | FileTree, name: str, *, id: int | None = None, time: datetime | None = None) -> pa.Table:  # noqa: A002
    """The rows of a table as of an id or a time; the newest state when neither is given.

    `name` is ``type.source.schema.table`` for all versions as one table, or a whole namespace for the changes of that version
    alone. Raises ConfigError for an unknown lake or name and for a moment that is not kept, DataError when the changes do not tell,
    CorruptError for damaged files.
    """
    return snapshot(Manifest.open(lake), name, id=id, time=time).read_all()


def snapshot(
    manifest: Manifest,
    name: str,
    *,
    id: int | None = None,  # noqa: A002
    time: datetime | None = None,
) -> Snapshot:
    """Like `as_of`, from a state of the lake that is already open; several tables from one manifest are as of one moment."""
    return _snapshot(manifest, files_named(manifest, name), Moment.of(id, time), whole=name.count(".") != 6)


def live_rows(manifest: Manifest, table: TableSchema) -> Snapshot:
    """The newest state of one shard of a table, in the columns of the given version; empty when the lake has none of it."""
    shard = shard_of(table.namespace)
    files = manifest.tables.get(table.namespace.all_versions, [])
    here = [file for file in files if shard_of(file.table) == shard]
    return _snapshot(manifest, here, Moment.of(None, None), whole=True, target=table)


def files_named(manifest: Manifest, name: str) -> list[LakeFile]:
    """The files of a table, or of one version of it; ConfigError with the names that come near when there are none."""
    files = manifest.tables.get(name, [])
    if name.count(".") == 6:
        files = [file for file in manifest.tables.get(name.rsplit(".", 3)[0], []) if file.namespace == name]
    if files:
        return files
    known = sorted({*manifest.tables, *(file.namespace for file in manifest.files())})
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.4) or known[:5]
    raise ConfigError(
        f"the lake {manifest.lake.root} has no table '{name}'",
        fix=f"use one of: {', '.join(near)}" if near else "nothing has been committed to it yet; start the flow first",
    )


def _snapshot(
    manifest: Manifest, files: Sequence[LakeFile], moment: Moment, *, whole: bool, target: TableSchema | None = None
) -> Snapshot:
    """`whole`: the files are all that the manifest has of their shards, so that states may stand for them."""
    table = files[0].table.all_versions if files else ""
    moment.must_not_be_before(manifest.horizons.get(table), table)
    clears = manifest.clears.get(table, [])
    in_time = [file for file in files if moment.can_touch(file)]
    versions = schemas_of(manifest.lake, in_time or files)
    if target is None:
        target = versions[max(versions) if in_time else min(versions)]
    # What is cleared need not fit: a new table under an old name may have nothing in common with the old one.
    left = [file for file in in_time if moment.after(clears, shard_of(file.table)).can_touch(file)]
    reshape = Reshape({file.table.version: versions[file.table.version] for file in left}, target)
    shards: dict[Shard, list[LakeFile]] = {}
    for file in left:
        shards.setdefault(shard_of(file.table), []).append(file)
    parts = []
    for shard, members in sorted(shards.items()):
        here = moment.after(clears, shard)
        state = newest_state(manifest, table, shard, here) if whole else None
        base = state.files if state else ()
        here = here.above(state.id) if state else here
        parts.append(Part(manifest.lake, tuple(filter(here.can_touch, members)), base, here, reshape))
    return Snapshot(target, tuple(parts))
