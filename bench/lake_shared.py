"""What a lake costs on HDFS and S3, beside the same lake on the local disk: landing, opening, a moment, merging. On the servers of the tests.

    python -m bench.lake_shared

The three take turns; medians count, and the ratio is to the local disk. One DataNode and one volume server, on this machine: what a network
adds is not in these figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.hdfs import Hdfs
from tests.servers.s3 import S3

from bench.lake_changes import NAME, START_US, changes
from bench.machine import write_results
from headrace.lake.asof import snapshot
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeConfig, LakeSink
from headrace.ums.change import ChangeBatch

COMMITS, ROWS, KEYS = 12, 20_000, 60_000


@dataclass
class Lake:
    """A lake at some place, and how long each thing took."""

    name: str
    config: LakeConfig
    offset: int = 0
    took_s: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, what: str, action: Callable[[], object]) -> None:
        began = time.perf_counter()
        action()
        self.took_s.setdefault(what, []).append(time.perf_counter() - began)

    def land(self, sink: LakeSink, batch: ChangeBatch, what: str) -> None:
        """One commit."""

        def commit() -> None:
            sink.write(batch)
            sink.commit(Position("db1", 0, self.offset, 1, START_US))

        self.offset += 1
        self.timed(what, commit)

    def look(self, tended: str) -> None:
        tree = self.config.tree()
        self.timed(f"opened, {tended}", lambda: Manifest.open(tree))
        manifest = Manifest.open(tree)
        self.timed(f"newest rows, {tended}", lambda: snapshot(manifest, NAME).read_all())

    def median(self, what: str) -> float:
        return statistics.median(self.took_s[what])


def measure(lakes: list[Lake]) -> None:
    sinks = [LakeSink(lake.config, "bench") for lake in lakes]
    for number in range(COMMITS):
        large, small = changes(number * ROWS, ROWS, KEYS), changes(COMMITS * ROWS + number, 1, KEYS)
        for lake, sink in zip(lakes, sinks, strict=True):
            lake.land(sink, large, f"a commit of {ROWS:,} rows")
            lake.land(sink, small, "a commit of one row")
    for tended in (f"{2 * COMMITS} small files", "tended"):
        for _ in range(5):
            for lake in lakes:
                lake.look(tended)
        for lake in lakes if tended != "tended" else ():
            policy = Policy(state_changes=ROWS, grace=0)
            caretaker = Caretaker(lake.config.tree(), policy)
            lake.timed("all files merged, states written, old files deleted", lambda: caretaker.tend(all_periods=True))  # noqa: B023
    for sink in sinks:
        sink.close()


def report(lakes: list[Lake]) -> list[str]:
    local, *shared = lakes
    names = " | ".join(f"{lake.name} | × local" for lake in shared)
    lines = [f"| ms | local disk | {names} |", "|---|" + "---:|" * (1 + 2 * len(shared))]
    for what in local.took_s:
        base = local.median(what)
        others = " | ".join(f"{lake.median(what) * 1000:.1f} | {lake.median(what) / base:.1f}" for lake in shared)
        lines.append(f"| {what} | {base * 1000:.1f} | {others} |")
    return lines


def main() -> None:
    with TemporaryDirectory() as directory, Hdfs() as hdfs, S3() as s3:
        lakes = [
            Lake("local disk", LakeConfig(type="lake", path=Path(directory))),
            Lake("HDFS", LakeConfig(type="lake", path=hdfs.place())),
            Lake("S3", LakeConfig.model_validate({"type": "lake", "path": s3.place(), **s3.options()})),
        ]
        measure(lakes)
        write_results("lake_shared", report(lakes))


if __name__ == "__main__":
    main()
