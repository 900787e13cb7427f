"""A source whose topic has several partitions: on the real broker and in the embedded log, with kills on the way."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.codec.entries import EntryReader
from headrace.lake.commit import Manifest
from headrace.log.base import Log, Span
from headrace.log.directory import DirectoryLog
from headrace.log.kafka import KafkaLog
from headrace.retry import retrying
from headrace.ums.change import ChangeBatch, Mark
from tests.flows import compare
from tests.flows.command import headrace, run_until_idle, running, wait_for
from tests.flows.shop import TABLES, Shop
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb

PARTITIONS = 3
KILLS = int(os.environ.get("HEADRACE_KILLS", "4"))
COLUMNS = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = '{}' AND table_name = '{}'"
    " ORDER BY ordinal_position"
)
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"], partitions: {partitions}, heartbeat: off}}
log: {log}
state: ./state
epoch: 1500ms
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake, commit_interval: 0.2}}}}
  - {{name: lite, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[str]:
    with mariadb.database() as name:
        yield name


class Place:
    """A flow file and its log."""

    def __init__(self, directory: Path, mariadb: MariaDb, database: str, kafka: Kafka | None, prefix: str) -> None:
        self.flow = directory / "flow.yaml"
        self._kafka = kafka
        self._prefix = prefix
        options = "{type: directory, path: ./log}"
        if kafka is not None:
            options = json.dumps({"type": "kafka", "brokers": kafka.brokers, "prefix": prefix})
        self._fields = {"server": mariadb, "database": database, "log": options}
        self.write(PARTITIONS)

    def write(self, partitions: int) -> None:
        self.flow.write_text(FLOW.format(**self._fields, partitions=partitions))

    def log(self) -> Log:
        if self._kafka is None:
            return DirectoryLog(DirectoryLog.Config(path=self.flow.parent / "log"))
        return KafkaLog(KafkaLog.Config(brokers=self._kafka.brokers, prefix=self._prefix))


@pytest.fixture
def on_kafka(tmp_path: Path, mariadb: MariaDb, database: str, kafka: Kafka) -> Iterator[Place]:
    with kafka.prefix() as prefix:
        yield Place(tmp_path, mariadb, database, kafka, prefix)


@pytest.fixture
def embedded(tmp_path: Path, mariadb: MariaDb, database: str) -> Place:
    return Place(tmp_path, mariadb, database, None, "")


def assert_same(mariadb: MariaDb, database: str, directory: Path) -> None:
    """Source and both targets, row by row; and no change is in the lake twice."""
    with mariadb.connect(database) as source:
        for table in TABLES:
            expected = compare.source_rows(source, table)
            columns = [name for (name,) in mariadb.execute(COLUMNS.format(database, table))]
            assert compare.lake_rows(directory / "lake", f"mysql.db1.{database}.{table}") == expected
            assert compare.sqlite_target_rows(directory / "mart.db", table, columns) == expected
    files = Manifest.open(directory / "lake").files()
    ids = [
        (file.table.table, id_)
        for file in files
        for id_ in pq.read_table(directory / "lake" / file.path, columns=["_ums_id_"]).column(0).to_pylist()
    ]
    assert ids
    assert len(ids) == len(set(ids)), "a change is in the lake twice"


def assert_keys_keep_to_one_partition(log: Log) -> None:
    """Keys stay where they are, ids only grow (so nothing is there twice), and each partition has the same marks."""
    home: dict[tuple[object, ...], int] = {}
    marks: list[list[int]] = []
    for partition, span in log.spans("db1").items():
        reader = EntryReader()
        newest: dict[str, int] = {}
        marks.append([])
        for record in log.read("db1", partition, span):
            found = reader.read(record.entry)
            if isinstance(found, Mark):
                marks[-1].append(found.id)
            if not isinstance(found, ChangeBatch):
                continue
            table = found.table.namespace.all_versions
            for row in found.data.to_pylist():
                if found.table.key:
                    key = (table, *(row[name] for name in found.table.key))
                    assert home.setdefault(key, partition) == partition
                assert row["_ums_id_"] > newest.get(table, -1)
                newest[table] = row["_ums_id_"]
    assert len(marks) == PARTITIONS
    assert marks[0] == marks[1] == marks[2]
    assert set(home.values()) == set(range(PARTITIONS))


def test_kills_lose_nothing_and_double_nothing(on_kafka: Place, mariadb: MariaDb, database: str) -> None:
    shop = Shop(mariadb.connect(database, autocommit=False), seed=3)
    shop.create()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            shop.transact(20)
            time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    chance, log = random.Random(5), on_kafka.log()

    def spans() -> Mapping[int, Span]:
        return retrying(lambda: log.spans("db1"), give_up_after_s=60)  # the capture is making the topic

    try:
        for _ in range(KILLS):
            before = spans()
            with running(on_kafka.flow, "capture") as process:
                wait_for(lambda before=before: spans() != before, process)
                time.sleep(chance.uniform(0, 1))
    finally:
        stop.set()
        writer.join()
    run_until_idle(on_kafka.flow)
    assert_same(mariadb, database, on_kafka.flow.parent)
    assert_keys_keep_to_one_partition(log)
    log.close()


def test_their_number_may_change(embedded: Place, mariadb: MariaDb, database: str) -> None:
    shop = Shop(mariadb.connect(database, autocommit=False), seed=4)
    shop.create()
    for partitions in (1, 3):
        embedded.write(partitions)
        shop.transact(60)
        run_until_idle(embedded.flow)
        assert_same(mariadb, database, embedded.flow.parent)
    log = embedded.log()
    assert sorted(log.spans("db1")) == [0, 1, 2]
    log.close()
    rows = [json.loads(line) for line in headrace("log", "stat", embedded.flow, "--json").out.splitlines()]
    readers = {
        (reader["reader"], row["partition"]): reader["lag"]
        for row in rows
        if row["topic"] == "db1"
        for reader in row["readers"]
    }
    assert readers == {(flow, partition): 0 for flow in ("raw", "lite") for partition in range(3)}
