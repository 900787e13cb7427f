"""Capture and flows in this process, without Spark: the same source, log, followers and sinks that a following task runs.

For tests that need many states of a source and few seconds. What Spark adds (epochs, the ledger) is tested in tests/flows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from headrace.capture.load.loading import Loading, lane_topics
from headrace.capture.load.plan import is_lane_topic
from headrace.capture.mask import Masker
from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.capture.runner import PARTITION, Captured, resume_point, run_capture
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.sinks.base import Position, Sink
from headrace.stream.deliver import Follower
from headrace.stream.parts import open_sink
from headrace.ums.change import Heartbeat, read_block
from tests.patience import HANG_S, wait_until
from tests.servers.binlog_server import BinlogServer

SOURCE = "db1"


class Pipeline:
    """One source and its flows; positions as a run keeps them (the log's marks, the sinks' own)."""

    def __init__(
        self, directory: Path, server: BinlogServer, tables: list[str], flows: list[dict[str, Any]], **source: Any
    ) -> None:
        self._directory = directory
        self._server = server
        self._source = {
            "type": "mysql", "name": SOURCE, "host": server.host, "port": server.port, "user": server.user,
            "password": server.password, "tables": tables, "start": "latest", **source,
        }  # fmt: skip
        self.flows = [FlowSpec.model_validate(flow) for flow in flows]
        self._position: dict[str, Position | None] = {}
        self.notices: list[str] = []
        self.rows: dict[str, int] = {}
        """Changes per namespace that were captured."""

    def run_until_idle(self) -> None:
        """Captures all that the server has, then delivers it; a new process would do the same."""
        self.capture()
        if self._config.load is not None:
            self.load()
            self.capture()
        self.deliver()

    def deliver(self) -> None:
        """Delivers what is on the log, what was loaded first."""
        for flow in self.flows:
            for topic in (*self._lanes(), SOURCE):
                self.follow(flow, topic)

    def follow(self, flow: FlowSpec, topic: str) -> None:
        """Delivers what is on one topic to one flow."""
        self._follow(flow, lambda: False, until_idle=True, topic=topic)

    def capture(self) -> None:
        """Captures all that the server has."""
        self._capture(lambda: False, until_idle=True)

    def load(self, steps: int = 10_000) -> bool:
        """Loads for so many steps, and captures where that is waited for; whether all is loaded."""
        assert self._config.load is not None
        log, source = self._log(), MySqlSource(self._config, self._state)
        loading = Loading(
            lambda: source.loader(lambda: resume_point(log, SOURCE)),
            log,
            SOURCE,
            self._config.load,
            self._state,
            source_type="mysql",
            masker=Masker(self._config, self._state),
            number=1,
            clock=count().__next__,  # the planner looks at every step
        )
        try:
            for _ in range(steps):
                loading.step(lambda: steps < 100)
                if loading.complete:
                    return True
                if loading.waiting_for:
                    self.capture()
        finally:
            loading.close()
            source.close()
            log.close()
        return False

    @property
    def _config(self) -> MySqlConfig:
        return MySqlSource.Config.model_validate(self._source)

    @property
    def _state(self) -> Path:
        state = self._directory / "state"
        state.mkdir(exist_ok=True)
        return state

    def _lanes(self) -> list[str]:
        if self._config.load is None:
            return []
        log = self._log()
        try:
            return lane_topics(log, SOURCE, self._config.load)
        finally:
            log.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Captures and delivers meanwhile; at the end all that the server has is delivered."""
        self.capture()  # so that a source that starts at the latest place has found it before anything is done
        end, errors = threading.Event(), []

        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)
                end.set()

        reached = [0]
        parts = [lambda: self._capture(end.is_set, until_idle=False, reached=reached)]
        parts += [lambda flow=flow: self._follow(flow, end.is_set, until_idle=False) for flow in self.flows]  # type: ignore[misc]
        threads = [threading.Thread(target=guarded, args=(part,), daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        try:
            yield
            file, offset = self._server.position()
            goal = BinlogPosition(file, offset).id
            wait_until(lambda: reached[0] >= goal or errors, lambda: f"capture has come to {reached[0]}, not to {goal}")
        finally:
            end.set()
            for thread in threads:
                thread.join(HANG_S)
        if errors:
            raise errors[0]
        for flow in self.flows:
            self._follow(flow, lambda: False, until_idle=True)

    def logged(self) -> list[Any]:
        """All entries of the log, opened; heartbeats, which come with the time, left out."""
        log = self._log()
        entries = log.read(SOURCE, PARTITION, log.spans(SOURCE).get(PARTITION, Span(0, 0)))
        found = [read_block(record.entry.value) for record in entries]
        log.close()
        return [each for each in found if not isinstance(each, Heartbeat)]

    def _capture(self, over: Callable[[], bool], *, until_idle: bool, reached: list[int] | None = None) -> None:
        def progress(captured: Captured) -> None:
            if captured.mark is not None and reached is not None:
                reached[0] = BinlogPosition.of(captured.mark).id

        config, state = self._config, self._state
        source = MySqlSource(config, state)
        log = self._log()
        try:
            captured = run_capture(
                source,
                log,
                SOURCE,
                Masker(config, state),
                source_type="mysql",
                over=over,
                until_idle=until_idle,
                backoff=Backoff(10),
                progress=progress,
            )
        finally:
            source.close()
            log.close()
        self.notices += captured.notices
        for namespace, rows in captured.rows.items():
            self.rows[namespace] = self.rows.get(namespace, 0) + rows

    def _follow(self, flow: FlowSpec, over: Callable[[], bool], *, until_idle: bool, topic: str = SOURCE) -> None:
        log = self._log()

        def new_sink() -> Sink:
            return open_sink(flow)

        def idle(offset: int) -> bool:
            return until_idle and offset >= log.spans(topic).get(PARTITION, Span(0, 0)).stop

        try:
            start, may_repeat = self._position.get(f"{flow.name} {topic}"), not is_lane_topic(topic)
            follower = Follower(new_sink, Shaper(flow), log, topic, PARTITION, start=start, may_repeat=may_repeat)
            follower.run(over, idle, Backoff(10))
            self._position[f"{flow.name} {topic}"] = follower.delivered.position
        finally:
            log.close()

    def _log(self) -> DirectoryLog:
        return DirectoryLog(DirectoryLog.Config(type="directory", path=self._directory / "log"))
