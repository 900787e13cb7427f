"""A live MySQL server into PostgreSQL through the log and Spark, beside COPY and merge of the same rows.

    PYTHONPATH=src python -m bench.live_postgres [--inserts N] [--rounds N] [--seconds N] [--only throughput|latency]

Throughput: the orders workload (bench/workload.py: 1.35 changes for each insert, in transactions of 10 rows) is in the binlog when the
clock starts; both servers and what is measured share the machine, durability is relaxed as peers had it. Counted from the start of the first epoch to the last commit, by
PostgreSQL's own clock, and from the launch of `headrace run --until-idle`; processor time of all of headrace's processes, Spark's JVM
among them, and PostgreSQL's beside. The limit: one client that brings the same rows by binary COPY into a temporary table and one INSERT …
ON CONFLICT for each 5,000, contents made beforehand: as many new rows as the run had inserts, then as many newer ones as it had other changes.

Latency: 500 transactions of one row a second; from COMMIT's return to PostgreSQL's own commit time of the row, and of that how much until
the change was durable in headrace's log (whole milliseconds) and how much behind it. No reader asks meanwhile.

Wanted: 150,000 changes/s and 0.6 of COPY and merge; less than 33 µs of processor time per change (Flink CDC); p50 below 10 ms, p99 below 30 ms.
Results are written when both parts ran. On a quiet machine of 2 cores it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

from bench import steady
from bench.machine import processor_s, write_results
from bench.workload import DATABASE, FAST, write_orders
from headrace.codec.entries import EntryReader
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch, Mark

INSERTS, SECONDS, ROUNDS = 1_000_000, 60, 2
RATE = 500
WARM_UP_S = 15
LIMIT_S = 600
"""What takes longer will not come."""
COMMIT_ROWS = 5_000
TOPIC = "db1"
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.orders"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: live, from: "mysql.db1.{database}.*", to: {{type: database, url: "{url}"}}}}
"""
KINDS = ("driver", "JVM", "workers")
WHAT = {
    "start": "until the first epoch (Python, Spark's JVM, the session)",
    "driver": "then the driver",
    "JVM": "Spark's JVM",
    "workers": "Python workers (capture, log, delivery)",
}
RELAXED = {
    "synchronous_commit": "off",
    "track_commit_timestamp": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
}


@dataclass(frozen=True)
class Run:
    """One way of bringing all changes into PostgreSQL."""

    changes: int
    seconds: float
    from_launch_s: float
    cpu_s: Mapping[str, float]
    """Of the client's side, by what spent it."""
    server_cpu_s: float
    peak_mb: float

    @property
    def rate(self) -> float:
        return self.changes / self.seconds


class Watched:
    """The processor time and the largest memory of a process and of all that it starts, looked at as long as it lives."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu_s: dict[tuple[str, int, float], float] = {}
        self._looks: list[tuple[float, dict[str, float]]] = []
        self.peak_mb = 0.0

    def cpu_s(self, began: float) -> dict[str, float]:
        """What was spent before the run began to follow, and by whom behind that."""
        starting = next((spent for at, spent in reversed(self._looks) if at <= began), {})
        behind = {kind: spent - starting.get(kind, 0.0) for kind, spent in self._spent().items()}
        return {"start": sum(starting.values()), **behind}

    def _spent(self) -> dict[str, float]:
        spent = dict.fromkeys(KINDS, 0.0)
        for (kind, *_), cpu_s in self._cpu_s.items():
            spent[kind] += cpu_s
        return spent

    def _kind(self, process: psutil.Process) -> str:
        if process == self._process:
            return "driver"
        return "JVM" if process.name() == "java" else "workers"

    def look(self) -> None:
        resident_mb = 0.0
        try:
            processes = [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return
        for each in processes:
            try:
                times = each.cpu_times()
                self._cpu_s[self._kind(each), each.pid, each.create_time()] = times.user + times.system
                resident_mb += each.memory_info().rss / 1e6
            except psutil.Error:  # has ended since
                continue
        self.peak_mb = max(self.peak_mb, resident_mb)
        self._looks.append((time.time(), self._spent()))


def throughput(directory: Path, inserts: int, rounds: int) -> tuple[list[Run], list[Run]]:
    """headrace's runs and those of COPY and merge, in turns."""
    ours: list[Run] = []
    theirs: list[Run] = []
    with MySql(*FAST) as server, PostgreSql(**RELAXED) as target:
        changes = write_orders(inserts, server)
        for number in range(rounds):
            with target.database() as database:
                flow = flow_file(directory / f"run{number}", server, target.url(database))
                ours.append(delivered(flow, target, database, changes))
                theirs.append(merged(target, database, inserts, changes))
    return ours, theirs


def flow_file(directory: Path, server: MySql, url: str) -> Path:
    directory.mkdir()
    flow = directory / "flow.yaml"
    flow.write_text(FLOW.format(server=server, database=DATABASE, url=url))
    return flow


def delivered(flow: Path, target: PostgreSql, database: str, changes: int) -> Run:
    server_cpu_s, launched = server_cpu(target), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", str(flow), "--until-idle", "--json"], stdout=subprocess.DEVNULL
    )
    watched = Watched(process.pid)
    while process.poll() is None:
        watched.look()
        time.sleep(0.1)
    from_launch_s = time.perf_counter() - launched
    assert process.returncode == 0, "the run failed"
    [(ended,)] = target.execute(
        "SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin)))::float8 FROM _headrace_positions",
        database=database,
    )
    ends = [json.loads(path.read_bytes())["message"] for path in (flow.parent / "state" / "epochs").glob("*/*.json")]
    began = min(end["began_ms"] for end in ends) / 1000
    server_s = server_cpu(target) - server_cpu_s
    return Run(changes, ended - began, from_launch_s, watched.cpu_s(began), server_s, watched.peak_mb)


def merged(target: PostgreSql, database: str, inserts: int, changes: int) -> Run:
    """COPY and merge of what a run has left in `orders`, into a table of the same shape."""
    with target.connect(database) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0 ORDER BY attnum"
            )
        ]
        parts = [*contents(connection, names, inserts, 0), *contents(connection, names, changes - inserts, 10**17)]
        connection.execute("CREATE TABLE bare (LIKE orders INCLUDING ALL)")
        connection.execute("CREATE TEMPORARY TABLE staging ON COMMIT DELETE ROWS AS SELECT * FROM orders WITH NO DATA")
        replaced = ", ".join(f"{name} = excluded.{name}" for name in names if name != "id")
        insert = f"INSERT INTO bare SELECT * FROM staging ON CONFLICT (id) DO UPDATE SET {replaced} WHERE excluded._ums_id_ > bare._ums_id_".encode()
        server_cpu_s, cpu_s, began = server_cpu(target), time.process_time(), time.perf_counter()
        for part in parts:
            with connection.transaction(), connection.cursor() as cursor:
                with cursor.copy("COPY staging FROM STDIN (FORMAT binary)") as copy:
                    copy.write(part)
                cursor.execute(insert)
        seconds = time.perf_counter() - began
        cpu_s = time.process_time() - cpu_s
    return Run(changes, seconds, seconds, {"client": cpu_s}, server_cpu(target) - server_cpu_s, 0.0)


def contents(
    connection: psycopg.Connection[tuple[object, ...]], names: list[str], rows: int, newer: int
) -> Iterator[bytes]:
    """So many rows of `orders` in the order of their keys, `_ums_id_` larger by `newer`, as COPY takes them."""
    wanted = ", ".join(f"_ums_id_ + {newer}" if name == "_ums_id_" else name for name in names)
    for first in range(0, rows, COMMIT_ROWS):
        last = min(first + COMMIT_ROWS, rows) - 1
        with (
            connection.cursor() as cursor,
            cursor.copy(
                f"COPY (SELECT {wanted} FROM orders WHERE id BETWEEN {first} AND {last}) TO STDOUT (FORMAT binary)".encode()
            ) as copy,
        ):
            yield b"".join(map(bytes, copy))


def server_cpu(target: PostgreSql) -> float:
    """Seconds of processor time of PostgreSQL, of connections that have ended too."""
    [postmaster] = [
        process for process in psutil.Process().children() if str(target.data_path) in " ".join(process.cmdline())
    ]
    return processor_s(postmaster)


@contextmanager
def running(flow: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", str(flow), "--json"], stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=LIMIT_S)


def latency(directory: Path, seconds: int) -> dict[str, list[float]]:
    """By part of the way, the milliseconds of each change."""
    with MySql(*FAST) as server, PostgreSql(**RELAXED) as target, target.database() as database:
        server.execute(f"CREATE DATABASE {DATABASE}")
        server.execute(steady.TABLE, database=DATABASE)
        flow = flow_file(directory / "latency", server, target.url(database))
        committed: dict[int, float] = {}
        total = RATE * (seconds + WARM_UP_S)
        with running(flow) as run:
            server.execute(steady.FIRST, database=DATABASE)
            wait_for(run, target, database, 0)
            writer = threading.Thread(target=steady.write, args=(server, committed, RATE, total))
            writer.start()
            writer.join()
            wait_for(run, target, database, total)
        visible = dict(
            target.execute(
                "SELECT id, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 FROM orders", database=database
            )
        )
    logged = log_times(flow.parent / "log")
    keys = [key for key in committed if key > RATE * WARM_UP_S]
    return {
        "COMMIT in MySQL to visible in PostgreSQL": [1000 * (visible[key] - committed[key]) for key in keys],
        "of it: to durable in the log": [1000 * (logged[key] - committed[key]) for key in keys],
        "of it: log to PostgreSQL's commit": [1000 * (visible[key] - logged[key]) for key in keys],
    }


def wait_for(run: subprocess.Popen[bytes], target: PostgreSql, database: str, key: int) -> None:
    """Returns when the row with that key is there; fails when the run has ended without it, or it does not come."""
    until = time.monotonic() + LIMIT_S
    with target.connect(database) as connection:
        while time.monotonic() < until:
            assert run.poll() is None, f"the run ended with code {run.returncode}"
            try:
                if connection.execute("SELECT FROM orders WHERE id = %s", [key]).fetchone() is not None:
                    return
            except psycopg.errors.UndefinedTable:
                pass
            time.sleep(0.2)
    raise AssertionError(f"row {key} did not come within {LIMIT_S} s")


def log_times(path: Path) -> dict[int, float]:
    """Of each key of `orders`, when its unit was appended."""
    found: dict[int, float] = {}
    open_keys: list[int] = []
    reader = EntryReader()
    with closing(DirectoryLog(DirectoryLog.Config(type="directory", path=path))) as log:
        for partition, span in log.spans(TOPIC).items():
            for record in log.read(TOPIC, partition, span):
                read = reader.read(record.entry)
                if isinstance(read, ChangeBatch):
                    open_keys += read.data.column("id").to_pylist()
                elif isinstance(read, Mark):
                    found |= dict.fromkeys(open_keys, record.entry.time_ms / 1000)
                    open_keys = []
    return found


def throughput_lines(ours: list[Run], theirs: list[Run]) -> list[str]:
    one, limit = (sorted(runs, key=lambda run: run.rate)[(len(runs) - 1) // 2] for runs in (ours, theirs))
    share = statistics.median(own.rate / bare.rate for own, bare in zip(ours, theirs, strict=True))
    return [
        f"{one.changes:,} changes (orders workload, transactions of 10 rows), in the binlog of MySQL 9 when the clock starts; median of {len(ours)} rounds in turns.",
        "",
        "| way | s | changes/s | of COPY and merge | from launch, changes/s | CPU-µs per change | PostgreSQL's CPU-µs per change | peak MB |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {name} | {run.seconds:.2f} | {run.rate:,.0f} | {part:.2f} | {run.changes / run.from_launch_s:,.0f} "
            f"| {sum(run.cpu_s.values()) / run.changes * 1e6:.1f} | {run.server_cpu_s / run.changes * 1e6:.1f} | {f'{run.peak_mb:,.0f}' if run.peak_mb else ''} |"
            for name, run, part in (("headrace run", one, share), ("COPY and merge, one client", limit, 1.0))
        ),
        "",
        "Processor time of headrace run, µs per change: "
        + ", ".join(f"{WHAT[kind]} {spent / one.changes * 1e6:.1f}" for kind, spent in one.cpu_s.items())
        + ".",
        "",
    ]


def latency_lines(found: dict[str, list[float]], seconds: int) -> list[str]:
    return [
        f"{RATE} transactions of one row a second for {seconds} s:",
        "",
        "| part of the way | changes | p50 ms | p95 ms | p99 ms | max ms |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {len(delays):,} | {' | '.join(f'{value:.1f}' for value in steady.quantiles(delays))} |"
            for name, delays in found.items()
        ),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inserts", type=int, default=INSERTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--only", choices=["throughput", "latency"])
    arguments = parser.parse_args()
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        if arguments.only != "latency":
            lines += throughput_lines(*throughput(Path(name), arguments.inserts, arguments.rounds))
        if arguments.only != "throughput":
            lines += latency_lines(latency(Path(name), arguments.seconds), arguments.seconds)
    lines.append(
        "Peers on such a machine with relaxed durability: Flink CDC 54,000 changes/s with 33 µs of processor time, tuned p50/p99 33/61 ms; "
        "Debezium with its JDBC sink 24,000, 10.6/30 ms; COPY and merge by text 253,000."
    )
    if arguments.only is None:
        write_results("live_postgres", lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
