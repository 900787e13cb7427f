"""What is to be loaded, as records on the log, so that any worker can take any of it and nothing depends on who lives.

Topics of a source ``db1``::

    db1           what capture writes
    db1.load      the plan: JSON records, written by the planner                         (this module)
    db1.load.1    rows that lane 1 has read: [block, mark] as one unit per part          (worker.py)
    db1.load.2    …

A *lane* is one topic and whoever reads for it. Records of the plan, their key in brackets::

    [plan]    {"kind":"begin","schema":…,"table":…,"where":…,"again":…,"id":…,"commit_ts_us":…,"rows":estimate,"order":[column, …],"request":…}
    [lane-n]  {"kind":"shard","load":offset of its begin,"after":key|null,"to":key|null,"ids":[first,last]|null}
    [lane-n]  {"kind":"ids","shard":offset of the shard,"ids":[first,last]}          more ids for a shard that grew
    [plan]    {"kind":"planned","load":…}                                            no more shards
    [lane-n]  {"kind":"clear","load":…}                                              rows that a reload did not find are gone
    [plan]    {"kind":"ended","load":…}                                               every lane is through

The number of a shard (or clear) is its offset in the plan: it only grows, whatever retention takes. The mark of a lane's unit says how
far the lane has come::

    {"shard": number, "key": key up to which it is read, "next_id": …, "done": true|false, "wants_ids": true|false}

Ids, and why the end is right whatever is interleaved with what (the rule of sinks: the larger id wins, a delete leaves a tombstone):

* *First load.* Rows have unique negative ids, each shard from a range of its own: older than every captured change. A chunk is read
  after capture has begun. So a row that was changed since capture began is captured with a larger id and wins; a row that was
  deleted since leaves a tombstone that wins; and a row that was not changed since is what the chunk says.
* *Load again.* With P the id of the newest mark when the load began, all rows have the id P + 1: larger than every change before the
  mark, smaller than every one after it (a transaction begins with more bytes than that). What was changed after P wins as above; what
  was not is what the chunk says, and repairs whatever the target had. A row that the target has and the source had not, neither at P
  nor since, has an id below P and no chunk brings it: a clear at P ends it. Loads at the same mark take the next two ids.
* *Another table is put under the name* (RENAME, at id R) while a load that began at P < R goes on. No row of it is in the log, and what
  the load has read of it has ids below R, as what it has read of the old one has: a clear at R ends both. So the table is loaded again
  from a mark that is not before R, and that is a load as above. To know of R in time, a load does not end before capture has come to
  where the source's log ended when all had been read: every RENAME that a chunk could have met stands before that place.

Crash story. A unit of a lane is there or not, so its rows and how far it has come cannot disagree: a worker that dies reads on from its
newest mark. A planner that dies goes on from the last shard's `to`. Reading is repeated at most for one part per lane.
"""

from __future__ import annotations

import bisect
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.capture.load.base import Key, Range
from headrace.capture.runner import PARTITION
from headrace.codec.entries import EntryReader
from headrace.codec.ums import is_mark
from headrace.log.base import Entry, Log, Span, last
from headrace.ums.change import Mark

SMALLEST_ID, LARGEST_ID = -(10**10) + 1, -1
_PLAN = b"plan"
Json = dict[str, Any]


def plan_topic(source: str) -> str:
    """Where the plan of a source stands."""
    return f"{source}.load"


def lane_topic(source: str, lane: int) -> str:
    """Where the rows of a lane (from 1) stand."""
    return f"{source}.load.{lane}"


def is_lane_topic(topic: str) -> bool:
    """Whether rows of a full load stand there; names of sources have no dots."""
    return ".load." in topic


@dataclass(frozen=True, slots=True)
class Load:
    """One table that is loaded once."""

    schema: str
    table: str
    where: str
    """SQL that chooses rows; empty: all."""
    again: bool
    """The table was captured or loaded before: what is there is repaired."""
    id: int
    """Of the mark before which nothing was read. When `again`, rows have the id behind it, and what has a smaller one is cleared."""
    commit_ts_us: int
    """Of that mark."""
    rows: int
    """How many rows it was thought to have."""
    order: tuple[str, ...] = ()
    """The columns that keys are of; none: the table is read as one."""
    request: str = ""
    """Who asked for it; empty: the configuration."""

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a table for one lane."""

    number: int
    lane: int
    load: int
    range: Range | None
    """None: no rows to read; what the load did not find is to be cleared."""
    ids: tuple[int, int] | None = None
    """The first and the last id that its rows may have; None when they all have the id of the load."""


@dataclass(slots=True)
class LoadState:
    """What the plan says about a load."""

    load: Load
    shards: list[Shard] = field(default_factory=list)
    planned: bool = False
    ended: bool = False
    cancelled: bool = False
    """It has ended before its end: what it had read by then stays."""

    @property
    def is_clearing(self) -> bool:
        return bool(self.shards) and self.shards[-1].range is None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a lane has come."""

    shard: int = -1
    key: Key | None = None
    next_id: int = 0
    done: bool = True
    wants_ids: bool = False

    def to_json(self) -> Json:
        """The form that marks carry."""
        return asdict(self)

    @classmethod
    def of(cls, log: Log, source: str, lane: int) -> Progress:
        """The newest mark of a lane."""
        record = last(log, lane_topic(source, lane), PARTITION, is_mark)
        if record is None:
            return cls()
        mark = EntryReader().read(record.entry)
        assert isinstance(mark, Mark)
        found = mark.position
        return cls(**{**found, "key": _key(found["key"])})

    def has_done(self, shard: Shard) -> bool:
        return self.shard > shard.number or (self.shard == shard.number and self.done)


class Plan:
    """The plan as far as it has been read. `refresh` reads on."""

    def __init__(self, log: Log, source: str) -> None:
        self._log = log
        self._topic = plan_topic(source)
        self._offset = 0
        self.loads: dict[int, LoadState] = {}
        """By the offset of their begin."""
        self.lanes: dict[int, list[Shard]] = {}
        """What each lane has to do and to have done, in order."""
        self.more_ids: dict[int, tuple[int, int]] = {}
        """Per shard the newest ids that were given besides."""
        self.newest_id = SMALLEST_ID - 1
        """The largest id that was given to anybody."""

    def refresh(self) -> None:
        """Reads what has been added."""
        span = self._log.spans(self._topic).get(PARTITION, Span(0, 0))
        for record in self._log.read(self._topic, PARTITION, Span(max(self._offset, span.start), span.stop)):
            self._take(record.offset, record.entry.key, json.loads(record.entry.value))
        self._offset = span.stop

    def first_open(self, lane: int, progress: Progress) -> Shard | None:
        """What a lane that has come so far does next; None when it is through."""
        return next(self._open(lane, progress), None)

    def waiting(self, lane: int, progress: Progress) -> int:
        """How many shards a lane that has come so far has not done."""
        return sum(1 for _ in self._open(lane, progress))

    def _open(self, lane: int, progress: Progress) -> Iterator[Shard]:
        shards = self.lanes.get(lane, [])
        at = bisect.bisect_left(shards, progress.shard, key=lambda shard: shard.number)
        return (s for s in shards[at:] if not (progress.has_done(s) or self.loads[s.load].ended))

    def wait(self, timeout_s: float) -> None:
        """Returns when something was added, at the latest after `timeout_s`."""
        self._log.wait(self._topic, PARTITION, self._offset, timeout_s)

    # --- the planner's part

    def begin(self, load: Load) -> None:
        self._add(_PLAN, "begin", asdict(load))

    def shard(self, lane: int, load: int, range_: Range, ids: tuple[int, int] | None) -> None:
        self._add(_lane_key(lane), "shard", {"load": load, "after": range_.after, "to": range_.to, "ids": ids})

    def give_ids(self, shard: Shard, ids: tuple[int, int]) -> None:
        self._add(_lane_key(shard.lane), "ids", {"shard": shard.number, "ids": ids})

    def planned(self, load: int) -> None:
        self._add(_PLAN, "planned", {"load": load})

    def clear(self, lane: int, load: int) -> None:
        self._add(_lane_key(lane), "clear", {"load": load})

    def ended(self, load: int, *, cancelled: bool = False) -> None:
        self._add(_PLAN, "ended", {"load": load, "cancelled": cancelled})

    def _add(self, key: bytes, kind: str, fields: Mapping[str, object]) -> None:
        value = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode()
        self._log.append(self._topic, PARTITION, [Entry(key, value, time.time_ns() // 1_000_000)])
        self.refresh()

    # --- reading

    def _take(self, offset: int, key: bytes, record: Json) -> None:
        kind = record.pop("kind")
        if kind == "begin":
            self.loads[offset] = LoadState(Load(**{**record, "order": tuple(record["order"])}))
            return
        given = self._given(record["ids"]) if record.get("ids") else None
        if kind == "ids":
            if given is not None:
                self.more_ids[record["shard"]] = given
            return
        state = self.loads.get(record["load"])
        if state is None:
            return  # retention has taken its begin: it is begun anew, or was ended long ago
        if kind == "planned":
            state.planned = True
        elif kind == "ended":
            state.ended = True
            state.cancelled = record.get("cancelled", False)
        else:
            lane = int(key.removeprefix(b"lane-"))
            range_ = Range(_key(record["after"]), _key(record["to"])) if kind == "shard" else None
            shard = Shard(offset, lane, record["load"], range_, given)
            state.shards.append(shard)
            self.lanes.setdefault(lane, []).append(shard)

    def _given(self, ids: list[int]) -> tuple[int, int]:
        self.newest_id = max(self.newest_id, ids[1])
        return ids[0], ids[1]


def _lane_key(lane: int) -> bytes:
    return f"lane-{lane}".encode()


def _key(found: list[str] | None) -> Key | None:
    return None if found is None else tuple(found)
