"""Commit in MariaDB to visible in the target, at 500 changes a second.

Each change is a transaction of its own. "Commit" is the moment at which COMMIT returned to the writer; "visible" the moment at
which a reader of the target that asks all the time first sees the row. Both are read off the same clock.
Wanted over any 60 s: database p50 below 20 ms, p99 below 60 ms; lake p99 below 2 s (commit interval 1 s). The default length of
the run has one end of an epoch (300 s) inside, and the minute around it is given by itself.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
from tests.servers.mariadb import MariaDb
from tests.servers.postgresql import PostgreSql

from bench.machine import write_results
from bench.steady import DATABASE, FIRST, TABLE, quantiles, write

RATE = 500
SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 360
WINDOW_S = 60
WARM_UP_S = 12
POLL_S = 0.002
"""How often the target's reader asks; it is part of the delay, and a burden on the machine."""

FLOW = """\
source: {{type: mysql, name: db1, host: "{host}", port: {port}, user: "{user}", password: "{password}", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: {name}, from: "mysql.db1.shop.*", to: {target}}}
"""


def main() -> None:
    with PostgreSql() as postgresql, postgresql.database() as database:
        targets = {
            "PostgreSQL": (
                f'{{type: database, url: "{postgresql.url(database)}"}}',
                lambda _: postgresql_rows(postgresql.url(database)),
            ),
            "SQLite": (
                '{type: database, url: "sqlite:///./mart.db"}',
                lambda directory: sqlite_rows(directory / "mart.db"),
            ),
            "lake": ("{type: lake, path: ./lake}", lambda directory: lake_rows(directory / "lake")),
        }
        lines = [
            "| target | changes | p50 ms | p95 ms | p99 ms | max ms | p99 ms of the worst minute |",
            "|---|---|---|---|---|---|---|",
        ]
        for name in sys.argv[2:] or targets:
            target, rows = targets[name]
            delays_ms = measure(name.lower(), target, rows)
            lines.append(
                f"| {name} | {len(delays_ms):,} | "
                + " | ".join(f"{value:.1f}" for value in (*quantiles(delays_ms), worst_window(delays_ms)))
                + " |"
            )
    peers = "Peers on such a machine (500 changes/s, p50 / p99 ms): Debezium -> Kafka -> PostgreSQL 10.6 / 30.0, Flink CDC -> PostgreSQL 33 / 61, SeaTunnel 169 / 397."
    write_results(
        "latency", [*lines, "", f"{RATE} changes/s for {SECONDS} s, one target at a time, epochs of 300 s.", "", peers]
    )


def worst_window(delays_ms: list[float]) -> float:
    """The largest p99 of any `WINDOW_S` seconds, moved by a second at a time; the delays are in the order of the commits."""
    window = min(RATE * WINDOW_S, len(delays_ms))
    return max(quantiles(delays_ms[first : first + window])[2] for first in range(0, len(delays_ms) - window + 1, RATE))


def measure(name: str, target: str, rows: Callable[[Path], Iterator[list[int]]]) -> list[float]:
    """The delay of every change in ms, in one run against one target."""
    with MariaDb() as server, tempfile.TemporaryDirectory(prefix="headrace-bench-") as work:
        directory = Path(work)
        server.execute(f"CREATE DATABASE {DATABASE}")
        server.execute(TABLE, database=DATABASE)
        flow = directory / "flow.yaml"
        flow.write_text(
            FLOW.format(
                host=server.host, port=server.port, user=server.user, password=server.password, name=name, target=target
            )
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "run", str(flow), "--json"], stdout=subprocess.DEVNULL
        )
        try:
            return _delays(server, directory, rows)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _delays(server: MariaDb, directory: Path, rows: Callable[[Path], Iterator[list[int]]]) -> list[float]:
    committed: dict[int, float] = {}
    seen: dict[int, float] = {}
    total = RATE * (SECONDS + WARM_UP_S)
    writer = threading.Thread(target=write, args=(server, committed, RATE, total))
    server.execute(FIRST, database=DATABASE)
    for keys in rows(directory):
        now = time.time()
        for key in keys:
            seen[key] = now
        if 0 in seen and not writer.ident:
            writer.start()
        if len(seen) > total:
            break
    writer.join()
    return [1000 * (seen[key] - at) for key, at in committed.items() if key > RATE * WARM_UP_S]


def postgresql_rows(url: str) -> Iterator[list[int]]:
    newest = -1
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            try:
                found = [key for (key,) in connection.execute("SELECT id FROM orders WHERE id > %s", [newest])]
            except psycopg.errors.UndefinedTable:
                found = []
            newest = max([newest, *found])
            yield found
            time.sleep(POLL_S)


def sqlite_rows(path: Path) -> Iterator[list[int]]:
    newest = -1
    while not path.exists():
        yield []
        time.sleep(0.05)
    connection = sqlite3.connect(path, isolation_level=None)
    while True:
        try:
            found = [key for (key,) in connection.execute("SELECT id FROM orders WHERE id > ?", [newest])]
        except sqlite3.OperationalError:
            found = []
        newest = max([newest, *found])
        yield found
        time.sleep(POLL_S)


def lake_rows(path: Path) -> Iterator[list[int]]:
    known: set[Path] = set()
    while True:
        found: list[int] = []
        for commit in sorted((path / "_headrace" / "commits").glob("0*.json")):
            if commit in known:
                continue
            known.add(commit)
            for file in json.loads(commit.read_bytes().splitlines()[0])["added"]:
                found += pq.read_table(path / file["path"], columns=["id"]).column("id").to_pylist()
        yield found
        time.sleep(0.005)


if __name__ == "__main__":
    main()
