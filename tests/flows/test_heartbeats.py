"""Heartbeats of live servers, through capture, log and flows; what is served and written of them; a path that falls silent."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.capture.heartbeat import Probe
from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.capture.servers import connect
from headrace.errors import Finding
from headrace.ums.change import ChangeBatch, Heartbeat, Mark
from tests.flows.command import headrace, running, sqlite_rows, wait_for
from tests.prometheus import Samples, scraped
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.process import free_port


@pytest.fixture
def database(binlog_server: BinlogServer) -> Iterator[str]:
    with binlog_server.database() as name:
        yield name


def source_config(server: BinlogServer, tables: str, heartbeat: object) -> MySqlConfig:
    options = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    config = {"type": "mysql", "name": "db1", "tables": [tables], "heartbeat": heartbeat, **options}
    return MySqlConfig.model_validate(config)


def source_of(server: BinlogServer, tables: str, state: Path, heartbeat: object) -> MySqlSource:
    return MySqlSource(source_config(server, tables, heartbeat), state)


def heartbeat_finding(source: MySqlSource) -> Finding:
    """What `headrace check` finds about heartbeats; it stops a capture."""
    [found] = [finding for finding in source.check(None) if "no heartbeat can be written" in finding.message]
    assert found.stops
    return found


def create_heartbeat_table(server: BinlogServer, finding: Finding) -> None:
    """Does what the finding says."""
    server.execute(finding.fix[finding.fix.index("CREATE TABLE") : finding.fix.index("; GRANT")])


def test_a_heartbeat_comes_behind_all_that_was_committed_before_it(
    binlog_server: BinlogServer, database: str, tmp_path: Path
) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    committed_us: list[int] = []
    seen_rows, proven = 0, 0
    with closing(source_of(binlog_server, f"{database}.*", tmp_path, "100ms")) as source:
        for event in source.follow(None):
            seen_rows += sum(len(change) for change in event.changes)
            for heartbeat in event.heartbeats:
                assert (heartbeat.source, heartbeat.table) == ("db1", None)
                assert event.mark is not None
                assert heartbeat.id <= event.mark.id
                before = sum(time_us < heartbeat.sent_us for time_us in committed_us)
                assert seen_rows >= before
                proven = max(proven, before)
            if proven == 20:
                return
            if len(committed_us) < 20:
                binlog_server.execute(f"INSERT INTO t VALUES ({len(committed_us)})", database=database)
                committed_us.append(time.time_ns() // 1000)


def test_a_heartbeat_under_way_does_not_cut_transactions_of_a_backlog(
    binlog_server: BinlogServer, database: str, tmp_path: Path
) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)", database=database)
    with closing(source_of(binlog_server, f"{database}.*", tmp_path, "100ms")) as source:
        events = source.follow(None)
        next(events)
        with binlog_server.connect(database, autocommit=False) as connection, connection.cursor() as cursor:
            for _ in range(100):
                for _ in range(20):
                    cursor.execute("INSERT INTO t (v) VALUES (REPEAT('v', 8000))")
                connection.commit()
        seen_rows = 0
        while seen_rows < 2000:
            event = next(events)
            seen_rows += sum(len(change) for change in event.changes)
            assert event.mark is not None
            assert seen_rows % 20 == 0


def test_a_probe_waits_for_the_place_it_was_told_and_keeps_the_time_of_its_question(
    binlog_server: BinlogServer, database: str, tmp_path: Path
) -> None:
    def mark() -> Mark:
        file, offset = binlog_server.position()
        position = BinlogPosition(file, offset, server=asked.server)
        return Mark("db1", position.to_json(), position.id, 0)

    config = source_config(binlog_server, f"{database}.*", "1s")
    with closing(connect(config)) as asked:
        probe = Probe(asked.another, 1)
        before = mark()
        binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
        between = mark()
        probe.send(asked, 1_000)
        binlog_server.execute("INSERT INTO t VALUES (1)", database=database)
        probe.send(asked, 2_000)
        assert probe.arrived(before) == []
        assert probe.arrived(between) == [Heartbeat("db1", None, between.id, 1_000)]
        assert probe.has_news()
        assert probe.arrived(between) == []
        behind = mark()
        assert probe.arrived(behind) == [Heartbeat("db1", None, behind.id, 2_000)]
        assert not probe.has_news()


def test_through_a_table_there_is_one_for_each_captured_table(
    binlog_server: BinlogServer, database: str, tmp_path: Path
) -> None:
    tables = [f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in ("a", "b")]
    binlog_server.execute(*tables, "INSERT INTO a VALUES (1)", database=database)
    heartbeat = {"every": "100ms", "table": f"{database}.ops_beat"}
    source = source_of(binlog_server, f"{database}.*", tmp_path, heartbeat)
    create_heartbeat_table(binlog_server, heartbeat_finding(source))
    assert not any(finding.stops for finding in source.check(None))
    found: list[Heartbeat] = []
    captured = set()
    with closing(source):
        for event in source.follow(None):
            found += event.heartbeats
            captured |= {change.table.namespace.table for change in event.changes}
            if len(found) >= 9:
                break
    assert {beat.path for beat in found} == {"db1", f"mysql.db1.{database}.a", f"mysql.db1.{database}.b"}
    assert captured == {"a"}, "rows of the heartbeat table are no data"
    assert sorted({beat.sent_us for beat in found}) == list(dict.fromkeys(beat.sent_us for beat in found))
    rows = binlog_server.execute(f"SELECT sequence FROM {database}.ops_beat")
    assert len(rows) == 3
    assert min(sequence for (sequence,) in rows) >= 3


def test_who_writes_needs_no_more_than_the_table(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    heartbeat = {"every": "50ms", "table": f"{database}.beat", "user": f"beat_{database}", "password": "secret/1"}
    source = source_of(binlog_server, f"{database}.*", tmp_path, heartbeat)
    binlog_server.execute(f"CREATE USER beat_{database} IDENTIFIED BY 'secret/1'")
    found = heartbeat_finding(source)
    assert "denied" in found.message
    create_heartbeat_table(binlog_server, found)
    grant = found.fix[found.fix.index("GRANT") :]
    binlog_server.execute(grant.replace("…", f"beat_{database}"))
    assert not any(finding.stops for finding in source.check(None))
    paths: set[str] = set()
    with closing(source):
        for event in source.follow(None):
            paths |= {heartbeat.path for heartbeat in event.heartbeats}
            if paths == {"db1", f"mysql.db1.{database}.t"}:
                break
    binlog_server.execute(f"DROP USER beat_{database}")


def test_why_none_can_be_sent_is_told_and_capture_goes_on(
    binlog_server: BinlogServer, database: str, tmp_path: Path
) -> None:
    binlog_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE away (id INT)",
        database=database,
    )
    source = source_of(binlog_server, f"{database}.t", tmp_path, {"every": "50ms", "table": f"{database}.away"})
    rows, notices = 0, []
    until = time.monotonic() + 1.5
    with closing(source):
        for event in source.follow(None):
            rows += sum(len(change) for change in event.changes if isinstance(change, ChangeBatch))
            notices += event.notices
            assert not event.heartbeats
            if time.monotonic() > until:
                break
    assert rows == 1
    assert len(notices) == 1, "once, not at each attempt"
    assert "no heartbeat can be sent" in notices[0]


def test_capture_alone_serves_figures(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", database=database)
    flow = write_flow(tmp_path, binlog_server, database)
    address = f"127.0.0.1:{free_port()}"
    with running(flow, "capture", "--metrics", address) as process:
        stage = ("db1", "captured", "")
        wait_for(lambda: ("headrace_lag_seconds", *stage) in samples(address), process)
        assert samples(address)["headrace_rows_total", *stage, f"mysql.db1.{database}.t"] == 2
    refused = headrace("capture", flow, "--metrics", "nowhere")
    assert refused.code == 2
    assert "write HOST:PORT or a port" in refused.err


FLOW = """\
source:
  - {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
      password: "{server.password}", tables: ["{database}.*"], heartbeat: 1s}}
  - {{type: statistics, name: stats, every: 1s}}
log: {{type: directory, path: ./log}}
state: ./state
epoch: 15s
flows:
  - {{name: raw, from: "mysql.db1", to: {{type: lake, path: ./lake}}}}
  - {{name: lite, from: "mysql.db1", to: {{type: database, url: "sqlite:///./mart.db"}}}}
  - {{name: ops, from: "statistics.stats", to: {{type: database, url: "sqlite:///./ops.db"}}}}
"""


def write_flow(directory: Path, server: BinlogServer, database: str, more: str = "") -> Path:
    path = directory / "flow.yaml"
    path.write_text(FLOW.format(server=server, database=database) + more)
    return path


def samples(address: str) -> Samples:
    """What is served there now; nothing while nobody serves it."""
    try:
        return scraped(address)
    except OSError:
        return {}


@pytest.mark.demand(17)
def test_heartbeats_reach_every_target_and_a_silent_path_is_told(tmp_path: Path) -> None:
    with MariaDb() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        server.execute("INSERT INTO shop.t VALUES (1), (2), (3)", "DELETE FROM shop.t WHERE id = 1")
        address = f"127.0.0.1:{free_port(server.port)}"
        flow = write_flow(tmp_path, server, "shop", more=f'metrics: "{address}"\n')
        stages = [("db1", "captured", ""), ("db1", "delivered", "raw"), ("db1", "delivered", "lite")]
        with running(flow) as process:

            def all_have(name: str, value: float | None = None, *more: str) -> bool:
                now = samples(address)
                found = [now.get((name, *stage, *more)) for stage in stages]
                return None not in found if value is None else found == [value] * len(found)

            wait_for(lambda: all_have("headrace_heartbeat_latency_seconds", None, ""), process)
            wait_for(lambda: all_have("headrace_rows_total", 4, "mysql.db1.shop.t"), process)
            assert 0 <= samples(address)["headrace_lag_seconds", *stages[1]] < 60
            wait_for(lambda: all_have("headrace_silent", 0), process)
            wait_for(lambda: _landed(tmp_path, "heartbeat_ms IS NOT NULL AND changes = 0") != [], process)
            server.kill9()
            wait_for(lambda: all_have("headrace_silent", 1), process)
            told = (tmp_path / "run.log").read_text()
            assert "silent: nothing comes from source db1 to flow raw since" in told
            assert "waiting: the server" in told
            assert process.poll() is None
            server.start()
            server.execute("INSERT INTO shop.t VALUES (5)")
            wait_for(lambda: all_have("headrace_silent", 0), process)
            wait_for(lambda: all_have("headrace_rows_total", 5, "mysql.db1.shop.t"), process)
            assert samples(address)["headrace_errors_total", *stages[0]] > 0
            # What landed in the database is, per period, what is served in all.
            wait_for(lambda: _landed(tmp_path, "flow = 'raw' AND path <> ''", "SUM(changes)") == [(5,)], process)
            size = samples(address)["headrace_bytes_total", *stages[1], "mysql.db1.shop.t"]
            assert _landed(tmp_path, "flow = 'raw' AND path = ''", "SUM(bytes)") == [(size,)]
            assert _landed(tmp_path, "silent = 1 AND flow = 'lite'") != []
            assert _landed(tmp_path, "stage = 'captured' AND path = '' AND errors > 0") != []


def _landed(directory: Path, condition: str, columns: str = "id") -> list[tuple[object, ...]]:
    """From the statistics in the database of flow `ops`."""
    path = directory / "ops.db"
    try:
        return sqlite_rows(path, "stages", columns, condition) if path.exists() else []
    except sqlite3.OperationalError:  # the file is made before its table
        return []
