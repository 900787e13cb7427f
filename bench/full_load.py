"""Full load of a table of a live MySQL server into the lake, beside Spark's JDBC source and ConnectorX writing Parquet.

Wanted, session start left out: 4 times as fast as Spark's JDBC read, within 1.25 of the time of ConnectorX, memory below 500 MB beside
Spark's. ConnectorX comes near to what the server can send; it keeps nothing but the file, and takes all rows into memory. Our memory is
looked at in a run of its own, as looking (PSS, bench/memory.py) takes time from what is looked at.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

from tests.servers.jars import class_path
from tests.servers.mysql import MySql

from bench.decode_log.record import CACHE
from bench.decode_peers.measure import measure
from bench.machine import write_results
from bench.memory import PeakMemory
from headrace.lake.commit import Manifest
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
ROUNDS = 2
OURS = "headrace: log -> lake, 2 workers"
PEERS = Path(__file__).parent / "full_load_peers"
VENV = CACHE / "full-load-peers"
CONNECTORX = ("connectorx==0.4.6", "pyarrow==26.0.1")
TABLE = """CREATE TABLE orders (id BIGINT PRIMARY KEY, customer_id INT, status VARCHAR(16), amount DECIMAL(12,2), note VARCHAR(100),
created DATETIME(6), updated TIMESTAMP(6) NULL)"""
FILL = """INSERT INTO orders WITH RECURSIVE s (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last})
SELECT n, n * 7919 % 100000, ELT(1 + n % 4, 'open', 'paid', 'sent', 'returned'), n % 100000 / 7, CONCAT('note of order ', n, REPEAT('.', n % 40)),
'2026-01-01' + INTERVAL n * 1001000 MICROSECOND, '2026-01-01' + INTERVAL n SECOND FROM s"""
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["shop.orders"], start: latest, load: {{workers: {workers}}}}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: raw, from: "mysql.db1.shop.*", to: {{type: lake, path: ./lake}}}}
"""
Cost = tuple[float, float | None]
"""Seconds, and the peak of memory in MB where it was looked at."""


def main() -> None:
    with MySql("--innodb-buffer-pool-size=2G") as server, tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        work = Path(name)
        megabytes = fill(server)
        rounds = [
            {
                "ConnectorX -> Parquet, 2 connections": connectorx(server, work / f"cx{number}"),
                "Spark JDBC -> Parquet, 4 partitions": spark(server, work / f"spark{number}"),
                OURS: (headrace(server, work / f"run{number}")[0], None),
            }
            for number in range(ROUNDS)
        ]
        _, peak_mb = headrace(server, work / "memory", looks=True)
    best = {way: min((each[way] for each in rounds), key=lambda cost: cost[0]) for way in rounds[0]}
    best[OURS] = best[OURS][0], peak_mb
    limit = best["ConnectorX -> Parquet, 2 connections"][0]
    write_results(
        "full_load",
        [
            f"{ROWS:,} rows, {megabytes:.0f} MB of MySQL data on the same machine; best of {ROUNDS} rounds, session start left out.",
            "",
            "| way | s | rows/s | of ConnectorX's time | peak MB |",
            "|---|---|---|---|---|",
            *(
                f"| {way} | {seconds:.2f} | {ROWS / seconds:,.0f} | {seconds / limit:.2f} | {_megabytes(peak_mb)} |"
                for way, (seconds, peak_mb) in best.items()
            ),
            "",
            "Peak: all processes together without the JVM; pages that several of them share count once (PSS). ConnectorX is one process.",
        ],
    )


def fill(server: MySql) -> float:
    server.execute("CREATE DATABASE shop")
    server.execute(TABLE, database="shop")
    for first in range(1, ROWS + 1, 250_000):
        last = min(first + 249_999, ROWS)
        server.execute(
            "SET SESSION sql_log_bin = 0, cte_max_recursion_depth = 1000000",
            FILL.format(first=first, last=last),
            database="shop",
        )
    server.execute("ANALYZE TABLE orders", database="shop")
    [(size_bytes,)] = server.execute("SELECT DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_NAME = 'orders'")
    return float(size_bytes) / 1e6


def connectorx(server: MySql, target: Path) -> Cost:
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin" / "pip", "install", "--quiet", *CONNECTORX], check=True)
    command = [str(VENV / "bin" / "python"), str(PEERS / "connectorx_to_parquet.py"), server.url("shop"), "orders"]
    run = measure([*command, str(target)])
    assert run.rows == ROWS
    return run.seconds, run.peak_bytes / 1e6


def spark(server: MySql, target: Path) -> Cost:
    driver = class_path("peers", PEERS)
    url = f"jdbc:mysql://{server.host}:{server.port}/shop?useSSL=false&allowPublicKeyRetrieval=true&useCursorFetch=true"
    arguments = [driver, url, server.user, server.password, "orders", str(ROWS), str(target)]
    run = measure([sys.executable, str(PEERS / "spark_jdbc_to_parquet.py"), *arguments])
    assert run.rows == ROWS
    return run.seconds, None


def headrace(server: MySql, directory: Path, *, looks: bool = False) -> Cost:
    """From the plan's first record to the lake's last commit; with `looks` its memory."""
    directory.mkdir()
    flow = directory / "flow.yaml"
    flow.write_text(FLOW.format(server=server, workers=2))
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", str(flow), "--until-idle", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with PeakMemory(process.pid) if looks else nullcontext() as memory:
        reported, _ = process.communicate()
    assert process.returncode == 0
    tasks = map(json.loads, reported.splitlines())
    loaded = [sum(task["rows"].values()) for task in tasks if task["task"].startswith("load-")]
    assert sum(loaded) == ROWS, loaded
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))
    began_ms = next(iter(log.read("db1.load", 0, Span(0, 1)))).entry.time_ms
    log.close()
    manifest = Manifest.open(directory / "lake")
    assert sum(file.rows for file in manifest.files()) == ROWS
    commits = sorted((directory / "lake" / "_headrace" / "commits").glob("*.json"))
    times = [datetime.fromisoformat(json.loads(path.read_text().splitlines()[0])["time"]) for path in commits]
    return max(times).timestamp() - began_ms / 1000, memory.peak_mb if memory is not None else None


def _megabytes(peak_mb: float | None) -> str:
    return "" if peak_mb is None else f"{peak_mb:,.0f}"


if __name__ == "__main__":
    main()
