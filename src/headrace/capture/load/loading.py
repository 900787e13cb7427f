"""One process's part in the full load of a source: the lanes that are its own, and for the first process the plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.capture.load.base import LoadConfig, Loader, NotYetError
from headrace.capture.load.plan import Plan, lane_topic
from headrace.capture.load.planner import Planner
from headrace.capture.load.wishes import is_paused
from headrace.capture.load.worker import Worker
from headrace.capture.mask import Masker
from headrace.capture.runner import PARTITION
from headrace.log.base import Log, Span

_LOOK_EVERY_S = 0.1
Json = dict[str, Any]


class Loading:
    """Process `number` (from 1) of `config.workers`. Lanes of workers that are no longer configured are shared out."""

    def __init__(
        self,
        new_loader: Callable[[], Loader],
        log: Log,
        source: str,
        config: LoadConfig,
        directory: Path,
        *,
        source_type: str,
        masker: Masker,
        number: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._source = source
        self._config = config
        self._directory = directory
        self._plan = Plan(log, source)
        self._plan.refresh()
        self._loaders = [new_loader()]
        self._planner: Planner | None = None
        if number == 1:
            # With a connection of its own: it plans while a shard is being read.
            self._loaders.append(new_loader())
            self._planner = Planner(self._loaders[1], log, self._plan, source, config=config, directory=directory)
        rate = None if config.rows_per_s is None else config.rows_per_s / config.workers
        self._workers = [
            Worker(
                self._loaders[0], log, self._plan, source, lane, source_type=source_type, masker=masker, rows_per_s=rate
            )
            for lane in _lanes(self._plan, config)
            if (lane - number) % config.workers == 0
        ]
        self._clock = clock
        self._look_again = clock()
        self.complete = False
        """Everything that was to be loaded is; only the process that plans knows."""
        self.waiting_for = ""
        """Why nothing is done though there is something to do."""
        self.is_paused = False
        """Somebody wants nothing more to be read for now."""

    @property
    def rows(self) -> Counter[str]:
        """Rows per namespace that were loaded here."""
        return sum((worker.loaded.rows for worker in self._workers), Counter[str]())

    @property
    def failed(self) -> Counter[str]:
        """Rows per namespace that were read here and are in the error ledger."""
        return sum((worker.loaded.failed for worker in self._workers), Counter[str]())

    @property
    def notices(self) -> list[str]:
        """What a person must know: of rows that were read and are not in the log, and why nothing more is read."""
        paused = [f"the full load of {self._source} is paused; `headrace load FILE --resume` goes on"]
        return [*(notice for worker in self._workers for notice in worker.loaded.notices), *paused[: self.is_paused]]

    def step(self, over: Callable[[], bool]) -> bool:
        """Plans, and works on one shard of each lane; whether there was one."""
        worked = False
        self.waiting_for = ""
        try:
            self._look()
            for worker in self._workers:
                shard = None if self.is_paused else worker.next()
                if shard is not None:
                    for _ in worker.work(shard, lambda: self.is_paused or over()):
                        if self._clock() >= self._look_again:
                            self._look()
                    worked = True
        except NotYetError as error:
            self.waiting_for = error.message
        return worked

    def wait(self, timeout_s: float) -> None:
        """Until there may be more to do."""
        self._plan.wait(timeout_s)

    def figures(self) -> Json:
        """Per table how far it is; empty for all but the process that plans."""
        return self._planner.figures() if self._planner else {}

    def ends(self) -> dict[str, int]:
        """Where the topics of all lanes end."""
        topics = [lane_topic(self._source, lane) for lane in _lanes(self._plan, self._config)]
        return {topic: self._log.spans(topic).get(PARTITION, Span(0, 0)).stop for topic in topics}

    def close(self) -> None:
        for loader in self._loaders:
            loader.close()

    def _look(self) -> None:
        self._look_again = self._clock() + _LOOK_EVERY_S
        self._plan.refresh()
        self.is_paused = is_paused(self._directory)
        if self._planner is not None:
            self.complete = self._planner.step({worker.lane: worker.progress for worker in self._workers})
            self.waiting_for = self._planner.waiting_for


def lane_topics(log: Log, source: str, config: LoadConfig | None) -> list[str]:
    """Every topic that rows of a source's full load are or will be in; `config`: None where nothing is loaded any more."""
    plan = Plan(log, source)
    plan.refresh()
    return [lane_topic(source, lane) for lane in (plan.lanes if config is None else _lanes(plan, config))]


def _lanes(plan: Plan, config: LoadConfig) -> list[int]:
    return sorted({*range(1, config.workers + 1), *plan.lanes})
