"""The log as a Spark source: batch, stream, limits, restart, and blocks opened into rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.codec.entries import EntryWriter
from headrace.errors import ConfigError
from headrace.log.base import Log, entry_form
from headrace.log.directory import DirectoryLog
from headrace.log.kafka import KafkaLog
from headrace.stream.session import start_session
from headrace.stream.source import LogDataSource
from headrace.ums.change import ChangeBatch, Mark, read_block
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.servers.kafka import Kafka

TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int64(), "bigint"),), ("id",))
pytestmark = pytest.mark.filterwarnings("ignore")  # Spark's own


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(2, tmp_path_factory.mktemp("spark"))
    session.dataSource.register(LogDataSource)
    yield session
    session.stop()


@dataclass
class Place:
    """A log, and the options with which Spark finds its topic."""

    log: Log
    options: dict[str, str]


@pytest.fixture(params=["directory", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "directory":
        log = DirectoryLog(DirectoryLog.Config(path=tmp_path / "log"))
        yield Place(log, {"path": str(tmp_path / "log"), "topic": "db1"})
        log.close()
        return
    kafka: Kafka = request.getfixturevalue("kafka")
    with kafka.prefix() as prefix:
        topics = KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))
        yield Place(topics, {"brokers": kafka.brokers, "prefix": prefix, "topic": "db1"})
        topics.close()


def append(log: Log, *ids: int) -> None:
    rows = [
        {"_ums_id_": id_, "_ums_ts_": 0, "_ums_op_": "i", "_ums_commit_ts_": 0, "_ums_raw_": None, "id": id_}
        for id_ in ids
    ]
    batch = ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))
    mark = Mark("db1", {}, ids[-1], 0)
    writer = EntryWriter(entry_form(log, "db1", 0), "mysql")
    log.append("db1", 0, [*writer.changes(batch, 1000), writer.mark(mark, 1000)])


def ids_in(rows: DataFrame) -> list[int]:
    """The ids in all blocks, in log order."""
    found: list[int] = []
    for row in rows.where("namespace IS NOT NULL").orderBy("offset").collect():
        block = read_block(bytes(row.block))
        assert isinstance(block, ChangeBatch)
        found += block.data.column("id").to_pylist()
    return found


def test_a_batch_read_has_every_entry(spark: SparkSession, place: Place) -> None:
    append(place.log, 1, 2)
    append(place.log, 3)
    rows = spark.read.format("headrace-log").options(**place.options).load()
    expected = [record.offset for record in place.log.read("db1", 0, place.log.spans("db1")[0])]
    assert [row.offset for row in rows.orderBy("offset").collect()] == expected
    assert len(expected) == 4
    assert ids_in(rows) == [1, 2, 3]


def test_a_stream_goes_on_where_its_checkpoint_is(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    seen: list[list[int]] = []
    log = place.log

    def run() -> None:
        stream = spark.readStream.format("headrace-log").options(**place.options)
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
    assert [ids for ids in seen if ids] == [[1, 2], [3], [4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t"}, "which topic of which log"),
        ({"topic": "t", "path": "a", "brokers": "b:1"}, "which topic of which log"),
        ({"topic": "t", "brokers": "no port"}, "option 'brokers'"),
        ({"topic": "t", "brokers": "b:1", "sasl.usrname": "u"}, "option 'sasl"),
    ],
)
def test_wrong_options_are_told(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        LogDataSource(options).reader(None).partitions()
    assert raised.value.fix
