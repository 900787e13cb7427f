"""Databases that headrace keeps its own records in, and stores of a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.control.tables import ControlDatabase
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'own.db'}"
        return
    server: MariaDb | MySql | PostgreSql = request.getfixturevalue(request.param)
    with server.database() as name:
        yield server.url(name)


@pytest.fixture
def database(url: str) -> Iterator[ControlDatabase]:
    """Opened."""
    with closing(ControlDatabase(url)) as opened:
        opened.open()
        yield opened
