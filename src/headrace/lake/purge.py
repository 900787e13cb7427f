"""A person's rows are deleted, by key: every change of these keys leaves every file and state, and the record of it stays.

All changes of a key go, the oldest and the newest, so that each moment looks as if the row had never been. (Were only those with certain
values taken out, a moment between would show an older state as if it had held.) Hence the columns must be of the table's key; some of them
suffice. A file that has such rows is written anew without them. All states of the table end. The old files are deleted by the sweep, after
the grace. What the log keeps it keeps until its own retention; it is not delivered again to a lake that is beyond it.

The record says what was deleted where, when and why, but not the key: only its SHA-256, so that who knows the key finds it::

    key_sha256 = SHA-256 of the JSON text of the key's values, as text, in the order of their columns' names: ["4711"]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import CorruptError
from headrace.lake.asof import files_named
from headrace.lake.commit import Manifest
from headrace.lake.cut import tally_of
from headrace.lake.keys import key_values
from headrace.lake.layout import LakeFile
from headrace.lake.parquet import open_file, row_groups, table_in
from headrace.lake.records import Cause, Edit, Purge
from headrace.lake.rewrite import NewFile, Rewriter, in_place_of
from headrace.lake.tally import Tally
from headrace.lake.versions import schemas_of


def key_digest(key: Mapping[str, str]) -> str:
    """What the record has in place of the key."""
    return hashlib.sha256(json.dumps([key[column] for column in sorted(key)]).encode()).hexdigest()


def purge_edit(
    manifest: Manifest, table: str, key: Mapping[str, str], *, reason: str, time: str, new_file: NewFile
) -> Edit:
    """The edit that leaves out all changes of the keys that have these values; its new files are durable.

    ConfigError for an unknown table, a column that is not of its key in some version, or a value that is none of its type.
    """
    files = files_named(manifest, table)
    versions = schemas_of(manifest.lake, files)
    wanted = {version: key_values(schema, versions[max(versions)], key) for version, schema in versions.items()}
    added: list[LakeFile] = []
    removed: list[LakeFile] = []
    for file in files:
        if (kept := _without(manifest, file, wanted[file.table.version], new_file)) is not None:
            removed.append(file)
            added += kept
    rows = sum(file.rows for file in removed) - sum(file.rows for file in added)
    record = Purge(table, tuple(sorted(key)), key_digest(key), reason, rows, len(removed), time)
    return Edit(
        Cause.PURGE,
        table,
        added=tuple(added),
        removed=tuple(file.path for file in removed),
        ended=tuple(state.name for state in manifest.states.get(table, [])),
        purge=record,
    )


def _without(
    manifest: Manifest, file: LakeFile, wanted: Mapping[str, pa.Scalar[Any]], new_file: NewFile
) -> list[LakeFile] | None:
    """A file's other rows in new files; None when it has none of those keys."""
    opened = open_file(manifest.lake, file)
    groups = range(opened.num_row_groups)
    if not any(_hits(keys, wanted)[1] for keys in row_groups(manifest.lake, file, opened, list(wanted), groups)):
        return None
    rewriter = Rewriter(partial(new_file, table_in(opened)), file.rows)
    gone = Tally()
    try:
        for rows in row_groups(manifest.lake, file, opened, opened.schema_arrow.names, groups):
            hit, _ = _hits(rows, wanted)
            gone += tally_of(rows.filter(hit))
            rewriter.add(rows.filter(pc.invert(hit)))
        made = rewriter.finish()
    except BaseException:
        rewriter.abandon()
        raise
    if sum((each.tally for each in made), gone) != file.tally:
        raise CorruptError(
            f"{manifest.lake.root}/{file.path} does not hold what the manifest says",
            fix="restore this file from a copy of the lake; nothing was deleted",
        )
    return list(in_place_of([file], made))


def _hits(rows: pa.Table, wanted: Mapping[str, pa.Scalar[Any]]) -> tuple[pa.Array[Any], bool]:
    """Per row whether it has those values, and whether any has."""
    equal = [pc.equal(rows.column(name).combine_chunks().cast(value.type), value) for name, value in wanted.items()]
    hit: pa.BooleanArray = reduce(pc.and_kleene, equal)
    return hit.fill_null(False), bool(hit.true_count)
