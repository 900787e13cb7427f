"""Figures of loaders for Prometheus; docs/how-to/doris.md names them, and deploy/prometheus has rules on them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.doris.service import Report, State


def exposed(reports: Sequence[Report]) -> bytes:
    """As it is scraped. What is not known has no sample."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Reports(reports))
    return generate_latest(registry)


class _Reports(Collector):
    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "headrace_doris_state", "1 for the state that a loader is in", labels=("load", "state")
        )
        starts = CounterMetricFamily(
            "headrace_doris_starts", "Starts of a loader's process by this service", labels=("load",)
        )
        for report in self._reports:
            starts.add_metric((report.name,), report.starts)
            for state in State:
                states.add_metric((report.name, state), report.state is state)
        yield from (states, starts)
        yield from self._of_status()

    def _of_status(self) -> Iterator[Metric]:
        def gauge(name: str, text: str, *more: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"headrace_doris_{name}", text, labels=("load", *more))

        alive = gauge("alive_timestamp_seconds", "When a loader last said that it runs")
        looked = gauge("looked_timestamp_seconds", "When the store and Kafka last answered")
        lag = gauge("lag_messages", "Offsets that are not in Doris yet", "topic", "partition")
        open_ = gauge("open_loads", "Loads that are not known to be in Doris")
        oldest = gauge("oldest_open_load_seconds", "How long ago the oldest of them was begun")
        loads = CounterMetricFamily("headrace_doris_loads", "Loads that were begun", labels=("load",))
        loaded = CounterMetricFamily("headrace_doris_rows_loaded", "Rows that are in Doris", labels=("load",))
        refused = CounterMetricFamily("headrace_doris_rows_refused", "Rows that were left out", labels=("load",))
        for report in self._reports:
            if (status := report.status) is None:
                continue
            of = (report.name,)
            looked.add_metric(of, time.time() - report.status_age_s)
            if status.alive_us is not None:
                alive.add_metric(of, status.alive_us / 1e6)
            for place, offsets in (status.lag or {}).items():
                lag.add_metric((*of, *place.rsplit("/", 1)), offsets)
            open_.add_metric(of, len(status.unloaded))
            oldest.add_metric(of, time.time() - status.unloaded[0].begun_us / 1e6 if status.unloaded else 0)
            loads.add_metric(of, status.newest[0].sequence if status.newest else 0)
            loaded.add_metric(of, status.rows_loaded)
            refused.add_metric(of, status.rows_refused)
        yield from (alive, looked, lag, open_, oldest, loads, loaded, refused)
