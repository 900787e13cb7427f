"""Spark sources without Spark: what their readers answer when they are called as Spark calls them.

That Spark does so is shown by tests/flows/test_spark_sources.py.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import registry
from headrace.codec.entries import EntryWriter
from headrace.errors import ConfigError, DataError, FatalError, FencedError
from headrace.log.base import Entry, EntryForm, Holding
from headrace.log.retention import Retention
from headrace.storage.local import LocalFileTree
from headrace.storage.location import scheme_of
from headrace.stream.sources.frames import ColumnFrame, ValueFrame, column_schema, value_schema
from headrace.stream.sources.hbase import HBaseDataSource
from headrace.stream.sources.mysql import MySqlDataSource
from headrace.stream.sources.newest import Newest
from headrace.stream.sources.own_log import OwnLog
from headrace.stream.sources.plan import ByPartition, Offsets, Slice, complete_up_to
from headrace.stream.sources.reading import ChangesStreamReader, Reading
from headrace.ums.change import Cause, ChangeBatch, Clear, Mark
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.patience import wait_until

Source = MySqlDataSource | HBaseDataSource
Rows = list[dict[str, Any]]
SHOP = Path(__file__).parents[2] / "examples" / "shop" / "binlog"
GOLDEN = Path(__file__).parents[1] / "golden" / "hbase"
HOUR_MS = 3_600_000


def read(reader: Any, partitions: Any) -> Rows:
    """What tasks read: each with a copy of the reader and of its partition, as on an executor."""
    copies = pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(list(partitions)))
    return [row for partition in copies[1] for batch in copies[0].read(partition) for row in batch.to_pylist()]


def batch_of(source: Source) -> Rows:
    reader = source.reader(source.schema())
    return sorted(read(reader, reader.partitions()), key=lambda row: row["_ums_id_"])


@contextmanager
def streaming(source: Source) -> Iterator[ChangesStreamReader]:
    reader = source.streamReader(source.schema())
    try:
        yield reader
    finally:
        reader.stop()


class Query:
    """A streaming query with Trigger.AvailableNow, and its checkpoint."""

    def __init__(self, source: type[Source], **options: object) -> None:
        self._source = source
        self.options = {name.lower(): str(value) for name, value in options.items()}
        self.offsets: list[Offsets] = []
        self.batches: list[Rows] = []

    def drain(self) -> None:
        with streaming(self._source(self.options)) as reader:
            reader.prepareForTriggerAvailableNow()
            self.offsets = self.offsets or [reader.initialOffset()]
            while (end := reader.latestOffset(self.offsets[-1], reader.getDefaultReadLimit())) != self.offsets[-1]:
                # A checkpoint is JSON.
                self.offsets.append(json.loads(json.dumps(end)))
                self.batches.append(self.read(reader, -1))
                reader.commit(end)

    def read(self, reader: ChangesStreamReader, number: int) -> Rows:
        return read(reader, reader.partitions(*self.offsets[number - 1 :][:2]))

    @property
    def rows(self) -> Rows:
        return sorted((row for batch in self.batches for row in batch), key=lambda row: row["_ums_id_"])


def shop(**more: object) -> dict[str, str]:
    return {
        "files": str(SHOP / "binlog.*"),
        "tables": "shop.orders",
        **{name: str(text) for name, text in more.items()},
    }


def test_files_side_by_side_and_a_stream_of_them_are_the_same(tmp_path: Path) -> None:
    expected = batch_of(MySqlDataSource(shop()))
    files = tmp_path / "files"
    files.mkdir()
    query = Query(
        MySqlDataSource, files=files / "binlog.*", tables="shop.orders", path=tmp_path / "own", maxRowsPerTrigger=1000
    )
    for number in (1, 2, 3):
        shutil.copy(SHOP / f"binlog.{number:06}", files)
        query.drain()
    assert len(expected) > 7000
    assert query.rows == expected
    assert len(query.batches) == 3
    middle, ids = expected[len(expected) // 2], [row["_ums_id_"] for row in expected]
    again = {**shop(), "path": str(tmp_path / "own")}
    bounds = {"startingoffsets": str(ids[10]), "endingoffsets": str(middle["_ums_id_"])}
    assert batch_of(MySqlDataSource(again | bounds)) == expected[10 : len(expected) // 2]
    moment = middle["_ums_commit_ts_"]
    later = batch_of(MySqlDataSource(again | {"startingoffsets": moment.isoformat()}))
    assert later == [row for row in expected if row["_ums_commit_ts_"] >= moment]


def test_before_images_of_files_and_of_a_stream_are_the_same(tmp_path: Path) -> None:
    expected = batch_of(MySqlDataSource(shop(beforeimages="true")))
    query = Query(MySqlDataSource, **shop(beforeimages="true", path=tmp_path / "own"))
    query.drain()
    assert query.rows == expected
    befores = [(row["_ums_op_"], row["_ums_before_"]) for row in expected]
    assert {op for op, before in befores if before is not None} == {"u", "d"}
    assert all(before is None for op, before in befores if op == "i")
    values = batch_of(MySqlDataSource(shop(beforeimages="true", form="value")))
    assert [json.loads(row["value"])["status"] for row in values] == [row["status"] for row in expected]
    assert [row["_ums_before_"] and json.loads(row["_ums_before_"])["status"] for row in values] == [
        before and before["status"] for _, before in befores
    ]


@pytest.fixture
def hbase(tmp_path: Path) -> dict[str, str]:
    old = tmp_path / "hbase" / "oldWALs"
    old.mkdir(parents=True)
    for path in GOLDEN.glob("plain-*"):
        if path.suffix != ".gz":
            shutil.copy(path, old / path.name.removeprefix("plain-"))
    columns = "name text cf:name, amount double f2:amt"
    return {"root": str(tmp_path / "hbase"), "tables": "ns1:orders", "row": "text", "columns": columns}


def test_regions_are_read_by_themselves_and_again(hbase: dict[str, str], tmp_path: Path) -> None:
    expected = batch_of(HBaseDataSource(hbase))
    query = Query(HBaseDataSource, **hbase, path=tmp_path / "own", maxRowsPerTrigger=400)
    query.drain()
    assert len(expected) > 900
    assert query.rows == expected
    assert len(query.batches) > 1
    with streaming(HBaseDataSource(query.options)) as reader:
        for number in range(1, len(query.offsets)):
            before, after = query.offsets[number - 1 : number + 1]
            pieces = reader.partitions(before, after)
            assert len(pieces) == len(after["regions"]) > 1
            for piece in pieces:
                rows = read(reader, [piece])
                [region] = {row["region"] for row in rows}
                sequences = [row["sequence"] for row in rows]
                assert [sequences[0], sequences[-1]] == after["regions"][region]
                assert sequences == sorted(sequences)
            assert read(reader, pieces) == query.batches[number - 1]


def test_what_a_person_must_know_of_a_batch_is_a_warning(
    hbase: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (Path(hbase["root"]) / "oldWALs" / "pv2-00000000000000000001.log").write_bytes(b"procedures")
    assert batch_of(HBaseDataSource(hbase))
    assert "oldWALs/pv2-00000000000000000001.log is passed over" in caplog.text


def test_too_many_regions_are_told(hbase: dict[str, str], tmp_path: Path) -> None:
    query = Query(HBaseDataSource, **hbase, path=tmp_path / "own", maxRegions=1)
    with pytest.raises(ConfigError, match=r"more than `maxRegions` \(1\)"):
        query.drain()


def test_a_checkpoint_of_another_log_is_told(hbase: dict[str, str], tmp_path: Path) -> None:
    query = Query(HBaseDataSource, **hbase, path=tmp_path / "own")
    query.drain()
    (tmp_path / "empty" / "WALs").mkdir(parents=True)
    query.options |= {"path": str(tmp_path / "another"), "root": str(tmp_path / "empty")}
    with pytest.raises(FatalError, match="which has") as raised:
        query.drain()
    assert "checkpoint" in raised.value.fix


def test_a_new_checkpoint_on_a_log_that_was_read(hbase: dict[str, str], tmp_path: Path) -> None:
    query = Query(HBaseDataSource, **hbase, path=tmp_path / "own")
    query.drain()
    again = Query(HBaseDataSource, **query.options)
    again.drain()
    assert again.rows == query.rows
    newest = Query(HBaseDataSource, **query.options | {"startingoffsets": "latest"})
    newest.drain()
    assert newest.rows == []
    at_a_time = Query(HBaseDataSource, **query.options | {"startingoffsets": "2026-01-31T12:00:00Z"})
    with pytest.raises(ConfigError, match="cannot be used with a new checkpoint"):
        at_a_time.drain()


def test_the_reason_of_a_consumer_is_the_query_s(tmp_path: Path) -> None:
    query = Query(HBaseDataSource, root=tmp_path, tables="a:b", path=tmp_path / "own")
    with pytest.raises(ConfigError, match="there is no write-ahead log of HBase"):
        query.drain()


def test_a_start_that_the_source_has_not_is_told_at_the_first_start_only(tmp_path: Path) -> None:
    """A query that goes on has begun, and its start may be gone."""
    query = Query(MySqlDataSource, **shop(startingOffsets="binlog.000009:4"), path=tmp_path / "own")
    assert "status" in MySqlDataSource(query.options).schema().fieldNames()
    with pytest.raises(ConfigError, match="is not in the source's log"):
        query.drain()


TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "t"),
    (Column("id", pa.int64(), "bigint"), Column("n", pa.int64(), "bigint")),
    ("id",),
)


def change(*ids: int, table: TableSchema = TABLE, **more: object) -> ChangeBatch:
    system = {"_ums_ts_": 0, "_ums_op_": "i", "_ums_commit_ts_": 0, "_ums_raw_": None}
    rows = [{"_ums_id_": id_, **system, "id": id_, "n": 2 * id_, **more} for id_ in ids]
    return ChangeBatch(table, pa.RecordBatch.from_pylist(rows, schema=table.arrow_schema()))


def test_what_a_capture_that_died_had_appended_comes_once(tmp_path: Path) -> None:
    own, writer = OwnLog(tmp_path, "db1", 3600), EntryWriter(EntryForm(), "mysql")
    with_log = own.open()
    for mark, some in ((1, [1]), (None, [2, 3]), (None, [2]), (4, [2, 3, 4])):
        entries = writer.changes(change(*some), 0)
        with_log.append("db1", 0, [*entries, *([writer.mark(Mark("db1", {}, mark, 0), 0)] if mark else [])])
    with_log.append("db1", 0, writer.changes(change(5), 0))
    reading = Reading(own, ByPartition(), ColumnFrame(column_schema(TABLE, before_images=False)))
    ends = complete_up_to(with_log, "db1")
    [piece] = reading.plan.slices(with_log, "db1", {0: 0}, ends)
    assert isinstance(piece, Slice)
    assert [row["id"] for batch in reading.batches(piece) for row in batch.to_pylist()] == [1, 2, 3, 4]
    with_log.close()


def test_what_has_no_place_in_a_column_stands_beside() -> None:
    frame = ColumnFrame(column_schema(TABLE, before_images=False))
    wide = TableSchema(TABLE.namespace, (*TABLE.columns, Column("more", pa.utf8(), "text")), ("id",))
    texts = TableSchema(TABLE.namespace, (TABLE.columns[0], Column("n", pa.utf8(), "text")), ("id",))
    narrow = TableSchema(TABLE.namespace, (TABLE.columns[0],), ("id",))
    [added] = frame.rows(change(1, table=wide, more="x")).to_pylist()
    assert (added["n"], json.loads(added["_ums_raw_"])) == (2, {"more": "x"})
    rows = pa.RecordBatch.from_arrays(
        [*change(1, 2).data.columns[:-1], pa.array(["7", "seven"])], schema=texts.arrow_schema()
    )
    fits, beyond = frame.rows(ChangeBatch(texts, rows)).to_pylist()
    assert (fits["n"], fits["_ums_raw_"]) == (7, None)
    assert (beyond["n"], json.loads(beyond["_ums_raw_"])) == (None, {"n": "seven"})
    lacks = ChangeBatch(narrow, change(1).data.select(narrow.arrow_schema().names))
    assert frame.rows(lacks).to_pylist()[0]["n"] is None
    bare = ColumnFrame(pa.schema([field for field in frame.schema if field.name != "_ums_raw_"]))
    with pytest.raises(DataError, match="have more, for which"):
        bare.rows(change(1, table=wide, more="x"))


def test_a_table_that_is_emptied_is_a_row() -> None:
    clear = Clear(TABLE, 7, 1_000_000, Cause.TRUNCATED)
    [row] = ColumnFrame(column_schema(TABLE, before_images=True)).rows(clear).to_pylist()
    assert (row["_ums_id_"], row["_ums_op_"], row["id"]) == (7, "c", None)
    assert row["_ums_commit_ts_"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert json.loads(row["_ums_raw_"])["cause"] == "truncated"
    [row] = ValueFrame(value_schema(before_images=False)).rows(clear).to_pylist()
    assert (row["table"], row["_ums_op_"], json.loads(row["value"])["cause"]) == ("shop.t", "c", "truncated")


def test_values_that_are_masked_are_nowhere(hbase: dict[str, str], tmp_path: Path) -> None:
    """In rows, in rows before them, in cells; in a stream and its log, and in a batch."""
    one = shop(files=SHOP / "binlog.000001", beforeimages="true")
    plain = batch_of(MySqlDataSource(one))
    mask = json.dumps({"shop.orders.status": {"type": "hash", "algorithm": "sha256"}})
    masked = batch_of(MySqlDataSource(one | {"mask": mask}))
    assert [row["status"] for row in masked] == [hashed(row["status"]) for row in plain]
    assert [before_of(row) for row in masked] == [hashed(before_of(row)) for row in plain]
    assert len({before_of(row) for row in masked}) > 1
    query = Query(MySqlDataSource, **one, mask=mask, path=tmp_path / "own")
    query.drain()
    assert query.rows == masked
    values = batch_of(MySqlDataSource(one | {"mask": mask, "form": "value"}))
    assert [json.loads(row["value"])["status"] for row in values] == [row["status"] for row in masked]

    mask = json.dumps({"ns1.orders.name": {"type": "constant", "value": "-"}})
    query = Query(HBaseDataSource, **hbase, path=tmp_path / "of-hbase", mask=mask)
    query.drain()
    names = {row["name"] for row in batch_of(HBaseDataSource(hbase)) if len(row["name"] or "") > 4}
    assert len(names) > 3
    assert query.rows == batch_of(HBaseDataSource(hbase | {"mask": mask}))
    cells = [cell for row in query.rows for cell in json.loads(row["cells"])]
    put = [cell for cell in cells if (cell["family"], cell["qualifier"], cell["kind"]) == ("cf", "name", "put")]
    assert put
    assert all(cell["masked"] and not {"value", "value_base64"} & cell.keys() for cell in put)
    assert any("value_base64" in cell or "value" in cell for cell in cells)
    content = b"".join(path.read_bytes() for path in (tmp_path / "of-hbase").rglob("*") if path.is_file())
    assert not [name for name in names if name.encode() in content]


def hashed(text: str | None) -> str | None:
    return None if text is None else sha256(text.encode()).hexdigest()


def before_of(row: dict[str, Any]) -> str | None:
    return row["_ums_before_"] and row["_ums_before_"]["status"]


def test_the_log_of_a_query_lies_on_any_store(
    hbase: dict[str, str], any_place: Path | str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What a query needs to go on is there: the driver may be on another machine the next time."""
    later = hidden(Path(hbase["root"]) / "oldWALs", tmp_path)
    more = {"path.web": request.getfixturevalue("hdfs").web} if str(any_place).startswith("hdfs:") else {}
    query = Query(HBaseDataSource, **hbase, **more, path=f"{any_place}/query", maxRowsPerTrigger=400)
    query.drain()
    first = len(query.rows)
    for path in later:
        path.rename(Path(hbase["root"]) / "oldWALs" / path.name)
    query.drain()
    assert 0 < first < len(query.rows)
    assert len(query.rows) == len(batch_of(HBaseDataSource(hbase)))
    with streaming(HBaseDataSource(query.options)) as reader:
        for number in range(1, len(query.offsets)):
            assert read(reader, reader.partitions(*query.offsets[number - 1 : number + 1])) == query.batches[number - 1]
    assert batch_of(HBaseDataSource(query.options)) == query.rows


def hidden(directory: Path, aside: Path) -> list[Path]:
    """The newest file of each log, taken away."""
    newest = {path.name.rpartition(".")[0]: path for path in sorted(directory.iterdir())}
    return [path.rename(aside / path.name) for path in newest.values()]


def test_two_queries_with_one_path_are_told(tmp_path: Path) -> None:
    tree = LocalFileTree(tmp_path)
    one, other = Newest(tree, "read"), Newest(tree, "read")
    one.save(b"1")
    assert other.load() == b"1"
    one.save(b"2")
    with pytest.raises(FencedError, match="another process writes"):
        other.save(b"3")
    one.save(b"4")
    with pytest.raises(FencedError, match="another process writes"):
        other.save(b"3")
    assert other.load() == b"4"
    assert len(list((tmp_path / "read").iterdir())) == 1


def test_what_spark_has_not_read_is_kept(any_place: Path | str, request: pytest.FixtureRequest) -> None:
    """Retention goes by age, but not beyond what was read."""
    kind = registry.load("logs", scheme_of(any_place) or "directory")
    web = {"web": request.getfixturevalue("hdfs").web} if str(any_place).startswith("hdfs:") else {}
    config = {"path": f"{any_place}/log", "segment_bytes": 100, "retention": Retention(age_s=3600), **web}
    log: Holding = kind(kind.Config(**config))  # type: ignore[attr-defined]
    hours = count(step=2)

    def start() -> int:
        """Where the log begins once there is something newer."""
        log.append("t", 0, [Entry(b"k", b"x" * 80, next(hours) * HOUR_MS)])
        return log.spans("t")[0].start

    log.hold("t", 0, 3)
    wait_until(lambda: start() == 3)
    assert [start() for _ in range(5)] == [3] * 5
    log.hold("t", 0, 8)
    wait_until(lambda: start() == 8)
    log.close()
