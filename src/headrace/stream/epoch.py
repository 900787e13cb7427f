"""Following epochs: long-lived Spark tasks that follow the log and write to the targets themselves.

Spark sees a stream that is just a clock, its own source ``rate-micro-batch``: each micro-batch is an epoch, and the time of its rows
is the epoch's number. Every partition is a task (of one that captures, one that delivers, …), which begins where its last epoch ended,
works for the epoch's length, makes its end durable in the ledger and hands its figures to the driver as a row. A data source of our own
in Python would do the same, and cost seven processes more, which Spark keeps for planning it (docs/decisions/0013-memory-of-a-run.md).

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
* ``epoch.recorded`` (after S2) the ledger knows, Spark does not. When the driver lives, Spark runs epoch n again, the task finds n in
  the ledger and hands out the recorded message without doing anything; else the next run begins with n+1.
* after S3 Spark's commit of n may be missing, which nobody asks for: the next run begins behind the newest epoch of the ledger.

When the process of one task dies alone, Spark begins the task again in a new one, and the others go on; the epoch ends for all when its
time is over for the first of them (rundir.Until). When the driver dies, all others find out by themselves and end.

Two attempts at once (a zombie on a lost executor): the log fences the older capture, the lake refuses a commit that does not go
on from its own position, databases take repeats, and the ledger keeps the first end of an epoch.

Spark's checkpoint belongs to one run (``STATE/runs/<run>/checkpoint``): it remembers nothing that the ledger does not know better. Kept
from run to run it does harm: a run that is ended between its first epoch and Spark's commit of it leaves an epoch that a later run,
whose stream begins behind it, can not plan again.

A stop: tasks of the epoch in progress end at a whole transaction. Spark may begin more epochs before the driver ends the query; their
tasks see the stop and do nothing.
"""

from __future__ import annotations

import json
import time
import traceback
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from headrace.crash import crash_point
from headrace.errors import HeadraceError, unexpected
from headrace.stream.ledger import Ended, Ledger
from headrace.stream.rundir import RunDirectory, Until
from headrace.stream.tasks import Run, Task, tasks_of

Json = dict[str, Any]
_NOTHING_NEW: Json = {"idle": False, "nothing": True}


def run_epoch(run: Run, task: Task, epoch: int) -> Json:
    """Runs one epoch of a task, or hands out what the ledger has of it; returns its message for the driver.

    An error is left in the run's directory, for the driver to raise: Spark would begin a task that raises it again.
    """
    directory = RunDirectory(run.directory)
    directory.require()
    if directory.stop_requested():
        return _NOTHING_NEW
    try:
        ledger = _ledger(run, task)
        last = ledger.newest()
        if last is not None and epoch <= last.epoch:
            # The process that ended the epoch died before it could tell the driver.
            return last.message
        crash_point("epoch.started")
        began_ms = time.time_ns() // 1_000_000
        state, message = task.work(last.state if last else {}, Until(directory, epoch, run.pipeline.epoch))
        crash_point("epoch.finished")
        told = {"began_ms": began_ms, "ended_ms": time.time_ns() // 1_000_000}
        ended = ledger.end(Ended(epoch, state, {**message, **told}))
        crash_point("epoch.recorded")
    except HeadraceError as error:
        directory.fail(task.name, error)
    except Exception as error:
        traceback.print_exc()  # to the run's jvm.log
        directory.fail(task.name, unexpected(task.name, error))
    else:
        return ended.message
    return _NOTHING_NEW


def newest_epoch(run: Run) -> int:
    """The newest epoch that any task has ended; 0 when there is none."""
    ended = [_ledger(run, task).newest() for task in tasks_of(run)]
    return max((each.epoch for each in ended if each is not None), default=0)


def _ledger(run: Run, task: Task) -> Ledger:
    return Ledger(run.pipeline.state / "epochs" / task.name)


def followed(session: SparkSession, run: Run) -> DataFrame:
    """The stream of a run's epochs: of each a row for every task when its work is done, `{"task":…, "epoch":…, "message":…}`."""
    tasks = len(tasks_of(run))
    clock = session.readStream.format("rate-micro-batch").options(
        rowsPerBatch=tasks,
        numPartitions=tasks,
        startTimestamp=newest_epoch(run),
        advanceMillisPerBatch=1,
    )
    work = udf(partial(_work, run), "string", useArrow=False).asNondeterministic()
    numbered = clock.load().selectExpr(f"value % {tasks} AS task", "unix_millis(timestamp) AS time_ms")
    return numbered.select(work("task", "time_ms").alias("ended"))


def _work(run: Run, number: int, time_ms: int) -> str:
    task, epoch = tasks_of(run)[number], time_ms + 1
    return json.dumps({"task": task.name, "epoch": epoch, "message": run_epoch(run, task, epoch)})
