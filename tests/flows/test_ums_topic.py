"""What `headrace capture` writes to Kafka, as any consumer sees it, and as headrace reads it again; the formats may change between runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from jsonschema import Draft202012Validator

from headrace.codec.entries import EntryReader
from headrace.codec.ums import key_namespace
from headrace.log.base import Log
from headrace.log.directory import DirectoryLog
from headrace.log.kafka import KafkaLog
from headrace.ums.change import ChangeBatch, Mark
from tests.flows.command import headrace
from tests.servers.kafka import Kafka

SHOP = Path(__file__).parents[2] / "examples" / "shop"
SCHEMA = Path(__file__).parents[2] / "docs" / "formats" / "ums.schema.json"
FLOW = """\
source: {{type: mysql, name: shop1, files: "{files}", tables: ["shop.*"], start: earliest}}
log: {log}
state: ./state
"""


@pytest.fixture
def prefix(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as prefix:
        yield prefix


def capture(directory: Path, log: str, files: str = "binlog.0*") -> None:
    """Captures the recorded shop, from where it stopped before, into a log."""
    directory.mkdir(exist_ok=True)
    flow = directory / "flow.yaml"
    flow.write_text(FLOW.format(files=SHOP / "binlog" / files, log=log))
    result = headrace("capture", flow, "--until-idle")
    assert result.code == 0, result.err


def kafka_log(kafka: Kafka, prefix: str, options: str = "") -> str:
    return f'{{type: kafka, brokers: "{kafka.brokers}", prefix: "{prefix}"{options}}}'


def consumed(kafka: Kafka, topic: str) -> list[Message]:
    """All messages of a topic, as a consumer gets them that knows nothing of headrace."""
    consumer = Consumer(
        {**kafka.client(), "group.id": "somebody", "auto.offset.reset": "error", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


def changes(log: Log) -> tuple[dict[str, pa.Table], Mark]:
    """All rows on a log by namespace, and its newest mark."""
    reader, rows, mark = EntryReader(), dict[str, list[pa.RecordBatch]](), None
    for record in log.read("shop1", 0, log.spans("shop1")[0]):
        found = reader.read(record.entry)
        if isinstance(found, ChangeBatch):
            rows.setdefault(str(found.table.namespace), []).append(found.data)
        elif isinstance(found, Mark):
            mark = found
    log.close()
    assert mark is not None
    return {name: pa.Table.from_batches(batches).combine_chunks() for name, batches in rows.items()}, mark


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, pa.Table], Mark]:
    """What the embedded log gets, as blocks."""
    directory = tmp_path_factory.mktemp("embedded")
    capture(directory, "{type: directory, path: ./log}")
    return changes(DirectoryLog(DirectoryLog.Config(path=directory / "log")))


@pytest.mark.parametrize("form", ["ums", "ums-dbus", "block"])
def test_what_is_captured_comes_back(
    tmp_path: Path, kafka: Kafka, prefix: str, form: str, expected: tuple[dict[str, pa.Table], Mark]
) -> None:
    capture(
        tmp_path,
        kafka_log(kafka, prefix, f", format: {form}, message_rows: 100" if form == "ums-dbus" else f", format: {form}"),
    )
    found, mark = changes(KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix)))
    assert mark == expected[1]
    assert found.keys() == expected[0].keys()
    for namespace, rows in expected[0].items():
        assert found[namespace].schema.equals(rows.schema, check_metadata=True)
        assert found[namespace].equals(rows)


@pytest.mark.parametrize("form", ["ums", "ums-dbus"])
def test_any_consumer_understands_it(
    tmp_path: Path, kafka: Kafka, prefix: str, form: str, expected: tuple[dict[str, pa.Table], Mark]
) -> None:
    capture(tmp_path, kafka_log(kafka, prefix, f", format: {form}" if form == "ums-dbus" else ""))
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    rows: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for message in consumed(kafka, f"{prefix}shop1"):
        parsed: dict[str, Any] = json.loads(message.value() or b"")
        validator.validate(parsed)
        kind, namespace = parsed["protocol"]["type"], parsed["schema"]["namespace"]
        kinds[kind] += 1
        assert key_namespace(message.key()) in (namespace, None if kind.endswith("heartbeat") else namespace)
        if form == "ums-dbus":
            assert (message.key() or b"").startswith(f"{kind}.{namespace}.".encode())
            assert len(parsed["payload"]) <= 5
        if kind == "data_increment_data":
            rows[namespace] += len(parsed["payload"])
    assert rows == {namespace: len(table) for namespace, table in expected[0].items()}
    assert kinds["data_increment_heartbeat"] > 0


def test_the_form_may_change_between_two_runs(
    tmp_path: Path, kafka: Kafka, prefix: str, expected: tuple[dict[str, pa.Table], Mark]
) -> None:
    for number, form in enumerate(("block", "ums-dbus", "ums"), 1):
        capture(tmp_path, kafka_log(kafka, prefix, f", format: {form}"), f"binlog.00000[1-{number}]")
    begins = Counter((message.value() or b"")[:1] for message in consumed(kafka, f"{prefix}shop1"))
    assert begins.keys() == {b"H", b"{"}
    found, mark = changes(KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix)))
    assert mark == expected[1]
    ids = {name: table.column("_ums_id_").to_pylist() for name, table in found.items()}
    assert ids == {name: table.column("_ums_id_").to_pylist() for name, table in expected[0].items()}


def test_messages_are_no_larger_than_the_topic_takes(tmp_path: Path, kafka: Kafka, prefix: str) -> None:
    kafka.create_topic(f"{prefix}shop1", max_message_bytes="20000")
    capture(tmp_path, kafka_log(kafka, prefix), "binlog.000001")
    messages = consumed(kafka, f"{prefix}shop1")
    assert max(len(json.loads(message.value() or b"")["payload"]) for message in messages) > 5
    assert not [message for message in messages if "part" in dict(message.headers() or [])]
