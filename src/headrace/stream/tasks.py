"""The kinds of work in a following epoch: capturing a source into the log, loading its tables, delivering its part of the log."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.capture.base import Source
from headrace.capture.load.base import Loadable, Loader, load_of, required_load
from headrace.capture.load.loading import Loading, lane_topics
from headrace.capture.load.plan import is_lane_topic, lane_topic
from headrace.capture.runner import NOTICES_KEPT, PARTITION, Captured, resume_point
from headrace.crash import crash_point
from headrace.errors import ConfigError, HeadraceError, RetryableError, unexpected
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.log.base import Log
from headrace.retry import Backoff, retrying
from headrace.sinks.base import Position
from headrace.stream.deliver import Follower
from headrace.stream.figures import Throttle, capture_figures, delivery_figures
from headrace.stream.pace import Pace
from headrace.stream.parts import capture, open_log, open_masker, open_source, sink_opener, state_of
from headrace.stream.passage import Passage
from headrace.stream.rundir import RunDirectory, Until
from headrace.stream.watermarks import flow_of, flow_stage, member, reporting, reporting_capture

if TYPE_CHECKING:  # loads only where a file asks for a watermark
    from headrace.watermark.client import StageClient

_PROGRESS_EVERY_S = 0.25
_LOAD_WAIT_S = 0.2
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What the driver tells every task of a run."""

    pipeline: PipelineSpec
    directory: Path
    until_idle: bool


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
        throttle = Throttle(_PROGRESS_EVERY_S)

        def progress(captured: Captured) -> None:
            crash_point("epoch.working")
            if throttle.is_due():
                directory.report(self.name, {"epoch": until.epoch, **capture_figures(captured)})

        with reporting_capture(self._config, self._run.pipeline) as report:
            captured = capture(
                self._config,
                self._run.pipeline,
                over=until.over,
                until_idle=self._run.until_idle,
                backoff=backoff,
                progress=progress,
                durable=report.durable,
                ended=directory.captured_end,
                low_us=report.low_us,
            )
        if captured.caught_up and self._run.until_idle:
            for partition, end in captured.ends.items():
                directory.is_captured(self._source_name, partition, end)
        directory.report(self.name, {"epoch": until.epoch, **capture_figures(captured)})
        return _outage(self._run, backoff), {**capture_figures(captured), "idle": captured.caught_up}


class LoadTask:
    """Reads a part of a source's full load; the first of them also plans it."""

    def __init__(self, run: Run, source: int, number: int) -> None:
        """`number`: from 1 to as many workers as the load has."""
        self._run = run
        self._config = run.pipeline.source[source]
        self._source_name = self._config.name
        self._load_config = required_load(self._config)
        self._number = number
        self.name = f"load-{self._source_name}-{number}"

    def work(self, state: Json, until: Until) -> tuple[Json, Json]:
        backoff = _backoff(self._run, state)
        figures: Json = {"rows": {}, "failed": {}, "problem": ""}
        while True:
            log, source = open_log(self._run.pipeline), open_source(self._config, self._run.pipeline)
            try:
                figures = self._load(source, log, until, backoff, figures)
            except RetryableError as error:
                figures["problem"] = error.message
                self._report(until, figures)
                pause_s = backoff.failed(error)
            else:
                return _outage(self._run, backoff), figures
            finally:
                source.close()
                log.close()
            _pause(pause_s, until.over)

    def _load(self, source: Source, log: Log, until: Until, backoff: Backoff, figures: Json) -> Json:
        """Until the epoch is over, or (--until-idle) all is loaded; returns the figures."""

        def new_loader() -> Loader:
            loader = (
                source.loader(lambda: resume_point(log, self._source_name)) if isinstance(source, Loadable) else None
            )
            assert loader is not None, "its configuration would not say `load`"
            return loader

        loading = Loading(
            new_loader,
            log,
            self._source_name,
            self._load_config,
            state_of(self._config, self._run.pipeline),
            source_type=self._config.type,
            masker=open_masker(self._config, self._run.pipeline),
            number=self._number,
        )
        rows, failed = (Counter[str](figures[name]) for name in ("rows", "failed"))
        throttle = Throttle(_PROGRESS_EVERY_S)
        try:
            while True:
                worked = loading.step(until.over)
                backoff.worked()
                crash_point("epoch.working")
                idle = self._is_idle(loading)
                figures = {
                    "rows": dict(rows + loading.rows),
                    "failed": dict(failed + loading.failed),
                    "problem": loading.waiting_for,
                    "load": loading.figures(),
                    "paused": loading.is_paused,
                    "notices": loading.notices[-NOTICES_KEPT:],
                    "idle": idle,
                }
                over = until.over() or (idle and self._run.until_idle)
                if over or throttle.is_due():
                    self._report(until, figures)
                if over:
                    return figures
                if not worked:
                    loading.wait(_LOAD_WAIT_S)
        finally:
            loading.close()

    def _is_idle(self, loading: Loading) -> bool:
        """Everything is loaded: the first worker knows, and tells the others and those that deliver where the lanes end."""
        directory = RunDirectory(self._run.directory)
        if loading.complete and self._run.until_idle:
            for topic, end in loading.ends().items():
                directory.is_captured(topic, PARTITION, end)
        lane = lane_topic(self._source_name, self._number)
        return loading.complete or directory.captured_end(lane, PARTITION) is not None

    def _report(self, until: Until, figures: Json) -> None:
        RunDirectory(self._run.directory).report(self.name, {"epoch": until.epoch, **figures})


def _pause(seconds: float, over: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not over():
        time.sleep(0.05)


class DeliverTask:
    """Delivers topics of one source, what it captured or what it loaded, to all flows that take from it."""

    def __init__(self, run: Run, source: int, *, loaded: bool = False) -> None:
        self._run = run
        self._source = run.pipeline.source[source]
        self._loaded = loaded
        self.flows = [flow for flow in run.pipeline.flows if flow.may_take(self._source)]
        self.name = f"deliver-{self._source.name}{'-load' if loaded else ''}"

    def work(self, state: Json, until: Until) -> tuple[Json, Json]:
        with ExitStack() as stack:
            stages = {
                flow.name: stack.enter_context(reporting(self._run.pipeline, flow_stage(flow.name)))
                for flow in self.flows
                if not self._loaded  # rows of a full load are as old as their load
            }
            return self._deliver(state, until, stages)

    def _deliver(self, state: Json, until: Until, stages: Mapping[str, StageClient | None]) -> tuple[Json, Json]:
        directory = RunDirectory(self._run.directory)
        places = self._places()
        paces = {flow.name: Pace(flow.rate) for flow in self.flows if flow.rate is not None}
        threads = [
            _FlowThread(
                self._run,
                flow,
                place,
                state.get(_follower(flow, *place), {}),
                until,
                pace=paces.get(flow.name),
                stage=stages.get(flow.name),
            )
            for flow in self.flows
            for place in places
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            _join_for(threads, _PROGRESS_EVERY_S)
            figures = {thread.name: thread.figures() for thread in threads}
            directory.report(self.name, {"epoch": until.epoch, "flows": figures})
            crash_point("epoch.working")
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        states = {thread.name: thread.state() for thread in threads}
        message = {
            "flows": {thread.name: thread.figures() for thread in threads},
            "idle": all(thread.is_idle for thread in threads),
        }
        return states, message

    def _places(self) -> list[tuple[str, int]]:
        """The partitions that it delivers: those that are written, and what is left of when there were more."""
        log = open_log(self._run.pipeline)
        try:
            if self._loaded:
                lanes = lane_topics(log, self._source.name, required_load(self._source))
                return [(topic, PARTITION) for topic in lanes]
            name, give_up_after_s = self._source.name, self._run.pipeline.give_up_after
            there = retrying(lambda: log.spans(name), give_up_after_s=give_up_after_s)
            return [(name, partition) for partition in sorted({*range(self._source.partitions), *there})]
        finally:
            log.close()


def _follower(flow: FlowSpec, topic: str, partition: int) -> str:
    """What a flow's position is kept under: the flow's name, what comes behind the source's in the topic's, and which partition."""
    of_partition = f".p{partition}" if partition else ""
    return f"{flow.name}{''.join(topic.partition('.')[1:])}{of_partition}"


def _join_for(threads: Sequence[threading.Thread], seconds: float) -> None:
    """Waits until all threads have ended, at most so long."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


class _FlowThread(threading.Thread):
    """One flow's follower, its log reader and what became of it."""

    def __init__(
        self,
        run: Run,
        flow: FlowSpec,
        place: tuple[str, int],
        state: Json,
        until: Until,
        *,
        pace: Pace | None,
        stage: StageClient | None,
    ) -> None:
        super().__init__(name=_follower(flow, *place), daemon=True)
        self.flow = flow
        self.error: HeadraceError | None = None
        self.is_idle = False
        self._run = run
        self._place = place
        self._until = until
        self._directory = RunDirectory(run.directory)
        self._backoff = _backoff(run, state)
        self._kept_for = state.get("flow", flow.fingerprint())
        start = Position(**state["position"]) if state.get("position") else None
        self._log = open_log(run.pipeline)
        self._passage = None if stage is None else Passage(stage, flow_of(run.pipeline, flow), member(*place))
        self._follower = Follower(
            sink_opener(flow),
            Shaper(flow),
            self._log,
            *place,
            start=start,
            may_repeat=not is_lane_topic(place[0]),
            pace=pace,
            passage=self._passage,
        )

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
        end = self._directory.captured_end(*self._place)
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
        passed_us = self._passage.passed_us if self._passage is not None else None
        return {**delivery_figures(self._follower.delivered), "watermark_us": passed_us}


def _backoff(run: Run, state: Json) -> Backoff:
    """Patience goes on over the epochs of a run; a new run begins with all of it."""
    same_run = state.get("run") == run.directory.name
    return Backoff(run.pipeline.give_up_after, failing_since_s=state["failing_since_s"] if same_run else None)


def _outage(run: Run, backoff: Backoff) -> Json:
    return {"run": run.directory.name, "failing_since_s": backoff.failing_since_s}


def tasks_of(run: Run) -> list[Task]:
    """Every task of a run: per source its capture, the workers of its full load, and the delivery of each when some flow takes it."""
    tasks: list[Task] = []
    for number, config in enumerate(run.pipeline.source):
        load = load_of(config)
        tasks.append(CaptureTask(run, number))
        if load is not None:
            tasks += [LoadTask(run, number, worker) for worker in range(1, load.workers + 1)]
        delivering = [DeliverTask(run, number)] + ([DeliverTask(run, number, loaded=True)] if load is not None else [])
        tasks += [task for task in delivering if task.flows]
    return tasks
