"""What the server says of pipelines to Prometheus; their own figures come from their processes (stream/metrics.py). docs/how-to/monitoring.md names them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.control.api.plane import Plane
from headrace.control.states import Name


class _Pipelines(Collector):
    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "headrace_pipeline_state", "1 for the state that it is in", labels=["pipeline", "state"]
        )
        attempt = GaugeMetricFamily(
            "headrace_pipeline_attempt", "Which attempt in a row to keep it running this is", labels=["pipeline"]
        )
        for pipeline, run in self._plane.runs.newest():
            now = self._plane.state(pipeline, run, self._plane.places.told(run)).name
            for name in get_args(Name):
                state.add_metric([pipeline.name, name], name == now)
            if run is not None:
                attempt.add_metric([pipeline.name], run.attempt)
        yield from self._verifications()
        yield from self._alerts()
        leader = self._plane.runs.leader()
        is_leader = leader is not None and leader.holder == self._plane.reconciler.holder
        yield from (state, attempt, GaugeMetricFamily("headrace_leader", "1 on the server that leads", value=is_leader))

    def _verifications(self) -> Iterator[Metric]:
        labels = ["pipeline", "flow", "table"]
        ok = GaugeMetricFamily("headrace_verification_ok", "1 when the target held what it should", labels=labels)
        keys = GaugeMetricFamily("headrace_verification_differing_keys", "Keys that differed", labels=labels)
        at = GaugeMetricFamily("headrace_verification_timestamp_seconds", "When it was looked at", labels=labels)
        for found in self._plane.verifications.newest():
            of = [found.pipeline, found.flow, found.source_table]
            ok.add_metric(of, found.ok)
            at.add_metric(of, found.at_us / 1e6)
            if found.differing_keys is not None:
                keys.add_metric(of, found.differing_keys)
        yield from (ok, keys, at)

    def _alerts(self) -> Iterator[Metric]:
        firing = GaugeMetricFamily("headrace_alerts", "Alerts that fire", labels=["rule", "severity"])
        counts = Counter(
            (alert.rule, alert.severity) for alert in self._plane.alerts.active() if alert.state == "firing"
        )
        for named in self._plane.book.rules():
            firing.add_metric([named.name, named.rule.severity], counts[named.name, named.rule.severity])
        waiting = GaugeMetricFamily("headrace_alert_notices_waiting", "What is still to be told", labels=["channel"])
        untold = self._plane.alerts.waiting()
        for channel in self._plane.book.channels():
            waiting.add_metric([channel.name], untold.get(channel.name, 0))
        yield from (firing, waiting)


def exposition(plane: Plane) -> bytes:
    """All of it, as Prometheus reads it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Pipelines(plane))
    return generate_latest(registry)
