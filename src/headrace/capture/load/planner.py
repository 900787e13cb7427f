"""Divides the tables that are to be loaded into shards, a few ahead of the lanes, and sees each load to its end (plan.py).

A shard ends at the key of its last row, which the source is asked for when the shard is planned (after the last shard's, so many rows
on): so shards are equal whatever the keys are like, numbers with gaps, texts or several columns. They are planned as lanes need them,
so a lane that is slow gets fewer. A table's last shard ends at the key that was the largest when its load began: what is added behind
it is captured.

What was loaded is kept apart from the log, for retention may take the plan::

    STATE/sources/<source>/loaded.json     {"tables": {"shop.orders": ISO time of the end, …}, "newest_id": …}

A table whose load was cancelled counts as loaded: it is not begun again unless somebody asks (wishes.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.capture.load import wishes
from headrace.capture.load.base import Key, LoadConfig, Loader, NotYetError, Range
from headrace.capture.load.plan import LARGEST_ID, Load, LoadState, Plan, Progress, lane_topic
from headrace.capture.runner import PARTITION, resume_point
from headrace.crash import crash_point
from headrace.errors import CorruptError, FatalError, storage_error
from headrace.files import replace_file
from headrace.log.base import Log, Span
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema

_AHEAD = 2
"""Shards that wait for a lane."""
_IDS_PER_ROW = 2
"""A shard's range of ids, for rows that come while it is read."""
Json = dict[str, Any]


class Planner:
    """Plans the loads of one source; the only one that writes its plan. `step` does what can be done now."""

    def __init__(
        self, loader: Loader, log: Log, plan: Plan, source: str, *, config: LoadConfig, directory: Path
    ) -> None:
        """`directory`: what the source keeps in the state."""
        self._loader = loader
        self._log = log
        self._plan = plan
        self._source = source
        self._config = config
        self._directory = directory
        self._capture_has_begun = False
        self._has_begun_all = False
        self._progress: dict[int, Progress] = {}
        self._read: dict[int, tuple[int, Progress]] = {}
        self._last_keys: dict[int, Key | None] = {}
        self._ends: dict[int, Callable[[Mark], bool]] = {}
        self.waiting_for = ""
        """Why a table is not planned yet."""

    def step(self, own: Mapping[int, Progress] | None = None) -> bool:
        """Plans what lanes need next; True when everything that is to be loaded has ended. `own`: how far the lanes of this process are."""
        self._plan.refresh()
        self._capture_has_begun = self._capture_has_begun or resume_point(self._log, self._source) is not None
        if not self._capture_has_begun:
            return False  # what is read now could be older than what it begins with
        self.waiting_for = ""
        self._take_requests()
        self._take_cancels()
        if self._config.first and not self._has_begun_all:
            self._has_begun_all = self._begin_new()
        known = dict(own or {})
        progress = {lane: known.get(lane) or self._progress_of(lane) for lane in self._all_lanes()}
        self._progress = progress
        self._give_ids(progress)
        open_loads = {number: state for number, state in self._plan.loads.items() if not state.ended}
        for number, state in open_loads.items():
            if self._is_replaced(state.load):
                self._begin_anew(number, state.load)
                continue
            if not state.planned and not self._plan_more(number, state, progress):
                break  # the lanes have enough to do; one table after the other
            if state.planned and _all_done(state, progress):
                self._end(number, state)
        all_ended = all(state.ended for state in self._plan.loads.values())
        return all_ended and not any(wishes.requests(self._directory)) and not self.waiting_for

    def figures(self) -> dict[str, Json]:
        """Per table that is being or was loaded in this plan: rows it was thought to have, shards, how many of them were done when
        `step` looked."""
        return {state.load.name: _figures(state, self._progress) for state in self._plan.loads.values()}

    # --- what is to be loaded

    def _begin_new(self) -> bool:
        """Whether every table that was not loaded is begun; a table that capture has not come to is begun later."""
        complete = True
        loaded = self._loaded()["tables"]
        begun = {state.load.name for state in self._plan.loads.values()}
        for schema, table in self._loader.names():
            name = f"{schema}.{table}"
            if name not in loaded and name not in begun and not self._config.excludes(schema, table):
                found = self._table(schema, table)
                complete = complete and found is not None
                if found is not None and found[0] is not None:
                    # What is older than an end of the table counts as gone, and so would rows with negative ids.
                    self._begin(found[0], again=self._loader.has_past(schema, table))
        return complete

    def _take_requests(self) -> None:
        for path, request in wishes.requests(self._directory):
            begun = {(state.load.request, state.load.name) for state in self._plan.loads.values()}
            missing = [name for name in request.tables if (path.stem, ".".join(name)) not in begun]
            tables = [self._table(*name) for name in missing]
            for found in tables:
                if found is not None and found[0] is not None:
                    self._begin(found[0], again=True, where=request.where, request=path.stem)
            if None not in tables:
                path.unlink()

    def _take_cancels(self) -> None:
        for path, numbers in wishes.cancels(self._directory):
            for number in numbers:
                state = self._plan.loads.get(number)
                if state is not None and not state.ended:
                    self._remember(state.load)
                    self._plan.ended(number, cancelled=True)
            path.unlink()

    def _table(self, schema: str, name: str) -> tuple[TableSchema | None] | None:
        """A table as it is (None in the tuple: it is not there any more); None while capture has not come to it."""
        try:
            return (self._loader.table(schema, name),)
        except NotYetError as error:
            self.waiting_for = error.message
            return None

    def _begin(self, table: TableSchema, *, again: bool, where: str = "", request: str = "") -> None:
        mark = resume_point(self._log, self._source)
        assert mark is not None, "capture has begun"
        space = table.namespace
        # One more load of the table at the same mark must win against the one before.
        name = (space.schema, space.table)
        loads = [state.load for state in self._plan.loads.values()]
        earlier = [load.id for load in loads if load.again and (load.schema, load.table) == name]
        id_ = max([mark.id, *(before + 2 for before in earlier)]) if again else mark.id
        order, rows = self._loader.order(table), self._loader.estimated_rows(table)
        self._plan.begin(Load(*name, where, again, id_, mark.commit_ts_us, rows, order, request))

    def _is_replaced(self, load: Load) -> bool:
        """Another table has been put under the name since the load began, and capture has come there."""
        replaced_at = self._loader.replaced_at(load.schema, load.table)
        if replaced_at is None or replaced_at <= load.id:
            return False
        mark = resume_point(self._log, self._source)
        return mark is not None and mark.id >= replaced_at

    def _begin_anew(self, number: int, load: Load) -> None:
        """What was read so far is not enough: the table is loaded again from its beginning."""
        found = self._table(load.schema, load.table)
        if found is None:
            return
        if found[0] is not None:
            self._begin(found[0], again=True, where=load.where, request=load.request)
        self._plan.ended(number)
        self._has_begun_all = False  # the table that had the name may have another one now

    # --- shards

    def _all_lanes(self) -> list[int]:
        return sorted({*range(1, self._config.workers + 1), *self._plan.lanes})

    def _progress_of(self, lane: int) -> Progress:
        """How far a lane of another process is. Its newest mark stands behind rows, so it is read only when there is a newer one."""
        span = self._log.spans(lane_topic(self._source, lane)).get(PARTITION, Span(0, 0))
        stop, progress = self._read.get(lane, (-1, Progress()))
        if stop != span.stop:
            progress = Progress.of(self._log, self._source, lane)
            self._read[lane] = span.stop, progress
        return progress

    def _plan_more(self, number: int, state: LoadState, progress: Mapping[int, Progress]) -> bool:
        """Plans shards of a table as lanes need them; False when they need no more for now."""
        load = state.load
        found = self._table(load.schema, load.table)
        if found is None:
            return True
        table = found[0]
        if table is None or self._config.excludes(load.schema, load.table):
            self._plan.planned(number)
            self._has_begun_all = self._has_begun_all and table is not None  # it may have another name now
        elif self._loader.order(table) != load.order:
            self._begin_anew(number, load)  # keys of the plan are not keys any more
        else:
            self._plan_shards(number, state, table, progress)
            return state.planned
        return True

    def _plan_shards(self, number: int, state: LoadState, table: TableSchema, progress: Mapping[int, Progress]) -> None:
        load = state.load
        if number not in self._last_keys:
            self._last_keys[number] = self._loader.last_key(table, load.where)
        to = self._last_keys[number]
        while not state.planned and (lane := self._hungry(progress)) is not None:
            before = state.shards[-1].range if state.shards else None
            after = before.to if before else None
            end = self._loader.key_behind(table, Range(after, to), load.where, self._config.chunk_rows) if to else None
            rows = max(self._config.chunk_rows, 0 if to else load.rows)
            self._plan.shard(lane, number, Range(after, end or to), self._ids(rows) if not load.again else None)
            crash_point("load.planned")
            if end is None or end == to:
                self._plan.planned(number)

    def _hungry(self, progress: Mapping[int, Progress]) -> int | None:
        """The lane that has least before it, when that is not enough."""
        waiting = {lane: self._plan.waiting(lane, progress[lane]) for lane in range(1, self._config.workers + 1)}
        lane = min(waiting, key=lambda lane: waiting[lane])
        return lane if waiting[lane] < _AHEAD else None

    def _give_ids(self, progress: Mapping[int, Progress]) -> None:
        for lane, reached in progress.items():
            shard = self._plan.first_open(lane, reached) if reached.wants_ids else None
            if shard is not None and self._plan.more_ids.get(shard.number, (reached.next_id, 0))[0] <= reached.next_id:
                self._plan.give_ids(shard, self._ids(self._config.chunk_rows))

    def _ids(self, rows: int) -> tuple[int, int]:
        first = max(self._plan.newest_id, self._loaded()["newest_id"]) + 1
        last = first + _IDS_PER_ROW * rows - 1
        if last > LARGEST_ID:
            raise FatalError(
                f"source {self._source} has used up the ids for rows of a first load, 10 billion",
                fix="give the source a new name, and load the rest of its tables under it",
            )
        return first, last

    # --- the end of a load

    def _end(self, number: int, state: LoadState) -> None:
        load = state.load
        if not self._has_captured_all(number) or self._is_replaced(load):
            return
        if load.again and not load.where and not state.is_clearing:
            # Behind all shards, so that the target is not without the rows for longer than it must.
            self._plan.clear(state.shards[-1].lane if state.shards else 1, number)
            return
        self._remember(load)
        crash_point("load.remembered")
        self._plan.ended(number)

    def _has_captured_all(self, number: int) -> bool:
        """Whether capture has come to where the source's log ended when all rows had been read: what it has not met by then has not
        happened to them."""
        if number not in self._ends:
            self._ends[number] = self._loader.end_of_log()
        mark = resume_point(self._log, self._source)
        if mark is not None and self._ends[number](mark):
            return True
        self.waiting_for = "capture has not come to where the log ended when tables had been read"
        return False

    def _remember(self, load: Load) -> None:
        loaded = self._loaded()
        loaded["tables"][load.name] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        loaded["newest_id"] = max(loaded["newest_id"], self._plan.newest_id)
        replace_file(self._directory / "loaded.json", json.dumps(loaded, indent=1).encode())

    def _loaded(self) -> Json:
        path = self._directory / "loaded.json"
        try:
            found: Json = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {"tables": {}, "newest_id": self._plan.newest_id}
        except OSError as error:
            raise storage_error("read", path, error) from error
        except ValueError as error:
            raise CorruptError(
                f"{path} is damaged: {error}",
                fix="restore it from its copy, or remove it: all tables are then loaded again",
            ) from error
        return found


def _all_done(state: LoadState, progress: Mapping[int, Progress]) -> bool:
    return all(progress[shard.lane].has_done(shard) for shard in state.shards)


def _figures(state: LoadState, progress: Mapping[int, Progress]) -> Json:
    done = sum(progress.get(shard.lane, Progress()).has_done(shard) for shard in state.shards)
    return {
        "rows_expected": state.load.rows,
        "shards": len(state.shards),
        "shards_done": done,
        "planned": state.planned,
        "ended": state.ended,
        "cancelled": state.cancelled,
    }
