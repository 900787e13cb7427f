"""Compaction: MB/s per core of merging a day's small files, beside pyarrow and DuckDB reading and writing the same rows without anything else.

Neither has a digest, a check, an fsync or a commit; "pyarrow, only reading" does not even write. Two sizes are given for each: of the rows in
Arrow, and of the Parquet files that are read. Figures per core are by processor time of this process.

    python -m bench.lake_compact [CHANGES]    writes bench/results/lake_compact.md
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench.lake_changes import ID_STEP, NAME, changes
from bench.machine import write_results
from headrace.lake.commit import Manifest
from headrace.lake.parquet import ROW_GROUP_ROWS, open_writer
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeSink

CHANGES = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
FILES = (40, 1000)
ROUNDS = 3


def main() -> None:
    lines = []
    for files in FILES:
        with TemporaryDirectory(prefix="headrace-bench-") as name:
            lines += rounds(Path(name), files)
    write_results(
        "lake_compact",
        [
            f"{CHANGES:,} changes of 15 columns; best of {ROUNDS} rounds.",
            "",
            "| files | way | MB in Arrow | MB of files | s wall | s processor | MB/s per core, Arrow | MB/s per core, files |",
            "|---:|---|---:|---:|---:|---:|---:|---:|",
            *lines,
        ],
    )


def rounds(directory: Path, files: int) -> list[str]:
    costs: dict[str, list[tuple[float, float]]] = {}
    arrow_mb = file_mb = 0.0
    for number in range(ROUNDS):
        lake = directory / str(number)
        arrow_mb = land(lake, files) / 1e6
        listed = list(Manifest.open(lake).files())
        file_mb = sum(file.bytes for file in listed) / 1e6
        paths = [lake / file.path for file in listed]
        caretaker = Caretaker(lake, Policy(state_changes=10**12))
        for way, action in {
            "pyarrow, only reading": partial(read, paths),
            "pyarrow": partial(rewrite, paths, directory / "limit.parquet"),
            "DuckDB, COPY": partial(copy, paths, directory / "copied.parquet"),
            "headrace lake compact": partial(caretaker.tend, [NAME], all_periods=True),
        }.items():
            costs.setdefault(way, []).append(timed(action))
        assert sum(file.rows for file in Manifest.open(lake).files()) == CHANGES
    lines = []
    for way, found in costs.items():
        wall, processor = (min(column) for column in zip(*found, strict=True))
        speeds = f"{arrow_mb / processor:.0f} | {file_mb / processor:.0f}"
        lines.append(
            f"| {files:,} | {way} | {arrow_mb:.0f} | {file_mb:.0f} | {wall:.2f} | {processor:.2f} | {speeds} |"
        )
    return lines


def land(lake: Path, files: int) -> int:
    """Bytes of the rows in Arrow."""
    sink = LakeSink(LakeSink.Config(type="lake", path=lake), "bench")
    each = CHANGES // files
    size_bytes = 0
    for number in range(files):
        batch = changes(number * each, each, CHANGES // 5)
        size_bytes += batch.data.nbytes
        sink.write(batch)
        last = (number + 1) * each * ID_STEP
        sink.commit(Position("db1", 0, number + 1, last, last))
    sink.close()
    return size_bytes


def read(paths: list[Path]) -> None:
    for path in paths:
        pq.ParquetFile(path).read()


def copy(paths: list[Path], target: Path) -> None:
    """Not sorted, as the files are in order."""
    with duckdb.connect(config={"threads": 1, "preserve_insertion_order": True}) as connection:
        connection.execute(
            f"COPY (FROM read_parquet({[str(path) for path in paths]})) TO '{target}'"
            f" (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {ROW_GROUP_ROWS})"
        )


def rewrite(paths: list[Path], target: Path) -> None:
    schema = pq.read_schema(paths[0])
    with open_writer(pa.OSFile(str(target), "wb"), schema, 1, ROW_GROUP_ROWS) as writer:
        pending: list[pa.Table] = []
        for path in paths:
            pending.append(pq.ParquetFile(path).read())
            if sum(len(rows) for rows in pending) >= ROW_GROUP_ROWS:
                writer.write_table(pa.concat_tables(pending), row_group_size=ROW_GROUP_ROWS)
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending), row_group_size=ROW_GROUP_ROWS)


def timed(action: Callable[[], object]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - processor


if __name__ == "__main__":
    main()
