"""Fixtures that every test may use: one real server of a kind per session, a fresh database per test (`server.database()`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.binlog_server import BinlogServer
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    with MariaDb() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySql]:
    with MySql() as server:
        yield server


@pytest.fixture(params=["mariadb", "mysql"])
def binlog_server(request: pytest.FixtureRequest) -> BinlogServer:
    """A test that asks for this one runs on each kind of server that has a binary log."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, BinlogServer)
    return server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    with PostgreSql() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with Kafka() as broker:
        yield broker
