"""Figures for Prometheus, over HTTP from the driver's process. docs/how-to/monitoring.md names them all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headrace.capture.stage import STEPS_MS
from headrace.errors import ConfigError
from headrace.flow.spec import MetricsSpec, PipelineSpec
from headrace.model import SourceConfig
from headrace.stream.figures import Json, Progress
from headrace.stream.statistics import Line, lines

_STAGE = ("source", "stage", "flow")
_TABLE = (*_STAGE, "table")
_BOUNDS = [*(str(step / 1000) for step in STEPS_MS), "+Inf"]


class Metrics(Collector):
    """The newest figures as metric families. What is unknown has no sample."""

    def __init__(self, pipelines: Sequence[PipelineSpec]) -> None:
        self._sources = [source for pipeline in pipelines for source in pipeline.source]
        self._newest: dict[str, Json] = {}

    def show(self, figures: dict[str, Json]) -> None:
        self._newest = figures

    def collect(self) -> Iterator[Metric]:
        """Called for each scrape, in a thread of the server."""
        found = list(lines(self._newest, self._sources, time.time_ns() // 1000))
        yield from _counted([line for line in found if line.table])
        yield from _states([line for line in found if not line.table])
        yield from _heartbeats(found)
        yield _disorder(self._newest, self._sources)


@contextmanager
def served(pipelines: Sequence[PipelineSpec], address: MetricsSpec | None) -> Iterator[Progress]:
    """Serves what the callback is given: at `address`, else where each flow file says. ConfigError when a port is taken."""
    metrics = Metrics(pipelines)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    wanted = [address] if address is not None else [each.metrics for each in pipelines if each.metrics is not None]
    with ExitStack() as servers:
        for place in dict.fromkeys(wanted):
            try:
                server, thread = start_http_server(place.port, place.host, registry)
            except OSError as error:
                raise ConfigError(
                    f"metrics cannot be served at {place}: {error.strerror}",
                    fix="name another port, or an address of this machine, in `metrics` or --metrics",
                ) from error
            servers.callback(thread.join)
            servers.callback(server.server_close)
            servers.callback(server.shutdown)
        yield metrics.show


def _counted(tables: Sequence[Line]) -> Iterator[Metric]:
    rows = CounterMetricFamily("headrace_rows", "Changes that have passed the stage", labels=_TABLE)
    failed = CounterMetricFamily("headrace_failed_rows", "Rows that are in the error ledger instead", labels=_TABLE)
    overdue = CounterMetricFamily(
        "headrace_overdue_rows", "Rows that were not valid when their time was over", labels=_TABLE
    )
    size = CounterMetricFamily("headrace_bytes", "Their size in memory", labels=_TABLE)
    latency = HistogramMetricFamily(
        "headrace_latency_seconds", "From commit at the source to the stage, per change", labels=_TABLE
    )
    for line in tables:
        rows.add_metric(_labels(line), line.rows)
        failed.add_metric(_labels(line), line.failed)
        overdue.add_metric(_labels(line), line.overdue)
        size.add_metric(_labels(line), line.bytes)
        if line.latency:
            counts = accumulate(line.latency[step] for step in range(len(_BOUNDS)))
            latency.add_metric(_labels(line), list(zip(_BOUNDS, counts, strict=True)), line.latency_ms / 1000)
    yield from (rows, failed, overdue, size, latency)


def _states(wholes: Sequence[Line]) -> Iterator[Metric]:
    errors = CounterMetricFamily("headrace_errors", "Attempts that failed and were made again", labels=_STAGE)
    lag = GaugeMetricFamily("headrace_lag_seconds", "How far behind its source the stage is at most", labels=_STAGE)
    silent = GaugeMetricFamily("headrace_silent", "1 while nothing comes through, not even heartbeats", labels=_STAGE)
    waiting = GaugeMetricFamily("headrace_waiting_rows", "Rows that wait to become valid", labels=_STAGE)
    for line in wholes:
        if line.waiting is not None:
            waiting.add_metric(_labels(line), line.waiting)
        if line.errors is not None:
            errors.add_metric(_labels(line), line.errors)
        if line.lag_ms is not None:
            lag.add_metric(_labels(line), line.lag_ms / 1000)
        if line.is_silent is not None:
            silent.add_metric(_labels(line), line.is_silent)
    yield from (errors, lag, silent, waiting)


def _heartbeats(found: Sequence[Line]) -> Iterator[Metric]:
    sent = GaugeMetricFamily(
        "headrace_heartbeat_timestamp_seconds", "When the newest heartbeat was sent", labels=_TABLE
    )
    latency = GaugeMetricFamily("headrace_heartbeat_latency_seconds", "How long it took to the stage", labels=_TABLE)
    for line in found:
        if line.heartbeat is not None:
            labels = [*_labels(line)[:3], line.table]
            sent.add_metric(labels, line.heartbeat.sent_us / 1e6)
            latency.add_metric(labels, (line.heartbeat.at_us - line.heartbeat.sent_us) / 1e6)
    yield from (sent, latency)


def _disorder(newest: Mapping[str, Json], sources: Sequence[SourceConfig]) -> Metric:
    rows = CounterMetricFamily(
        "headrace_disordered_rows",
        "Rows of a host that are older than one of it before them",
        labels=("source", "host"),
    )
    for source in sources:
        for host, count in newest.get(f"capture-{source.name}", {}).get("disordered", {}).items():
            rows.add_metric((source.name, host), count)
    return rows


def _labels(line: Line) -> list[str]:
    whole = [line.stage.source, line.stage.name, line.stage.flow]
    return [*whole, line.table] if line.table else whole
