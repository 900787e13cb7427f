"""Capture of a live MySQL server into the embedded log, beside `mysqlbinlog --read-from-remote-server --raw` of the same binlog.

    python -m bench.capture_network [--scale S] [--rounds N] [--big-rows N]

The binlog is that of bench/decode.py (more than 500 MB at scale 1), served by a fresh server; both read it in turns, without TLS.
mysqlbinlog writes what it gets into a file and syncs nothing; headrace checks, decodes and keeps it durably. Wanted: 80 % of its MB/s.
And one transaction of 10 million rows: the memory of its capture is to stay below 300 MB. Results are written at the full sizes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.servers.install import find_mysql_program
from tests.servers.mysql import MySql

from bench.decode_log.record import RecordedLog, recorded_log
from bench.decode_peers.measure import Run, measure
from bench.decode_peers.serving import serving
from bench.machine import write_results
from bench.workload import FAST

PROGRAM = Path(__file__).parent / "live_peers" / "headrace_capture.py"
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["*.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
"""
BIG_ROWS = 10_000_000
BIG_TABLE = "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(100), n BIGINT)"
FILL = """INSERT INTO big WITH RECURSIVE s (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last})
SELECT n, CONCAT('a value of row ', n), n * 7 FROM s"""
_STATEMENT_ROWS = 250_000


def capture(server: MySql, directory: Path) -> Run:
    directory.mkdir()
    flow = directory / "flow.yaml"
    flow.write_text(FLOW.format(server=server))
    return measure([sys.executable, str(PROGRAM), str(flow)])


def mysqlbinlog(server: MySql, directory: Path, log: RecordedLog) -> Run:
    directory.mkdir()
    run = measure(
        [
            *find_mysql_program("mysqlbinlog"),
            "--no-defaults",
            "--read-from-remote-server",
            "--raw",
            "--ssl-mode=DISABLED",
            "--get-server-public-key",
            f"--host={server.host}",
            f"--port={server.port}",
            f"--user={server.user}",
            f"--password={server.password}",
            f"--result-file={directory}/",
            log.path.name,
        ],
        counts=False,
    )
    assert (directory / log.path.name).stat().st_size == log.size_bytes
    return run


def in_turns(log: RecordedLog, rounds: int, work: Path) -> dict[str, Run]:
    """Of each way the run with the median of the time on the clock."""
    runs: dict[str, list[Run]] = {}
    with serving(log) as server:
        ways: dict[str, Callable[[Path], Run]] = {
            "mysqlbinlog --raw": lambda directory: mysqlbinlog(server, directory, log),
            "headrace capture": lambda directory: capture(server, directory),
        }
        for number in range(rounds):
            for way, run in ways.items():
                runs.setdefault(way, []).append(run(work / f"{way.split()[0]}-{number}"))
    for run in runs["headrace capture"]:
        # The statements that end all rows of a table are changes too; the workload has few.
        assert run.rows is not None
        assert 0 <= run.rows - log.rows < 10, f"{run.rows} of {log.rows} rows captured"
    return {way: sorted(each, key=lambda run: run.seconds)[(len(each) - 1) // 2] for way, each in runs.items()}


def big_transaction(rows: int, work: Path) -> tuple[Run, int]:
    """The capture of one transaction, and the bytes that it has in the binlog."""
    with MySql(*FAST, "--innodb-redo-log-capacity=1G") as server:
        server.execute("CREATE DATABASE bench")
        server.execute(BIG_TABLE, database="bench")
        _, before = server.position()
        with server.connect("bench", autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION cte_max_recursion_depth = 1000000")
            for first in range(1, rows + 1, _STATEMENT_ROWS):
                cursor.execute(FILL.format(first=first, last=min(first + _STATEMENT_ROWS - 1, rows)))
            connection.commit()
        size_bytes = sum(path.stat().st_size for path in server.binlogs()) - before
        run = capture(server, work / "big")
    assert run.rows == rows, f"{run.rows} of {rows} rows captured"
    return run, size_bytes


def report(log: RecordedLog, runs: dict[str, Run], rounds: int) -> list[str]:
    megabytes = log.size_bytes / 1e6
    peer = runs["mysqlbinlog --raw"]
    lines = [
        f"Binlog of MySQL {log.server}: {megabytes:.0f} MB, {log.rows:,} row changes, over the network of the machine; median of {rounds} rounds in turns.",
        "",
        "| way | s | MB/s | of mysqlbinlog | rows/s | CPU-s | MB/CPU-s | peak MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {way} | {run.seconds:.2f} | {megabytes / run.seconds:,.0f} | {peer.seconds / run.seconds:.2f} | {log.rows / run.seconds:,.0f} "
        f"| {run.cpu_s:.2f} | {megabytes / run.cpu_s:,.0f} | {run.peak_bytes / 1e6:,.0f} |"
        for way, run in runs.items()
    ]
    started = statistics.mean(run.startup_cpu_s for way, run in runs.items() if way.startswith("headrace"))
    return [*lines, "", f"Left out: headrace's start-up, {started:.1f} CPU-s. Peak: resident."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--big-rows", type=int, default=BIG_ROWS, help="rows of the one transaction; 0 leaves it out")
    arguments = parser.parse_args()
    log = recorded_log(arguments.scale)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        lines = report(log, in_turns(log, arguments.rounds, Path(name)), arguments.rounds)
        if arguments.big_rows:
            run, size_bytes = big_transaction(arguments.big_rows, Path(name))
            lines += [
                "",
                (
                    f"One transaction of {arguments.big_rows:,} rows, {size_bytes / 1e6:,.0f} MB of binlog: captured in {run.seconds:.1f} s "
                    f"({arguments.big_rows / run.seconds:,.0f} rows/s, {run.cpu_s:.1f} CPU-s), peak {run.peak_bytes / 1e6:,.0f} MB (wanted: below 300)."
                ),
            ]
    if arguments.scale == 1 and arguments.big_rows == BIG_ROWS:
        write_results("capture_network", lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
