"""States: the live rows of a table as of an id, so that reading a moment costs what is live and little more, however long the history.

A state is a set of Parquet files under STATES (layout.py), one or more per version: the live rows, each in the columns of the version
of its last change, with that change's system columns. A reader takes the newest state that its moment takes in, and the changes
behind it (replay.py). Deletes are not in a state: a key that is not there was deleted or never was. A table without key has no states, as
all its rows are live.

Why that is right. Let S be a state at id N, made of the files F that the commits up to C knew. For a moment that takes in S, the newest
change of a key is (a) behind N: it is in the delta, and the key's row in S is passed over; or (b) at or before N: then it is in F, as
a file that came after C with a change at or before N makes S void; so S has it if it is no delete, and nothing if it is one. What a
clear ends is passed over in a state as in all files: states with such rows are not used for moments behind the clear.

When one is due. As soon as the changes behind the newest state are as many as its rows, and at least STATE_CHANGES. So reading costs
at most twice the live rows and STATE_CHANGES changes, and all states together hold no more rows than the history has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import uuid4

from headrace.lake.commit import Manifest
from headrace.lake.layout import STATES, LakeFile
from headrace.lake.moment import Moment
from headrace.lake.parquet import open_file, row_groups_in, table_in
from headrace.lake.records import LakeState, Shard, shard_of
from headrace.lake.replay import Replay
from headrace.lake.reshape import Reshape
from headrace.lake.rewrite import NewFile, write_by_version
from headrace.lake.versions import schemas_of
from headrace.storage.base import FileTree

STATE_CHANGES = 1_000_000
_FILE_ROWS = 1_000_000


def newest_state(manifest: Manifest, table: str, shard: Shard, moment: Moment) -> LakeState | None:
    """The state from which that moment costs least; None when there is none."""
    fit = [
        state
        for state in sound_states(manifest, table, shard)
        if moment.is_in(state) and (moment.floor is None or all(file.id[0] > moment.floor for file in state.files))
    ]
    return max(fit, key=lambda state: state.id, default=None)


def sound_states(manifest: Manifest, table: str, shard: Shard) -> Iterator[LakeState]:
    """The states of a shard, without those that lack changes that came after they were made."""
    states = [state for state in manifest.states.get(table, []) if state.shard == shard]
    files = [file for file in manifest.tables.get(table, []) if shard_of(file.table) == shard] if states else []
    for state in states:
        if not any(file.since > state.commit and file.id[0] <= state.id for file in files):
            yield state


def due_at(manifest: Manifest, table: str, shard: Shard, least_changes: int) -> int | None:
    """The id at which the next state of a shard is due; None when none is, and for a table that has no key there."""
    last = max(sound_states(manifest, table, shard), key=lambda state: state.id, default=None)
    needed = max(least_changes, last.rows if last else 0)
    behind = 0
    files = [file for file in manifest.tables.get(table, []) if shard_of(file.table) == shard]
    for file in sorted(files, key=lambda file: file.id[1]):
        if last is None or file.id[1] > last.id:
            if behind + file.rows >= needed:
                if not table_in(open_file(manifest.lake, file)).key:
                    return None
                return _end_of(manifest.lake, file, needed - behind, last.id if last else None)
            behind += file.rows
    return None


def _end_of(lake: FileTree, file: LakeFile, rows: int, after: int | None) -> int:
    """The id with which about so many rows of a file behind an id end, by its row groups."""
    for group in row_groups_in(open_file(lake, file)):
        if after is None or group.id[1] > after:
            rows -= group.rows
            if rows <= 0:
                return group.id[1]
    return file.id[1]


def make_state(manifest: Manifest, table: str, shard: Shard, id_: int, new_file: NewFile) -> LakeState:
    """Writes the files of the state as of an id, durably; they count once an edit lists them."""
    clears = [clear for clear in manifest.clears.get(table, []) if clear.id <= id_]
    moment = Moment.of(id_, None).after(clears, shard)
    taken_in = [file for file in manifest.tables[table] if shard_of(file.table) == shard and file.id[0] <= id_]
    known = list(filter(moment.can_touch, taken_in))
    last = newest_state(manifest, table, shard, moment)
    here = moment.above(last.id) if last else moment
    versions = schemas_of(manifest.lake, known)
    newest = versions[max(versions)] if known else None
    files: list[LakeFile] = []
    if newest is not None:
        replay = Replay(
            manifest.lake,
            list(filter(here.can_touch, known)),
            here,
            Reshape(versions, newest),
            last.files if last else (),
        )
        files = write_by_version(replay.live, versions, partial(new_file, directory=STATES), _FILE_ROWS)
    newest_us = max([file.commit_ts[1] for file in taken_in] + [clear.commit_ts_us for clear in clears])
    return LakeState(uuid4().hex, shard, id_, newest_us, manifest.number, tuple(files))
