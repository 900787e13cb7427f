"""Recorded binlog -> embedded log -> Spark -> Parquet lake: rows a second, and what of it the parts could do alone.

Peer in the same run: decoding alone, and decoding straight into Parquet files in one process without log, Spark or commits (the
limit of this way of doing it). Session start is left out: the clock runs from the first epoch's start to the last lake commit.
Wanted: 200,000 row changes a second on 2 cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from bench.machine import write_results
from bench.workload import record_orders
from headrace.capture.mysql import MySqlConfig, MySqlSource
from headrace.ums.change import ChangeBatch

INSERTS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
FLOW = """\
source: {{type: mysql, name: db1, files: "{binlogs}/binlog.0*", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: raw, from: "mysql.db1.shop.*", to: {{type: lake, path: ./lake}}}}
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        work = Path(name)
        binlogs = work / "binlogs"
        changes = record_orders(INSERTS, binlogs)
        megabytes = sum(path.stat().st_size for path in binlogs.iterdir()) / 1e6
        decode_s = decode(binlogs, None, work)
        direct_s = decode(binlogs, work / "direct", work)
        runs = [run_headrace(work / f"run{number}", binlogs) for number in range(3)]
        seconds, peak_mb, driver_mb = min(runs)
        write_results(
            "end_to_end",
            [
                f"{changes:,} row changes (orders workload, 10-row transactions), {megabytes:.0f} MB of MariaDB binlog.",
                "",
                "| way | s | rows/s | of direct |",
                "|---|---|---|---|",
                f"| decode alone, one thread | {decode_s:.2f} | {changes / decode_s:,.0f} | |",
                f"| decode -> Parquet, one process, no log, no Spark | {direct_s:.2f} | {changes / direct_s:,.0f} | 1.00 |",
                f"| headrace: log -> Spark -> lake (best of {len(runs)}) | {seconds:.2f} | {changes / seconds:,.0f} | {direct_s / seconds:.2f} |",
                "",
                f"All runs: {', '.join(f'{changes / run[0]:,.0f}' for run in runs)} rows/s.",
                f"Peak memory of all processes together: {peak_mb:,.0f} MB resident, the JVM among them {driver_mb:,.0f} MB.",
            ],
        )


def decode(binlogs: Path, target: Path | None, work: Path) -> float:
    """Seconds to decode all binlogs, and to write them as one Parquet file per table version when there is a target."""
    config = MySqlConfig(type="mysql", name="db1", files=binlogs / "binlog.0*", tables=["shop.*"])
    source = MySqlSource(config, work / f"decode-{target is None}")
    writers: dict[str, pq.ParquetWriter] = {}
    if target is not None:
        target.mkdir()
    began = time.perf_counter()
    for event in source.follow(None):
        for batch in event.changes:
            if target is None or not isinstance(batch, ChangeBatch):
                continue
            namespace = str(batch.table.namespace)
            if namespace not in writers:
                writers[namespace] = pq.ParquetWriter(
                    target / f"{namespace}.parquet", batch.data.schema, compression="zstd"
                )
            writers[namespace].write_batch(batch.data)
        if event.caught_up:
            break
    for writer in writers.values():
        writer.close()
    return time.perf_counter() - began


def run_headrace(directory: Path, binlogs: Path) -> tuple[float, float, float]:
    """Seconds from the first epoch's start to the last commit, and the peak memory in MB: all processes, the JVM."""
    directory.mkdir()
    flow = directory / "flow.yaml"
    flow.write_text(FLOW.format(binlogs=binlogs))
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", str(flow), "--until-idle", "--json"], stdout=subprocess.DEVNULL
    )
    peak_mb = peak_jvm_mb = 0.0
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        total_mb = jvm_mb = 0.0
        for each in (watched, *watched.children(recursive=True)):
            try:
                resident_mb = each.memory_info().rss / 1e6
                jvm_mb += resident_mb if each.name() == "java" else 0.0
                total_mb += resident_mb
            except psutil.NoSuchProcess:
                continue
        peak_mb, peak_jvm_mb = max(peak_mb, total_mb), max(peak_jvm_mb, jvm_mb)
        time.sleep(0.2)
    assert process.returncode == 0, "the run failed"
    ends = [json.loads(path.read_bytes())["message"] for path in (directory / "state" / "epochs").glob("*/*.json")]
    commits = sorted((directory / "lake" / "_headrace").rglob("0*.json"))
    return commits[-1].stat().st_mtime - min(end["began_ms"] for end in ends) / 1000, peak_mb, peak_jvm_mb


if __name__ == "__main__":
    main()
