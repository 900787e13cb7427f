"""What windows of computed tables cost: ``PYTHONPATH=src python -m bench.sql_windows``.

1,000,000 bids on auctions that come and go, 2,000 a second of event time, by up to half a second out of order, in 5 transactions. Rows per second of processor time:

* headrace: from a log on disk to a log on disk, capture runner, state and all, in this process;
* Spark: the same windows written by hand in Structured Streaming, over Parquet files with the same rows, a file for a micro-batch, state in memory, results thrown
  away; the time of driver and JVM. A first query over one file warms them up. Overlapping top-N is two aggregations there, as Spark refuses row_number over streams;
* DuckDB: the same SQL as a batch over the same rows in memory, one thread.

State: the rows that are kept at the end, and the size of the file.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.property.test_sql_windows import BIDS
from tests.sql_tables import Computed, Writer

from bench.machine import processor_s, write_results
from headrace.compute.changing.answer import Answers
from headrace.compute.changing.state import State
from headrace.ums.change import ChangeBatch

ROWS, TRANSACTIONS, A_SECOND = 1_000_000, 5, 2_000
SECOND, BEGIN, OUT_OF_ORDER = 1_000_000, 1_700_000_000_000_000, 500_000
TUMBLING = "SELECT window_end, who, count(*) AS n, max(price) AS price FROM bids GROUP BY ALL"
HOT = "WITH c AS (SELECT window_end, who, count(*) AS n FROM bids GROUP BY ALL) SELECT * FROM c QUALIFY n = max(n) OVER (PARTITION BY window_end)"
SESSION = "SELECT window_start, window_end, who, count(*) AS n FROM bids GROUP BY ALL"
Question = tuple[str, list[str], dict[str, object]]
QUESTIONS: dict[str, Question] = {
    "tumbling, 10 s": (TUMBLING, ["window_end", "who"], {"length": 10}),
    "hot items, 10 s every 2 s": (HOT, ["window_end", "who"], {"length": 10, "every": 2}),
    "sessions, gap 2 s": (SESSION, ["window_start", "who"], {"gap": 2, "by": ["who"]}),
}


def bids() -> list[pa.RecordBatch]:
    """The rows, by transaction."""
    draw, size, made = random.Random(15), ROWS // TRANSACTIONS, list[pa.RecordBatch]()
    for first in range(0, ROWS, size):
        numbers = range(first, first + size)
        at = [BEGIN + number * SECOND // A_SECOND - draw.randrange(OUT_OF_ORDER) for number in numbers]
        columns = [
            pa.array(numbers, pa.int64()),
            pa.array([number // A_SECOND + int(draw.paretovariate(0.4)) % 100 for number in numbers], pa.int64()),
            pa.array([draw.randrange(10_000) for _ in numbers], pa.int64()),
            pa.array(at, pa.int64()).view(pa.timestamp("us")),
        ]
        made.append(pa.RecordBatch.from_arrays(columns, [column.name for column in BIDS.columns]))
    return made


def change(rows: pa.RecordBatch) -> ChangeBatch:
    count, first = rows.num_rows, rows.column("id")[0].as_py() + 1
    ids = pa.array(range(first, first + count), pa.int64())
    times = ids.view(pa.timestamp("us", "UTC"))
    system = [ids, times, pa.repeat("i", count), times, pa.nulls(count, pa.utf8())]
    return ChangeBatch(BIDS, pa.RecordBatch.from_arrays([*system, *rows.columns], schema=BIDS.arrow_schema()))


def headrace_s(question: Question, rows: list[pa.RecordBatch]) -> tuple[float, str]:
    """Processor time; and the state."""
    sql, key, window = question
    windows = {"of": {"bids": {"time": "placed", **window}}, "delay": OUT_OF_ORDER / SECOND}
    with tempfile.TemporaryDirectory() as directory:
        writer = Writer(Path(directory))
        computed = Computed(Path(directory), sql, key, {"bids": "mysql.db1.shop.bids"}, {"windows": windows})
        for part in rows:
            writer.id = part.column("id")[-1].as_py() + 1
            writer.transact(change(part), commit_us=BEGIN + writer.id * SECOND // A_SECOND)
        began = time.process_time()
        computed.run()
        spent_s = time.process_time() - began
        with closing(State(computed.state, "1GB", Answers(computed.config))) as state:
            state.open()
            size = (computed.state / "state.duckdb").stat().st_size
            return spent_s, f"{state.rows():,} rows, {size / 2**20:,.1f} MiB"


def duckdb_s(question: Question, rows: list[pa.RecordBatch]) -> float:
    """Processor time of one thread for the whole, windows written in SQL."""
    sql, _, window = question
    with closing(duckdb.connect(config={"threads": 1})) as whole:
        whole.register("rows", pa.Table.from_batches(rows))
        whole.execute("CREATE TABLE plain AS FROM rows")
        began = time.process_time()
        whole.execute(f"CREATE TABLE answer AS WITH bids AS ({_plain(window)}) SELECT * FROM ({sql})")
        return time.process_time() - began


def _plain(window: dict[str, object]) -> str:
    if "gap" in window:
        return """SELECT *, min(placed) OVER s AS window_start, (max(placed) OVER s) + INTERVAL 2 seconds AS window_end FROM
            (SELECT *, sum(begins) OVER (PARTITION BY who ORDER BY placed ROWS UNBOUNDED PRECEDING) AS n FROM (SELECT *,
            CASE WHEN placed - lag(placed) OVER (PARTITION BY who ORDER BY placed) < INTERVAL 2 seconds THEN 0 ELSE 1 END AS begins FROM plain))
            WINDOW s AS (PARTITION BY who, n)"""
    if "every" in window:
        return """SELECT *, s + INTERVAL 10 seconds AS window_end FROM (SELECT *, unnest(generate_series(
            time_bucket(INTERVAL 2 seconds, placed) - INTERVAL 8 seconds, time_bucket(INTERVAL 2 seconds, placed), INTERVAL 2 seconds)) AS s FROM plain)"""
    return "SELECT *, time_bucket(INTERVAL 10 seconds, placed) + INTERVAL 10 seconds AS window_end FROM plain"


def by_hand(name: str, stream: DataFrame) -> DataFrame:
    """The question in Structured Streaming."""
    late = stream.withWatermark("placed", "500 milliseconds")
    if name.startswith("tumbling"):
        return late.groupBy(f.window("placed", "10 seconds"), "who").agg(f.count("*").alias("n"), f.max("price"))
    if name.startswith("sessions"):
        return late.groupBy(f.session_window("placed", "2 seconds"), "who").agg(f.count("*").alias("n"))
    counts = late.groupBy(f.window("placed", "10 seconds", "2 seconds"), "who").agg(f.count("*").alias("n"))
    return counts.groupBy("window").agg(f.max_by("who", "n"), f.max("n"))


def spark_s(session: SparkSession, name: str, files: Path) -> float:
    """Processor time of a query over all files."""
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = session.readStream.schema("id long, who long, price long, placed timestamp")
        rows = stream.option("maxFilesPerTrigger", 1).parquet(str(files))
        began = processor_s(psutil.Process())
        writer = by_hand(name, rows).writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return processor_s(psutil.Process()) - began


def with_spark(rows: list[pa.RecordBatch], work: Callable[[SparkSession, Path], None]) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
    session = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        with tempfile.TemporaryDirectory() as directory:
            for number, part in enumerate(rows):
                utc = part.set_column(3, "placed", part.column("placed").cast(pa.timestamp("us", "UTC")))
                pq.write_table(pa.Table.from_batches([utc]), Path(directory) / f"{number:04}.parquet")
            work(session, Path(directory))
    finally:
        session.stop()


def main() -> None:
    rows = bids()
    spark: dict[str, float] = {}

    def measure(session: SparkSession, files: Path) -> None:
        spark_s(session, next(iter(QUESTIONS)), files / "0000.parquet")
        spark.update({name: spark_s(session, name, files) for name in QUESTIONS})

    with_spark(rows, measure)
    lines = [
        "| rows per CPU-second | headrace | Spark by hand | DuckDB, a batch | state of headrace |",
        "|---|---|---|---|---|",
    ]
    for name, question in QUESTIONS.items():
        ours_s, state = headrace_s(question, rows)
        whole_s = duckdb_s(question, rows)
        lines.append(f"| {name} | {ROWS / ours_s:,.0f} | {ROWS / spark[name]:,.0f} | {ROWS / whole_s:,.0f} | {state} |")
    write_results("sql_windows", lines)


if __name__ == "__main__":
    main()
