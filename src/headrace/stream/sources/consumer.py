"""The asynchronous consumer of a query: a capture in a thread beside Spark's calls, which ends with them and is never missing without a word."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from headrace.capture.base import Source
from headrace.capture.mask import Masker
from headrace.capture.runner import Captured, resume_point, run_capture
from headrace.errors import ConfigError, HeadraceError, unexpected
from headrace.log.base import Holding
from headrace.model import SourceConfig
from headrace.retry import Backoff
from headrace.stream.sources.own_log import OwnLog, SourceState

_END_S = 30.0
"""How long the end of the query waits for the capture's next whole transaction; the process ends then."""
_logger = logging.getLogger("headrace")


class Consumer:
    """Captures one source into a query's own log. `open_source` is called in the thread, with the directory of the source's state."""

    def __init__(
        self, config: SourceConfig, open_source: Callable[[Path], Source], own: OwnLog, give_up_after_s: float
    ) -> None:
        self._config = config
        self._open_source = open_source
        self._own = own
        self._give_up_after_s = give_up_after_s
        self._log: Holding | None = None
        self._over = threading.Event()
        self._news = threading.Condition()
        self._caught_up = False
        self._error: HeadraceError | None = None
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to capture, if it has not begun."""
        if self._thread is None:
            self._log = self._own.open()
            self._own.hold(self._log, self._config.partitions)
            self._thread = threading.Thread(target=self._run, args=(self._log,), name="headrace-consumer", daemon=True)
            self._thread.start()

    def require_alive(self) -> None:
        """Raises what has ended the capture."""
        if self._error is not None:
            raise self._error

    def wait_caught_up(self) -> None:
        """Until all is on the log that the source had when the capture began; raises what has ended the capture."""
        with self._news:
            self._news.wait_for(lambda: self._caught_up or self._error is not None)
        self.require_alive()

    def has_read(self) -> None:
        """Spark has read on: what stands before may go when its time has come."""
        if self._log is not None:
            self._own.hold(self._log, self._config.partitions)

    def stop(self) -> None:
        """Ends the capture at a whole transaction."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _run(self, log: Holding) -> None:
        try:
            with closing(log), self._own.state() as state, closing(self._open_source(state.directory)) as source:
                self._check(source, log)
                self._capture(source, log, state)
        except Exception as error:  # whatever it is, the query must end with it
            self._tell(error)

    def _capture(self, source: Source, log: Holding, state: SourceState) -> None:
        run_capture(
            source,
            log,
            self._own.topic,
            Masker(self._config, state.directory),
            source_type=self._config.type,
            partitions=self._config.partitions,
            parted_by=self._config.parted_by,
            over=self._over.is_set,
            until_idle=False,
            backoff=Backoff(self._give_up_after_s),
            progress=self._progress,
            before_append=lambda changes: state.save(),
            sleep=self._pause,
        )

    def _pause(self, seconds: float) -> None:
        self._over.wait(seconds)

    def _check(self, source: Source, log: Holding) -> None:
        """At the first start what would not work is told at once, and what could be better as a warning."""
        if (newest := resume_point(log, self._own.topic)) is not None:
            return
        for finding in source.check(newest):
            if finding.stops:
                raise ConfigError(finding.message, fix=finding.fix)
            self._warn(f"{finding.message}; {finding.fix}")

    def _progress(self, captured: Captured) -> None:
        for notice in captured.notices:
            self._warn(notice)
        if captured.problem:
            self._warn(f"{self._config.name}: {captured.problem}")
        if captured.caught_up and not self._caught_up:
            with self._news:
                self._caught_up = True
                self._news.notify_all()

    def _warn(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _logger.warning("headrace: %s", text)

    def _tell(self, error: Exception) -> None:
        with self._news:
            self._error = error if isinstance(error, HeadraceError) else unexpected("the consumer", error)
            self._news.notify_all()
