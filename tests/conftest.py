"""Fixtures that every test may use: one real server of a kind per session, a fresh database per test (`server.database()`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb
from tests.servers.postgresql import PostgreSql


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    with MariaDb() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    with PostgreSql() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with Kafka() as broker:
        yield broker
