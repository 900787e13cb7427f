"""Where capture begins, and how it goes on: also at another server of the group, at the same transaction, with growing ids."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.mysql import MySqlSource
from headrace.capture.runner import PARTITION
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch, read_block
from tests.flows.command import headrace, wait_for
from tests.patience import HANG_S, wait_until
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
        replicate(primary, server)
        yield server


def replicate(primary: MariaDb, standby: MariaDb) -> None:
    standby.execute(
        f"CHANGE MASTER TO MASTER_HOST='{primary.host}', MASTER_PORT={primary.port}, MASTER_USER='{primary.user}',"
        f" MASTER_PASSWORD='{primary.password}', MASTER_USE_GTID=slave_pos",
        "START SLAVE",
    )


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
    return [(row["_ums_id_"], row["id"]) for row in rows_of(directory)]


def rows_of(directory: Path, table: str = "*") -> list[dict[str, Any]]:
    """All rows of tables like `table` on the log, in its order."""
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))
    found: list[dict[str, Any]] = []
    for record in log.read("db1", PARTITION, log.spans("db1").get(PARTITION, Span(0, 0))):
        block = read_block(record.entry.value)
        if isinstance(block, ChangeBatch) and fnmatchcase(block.table.namespace.table, table):
            found += block.data.to_pylist()
    log.close()
    return found


def wait_for_replica(primary: MariaDb, standby: MariaDb) -> None:
    [(wanted,)] = primary.execute("SELECT @@gtid_binlog_pos")
    wait_until(
        lambda: standby.execute("SELECT @@gtid_slave_pos") == [(wanted,)], lambda: standby.execute("SHOW SLAVE STATUS")
    )


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


@pytest.mark.demand(6)
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


def test_heartbeats_written_at_the_primary_come_through_the_standby(
    primary: MariaDb, standby: MariaDb, tmp_path: Path
) -> None:
    config = {
        "type": "mysql",
        "name": "db1",
        "host": standby.host,
        "port": standby.port,
        "user": standby.user,
        "password": standby.password,
        "tables": ["shop.*"],
        "heartbeat": {"every": "100ms", "table": "shop.beat", "host": f"{primary.host}:{primary.port}"},
    }
    source = MySqlSource(MySqlSource.Config.model_validate(config), tmp_path)
    [finding] = [
        one for one in source.check(None) if f"could not write at {primary.host}:{primary.port}" in one.message
    ]
    primary.execute(finding.fix[finding.fix.index("CREATE TABLE") : finding.fix.index("; GRANT")])
    wait_for_replica(primary, standby)
    standby.execute("SET GLOBAL read_only = 1")
    stopped_us = 0
    goes_on_at_us = None
    with closing(source):
        for event in source.follow(None):
            newest_us = max((heartbeat.sent_us for heartbeat in event.heartbeats), default=0)
            if newest_us and not stopped_us:
                standby.execute("STOP SLAVE")
                stopped_us = time.time_ns() // 1000
            elif goes_on_at_us is None:
                assert newest_us <= stopped_us or not stopped_us, "it did not come through the standby"
                if stopped_us and time.time_ns() // 1000 > stopped_us + 500_000:
                    standby.execute("START SLAVE")
                    goes_on_at_us = time.time_ns() // 1000
            elif newest_us > goes_on_at_us:
                return


@pytest.mark.demand(6)
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


@pytest.mark.demand(6)
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


@pytest.mark.demand(6)
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
        replicate(primary, silent)
        wait_for_replica(primary, silent)
        refused = headrace("check", write_flow(tmp_path, silent, silent))
    assert refused.code == 2
    assert "log_slave_updates is OFF" in refused.out


def test_decoding_does_not_disturb_a_capture(primary: MariaDb, tmp_path: Path) -> None:
    primary.execute("INSERT INTO shop.t VALUES (1, 1)")
    flow = write_flow(tmp_path, primary, primary)
    running = subprocess.Popen([sys.executable, "-m", "headrace", "capture", str(flow)])
    try:
        wait_for(lambda: (tmp_path / "log" / "db1").exists() and captured(tmp_path) != [], running)
        decoded = headrace("decode", "binlog", "--source", flow)
        assert decoded.code == 0, decoded.err
        primary.execute("INSERT INTO shop.t VALUES (2, 1)")
        wait_for(lambda: [row for _, row in captured(tmp_path)] == [1, 2], running)
    finally:
        running.terminate()
        assert running.wait(HANG_S) == 0


def test_tables_without_a_description_are_told_by_the_server_that_is_left(tmp_path: Path) -> None:
    """Behind a failover definitions are learned from the other server, at ids that go on: also of a table that came since."""
    minimal = "--binlog-row-metadata=MINIMAL"
    with (
        MariaDb("--server-id=11", minimal) as first,
        MariaDb("--server-id=12", "--log-slave-updates", minimal) as second,
    ):
        first.execute("CREATE DATABASE shop", *["FLUSH BINARY LOGS"] * 3)
        first.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, name VARCHAR(9) CHARACTER SET latin1)")
        replicate(first, second)
        flow = write_flow(tmp_path, first, second, start="latest")
        wait_for_replica(first, second)
        assert capture(flow) == []
        first.execute(
            "INSERT INTO shop.t VALUES (1, 'näh')", "CREATE TABLE shop.u (id INT PRIMARY KEY, a INT UNSIGNED)"
        )
        wait_for_replica(first, second)
        first.kill9()
        second.execute(
            "STOP SLAVE", "INSERT INTO shop.u VALUES (2, 4000000000)", "ALTER TABLE shop.t ADD COLUMN c INT FIRST"
        )
        second.execute("INSERT INTO shop.t VALUES (5, 3, 'öd')")
        assert capture(flow) == [1, 2, 3]
        rows = [row for table in ("t", "u") for row in rows_of(tmp_path, table)]
    assert [(row.get("c"), row["id"], row.get("name"), row.get("a")) for row in rows] == [
        (None, 1, "näh", None),
        (5, 3, "öd", None),
        (None, 2, None, 4_000_000_000),
    ]


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
