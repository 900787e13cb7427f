"""The Kafka sink: a flow's changes on topics of its own, as other tools read them; each change once.

::

    shop.orders            a topic per table (`topic`); records as `format` says (kafka_records.py, docs/formats)
        key {"id": 10}     the table's key, so that a key's changes are in one partition, in their order; UMS has keys of its own
                           with a Watermark Server each record has the flow's low watermark in a header (ums/printed.py)
    headrace-positions     key ["flow", "topic", partition], value the position (and with `watermark_every` the topics written so far); compacted

Crash story. Records and the position behind them are one transaction, so a consumer that reads what is committed sees each change once,
and transactions of the source whole (of each partition of its log). The transactional id is that of the follower: who opens it anew
ends what its predecessor left open, and that one gets FencedError. Only then is the position read, up to what was the topic's end by then:
behind a transaction of somebody else that is still open, too. A sink that has not been asked for a position has an id of its own.

A topic is a log: a change that comes late, of a full load that is made again for instance, stands behind newer ones of its key, and
consumers that want the newest go by `_ums_id_`. A compacted topic keeps the record that came last.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from string import Formatter
from typing import Annotated, ClassVar, Literal, Self, TypeVar
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic
from pydantic import Field, field_validator, model_validator

from headrace.crash import crash_point
from headrace.errors import ConfigError, DataError, Finding, RetryableError
from headrace.log.kafka.cluster import Cluster
from headrace.log.kafka.config import KafkaConfig, Sasl
from headrace.model import Component, Duration
from headrace.sinks.base import Capabilities, Places, Position, Sink, refused
from headrace.sinks.kafka_records import Format, Record, Records
from headrace.sinks.kafka_registry import Registry, RegistryAt
from headrace.tls import Tls
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.printed import ALONE, printed
from headrace.ums.schema import Namespace, TableSchema
from headrace.ums.system_columns import USUAL, SystemColumns

T = TypeVar("T")
_LONGEST_NAME = 249
_TELL_APART = "tell them apart in `topic`, for instance with '{source}.{schema}.{table}'"
_ABORT_S = 2.0
_BY_KEY = -1
_READ_TOGETHER = 1000
_SERVED_EVERY = 1000
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")
_POSITIONS_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}


class KafkaSinkConfig(Component):
    """Delivers onto topics of Apache Kafka, for other tools."""

    type: Literal["kafka"]
    brokers: Annotated[str, Field(pattern=r"^[^\s,]+:\d+(,[^\s,]+:\d+)*$")]
    """Some brokers to ask for the others: ``host:port,host:port``."""
    topic: str = "{source}.{schema}.{table}"
    """The topic of a table. May use {type}, {source}, {schema}, {table}; what no topic can have in its name becomes its number, ``_e4_``."""
    format: Format = Format.UMS
    """How changes are written: `ums`, `ums-dbus` (as DBus writes it for Wormhole), `debezium`, `debezium-schema` (with the schema of each
    message), `canal`, `maxwell`, `json`, an object per row as it is now, or `avro`, the same with its schema on a registry."""
    registry: RegistryAt | None = None
    """The schema registry of `avro`, with Confluent's REST API: ``http://registry:8081``, or ``{url: …, user: …, password: …, tls: …}``."""
    zone: str = "UTC"
    """Time zone in which `ums-dbus` writes instants."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a delete is a message that says so. hard: behind it comes a tombstone, a record of the key without value, so that a compacted
    topic forgets the row; with `json` and `avro` it stands alone. UMS and canal have none."""
    system_columns: SystemColumns = USUAL
    """What `format: json` and `avro` say beside the columns; set by the flow's `system_columns`."""
    partitions: Annotated[int, Field(ge=1)] = 1
    """Of topics that are made here."""
    replicas: Annotated[int, Field(ge=1)] | None = None
    """Copies of topics that are made here; the cluster's own default when left out."""
    topic_settings: dict[str, str] = Field(default_factory=dict)
    """Settings of topics that are made here, for instance ``{cleanup.policy: compact}``."""
    positions: str = "headrace-positions"
    """The topic in which flows keep how far they are."""
    message_bytes: Annotated[int, Field(ge=4096)] = 1_000_000
    """The largest record that the topics take (their `max.message.bytes`). A row that is larger is refused."""
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "lz4"
    """How records are compressed on their way and on the brokers' disks."""
    watermark_every: Annotated[Duration, Field(gt=0)] | None = None
    """When nothing was written to a topic for so long, its low watermark is sent alone, in a record without value whose key is
    `headrace-watermark`; never when left out."""
    tls: Tls | None = None
    """Encrypts the connection."""
    sasl: Sasl | None = None
    """Logs in."""
    timeout: Annotated[Duration, Field(ge=1)] = 10.0
    """How long brokers may take for an answer before that counts as an outage."""

    @field_validator("topic")
    @classmethod
    def _naming_pattern(cls, topic: str) -> str:
        try:
            names = {name for _, name, _, _ in Formatter().parse(topic) if name is not None}
        except ValueError:
            names = {"{"}
        if names - {"type", "source", "schema", "table"} or not topic:
            raise ValueError(
                f"'{topic}' is no naming pattern; use {{type}}, {{source}}, {{schema}}, {{table}} and plain text"
            )
        return topic

    @model_validator(mode="after")
    def _format_has_it(self) -> Self:
        if self.delete == "hard" and not self.format.has_tombstones:
            raise ValueError(
                f"`format: {self.format}` has no tombstones: leave `delete` out, or use debezium, maxwell or json"
            )
        if self.system_columns != USUAL and self.format not in (Format.JSON, Format.AVRO):
            raise ValueError("only `format: json` and `avro` have system columns: leave `system_columns` out")
        if (self.registry is not None) != (self.format is Format.AVRO):
            raise ValueError("`format: avro` needs a `registry`, and only that has one")
        if self.zone != "UTC" and self.format is not Format.UMS_DBUS:
            raise ValueError("only `format: ums-dbus` writes instants in a zone: leave `zone` out")
        return self

    def cluster(self) -> Cluster:
        """The way to it."""
        return Cluster(
            KafkaConfig(
                brokers=self.brokers, tls=self.tls, sasl=self.sasl, timeout=self.timeout, compression=self.compression
            )
        )


class KafkaSink(Sink):
    """One transactional producer of one cluster."""

    Config = KafkaSinkConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=False, remembers_position=True, scans=False)

    def __init__(self, config: KafkaSinkConfig, flow: str) -> None:
        self._config = config
        self._flow = flow
        self._cluster = config.cluster()
        self._registry = None if config.registry is None else Registry(config.registry)
        self._records = Records(
            config.format,
            config.zone,
            config.message_bytes,
            tombstones=config.delete == "hard",
            registry=self._registry,
            system=config.system_columns,
        )
        self._id = f"headrace-{flow}-{uuid4()}"
        self._producer: Producer | None = None
        self._is_open = False
        self._known: set[str] = set()
        self._places = Places(_TELL_APART)
        self.prints_every_s = config.watermark_every
        self._printed_at: dict[str, float] = {}
        """When something was written to a topic of changes, by a steady clock."""
        self._refused: DataError | None = None
        self._failed: KafkaError | None = None

    # --- the contract

    def prepare(self, table: TableSchema) -> None:
        for check in self._checks(table, self._places):
            check()
        topic = self._topic(table.namespace)
        self._records.prepare(table, topic)
        self._make(topic, self._config.partitions, self._config.topic_settings)
        self._printed_at.setdefault(topic, time.monotonic())

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        places = Places(_TELL_APART)
        for table in tables:
            if findings := list(refused(*self._checks(table, places))):
                yield from findings
            else:
                yield from refused(partial(self._records.rehearse, table, self._topic(table.namespace)))

    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], object]]:
        topic = self._topic(table.namespace)
        checks: list[Callable[[], object]] = [
            partial(self._records.check, table),
            partial(_refuse_topic, topic),
            partial(self._refuse_compaction, table),
        ]
        if "{table}" in self._config.topic:
            checks.append(partial(places.take, topic, table, f"the topic {topic}"))
        return checks

    def _refuse_compaction(self, table: TableSchema) -> None:
        policy = self._config.topic_settings.get("cleanup.policy", "")
        if "compact" in policy and not table.key and self._config.format.has_tombstones:
            raise ConfigError(
                f"the table {table.namespace.all_versions} has no key, and a compacted topic takes no record without one",
                fix="name its key columns in the flow, `key: {schema.table: [column, …]}`, or leave it out with `exclude`",
            )

    def write(self, batch: ChangeBatch) -> None:
        self._send(self._topic(batch.table.namespace), self._records.of(batch))

    def clear(self, clear: Clear) -> None:
        self._send(self._topic(clear.table.namespace), self._records.of_clear(clear))

    def flush(self) -> None:
        if self._producer is not None:
            with self._errors("write to topics"):
                self._producer.flush(self._config.timeout * 2)
            self._must_be_taken()

    def commit(self, position: Position) -> None:
        self._print_alone()
        self._make(self._config.positions, 1, _POSITIONS_CONFIG)
        with self._errors("write the position of the flow"):
            self._transaction().produce(
                self._config.positions,
                json.dumps(asdict(position) | self._topics_written()),
                _position_key(self._flow, position.topic, position.partition),
                on_delivery=self._not_delivered,
            )
        self.flush()
        crash_point("kafka.sent")
        with self._errors("commit"):
            self._transaction().commit_transaction(self._config.timeout)
        self._is_open = False
        crash_point("kafka.committed")

    def check(self) -> None:
        with self._errors("list the topics"):
            self._cluster.asker().list_topics(timeout=self._config.timeout)
        if self._registry is not None:
            self._registry.check()

    def position(self, topic: str, partition: int) -> Position | None:
        self._id = f"headrace-{self._flow}-{topic}-{partition}"
        self._opened()
        found = self._newest(_position_key(self._flow, topic, partition))
        if found is None:
            return None
        told = json.loads(found)
        for each in told.pop("topics", []):
            self._printed_at.setdefault(each, time.monotonic())
        return Position(**told)

    def close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.purge()
            # So that no consumer waits for its end; brokers that are away, or have another writer, end it themselves.
            with suppress(KafkaException):
                producer.abort_transaction(_ABORT_S) if self._is_open else producer.flush(0)
            self._is_open = False
        self._refused = self._failed = None
        self._cluster.close()
        if self._registry is not None:
            self._registry.close()

    # --- records

    def _print_alone(self) -> None:
        """The low watermark by itself, on topics to which nothing has been written for long."""
        every_s = self._config.watermark_every
        if every_s is None or self.low_watermark is None:
            return
        due = [topic for topic, at in self._printed_at.items() if time.monotonic() - at >= every_s]
        for topic in due:
            self._make(topic, self._config.partitions, self._config.topic_settings)
            self._send(topic, iter([Record(ALONE, None)]))

    def _topics_written(self) -> dict[str, list[str]]:
        """What stands beside a position where watermarks are sent alone: the topics that are to have them, after a restart too."""
        return {} if self._config.watermark_every is None else {"topics": sorted(self._printed_at)}

    def _send(self, topic: str, records: Iterator[Record]) -> None:
        self._printed_at[topic] = time.monotonic()
        with self._errors(f"write to topic {topic}"):
            for number, record in enumerate(records):
                self._produce(topic, record)
                if number % _SERVED_EVERY == 0:
                    self._transaction().poll(0)
        self._must_be_taken()

    def _produce(self, topic: str, record: Record) -> None:
        producer = self._transaction()
        # Without a key there is no order but that of one partition.
        partition = _BY_KEY if record.key is not None else 0
        headers = printed(self.low_watermark)
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    on_delivery=self._not_delivered,
                    headers=headers,
                )
            except BufferError:  # the queue is full: give it time to be sent
                producer.poll(0.05)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                self._refuse(len(record.value or b""))
                return
            else:
                return

    def _not_delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is not None, "only errors are told"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._refuse(len(message))
        self._failed = self._failed or error

    def _refuse(self, size_bytes: int) -> None:
        self._refused = DataError(
            f"a record of {size_bytes:,} bytes is larger than the topic takes, or than `message_bytes` ({self._config.message_bytes:,})",
            fix="raise max.message.bytes of the topic and `message_bytes` of the flow's target, or drop the column",
        )

    def _must_be_taken(self) -> None:
        if self._refused is not None:
            raise self._refused
        if self._failed is not None:
            raise self._cluster.failure(self._failed, "write to topics")

    # --- topics

    def _topic(self, space: Namespace) -> str:
        name = self._config.topic.format(type=space.type, source=space.source, schema=space.schema, table=space.table)
        return _UNFIT.sub(lambda sign: f"_{ord(sign[0]):x}_", name)

    def _make(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        if topic in self._known:
            return
        _refuse_topic(topic)
        with self._errors(f"look up topic {topic}"):
            found = self._cluster.asker().list_topics(topic, timeout=self._config.timeout).topics[topic]
            if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._create(topic, partitions, settings)
            elif found.error is not None:
                raise KafkaException(found.error)
        self._known.add(topic)

    def _create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        admin = self._cluster.admin()
        new = NewTopic(topic, partitions, self._config.replicas or -1, config=settings)
        try:
            _result(admin.create_topics([new])[topic], self._config.timeout)
        except KafkaException as error:
            code = error.args[0].code()
            if code in {KafkaError.INVALID_CONFIG, KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.POLICY_VIOLATION}:
                raise ConfigError(
                    f"the cluster refuses to make topic {topic}: {error.args[0].str()}",
                    fix="correct `topic_settings` and `replicas` of the flow's target, or make it by hand",
                ) from error
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    # --- the position

    def _newest(self, key: bytes) -> bytes | None:
        """The value of the newest record of a key in the topic of positions."""
        self._make(self._config.positions, 1, _POSITIONS_CONFIG)
        place = TopicPartition(self._config.positions, 0)
        found: bytes | None = None
        with self._errors(f"read topic {self._config.positions}"):
            # The end that writers see: that of readers may stand before a transaction of somebody else.
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            admin = self._cluster.admin()  # a future does not keep its client alive
            end = _result(admin.list_offsets({place: latest})[place], self._config.timeout).offset
            consumer = self._cluster.consumer()
            try:
                at = place.offset = consumer.get_watermark_offsets(place, self._config.timeout)[0]
                consumer.assign([place])
                give_up_at = time.monotonic() + self._config.timeout
                while at < end:
                    for message in consumer.consume(_READ_TOGETHER, 0.02):
                        at = message.offset() or 0
                        if (error := message.error()) is None:
                            at += 1
                            found = message.value() if message.key() == key else found
                            give_up_at = time.monotonic() + self._config.timeout
                        elif error.code() != KafkaError._PARTITION_EOF:
                            raise KafkaException(error)
                    if time.monotonic() > give_up_at:
                        raise RetryableError(
                            f"the topic {self._config.positions} could not be read to its end",
                            fix="another writer's transaction is open there: see the brokers' logs",
                        )
            finally:
                consumer.close()
        return found

    # --- the producer

    def _opened(self) -> Producer:
        if self._producer is None:
            producer = self._cluster.producer(self._id, self._config.message_bytes, only_errors=True)
            with self._errors("become the writer of the flow"):
                # Without a connection the client waits half a second before it asks who coordinates its transactions.
                producer.list_topics(self._config.positions, timeout=self._config.timeout)
                producer.init_transactions(self._config.timeout)
            self._producer = producer
        return self._producer

    def _transaction(self) -> Producer:
        producer = self._opened()
        if not self._is_open:
            producer.begin_transaction()
            self._is_open = True
        return producer

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            try:
                yield
            except SystemError:
                # The client loses a fatal error that is raised while callbacks are served. Asked for anything else, it says it again.
                if self._producer is not None:
                    self._producer.begin_transaction()
                raise
        except KafkaException as error:
            raise self._cluster.failure(error, doing) from error


def _result(future: Future[T], timeout_s: float) -> T:
    try:
        return future.result(timeout_s)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error


def _position_key(flow: str, topic: str, partition: int) -> bytes:
    return json.dumps([flow, topic, partition]).encode()


def _refuse_topic(topic: str) -> None:
    if len(topic) > _LONGEST_NAME or topic in {".", ".."}:
        raise ConfigError(f"{topic[:80]} cannot be the name of a topic", fix="choose another `topic`")
