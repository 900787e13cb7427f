"""The servers that other tests rely on: they keep committed data over a crash and say why they do not start."""

from __future__ import annotations

import pytest

from tests.servers.install import PACKAGES, MissingPackageError, find_program
from tests.servers.mariadb import MariaDb
from tests.servers.postgresql import PostgreSql
from tests.servers.process import ServerError


def test_mariadb_keeps_committed_rows_over_a_crash_and_has_a_row_based_binlog() -> None:
    with MariaDb() as server, server.database() as name:
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)", database=name)
        server.kill9()
        server.restart()
        assert server.execute("SELECT id FROM t", database=name) == [(7,)]
        assert server.execute("SELECT @@binlog_format, @@binlog_row_image, @@binlog_row_metadata") == [
            ("ROW", "FULL", "FULL")
        ]
        assert server.binlogs()
    assert not server.directory.exists()


def test_postgresql_keeps_committed_rows_over_a_crash() -> None:
    with PostgreSql() as server, server.database() as name:
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)", database=name)
        server.kill9()
        server.restart()
        assert server.execute("SELECT id FROM t", database=name) == [(7,)]
    assert not server.directory.exists()


def test_a_server_that_does_not_start_shows_its_log() -> None:
    with pytest.raises(ServerError, match="no-such-option"), MariaDb("--no-such-option"):
        pass


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "mongod", "mongodb-server")
    with pytest.raises(MissingPackageError, match="apt-get install mongodb-server"):
        find_program("mongod")
