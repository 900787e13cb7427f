"""Every log in the registry passes the conformance kit. A new log fails here until it has a factory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import registry
from headrace.log.base import Log
from headrace.log.directory import DirectoryLog
from headrace.log.kafka import KafkaLog
from headrace.log.shared.hdfs import HdfsLog
from headrace.log.shared.s3 import S3Log
from headrace.testing.log import LogConformance, OpenLog
from tests.servers.hdfs import Hdfs
from tests.servers.kafka import Kafka
from tests.servers.s3 import S3

Factory = Callable[[], Log]


@pytest.fixture
def directory(tmp_path: Path) -> Factory:
    return lambda: DirectoryLog(DirectoryLog.Config(path=tmp_path / "log", segment_bytes=10_000, writer_wait_s=0.05))


@pytest.fixture
def kafka_topics(kafka: Kafka) -> Iterator[Factory]:
    with kafka.prefix() as prefix:
        yield lambda: KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))


@pytest.fixture
def hdfs_directory(hdfs: Hdfs) -> Factory:
    place = hdfs.place()
    return lambda: HdfsLog(HdfsLog.Config(path=place, web=hdfs.web, segment_bytes=10_000))


@pytest.fixture
def s3_prefix(s3: S3) -> Factory:
    place = s3.place()
    return lambda: S3Log(S3Log.Config(path=place, segment_bytes=10_000, **s3.options()))


FACTORIES = {"directory": "directory", "hdfs": "hdfs_directory", "kafka": "kafka_topics", "s3": "s3_prefix"}
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
