"""What the server that leads notes of processes: each change under the fence of its lease, together with the event that tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from headrace.control.journal import tell
from headrace.control.launch import End
from headrace.control.pipelines import Pipeline, UnknownError, read_pipeline_row
from headrace.control.placement import Placement, read_placement
from headrace.control.tables import EVENTS, KEPT_US, LEASES, PIPELINES, RUNS, ControlDatabase
from headrace.errors import FencedError

State = Literal["launching", "running", "stopping", "ended"]
_LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Lease:
    """That a server leads. Fences grow with each change of the leader."""

    holder: str
    fence: int


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, and until when it does so without saying it again."""

    holder: str
    address: str
    until_us: int


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a pipeline; `id` is that of its launch. `attempt` counts those that failed one after the other."""

    id: str
    pipeline: str
    revision: int
    generation: int
    placement: Placement
    state: State
    host: str
    pid: int | None
    attempt: int
    asked_us: int
    began_us: int | None
    stopping_us: int | None
    ended_us: int | None
    code: int | None
    why: str
    fix: str


class Runs:
    """All runs of a store, and the lease that says who may change them."""

    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def lead(self, holder: str, address: str, seconds: float) -> Lease | None:
        """A lease for so long when nobody else has one."""
        now_us = self._now_us()
        mine = {"holder": holder, "address": address, "until_us": now_us + round(seconds * 1e6)}
        with self._database.transaction() as connection:
            row = (
                connection.execute(select(LEASES).where(LEASES.c.name == _LEADER).with_for_update()).mappings().first()
            )
            if row is None:
                connection.execute(insert(LEASES).values(name=_LEADER, fence=1, **mine))
                return Lease(holder, 1)
            if row["holder"] != holder and row["until_us"] >= now_us:
                return None
            fence = row["fence"] + (row["holder"] != holder)
            connection.execute(update(LEASES).where(LEASES.c.name == _LEADER).values(fence=fence, **mine))
            return Lease(holder, fence)

    def resign(self, lease: Lease) -> None:
        """Lets another server lead at once."""
        with self._database.transaction() as connection:
            mine = update(LEASES).where(LEASES.c.name == _LEADER, LEASES.c.holder == lease.holder)
            connection.execute(mine.values(until_us=0))

    def leader(self) -> Leader | None:
        """Who leads now."""
        with self._database.transaction() as connection:
            row = connection.execute(select(LEASES).where(LEASES.c.name == _LEADER)).mappings().first()
        if row is None or row["until_us"] < self._now_us():
            return None
        return Leader(row["holder"], row["address"], row["until_us"])

    def newest(self) -> list[tuple[Pipeline, Run | None]]:
        """Each pipeline with its newest run, by name."""
        with self._database.transaction() as connection:
            runs = {row["id"]: _run(row) for row in connection.execute(_NEWEST).mappings()}
            rows = connection.execute(select(PIPELINES).order_by(PIPELINES.c.name)).mappings()
            return [(pipeline, runs.get(pipeline.run or "")) for pipeline in map(read_pipeline_row, rows)]

    def of(self, pipeline: str, limit: int = 50) -> list[Run]:
        """The newest first."""
        newest = select(RUNS).where(RUNS.c.pipeline == pipeline).order_by(RUNS.c.asked_us.desc()).limit(limit)
        with self._database.transaction() as connection:
            return [_run(row) for row in connection.execute(newest).mappings()]

    def get(self, pipeline: str, run: str) -> Run:
        """UnknownError when the pipeline has none of that id."""
        with self._database.transaction() as connection:
            wanted = select(RUNS).where(RUNS.c.id == run, RUNS.c.pipeline == pipeline)
            row = connection.execute(wanted).mappings().first()
        if row is None:
            raise UnknownError(f"pipeline {pipeline} has no run {run}", fix="list its runs")
        return _run(row)

    def launching(self, lease: Lease, run: str, of: Pipeline, host: str, attempt: int) -> bool:
        """Notes a launch before it is made; False when what is wanted has changed meanwhile."""
        with self.fenced(lease) as connection:
            unchanged = (
                PIPELINES.c.name == of.name,
                PIPELINES.c.generation == of.generation,
                PIPELINES.c.wanted == "running",
            )
            if not connection.execute(update(PIPELINES).where(*unchanged).values(run=run)).rowcount:
                return False
            what = {"pipeline": of.name, "revision": of.revision, "generation": of.generation, "attempt": attempt}
            how = {
                "placement": of.placement.model_dump_json(),
                "state": "launching",
                "host": host,
                "why": "",
                "fix": "",
            }
            connection.execute(insert(RUNS).values(id=run, asked_us=self._now_us(), **what, **how))
            again = f", attempt {attempt}" if attempt > 1 else ""
            message = f"revision {of.revision} is being started ({of.placement.type}{again})"
            tell(connection, self._now_us(), of.name, kind="launching", message=message, run=run)
            self._forget_old(connection, of.name)
            return True

    def running(self, lease: Lease, run: Run, host: str, pid: int) -> None:
        """The process has claimed its launch."""
        values = {"state": "running", "host": host, "pid": pid, "began_us": self._now_us()}
        self._note(lease, run, "running", f"process {pid} on {host} is at work", values)

    def stopping(self, lease: Lease, run: Run, why: str) -> None:
        """It is told to stop."""
        self._note(lease, run, "stopping", why, {"state": "stopping", "stopping_us": self._now_us()})

    def ended(self, lease: Lease, run: Run, end: End, kind: str) -> None:
        """There is no process any more. `kind`: stopped, failed or lost."""
        values = {"state": "ended", "ended_us": self._now_us(), "code": end.code, "why": end.why, "fix": end.fix}
        self._note(lease, run, kind, end.why, values)

    def tell(self, lease: Lease, run: Run, kind: str, message: str) -> None:
        """An event that changes nothing."""
        with self.fenced(lease) as connection:
            tell(connection, self._now_us(), run.pipeline, kind=kind, message=message, run=run.id)

    def _forget_old(self, connection: Connection, pipeline: str) -> None:
        before_us = self._now_us() - KEPT_US
        old_events = (EVENTS.c.pipeline == pipeline, EVENTS.c.at_us < before_us)
        old_runs = (RUNS.c.pipeline == pipeline, RUNS.c.asked_us < before_us, RUNS.c.state == "ended")
        connection.execute(delete(EVENTS).where(*old_events))
        connection.execute(delete(RUNS).where(*old_runs))

    def _note(self, lease: Lease, run: Run, kind: str, message: str, values: dict[str, Any]) -> None:
        with self.fenced(lease) as connection:
            connection.execute(update(RUNS).where(RUNS.c.id == run.id).values(**values))
            tell(connection, self._now_us(), run.pipeline, kind=kind, message=message, run=run.id)

    @contextmanager
    def fenced(self, lease: Lease) -> Iterator[Connection]:
        """A transaction of the server that leads; FencedError when another one has led since."""
        with self._database.transaction() as connection:
            fence = connection.scalar(select(LEASES.c.fence).where(LEASES.c.name == _LEADER).with_for_update())
            if fence != lease.fence:
                raise FencedError("another server leads now", fix="nothing needs to be done: it goes on")
            yield connection

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)


_NEWEST = select(RUNS).join(PIPELINES, PIPELINES.c.run == RUNS.c.id)


def _run(row: RowMapping) -> Run:
    return Run(**{**row, "placement": read_placement(row["placement"])})
