"""What a run tells the control plane, about once a second: all stages and tables, and a summary without tables."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from headrace.capture.stage import percentile_ms
from headrace.flow.spec import PipelineSpec
from headrace.stream.figures import Json
from headrace.stream.statistics import LOADED, Line, Stage, lines, parts

_RATED_S = 10.0
"""Rates are those of so long."""
_IN_THE_WAY = ("problem", "silent")
"""What of a stage's figures says why nothing comes through."""


class Teller:
    """Of one run."""

    def __init__(self, pipeline: PipelineSpec, clock: Callable[[], float] = time.time) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._before: deque[tuple[float, dict[Stage, tuple[int, int]]]] = deque()

    def told(self, figures: dict[str, Json]) -> tuple[Json, Json]:
        """Everything, and the summary."""
        now_s = self._clock()
        found = list(lines(figures, self._pipeline.source, round(now_s * 1e6)))
        self._remember(now_s, {line.stage: (line.rows, line.bytes) for line in found if not line.table})
        head = {"at_us": round(now_s * 1e6), "problems": self._problems(figures)}
        rates = {line.stage: self._rates(line.stage) for line in found if not line.table}
        stages = [_of_line(line, rates[line.stage] if not line.table else (None, None)) for line in found]
        summary = {**head, "stages": [stage for stage in stages if not stage["table"]]}
        return {**head, "stages": stages, "loads": list(_loads(figures, self._pipeline, found))}, summary

    def _problems(self, figures: dict[str, Json]) -> list[str]:
        """What stands in the way."""
        return sorted(
            {
                f"{stage}: {part[key]}"
                for stage, part in parts(figures, self._pipeline.source)
                for key in _IN_THE_WAY
                if part.get(key)
            }
        )

    def _remember(self, now_s: float, passed: dict[Stage, tuple[int, int]]) -> None:
        self._before.append((now_s, passed))
        while len(self._before) > 2 and self._before[1][0] <= now_s - _RATED_S:
            self._before.popleft()

    def _rates(self, stage: Stage) -> tuple[float | None, float | None]:
        """Rows and bytes a second."""
        (began_s, first), (ended_s, last) = self._before[0], self._before[-1]
        if stage not in first or ended_s <= began_s:
            return None, None
        rows, size = (late - early for early, late in zip(first[stage], last[stage], strict=True))
        return round(rows / (ended_s - began_s), 1), round(size / (ended_s - began_s), 1)


def _of_line(line: Line, rates: tuple[float | None, float | None]) -> Json:
    return {
        "source": line.stage.source,
        "stage": line.stage.name,
        "flow": line.stage.flow,
        "table": line.table,
        "rows": line.rows,
        "failed": line.failed,
        "bytes": line.bytes,
        "errors": line.errors,
        "lag_ms": line.lag_ms,
        "latency_p50_ms": percentile_ms(line.latency, 0.5),
        "latency_p99_ms": percentile_ms(line.latency, 0.99),
        "silent": line.is_silent,
        "rows_per_s": rates[0],
        "bytes_per_s": rates[1],
        "watermark_us": line.watermark_us,
    }


def _loads(figures: dict[str, Json], pipeline: PipelineSpec, found: list[Line]) -> Iterator[Json]:
    """Tables that are being loaded, or were since the plan began."""
    rows = {(line.stage.source, line.table): line.rows for line in found if line.stage.name == LOADED and line.table}
    types = {source.name: source.type for source in pipeline.source}
    for stage, part in parts(figures, pipeline.source):
        for table, load in part.get("load", {}).items() if stage.name == LOADED else ():
            yield {
                "source": stage.source,
                "table": table,
                "rows": rows.get((stage.source, f"{types[stage.source]}.{stage.source}.{table}"), 0),
                "rows_expected": load["rows_expected"],
                "shards": load["shards"],
                "shards_done": load["shards_done"],
                "state": _state_of_load(load, is_paused=part["paused"]),
            }


def _state_of_load(load: Json, *, is_paused: bool) -> str:
    if load["ended"]:
        return "cancelled" if load["cancelled"] else "loaded"
    if is_paused:
        return "paused"
    return "loading" if load["shards"] else "waiting"
