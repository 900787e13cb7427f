"""Positions that a source does not have any more: told with the tables that lost changes, and a way on behind the gap."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pymysql
import pytest

from headrace.capture.log_numbers import LogNumbers
from headrace.capture.runner import PARTITION
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch, read_block
from tests.flows.command import headrace, wait_for
from tests.patience import wait_until
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.process import free_port

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
give_up_after: 1s
"""
MINIMAL = "--binlog-row-metadata=MINIMAL"


class MySqlWithoutGtids(MySql):
    """Its log can be asked for by place only."""

    def program(self) -> list[str]:
        return [*super().program(), "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]


@pytest.fixture(params=[MariaDb, MySql, MySqlWithoutGtids])
def server(request: pytest.FixtureRequest) -> Iterator[BinlogServer]:
    """One whose log a test may purge and reset; tables are told by definitions, which a gap makes unknown."""
    with request.param(MINIMAL) as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
        for key in (1, 2):
            server.execute("FLUSH BINARY LOGS", f"INSERT INTO shop.t VALUES ({key}, 1)")
        yield server


@pytest.fixture
def flow(server: BinlogServer, tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW.format(server=server))
    return path


def captured(flow: Path) -> list[dict[str, object]]:
    """All rows on the log; their ids grow."""
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=flow.parent / "log"))
    rows: list[dict[str, object]] = []
    for record in log.read("db1", PARTITION, log.spans("db1").get(PARTITION, Span(0, 0))):
        block = read_block(record.entry.value)
        if isinstance(block, ChangeBatch):
            rows += block.data.to_pylist()
    log.close()
    ids = [row["_ums_id_"] for row in rows]
    assert ids == sorted(set(ids))
    return rows


def capture(flow: Path) -> list[object]:
    """Captures what is there; the `id` of all rows on the log."""
    result = headrace("capture", flow, "--until-idle")
    assert result.code == 0, result.err
    return [row["id"] for row in captured(flow)]


def assert_refused(flow: Path, *parts: str) -> None:
    """Capture ends at once, twice, with the same clear words."""
    for _ in range(2):
        result = headrace("capture", flow, "--until-idle")
        assert result.code == 1, result.err
        assert "Traceback" not in result.err
        for part in (*parts, "changes of shop.t are lost", "headrace skip", "headrace load FLOW.yaml --table shop.t"):
            assert part in result.err, result.err


def end_sending(server: BinlogServer) -> None:
    """Nobody gets the server's log any more."""

    def ended() -> bool:
        sending = [row[0] for row in server.execute("SHOW PROCESSLIST") if row[4].startswith("Binlog Dump")]
        for id_ in sending:
            with suppress(pymysql.MySQLError):
                server.execute(f"KILL {id_}")
        return not sending

    wait_until(ended)


def purge(server: BinlogServer) -> None:
    """Removes all files but the newest. A server keeps those that it still sends to somebody, or needs after a crash."""
    end_sending(server)
    newest = server.position()[0]

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return [path.name for path in server.binlogs()] == [newest]

    wait_until(purged)


def purge_what_is_not_captured(server: BinlogServer) -> None:
    end_sending(server)
    server.execute(
        "INSERT INTO shop.t VALUES (3, 1)",
        "ALTER TABLE shop.t ADD COLUMN first VARCHAR(9) DEFAULT 'x' FIRST, ADD COLUMN last INT",
        "FLUSH BINARY LOGS",
    )
    purge(server)
    server.execute("INSERT INTO shop.t VALUES ('four', 4, 1, 40)")


@pytest.mark.demand(5)
def test_purged_changes_are_told_and_capture_goes_on_behind_them(server: BinlogServer, flow: Path) -> None:
    assert capture(flow) == [1, 2]
    purge_what_is_not_captured(server)
    checked = headrace("check", flow)
    assert checked.code == 2
    assert "it has purged" in checked.out
    assert_refused(flow, "it has purged")
    skipped = headrace("skip", flow)
    assert skipped.code == 0, skipped.err
    assert f"headrace load {flow} --table shop.t" in skipped.out
    assert capture(flow) == [1, 2, 4]
    newest = captured(flow)[-1]
    assert (newest["first"], newest["v"], newest["last"]) == ("four", 1, 40)
    server.execute("FLUSH BINARY LOGS", "DELETE FROM shop.t WHERE id = 1")
    assert capture(flow) == [1, 2, 4, 1]


@pytest.mark.demand(5)
def test_a_purge_while_a_capture_runs_and_skip_does_not_disturb_it(server: BinlogServer, flow: Path) -> None:
    said = flow.parent / "capture.log"
    with said.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "headrace", "capture", str(flow)], stderr=log)
    try:
        wait_for(lambda: (flow.parent / "log" / "db1").exists() and len(captured(flow)) == 2, process)
        process.send_signal(signal.SIGSTOP)
        purge_what_is_not_captured(server)
        disturbing = headrace("skip", flow)
        assert disturbing.code == 1
        assert "is being written by process" in disturbing.err
        process.send_signal(signal.SIGCONT)
        assert process.wait(120) == 1
    finally:
        process.kill()
        process.wait()
    assert "changes of shop.t are lost" in said.read_text()
    assert "Traceback" not in said.read_text()
    assert [row["id"] for row in captured(flow)] == [1, 2]


@pytest.mark.parametrize("server", [MariaDb, MySql], indirect=True)
def test_a_purge_of_what_was_captured_is_no_loss(server: BinlogServer, flow: Path) -> None:
    """Without names of transactions that could not be known."""
    assert capture(flow) == [1, 2]
    server.execute("FLUSH BINARY LOGS")
    purge(server)
    server.execute("INSERT INTO shop.t VALUES (3, 1)")
    assert capture(flow) == [1, 2, 3]


@pytest.mark.demand(5, 6)
def test_a_log_that_was_reset_is_told_and_captured_with_growing_ids(server: BinlogServer, flow: Path) -> None:
    assert capture(flow) == [1, 2]
    server.execute("RESET MASTER" if isinstance(server, MariaDb) else "RESET BINARY LOGS AND GTIDS")
    server.execute("INSERT INTO shop.t VALUES (3, 1)")
    assert_refused(flow, "it was reset")
    numbers = LogNumbers(flow.parent / "state" / "sources" / "db1")
    lost = numbers.read()[1]
    assert lost is not None
    assert "it was reset" in lost.text, "alerts tell it"
    assert headrace("skip", flow).code == 0
    for _ in range(2):
        assert capture(flow) == [1, 2, 3]
        server.execute("FLUSH BINARY LOGS")
    server.execute("INSERT INTO shop.t VALUES (4, 1)")
    assert capture(flow) == [1, 2, 3, 4]
    assert numbers.read()[1] is None


def test_nothing_is_skipped_without_need(server: BinlogServer, flow: Path) -> None:
    untouched = headrace("skip", flow)
    assert untouched.code == 2
    assert "has not been captured yet" in untouched.err
    assert capture(flow) == [1, 2]
    for place in ("earliest", "binlog.000002:4"):
        refused = headrace("skip", flow, "--to", place)
        assert refused.code == 2
        assert "can go on from there" in refused.err
    refused = headrace("skip", flow, "--to", "2026-11-21T10:00:00Z")
    assert refused.code == 2
    assert "cannot go on at a time" in refused.err


def test_a_statement_without_its_rows_is_skipped_on_demand(server: BinlogServer, flow: Path) -> None:
    assert capture(flow) == [1, 2]
    server.execute("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO shop.t VALUES (3, 1)")
    refused = headrace("capture", flow, "--until-idle")
    assert refused.code == 1
    assert "INSERT INTO of a session without a schema is in the log as a statement" in refused.err
    assert "headrace skip FLOW.yaml --to latest" in refused.err
    assert headrace("skip", flow, "--to", "latest").code == 0
    server.execute("INSERT INTO shop.t VALUES (4, 1)")
    assert capture(flow) == [1, 2, 4]


@pytest.mark.demand(5)
def test_recorded_files_that_are_gone(mysql: MySql, tmp_path: Path) -> None:
    with mysql.database() as database:
        mysql.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        files = []
        for key in (1, 2, 3):
            mysql.execute("FLUSH BINARY LOGS", f"INSERT INTO {database}.t VALUES ({key})")
            files.append(mysql.binlogs()[-1])
        mysql.execute("FLUSH BINARY LOGS")
        kept = [(path.name, path.read_bytes()) for path in files]
    flow = tmp_path / "flow.yaml"
    source = f'{{type: mysql, name: db1, files: "./binlog.0*", tables: ["{database}.*"]}}'
    flow.write_text(f"source: {source}\nlog: {{type: directory, path: ./log}}\nstate: ./state\n")
    (tmp_path / kept[0][0]).write_bytes(kept[0][1])
    assert capture(flow) == [1]
    (tmp_path / kept[0][0]).unlink()
    (tmp_path / kept[2][0]).write_bytes(kept[2][1])
    refused = headrace("capture", flow, "--until-idle")
    assert refused.code == 1
    assert f"changes of {database}.t are lost" in refused.err
    assert headrace("skip", flow).code == 0
    assert capture(flow) == [1, 3]


def test_skip_asks_which_source(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    sources = ", ".join(
        f'{{type: mysql, name: {name}, host: localhost, port: {free_port()}, user: a, tables: ["*.*"]}}'
        for name in ("a", "b")
    )
    flow.write_text(f"source: [{sources}]\nlog: {{type: directory, path: ./log}}\nstate: ./state\n")
    refused = headrace("skip", flow)
    assert refused.code == 2
    assert "--source a or b" in refused.err
