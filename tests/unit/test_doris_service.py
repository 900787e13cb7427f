"""The service of Doris loaders while a store is away; the rest of it runs in tests/flows/test_doris_service.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.doris.config import LoaderConfig
from headrace.doris.service import Service, State
from headrace.errors import RetryableError


def test_a_store_that_is_away_stops_no_service_and_is_asked_again(tmp_path: Path) -> None:
    folder = tmp_path / "not there yet"
    config = LoaderConfig.model_validate(
        {
            "name": "clicks", "database": "web", "table": "clicks", "store": f"sqlite:///{folder}/loads.db",
            "kafka": {"brokers": "127.0.0.1:1", "topics": ["clicks"], "timeout": 1},
            "doris": {"frontends": ["127.0.0.1:1"], "query": "127.0.0.1:1"},
        }
    )  # fmt: skip
    service = Service([(tmp_path / "clicks.yaml", config)], lambda _: None)
    service.open()
    for _ in range(2):
        service.tick()
        report = service.report("clicks")
        assert (report.state, report.starts) == (State.WAITING, 0)
        assert "the store of loads" in report.trouble
    for change in (service.start, service.stop, service.restart):
        with pytest.raises(RetryableError, match="the store of loads"):
            change("clicks")
    folder.mkdir()
    service.stop("clicks")
    service.tick()
    service.look()
    report = service.report("clicks")
    assert (report.state, report.starts) == (State.STOPPED, 0)
    assert "Kafka" in report.trouble
    service.close()
