"""Sinks that cannot be scanned, made scannable for the conformance suite: what has arrived is read by somebody who does as their contract
tells him to, and keeps of each key the change with the largest `_ums_id_` (MemorySink)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import ClassVar
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from headrace.codec.ums import UmsReader, UmsRows
from headrace.sinks.base import Capabilities, Position, Sink
from headrace.sinks.callable import CallableSink
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.memory import MemorySink
from headrace.sinks.webhook import WebhookSink
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import TableSchema
from tests.servers.webhook import Webhook


def reduced(changes: Iterable[ChangeBatch | Clear], table: TableSchema) -> Iterator[pa.RecordBatch]:
    """The live rows of a table after changes in any order."""
    with closing(MemorySink(MemorySink.Config(type="memory", name=uuid4().hex), "reader")) as reader:
        reader.prepare(table)
        for change in changes:
            reader.prepare(change.table)
            reader.clear(change) if isinstance(change, Clear) else reader.write(change)
        reader.commit(Position("topic", 0, 1, 1, 1))
        yield from reader.scan(table)


def of_ums(messages: Iterable[bytes]) -> Iterator[ChangeBatch | Clear]:
    """What messages say."""
    reader = UmsReader()
    for message in messages:
        for item in reader.read([message]):
            if isinstance(item, UmsRows):
                yield item.batch
            elif isinstance(item, Clear):
                yield item


def records(
    client: dict[str, str], topic: str, isolation: str = "read_committed"
) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    """Key, value and partition of all records of a topic."""
    consumer = Consumer(
        {
            **client,
            "group.id": "test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = set(partitions)
        while left:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is None:
                yield message.key(), message.value(), message.partition() or 0
            else:
                left.discard(message.partition() or 0)
    finally:
        consumer.close()


class ScannedKafka(KafkaSink):
    """A consumer of UMS."""

    capabilities: ClassVar[Capabilities] = replace(KafkaSink.capabilities, scans=True)

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        client = {"bootstrap.servers": self._config.brokers, "log_level": "0"}
        found = records(client, self._topic(table.namespace))
        yield from reduced(of_ums(value for _, value, _ in found if value is not None), table)


class ScannedCallable(CallableSink):
    """A function that keeps what it is told."""

    capabilities: ClassVar[Capabilities] = replace(CallableSink.capabilities, scans=True)
    told: ClassVar[list[ChangeBatch | Clear]] = []

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        yield from reduced(_of(table, self.told), table)


class ScannedWebhook(WebhookSink):
    """A receiver of UMS."""

    capabilities: ClassVar[Capabilities] = replace(WebhookSink.capabilities, scans=True)
    servers: ClassVar[dict[str, Webhook]] = {}

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        taken = self.servers[self._config.url].taken
        yield from reduced(_of(table, of_ums(request.body for request in taken)), table)


def _of(table: TableSchema, changes: Iterable[ChangeBatch | Clear]) -> Iterator[ChangeBatch | Clear]:
    """Those of all versions of a table."""
    family = table.namespace.all_versions
    return (change for change in changes if change.table.namespace.all_versions == family)


SCANNED: dict[str, type[Sink]] = {"callable": ScannedCallable, "kafka": ScannedKafka, "webhook": ScannedWebhook}
