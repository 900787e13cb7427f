"""The driver's side of a run: one Spark query whose tasks are all captures and deliveries of a flow file."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import ConfigError, FatalError, HeadraceError, storage_error
from headrace.files import make_directories, replace_file
from headrace.flow.spec import PipelineSpec
from headrace.stream.epoch import FORMAT, EpochDataSource
from headrace.stream.figures import Figures
from headrace.stream.rundir import RunDirectory
from headrace.stream.session import start_session
from headrace.stream.tasks import Run, tasks_of

Json = dict[str, Any]
Progress = Callable[[dict[str, Json]], None]
_LOOK_EVERY_S = 0.1


def run(pipelines: Sequence[PipelineSpec], *, until_idle: bool, progress: Progress) -> None:
    """Captures and delivers until stopped (SIGINT, SIGTERM) or, with `until_idle`, until all that is there has been delivered.

    One Spark session serves all pipelines, one query each. Calls `progress` with the newest figures of every task about ten
    times a second. Raises the error that ended a task; the other tasks end at a whole transaction first.
    """
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    runs = [Run(pipeline, pipeline.state / "runs" / name, until_idle) for pipeline in pipelines]
    directories = [RunDirectory(each.directory) for each in runs]
    with ExitStack() as locks:
        for each, directory in zip(runs, directories, strict=True):
            locks.enter_context(_sole_run(each.pipeline.state))
            directory.create()
        _run(runs, directories, progress)


def _run(runs: Sequence[Run], directories: Sequence[RunDirectory], progress: Progress) -> None:
    session = start_session(sum(len(tasks_of(each)) for each in runs) + 1, runs[0].directory)
    try:
        # After the session: Spark sets a handler of its own, which cancels tasks in their middle.
        with _stop_on_signal(directories):
            session.dataSource.register(EpochDataSource)
            figures = Figures()
            queries = [_start(session, each, figures) for each in runs]
            _watch(list(zip(queries, directories, strict=True)), figures, progress)
    finally:
        session.stop()


def _start(session: SparkSession, spec: Run, figures: Figures) -> StreamingQuery:
    expected = len(tasks_of(spec))

    def record(messages: DataFrame, epoch: int) -> None:
        found = messages.collect()
        rows = {row.task: json.loads(row.message) for row in found}
        for row in found:
            if not rows[row.task].get("again"):
                figures.finished(row.task, row.epoch, rows[row.task])
        replace_file(spec.pipeline.state / "last_epoch.json", json.dumps({"epoch": epoch, "tasks": rows}).encode())
        if spec.until_idle and len(rows) == expected and all(message["idle"] for message in rows.values()):
            RunDirectory(spec.directory).request_stop()

    epochs = session.readStream.format(FORMAT).option("secret", spec.to_option()).load()
    checkpoint = str(spec.pipeline.state / "checkpoint")
    return epochs.writeStream.foreachBatch(record).option("checkpointLocation", checkpoint).start()


def _watch(queries: Sequence[tuple[StreamingQuery, RunDirectory]], figures: Figures, progress: Progress) -> None:
    """Waits for the end of a run: a failure, or stop requests that the epochs in progress have honoured."""
    while any(query.isActive for query, _ in queries):
        progress(figures.now(_reports(queries)))
        for query, directory in queries:
            if query.exception() is not None:
                for _, other in queries:
                    other.request_stop()
            # Stopping a query in the middle of a task is rough; wait until the epoch has ended by itself.
            if query.isActive and directory.stop_requested() and not query.status["isTriggerActive"]:
                query.stop()
        time.sleep(_LOOK_EVERY_S)
    progress(figures.now(_reports(queries)))
    errors: list[HeadraceError] = [error for _, directory in queries for error in directory.errors().values()]
    errors = errors or [_spark_error(query, directory) for query, directory in queries if query.exception() is not None]
    if errors:
        raise _first(errors)


def _reports(queries: Sequence[tuple[StreamingQuery, RunDirectory]]) -> dict[str, Json]:
    return {task: figures for _, directory in queries for task, figures in directory.reports().items()}


def _spark_error(query: StreamingQuery, directory: RunDirectory) -> FatalError:
    return FatalError(
        f"Spark ended the query: {str(query.exception()).splitlines()[0]}",
        fix=f"see {directory.path}/spark.log; nothing is lost, start again",
    )


@contextmanager
def _sole_run(state: Path) -> Iterator[None]:
    """Keeps a second run off the same state while this one lives; the kernel gives the lock back however it ends."""
    make_directories(state)
    try:
        lock = (state / "lock").open("w")
    except OSError as error:
        raise storage_error("open", state / "lock", error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another run is using the state in {state}",
                fix="stop it first, or give this file a `state` of its own",
            ) from error
        yield


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
