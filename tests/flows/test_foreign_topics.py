"""Topics that Debezium, canal or Maxwell write as a source: captured into the log, on where it stopped, with tables that grow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from headrace.capture.base import Event
from headrace.capture.mask import Masker
from headrace.capture.runner import Captured, run_capture
from headrace.capture.topics import KafkaSource
from headrace.cli.decode import decode
from headrace.codec.entries import EntryReader, EntryWriter
from headrace.codec.ums import UmsReader, UmsRows, UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.errors import ConfigError, CorruptError, FatalError, SourceError
from headrace.log.base import EntryForm, Form
from headrace.log.directory import DirectoryLog
from headrace.log.kafka import tail
from headrace.retry import Backoff
from headrace.ums.change import ChangeBatch, Clear, End, Mark
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.flows.command import headrace
from tests.servers.kafka import Kafka

LOG = Path(__file__).parents[1] / "golden" / "binlog" / "mysql9-cut.000005"


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as prefix:
        name = f"{prefix}changes"
        kafka.create_topic(name)
        yield name


def produce(kafka: Kafka, topic: str, *messages: object, partition: int = 0, key: bytes | None = None) -> None:
    producer = Producer(kafka.client())
    for message in messages:
        value = message if isinstance(message, bytes) or message is None else json.dumps(message).encode()
        producer.produce(topic, value, key, partition)
    assert producer.flush(30) == 0


class Place:
    """A log, and where the source keeps its tables."""

    def __init__(self, directory: Path, kafka: Kafka, topic: str, **options: Any) -> None:
        self.config = {"name": "up1", "brokers": kafka.brokers, "topics": [topic], "format": "maxwell"} | options
        self.directory = directory

    def capture(self) -> Captured:
        """All that is on the topics now."""
        log, source = self.log(), self.source()
        try:
            return run_capture(
                source,
                log,
                "up1",
                Masker(KafkaSource.Config.model_validate(self.config), None),
                source_type="kafka",
                over=lambda: False,
                until_idle=True,
                backoff=Backoff(5),
                progress=lambda _: None,
            )
        finally:
            source.close()
            log.close()

    def log(self) -> DirectoryLog:
        return DirectoryLog(DirectoryLog.Config(path=self.directory / "log"))

    def source(self) -> KafkaSource:
        return KafkaSource(KafkaSource.Config.model_validate(self.config), self.directory / "state")

    def changes(self) -> list[ChangeBatch | Clear | End | Mark]:
        log, reader = self.log(), EntryReader()
        found = [reader.read(record.entry) for record in log.read("up1", 0, log.spans("up1")[0])]
        log.close()
        return [change for change in found if isinstance(change, (ChangeBatch, Clear, End, Mark))]

    def rows(self) -> list[dict[str, Any]]:
        batches = [change for change in self.changes() if isinstance(change, ChangeBatch)]
        return [row | {"version": batch.table.namespace.version} for batch in batches for row in batch.data.to_pylist()]


def insert(table: str = "t", ts: int = 5, **data: object) -> dict[str, object]:
    return {"database": "shop", "table": table, "type": "insert", "ts": ts, "data": data, "primary_key_columns": ["id"]}


def test_partitions_that_are_added_on_the_way_are_taken_in(
    tmp_path: Path, kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "LOOK_EVERY_S", 0.1)
    source = Place(tmp_path, kafka, topic, start="latest").source()
    produce(kafka, topic, insert(id=1))
    events = source.follow(None)
    assert next(events).mark is not None
    kafka.add_partitions(topic, 3)
    produce(kafka, topic, insert(id=2), partition=2)
    produce(kafka, topic, insert(id=3), partition=0)
    ids, marks = [], []
    for event in islice(events, 200):
        for batch in event.changes:
            assert isinstance(batch, ChangeBatch)
            ids += batch.data.column("id").to_pylist()
        marks.append(event.mark)
        if len(ids) == 2 and event.caught_up:
            break
    assert sorted(ids) == [2, 3]
    assert marks[-1] is not None
    assert marks[-1].position == {"offsets": {f"{topic}/0": 2, f"{topic}/1": 0, f"{topic}/2": 1}}
    assert [mark.id for mark in marks if mark] == sorted(mark.id for mark in marks if mark)
    source.close()


def test_partitions_that_were_added_meanwhile_are_not_begun_at_their_end(
    tmp_path: Path, kafka: Kafka, topic: str
) -> None:
    place = Place(tmp_path, kafka, topic, start="latest")
    place.capture()
    kafka.add_partitions(topic, 2)
    produce(kafka, topic, insert(id=1), partition=1)
    place.capture()
    assert [row["id"] for row in place.rows()] == [1]


def users(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("_ums_")} for row in rows]


def test_it_goes_on_where_it_stopped(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic)
    produce(kafka, topic, insert(id=1, ts=7), insert(id=2, ts=6), None)
    first = place.capture()
    assert first.mark is not None
    assert first.mark.position == {"offsets": {f"{topic}/0": 3}}
    assert place.capture().mark == first.mark
    produce(kafka, topic, insert(id=3, ts=9))
    place.capture()
    rows = place.rows()
    assert [row["id"] for row in rows] == [1, 2, 3]
    ids = [row["_ums_id_"] for row in rows]
    assert ids == sorted(set(ids))
    assert first.mark.id < ids[2]
    assert [row["_ums_ts_"].second for row in rows] == [7, 6, 9]
    assert [row["_ums_commit_ts_"].second for row in rows] == [7, 7, 9]
    [table] = place.source().tables()
    assert (str(table.namespace), table.key) == ("kafka.up1.shop.t.0.0.0", ("id",))
    marks = [change.position["offsets"][f"{topic}/0"] for change in place.changes() if isinstance(change, Mark)]
    assert marks == sorted(set(marks))
    assert marks[-1] == 4


def test_tables_grow_with_what_comes(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic)
    produce(kafka, topic, insert(id=1, a=None, b=True), insert(id=2, a=7, b=None))
    place.capture()
    produce(kafka, topic, insert(id=3, a=1.50, b=False), insert(id=4, a=8, b="x"), insert(id=5, a=9, b={"c": [1]}))
    place.capture()
    assert users(place.rows()) == [
        {"id": 1, "b": True, "version": 0},
        {"id": 2, "b": None, "a": 7, "version": 1},
        {"id": 3, "b": False, "a": 1.5, "version": 2},
        {"id": 4, "b": "x", "a": 8.0, "version": 3},
        {"id": 5, "b": '{"c":[1]}', "a": 9.0, "version": 3},
    ]
    assert place.source().tables()[0].column("a").type == pa.float64()
    ends = [change for change in place.changes() if isinstance(change, End)]
    assert [(end.successor.namespace.version, end.statement.place) for end in ends] == [
        (1, f"{topic}/0:1"),
        (2, f"{topic}/0:2"),
        (3, f"{topic}/0:3"),
    ]


def test_rows_of_a_full_load_are_refused(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    """A loaded row that comes behind a captured one would win."""
    table = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int64(), "bigint"),), ("id",))
    writer, value = EntryWriter(EntryForm(Form.UMS), "mysql"), {"_ums_ts_": 7, "_ums_commit_ts_": 7, "_ums_raw_": None}
    for id_, op in ((1, "u"), (-9, "i")):
        row = {"_ums_id_": id_, "_ums_op_": op, "id": 1} | value
        batch = ChangeBatch(table, pa.RecordBatch.from_pylist([row], schema=table.arrow_schema()))
        produce(kafka, topic, *(entry.value for entry in writer.changes(batch, 0)))
    place = Place(tmp_path, kafka, topic, format="ums")
    with pytest.raises(SourceError, match=rf"offset 1 of {topic}/0 is of a full load"):
        place.capture()
    place.config["bad_messages"] = "skip"
    [notice] = place.capture().notices
    assert notice.endswith("; it was left out")
    assert [row["_ums_op_"] for row in place.rows()] == ["u"]


def test_ids_grow_over_all_partitions_and_topics(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic)
    produce(kafka, topic, *(insert(id=number) for number in range(50)))
    place.capture()
    second = f"{topic}2"
    kafka.create_topic(second)
    produce(kafka, second, *(insert("u", id=number) for number in range(50)))
    produce(kafka, topic, *(insert(id=number) for number in range(50, 60)))
    place.config["topics"] = [topic, second]
    place.capture()
    place.config["topics"] = [second]
    produce(kafka, second, insert("u", id=50))
    mark = place.capture().mark
    kafka.delete_topic(second)
    ids = [row["_ums_id_"] for row in place.rows()]
    assert len(ids) == 111
    assert ids == sorted(set(ids))
    assert mark is not None
    assert mark.position == {"offsets": {f"{topic}/0": 60, f"{second}/0": 51}}
    assert mark.id > ids[-1]


def test_a_message_of_another_format(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic)
    produce(kafka, topic, insert(id=1), b"hello", insert(id=2))
    with pytest.raises(
        CorruptError, match=rf"offset 1 of {topic}/0 is not a message of maxwell: it is no JSON"
    ) as raised:
        place.capture()
    assert "bad_messages: skip" in raised.value.fix
    place.config["bad_messages"] = "skip"
    assert place.capture().notices[0].endswith("; it was left out")
    assert [row["id"] for row in place.rows()] == [1, 2]


def test_truncate_clears_a_table_that_is_known(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic, format="canal")
    clear = {"database": "shop", "table": "t", "type": "TRUNCATE", "isDdl": True, "es": 3000, "data": None}
    row = {"database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "es": 2000, "pkNames": ["id"]}
    row |= {"mysqlType": {"id": "bigint(20) unsigned"}, "data": [{"id": "1"}, {"id": "18446744073709551615"}]}
    produce(kafka, topic, clear, row, clear)
    place.capture()
    batch, cleared = (change for change in place.changes() if not isinstance(change, Mark))
    assert isinstance(batch, ChangeBatch)
    assert batch.data.column("id").to_pylist() == [1, 2**64 - 1]
    assert isinstance(cleared, Clear)
    assert cleared.id > batch.id_range[1]


def test_only_wanted_tables_from_now_on(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic, tables=["shop.t*"], start="latest")
    produce(kafka, topic, insert(id=1))
    place.capture()
    produce(kafka, topic, insert("u", id=2), insert("t2", id=3))
    place.capture()
    assert [row["id"] for row in place.rows()] == [3]


def test_what_cannot_be_read_is_said(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    missing = Place(tmp_path, kafka, f"{topic}-not").source()
    assert [finding.message.partition(" topic ")[0] for finding in missing.check(None)] == ["there is no"]
    with pytest.raises(ConfigError, match="there is no topic"):
        next(missing.follow(None))
    missing.close()
    produce(kafka, topic, insert(id=1))
    there = Place(tmp_path, kafka, topic).source()
    beyond = Mark("up1", {"offsets": {f"{topic}/0": 999}}, 1, 1)
    assert list(there.check(None)) == []
    assert list(there.check(Mark("up1", {"offsets": {f"{topic}/0": 1}}, 1, 1))) == []
    [finding] = there.check(beyond)
    assert finding.stops
    assert "headrace skip" in finding.fix
    with pytest.raises(FatalError, match="no longer kept"):
        for _ in there.follow(beyond):
            pass
    there.close()


@pytest.mark.parametrize(("to", "read"), [("earliest", [1, 2, 3]), ("latest", [3])])
def test_a_gap_is_skipped_and_ids_go_on_growing(
    tmp_path: Path, kafka: Kafka, topic: str, to: str, read: list[int]
) -> None:
    """As when the topic was made anew: it ends before the position that capture has."""
    place = Place(tmp_path, kafka, topic)
    source = place.source()
    produce(kafka, topic, insert(id=1), insert(id=2))
    lost = Mark("up1", {"offsets": {f"{topic}/0": 999}}, 99_900_000, 1)
    mark = source.skip(lost, to)
    assert mark.id >= lost.id
    log, writer = place.log(), EntryWriter(EntryForm(), "kafka")
    log.append("up1", 0, [writer.mark(mark, 0)])
    log.close()
    produce(kafka, topic, insert(id=3))
    place.capture()
    rows = place.rows()
    assert [row["id"] for row in rows] == read
    assert rows[0]["_ums_id_"] > lost.id
    newest = place.capture().mark
    assert newest is not None
    with pytest.raises(ConfigError, match="nothing to skip"):
        source.skip(newest, "latest")
    with pytest.raises(ConfigError, match="no place to go on at"):
        source.skip(newest, "binlog.000001:4")
    source.close()


def test_events_are_given_when_nothing_comes(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    source = Place(tmp_path, kafka, topic).source()
    events: list[Event] = []
    for event in source.follow(None):
        events.append(event)
        if event.caught_up:
            break
    source.close()
    assert events[-1].mark == Mark("up1", {"offsets": {f"{topic}/0": 0}}, 0, 0)


@pytest.mark.parametrize("form", ["debezium-schema", "debezium", "canal", "maxwell"])
def test_a_real_log_by_way_of_another_tool(tmp_path: Path, kafka: Kafka, topic: str, form: str) -> None:
    """What `headrace decode` writes, put on a topic and captured, has the same changes of the same rows."""
    written = CliRunner().invoke(decode, ["binlog", str(LOG), "--format", form], catch_exceptions=False).output
    lines = [line.encode() for line in written.split("\n")[:-1]]
    produce(kafka, topic, *lines)
    place = Place(tmp_path, kafka, topic, format=form.removesuffix("-schema"))
    place.capture()
    plain = CliRunner().invoke(decode, ["binlog", str(LOG)], catch_exceptions=False).output
    wanted = [json.loads(line) for line in plain.split("\n")[:-1]]
    rows = place.rows()
    if not form.startswith("debezium"):  # there an update of a key is two changes
        assert [row["_ums_op_"] for row in rows] == [change["op"] for change in wanted]
        ids = [(change["after"] or change["before"]).get("id") for change in wanted]
        assert [row.get("id") for row in rows] == ids
        assert any(ids)
    assert len(rows) == len(lines) >= len(wanted)


def test_rows_as_json(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic, format="json")
    produce(kafka, topic, {"name": "a"}, {"name": "b"}, None, key=b'{"id": 7}')
    place.capture()
    rows = place.rows()
    assert [(row["_ums_op_"], row["id"], row["name"]) for row in rows] == [("u", 7, "a"), ("u", 7, "b"), ("d", 7, None)]
    assert place.source().tables()[0].key == ("id",)


@pytest.mark.parametrize("form", ["ums", "ums-dbus"])
def test_a_log_of_another_headrace(tmp_path: Path, kafka: Kafka, topic: str, form: str) -> None:
    """What one headrace (or DBus) has put on a topic is captured by another as a source, with ids of its own that grow."""
    lines = CliRunner().invoke(decode, ["binlog", str(LOG), "--format", form], catch_exceptions=False).output
    heartbeat = UmsWriter(Dialect.HEADRACE).heartbeat(Namespace("mysql", "db", "small", "alltypes"), 1, 2).value
    produce(kafka, topic, heartbeat, *(line.encode() for line in lines.split("\n")[:-1]))
    place = Place(tmp_path, kafka, topic, format="ums")
    place.capture()
    batches = [change for change in place.changes() if isinstance(change, ChangeBatch)]
    ids = [id_ for batch in batches for id_ in batch.data.column("_ums_id_").to_pylist()]
    assert ids == sorted(set(ids))
    commits = [ts for batch in batches for ts in batch.data.column("_ums_commit_ts_").to_pylist()]
    assert commits == sorted(commits)
    found, wanted = Counter[str](), Counter[str]()
    for batch in batches:
        assert (batch.table.namespace.type, batch.table.namespace.source) == ("kafka", "up1")
        found[batch.table.namespace.all_versions] += len(batch)
    for item in UmsReader().read([line.encode() for line in lines.split("\n")[:-1]]):
        if isinstance(item, UmsRows):
            place_of = item.batch.table.namespace
            wanted[f"kafka.up1.{place_of.schema}.{place_of.table}"] += len(item.batch)
    assert wanted
    assert found == wanted
    produce(kafka, topic, b'{"protocol": 7}')
    with pytest.raises(CorruptError, match="is not a message of ums: byte"):
        place.capture()


def test_a_flow_from_a_topic(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, insert(id=1, name="a"), insert(id=2, name="b"))
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        f"source: {{type: kafka, name: up1, brokers: '{kafka.brokers}', topics: [{topic}], format: maxwell}}\n"
        "log: {type: directory, path: ./log}\nstate: ./state\n"
    )
    assert "source up1: fine" in headrace("check", flow).out
    result = headrace("capture", flow, "--until-idle")
    assert result.code == 0, result.err
    shown = headrace("log", "cat", tmp_path / "log", "up1", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["row"] for line in shown] == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
