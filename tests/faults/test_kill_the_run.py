"""SIGKILL in the middle of a run, at random moments and at every named crash point: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.lake.commit import Manifest
from tests.flows import compare
from tests.flows.command import delivering, headrace, kill_group, run_until_idle, running, wait_for
from tests.flows.shop import TABLES, Shop
from tests.patience import HANG_S
from tests.servers.mariadb import MariaDb

ROUNDS = int(os.environ.get("HEADRACE_KILLS", "5"))
CRASH_POINTS = ["epoch.started", "epoch.working", "epoch.finished", "epoch.recorded"]
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"]}}
log: {{type: directory, path: ./log}}
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


@pytest.fixture
def flow(mariadb: MariaDb, database: str, tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW.format(server=mariadb, database=database))
    return path


class Writer(threading.Thread):
    """Keeps changing the shop until told to stop."""

    def __init__(self, mariadb: MariaDb, database: str, seed: int) -> None:
        super().__init__()
        self.shop = Shop(mariadb.connect(database, autocommit=False), seed)
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            self.shop.transact(20)
            time.sleep(0.02)


def assert_same(mariadb: MariaDb, database: str, directory: Path) -> None:
    """Source and both targets, row by row; and no change is in the lake twice."""
    with mariadb.connect(database) as source:
        for table in TABLES:
            expected = compare.source_rows(source, table)
            assert compare.lake_rows(directory / "lake", f"mysql.db1.{database}.{table}") == expected
            columns = [
                name
                for (name,) in mariadb.execute(
                    f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{database}'"
                    f" AND table_name = '{table}' ORDER BY ordinal_position"
                )
            ]
            assert compare.sqlite_target_rows(directory / "mart.db", table, columns) == expected
    ids = lake_ids(directory / "lake")
    assert len(ids) == len(set(ids)), "a change is in the lake twice"


def lake_ids(lake: Path) -> list[tuple[str, int]]:
    """(namespace, id) of every change in the files that the lake's commits list."""
    found = []
    for file in Manifest.open(lake).files():
        found += [
            (file.namespace, id_) for id_ in pq.read_table(lake / file.path, columns=["_ums_id_"]).column(0).to_pylist()
        ]
    return found


@pytest.mark.timeout(max(900, 45 * ROUNDS))
def test_killed_again_and_again_at_random(mariadb: MariaDb, database: str, flow: Path) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
    print(f"HEADRACE_SEED={seed}")
    pick = random.Random(seed)
    writer = Writer(mariadb, database, seed)
    writer.shop.create()
    writer.start()
    try:
        for _ in range(ROUNDS):
            with running(flow) as process:
                wait_for(lambda run=process: delivering(flow, run), process)
                time.sleep(pick.uniform(0, 4))
                kill_group(process)
    finally:
        writer.stop.set()
        writer.join()
    run_until_idle(flow)
    assert_same(mariadb, database, flow.parent)


def test_killed_at_each_named_point_in_turn(mariadb: MariaDb, database: str, flow: Path) -> None:
    """Each run goes on where the one before it was killed, and is killed itself; the last one is not."""
    shop = Shop(mariadb.connect(database, autocommit=False), seed=7)
    shop.create()
    for point in CRASH_POINTS:
        shop.transact(50)
        known = set(_spark_logs(flow))
        result = headrace("run", flow, "--until-idle", env={"HEADRACE_CRASH_AT": f"{point}:1"})
        # Spark begins the task again in another process, which dies there too, unless the epoch is in the ledger by then.
        assert (result.code == 0) == (point == "epoch.recorded"), (point, result.err)
        [log] = set(_spark_logs(flow)) - known
        assert "Python worker exited unexpectedly" in log.read_text(), f"{point} is never passed"
    shop.transact(50)
    run_until_idle(flow)
    assert_same(mariadb, database, flow.parent)


def _spark_logs(flow: Path) -> list[Path]:
    return list((flow.parent / "state" / "runs").glob("*/spark.log"))


@pytest.mark.demand(17)
def test_the_source_goes_away_and_comes_back(tmp_path: Path) -> None:
    """By an orderly end and by a crash, under one run."""
    with MariaDb() as server:
        server.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)"
        )
        flow = tmp_path / "flow.yaml"
        flow.write_text(FLOW.format(server=server, database="shop"))

        def arrived(*keys: int) -> bool:
            target = tmp_path / "mart.db"
            try:
                return compare.sqlite_target_rows(target, "t", ["id"]) == [(str(key),) for key in keys]
            except sqlite3.OperationalError:
                return False

        with running(flow) as process:
            wait_for(lambda: arrived(1), process)
            server.kill9()
            time.sleep(1)
            server.start()
            server.execute("INSERT INTO shop.t VALUES (2)")
            wait_for(lambda: arrived(1, 2), process)
            server.stop()
            time.sleep(1)
            server.start()
            server.execute("INSERT INTO shop.t VALUES (3)")
            wait_for(lambda: arrived(1, 2, 3), process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=HANG_S) == 0
