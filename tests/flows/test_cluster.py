"""A flow whose tasks work on the executors of a cluster: Spark's own standalone one, its executors as processes of this machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from headrace.log.disk import Disk
from headrace.log.ownership import holder
from tests.flows import compare
from tests.flows.command import running, wait_for
from tests.servers.mysql import MySql

# Two workers of two slots: for capture, the load's worker, and the deliveries of changes and of loaded rows.
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"], start: latest, load: {{workers: 1}}}}
log: {{type: directory, path: ./log}}
state: ./state
spark: {{master: "local-cluster[2,2,1024]", config: {{spark.executor.memory: 512m}}}}
flows:
  - {{name: lite, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""
ROWS = "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT {0} UNION ALL SELECT n + 1 FROM s WHERE n < {0} + 999) SELECT n, 'row' FROM s"
TOPICS = ("db1", "db1.load.1")
"""What capture and the load's worker write."""


@pytest.fixture
def database(mysql: MySql) -> Iterator[str]:
    with mysql.database() as name:
        yield name


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """pyspark's own Spark, whose cluster writes into the test's directory."""
    home, package = tmp_path / "spark", Path(pyspark.__file__).parent
    home.mkdir()
    for part in ("bin", "jars", "python"):
        (home / part).symlink_to(package / part)
    return home


def executor_of(log: Path, topic: str) -> psutil.Process | None:
    """The executor in whose process tree the writer of a topic is; None when there is no writer, or it is elsewhere."""
    said = holder(Disk(), log / topic / "0").split()
    if said[0] != "process":
        return None
    try:
        above = psutil.Process(int(said[1])).parents()
        return next(each for each in above if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline()))
    except (psutil.NoSuchProcess, StopIteration):
        return None


def test_load_and_following_on_executors(mysql: MySql, database: str, spark_home: Path, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.format(server=mysql, database=database))
    mysql.execute("CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20))", ROWS.format(1), database=database)

    def arrived() -> bool:
        with mysql.connect(database) as source:
            expected = compare.source_rows(source, "t")
        try:
            return compare.sqlite_target_rows(tmp_path / "mart.db", "t", ["a", "v"]) == expected
        except sqlite3.OperationalError:
            return False  # no table yet

    with running(flow, env={"SPARK_HOME": str(spark_home)}) as process:
        wait_for(arrived, process)
        mysql.execute(ROWS.format(1001), database=database)
        wait_for(arrived, process)
        executors = [executor_of(tmp_path / "log", topic) for topic in TOPICS]
        assert all(executor is not None and executor.pid != process.pid for executor in executors)
        # One that is lost is replaced, and what it did goes on elsewhere.
        executors[0].kill()
        mysql.execute("UPDATE t SET v = 'changed' WHERE a % 3 = 0", ROWS.format(2001), database=database)
        wait_for(arrived, process)
        assert executor_of(tmp_path / "log", "db1") not in (None, executors[0])
