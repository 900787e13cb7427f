"""Compaction: the small files of a period become few large ones; not a row, not an operation, not a digest changes.

What is merged. Files of one table version lie in *cells*: the period (a day, by default) of their newest commit time, and their place among
the table's states (a merged file never reaches across the id of a state, so it is behind a state exactly when its rows are). A cell whose
period is over is merged when that leaves fewer files; one whose period goes on, as soon as it has MANY tiny files. What comes out is cut
at `target_bytes`, and a file of half that size is not taken again, so a row is rewritten few times, however often this runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial

from headrace.lake.commit import Manifest
from headrace.lake.layout import LakeFile
from headrace.lake.parquet import open_file, table_in
from headrace.lake.policy import Policy
from headrace.lake.records import Shard, shard_of
from headrace.lake.rewrite import NewFile, Rewriter, in_place_of, merge_into, must_be_the_same

MANY = 512
_TINY = 16
"""In a period that goes on only files below this part of `target_bytes` are merged, so that none is rewritten each time."""
_MERGE_BYTES = 1 << 30
_MERGE_FILES = 4096
_Cell = tuple[str, int, int, int]


def merges(manifest: Manifest, table: str, policy: Policy, now_us: int, *, all_periods: bool) -> list[list[LakeFile]]:
    """The sets of files of a table that are to be merged, each set on its own; `all_periods`: also those that go on."""
    cells: dict[_Cell, list[LakeFile]] = {}
    states: dict[Shard, list[int]] = {}
    for state in sorted(manifest.states.get(table, []), key=lambda state: state.id):
        states.setdefault(state.shard, []).append(state.id)
    for file in sorted(manifest.tables.get(table, []), key=lambda file: file.id):
        if file.bytes < policy.target_bytes // 2:
            low, high = (bisect_left(states.get(shard_of(file.table), []), bound) for bound in file.id)
            cells.setdefault((file.namespace, file.commit_ts[1] // policy.period_us, low, high), []).append(file)
    found: list[list[LakeFile]] = []
    for (_, period, _, _), files in cells.items():
        over = all_periods or (period + 1) * policy.period_us <= now_us
        ripe = files if over else _many_tiny(files, policy)
        found += (some for some in _portions(ripe) if len(some) > _parts(some, policy))
    return found


def merge(manifest: Manifest, files: Sequence[LakeFile], policy: Policy, new_file: NewFile) -> tuple[LakeFile, ...]:
    """The same rows in few files, durable; CorruptError when they are not the same, and then what was written is an orphan."""
    newest = max(files, key=lambda file: file.since)
    table = table_in(open_file(manifest.lake, newest))
    rows = sum(file.rows for file in files)
    rewriter = Rewriter(partial(new_file, table), -(-rows // _parts(files, policy)))
    try:
        merge_into(rewriter, manifest.lake, files, table)
        made = rewriter.finish()
    except BaseException:
        rewriter.abandon()
        raise
    must_be_the_same(files, made)
    return in_place_of(files, made)


def _portions(files: Sequence[LakeFile]) -> Iterator[list[LakeFile]]:
    """In id order, none so large that a merge takes long or is lost with much work."""
    some: list[LakeFile] = []
    size_bytes = 0
    for file in files:
        if some and (size_bytes + file.bytes > _MERGE_BYTES or len(some) == _MERGE_FILES):
            yield some
            some, size_bytes = [], 0
        some.append(file)
        size_bytes += file.bytes
    if some:
        yield some


def _many_tiny(files: Sequence[LakeFile], policy: Policy) -> list[LakeFile]:
    tiny = [file for file in files if file.bytes < policy.target_bytes // _TINY]
    return tiny if len(tiny) >= MANY else []


def _parts(files: Sequence[LakeFile], policy: Policy) -> int:
    return max(1, round(sum(file.bytes for file in files) / policy.target_bytes))
