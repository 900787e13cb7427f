"""SIGKILL of one process of a run alone, while a table is loaded and changed: a worker's is replaced and the run goes on by itself; without
its driver the run ends whole, and the next one goes on. Nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from tests.beside import beside
from tests.flows import compare
from tests.flows.command import headrace, run_until_idle, running, wait_for
from tests.patience import HANG_S
from tests.servers.mysql import MySql

ROUNDS = int(os.environ.get("HEADRACE_KILLS", "1"))
ROWS = 60_000
"""Of the table: more than is loaded before the last kill."""
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}", password: "{server.password}",
          tables: ["{database}.*"], start: latest, load: {{workers: 2, {load}}}}}
log: {{type: directory, path: ./log}}
state: ./state
epoch: 3s
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake, commit_interval: 0.2}}}}
"""


pytestmark = pytest.mark.demand(17)


@pytest.fixture
def database(mysql: MySql) -> Iterator[str]:
    with mysql.database() as name:
        mysql.execute(
            "SET SESSION cte_max_recursion_depth = 1000000",
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) SELECT n, 0 FROM s",
            database=name,
        )
        yield name


def write_flow(directory: Path, server: MySql, database: str, load: str) -> Path:
    path = directory / "flow.yaml"
    path.write_text(FLOW.format(server=server, database=database, load=load))
    return path


def changes(server: MySql, database: str, chance: random.Random) -> AbstractContextManager[None]:
    """Updates, deletes and inserts, until the block is left."""
    connection = server.connect(database, autocommit=True)

    def work(over: threading.Event) -> None:
        with connection, connection.cursor() as cursor:
            while not over.is_set():
                id_ = chance.randint(1, ROWS + 1000)
                cursor.execute(
                    chance.choice(
                        [
                            f"UPDATE t SET v = v + 1 WHERE id BETWEEN {id_} AND {id_ + 5}",
                            f"DELETE FROM t WHERE id = {id_}",
                            f"REPLACE INTO t VALUES ({id_}, -1)",
                        ]
                    )
                )
                time.sleep(0.01)

    return beside(work)


def writer_of(flow: Path, topic: str, run: psutil.Process) -> psutil.Process | None:
    """The process that has a topic of the log open to write: capture's, or a load worker's. None while there is none."""
    end = str(flow.parent / "log" / topic / "0" / "end")
    for process in run.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any(file.path == end and file.mode == "r+" for file in process.open_files()):
                return process
    return None


def entries(flow: Path, topic: str) -> int:
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=flow.parent / "log"))
    try:
        return log.spans(topic).get(0, Span(0, 0)).stop
    finally:
        log.close()


def assert_arrived(server: MySql, database: str, directory: Path) -> None:
    """The lake is the source; no captured change is there twice, and no loaded row of a shard."""
    with server.connect(database) as source:
        expected = compare.source_rows(source, "t")
    found = as_of(directory / "lake", f"mysql.db1.{database}.t").select(["id", "v"])
    assert compare.plain(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
    ids = [
        id_
        for file in Manifest.open(directory / "lake").files()
        for id_ in pq.read_table(directory / "lake" / file.path, columns=["_ums_id_"]).column(0).to_pylist()
    ]
    assert len(ids) == len(set(ids)), "a change is in the lake twice"


@pytest.mark.timeout(max(600, 60 * ROUNDS))
def test_one_process_alone(mysql: MySql, database: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, mysql, database, "chunk_rows: 2000, rows_per_s: 1500")
    chance = random.Random(11)
    with changes(mysql, database, chance):
        for _ in range(ROUNDS):
            with running(flow) as process:
                run = psutil.Process(process.pid)
                for topic in ("db1.load.2", "db1", "db1.load.1"):
                    kill_writer(flow, topic, process, run)
                everybody = run.children(recursive=True)
                process.kill()
                process.wait()
                _, left = psutil.wait_procs(everybody, timeout=HANG_S)
                assert not left, f"processes outlived their driver: {left}"
    run_until_idle(write_flow(tmp_path, mysql, database, "first: true"))
    assert_arrived(mysql, database, tmp_path)


def kill_writer(flow: Path, topic: str, process: subprocess.Popen[bytes], run: psutil.Process) -> None:
    """Kills it while it works; the run must put another one in its place, which works on."""
    before = entries(flow, topic)
    wait_for(lambda: entries(flow, topic) > before and writer_of(flow, topic, run) is not None, process)
    killed = writer_of(flow, topic, run)
    assert killed is not None
    killed.kill()
    psutil.wait_procs([killed], timeout=HANG_S)
    at_the_kill = entries(flow, topic)
    wait_for(lambda: entries(flow, topic) > at_the_kill, process)
    assert writer_of(flow, topic, run) != killed


def test_workers_that_die_again_and_again_end_the_run_with_one_error(
    mysql: MySql, database: str, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, mysql, database, "chunk_rows: 1000")
    ended = headrace("run", flow, "--until-idle", env={"HEADRACE_CRASH_AT": "epoch.started"})
    assert ended.code == 1
    assert "worker process was ended from outside" in ended.err
    assert "Traceback" not in ended.err
    run_until_idle(flow)
    assert_arrived(mysql, database, tmp_path)
