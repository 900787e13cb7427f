"""Metrics as Prometheus reads them: scraped over HTTP and parsed by its own client library."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headrace.capture.stage import Passed, Passing
from headrace.errors import ConfigError
from headrace.flow.spec import MetricsSpec
from headrace.stream.figures import Json, passed_figures
from headrace.stream.metrics import served
from headrace.ums.change import Heartbeat
from tests.prometheus import scraped
from tests.servers.process import free_port
from tests.unit.test_stage import committed
from tests.unit.test_watch import pipeline

NOW_US = 1_700_000_000_000_000


@pytest.fixture
def address() -> MetricsSpec:
    return MetricsSpec(port=free_port())


def figures(*ages_ms: int) -> dict[str, Json]:
    passing, passed = Passing(), Passed()
    passing.add(committed(*(NOW_US - age_ms * 1000 for age_ms in ages_ms)))
    passing.heartbeats.append(Heartbeat("db1", None, 1, NOW_US - 250_000))
    passed.passed(passing, NOW_US)
    passed.retries = 4
    passed.failed["mysql.db1.shop.t.0.0.0"] = 3
    meaning = {"lag_ms": 1_500.0, "silent": "nothing comes", "overdue": {"mysql.db1.shop.t.0.0.0": 4}, "waiting": 5}
    return {
        "capture-db1": {**passed_figures(Passed()), "lag_ms": None, "silent": "", "disordered": {"web1": 7}},
        "deliver-db1": {"flows": {"raw": {**passed_figures(passed), **meaning}}},
    }


def test_the_numbers_are_those_of_the_run(tmp_path: Path, address: MetricsSpec) -> None:
    stage = ("db1", "delivered", "raw")
    table = (*stage, "mysql.db1.shop.t")
    with served([pipeline(tmp_path)], address) as publish:
        assert scraped(address) == {}
        publish(figures(3, 3, 70, 4_000))
        samples = scraped(address)
        assert samples["headrace_rows_total", *table] == 4
        assert samples["headrace_failed_rows_total", *table] == 3
        assert samples["headrace_overdue_rows_total", *table] == 4
        assert samples["headrace_waiting_rows", *stage] == 5
        assert samples["headrace_bytes_total", *table] == committed(1, 2, 3, 4).data.nbytes
        assert samples["headrace_latency_seconds_sum", *table] == pytest.approx(4.076)
        assert samples["headrace_latency_seconds_count", *table] == 4
        bounds = [("0.002", 0), ("0.005", 2), ("0.05", 2), ("0.1", 3), ("2.0", 3), ("5.0", 4), ("+Inf", 4)]
        assert [samples["headrace_latency_seconds_bucket", *table, bound] for bound, _ in bounds] == [
            count for _, count in bounds
        ]
        assert samples["headrace_errors_total", *stage] == 4
        assert samples["headrace_lag_seconds", *stage] == 1.5
        assert samples["headrace_silent", *stage] == 1
        assert samples["headrace_heartbeat_latency_seconds", *stage, ""] == 0.25
        assert samples["headrace_heartbeat_timestamp_seconds", *stage, ""] == (NOW_US - 250_000) / 1e6
        assert samples["headrace_silent", "db1", "captured", ""] == 0
        assert samples["headrace_disordered_rows_total", "db1", "web1"] == 7
        publish(figures(*[1] * 9))
        assert scraped(address)["headrace_rows_total", *table] == 9


def test_what_is_unknown_has_no_sample(tmp_path: Path, address: MetricsSpec) -> None:
    with served([pipeline(tmp_path)], address) as publish:
        publish(figures(1))
        names = {name for name, *labels in scraped(address) if "captured" in labels}
    assert names == {"headrace_errors_total", "headrace_silent"}


def test_a_port_that_is_taken_is_told_and_one_that_was_used_is_free_again(tmp_path: Path, address: MetricsSpec) -> None:
    with served([pipeline(tmp_path)], address):
        pass
    with (
        socket.create_server((address.host, address.port)),
        pytest.raises(ConfigError, match=f"cannot be served at {address}"),
        served([pipeline(tmp_path)], address),
    ):
        pass
