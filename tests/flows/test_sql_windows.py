"""Windows of computed tables on Spark: over log files of hosts that are late, by the precise watermark; and over a live MySQL with Kafka as the log. Both
are killed, and compared with the same SQL over the lake."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from headrace.codec.entries import EntryReader
from headrace.log.kafka import KafkaLog
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import ID
from tests.flows.command import headrace, kill_group, running, sqlite_rows, wait_for
from tests.flows.shop import Shop
from tests.flows.test_watermark_flow import MINUTE_US, RULE, START_US, Hosts
from tests.servers.kafka import Kafka
from tests.servers.mysql import MySql

HOSTS = ("web1", "web2", "web3")


def lines_flow(directory: Path) -> Path:
    """Lines of hosts, counted by window and host."""
    counting = {
        "type": "sql",
        "name": "per_minute",
        "from": {"said": "applog.web.logs.said"},
        "sql": "SELECT window_end, who, count(*) AS n FROM said GROUP BY ALL",
        "key": ["window_end", "who"],
        "windows": {"of": {"said": {"time": "time", "length": "1m"}}},
    }
    content = {
        "source": [
            {"type": "applog", "name": "web", "files": "./logs/{host}/app.log", "rules": [RULE]},
            counting,
        ],
        "log": {"type": "directory", "path": "./log"},
        "state": "./state",
        "epoch": "2s",
        "watermark": {"sources": {"web": {"expected": {"names": [*HOSTS]}}}},
        "flows": [
            {"name": "raw", "from": "applog.web", "to": {"type": "lake", "path": "./lake"}},
            {"name": "report", "from": "sql.per_minute", "to": {"type": "database", "url": "sqlite:///./report.db"}},
        ],
    }
    path = directory / "flow.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def reported(directory: Path) -> Counter[str]:
    """Rows by the end of their window, of windows that are in the target; nothing while that is being made."""
    try:
        rows = sqlite_rows(directory / "report.db", "per_minute", "window_end, n")
    except sqlite3.OperationalError:
        return Counter()
    found = Counter[str]()
    for end, n in rows:
        found[str(end)[11:16]] += int(str(n))
    return found


def until(expected: dict[str, int], directory: Path, process: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: reported(directory) == expected, process, every_s=0.3)


def until_verified(flow: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the lake has come to where the tables are, and the SQL over it says the same."""
    wait_for(lambda: headrace("verify", flow, "--batch").code == 0, process, every_s=1)


@pytest.mark.timeout(1800)
def test_windows_of_many_hosts_are_told_when_the_slowest_has_passed(tmp_path: Path) -> None:
    hosts, flow = Hosts(tmp_path), lines_flow(tmp_path)
    for host in HOSTS[:2]:
        hosts.write(host, range(3))
    hosts.write("web3", [0], rows=5)
    with hosts.at_work():
        with running(flow) as run:
            hosts.lives("web3", START_US + MINUTE_US)
            until({"12:01": 45}, tmp_path, run)
            kill_group(run)
        hosts.write("web3", [1], rows=7)
        with running(flow) as run:
            hosts.lives("web3", START_US + 2 * MINUTE_US)
            until({"12:01": 45, "12:02": 47}, tmp_path, run)
            for host in HOSTS:
                hosts.write(host, [3])
                hosts.lives(host, START_US + 4 * MINUTE_US)
            until({"12:01": 45, "12:02": 47, "12:03": 40, "12:04": 60}, tmp_path, run)
            until_verified(flow, run)
    with sqlite3.connect(tmp_path / "report.db") as target:
        tables = {name for (name,) in target.execute("SELECT name FROM sqlite_master")}
    assert "per_minute_late" not in tables, "no row was late"


LIVE = """\
source:
  - {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}", password: "{server.password}",
      tables: ["{database}.*"], heartbeat: 500ms}}
  - type: sql
    name: per_product
    from: {{lines: "mysql.db1.{database}.order_lines"}}
    sql: "SELECT product, count(*) AS n, sum(quantity) AS quantity FROM lines GROUP BY product"
    key: [product]
  - type: sql
    name: per_second
    from: {{events: "mysql.db1.{database}.events"}}
    sql: "SELECT window_end, count(*) AS n, sum(id) AS ids FROM events GROUP BY window_end"
    key: [window_end]
    windows: {{of: {{events: {{time: made, length: 1s}}}}, delay: 3s}}
log: {{type: kafka, brokers: "{kafka.brokers}", prefix: "{prefix}"}}
state: ./state
epoch: 2s
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake}}}}
"""


@pytest.fixture
def prefix(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as prefix:
        yield prefix


@pytest.fixture
def database(mysql: MySql) -> Iterator[str]:
    with mysql.database() as name:
        yield name


def on_kafka(kafka: Kafka, prefix: str, topic: str) -> list[dict[str, object]]:
    """Rows that were told on a topic, in their order."""
    log = KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))
    found, reader = [], EntryReader()
    span = log.spans(topic).get(0)
    for record in () if span is None else log.read(topic, 0, span):
        change = reader.read(record.entry)
        found += change.data.to_pylist() if isinstance(change, ChangeBatch) else []
    log.close()
    return found


def event_id(late: dict[str, object]) -> int:
    """Of an event that was told as late."""
    return int(json.loads(str(late["contents"]))["id"])


def inserted(mysql: MySql, database: str, first: int, count: int) -> None:
    """Events of so many transactions."""
    for number in range(first, first + count):
        mysql.execute(f"INSERT INTO events (id) VALUES ({number})", database=database)


@pytest.mark.timeout(1800)
def test_a_live_mysql_with_kafka_as_the_log(
    mysql: MySql, kafka: Kafka, database: str, prefix: str, tmp_path: Path
) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(LIVE.format(server=mysql, kafka=kafka, database=database, prefix=prefix))
    source = mysql.connect(database, autocommit=False)
    shop = Shop(source, seed=15)
    shop.create()
    mysql.execute(
        "CREATE TABLE events (id BIGINT PRIMARY KEY, made TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6))", database=database
    )

    def has_told(events: int) -> bool:
        told = on_kafka(kafka, prefix, "per_second")
        return (
            sum(int(str(row.get("n", 1))) for row in told) >= events
        )  # a row that was late on a slow machine is told apart

    shop.transact(80)
    inserted(mysql, database, 0, 20)
    with running(flow) as run:
        wait_for(partial(has_told, 1), run, every_s=0.3)
        shop.transact(20)
        inserted(mysql, database, 20, 20)
        kill_group(run)
    shop.transact(20)
    with running(flow) as run:
        wait_for(partial(has_told, 40), run, every_s=0.3)  # by heartbeats, as nothing is committed any more
        until_verified(flow, run)
    told = on_kafka(kafka, prefix, "per_second")
    windows, late = [row for row in told if "n" in row], [row for row in told if "n" not in row]
    assert len({row["window_end"] for row in windows}) == len(windows), "each window is told once"
    assert sum(int(str(row["ids"])) for row in windows) + sum(map(event_id, late)) == sum(range(40))
    products = on_kafka(kafka, prefix, "per_product")
    ids = [int(str(row[ID])) for row in products]
    assert ids == sorted(set(ids)), "ids grow"
    newest = {row["product"]: row for row in products}
    with source.cursor() as cursor:
        cursor.execute("SELECT product, count(*), sum(quantity) FROM order_lines GROUP BY product")
        expected = sorted((product, n, int(quantity)) for product, n, quantity in cursor.fetchall())
    there = [row for row in newest.values() if row["_ums_op_"] != "d"]
    assert sorted((row["product"], row["n"], int(str(row["quantity"]))) for row in there) == expected
