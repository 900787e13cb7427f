"""Every log in the registry passes the conformance kit. A new log fails here until it has a factory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import registry
from headrace.log.base import Log
from headrace.log.directory import DirectoryLog
from headrace.log.kafka import KafkaLog
from headrace.testing.log import LogConformance, OpenLog
from tests.servers.kafka import Kafka

Factory = Callable[[], Log]


@pytest.fixture
def directory(tmp_path: Path) -> Factory:
    return lambda: DirectoryLog(DirectoryLog.Config(path=tmp_path / "log", segment_bytes=10_000, writer_wait_s=0.05))


@pytest.fixture
def kafka_topics(kafka: Kafka) -> Iterator[Factory]:
    with kafka.prefix() as prefix:
        yield lambda: KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))


FACTORIES = {"directory": "directory", "kafka": "kafka_topics"}
"""Name in the registry -> the fixture that gives empty logs."""


@pytest.mark.parametrize("open_log", registry.names("logs"), indirect=True)
class TestLogs(LogConformance):
    @pytest.fixture
    def open_log(self, request: pytest.FixtureRequest) -> OpenLog:
        name: str = request.param
        if name not in FACTORIES:
            pytest.fail(f"the log '{name}' is registered but not tested: add its factory to FACTORIES")
        factory: Factory = request.getfixturevalue(FACTORIES[name])
        assert isinstance(factory(), registry.load("logs", name))
        return factory
