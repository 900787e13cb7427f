"""Following epochs: long-lived Spark tasks that follow the log and write to the targets themselves.

Spark sees a stream whose offset is just a number, the epoch. `latestOffset` is always one more than the start. The tasks of an
epoch (one per source that captures, one per source that delivers) begin where their last epoch ended, work for the epoch's
length, make their end durable in the ledger and hand their figures to the driver as rows.

::

    driver     plan epoch n ──────────────────────────────────────────────> foreachBatch(n)   commit n      plan n+1 …
    task       S0 read ledger (n-1)   S1 work: append / write + commit …   S2 ledger n   S3 yield message

Crash story. A kill at each of these points loses nothing and repeats nothing in effect:

* ``epoch.started`` (S0) nothing was done; the epoch runs again from the end of n-1.
* ``epoch.working`` (S1) between commits. Capture: changes and mark are in the log as one unit or not at all, the next attempt
  resumes at the newest mark. Lake: files and log position are visible in one atomic commit or not at all, the next attempt asks
  the lake for its position. Databases: rows and position are one transaction, likewise. A store that cannot remember a position:
  the next attempt starts from the end of n-1 and writes changes again; only a larger `_ums_id_` wins, so that changes nothing.
* ``epoch.finished`` (before S2) as S1: all is in the targets, the ledger does not know; the epoch runs again, from its start.
* ``epoch.recorded`` (after S2) the ledger knows, Spark does not; Spark runs epoch n again, the task finds n in the ledger and hands
  out the recorded message without doing anything.
* after S3 Spark's commit of n may be missing: as the row above.

Two attempts at once (a zombie on a lost executor): the log fences the older capture, the lake refuses a commit that does not go
on from its own position, databases take repeats, and the ledger keeps the first end of an epoch.

The numbers of Spark's checkpoint need not fit the ledger: an epoch not above the ledger's newest is answered from the ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from headrace.crash import crash_point
from headrace.errors import HeadraceError
from headrace.stream.ledger import Ended, Ledger
from headrace.stream.rundir import RunDirectory, Until
from headrace.stream.tasks import Run, Task, tasks_of, unexpected

FORMAT = "headrace-epochs"
SCHEMA = "task string, epoch long, message string"
Json = dict[str, Any]


def run_epoch(run: Run, task: Task, epoch: int) -> Json:
    """Runs one epoch of a task, or hands out (marked `again`) what the ledger has of it; returns its message for the driver."""
    directory = RunDirectory(run.directory)
    try:
        ledger = _ledger(run, task)
        last = ledger.newest()
        if last is not None and epoch <= last.epoch:
            return {**last.message, "idle": False, "again": True}
        crash_point("epoch.started")
        began_ms = time.time_ns() // 1_000_000
        # When another task has ended this epoch before a crash, nobody sits it out alone.
        epoch_s = 0.0 if newest_epoch(run) >= epoch else run.pipeline.epoch
        state, message = task.work(last.state if last else {}, Until(directory, epoch, epoch_s))
        crash_point("epoch.finished")
        times = {"began_ms": began_ms, "ended_ms": time.time_ns() // 1_000_000}
        ended = ledger.end(Ended(epoch, state, {**message, **times}))
        crash_point("epoch.recorded")
    except HeadraceError as error:
        directory.fail(task.name, error)
        raise
    except Exception as error:
        failure = unexpected(task.name, error)
        directory.fail(task.name, failure)
        raise failure from error
    return ended.message


def newest_epoch(run: Run) -> int:
    """The newest epoch that any task has ended; 0 when there is none."""
    ended = [_ledger(run, task).newest() for task in tasks_of(run)]
    return max((each.epoch for each in ended if each is not None), default=0)


def _ledger(run: Run, task: Task) -> Ledger:
    return Ledger(run.pipeline.state / "epochs" / task.name)


class _Slot(InputPartition):
    def __init__(self, task: Task, epoch: int) -> None:
        super().__init__(None)
        self.task = task
        self.epoch = epoch


class EpochReader(DataSourceStreamReader):
    """Tells Spark that the next epoch is always there, until a stop was requested."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        # Without a checkpoint Spark begins here: where the ledger is, not at the beginning of time.
        return {"epoch": newest_epoch(self._run)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        if RunDirectory(self._run.directory).stop_requested():
            time.sleep(0.1)
            return start
        return {"epoch": int(start["epoch"]) + 1}

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        return [_Slot(task, int(end["epoch"])) for task in tasks_of(self._run)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, str]]:
        assert isinstance(partition, _Slot)
        message = run_epoch(self._run, partition.task, partition.epoch)
        yield partition.task.name, partition.epoch, json.dumps(message)


class EpochDataSource(DataSource):
    """The Python data source behind `headrace run`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> EpochReader:  # noqa: N802
        return EpochReader(Run.from_option(self.options["secret"]))
