"""Changes as Spark sources: recorded files, live servers and HBase's files, as streams and batches, in DataFrames and SQL."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.capture.base import Event
from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.runner import resume_point
from headrace.log.directory import DirectoryLog
from headrace.spark import register
from headrace.stream.session import start_session
from headrace.ums.change import ChangeBatch
from tests.patience import HANG_S, wait_until
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.spark_queries import started

SHOP = Path(__file__).parents[2] / "examples" / "shop" / "binlog"
GOLDEN = Path(__file__).parents[1] / "golden" / "hbase"
pytestmark = pytest.mark.filterwarnings("ignore")  # Spark's own


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(2, tmp_path_factory.mktemp("spark"))
    register(session)
    yield session
    session.stop()


def captured(table: str) -> list[dict[str, Any]]:
    """What the capture of `headrace run` makes of the recorded shop's table, which other tests compare with the server's own answers."""
    config = MySqlConfig.model_validate(
        {"type": "mysql", "name": "db1", "files": str(SHOP / "binlog.*"), "tables": [table]}
    )
    rows: list[dict[str, Any]] = []
    for event in MySqlSource(config, Path("/nowhere")).follow(None):
        rows += rows_of(event)
        if event.caught_up:
            break
    return sorted(rows, key=lambda row: row["_ums_id_"])


def rows_of(event: Event) -> Iterator[dict[str, Any]]:
    for change in event.changes:
        if isinstance(change, ChangeBatch):
            yield from change.data.to_pylist()


def comparable(row: Row | dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Values as text: Spark gives times without a zone, and has no unsigned numbers. A row of an older version lacks columns."""
    values = row.asDict() if isinstance(row, Row) else row
    return tuple(_text(values.get(name)) for name in names)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return str(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
    return str(bytes(value) if isinstance(value, bytearray) else value)


class Sink:
    """What batches brought, each by its number, so that one that is delivered again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, rows: DataFrame, number: int) -> None:
        self.batches[number] = rows.collect()

    @property
    def rows(self) -> list[Row]:
        found = [row for number in sorted(self.batches) for row in self.batches[number]]
        return sorted(found, key=lambda row: row["_ums_id_"])


class Queries:
    """Streams of one test: each with a log and a checkpoint of its own, by name."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory

    def path(self, name: str) -> Path:
        return self._directory / name

    def start(
        self, source: str, options: dict[str, Any], sink: Sink, name: str = "query", **trigger: Any
    ) -> StreamingQuery:
        changes = self._spark.readStream.format(source).options(path=str(self.path(name)), **options).load()
        writer = changes.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self._directory / f"{name}.checkpoint"))
        return started(writer.trigger(**(trigger or {"processingTime": "20 milliseconds"})))

    def drain(self, source: str, options: dict[str, Any], sink: Sink, name: str = "query") -> None:
        assert self.start(source, options, sink, name, availableNow=True).awaitTermination(HANG_S)

    @contextmanager
    def running(
        self, source: str, options: dict[str, Any], sink: Sink
    ) -> Iterator[Callable[[Callable[[], object]], None]]:
        """A query while it lasts; gives a function that waits for something, as long as the query lives."""
        query = self.start(source, options, sink)

        def alive() -> object:
            if (error := query.exception()) is not None:
                raise error
            return sink.rows

        try:
            yield lambda happened: wait_until(happened, alive)
        finally:
            query.stop()


@pytest.fixture
def queries(spark: SparkSession, tmp_path: Path) -> Queries:
    return Queries(spark, tmp_path)


def shop(table: str, **more: Any) -> dict[str, Any]:
    return {"files": str(SHOP / "binlog.*"), "tables": table, **more}


def test_recorded_files_in_a_task_each_are_what_a_capture_makes_of_them(spark: SparkSession) -> None:
    orders = spark.read.format("headrace-mysql").options(**shop("shop.orders")).load()
    expected = captured("shop.orders")
    names = orders.columns
    assert {"id", "channel"} < set(names)
    found = sorted(orders.collect(), key=lambda row: row["_ums_id_"])
    assert [comparable(row, names) for row in found] == [comparable(row, names) for row in expected]
    assert orders.rdd.getNumPartitions() == 3
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW second USING `headrace-mysql` OPTIONS (files '{SHOP}/binlog.*', tables 'shop.*',"
        " startingOffsets 'binlog.000002:4', endingOffsets 'binlog.000003:4')"
    )
    values = spark.sql("SELECT _ums_id_, value FROM second WHERE `table` = 'shop.orders' ORDER BY _ums_id_").collect()
    second = [row for row in expected if row["_ums_id_"] // 10**12 == 2]
    assert [row["_ums_id_"] for row in values] == [row["_ums_id_"] for row in second]
    assert [json.loads(row["value"])["status"] for row in values] == [row["status"] for row in second]


def test_a_stream_goes_on_behind_its_checkpoint_and_its_log_can_be_read_again(
    spark: SparkSession, queries: Queries, tmp_path: Path
) -> None:
    files, sink = tmp_path / "files", Sink()
    files.mkdir()
    options = {"files": str(files / "binlog.*"), "tables": "shop.orders", "maxRowsPerTrigger": 1000}
    for number in (1, 2, 3):
        shutil.copy(SHOP / f"binlog.{number:06}", files)
        queries.drain("headrace-mysql", options, sink)
    expected = captured("shop.orders")
    assert [row["_ums_id_"] for row in sink.rows] == [row["_ums_id_"] for row in expected]
    assert [row["status"] for row in sink.rows] == [row["status"] for row in expected]
    assert len(sink.batches) >= 3
    middle, ids = expected[len(expected) // 2], [row["_ums_id_"] for row in expected]
    own = {"path": str(queries.path("query")), **shop("shop.orders")}
    bounds = {"startingOffsets": ids[10], "endingOffsets": middle["_ums_id_"]}
    again = spark.read.format("headrace-mysql").options(**own, **bounds).load().select("_ums_id_")
    assert sorted(row["_ums_id_"] for row in again.collect()) == ids[10 : len(ids) // 2]


def test_a_live_table_that_changes(mysql: MySql, queries: Queries) -> None:
    with mysql.database() as database:
        server = {
            "host": mysql.host,
            "port": mysql.port,
            "user": mysql.user,
            "password": mysql.password,
        }
        mysql.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(20))",
            "INSERT INTO t VALUES (0, 'before')",
            database=database,
        )
        options = {**server, "tables": f"{database}.t", "startingOffsets": "latest", "beforeImages": "true"}
        sink = Sink()
        with queries.running("headrace-mysql", options, sink) as until:
            until(lambda: has_begun(queries.path("query")))
            mysql.execute(
                "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET text = 'b' WHERE id = 1",
                "ALTER TABLE t ADD COLUMN more INT", "INSERT INTO t VALUES (2, 'c', 7)", "TRUNCATE t",
                database=database,
            )  # fmt: skip
            until(lambda: len(sink.rows) >= 4)
        rows = [
            (row["_ums_op_"], row["id"], row["text"], row["_ums_before_"] and row["_ums_before_"]["text"])
            for row in sink.rows
        ]
        assert rows == [("i", 1, "a", None), ("u", 1, "b", "a"), ("i", 2, "c", None), ("c", None, None, None)]
        assert json.loads(sink.rows[2]["_ums_raw_"]) == {"more": "7"}
        assert json.loads(sink.rows[3]["_ums_raw_"])["cause"] == "truncated"
        mysql.execute("INSERT INTO t VALUES (3, 'd', 8)", database=database)
        queries.drain("headrace-mysql", options, sink)
        newest = sink.rows[-1]
        assert (newest["id"], newest["more"], len(sink.rows)) == (3, 8, 5)


def has_begun(path: Path) -> bool:
    """Whether the consumer has written where it begins."""
    log = DirectoryLog(DirectoryLog.Config(path=path / "log"))
    try:
        return (path / "log").exists() and any(resume_point(log, topic) for topic in log.topics())
    finally:
        log.close()


def test_a_query_fails_with_the_reason_of_its_consumer(queries: Queries) -> None:
    with MariaDb() as server:
        server.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)"
        )
        options = {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            "tables": "shop.t", "giveUpAfter": "1s",
        }  # fmt: skip
        sink = Sink()
        query = queries.start("headrace-mysql", options, sink)
        try:
            wait_until(lambda: sink.rows, query.exception)
            server.kill9()
            with pytest.raises(PySparkException, match=str(server.port)):
                query.awaitTermination(HANG_S)
        finally:
            query.stop()
    assert [row["id"] for row in sink.rows] == [1]


def hbase_files(directory: Path) -> None:
    old = directory / "oldWALs"
    old.mkdir(parents=True)
    for path in GOLDEN.glob("plain-*"):
        if path.suffix != ".gz":
            shutil.copy(path, old / path.name.removeprefix("plain-"))


def test_hbase_by_regions(spark: SparkSession, queries: Queries, tmp_path: Path) -> None:
    hbase_files(tmp_path / "hbase")
    options = {
        "root": str(tmp_path / "hbase"), "tables": "ns1:orders", "row": "text",
        "columns": "name text cf:name, amount double f2:amt", "maxRowsPerTrigger": 500,
    }  # fmt: skip
    whole = spark.read.format("headrace-hbase").options(**options).load()
    expected = sorted(comparable(row, whole.columns) for row in whole.collect())
    assert len(expected) > 900
    sink = Sink()
    queries.drain("headrace-hbase", options, sink)
    assert sorted(comparable(row, whole.columns) for row in sink.rows) == expected
    assert {row["amount"] for row in sink.rows if row["row"] == "r010"} >= {15.0}
    offsets = sorted((tmp_path / "query.checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    told = json.loads(offsets[0].read_text().splitlines()[-1])["regions"]
    first = {row["region"]: row["sequence"] for row in reversed(sink.batches[0])}
    assert {region: span[0] for region, span in told.items()} == first
    with pytest.raises(PySparkException, match="more than `maxRegions` \\(1\\)"):
        queries.drain("headrace-hbase", options | {"maxRegions": 1}, Sink(), "few")
