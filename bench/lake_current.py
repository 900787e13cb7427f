"""Upkeep of a current table as Delta, beside Delta's own MERGE (delta-rs and delta-spark) and pyiceberg's upsert of the same changes.

A table of ROWS rows is there; then come MERGES times CHANGES changes, each time merged by all. "spread": on any key alike. "young": on the
newest twentieth of the keys and on new ones, as orders and payments are changed. headrace reads the changes from its lake, of which it
takes the newest per key; the peers are given the newest per key.

    python -m bench.lake_current [ROWS [CHANGES]]    writes bench/results/lake_current.md
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.servers.jars import class_path

from bench.decode_log.record import CACHE
from bench.lake_changes import TABLE, changes
from bench.machine import write_results
from headrace.lake.commit import Manifest
from headrace.lake.derived.place import directory_for
from headrace.lake.derived.spec import Derive
from headrace.lake.derived.upkeep import derive
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeSink
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import ID, OP, TS

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
CHANGES = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
MERGES = 3
PATTERNS = ("spread", "young")
PEER = Path(__file__).parent / "lake_peers" / "current_merge.py"
VENV = CACHE / "lake-current-peers"
PACKAGES = ("deltalake==1.6.6", "pyiceberg[sql-sqlite,pyarrow]==0.12.0", "pyarrow==26.0.1", "pyspark==4.2.0")
ENGINES = ("delta-rs", "delta-spark", "pyiceberg")


@dataclass(frozen=True)
class Cost:
    """Of one merge, the median."""

    wall_s: float
    processor_s: float


def main() -> None:
    lines: list[str] = []
    with TemporaryDirectory(prefix="headrace-bench-") as name:
        places = {pattern: Path(name, pattern) for pattern in PATTERNS}
        mine = {pattern: ours(place, pattern) for pattern, place in places.items()}
        for pattern, (cost, _) in mine.items():
            lines.append(line(pattern, "headrace", cost, cost))
        for engine, pattern in product(ENGINES, PATTERNS):
            cost, found = theirs(engine, places[pattern])
            assert engine == "pyiceberg" or found == mine[pattern][1], (engine, found)
            lines.append(line(pattern, engine, cost, mine[pattern][0]))
            told(lines)  # after each: the slowest peers take long


def told(lines: list[str]) -> None:
    write_results(
        "lake_current",
        [
            f"A table of {ROWS:,} rows and {len(TABLE.columns)} columns; {MERGES} merges of {CHANGES:,} changes, of which the median counts.",
            "pyiceberg is given no deletes. With other work on the machine, processor time is what to compare.",
            "",
            "| changes | by | s a merge | rows/s | processor s a merge | of headrace's time | of its processor time |",
            "|---|---|---:|---:|---:|---:|---:|",
            *sorted(lines, key=lambda line: line.split("|")[1] == " young "),
        ],
    )


def line(pattern: str, engine: str, cost: Cost, mine: Cost) -> str:
    return (
        f"| {pattern} | {engine} | {cost.wall_s:.2f} | {CHANGES / cost.wall_s:,.0f} | {cost.processor_s:.2f} "
        f"| {cost.wall_s / mine.wall_s:.1f} | {cost.processor_s / mine.processor_s:.1f} |"
    )


def ours(directory: Path, pattern: str) -> tuple[Cost, int]:
    """The cost of upkeep, and the rows of the table behind it; writes what peers are given."""
    directory.mkdir()
    lake, wanted = directory / "lake", Derive(current="delta", delete="hard", path=directory / "current")
    for number, first in enumerate(range(0, ROWS, 500_000)):
        land(lake, changes(first, min(500_000, ROWS - first), ROWS), number)
    base = changes(0, ROWS, ROWS).data
    pq.write_table(given(pa.Table.from_batches([base])), directory / "base.parquet")
    derive(Manifest.open(lake), wanted)
    costs = []
    for number in range(MERGES):
        batch = some(pattern, number)
        land(lake, batch, 1000 + number)
        newest = pa.Table.from_batches([batch.data])
        last = newest.group_by("id").aggregate([(ID, "max")])
        newest = newest.filter(pc.is_in(newest.column(ID), value_set=last.column(f"{ID}_max").combine_chunks()))
        pq.write_table(given(newest), directory / f"changes-{number}.parquet")
        manifest = Manifest.open(lake)
        wall, processor = time.perf_counter(), time.process_time()
        done = derive(manifest, wanted)
        costs.append((time.perf_counter() - wall, time.process_time() - processor))
        assert done.tables == 1
        assert not done.problems
    rows = DeltaTable(wanted.path / directory_for(TABLE.namespace)).count()
    return Cost(*(median(cost[place] for cost in costs) for place in (0, 1))), rows


def land(lake: Path, batch: ChangeBatch, number: int) -> None:
    sink = LakeSink(LakeSink.Config(type="lake", path=lake), "bench")
    sink.write(batch)
    last = batch.data.column(ID)[-1].as_py()
    sink.commit(Position("db1", 0, number + 1, last, last))
    sink.close()


def some(pattern: str, number: int) -> ChangeBatch:
    """Changes behind all before; young ones are on the newest keys, of which each merge brings some."""
    first = ROWS + number * CHANGES
    batch = changes(first, CHANGES, ROWS)
    if pattern == "spread":
        return batch
    young = pc.floor(
        pc.add(
            pc.multiply(pc.random(CHANGES, initializer=number), ROWS / 20 + CHANGES / 20),
            ROWS * 0.95 + number * CHANGES / 20,
        )
    )
    place = batch.data.schema.get_field_index("id")
    return ChangeBatch(TABLE, batch.data.set_column(place, batch.data.schema.field(place), young.cast(pa.int64())))


def given(rows: pa.Table) -> pa.Table:
    """What peers get: the table's columns, and the operation."""
    return rows.select([*(column.name for column in TABLE.columns), ID, TS, OP]).replace_schema_metadata(None)


def theirs(engine: str, directory: Path) -> tuple[Cost, int]:
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    command = [str(VENV / "bin" / "python"), str(PEER), engine, str(directory), class_path("peers", PEER.parent)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    out = json.loads(ran.stdout.splitlines()[-1])
    return Cost(*(median(cost[name] for cost in out["costs"]) for name in ("wall_s", "processor_s"))), out["rows"]


if __name__ == "__main__":
    main()
