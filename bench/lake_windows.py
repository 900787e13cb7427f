"""Windows and backfill: what it costs to close the windows of a table, to check its certificates, and to bring its changes into another lake.

The limit for whatever reads all rows is pyarrow reading the same files. Figures are processor time of this process.

    python -m bench.lake_windows [CHANGES]    writes bench/results/lake_windows.md
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from bench.lake_changes import ID_STEP, NAME, START_US, changes
from bench.machine import write_results
from headrace.flow.spec import FlowSpec
from headrace.lake.backfill import Range
from headrace.lake.certificate import Rounds
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.records import Stream
from headrace.lake.tend import Caretaker
from headrace.lake.windows import Closing, WindowPolicy
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeSink
from headrace.storage.location import tree_at
from headrace.stream.backfill import Backfill, fill
from headrace.ums.schema import ID
from headrace.verify.windows import check_windows

CHANGES = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
FILES = 1000
ROWS_A_SECOND = 50
CLOSING = Closing(WindowPolicy(length=3600), lambda _: [Stream("bench", "db1", 0)])


def main() -> None:
    with TemporaryDirectory(prefix="headrace-bench-") as name:
        found, windows, size_bytes = measured(Path(name))
    write_results(
        "lake_windows",
        [
            f"{CHANGES:,} changes of 15 columns in {FILES:,} files, {size_bytes / 1e6:.0f} MB of Parquet; {windows} windows of an hour.",
            "",
            "| what | s processor | changes/s |",
            "|---|---:|---:|",
            *(f"| {what} | {seconds:.2f} | {CHANGES / seconds:,.0f} |" for what, seconds in found.items()),
        ],
    )


def measured(directory: Path) -> tuple[dict[str, float], int, int]:
    lake = directory / "lake"
    land(lake)
    caretaker = Caretaker(lake, Policy(state_changes=10**12), CLOSING)
    files = [lake / file.path for file in Manifest.open(lake).files()]
    size_bytes = sum(path.stat().st_size for path in files)
    found = {
        "pyarrow reads all files": timed(lambda: [pq.ParquetFile(path).read() for path in files]),
        "windows closed": timed(caretaker.certify),
        "looked at again, nothing due": timed(caretaker.certify),
        "certificates checked": timed(lambda: checked(lake)),
    }
    windows = len(Rounds(tree_at(lake), NAME).newest)
    caretaker.tend(all_periods=True)
    found["certificates checked, files merged"] = timed(lambda: checked(lake))
    to = FlowSpec.model_validate(
        {"name": "copy", "from": "mysql.db1", "to": {"type": "lake", "path": directory / "to"}}
    )
    job = Backfill(LakeSink.Config(type="lake", path=lake), to, Range(ID, None, None), replace=True)
    found["all changes into another lake"] = timed(lambda: fill(job))
    found["the same again, nothing to do"] = timed(lambda: fill(job))
    return found, windows, size_bytes


def land(lake: Path) -> None:
    sink = LakeSink(LakeSink.Config(type="lake", path=lake), "bench")
    each = CHANGES // FILES
    for number in range(1, FILES + 1):
        sink.write(changes((number - 1) * each, each, CHANGES // 5))
        last = number * each
        sink.commit(Position("db1", 0, number, last * ID_STEP, START_US + last // ROWS_A_SECOND * 1_000_000))
    sink.close()


def checked(lake: Path) -> None:
    assert all(result.ok for result in check_windows(Manifest.open(lake)))


def timed(action: Callable[[], object]) -> float:
    processor = time.process_time()
    action()
    return time.process_time() - processor


if __name__ == "__main__":
    main()
