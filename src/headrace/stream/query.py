"""The driver's side of a run: one Spark query whose tasks are all captures and deliveries of a flow file."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Any
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import FatalError, HeadraceError
from headrace.files import replace_file
from headrace.flow.spec import PipelineSpec
from headrace.stream.epoch import FORMAT, EpochDataSource
from headrace.stream.rundir import RunDirectory
from headrace.stream.session import start_session
from headrace.stream.tasks import Run, tasks_of

Json = dict[str, Any]
Progress = Callable[[dict[str, Json]], None]
_LOOK_EVERY_S = 0.1


def run(pipeline: PipelineSpec, *, until_idle: bool, progress: Progress) -> dict[str, Json]:
    """Captures and delivers until stopped (SIGINT, SIGTERM) or, with `until_idle`, until all that is there has been delivered.

    Calls `progress` with the newest figures of every task about ten times a second; returns the last ones. Raises the error
    that ended a task.
    """
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    spec = Run(pipeline, pipeline.state / "runs" / name, until_idle)
    directory = RunDirectory(spec.directory)
    directory.create()
    with _stop_on_signal(directory):
        session = start_session(len(tasks_of(spec)) + 1, spec.directory)
        try:
            session.dataSource.register(EpochDataSource)
            query = _start(session.readStream.format(FORMAT).option("secret", spec.to_option()).load(), spec)
            _watch(query, directory, progress)
            return directory.reports()
        finally:
            session.stop()


def _start(epochs: DataFrame, spec: Run) -> StreamingQuery:
    expected = len(tasks_of(spec))

    def record(messages: DataFrame, epoch: int) -> None:
        rows = {row.task: json.loads(row.message) for row in messages.collect()}
        replace_file(spec.pipeline.state / "last_epoch.json", json.dumps({"epoch": epoch, "tasks": rows}).encode())
        if spec.until_idle and len(rows) == expected and all(message["idle"] for message in rows.values()):
            RunDirectory(spec.directory).request_stop()

    checkpoint = str(spec.pipeline.state / "checkpoint")
    return epochs.writeStream.foreachBatch(record).option("checkpointLocation", checkpoint).start()


def _watch(query: StreamingQuery, directory: RunDirectory, progress: Progress) -> None:
    """Waits for the end of a run: a failure, or a stop request that the epoch in progress has honoured."""
    while query.isActive:
        progress(directory.reports())
        # Stopping a query in the middle of a task is rough; wait until the epoch has ended by itself.
        if directory.stop_requested() and not query.status["isTriggerActive"]:
            query.stop()
        time.sleep(_LOOK_EVERY_S)
    progress(directory.reports())
    errors = list(directory.errors().values())
    if errors:
        raise _first(errors)
    failure: PySparkException | None = query.exception()
    if failure is not None:
        raise FatalError(
            f"Spark ended the query: {str(failure).splitlines()[0]}",
            fix=f"see {directory.path}/spark.log; nothing is lost, start again",
        )


def _first(errors: list[HeadraceError]) -> HeadraceError:
    first, *others = errors
    for other in others:
        first.add_note(str(other))
    return first


@contextmanager
def _stop_on_signal(directory: RunDirectory) -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into a stop request; a second one ends the process as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request(number: int, frame: FrameType | None) -> None:
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
