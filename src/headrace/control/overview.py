"""All pipelines at one glance: each with its state and what its flows do.

A thousand processes tell a thousand files a second, and pages ask again and again. So the answer is kept as bytes, and a thread makes it anew
every second as long as somebody asks: who asks does not wait for it, but for the first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

from headrace.control.pipelines import Pipeline
from headrace.control.places import Places
from headrace.control.runs import Runs
from headrace.control.states import State, state_of
from headrace.errors import HeadraceError

EVERY_S = 1.0
_YOUNG_S = 3.0
"""What is older is not shown: the thread may have been kept from making it."""
_ASKED_FOR_S = 10.0
Json = dict[str, Any]
_TOLD = (
    "source", "flow", "rows", "failed", "errors", "rows_per_s", "bytes_per_s", "lag_ms", "latency_p50_ms", "latency_p99_ms", "silent",
)  # fmt: skip


class Overview:
    """Of one server."""

    def __init__(self, runs: Runs, places: Places, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs = runs
        self._places = places
        self._clock = clock
        self._making = threading.Lock()
        self._made: tuple[float, bytes] = (float("-inf"), b"")
        self._asked_s = float("-inf")
        self._maker: threading.Thread | None = None

    def json(self) -> bytes:
        """A JSON array, made a moment ago. RetryableError when the store cannot be reached."""
        self._asked_s = self._clock()
        found = self._young(_YOUNG_S)
        if found is None:
            found = self._make()
            with self._making:
                if self._maker is None:
                    self._maker = threading.Thread(target=self._go_on, name="overview", daemon=True)
                    self._maker.start()
        return found

    def _make(self) -> bytes:
        with self._making:
            if (found := self._young(EVERY_S / 2)) is None:
                found = to_json(list(self._lines(time.time_ns() // 1000)))
                self._made = (self._clock(), found)
            return found

    def _go_on(self) -> None:
        """While somebody asks. When the store is away those who ask are told."""
        while True:
            time.sleep(EVERY_S)
            with self._making:
                if self._clock() - self._asked_s > _ASKED_FOR_S:
                    self._maker = None
                    return
            with suppress(HeadraceError):
                self._make()

    def _young(self, seconds: float) -> bytes | None:
        made_s, made = self._made
        return made if self._clock() - made_s < seconds else None

    def _lines(self, now_us: int) -> Iterator[Json]:
        for pipeline, run in self._runs.newest():
            try:
                told = self._places.told(run)
                state = state_of(pipeline, run, lambda told=told: told, now_us)  # type: ignore[misc]
            except HeadraceError as error:  # of one pipeline's files: the others are shown
                told, state = {}, State("stalled", now_us, error.message, error.fix)
            yield _line(pipeline, state, told)


def _line(pipeline: Pipeline, state: State, told: Json) -> Json:
    stages = told.get("stages", [])
    return {
        "name": pipeline.name,
        "state": {"name": state.name, "since": _time(state.since_us), "why": state.why, "fix": state.fix},
        "wanted": pipeline.wanted,
        "at": _time(told.get("at_us")),
        "sources": [_told(stage) for stage in stages if stage["stage"] == "captured"],
        "flows": [_told(stage) for stage in stages if stage["stage"] == "delivered"],
    }


def _told(stage: Json) -> Json:
    return {**{name: stage[name] for name in _TOLD}, "watermark": _time(stage["watermark_us"])}


def _time(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(us / 1e6, UTC)
