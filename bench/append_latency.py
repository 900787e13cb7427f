"""Commit in MySQL to durable in the embedded log, at 1,000 changes a second.

    python -m bench.append_latency [SECONDS]

Each change is a transaction of its own. "Commit" is the moment at which COMMIT returned to the writer, "durable" the moment at which
another process that follows the log has read the change: it sees what is synced and nothing else, and its own wait is part of the
delay. The server syncs nothing, so that it keeps the rate; the log syncs each append. Wanted: p99 below 20 ms. Limit: a record of the
same size, written and synced once a millisecond.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import psutil
from tests.servers.mysql import MySql

from bench.machine import write_results
from bench.steady import DATABASE, FIRST, TABLE, quantiles, write
from bench.workload import FAST
from headrace.codec.entries import EntryReader
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch

RATE = 1_000
SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
WARM_UP_S = 5
RECORD_BYTES = 3_500
"""Of a change and its mark, in a block each."""
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, MySql(*FAST) as server:
        delays_ms, rate, cpu_share, resident_mb = measure(server, Path(name))
        synced_ms = raw_writes(Path(name) / "raw")
    rows = {"commit -> durable in the log": delays_ms, "limit: write + fdatasync": synced_ms}
    write_results(
        "append_latency",
        [
            f"{RATE:,} transactions of one row a second for {SECONDS} s ({rate:,.0f} were reached), MySQL 9 and the log on one disk.",
            "",
            "| | changes | p50 ms | p95 ms | p99 ms | max ms |",
            "|---|---|---|---|---|---|",
            *(
                f"| {what} | {len(times):,} | {' | '.join(f'{value:.2f}' for value in quantiles(times))} |"
                for what, times in rows.items()
            ),
            "",
            f"The capture took {cpu_share:.0%} of a core and {resident_mb:.0f} MB (resident).",
        ],
    )


def measure(server: MySql, directory: Path) -> tuple[list[float], float, float, float]:
    """The delay of each change in ms, changes a second, the capture's share of a core and its memory in MB."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute(TABLE, FIRST, database=DATABASE)
    flow = directory / "flow.yaml"
    flow.write_text(FLOW.format(server=server))
    process = subprocess.Popen([sys.executable, "-m", "headrace", "capture", str(flow)])
    try:
        return _delays(server, directory / "log", psutil.Process(process.pid))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _delays(server: MySql, path: Path, capture: psutil.Process) -> tuple[list[float], float, float, float]:
    seen: dict[int, float] = {}
    total = RATE * (SECONDS + WARM_UP_S)
    processes = multiprocessing.get_context("fork")
    times: SimpleQueue[dict[int, float]] = processes.SimpleQueue()
    # A process of its own: a thread would hold the interpreter's lock while the reader waits for it.
    writer = processes.Process(target=_write, args=(server, times, total))
    cpu_s = began = 0.0
    for keys in _captured(path):
        now = time.time()
        seen.update(dict.fromkeys(keys, now))
        if writer.pid is None:
            writer.start()
            cpu_s, began = sum(capture.cpu_times()[:2]), now
        if len(seen) > total:
            break
    committed = times.get()
    writer.join()
    took_s = time.time() - began
    share = (sum(capture.cpu_times()[:2]) - cpu_s) / took_s
    delays_ms = [1000 * (seen[key] - at) for key, at in committed.items() if key > RATE * WARM_UP_S]
    return delays_ms, total / took_s, share, capture.memory_info().rss / 1e6


def _write(server: MySql, times: SimpleQueue[dict[int, float]], total: int) -> None:
    committed: dict[int, float] = {}
    write(server, committed, RATE, total)
    times.put(committed)


def _captured(path: Path) -> Iterator[list[int]]:
    """The keys of rows as they become durable, without end."""
    log = DirectoryLog(DirectoryLog.Config(path=path))
    reader = EntryReader()
    at = 0
    while True:
        if not log.wait("db1", 0, at, 1.0):
            continue
        stop = log.spans("db1")[0].stop
        for record in log.read("db1", 0, Span(at, stop)):
            change = reader.read(record.entry)
            if isinstance(change, ChangeBatch):
                keys: list[int] = change.data.column("id").to_pylist()
                yield keys
        at = stop


def raw_writes(path: Path) -> list[float]:
    """What one write and its sync take, in ms."""
    took_ms: list[float] = []
    record = os.urandom(RECORD_BYTES)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    for _ in range(RATE * min(SECONDS, 10)):
        began = time.perf_counter()
        os.write(fd, record)
        os.fdatasync(fd)
        took_ms.append(1000 * (time.perf_counter() - began))
        time.sleep(max(0.0, 1 / RATE - took_ms[-1] / 1000))
    os.close(fd)
    return took_ms


if __name__ == "__main__":
    main()
