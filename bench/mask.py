"""What masking costs a capture: changes through a `Masker` with 0, 1 and 3 masked columns, and each kind of mask on one column.

    python -m bench.mask [--rows N]

The peer is what every capture does with the same changes anyway, in the same run: making the blocks for the log (`to_block`). One table
of eight mixed columns in batches as a capture gathers them; names repeat now and then, phone numbers never. Five rounds in turns, medians;
seconds of CPU on one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

from bench.machine import write_results
from headrace.capture.mask import Masker
from headrace.capture.mysql_config import MySqlConfig
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema

ROUNDS = 5
BATCH_ROWS = 50_000
TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "customers"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("name", pa.utf8(), "varchar(60)"),
        Column("phone", pa.utf8(), "varchar(20)"),
        Column("born", pa.date32(), "date"),
        Column("city", pa.utf8(), "varchar(40)"),
        Column("balance", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("changed", pa.timestamp("us"), "datetime(3)"),
        Column("vip", pa.int8(), "tinyint"),
    ),
    ("id",),
)
HMAC = {"type": "hash", "algorithm": "hmac_sha256", "key": "a key of the benchmark"}
REGEX = {"type": "regex", "pattern": r"(\+\d{2}).*(\d{2})", "replacement": r"\1***\2"}
MASKS: dict[str, dict[str, Any]] = {
    "no column": {},
    "1 column: phone by hmac_sha256": {"phone": HMAC},
    "3 columns: phone by regex, name by hmac_sha256, born by default": {"phone": REGEX, "name": HMAC, "born": {"type": "default"}},
    "phone by default": {"phone": {"type": "default"}},
    "phone by md5": {"phone": {"type": "hash", "algorithm": "md5"}},
    "phone by sha256": {"phone": {"type": "hash", "algorithm": "sha256"}},
    "phone by murmur3": {"phone": {"type": "hash", "algorithm": "murmur3"}},
    "phone by regex": {"phone": REGEX},
    "phone by truncate, characters": {"phone": {"type": "truncate", "characters": 4}},
    "id by hmac_sha256": {"id": HMAC},
    "city (5 distinct) by hmac_sha256": {"city": HMAC},
}  # fmt: skip


def customers(rows: int, first: int) -> ChangeBatch:
    random = Random(first)
    system = {"_ums_ts_": 0, "_ums_op_": "u", "_ums_commit_ts_": 0}
    values = [
        {
            "_ums_id_": 3 * 10**12 + number * 90,
            **system,
            "id": number,
            "name": f"{random.choice(['Ada', 'Søren', '李', 'Ayşe'])} {random.randrange(20_000)}",
            "phone": f"+49{10**9 + number}",
            "born": random.randrange(20_000),
            "city": random.choice(["København", "London", "北京", "Lagos", "Bogotá"]),
            "balance": random.randrange(10**6),
            "changed": random.randrange(10**15),
            "vip": number % 2,
        }
        for number in range(first, first + rows)
    ]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(values, schema=TABLE.arrow_schema()))


def masker(columns: dict[str, Any]) -> Masker:
    mask = {f"shop.customers.{column}": options for column, options in columns.items()}
    config = {"type": "mysql", "name": "db1", "files": "none", "tables": ["shop.*"], "mask": mask}
    return Masker(MySqlConfig.model_validate(config), None)


def cpu_s(work: Callable[[ChangeBatch], object], batches: list[ChangeBatch]) -> float:
    began = time.process_time()
    for batch in batches:
        work(batch)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    rows = parser.parse_args().rows
    batches = [customers(min(BATCH_ROWS, rows - first), first) for first in range(0, rows, BATCH_ROWS)]
    work: dict[str, Callable[[ChangeBatch], object]] = {"blocks, unmasked": ChangeBatch.to_block}
    work |= {name: masker(columns).mask for name, columns in MASKS.items()}
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, one in work.items():
            taken[name].append(cpu_s(one, batches))
    blocks_s = statistics.median(taken["blocks, unmasked"])
    lines = [f"{rows:,} changes of 8 columns, {ROUNDS} rounds, medians.", "", "| | ns of CPU a change | changes per CPU-second | times the blocks |", "|---|---|---|---|"]  # fmt: skip
    for name, seconds in taken.items():
        median_s = statistics.median(seconds)
        lines.append(f"| {name} | {median_s / rows * 1e9:,.0f} | {rows / median_s:,.0f} | {median_s / blocks_s:.2f} |")
    write_results("mask", lines)


if __name__ == "__main__":
    main()
