"""Where capture begins, and how it goes on: also at another server of the group, at the same transaction, with growing ids."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.capture.runner import PARTITION
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch, read_block
from tests.flows.command import headrace
from tests.servers.mariadb import MariaDb

FLOW = """\
source: {{type: mysql, name: db1, host: "{first.host}", port: {first.port}, failover: ["{second.host}:{second.port}"],
          user: "{first.user}", password: "{first.password}", tables: ["shop.*"], start: {start}}}
log: {{type: directory, path: ./log}}
state: ./state
give_up_after: {patience_s}s
"""


@pytest.fixture
def primary() -> Iterator[MariaDb]:
    with MariaDb("--server-id=11") as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
        for _ in range(3):
            server.execute("FLUSH BINARY LOGS")
        yield server


@pytest.fixture
def standby(primary: MariaDb) -> Iterator[MariaDb]:
    """A replica of the primary that writes its own binlog, whose files have smaller numbers and other places."""
    with MariaDb("--server-id=12", "--log-slave-updates") as server:
        server.execute(
            f"CHANGE MASTER TO MASTER_HOST='{primary.host}', MASTER_PORT={primary.port}, MASTER_USER='{primary.user}',"
            f" MASTER_PASSWORD='{primary.password}', MASTER_USE_GTID=slave_pos",
            "START SLAVE",
        )
        yield server


def write_flow(
    directory: Path, first: MariaDb, second: MariaDb, *, patience_s: int = 20, start: str = "earliest"
) -> Path:
    path = directory / "flow.yaml"
    path.write_text(FLOW.format(first=first, second=second, patience_s=patience_s, start=start))
    return path


def capture(flow: Path) -> list[int]:
    """Captures all that is there; the `id` of all rows on the log, whose `_ums_id_` must grow."""
    result = headrace("capture", flow, "--until-idle")
    assert result.code == 0, result.err
    rows = captured(flow.parent)
    ids = [id_ for id_, _ in rows]
    assert ids == sorted(set(ids))
    return [row for _, row in rows]


def captured(directory: Path) -> list[tuple[int, int]]:
    """(_ums_id_, id) of all rows on the log, in its order."""
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))
    found: list[tuple[int, int]] = []
    for record in log.read("db1", PARTITION, log.spans("db1").get(PARTITION, Span(0, 0))):
        block = read_block(record.entry.value)
        if isinstance(block, ChangeBatch):
            columns = (block.data.column(name).to_pylist() for name in ("_ums_id_", "id"))
            found += zip(*columns, strict=True)
    log.close()
    return found


def wait_for_replica(primary: MariaDb, standby: MariaDb) -> None:
    [(wanted,)] = primary.execute("SELECT @@gtid_binlog_pos")
    give_up_at = time.monotonic() + 30
    while standby.execute("SELECT @@gtid_slave_pos") != [(wanted,)]:
        assert time.monotonic() < give_up_at, standby.execute("SHOW SLAVE STATUS")
        time.sleep(0.05)


def test_start_at_a_time(primary: MariaDb, tmp_path: Path) -> None:
    primary.execute("INSERT INTO shop.t VALUES (1, 1)", "FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (2, 1)")
    [(noted,)] = primary.execute("DO SLEEP(1.1)", "SELECT DATE_FORMAT(UTC_TIMESTAMP(), '%Y-%m-%dT%H:%i:%sZ')")
    primary.execute("INSERT INTO shop.t VALUES (3, 1)", "FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (4, 1)")
    flow = write_flow(tmp_path, primary, primary, start=noted)
    assert capture(flow) == [3, 4]
    primary.execute("FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (5, 1)")
    assert capture(flow) == [3, 4, 5]


def test_start_behind_a_set_of_gtids(primary: MariaDb, tmp_path: Path) -> None:
    primary.execute("INSERT INTO shop.t VALUES (1, 1), (2, 1)")
    [(executed,)] = primary.execute("SELECT @@gtid_binlog_pos")
    primary.execute("FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (3, 1)")
    assert capture(write_flow(tmp_path, primary, primary, start=f'"{executed}"')) == [3]


def test_another_server_goes_on_at_the_same_transaction(primary: MariaDb, standby: MariaDb, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, primary, standby)
    primary.execute("INSERT INTO shop.t VALUES (1, 1), (2, 1)", "UPDATE shop.t SET v = 2 WHERE id = 1")
    assert capture(flow) == [1, 2, 1]
    primary.execute("INSERT INTO shop.t VALUES (3, 1)")
    wait_for_replica(primary, standby)
    primary.kill9()
    standby.execute("STOP SLAVE", "INSERT INTO shop.t VALUES (4, 1)")
    for _ in range(2):
        assert capture(flow) == [1, 2, 1, 3, 4]
        standby.execute("FLUSH BINARY LOGS")
    standby.execute("INSERT INTO shop.t VALUES (5, 1)")
    assert capture(flow) == [1, 2, 1, 3, 4, 5]


def test_a_server_that_lacks_transactions_is_not_read(primary: MariaDb, standby: MariaDb, tmp_path: Path) -> None:
    wait_for_replica(primary, standby)
    standby.execute("STOP SLAVE")
    primary.execute("INSERT INTO shop.t VALUES (1, 1)")
    flow = write_flow(tmp_path, primary, standby, patience_s=2)
    assert capture(flow) == [1]
    primary.kill9()
    result = headrace("capture", flow, "--until-idle")
    assert result.code == 1
    assert "does not have all transactions that were captured" in result.err
    assert "Traceback" not in result.err
    assert [row for _, row in captured(tmp_path)] == [1]


def test_a_server_that_was_reset_is_noticed(primary: MariaDb, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, primary, primary, patience_s=1)
    primary.execute("INSERT INTO shop.t VALUES (1, 1)")
    assert capture(flow) == [1]
    primary.execute("RESET MASTER", "INSERT INTO shop.t VALUES (2, 1)")
    result = headrace("capture", flow, "--until-idle")
    assert result.code == 1
    assert "does not have all transactions that were captured" in result.err


def test_decode_prints_the_log_of_a_live_server(primary: MariaDb, tmp_path: Path) -> None:
    primary.execute("INSERT INTO shop.t VALUES (1, 1)", "FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (2, 1)")
    flow = write_flow(tmp_path, primary, primary)
    live = headrace("decode", "binlog", "--source", flow)
    assert live.code == 0, live.err
    recorded = headrace("decode", "binlog", "--tables", "shop.*", *primary.binlogs())
    assert live.out == recorded.out
    assert [json.loads(line)["after"]["id"] for line in live.out.splitlines()] == [1, 2]
    assert headrace("decode", "binlog").code == 2


def test_what_is_whole_before_a_fault_is_captured(primary: MariaDb, tmp_path: Path) -> None:
    primary.execute("INSERT INTO shop.t VALUES (1, 1)", "INSERT INTO shop.t VALUES (2, 1)")
    primary.execute("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO shop.t VALUES (3, 1)")
    refused = headrace("capture", write_flow(tmp_path, primary, primary), "--until-idle")
    assert refused.code == 1
    assert "INSERT INTO" in refused.err
    assert [row for _, row in captured(tmp_path)] == [1, 2]


def test_a_server_that_has_all_is_found_behind_one_that_lacks_some(
    primary: MariaDb, standby: MariaDb, tmp_path: Path
) -> None:
    wait_for_replica(primary, standby)
    standby.execute("STOP SLAVE")
    primary.execute("INSERT INTO shop.t VALUES (1, 1)")
    assert capture(write_flow(tmp_path, primary, standby)) == [1]
    primary.execute("INSERT INTO shop.t VALUES (2, 1)")
    assert capture(write_flow(tmp_path, standby, primary)) == [1, 2]


def test_a_replica_that_does_not_log_what_it_replicates_is_refused(primary: MariaDb, tmp_path: Path) -> None:
    with MariaDb("--server-id=13") as silent:
        silent.execute(
            f"CHANGE MASTER TO MASTER_HOST='{primary.host}', MASTER_PORT={primary.port}, MASTER_USER='{primary.user}',"
            f" MASTER_PASSWORD='{primary.password}', MASTER_USE_GTID=slave_pos",
            "START SLAVE",
        )
        wait_for_replica(primary, silent)
        refused = headrace("check", write_flow(tmp_path, silent, silent))
    assert refused.code == 1
    assert "log_slave_updates is OFF" in refused.err


def test_decoding_does_not_disturb_a_capture(primary: MariaDb, tmp_path: Path) -> None:
    primary.execute("INSERT INTO shop.t VALUES (1, 1)")
    flow = write_flow(tmp_path, primary, primary)
    running = subprocess.Popen([sys.executable, "-m", "headrace", "capture", str(flow)])
    try:
        give_up_at = time.monotonic() + 60
        while not (tmp_path / "log" / "db1").exists() or not captured(tmp_path):
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        decoded = headrace("decode", "binlog", "--source", flow)
        assert decoded.code == 0, decoded.err
        primary.execute("INSERT INTO shop.t VALUES (2, 1)")
        while [row for _, row in captured(tmp_path)] != [1, 2]:
            assert running.poll() is None
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
    finally:
        running.terminate()
        assert running.wait(30) == 0


@pytest.mark.parametrize("start", ["2026-11-21", "5", '"2026-11-21 10:00"', '"binlog.000001:2"', '"0-1-999999"'])
def test_a_start_that_is_none_is_told(primary: MariaDb, tmp_path: Path, start: str) -> None:
    refused = headrace("capture", write_flow(tmp_path, primary, primary, start=start), "--until-idle")
    assert refused.code == 2
    assert "start" in refused.err
    assert "Traceback" not in refused.err


def test_a_start_within_a_transaction_is_refused(primary: MariaDb, tmp_path: Path) -> None:
    primary.execute("BEGIN", *(f"INSERT INTO shop.t VALUES ({key}, 1)" for key in (1, 2)), "COMMIT")
    events = primary.execute("SHOW BINLOG EVENTS IN 'binlog.000004'")
    within = [event[1] for event in events if event[2] == "Table_map"][-1]
    refused = headrace(
        "capture", write_flow(tmp_path, primary, primary, start=f"binlog.000004:{within}"), "--until-idle"
    )
    assert refused.code == 1
    assert "a place where a transaction begins" in refused.err
    assert not captured(tmp_path)
