"""Reading files of HBase's write-ahead log: headrace beside HBase's own Java reader, of the same files, in CPU seconds of one thread.

    python -m bench.hbase_wal

The files are made by HBase's own writer: entries of 350 cells, and of one, plain and with dictionaries. Java reads each eight times in one process,
and the last four count, when its compiler has done its work; both take each cell's row and value in hand. Cells come out of headrace as
Arrow columns. Medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.servers.hbase_wal_files import run

from bench.machine import write_results
from headrace.codec.hbase_wal import WalReader, read_on

SHAPES = {"350 cells": (1_500, 350), "1 cell": (200_000, 1)}
PACKINGS = ("plain", "dictionaries")
ROUNDS, COLD = 8, 4


def between(content: bytes, start: int, stop: int) -> bytes:
    return content[start:stop]


def read(content: bytes) -> tuple[int, int, int]:
    entries = cells = size = 0
    for batch in read_on(WalReader("bench"), partial(between, content)):
        entries += len(batch)
        cells += batch.cells.num_rows
        size += sum(batch.cells[name].buffers()[2].size for name in ("row", "value"))
    return entries, cells, size


def seconds(content: bytes) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        read(content)
        times.append(time.thread_time() - began)
    return statistics.median(times)


def java(path: Path, how: str) -> tuple[int, float]:
    """Makes a file; the cells that Java's reader finds in it, and its CPU seconds."""
    rounds = [list(map(int, line.split())) for line in run([f"write {path} {how}", f"time {path} {ROUNDS}"], "-Xmx1g")]
    return rounds[0][1], statistics.median(nanoseconds / 1e9 for *_, nanoseconds in rounds[COLD:])


def main() -> None:
    rows = [
        "| entries of | packing | MB | headrace, cells/s | Java, warm, cells/s | ratio |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as directory:
        for shape, (entries, cells) in SHAPES.items():
            for packing in PACKINGS:
                path = Path(directory) / f"{packing}-{cells}"
                javas, java_s = java(path, f"{packing} {entries} {cells} 1000")
                content = path.read_bytes()
                _, found, _ = read(content)
                assert found == javas == entries * cells
                ours = found / seconds(content)
                rows.append(
                    f"| {shape} | {packing} | {len(content) / 1e6:.0f} | {ours:,.0f} | {found / java_s:,.0f} | {ours * java_s / found:.1f} |"
                )
    write_results("hbase_wal", [__doc__.strip().partition("\n")[0], "", *rows])


if __name__ == "__main__":
    main()
