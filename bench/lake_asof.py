"""As-of of a table of 10 million changes, beside DuckDB's plain scan of a Parquet file that holds the same result.

Both hand the rows over as one Arrow table. "Without states" is what a lake costs that nobody has tended: there the history is replayed.
A second table shows what a longer history of a table of the same size costs.

    python -m bench.lake_asof [CHANGES]    writes bench/results/lake_asof.md
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from bench.decode_log.record import CACHE
from bench.lake_changes import ID_STEP, NAME, changes
from bench.machine import write_results
from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeSink

CHANGES = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
COMMITS, ROUNDS = 100, 4
KEYS = CHANGES // 5
PEERS = Path(__file__).parent / "lake_peers"
VENV = CACHE / "lake-peers"
DUCKDB = ("duckdb==2.0.0", "pyarrow==26.0.1")


def main() -> None:
    with TemporaryDirectory(prefix="headrace-bench-") as name:
        lake = Path(name, "lake")
        land(lake, range(COMMITS), KEYS)
        moments = {"the newest": None, **{f"after {part} %": CHANGES * part // 100 * ID_STEP for part in (90, 50, 25)}}
        untended = row("the newest, without states", None, lake)
        began = time.perf_counter()
        done = Caretaker(lake, Policy(grace=0)).tend(all_periods=True)
        tending_s = time.perf_counter() - began
        lines = [untended, *(row(moment, id_, lake) for moment, id_ in moments.items())]
        stored = sum(file.bytes for file in Manifest.open(lake).files()) / 1e6
        states = [state for states in Manifest.open(lake).states.values() for state in states]
        written = sum(file.bytes for state in states for file in state.files) / 1e6
        longer = [grown(Path(name, "grown"), more) for more in (range(COMMITS // 10), range(COMMITS // 10, COMMITS))]
    write_results(
        "lake_asof",
        [
            f"{CHANGES:,} changes of {KEYS:,} keys, {stored:.0f} MB in {COMMITS} commits; {done.states} states of {written:.0f} MB.",
            f"Care (merging {done.merged_files} files into {done.into_files}, and the states) took {tending_s:.1f} s.",
            f"Best of {ROUNDS} rounds; processor time is that of all threads.",
            "",
            "| as of | live rows | headrace s | DuckDB's scan s | times | headrace processor s | DuckDB processor s | times |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *lines,
            "",
            f"The same table of {KEYS // 4:,} keys with a short and a long history, each tended; `early` is after {COMMITS // 20} commits.",
            "",
            "| commits | changes | as of | live rows | s | processor s |",
            "|---:|---:|---|---:|---:|---:|",
            *(line for lines in longer for line in lines),
        ],
    )


def land(lake: Path, commits: range, keys: int) -> None:
    sink = LakeSink(LakeSink.Config(type="lake", path=lake), "bench")
    each = CHANGES // COMMITS
    for number in commits:
        sink.write(changes(number * each, each, keys))
        last = (number + 1) * each * ID_STEP
        sink.commit(Position("db1", 0, number + 1, last, last))
    sink.close()


def grown(lake: Path, more: range) -> list[str]:
    """What reading costs when a lake has grown by these commits and is tended."""
    land(lake, more, KEYS // 4)
    Caretaker(lake, Policy(grace=0)).tend(all_periods=True)
    early = CHANGES // 20 * ID_STEP
    lines = []
    for moment, id_ in (("early", early), ("newest", None)):
        wall, processor, rows = min(read(lake, id_) for _ in range(ROUNDS))
        lines.append(
            f"| {more.stop} | {more.stop * (CHANGES // COMMITS):,} | {moment} | {rows:,} | {wall:.2f} | {processor:.2f} |"
        )
    return lines


Cost = tuple[float, float, int]
"""Wall and processor seconds, rows."""


def read(lake: Path, id_: int | None) -> Cost:
    wall, processor = time.perf_counter(), time.process_time()
    rows = as_of(lake, NAME, id=id_).num_rows
    return time.perf_counter() - wall, time.process_time() - processor, rows


def ours(lake: Path, id_: int | None) -> tuple[Cost, Cost]:
    """headrace's cost, and DuckDB's for the same rows, in turns."""
    best = peer = (float("inf"), float("inf"), 0)
    for number in range(ROUNDS):
        cost = read(lake, id_)
        best = (min(best[0], cost[0]), min(best[1], cost[1]), cost[2])
        if number == 0:
            result = as_of(lake, NAME, id=id_).combine_chunks()
            pq.write_table(result, lake.parent / "result.parquet", compression="zstd")
            del result
        scanned = duckdb(lake.parent / "result.parquet")
        peer = (min(peer[0], scanned[0]), min(peer[1], scanned[1]), scanned[2])
    assert best[2] == peer[2]
    return best, peer


def duckdb(path: Path) -> Cost:
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin" / "pip", "install", "--quiet", *DUCKDB], check=True)
    command = [str(VENV / "bin" / "python"), str(PEERS / "duckdb_scan.py"), str(path), "3"]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return out["wall_s"], out["processor_s"], out["rows"]


def row(moment: str, id_: int | None, lake: Path) -> str:
    mine, peer = ours(lake, id_)
    return (
        f"| {moment} | {mine[2]:,} | {mine[0]:.2f} | {peer[0]:.2f} | {mine[0] / peer[0]:.2f} "
        f"| {mine[1]:.2f} | {peer[1]:.2f} | {mine[1] / peer[1]:.2f} |"
    )


if __name__ == "__main__":
    main()
