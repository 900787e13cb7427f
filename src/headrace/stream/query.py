"""The driver's side of a run: one Spark query whose tasks are all captures and deliveries of a flow file."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import ConfigError, FatalError, HeadraceError
from headrace.files import replace_file
from headrace.flow.spec import PipelineSpec
from headrace.stream.epoch import followed
from headrace.stream.figures import Figures, Progress
from headrace.stream.lake_care import LakeCare
from headrace.stream.rundir import RunDirectory
from headrace.stream.session import ATTEMPTS, start_session
from headrace.stream.sole_run import sole_run
from headrace.stream.tasks import Run, tasks_of
from headrace.stream.watch import Watch
from headrace.stream.watermarks import with_watermarks

Json = dict[str, Any]
_LOOK_EVERY_S = 0.1
_OURS = re.compile(r"^headrace\.errors\.\w+: (?P<message>.+)\n +what to do: (?P<fix>.+)$", re.MULTILINE)
"""An error that a task could not leave in the run's directory, in what Spark tells of it."""


def run(pipelines: Sequence[PipelineSpec], *, until_idle: bool, progress: Progress) -> None:
    """Captures and delivers until stopped (SIGINT, SIGTERM) or, with `until_idle`, until all that is there has been delivered.

    One Spark session serves all pipelines, one query each. Calls `progress` with the newest figures of every task, and what a
    `Watch` makes of them, about ten times a second. Raises the error that ended a task; the other tasks end at a whole transaction first.
    """
    _require_one_place(pipelines)
    with ExitStack() as stack:
        told = [stack.enter_context(with_watermarks(each)) for each in pipelines]
        _run_all(told, until_idle=until_idle, progress=progress)


def _run_all(pipelines: Sequence[PipelineSpec], *, until_idle: bool, progress: Progress) -> None:
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    runs = [Run(pipeline, pipeline.state / "runs" / name, until_idle) for pipeline in pipelines]
    directories = [RunDirectory(each.directory) for each in runs]
    with ExitStack() as locks:
        for each, directory in zip(runs, directories, strict=True):
            locks.enter_context(sole_run(each.pipeline.state))
            directory.create()
        watch = Watch(pipelines, delivers=True, until_idle=until_idle)
        care = LakeCare(pipelines, until_idle=until_idle)
        newest: dict[str, Json] = {}

        def show(figures: dict[str, Json]) -> None:
            newest.clear()
            newest.update(watch.look(figures))
            progress({**newest, **care.figures()})

        with care.at_work():
            _run(runs, directories, show)
        progress({**newest, **care.figures()})


def _require_one_place(pipelines: Sequence[PipelineSpec]) -> None:
    if any(pipeline.spark != pipelines[0].spark for pipeline in pipelines):
        raise ConfigError(
            "the flow files name different `spark`, and one run has one session for all of them",
            fix="write the same `spark` into each, or run them apart",
        )


def _run(runs: Sequence[Run], directories: Sequence[RunDirectory], progress: Progress) -> None:
    session = start_session(sum(len(tasks_of(each)) for each in runs) + 1, runs[0].directory, runs[0].pipeline.spark)
    try:
        # After the session: Spark sets a handler of its own, which cancels tasks in their middle.
        with _stop_on_signal(directories):
            figures = Figures()
            _watch([_start(session, each, figures) for each in runs], figures, progress)
    finally:
        session.stop()


@dataclass(frozen=True, slots=True)
class _Query:
    """What Spark runs for one flow file."""

    spark: StreamingQuery
    directory: RunDirectory
    at_rest: threading.Event
    """An epoch has ended behind a request to stop: no task works any more."""


def _start(session: SparkSession, spec: Run, figures: Figures) -> _Query:
    expected = len(tasks_of(spec))
    directory, at_rest = RunDirectory(spec.directory), threading.Event()

    def record(ended: DataFrame, _batch: int) -> None:
        found = [json.loads(row.ended) for row in ended.collect()]
        tasks = {one["task"]: one["message"] for one in found}
        new = [one for one in found if not one["message"].get("nothing")]
        for one in new:
            figures.finished(**one)
        if new:
            replace_file(
                spec.pipeline.state / "last_epoch.json", json.dumps({"epoch": new[0]["epoch"], "tasks": tasks}).encode()
            )
        if spec.until_idle and len(tasks) == expected and all(message["idle"] for message in tasks.values()):
            directory.request_stop()
        if directory.stop_requested():
            at_rest.set()

    checkpoint = str(spec.directory / "checkpoint")
    writing = followed(session, spec).writeStream.foreachBatch(record).option("checkpointLocation", checkpoint)
    return _Query(writing.start(), directory, at_rest)


def _watch(queries: Sequence[_Query], figures: Figures, progress: Progress) -> None:
    """Waits for the end of a run: a failure, or stop requests that the epochs in progress have honoured."""
    while any(query.spark.isActive for query in queries):
        progress(figures.now(_reports(queries)))
        for query in queries:
            if query.spark.exception() is not None or query.directory.has_failed():
                for other in queries:
                    other.directory.request_stop()
            if query.spark.isActive and query.at_rest.is_set():
                query.spark.stop()
        time.sleep(_LOOK_EVERY_S)
    progress(figures.now(_reports(queries)))
    errors: list[HeadraceError] = [error for query in queries for error in query.directory.errors().values()]
    errors = errors or [_spark_error(query) for query in queries if query.spark.exception() is not None]
    if errors:
        raise _first(errors)


def _reports(queries: Sequence[_Query]) -> dict[str, Json]:
    return {task: figures for query in queries for task, figures in query.directory.reports().items()}


def _spark_error(query: _Query) -> FatalError:
    told = str(query.spark.exception())
    if ours := _OURS.search(told):
        return FatalError(ours["message"], fix=ours["fix"])
    if "Python worker exited unexpectedly" in told:
        return FatalError(
            f"a worker process was ended from outside, and so were those in its place, {ATTEMPTS} times in one epoch",
            fix="see who ended them (dmesg names processes that were ended for want of memory); nothing is lost, start again",
        )
    return FatalError(
        f"Spark ended the query: {_cause(told)}",
        fix=f"see {query.directory.path}/spark.log; nothing is lost, start again",
    )


def _cause(text: str) -> str:
    """What began it, of an error that comes out of several layers with the stack of each."""
    causes = re.findall(r"^(?:Caused by|[\w.]*SparkException)?: (.+)$", text, re.MULTILINE)
    return causes[-1] if causes else text.splitlines()[0]


def _first(errors: list[HeadraceError]) -> HeadraceError:
    first, *others = errors
    for other in others:
        first.add_note(str(other))
    return first


@contextmanager
def _stop_on_signal(directories: Sequence[RunDirectory]) -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into a stop request; a second one ends the process as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request(number: int, frame: FrameType | None) -> None:
        for directory in directories:
            directory.request_stop()
        for each, handler in earlier.items():
            signal.signal(each, handler)

    for number in earlier:
        signal.signal(number, request)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
