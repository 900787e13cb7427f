"""How quick sinks are, per store, against the quickest way known: ``PYTHONPATH=src python -m bench.sinks [STORE…]``.

100,000 rows in batches of 5,000: first all inserted, then updates of which half are stale (every second row is older than the stored one).
A commit comes behind each batch, or, where the sink gathers for longer, when its `commit_interval` says so. In turns with it, on the same server and
in rounds of their own, the peers of bench/sink_peers.py: the store's bulk way, by the same client, values already converted. Rows per second, and because
that means little on a machine that does other things, the processor time of all that take part: this process and the servers. Then the time from
write to the end of commit for transactions of 1 and 10 rows.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bench.machine import processor_s, write_results
from bench.sink_peers import STORES
from headrace import registry
from headrace.sinks.base import Position, Sink
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema

ROWS = 100_000
BATCH_ROWS = 5_000
COMMITS = 1_000
ROUNDS = 3

TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    (
        Column("id", pa.int64(), "bigint"),
        Column("customer", pa.int32(), "int"),
        Column("status", pa.utf8(), "varchar(20)"),
        Column("amount", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("created", pa.timestamp("us"), "datetime(6)"),
        Column("note", pa.utf8(), "varchar(100)"),
    ),
    ("id",),
)


@dataclass(frozen=True)
class Cost:
    """What one pass over the rows took."""

    rows_per_s: float
    cpu_us: float
    """Processor time of all processes per row."""


def batches(table: TableSchema, rows: int, batch_rows: int, first_id: int, stale: bool = False) -> list[ChangeBatch]:
    """Batches of changes of the keys 0, 1, 2, …; with `stale` every second change is older than all others."""
    made = []
    for start in range(0, rows, batch_rows):
        keys = range(start, min(start + batch_rows, rows))
        ids = [(key - 10 * ROWS if stale and key % 2 else first_id + key) for key in keys]
        us = pa.array([1_700_000_000_000_000 + key for key in keys], pa.int64())
        utc = us.view(pa.timestamp("us", "UTC"))
        arrays: list[Any] = [
            pa.array(ids, pa.int64()),
            utc,
            pa.array(["u" if stale else "i"] * len(keys)),
            utc,
            pa.nulls(len(keys), pa.utf8()),
            pa.array(keys, pa.int64()),
            pa.array([key % 1000 for key in keys], pa.int32()),
            pa.array([("new", "paid", "sent")[key % 3] for key in keys]),
            pa.array([Decimal(key) / 100 for key in keys]).cast(pa.decimal128(12, 2)),
            us.view(pa.timestamp("us")),
            pa.array([f"note of order {key}, it's here" if key % 4 else None for key in keys]),
        ]
        made.append(ChangeBatch(table, pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema())))
    return made


def rows_of(work: Sequence[ChangeBatch], rows: int) -> list[pa.Table]:
    """What the target has in the end: the table's columns, then `_ums_id_`, `_ums_ts_` and `_is_active_`; in parts of so many rows."""
    names = [column.name for column in TABLE.columns]
    whole = pa.Table.from_batches([batch.data for batch in work])
    active = pa.repeat(pa.scalar(1, pa.int16()), len(whole))
    table = whole.select([*names, "_ums_id_", "_ums_ts_"]).append_column("_is_active_", active).combine_chunks()
    return [table.slice(start, rows) for start in range(0, len(table), rows)]


_OFFSETS = count(1)
"""Where on the log a commit ends: ever farther, as a follower's."""


def committed(sink: Sink) -> None:
    offset = next(_OFFSETS)
    sink.commit(Position("topic", 0, offset, offset, 0))


def delivered(sink: Sink, work: Sequence[ChangeBatch]) -> None:
    """Writes and commits as a follower does (stream/deliver.py)."""
    committed_at = time.monotonic()
    for number, batch in enumerate(work):
        sink.write(batch)
        if time.monotonic() - committed_at >= sink.commit_interval_s or number == len(work) - 1:
            committed(sink)
            committed_at = time.monotonic()


def cost(work: Callable[[], None]) -> Cost:
    cpu_s, started_at = processor_s(psutil.Process()), time.perf_counter()
    work()
    return Cost(ROWS / (time.perf_counter() - started_at), (processor_s(psutil.Process()) - cpu_s) / ROWS * 1e6)


def commit_ms(sink: Sink, table: TableSchema, rows: int, first_id: int) -> list[float]:
    """The time of each of many small transactions, in milliseconds."""
    taken = []
    for batch in batches(table, COMMITS * rows, rows, first_id):
        started_at = time.perf_counter()
        sink.write(batch)
        committed(sink)
        taken.append((time.perf_counter() - started_at) * 1000)
    return taken


def measure(name: str) -> str:
    ours: dict[str, list[Cost]] = {"insert": [], "update": []}
    theirs: dict[str, list[Cost]] = {"insert": [], "update": []}
    kept: dict[str, list[Cost]] = {"insert": [], "update": []}
    with tempfile.TemporaryDirectory() as folder, STORES[name](Path(folder)) as setting:
        made: type[Sink] = registry.load("sinks", setting.to["type"])
        with closing(made(made.Config.model_validate(setting.to), "bench")) as sink:  # type: ignore[call-arg]
            for number in range(ROUNDS):
                table = replace(TABLE, namespace=replace(TABLE.namespace, table=f"orders{number}"))
                sink.prepare(table)
                for kind, first_id in (("insert", 1), ("update", 2 * ROWS)):
                    work = batches(table, ROWS, BATCH_ROWS, first_id, stale=kind == "update")
                    ours[kind].append(cost(lambda work=work: delivered(sink, work)))  # type: ignore[misc]
                    rows, is_new = rows_of(work, setting.rows), kind == "insert"
                    theirs[kind].append(cost(setting.peer(f"bare{number}", rows, is_new)))
                    if setting.keeping is not None:
                        kept[kind].append(cost(setting.keeping(f"kept{number}", rows, is_new)))
            one, ten = (commit_ms(sink, table, rows, 10 * rows * ROWS) for rows in (1, 10))
    cells = [_cell(median(ours[kind]), median(theirs[kind]), kept[kind]) for kind in ours]
    return f"| {name} | {' | '.join(cells)} | {_quantiles(one)} | {_quantiles(ten)} |"


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(statistics.median(one.rows_per_s for one in costs), statistics.median(one.cpu_us for one in costs))


def _cell(ours: Cost, theirs: Cost, kept: Sequence[Cost]) -> str:
    by_hand = ""
    if kept:
        limit = median(kept)
        by_hand = f"; rules by hand {limit.cpu_us:.1f} µs ({limit.cpu_us / ours.cpu_us:.2f})"
    return (
        f"{theirs.rows_per_s:,.0f}, {theirs.cpu_us:.1f} µs | {ours.rows_per_s:,.0f} ({ours.rows_per_s / theirs.rows_per_s:.2f}), "
        f"{ours.cpu_us:.1f} µs ({theirs.cpu_us / ours.cpu_us:.2f}){by_hand}"
    )


def _quantiles(taken_ms: list[float]) -> str:
    cuts = statistics.quantiles(taken_ms, n=100)
    return f"{cuts[49]:.2f} / {cuts[98]:.2f}"


def main() -> None:
    head = [
        "Rows per second, and processor time of all processes per row; in brackets what the sink reaches of its peer, and of the peer that keeps its rules by hand.",
        "",
        "| store | peer, new | sink, new | peer, half stale | sink, half stale | 1 row, ms p50/p99 | 10 rows, ms p50/p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    write_results("_".join(["sinks", *sys.argv[1:]]), [*head, *(measure(name) for name in sys.argv[1:] or STORES)])


if __name__ == "__main__":
    main()
