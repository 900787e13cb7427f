"""The server of a target, and who writes to it, are killed in the middle of batches: the target ends as the source is."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from headrace.testing.sink import ORDERS
from tests.faults.sink_writer import PER_COMMIT, history, open_sink, rows_behind
from tests.servers.binlog_server import BinlogServer
from tests.servers.cassandra import Cassandra
from tests.servers.clickhouse import ClickHouse
from tests.servers.jdbc import H2, Derby, JdbcServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql
from tests.servers.process import Server
from tests.servers.redis import Redis
from tests.servers.search import Elasticsearch, OpenSearch, Search

KILLS = min(20, int(os.environ.get("HEADRACE_KILLS", "1")))
ENDLESS = 10**9
"""Changes for a writer that is killed: it never comes to the end of them, however late that is. The last one has those of two commits."""
COMMITS_BEFORE_A_KILL = 4
Settings = dict[str, object]
Store = tuple[Server | None, Settings]


@contextmanager
def _search(kind: type[Search]) -> Iterator[Store]:
    with kind() as server:
        yield server, {"type": "opensearch", "url": server.address, "timeout": 10}


@contextmanager
def _cassandra() -> Iterator[Store]:
    with Cassandra() as server:
        yield server, {"type": "cassandra", "hosts": server.address, "keyspace": "k", "replication": {"datacenter1": 1}}


@contextmanager
def _clickhouse() -> Iterator[Store]:
    with ClickHouse() as server:
        yield server, {"type": "clickhouse", "url": server.url("default"), "timeout": 10}


@contextmanager
def _jdbc(kind: type[JdbcServer]) -> Iterator[Store]:
    with kind() as server:
        yield server, server.settings


@contextmanager
def _database(kind: type[BinlogServer] | type[PostgreSql]) -> Iterator[Store]:
    with kind() as server, server.database() as name:
        yield server, {"type": "database", "url": server.url(name)}


@contextmanager
def _redis() -> Iterator[Store]:
    with Redis() as server:
        yield server, {"type": "redis", "url": server.url(0)}


@contextmanager
def _file(settings: Callable[[Path], Settings]) -> Iterator[Store]:
    """A store without a server: there is only the writer to be killed."""
    with tempfile.TemporaryDirectory() as folder:
        yield None, settings(Path(folder))


STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {
    "clickhouse": _clickhouse,
    "h2": lambda: _jdbc(H2),
    "derby": lambda: _jdbc(Derby),
    "opensearch": lambda: _search(OpenSearch),
    "elasticsearch": lambda: _search(Elasticsearch),
    "cassandra": _cassandra,
    "postgresql": lambda: _database(PostgreSql),
    "mariadb": lambda: _database(MariaDb),
    "mysql": lambda: _database(MySql),
    "redis": _redis,
    "sqlite": lambda: _file(lambda folder: {"type": "database", "url": f"sqlite:///{folder / 'mart.db'}"}),
    "duckdb": lambda: _file(lambda folder: {"type": "database", "url": f"duckdb:///{folder / 'mart.duckdb'}"}),
    "lake": lambda: _file(lambda folder: {"type": "lake", "path": str(folder / "lake")}),
}
"""HBase and Kafka, whose targets do not show a position and rows in the same way, have tests of their own:
tests/conformance/test_hbase_sink.py and test_kafka_sink_kills.py."""


@contextmanager
def _writer(settings: Settings, seed: int, size: int = ENDLESS) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.faults.sink_writer", json.dumps(settings), str(seed), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _await_line(process: subprocess.Popen[str], fits: Callable[[str], bool]) -> None:
    """Returns when a writer has written such a line; AssertionError when it ends before."""
    assert process.stdout is not None
    if not any(fits(line.strip()) for line in process.stdout):
        raise AssertionError(f"the writer ended with code {process.wait()}")


def _await_commit(process: subprocess.Popen[str]) -> None:
    _await_line(process, str.isdigit)


def _await_away(process: subprocess.Popen[str]) -> None:
    _await_line(process, lambda line: line.startswith("away"))


def _await_mid_batch(process: subprocess.Popen[str], pick: random.Random) -> None:
    """Returns at any moment of what comes behind some commits: a commit takes about as long as the one before it."""
    _await_commit(process)
    for _ in range(pick.randint(1, COMMITS_BEFORE_A_KILL)):
        began = time.monotonic()
        _await_commit(process)
    time.sleep(pick.uniform(0, time.monotonic() - began))


@pytest.mark.timeout(600 + 300 * KILLS)
@pytest.mark.parametrize("store", STORES)
def test_writers_and_the_server_are_killed_in_the_middle_of_batches(store: str) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
    print(f"HEADRACE_SEED={seed}: {KILLS} kills each")
    pick = random.Random(seed)
    with STORES[store]() as (server, settings):
        if settings["type"] not in ("lake", "clickhouse"):  # which keep every change, and delete softly only
            settings |= {"delete": pick.choice(["soft", "hard"])}
        for _ in range(KILLS):
            with _writer(settings, seed) as process:
                _await_mid_batch(process, pick)
        if server is not None:
            with _writer(settings, seed) as process:  # one, which finds the server again each time
                for _ in range(KILLS):
                    _await_mid_batch(process, pick)
                    server.kill9()
                    _await_away(process)
                    server.start()
        size = _offset(settings) + 2 * PER_COMMIT
        with _writer(settings, seed, size) as process:
            assert process.wait() == 0
        assert _offset(settings) == size
        with closing(open_sink(settings)) as sink:
            found = [row for batch in sink.scan(ORDERS) for row in batch.to_pylist()]
    rows = sorted((row["id"], row["note"], row["amount"]) for row in found)
    assert rows == rows_behind(history(seed, size))


def _offset(settings: Settings) -> int:
    """How far the target says that it is."""
    with closing(open_sink(settings)) as sink:
        position = sink.position("topic", 0)
    assert position is not None
    return position.offset
