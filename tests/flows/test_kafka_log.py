"""The main job with Kafka as its log: MariaDB -> Kafka -> SQLite and lake, and `headrace log` on what is between."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.codec.entries import EntryReader
from headrace.lake.asof import as_of
from headrace.log.kafka import KafkaLog
from headrace.ums.change import ChangeBatch
from tests.flows import compare
from tests.flows.command import headrace, run_until_idle, running, wait_for
from tests.flows.shop import TABLES, Shop
from tests.patience import HANG_S
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"]}}
log: {{type: kafka, brokers: "{kafka.brokers}", prefix: "{prefix}"}}
state: ./state
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake}}}}
  - {{name: lite, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


@pytest.fixture
def prefix(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as prefix:
        yield prefix


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[str]:
    with mariadb.database() as name:
        yield name


@pytest.fixture
def flow(tmp_path: Path, mariadb: MariaDb, kafka: Kafka, database: str, prefix: str) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW.format(server=mariadb, kafka=kafka, database=database, prefix=prefix))
    return path


def logged_ids(kafka: Kafka, prefix: str) -> list[tuple[str, int]]:
    log = KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))
    found, reader = [], EntryReader()
    for record in log.read("db1", 0, log.spans("db1")[0]):
        block = reader.read(record.entry)
        if isinstance(block, ChangeBatch):
            found += [(block.table.namespace.table, id_) for id_ in block.data.column("_ums_id_").to_pylist()]
    log.close()
    return found


def delivered(mart: Path) -> list[tuple[object, ...]]:
    """The rows of t in the target; none while it has not made the table."""
    try:
        return compare.sqlite_target_rows(mart, "t", ["id"])
    except sqlite3.OperationalError:
        return []


def test_into_every_target_and_on_from_where_it_stopped(
    mariadb: MariaDb, kafka: Kafka, database: str, prefix: str, flow: Path
) -> None:
    assert "log: fine" in headrace("check", flow).out
    source = mariadb.connect(database, autocommit=False)
    shop = Shop(source, seed=1)
    shop.create()
    for _ in range(2):
        shop.transact(150)
        run_until_idle(flow)
        for table in TABLES:
            namespace = f"mysql.db1.{database}.{table}"
            expected = compare.source_rows(source, table)
            columns = as_of(flow.parent / "lake", namespace).column_names
            assert compare.lake_rows(flow.parent / "lake", namespace) == expected
            assert compare.sqlite_target_rows(flow.parent / "mart.db", table, columns) == expected
    ids = logged_ids(kafka, prefix)
    assert ids
    assert len(ids) == len(set(ids)), "a change was captured twice"


def test_a_running_job_stops_well_and_people_can_look_into_its_log(
    mariadb: MariaDb, kafka: Kafka, database: str, prefix: str, flow: Path
) -> None:
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", database=database)
    mart = flow.parent / "mart.db"
    with running(flow) as process:
        wait_for(lambda: delivered(mart) == [("1",), ("2",)], process)
        mariadb.execute("INSERT INTO t VALUES (3)", database=database)
        wait_for(lambda: delivered(mart) == [("1",), ("2",), ("3",)], process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_S) == 0
    said = (flow.parent / "run.log").read_text()
    assert "Traceback" not in said
    assert "ERROR" not in said
    for place in (flow, f"kafka://{kafka.brokers}"):
        topics = [json.loads(line)["topic"] for line in headrace("log", "ls", place, "--json").out.splitlines()]
        assert ("db1" if place == flow else f"{prefix}db1") in topics
    entries = [json.loads(line) for line in headrace("log", "cat", flow, "db1", "--json").out.splitlines()]
    rows = [entry["header"]["rows"] for entry in entries if entry["header"]["kind"] == "changes"]
    assert sum(rows) == 3
    assert entries[-1]["header"]["kind"] == "mark"
    later = headrace("log", "cat", flow, "db1", "--json", "--from", entries[1]["offset"]).out.splitlines()
    assert [json.loads(line) for line in later] == entries[1:]
    [figures] = [json.loads(line) for line in headrace("log", "stat", flow, "--json").out.splitlines()]
    assert (figures["replicas"], figures["newest"]) == (1, entries[-1]["time"])
    assert "newest entry" in headrace("log", "stat", flow).out


def test_a_full_load_is_initial_data(mariadb: MariaDb, kafka: Kafka, database: str, prefix: str, flow: Path) -> None:
    mariadb.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 300) SELECT n FROM s",
        database=database,
    )
    flow.write_text(
        flow.read_text().replace("tables:", "start: latest, load: {workers: 1, chunk_rows: 100}, tables:", 1)
    )
    run_until_idle(flow)
    assert sorted(int(str(row[0])) for row in delivered(flow.parent / "mart.db")) == list(range(1, 301))
    shown = headrace("log", "cat", flow, "db1.load.1", "--format", "ums-dbus").out.splitlines()
    messages = [json.loads(line) for line in shown]
    rows = [len(one["payload"]) for one in messages if one["protocol"]["type"] == "data_initial_data"]
    assert sum(rows) == 300
    assert max(rows) == 5
    log = KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))
    [span] = log.spans("db1.load.1").values()
    assert all(record.entry.value.startswith(b"{") for record in log.read("db1.load.1", 0, span))
    log.close()
