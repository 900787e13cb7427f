"""Reads the shards of one lane into the lane's topic (drawing, ids and crash story: plan.py)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.capture.error_ledger import counted, masked_for, told
from headrace.capture.load.base import Loader, NotYetError, Part, Range
from headrace.capture.load.plan import Load, Plan, Progress, Shard, lane_topic
from headrace.capture.mask import Masker
from headrace.capture.runner import PARTITION
from headrace.codec.entries import EntryWriter
from headrace.crash import crash_point
from headrace.errors import SourceError
from headrace.log.base import Log, entry_form
from headrace.ums.change import INSERT, Cause, ChangeBatch, Clear, Mark
from headrace.ums.schema import RAW, TableSchema

_PART_ROWS = 25_000
_LOOK_EVERY_S = 0.1


@dataclass(slots=True)
class Loaded:
    """What a worker has done since it started."""

    rows: Counter[str] = field(default_factory=Counter)
    """Rows per namespace."""
    failed: Counter[str] = field(default_factory=Counter)
    """Rows per namespace that are in the error ledger instead."""
    notices: list[str] = field(default_factory=list)
    """What a person must know of rows that were read and are not in the log."""


class Worker:
    """Loads for one lane; the only one that writes its topic."""

    def __init__(
        self,
        loader: Loader,
        log: Log,
        plan: Plan,
        source: str,
        lane: int,
        *,
        source_type: str,
        masker: Masker,
        rows_per_s: float | None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._loader = loader
        self._log = log
        self._plan = plan
        self._source = source
        self.lane = lane
        self._source_type = source_type
        self._masker = masker
        self._writer: EntryWriter | None = None
        self._topic = lane_topic(source, lane)
        self._rows_per_s = rows_per_s
        self._clock = clock
        self._sleep = sleep
        self.loaded = Loaded()
        self.progress = Progress.of(log, source, lane)

    def next(self) -> Shard | None:
        """What is to be done now; None when nothing is."""
        shard = self._plan.first_open(self.lane, self.progress)
        return shard if shard is not None and self._may_go_on(shard) else None

    def work(self, shard: Shard, over: Callable[[], bool]) -> Iterator[None]:
        """Reads a shard to its end, or until `over()`, or until it has used up its ids; yields after each unit."""
        load = self._plan.loads[shard.load].load
        if self.progress.shard != shard.number:
            self.progress = Progress(shard.number, next_id=shard.ids[0] if shard.ids else load.id + 1, done=False)
        elif self.progress.wants_ids:
            first, _ = self._plan.more_ids[shard.number]
            self.progress = replace(self.progress, next_id=first, wants_ids=False)
        table = self._loader.table(load.schema, load.table)
        if shard.range is None:
            self._clear(table, load)
            yield
        elif table is None:
            # Dropped since it was planned: there is nothing to load, and what it had is capture's to tell.
            self._append([], load, replace(self.progress, done=True))
        elif self._loader.order(table) != load.order:
            raise NotYetError(
                f"the key of {load.name} has changed since its load was planned",
                fix="wait: it is planned anew",
            )
        else:
            yield from self._read(shard, shard.range, load, table, over)

    def _read(
        self, shard: Shard, range_: Range, load: Load, table: TableSchema, over: Callable[[], bool]
    ) -> Iterator[None]:
        began_s, read = self._clock(), 0
        batch_rows = _PART_ROWS if self._rows_per_s is None else max(1, min(_PART_ROWS, int(self._rows_per_s)))
        rest = Range(self.progress.key, range_.to) if self.progress.key is not None else range_
        last_id = self._last_id(shard)
        for part in self._loader.read(table, rest, load.where, batch_rows):
            crash_point("load.read")
            fitting = part.data.num_rows if last_id is None else last_id - self.progress.next_id + 1
            if fitting < part.data.num_rows:
                # The shard has grown beyond its ids: the planner gives more, and the part is read again.
                self._append([], load, replace(self.progress, wants_ids=True))
                yield
                return
            self._take(part, load, table, last_id)
            crash_point("load.appended")
            yield
            read += part.data.num_rows
            if over():
                return
            self._slow_down(read, began_s, over)
        self._append([], load, replace(self.progress, done=True))
        yield

    def _last_id(self, shard: Shard) -> int | None:
        """The largest id that the shard's rows may have now."""
        if shard.ids is None:
            return None
        return self._plan.more_ids.get(shard.number, shard.ids)[1]

    def _may_go_on(self, shard: Shard) -> bool:
        if self.progress.shard != shard.number or not self.progress.wants_ids:
            return True
        given = self._plan.more_ids.get(shard.number)
        return given is not None and given[0] > self.progress.next_id

    def _take(self, part: Part, load: Load, table: TableSchema, last_id: int | None) -> None:
        rows, first = part.data.num_rows, self.progress.next_id
        ids = pa.repeat(pa.scalar(first, pa.int64()), rows)
        if last_id is not None:
            ids = pa.arange(first, first + rows)  # type: ignore[attr-defined]  # the stubs lack it
        batch = ChangeBatch(table, as_inserts(table, part.data, ids, round(self._clock() * 1e6), load.commit_ts_us))
        progress = replace(
            self.progress,
            key=part.last or self.progress.key,
            next_id=first if last_id is None else first + rows,
        )
        self._append([batch], load, progress)
        self.loaded.rows[str(table.namespace)] += rows

    def _clear(self, table: TableSchema | None, load: Load) -> None:
        changes = [] if table is None else [Clear(table, load.id, load.commit_ts_us, Cause.RELOADED)]
        self._append(changes, load, replace(self.progress, done=True))

    def _append(self, changes: Sequence[ChangeBatch | Clear], load: Load, progress: Progress) -> None:
        now_ms = round(self._clock() * 1000)
        mark = Mark(self._source, progress.to_json(), progress.next_id, load.commit_ts_us)
        masked, failed = masked_for(self._topic, changes, self._masker, self._log, now_ms)
        self.loaded.failed.update(counted(failed))
        self.loaded.notices += map(told, failed)
        if self._writer is None:
            self._writer = EntryWriter(entry_form(self._log, self._topic, PARTITION), self._source_type)
        entries = [entry for change in masked for entry in self._writer.changes(change, now_ms)]
        self._log.append(self._topic, PARTITION, [*entries, self._writer.mark(mark, now_ms)])
        self.progress = progress

    def _slow_down(self, read: int, began_s: float, over: Callable[[], bool]) -> None:
        if self._rows_per_s is not None:
            while (ahead_s := read / self._rows_per_s - (self._clock() - began_s)) > 0 and not over():
                self._sleep(min(ahead_s, _LOOK_EVERY_S))


def as_inserts(
    table: TableSchema, rows: pa.RecordBatch, ids: pa.Array[Any], ts_us: int, commit_ts_us: int
) -> pa.RecordBatch:
    """Rows as changes: inserts that were made when they were read."""
    schema = table.arrow_schema()
    if rows.schema.names != [*(column.name for column in table.columns), RAW]:
        raise SourceError(
            f"{table.namespace.all_versions} was read with the columns {rows.schema.names}",
            fix="report this: a loader must bring the table's own",
        )
    system = [
        ids,
        _moments(ts_us, rows.num_rows),
        pa.repeat(pa.scalar(INSERT), rows.num_rows),
        _moments(commit_ts_us, rows.num_rows),
        rows.column(RAW),
    ]
    return pa.RecordBatch.from_arrays([*system, *rows.columns[:-1]], schema=schema)


def _moments(us: int, rows: int) -> pa.Array[Any]:
    return pa.repeat(pa.scalar(us, pa.int64()), rows).view(pa.timestamp("us", "UTC"))
