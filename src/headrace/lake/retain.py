"""Retention: from a horizon on each moment can be restored; of what was before, only what is not overwritten is kept.

Let R be the files whose changes were all committed before the cut. Of each key only the newest change in R is kept, a delete as well, and
what a clear by then has ended is left out; each kept row stays in its version. The horizon is the largest id and the newest commit time
in R. A moment that is not before it takes in all of R; of a key it needs the newest change up to the moment, which is behind R and was
not touched, or the newest in R, which is kept. The table's newest file is never in R, so that its newest shape stays known. Deletes are kept because a change that comes late (a full load) must lose against them.

A table without key has nothing that is overwritten, and is left alone. Another is worked on only when a fair part of R is new since its horizon, so that each row is rewritten few times.
"""

from __future__ import annotations

from headrace.lake.commit import Manifest
from headrace.lake.layout import LakeFile
from headrace.lake.moment import Moment
from headrace.lake.records import Cause, Edit, Horizon, Shard, shard_of
from headrace.lake.replay import Replay
from headrace.lake.reshape import Reshape
from headrace.lake.rewrite import NewFile, in_place_of, write_by_version
from headrace.lake.versions import schemas_of

_NEW_PART = 8
_FILE_ROWS = 4_000_000


def retention(manifest: Manifest, table: str, cut_us: int, new_file: NewFile) -> Edit | None:
    """The edit that gives up what was overwritten before the cut; None when it is not worth it. Its new files are durable."""
    horizon = manifest.horizons.get(table, Horizon(-(2**63), -(2**63)))
    files = sorted(manifest.tables.get(table, []), key=lambda file: file.id[1])
    old = [file for file in files[:-1] if file.commit_ts[1] < cut_us]
    if cut_us <= horizon.commit_ts_us:
        return None
    new_rows = sum(file.rows for file in old if file.commit_ts[1] > horizon.commit_ts_us)
    if not old or new_rows * _NEW_PART < sum(file.rows for file in old):
        return None
    versions = schemas_of(manifest.lake, old)
    if not versions[max(versions)].key:
        return None
    shards: dict[Shard, list[LakeFile]] = {}
    for file in old:
        shards.setdefault(shard_of(file.table), []).append(file)
    until = Horizon(old[-1].id[1], max(file.commit_ts[1] for file in old))
    clears = [
        clear
        for clear in manifest.clears.get(table, [])
        if clear.id <= until.id and clear.commit_ts_us <= until.commit_ts_us
    ]
    moments = {shard: Moment.of(None, None).after(clears, shard) for shard in shards}
    added = [file for shard, files in shards.items() for file in _newest(manifest, files, moments[shard], new_file)]
    return Edit(
        Cause.RETAIN,
        table,
        added=in_place_of(old, added),
        removed=tuple(file.path for file in old),
        ended=tuple(state.name for state in manifest.states.get(table, []) if state.id < until.id),
        horizon=until,
    )


def _newest(manifest: Manifest, files: list[LakeFile], moment: Moment, new_file: NewFile) -> list[LakeFile]:
    left = list(filter(moment.can_touch, files))
    if not left:
        return []
    versions = schemas_of(manifest.lake, left)
    replay = Replay(manifest.lake, left, moment, Reshape(versions, versions[max(versions)]))
    return write_by_version(replay.newest, versions, new_file, _FILE_ROWS)
