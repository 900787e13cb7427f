"""The log as a Spark source: batch, stream, limits, restart, and blocks opened into rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog
from headrace.stream.session import start_session
from headrace.stream.source import LogDataSource
from headrace.ums.change import MARK_KEY, ChangeBatch, Mark, read_block
from headrace.ums.schema import Column, Namespace, TableSchema

TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int64(), "bigint"),), ("id",))
pytestmark = pytest.mark.filterwarnings("ignore")  # Spark's own


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(2, tmp_path_factory.mktemp("spark"))
    session.dataSource.register(LogDataSource)
    yield session
    session.stop()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DirectoryLog]:
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))
    yield log
    log.close()


def append(log: DirectoryLog, *ids: int) -> None:
    rows = [
        {"_ums_id_": id_, "_ums_ts_": 0, "_ums_op_": "i", "_ums_commit_ts_": 0, "_ums_raw_": None, "id": id_}
        for id_ in ids
    ]
    batch = ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))
    mark = Mark("db1", {}, ids[-1], 0)
    log.append("db1", 0, [Entry(batch.key(), batch.to_block(), 1000), Entry(MARK_KEY, mark.to_block(), 1000)])


def ids_in(rows: DataFrame) -> list[int]:
    """The ids in all blocks, in log order."""
    found: list[int] = []
    for row in rows.where("namespace IS NOT NULL").orderBy("offset").collect():
        block = read_block(bytes(row.block))
        assert isinstance(block, ChangeBatch)
        found += block.data.column("id").to_pylist()
    return found


def test_a_batch_read_has_every_entry(spark: SparkSession, log: DirectoryLog, tmp_path: Path) -> None:
    append(log, 1, 2)
    append(log, 3)
    rows = spark.read.format("headrace-log").option("path", str(tmp_path / "log")).option("topic", "db1").load()
    assert [row.offset for row in rows.orderBy("offset").collect()] == [0, 1, 2, 3]
    assert ids_in(rows) == [1, 2, 3]


def test_a_stream_goes_on_where_its_checkpoint_is(spark: SparkSession, log: DirectoryLog, tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def run() -> None:
        stream = spark.readStream.format("headrace-log").option("path", str(tmp_path / "log")).option("topic", "db1")
        query = (
            stream.option("maxEntriesPerTrigger", "2")
            .load()
            .writeStream.foreachBatch(lambda rows, _: seen.append(ids_in(rows)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    append(log, 1, 2)
    append(log, 3)
    run()
    append(log, 4)
    run()
    assert seen == [[1, 2], [3], [4]]
