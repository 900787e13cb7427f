"""Fixtures that every test may use: one real server of a kind per session, a fresh database per test (`server.database()`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.binlog_server import BinlogServer
from tests.servers.cassandra import Cassandra
from tests.servers.clickhouse import ClickHouse
from tests.servers.hbase import HBase
from tests.servers.hdfs import Hdfs
from tests.servers.jdbc import H2, Derby
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql
from tests.servers.redis import Redis
from tests.servers.registry import Registry
from tests.servers.s3 import S3
from tests.servers.search import Elasticsearch, OpenSearch

S = TypeVar("S", bound=AbstractContextManager[object])

# An example may take as long as a busy machine needs: what it takes says nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Of every Java that a test starts: it lives for seconds, for which the second compiler and several collectors only cost.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def one_of_a_session(kind: Callable[[], S]) -> Callable[[], Iterator[S]]:
    """A fixture: a server that all tests of a session share, started for the first that asks."""

    @pytest.fixture(scope="session")
    def server() -> Iterator[S]:
        with (started := kind()):
            yield started

    return server


cassandra = one_of_a_session(Cassandra)
clickhouse = one_of_a_session(ClickHouse)
derby = one_of_a_session(Derby)
elasticsearch = one_of_a_session(Elasticsearch)
h2 = one_of_a_session(H2)
hbase = one_of_a_session(HBase)
hdfs = one_of_a_session(Hdfs)
kafka = one_of_a_session(Kafka)
mariadb = one_of_a_session(MariaDb)
mysql = one_of_a_session(MySql)
opensearch = one_of_a_session(OpenSearch)
postgresql = one_of_a_session(PostgreSql)
redis = one_of_a_session(Redis)
registry = one_of_a_session(Registry)
s3 = one_of_a_session(S3)


def _shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str) -> str:
    """A directory of a test's own on a shared store, which this process and its children reach by the URL alone."""
    server = request.getfixturevalue(kind)
    if isinstance(server, S3):
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
    place: str = server.place()
    return place


@pytest.fixture(params=["hdfs", "s3"])
def shared_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A test that asks for this one runs on each file system that machines share."""
    return _shared(request, monkeypatch, request.param)


@pytest.fixture(params=["directory", "hdfs", "s3"])
def any_place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | str:
    """The same, and on the disk."""
    return tmp_path if request.param == "directory" else _shared(request, monkeypatch, request.param)


@pytest.fixture(params=["mariadb", "mysql"])
def binlog_server(request: pytest.FixtureRequest) -> BinlogServer:
    """A test that asks for this one runs on each kind of server that has a binary log."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, BinlogServer)
    return server
