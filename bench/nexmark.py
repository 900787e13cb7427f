"""Ten questions of Nexmark (tests/nexmark.py), in rows per second of processor time: ``PYTHONPATH=src python -m bench.nexmark``.

500,000 events of 50 seconds, out of order by up to 4 seconds, in 5 transactions; counted are the rows that the question reads.

* headrace: from a log on disk, in this process, all of its work: reading, keys and repeats, positions. Questions that are asked row by row are flows whose target
  throws rows away; the others are computed tables, from the log to the log, with their state on disk.
* Spark: the same written by hand in Structured Streaming over Parquet files with the same rows, a file for a micro-batch, results thrown away; the time of driver and JVM.
  A first query warms them up. Spark has no row_number over streams: top-N is a sorted list for each auction there, hot items two aggregations.
* DuckDB: the same SQL as a batch over rows in memory, one thread.

State: the rows that are kept at the end, and the size of the file.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.nexmark import LATENESS, QUESTIONS, TABLES, Events, Part, plain, side_rows
from tests.nexmark_work import computed, delivered, flow, prepare
from tests.sql_tables import Writer

from bench.machine import processor_s, write_results
from headrace.compute.changing.answer import Answers
from headrace.compute.changing.state import State
from headrace.compute.sink import ComputingSink
from headrace.sinks.base import Capabilities, Position, Sink
from headrace.stream.parts import open_transform
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import TableSchema

EVENTS, TRANSACTIONS, A_SECOND = 500_000, 5, 10_000
_AFTER_US = 3600 * 10**6
_PLACES = 3


class Nothing(Sink):
    """A target that throws rows away, as Spark's `noop` does."""

    capabilities = Capabilities(needs_key=False, remembers_position=False, scans=False)

    def __init__(self) -> None:
        """There is nothing to connect to."""

    def prepare(self, table: TableSchema) -> None: ...
    def write(self, batch: ChangeBatch) -> None: ...
    def clear(self, clear: Clear) -> None: ...
    def commit(self, position: Position) -> None: ...
    def close(self) -> None: ...


@contextmanager
def on_log(events: Events, parts: list[Part]) -> Iterator[Path]:
    """A directory with a log that has all of it."""
    with tempfile.TemporaryDirectory() as directory:
        writer = Writer(Path(directory))
        prepare(Path(directory))
        for part in parts:
            writer.id = part.newest_id
            writer.transact(*part.changes, commit_us=part.closed_us)
        writer.transact(commit_us=events.end_us + LATENESS + _AFTER_US)
        yield Path(directory)


def headrace_s(directory: Path, name: str) -> tuple[float, str]:
    """Processor time; and the state."""
    if QUESTIONS[name].steps is not None:
        spec = flow(directory, name)
        transform = open_transform(spec)
        assert transform is not None
        began = time.process_time()
        delivered(directory, spec, lambda: ComputingSink(transform, Nothing()), lambda: False)
        return time.process_time() - began, "none"
    made = computed(directory, name)
    began = time.process_time()
    made.run()
    spent_s = time.process_time() - began
    with closing(State(made.state, "1GB", Answers(made.config))) as state:
        state.open()
        size = (made.state / "state.duckdb").stat().st_size
        return spent_s, f"{state.rows():,} rows, {size / 2**20:,.1f} MiB"


def duckdb_s(events: Events, name: str) -> float:
    """Processor time of one thread for the whole."""
    question = QUESTIONS[name]
    with closing(duckdb.connect(config={"threads": 1})) as whole:
        whole.register("side", side_rows())
        for each in question.inputs:
            whole.register("rows", events.tables[each])
            whole.execute(f"CREATE TABLE {each}_rows AS FROM rows")
            whole.execute(f"CREATE VIEW {each} AS {plain(question, each)}")
        began = time.process_time()
        whole.execute(f"CREATE TABLE answer AS {question.sql}")
        return time.process_time() - began


def _simple(session: SparkSession, name: str, bids: DataFrame) -> DataFrame | None:
    """The questions that keep nothing."""
    if name == "pass":
        return bids
    if name == "projection":
        item = f.split_part(f.col("url"), f.lit("/"), f.lit(4))
        return bids.select("id", "auction", item.alias("item"), f.hour("date_time").alias("hour"))
    if name == "filter":
        return bids.where("auction % 13 = 0").select("id", "auction", "price")
    if name == "currency":
        euros = f.expr("CAST(price * 0.908 AS DECIMAL(18,3)) AS euros")
        return bids.select("id", "auction", "bidder", euros, "date_time")
    if name == "lookup join":
        side = f.broadcast(session.createDataFrame(side_rows().to_pylist()).withColumnRenamed("id", "channel"))
        return bids.join(side, "channel", "left").select("id", "auction", "price", "name")
    return None


def by_hand(session: SparkSession, name: str, stream: Callable[[str], DataFrame]) -> DataFrame:
    """The question in Structured Streaming. `stream`: a table as one."""

    def late(table: str) -> DataFrame:
        return stream(table).withWatermark("date_time", f"{LATENESS // 1_000_000} seconds")

    simple = _simple(session, name, stream("bid")) if "bid" in QUESTIONS[name].inputs else None
    if simple is not None:
        return simple
    if name == "window join":
        persons = late("person").withColumn("w", f.window("date_time", "10 seconds")).alias("p")
        auctions = late("auction").withColumn("w", f.window("date_time", "10 seconds"))
        sellers = auctions.dropDuplicates(["seller", "w"]).alias("a")
        return persons.join(sellers, f.expr("p.id = a.seller AND p.w = a.w")).select("p.id", "p.name", "p.w")
    if name == "hot items":
        counts = late("bid").groupBy(f.window("date_time", "10 seconds", "2 seconds"), "auction")
        best = counts.agg(f.count("*").alias("n")).groupBy("window")
        return best.agg(f.max_by("auction", "n"), f.max("n"))
    if name == "session":
        return late("bid").groupBy(f.session_window("date_time", "2 seconds"), "bidder").agg(f.count("*"))
    if name == "top-N":
        bids = f.sort_array(f.collect_list(f.struct("price", "id", "bidder")), asc=False)
        return late("bid").groupBy(f.window("date_time", "10 seconds"), "auction").agg(f.slice(bids, 1, _PLACES))
    newest = f.max_by(f.struct("id", "price", "date_time"), f.struct("date_time", "id"))
    return stream("bid").groupBy("auction", "bidder").agg(newest)


def spark_s(session: SparkSession, name: str, files: Path) -> float:
    """Processor time of a query over all files."""

    def stream(table: str) -> DataFrame:
        schema = session.read.parquet(str(files / table)).schema
        return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files / table))

    with tempfile.TemporaryDirectory() as checkpoint:
        query = by_hand(session, name, stream)
        began = processor_s(psutil.Process())
        mode = "update" if name == "newest bid" else "append"
        writer = query.writeStream.format("noop").outputMode(mode).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return processor_s(psutil.Process()) - began


def with_spark(parts: list[Part], work: Callable[[SparkSession, Path], None]) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
    session = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory() as directory:
            for number, part in enumerate(parts):
                for change in part.changes:
                    _write(change, Path(directory), number)
            work(session, Path(directory))
    finally:
        session.stop()


def _write(change: ChangeBatch, directory: Path, number: int) -> None:
    """The rows of a change as the file of a micro-batch, times as those of UTC."""
    rows = pa.Table.from_batches([change.data]).select([column.name for column in change.table.columns])
    times = [field.type if field.type != pa.timestamp("us") else pa.timestamp("us", "UTC") for field in rows.schema]
    file = directory / change.table.namespace.table / f"{number:04}.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(rows.cast(pa.schema(list(zip(rows.schema.names, times, strict=True)))), file)


def main() -> None:
    events = Events(EVENTS, a_second=A_SECOND)
    parts = list(events.parts(TRANSACTIONS))
    spark: dict[str, float] = {}

    def measure(session: SparkSession, files: Path) -> None:
        spark_s(session, "pass", files)
        spark.update({name: spark_s(session, name, files) for name in QUESTIONS})

    with_spark(parts, measure)
    lines = [
        "| rows per CPU-second | headrace | Spark by hand | headrace to Spark | DuckDB, a batch | state of headrace |",
        "|---|---|---|---|---|---|",
    ]
    with on_log(events, parts) as directory:
        for name, question in QUESTIONS.items():
            rows = sum(events.tables[each].num_rows for each in question.inputs)
            ours_s, state = headrace_s(directory, name)
            ours, theirs, limit = rows / ours_s, rows / spark[name], rows / duckdb_s(events, name)
            lines.append(f"| {name} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} | {limit:,.0f} | {state} |")
    counts = ", ".join(f"{events.tables[each.namespace.table].num_rows:,} of {each.namespace.table}" for each in TABLES)
    write_results("nexmark", [f"{EVENTS:,} events: {counts}.", "", *lines])


if __name__ == "__main__":
    main()
