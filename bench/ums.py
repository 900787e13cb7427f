"""How fast UMS JSON is written and read, by headrace, by orjson in Python and by Spark's from_json, in one run on one core each.

    python -m bench.ums [--rows N] [--spark-rows N]

One table of ten mixed columns, the same rows for all. orjson writes rows that `to_pylist` makes and reads messages into rows out of
which pyarrow makes columns: with numbers and text only, because orjson knows no decimals, times of MySQL or bytes. Spark reads with
from_json on `local[1]` and counts what it reads, its start not counted. Five rounds in turns, medians; seconds of CPU, so that
what else runs on the machine counts less, beside those on the clock.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import psutil
import pyarrow as pa

from bench.machine import write_results
from headrace.codec.ums import Limits, UmsReader, UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema

ROUNDS = 5
TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("customer", pa.int32(), "int"),
        Column("note", pa.utf8(), "varchar"),
        Column("city", pa.utf8(), "varchar"),
        Column("amount", pa.decimal128(10, 2), "decimal(10,2)"),
        Column("ratio", pa.float64(), "double"),
        Column("born", pa.date32(), "date"),
        Column("changed", pa.timestamp("us"), "datetime(3)"),
        Column("state", pa.int8(), "tinyint"),
        Column("token", pa.binary(), "binary"),
    ),
    ("id",),
)


def orders(rows: int) -> ChangeBatch:
    random = Random(1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    values = [
        {
            "_ums_id_": 103_000012345678 + row * 90,
            "_ums_ts_": start + timedelta(microseconds=row),
            "_ums_op_": "iud"[row % 3],
            "_ums_commit_ts_": start + timedelta(microseconds=row),
            "id": row,
            "customer": random.randrange(10**9),
            "note": f"order number {row}, to be sent" if row % 5 else None,
            "city": random.choice(["København", "London", "北京"]),
            "amount": Decimal(random.randrange(10**8)) / 100,
            "ratio": random.random(),
            "born": date(1970, 1, 1) + timedelta(random.randrange(10_000)),
            "changed": datetime(2020, 1, 1) + timedelta(milliseconds=random.randrange(10**9)),  # noqa: DTZ001
            "state": row % 7,
            "token": random.randbytes(16),
        }
        for row in range(rows)
    ]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(values, schema=TABLE.arrow_schema()))


def write(writer: UmsWriter, batch: ChangeBatch) -> None:
    """Looks at each message, as who sends it does."""
    deque(writer.rows(batch), maxlen=0)


def orjson_write(batch: ChangeBatch, head: dict[str, Any], rows: int) -> list[bytes]:
    """The same messages by hand: rows as Python values, what orjson does not know as text."""
    data = batch.data.to_pylist()

    def text(value: object) -> str:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

    return [
        orjson.dumps(
            head | {"payload": [{"tuple": list(row.values())} for row in data[start : start + rows]]}, default=text
        )
        for start in range(0, len(data), rows)
    ]


def orjson_read(messages: list[bytes]) -> pa.Table:
    """Columns of the values as they are in the JSON; making dates, decimals and bytes of them is left out."""
    rows = [row["tuple"] for message in messages for row in orjson.loads(message)["payload"]]
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True))
    return pa.table({str(number): pa.array(column) for number, column in enumerate(columns)})


def measure(actions: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """CPU and clock seconds of each, medians of rounds in turns."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
    for _ in range(ROUNDS):
        for name, action in actions.items():
            cpu, clock = time.process_time(), time.perf_counter()
            action()
            took[name].append((time.process_time() - cpu, time.perf_counter() - clock))
    return {
        name: (statistics.median(cpu for cpu, _ in times), statistics.median(clock for _, clock in times))
        for name, times in took.items()
    }


def jvm_cpu_s() -> float:
    """CPU of the processes under this one: Spark's JVM, its compiler and collector included."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))


def spark_read(messages: list[bytes], rows: int) -> tuple[float, float]:
    """CPU and clock seconds for from_json of the messages to typed columns, the last of five runs (the JVM is warm then)."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only this part needs it
    from pyspark.sql import functions as f  # noqa: PLC0415

    types = ["long", "timestamp", "string", "timestamp", "string", "long", "int", "string", "string", "decimal(10,2)"]
    types += ["double", "date", "timestamp_ntz", "int", "binary"]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "messages"
        path.write_bytes(b"\n".join(messages))
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        schema = "payload array<struct<tuple array<string>>>"
        exploded = spark.read.text(str(path)).select(f.explode(f.from_json("value", schema)["payload"]).alias("row"))
        cells = [
            (f.unbase64(f.col("row.tuple")[n]) if t == "binary" else f.col("row.tuple")[n].cast(t)).alias(f"c{n}")
            for n, t in enumerate(types)
        ]
        typed = exploded.select(*cells)
        for _ in range(5):
            cpu, clock = jvm_cpu_s(), time.perf_counter()
            typed.write.format("noop").mode("overwrite").save()
            took = jvm_cpu_s() - cpu, time.perf_counter() - clock
        assert typed.count() == rows
        spark.stop()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--spark-rows", type=int, default=50_000)
    arguments = parser.parse_args()
    rows: int = arguments.rows
    batch = orders(rows)
    limits = {"500 rows": Limits(500, 1 << 20), "5 rows": Limits(5, 1 << 20), "1 row": Limits(1, 1 << 20)}
    writers = {name: UmsWriter(Dialect.HEADRACE, limits=limit) for name, limit in limits.items()}
    messages = {name: [value for _, value in writer.rows(batch)] for name, writer in writers.items()}
    head = json.loads(messages["500 rows"][0])
    by_hand = orjson_write(batch, head, 500)
    actions: dict[str, Callable[[], object]] = {
        "write, orjson": partial(orjson_write, batch, head, 500),
        "read, orjson": partial(orjson_read, by_hand),
    }
    for name, writer in writers.items():
        actions[f"write, {name}"] = partial(write, writer, batch)
        actions[f"read, {name}"] = lambda name=name: UmsReader().read(messages[name])
    actions["read 2 columns, 500 rows"] = lambda: UmsReader(columns=["id", "amount"]).read(messages["500 rows"])
    took = measure(actions)
    spark_messages = [
        value for _, value in writers["500 rows"].rows(ChangeBatch(TABLE, batch.data.slice(0, arguments.spark_rows)))
    ]
    spark_cpu, spark_clock = spark_read(spark_messages, arguments.spark_rows)

    def line(name: str, action: str, peer: str) -> str:
        cpu, clock = took[action]
        return f"| {name} | {rows / cpu / 1e6:.2f} | {rows / clock / 1e6:.2f} | {took[peer][0] / cpu:.1f} |"

    lines = [
        (
            f"Ten columns and five system columns, {sum(map(len, messages['500 rows'])) / rows:.0f} bytes a row in messages of 500 rows, "
            f"{rows:,} rows, one core. Million rows a second; the ratio is that of CPU time to orjson's."
        ),
        "",
        "| | of CPU | of clock | times orjson |",
        "|---|---|---|---|",
        line("write, orjson (to_pylist, dumps), 500 rows a message", "write, orjson", "write, orjson"),
        *(line(f"write, headrace, {name} a message", f"write, {name}", "write, orjson") for name in limits),
        line("read, orjson (loads, untyped columns), 500 rows a message", "read, orjson", "read, orjson"),
        *(line(f"read, headrace, {name} a message", f"read, {name}", "read, orjson") for name in limits),
        line("read 2 of 10 columns, headrace, 500 rows a message", "read 2 columns, 500 rows", "read, orjson"),
        (
            f"| read, Spark's from_json to typed columns, 500 rows a message, local[1] "
            f"| {arguments.spark_rows / spark_cpu / 1e6:.3f} | {arguments.spark_rows / spark_clock / 1e6:.3f} "
            f"| {arguments.spark_rows / spark_cpu / (rows / took['read, orjson'][0]):.2f} |"
        ),
    ]
    write_results("ums", lines)


if __name__ == "__main__":
    main()
