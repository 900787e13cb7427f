"""The two kinds of work in a following epoch: capturing a source into the log, delivering a source's part of the log to flows."""

from __future__ import annotations

import base64
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from headrace import registry
from headrace.capture.base import Source
from headrace.capture.runner import PARTITION, Captured, run_capture
from headrace.crash import crash_point
from headrace.errors import ConfigError, FatalError, HeadraceError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.log.base import Log
from headrace.model import SourceConfig
from headrace.retry import Backoff
from headrace.sinks.base import Position, Sink
from headrace.stream.deliver import Delivered, Follower
from headrace.stream.rundir import RunDirectory, Until

_PROGRESS_EVERY_S = 0.25
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What the driver tells every task of a run."""

    pipeline: PipelineSpec
    directory: Path
    until_idle: bool

    def to_option(self) -> str:
        return base64.b64encode(pickle.dumps(self)).decode()

    @classmethod
    def from_option(cls, text: str) -> Run:
        run = pickle.loads(base64.b64decode(text))  # noqa: S301 - written by our own driver
        assert isinstance(run, cls)
        return run


class Task(Protocol):
    """The work of one task slot; `work` returns the state that the next epoch starts from and figures for the driver."""

    name: str

    def work(self, state: Json, until: Until) -> tuple[Json, Json]: ...


class CaptureTask:
    """Captures one source into the log."""

    def __init__(self, run: Run, source: int) -> None:
        self._run = run
        self._config = run.pipeline.source[source]
        self._source_name = self._config.name
        self.name = f"capture-{self._source_name}"

    def work(self, state: Json, until: Until) -> tuple[Json, Json]:
        directory = RunDirectory(self._run.directory)
        backoff = _backoff(self._run, state)
        throttle = _Throttle()

        def progress(captured: Captured) -> None:
            crash_point("epoch.working")
            if throttle.is_due():
                directory.report(self.name, {"epoch": until.epoch, **_capture_figures(captured)})

        log = open_log(self._run.pipeline)
        source = open_source(self._config, self._run.pipeline)
        try:
            captured = run_capture(
                source,
                log,
                self._source_name,
                over=until.over,
                until_idle=self._run.until_idle,
                backoff=backoff,
                progress=progress,
            )
        finally:
            source.close()
            log.close()
        if captured.caught_up and self._run.until_idle:
            directory.source_is_captured(self._source_name, captured.end_offset)
        directory.report(self.name, {"epoch": until.epoch, **_capture_figures(captured)})
        return _outage(self._run, backoff), {**_capture_figures(captured), "idle": captured.caught_up}


class DeliverTask:
    """Delivers one source's part of the log to all flows that take from it."""

    def __init__(self, run: Run, source: int) -> None:
        self._run = run
        self._topic = run.pipeline.source[source].name
        self.flows = [flow for flow in run.pipeline.flows if flow.may_take(run.pipeline.source[source])]
        self.name = f"deliver-{self._topic}"

    def work(self, state: Json, until: Until) -> tuple[Json, Json]:
        directory = RunDirectory(self._run.directory)
        threads = [_FlowThread(self._run, flow, self._topic, state.get(flow.name, {}), until) for flow in self.flows]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            _join_for(threads, _PROGRESS_EVERY_S)
            figures = {thread.flow.name: thread.figures() for thread in threads}
            directory.report(self.name, {"epoch": until.epoch, "flows": figures})
            crash_point("epoch.working")
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        states = {thread.flow.name: thread.state() for thread in threads}
        message = {
            "flows": {thread.flow.name: thread.figures() for thread in threads},
            "idle": all(thread.is_idle for thread in threads),
        }
        return states, message


def _join_for(threads: Sequence[threading.Thread], seconds: float) -> None:
    """Waits until all threads have ended, at most so long."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


class _FlowThread(threading.Thread):
    """One flow's follower, its log reader and what became of it."""

    def __init__(self, run: Run, flow: FlowSpec, topic: str, state: Json, until: Until) -> None:
        super().__init__(name=flow.name, daemon=True)
        self.flow = flow
        self.error: HeadraceError | None = None
        self.is_idle = False
        self._run = run
        self._topic = topic
        self._until = until
        self._directory = RunDirectory(run.directory)
        self._backoff = _backoff(run, state)
        self._kept_for = state.get("flow", flow.fingerprint())
        start = Position(**state["position"]) if state.get("position") else None
        self._log = open_log(run.pipeline)
        self._follower = Follower(lambda: open_sink(flow), Shaper(flow), self._log, topic, PARTITION, start=start)

    def run(self) -> None:
        try:
            self._must_be_the_same_flow()
            self._follower.run(self._until.over, self._nothing_will_come, self._backoff)
        except HeadraceError as error:
            self.error = error
            self._directory.request_stop()
        except Exception as error:
            self.error = unexpected(f"flow {self.flow.name}", error)
            self._directory.request_stop()
        finally:
            self._log.close()

    def _must_be_the_same_flow(self) -> None:
        if self._kept_for != self.flow.fingerprint():
            raise ConfigError(
                f"flow {self.flow.name} has been delivering {self._kept_for}, and now is to deliver {self.flow.fingerprint()}:"
                " what was read before would be missing there",
                fix="give the changed flow a new name, and it delivers everything on the log",
            )

    def _nothing_will_come(self, offset: int) -> bool:
        if not self._run.until_idle:
            return False
        end = self._directory.captured_end(self._topic)
        self.is_idle = end is not None and offset >= end
        return self.is_idle

    def state(self) -> Json:
        position = self._follower.delivered.position
        return {
            "position": asdict(position) if position else None,
            "flow": self.flow.fingerprint(),
            **_outage(self._run, self._backoff),
        }

    def figures(self) -> Json:
        return _delivery_figures(self._follower.delivered)


def _backoff(run: Run, state: Json) -> Backoff:
    """Patience goes on over the epochs of a run; a new run begins with all of it."""
    same_run = state.get("run") == run.directory.name
    return Backoff(run.pipeline.give_up_after, failing_since_s=state["failing_since_s"] if same_run else None)


def _outage(run: Run, backoff: Backoff) -> Json:
    return {"run": run.directory.name, "failing_since_s": backoff.failing_since_s}


class _Throttle:
    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _PROGRESS_EVERY_S
        return True


def tasks_of(run: Run) -> list[Task]:
    """Every task of a run: one per source that is captured, one per source that some flow takes from."""
    sources = range(len(run.pipeline.source))
    capturing: list[Task] = [CaptureTask(run, source) for source in sources]
    delivering: list[Task] = [DeliverTask(run, source) for source in sources if DeliverTask(run, source).flows]
    return [*capturing, *delivering]


def capture_all(
    pipeline: PipelineSpec, *, over: Callable[[], bool], until_idle: bool, progress: Callable[[Captured], None]
) -> dict[str, int]:
    """Captures all sources of a pipeline in this process, a thread each, until `over()`; changes captured per source.

    `progress` is called, from several threads, after each append. The first error of a source ends the others at a whole transaction and is raised.
    """
    failed = threading.Event()
    with ThreadPoolExecutor(len(pipeline.source), thread_name_prefix="capture") as pool:
        running = {
            source.name: pool.submit(
                _capture_alone, source, pipeline, lambda: failed.is_set() or over(), until_idle, progress
            )
            for source in pipeline.source
        }
        for capture in as_completed(running.values()):
            if capture.exception() is not None:
                failed.set()
    return {name: sum(capture.result().rows.values()) for name, capture in running.items()}


def _capture_alone(
    config: SourceConfig,
    pipeline: PipelineSpec,
    over: Callable[[], bool],
    until_idle: bool,
    progress: Callable[[Captured], None],
) -> Captured:
    log, source = open_log(pipeline), open_source(config, pipeline)
    backoff = Backoff(pipeline.give_up_after)
    try:
        return run_capture(
            source, log, config.name, over=over, until_idle=until_idle, backoff=backoff, progress=progress
        )
    finally:
        source.close()
        log.close()


def check_all(pipeline: PipelineSpec) -> Iterator[str]:
    """Tests the log and every source and target; a line for each that is fine, the error of the first that is not."""
    log = open_log(pipeline)
    try:
        for config in pipeline.source:
            log.spans(config.name)
    finally:
        log.close()
    yield "log: fine"
    for config in pipeline.source:
        source = open_source(config, pipeline)
        try:
            source.check()
        finally:
            source.close()
        yield f"source {config.name}: fine"
    for flow in pipeline.flows:
        sink = open_sink(flow)
        try:
            sink.check()
        finally:
            sink.close()
        yield f"flow {flow.name}: target is fine"


def open_log(pipeline: PipelineSpec) -> Log:
    """The pipeline's log, not yet touched."""
    log: Log = registry.load("logs", pipeline.log.type)(pipeline.log)
    return log


def open_source(config: SourceConfig, pipeline: PipelineSpec) -> Source:
    """A source of the pipeline, not yet connected; its schema versions are kept under the pipeline's state."""
    source: Source = registry.load("sources", config.type)(config, pipeline.state / "sources" / config.name)
    return source


def open_sink(flow: FlowSpec) -> Sink:
    """A flow's sink, not yet connected."""
    sink: Sink = registry.load("sinks", flow.to.type)(flow.target(), flow.name)
    return sink


def unexpected(what: str, error: Exception) -> FatalError:
    return FatalError(
        f"{what} met an error that headrace does not know: {type(error).__name__}: {error}",
        fix="nothing is lost, start again; if it comes back, report it with the log under the state directory",
    )


def _capture_figures(captured: Captured) -> Json:
    return {
        "rows": dict(captured.rows),
        "end_offset": captured.end_offset,
        "position": captured.mark.position if captured.mark else None,
        "commit_ts_us": captured.mark.commit_ts_us if captured.mark else None,
        "notices": captured.notices,
        "problem": captured.problem,
    }


def _delivery_figures(delivered: Delivered) -> Json:
    delays = sorted(delivered.delay_ms)
    return {
        "rows": dict(delivered.rows),
        "commits": delivered.commits,
        "committed_ms": delivered.committed_ms,
        "retries": delivered.retries,
        "problem": delivered.problem,
        "delay_p50_ms": delays[len(delays) // 2] if delays else None,
        "delay_p99_ms": delays[len(delays) * 99 // 100] if delays else None,
        "position": asdict(delivered.position) if delivered.position else None,
    }
