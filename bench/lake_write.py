"""Landing changes in the lake: rows/s of write + commit, for 1 and 50 tables, beside pyarrow writing the same rows to one file and to 50.

The limit is what pyarrow does alone with the same settings: no digest, no commit, no fsync, one file. Figures per core are by
processor time of this process, as other work on the machine does not count in it; "wall" includes fsync.

    python -m bench.lake_write [ROWS…]     writes bench/results/lake_write.md
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from bench.machine import write_results
from headrace.lake.parquet import ROW_GROUP_ROWS, open_writer
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeSink
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, Namespace, TableSchema

BATCH_ROWS = 4096
ROUNDS = 5
START_US = 1_767_225_600_000_000


@dataclass(frozen=True)
class Cost:
    """The best of some rounds, in seconds."""

    processor_s: float
    wall_s: float


def orders(number: int) -> TableSchema:
    """A table of 20 columns with the system's: keys, numbers, sums, names, times."""
    types: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "customer_id": pa.int64(),
        "amount": pa.decimal128(12, 2),
        "discount": pa.decimal128(12, 2),
        "status": pa.utf8(),
        "channel": pa.utf8(),
        "name": pa.utf8(),
        "street": pa.utf8(),
        "note": pa.utf8(),
        "items": pa.int32(),
        "weight": pa.float64(),
        "paid": pa.int8(),
        "created": pa.timestamp("us"),
        "updated": pa.timestamp("us", "UTC"),
        "due": pa.date32(),
    }
    columns = tuple(Column(name, type_, str(type_)) for name, type_ in types.items())
    return TableSchema(Namespace("mysql", "db1", "shop", f"orders{number}"), columns, ("id",))


def columns(rows: int) -> dict[str, pa.Array]:
    """Values as a shop has them: growing ids, few statuses, names and notes that hardly repeat, some nulls."""
    chance = random.Random(1)
    ids = [4_000_000_000_000 + row * 180 for row in range(rows)]
    times = pa.array([START_US + row // 50 * 1_000_000 for row in range(rows)], pa.timestamp("us", "UTC"))
    cents = pa.array([chance.randrange(10**6) for _ in range(rows)], pa.int64())
    money = pa.array([f"{value / 100:.2f}" for value in cents.to_pylist()]).cast(pa.decimal128(12, 2))
    return {
        ID: pa.array(ids, pa.int64()),
        TS: times,
        OP: pa.array([chance.choice("iuuud") for _ in range(rows)]),
        COMMIT_TS: times,
        RAW: pa.nulls(rows, pa.utf8()),
        "id": pa.array([chance.randrange(10**7) for _ in range(rows)], pa.int64()),
        "customer_id": pa.array([chance.randrange(10**5) for _ in range(rows)], pa.int64()),
        "amount": money,
        "discount": money,
        "status": pa.array([chance.choice(["new", "paid", "sent", "done"]) for _ in range(rows)]),
        "channel": pa.array([chance.choice(["web", "app", "shop"]) for _ in range(rows)]),
        "name": pa.array([f"customer {chance.randrange(10**6)}" for _ in range(rows)]),
        "street": pa.array([f"{chance.randrange(300)} street {chance.randrange(2000)}" for _ in range(rows)]),
        "note": pa.array([None if chance.random() < 0.7 else f"please ring {row}" for row in range(rows)]),
        "items": pa.array([chance.randrange(12) for _ in range(rows)], pa.int32()),
        "weight": pa.array([chance.random() * 30 for _ in range(rows)]),
        "paid": pa.array([chance.randrange(2) for _ in range(rows)], pa.int8()),
        "created": pa.array([START_US + chance.randrange(10**12) for _ in range(rows)], pa.timestamp("us")),
        "updated": times,
        "due": pa.array([20_000 + chance.randrange(90) for _ in range(rows)], pa.int32()).cast(pa.date32()),
    }


def batches(rows: pa.Table, tables: int) -> list[ChangeBatch]:
    """The rows as capture hands them out: dealt to the tables block by block."""
    schemas = [orders(number) for number in range(tables)]
    size = min(BATCH_ROWS, -(-rows.num_rows // tables))
    dealt = []
    for at, batch in enumerate(rows.to_batches(max_chunksize=size)):
        schema = schemas[at % tables]
        dealt.append(ChangeBatch(schema, pa.RecordBatch.from_arrays(batch.columns, schema=schema.arrow_schema())))
    return dealt


def best(action: Callable[[], None]) -> Cost:
    costs = []
    for _ in range(ROUNDS):
        processor, wall = time.process_time(), time.perf_counter()
        action()
        costs.append((time.process_time() - processor, time.perf_counter() - wall))
    return Cost(*(min(column) for column in zip(*costs, strict=True)))


def write_files(rows: pa.Table, directory: Path, files: int) -> None:
    each = -(-rows.num_rows // files)
    for number in range(files):
        some = rows[number * each : (number + 1) * each]
        with open_writer(pa.OSFile(str(directory / f"{number}.parquet"), "wb"), rows.schema, 1, len(some)) as writer:
            writer.write_table(some, row_group_size=ROW_GROUP_ROWS)


def landing(dealt: list[ChangeBatch]) -> Cost:
    """Commit after commit by one sink; the first one, which makes the directories, is not counted."""
    with TemporaryDirectory() as directory:
        sink = LakeSink(LakeSink.Config(type="lake", path=Path(directory)), "bench")
        offsets = count(1)

        def land() -> None:
            for batch in dealt:
                sink.write(batch)
            sink.commit(Position("db1", 0, next(offsets), 1, START_US))

        land()
        cost = best(land)
        sink.close()
    return cost


def measure(rows_: int) -> list[str]:
    rows = pa.table(columns(rows_), schema=orders(0).arrow_schema())
    with TemporaryDirectory() as directory:
        limit, many = (best(lambda files=files: write_files(rows, Path(directory), files)) for files in (1, 50))  # type: ignore[misc]
    lines = [line(rows_, "pyarrow", limit, limit, None), line(rows_, "pyarrow, 50 files", many, limit, limit)]
    one: Cost | None = None
    for tables in (1, 50):
        cost = landing(batches(rows, tables))
        lines.append(line(rows_, str(tables), cost, limit, one))
        one = one or cost
    return lines


def line(rows: int, tables: str, cost: Cost, limit: Cost, one: Cost | None) -> str:
    speeds = f"{rows / cost.processor_s / 1000:.0f} | {rows / cost.wall_s / 1000:.0f}"
    to_limit = f"{cost.processor_s / limit.processor_s:.2f} | {cost.wall_s / limit.wall_s:.2f}"
    to_one = f"{cost.processor_s / one.processor_s:.2f} | {cost.wall_s / one.wall_s:.2f}" if one else "|"
    return f"| {rows:,} | {tables} | {speeds} | {to_limit} | {to_one} |"


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or [10_000, 50_000, 200_000, 400_000]
    write_results(
        "lake_write",
        [
            f"Rows of 20 columns, landed in a commit; best of {ROUNDS} rounds.",
            "",
            "| rows | tables | k rows/s per core | k rows/s wall | × pyarrow's processor time | × its wall time | × 1 table's processor | × 1 table's wall |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|",
            *(made for size in sizes for made in measure(size)),
        ],
    )


if __name__ == "__main__":
    main()
