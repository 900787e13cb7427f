"""A range of a lake's table is replaced by other rows, in one commit: what the lake had in it goes, what is brought comes in its place.

Files that lie in the range are removed; of those that reach out of it the rows outside are written anew. All states of the table end. When
what is brought is what was there (counts and digests say so), nothing is done: so the same replacement twice is one.

Refused are ranges that cannot be replaced rightly: those in which a flow of this lake has not finished, as its rows would come on top; those that
retention has thinned; and those with a clear (TRUNCATE) that the new rows do not have, as no commit can take back a clear.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pyarrow as pa

from headrace.errors import ConfigError, DataError
from headrace.lake.backfill import Range, rows_outside
from headrace.lake.commit import Manifest
from headrace.lake.layout import LakeFile
from headrace.lake.parquet import open_file, table_in
from headrace.lake.records import Cause, Edit, LakeClear, Reached
from headrace.lake.rewrite import NewFile, Rewriter, in_place_of
from headrace.lake.tally import Tally
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import ID, Namespace

_FILE_ROWS = 4_000_000


def replacement(
    manifest: Manifest, table: str, range_: Range, brought: Iterable[ChangeBatch | Clear], new_file: NewFile
) -> Edit | None:
    """The edit that replaces a range of a table; the bytes of its new files are durable. None when the range has what is brought."""
    _may_be_replaced(manifest, table, range_)
    new, clears = _written(brought, new_file)
    known = manifest.clears.get(table, [])
    _must_have(table, clears, list(filter(range_.has_clear, known)))
    removed, kept = _taken_out(manifest, table, range_, new_file)
    came = tuple(clear for clear in clears if clear not in known)
    if not came and _tally(new) == _tally(removed) - _tally(kept):
        for file in (*new, *kept):
            manifest.lake.delete(file.path)
        return None
    return Edit(
        Cause.REPLACE,
        table,
        added=(*kept, *new),
        removed=tuple(file.path for file in removed),
        ended=tuple(state.name for state in manifest.states.get(table, [])),
        cleared=came,
    )


def _tally(files: Iterable[LakeFile]) -> Tally:
    """What the manifest says that files hold."""
    return sum((file.tally for file in files), Tally())


def _written(brought: Iterable[ChangeBatch | Clear], new_file: NewFile) -> tuple[list[LakeFile], list[LakeClear]]:
    """The new rows in files that know no commit yet, and the clears among them."""
    writers: dict[Namespace, Rewriter] = {}
    clears = []
    try:
        for change in brought:
            space = change.table.namespace
            if isinstance(change, Clear):
                clears.append(LakeClear(str(space), change.id, change.commit_ts_us, change.cause))
                continue
            if space not in writers:
                writers[space] = Rewriter(partial(new_file, change.table), _FILE_ROWS)
            writers[space].add(pa.Table.from_batches([change.data]))
        return [file for writer in writers.values() for file in writer.finish()], clears
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise


def _taken_out(
    manifest: Manifest, table: str, range_: Range, new_file: NewFile
) -> tuple[list[LakeFile], list[LakeFile]]:
    """The files that have rows in the range, and new ones with those of their rows that are outside."""
    removed: list[LakeFile] = []
    kept: list[LakeFile] = []
    for file in filter(range_.can_touch, manifest.tables.get(table, [])):
        removed.append(file)
        if range_.covers(file):
            continue
        rewriter = Rewriter(partial(new_file, table_in(open_file(manifest.lake, file))), file.rows)
        try:
            for rows in rows_outside(manifest.lake, file, range_):
                rewriter.add(rows)
            kept += in_place_of([file], rewriter.finish())
        except BaseException:
            rewriter.abandon()
            raise
    return removed, kept


def _may_be_replaced(manifest: Manifest, table: str, range_: Range) -> None:
    """ConfigError when a range of a table cannot be replaced rightly."""
    horizon = manifest.horizons.get(table)
    if horizon is not None and (range_.low is None or range_.low <= _of(range_, horizon.id, horizon.commit_ts_us)):
        raise ConfigError(
            f"what {table} had up to id {horizon.id} was thinned by retention in {manifest.lake.root}",
            fix="replace a range that begins behind it",
        )
    source = Namespace.parse(f"{table}.0.0.0").source
    for stream, reached in manifest.reached.items():
        if stream.topic == source and not _has_passed(range_, reached):
            raise ConfigError(
                f"flow {stream.flow} has come to id {reached.id} in {manifest.lake.root}, and brings what is behind it by itself",
                fix="replace a range that ends before that, with --to",
            )


def _has_passed(range_: Range, reached: Reached) -> bool:
    return range_.high is not None and range_.high <= _of(range_, reached.id + 1, reached.commit_ts_us)


def _of(range_: Range, id_: int, commit_ts_us: int) -> int:
    return id_ if range_.column == ID else commit_ts_us


def _must_have(table: str, brought: list[LakeClear], known: list[LakeClear]) -> None:
    lost = [clear for clear in known if clear not in brought]
    if lost:
        raise DataError(
            f"{table} was cleared ({lost[0].cause}, id {lost[0].id}) in this range, which the changes that are to take its place do not have",
            fix="replace ranges before and behind that id",
        )
