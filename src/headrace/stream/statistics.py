"""Figures of a run as lines, one per stage of a path and one per table in it: what metrics and the statistics topic are made of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from headrace.capture.stage import Arrival, Latency, percentile_ms
from headrace.capture.statistics import Spool, StatisticsConfig
from headrace.flow.spec import PipelineSpec
from headrace.model import SourceConfig
from headrace.stream.figures import Json, figures_beside
from headrace.ums.schema import Namespace

CAPTURED, DELIVERED, LOADED, LOAD_DELIVERED = "captured", "delivered", "loaded", "load_delivered"
_OF_TASKS = {"capture": CAPTURED, "load": LOADED}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a path: a source's log, or a flow's target as far as it takes from that source."""

    source: str
    name: str
    """`captured` or `delivered`; of the full load `loaded` or `load_delivered`."""
    flow: str = ""

    def __str__(self) -> str:
        return f"source {self.source}" + (f" to flow {self.flow}" if self.flow else "")


@dataclass(slots=True)
class Line:
    """What has passed a stage since the run began. None is unknown, never zero."""

    stage: Stage
    table: str
    """Namespace without version; empty for all that passed the stage."""
    rows: int = 0
    failed: int = 0
    """Rows that are in the error ledger instead."""
    bytes: int = 0
    latency: Latency = field(default_factory=Counter)
    latency_ms: int = 0
    """Sum over all rows."""
    heartbeat: Arrival | None = None
    lag_ms: float | None = None
    errors: int | None = None
    """Attempts that failed and were made again; known of a stage as a whole."""
    is_silent: bool | None = None
    watermark_us: int | None = None
    """Event time that has passed it; known of a flow as a whole, where the file asks for a watermark."""


def parts(figures: dict[str, Json], sources: Sequence[SourceConfig]) -> Iterator[tuple[Stage, Json]]:
    """What tasks report of stages; a stage that several tasks share comes several times.

    Tasks are named after what they do and their source (stream/tasks.py), flows in them after the topic too.
    """
    longest_first = sorted((source.name for source in sources), key=len, reverse=True)
    for task, reported in figures.items():
        kind, _, rest = task.partition("-")
        source = next((name for name in longest_first if rest == name or rest.startswith(f"{name}-")), None)
        if source is None:
            continue
        if kind == "deliver":
            name = DELIVERED if rest == source else LOAD_DELIVERED
            for follower, part in reported.get("flows", {}).items():
                yield Stage(source, name, follower.partition(".")[0]), part
        elif kind in _OF_TASKS:
            yield Stage(source, _OF_TASKS[kind]), reported


def stages(figures: dict[str, Json], sources: Sequence[SourceConfig]) -> dict[Stage, Json]:
    """The figures of each stage."""
    found: dict[Stage, Json] = {}
    for stage, part in parts(figures, sources):
        found[stage] = figures_beside(found[stage], part) if stage in found else part
    return found


def lines(figures: dict[str, Json], sources: Sequence[SourceConfig], now_us: int) -> Iterator[Line]:
    """Of each stage the line of the whole, then one per table."""
    for stage, part in stages(figures, sources).items():
        tables: dict[str, Line] = {}
        for path, (sent_us, at_us) in part.get("heartbeats", {}).items():
            if path != stage.source:
                lag_ms = (now_us - sent_us) / 1000
                tables[path] = Line(stage, path, heartbeat=Arrival(sent_us, at_us), lag_ms=lag_ms)
        for namespace, rows in part.get("rows", {}).items():
            table = Namespace.parse(namespace).all_versions
            line = tables.setdefault(table, Line(stage, table))
            line.rows += rows
            line.bytes += part.get("bytes", {}).get(namespace, 0)
            if stage.name in (CAPTURED, DELIVERED):  # loaded rows are as old as they are
                line.latency_ms += part["latency_ms"].get(namespace, 0)
                line.latency.update({int(step): count for step, count in part["latency"].get(namespace, {}).items()})
        for namespace, rows in part.get("failed", {}).items():
            table = Namespace.parse(namespace).all_versions
            tables.setdefault(table, Line(stage, table)).failed += rows
        yield _whole(stage, part, tables.values())
        yield from tables.values()


def _whole(stage: Stage, part: Json, tables: Iterable[Line]) -> Line:
    newest = part.get("heartbeats", {}).get(stage.source)
    whole = Line(
        stage,
        "",
        heartbeat=Arrival(*newest) if newest else None,
        lag_ms=part.get("lag_ms"),
        errors=part.get("retries"),
        is_silent=bool(part["silent"]) if "silent" in part else None,
        watermark_us=part.get("watermark_us"),
    )
    for table in tables:
        whole.rows += table.rows
        whole.failed += table.failed
        whole.bytes += table.bytes
        whole.latency_ms += table.latency_ms
        whole.latency.update(table.latency)
    return whole


class Recorder:
    """Hands what has passed in each period to the statistics sources of a flow file, through their spools."""

    def __init__(self, pipeline: PipelineSpec, clock: Callable[[], float] = time.time) -> None:
        self._observed = observed(pipeline)
        self._clock = clock
        self._periods = [
            Period(Spool(pipeline.state / "sources" / source.name), source.every, clock())
            for source in pipeline.source
            if isinstance(source, StatisticsConfig)
        ]

    def look(self, figures: dict[str, Json]) -> None:
        """Called often; writes when a period is over."""
        for period in self._periods:
            period.look(figures, self._observed, self._clock())


def observed(pipeline: PipelineSpec) -> list[SourceConfig]:
    """The sources whose figures are told: statistics of statistics are left out."""
    return [source for source in pipeline.source if not isinstance(source, StatisticsConfig)]


class Taker(Protocol):
    """Who is handed what has passed in a period; times in seconds since 1970 UTC."""

    def write(self, records: Sequence[Json], *, began_s: float, ended_s: float) -> None: ...


class Period:
    """Periods of one length, one after the other."""

    def __init__(self, taker: Taker, every_s: float, began_s: float) -> None:
        self._every_s = every_s
        self._began_s = began_s
        self._taker = taker
        self._before: dict[tuple[Stage, str], Line] = {}

    def look(self, figures: dict[str, Json], sources: Sequence[SourceConfig], now_s: float) -> None:
        """Ends the period when its time is over."""
        if now_s >= self._began_s + self._every_s:
            self.end(figures, sources, now_s)

    def end(self, figures: dict[str, Json], sources: Sequence[SourceConfig], now_s: float) -> None:
        found = list(lines(figures, sources, round(now_s * 1e6)))
        if found:
            self._taker.write(
                [_record(_since(self._before.get((line.stage, line.table)), line)) for line in found],
                began_s=self._began_s,
                ended_s=now_s,
            )
        self._before = {(line.stage, line.table): line for line in found}
        self._began_s = now_s


def _since(before: Line | None, line: Line) -> Line:
    """What came on top; what is a state and no count stays as it is."""
    if before is None:
        return line
    return replace(
        line,
        rows=line.rows - before.rows,
        failed=line.failed - before.failed,
        bytes=line.bytes - before.bytes,
        latency=line.latency - before.latency,
        latency_ms=line.latency_ms - before.latency_ms,
        errors=line.errors - before.errors if line.errors is not None and before.errors is not None else line.errors,
    )


def _record(line: Line) -> Json:
    heartbeat = line.heartbeat
    return {
        "source": line.stage.source,
        "stage": line.stage.name,
        "flow": line.stage.flow,
        "path": line.table,
        "changes": line.rows,
        "failed": line.failed,
        "bytes": line.bytes,
        "errors": line.errors,
        "latency_p50_ms": percentile_ms(line.latency, 0.5),
        "latency_p99_ms": percentile_ms(line.latency, 0.99),
        "lag_ms": line.lag_ms,
        "heartbeat_at_us": heartbeat.sent_us if heartbeat else None,
        "heartbeat_ms": (heartbeat.at_us - heartbeat.sent_us) / 1000 if heartbeat else None,
        "silent": line.is_silent,
    }
