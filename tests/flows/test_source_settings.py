"""`headrace check`: every wrong setting of a source at once, each with its remedy; advice does not stop anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.capture.connection import Address
from headrace.capture.replica import Replica
from tests.flows.command import headrace
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql

GOOD = ("--binlog-expire-logs-seconds=604800", "--default-time-zone=+00:00")
KINDS = pytest.mark.parametrize("kind", [MariaDb, MySql])


def check(directory: Path, server: BinlogServer, more: str = "", **changes: str) -> tuple[int, list[str]]:
    """Exit code and lines of `headrace check`."""
    login = {"user": server.user, "password": server.password, "tables": "shop.*", **changes}
    path = directory / "flow.yaml"
    path.write_text(
        f'source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{login["user"]}",'
        f' password: "{login["password"]}", tables: ["{login["tables"]}"]{more}}}\n'
        "log: {type: directory, path: ./log}\nstate: ./state\n"
    )
    result = headrace("check", path)
    assert "Traceback" not in result.err
    assert (result.code == 2) == ("would stop a run" in result.err)
    return result.code, [line for line in result.out.splitlines() if not line.startswith("log:")]


@contextmanager
def shop(kind: type[MariaDb | MySql], *options: str) -> Iterator[BinlogServer]:
    with kind(*GOOD, *options) as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        yield server


def assert_found(lines: list[str], level: str, *parts: str) -> None:
    assert any(f": {level}: " in line and all(part in line for part in parts) for line in lines), lines


@KINDS
def test_a_server_as_it_should_be(kind: type[MariaDb | MySql], tmp_path: Path) -> None:
    partial = ["--binlog-row-value-options=PARTIAL_JSON"] if kind is MySql else []
    with shop(kind, *partial) as server:
        assert check(tmp_path, server) == (0, ["source db1: fine", "fine: sources db1; flows none"])


@KINDS
def test_everything_wrong_is_told_at_once(kind: type[MariaDb | MySql], tmp_path: Path) -> None:
    wrong = ("--binlog-format=MIXED", "--binlog-row-image=MINIMAL", "--binlog-row-metadata=MINIMAL", "--server-id=7")
    with shop(kind, *wrong, "--default-time-zone=SYSTEM", "--binlog-expire-logs-seconds=600") as server:
        code, lines = check(tmp_path, server, ", server_id: 7", tables="shop.nothing")
    assert code == 2
    assert_found(lines, "wrong", "binlog_format is MIXED", "SET GLOBAL binlog_format = 'ROW'")
    assert_found(lines, "wrong", "binlog_row_image is MINIMAL", "SET GLOBAL binlog_row_image = 'FULL'")
    assert_found(lines, "wrong", "server_id 7 of the source is the server's own", "another `server_id`")
    assert_found(lines, "advice", "binlog_row_metadata is not FULL", "SET GLOBAL binlog_row_metadata = 'FULL'")
    assert_found(lines, "advice", "time_zone is SYSTEM", "SET GLOBAL time_zone")
    assert_found(lines, "advice", "for only 600 s", "binlog_expire_logs_seconds")
    assert_found(lines, "advice", "no table that headrace may see matches `tables` (shop.nothing)")


@KINDS
def test_a_server_without_a_binlog(kind: type[MariaDb | MySql], tmp_path: Path) -> None:
    with shop(kind, "--skip-log-bin") as server:
        code, lines = check(tmp_path, server)
    assert code == 2
    assert_found(lines, "wrong", "log_bin is OFF", "--log-bin")
    assert len(lines) == 1, lines


@KINDS
def test_a_schema_that_the_server_does_not_log(kind: type[MariaDb | MySql], tmp_path: Path) -> None:
    with shop(kind, "--binlog-ignore-db=shop") as server:
        code, lines = check(tmp_path, server)
    assert code == 0
    assert_found(lines, "advice", "leaves schema shop out of its binlog", "--binlog-ignore-db")


def test_a_group_whose_servers_cannot_be_told_apart(tmp_path: Path) -> None:
    with shop(MariaDb) as first, shop(MariaDb) as second:
        code, lines = check(tmp_path, first, f', failover: ["{second.host}:{second.port}"]')
    assert code == 2
    assert_found(lines, "wrong", f"{first.host}:{first.port} and {second.host}:{second.port}", "server_id 1")


@KINDS
def test_each_missing_right_is_told(kind: type[MariaDb | MySql], tmp_path: Path) -> None:
    with shop(kind) as server:
        asks = "REPLICATION CLIENT" if kind is MySql else "BINLOG MONITOR"
        for name, rights in (("mute", asks), ("blind", "REPLICATION SLAVE"), ("able", f"REPLICATION SLAVE, {asks}")):
            server.execute(f"CREATE USER {name} IDENTIFIED BY 'pw'", f"GRANT {rights} ON *.* TO {name}")
        server.execute("GRANT INSERT ON shop.t TO able")
        for name, code in (("mute", 2), ("blind", 2), ("able", 0)):
            found, lines = check(tmp_path, server, user=name, password="pw")
            assert found == code, (name, lines)
            if code:
                assert_found(lines, "wrong", "GRANT REPLICATION SLAVE")
        assert_found(lines, "advice", "able may not read shop.t", "GRANT SELECT ON shop.t TO 'able'@'%'")


@pytest.mark.demand(6)
def test_a_failover_group_without_gtids(tmp_path: Path) -> None:
    with shop(MySql, "--gtid-mode=OFF_PERMISSIVE") as server:
        code, lines = check(tmp_path, server, f', failover: ["{server.host}:{server.port}"]')
    assert code == 2
    assert_found(lines, "wrong", "gtid_mode is not ON", "SET GLOBAL enforce_gtid_consistency = ON")


@KINDS
def test_an_id_that_another_replica_uses(
    kind: type[MariaDb | MySql], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.capture.replica.OWN_HOST", "elsewhere")
    with shop(kind) as server:
        other = Replica(Address(server.host, server.port, server.user, server.password), 4711)
        other.connect()
        other.register()
        code, lines = check(tmp_path, server, ", server_id: 4711")
        assert code == 2
        assert_found(lines, "wrong", "server_id 4711 of the source is used by a replica at elsewhere")
        other.close()


@KINDS
@pytest.mark.demand(5)
def test_a_capture_that_lags_behind_what_the_server_keeps(kind: type[MariaDb | MySql], tmp_path: Path) -> None:
    with shop(kind) as server:
        server.execute("INSERT INTO shop.t VALUES (1)")
        assert check(tmp_path, server)[0] == 0
        assert headrace("capture", tmp_path / "flow.yaml", "--until-idle").code == 0
        # Files are purged only when the log is flushed: until then a lag can be seen.
        server.execute("SET GLOBAL binlog_expire_logs_seconds = 1", "DO SLEEP(2.5)")
        _, lines = check(tmp_path, server)
        assert not any("behind" in line for line in lines), "a quiet source is not behind"
        server.execute("INSERT INTO shop.t VALUES (2)")
        _, lines = check(tmp_path, server)
    assert_found(lines, "advice", "changes may go before they are captured")
    assert any(re.search(r"capture is \d+ s behind, and the server keeps its binlog for 1 s", line) for line in lines)
