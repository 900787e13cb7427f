"""Topics that others write, followed as they are: messages by their offsets, from all partitions in whatever order they come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from headrace.errors import ConfigError
from headrace.log.base import Span
from headrace.log.kafka.cluster import Cluster
from headrace.log.kafka.config import KafkaConfig
from headrace.log.kafka.reader import no_longer_kept
from headrace.log.kafka.topics import Topics

Headers: TypeAlias = "dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]"
_BATCH = 2000
LOOK_EVERY_S = 5.0
"""How often partitions are looked for that were added."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A message. `place`: ``topic/partition``; `value` is None in a tombstone."""

    place: str
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int
    headers: Headers | None = None
    """When they are asked for."""

    @property
    def topic(self) -> str:
        return self.place.rpartition("/")[0]


class Tail:
    """Follows topics that are there, with all the partitions they have or get. Belongs to one thread."""

    def __init__(self, config: KafkaConfig, topics: Sequence[str], *, with_headers: bool = False) -> None:
        self._with_headers = with_headers
        self._read_to: dict[str, int] = {}
        self._cluster = Cluster(config)
        self._timeout_s = config.timeout
        self._topics = topics
        self._consumer: Consumer | None = None
        self._behind: set[str] = set()
        self._known: set[str] = set()
        self._look_at = 0.0

    def kept(self) -> dict[str, Span]:
        """By place what can be read now; ConfigError when a topic is not there."""
        return {f"{place.topic}/{place.partition}": self._span(place) for place in self._places()}

    def begin(self, offsets: Mapping[str, int], *, latest: bool) -> dict[str, int]:
        """Goes to the next offsets by place, elsewhere to the begin; says where it is. With `latest` a topic none of whose places is
        in `offsets` is begun at its end: a partition that was added to a topic has nothing that is older."""
        known = {_partition(name, offset).topic for name, offset in offsets.items()}
        begun = {}
        for name, span in self.kept().items():
            is_new_topic = latest and _partition(name, 0).topic not in known
            begun[name] = offsets.get(name, span.stop if is_new_topic else span.start)
        self._consumer = self._cluster.consumer()
        self._consumer.assign([_partition(name, offset) for name, offset in begun.items()])
        self._behind = set(begun)
        self._known = set(begun)
        self._read_to = dict(begun)
        self._look_at = time.monotonic() + LOOK_EVERY_S
        return begun

    def grown(self) -> dict[str, int]:
        """Partitions that were added, with the offsets at which they are begun; looks from time to time only."""
        assert self._consumer is not None
        now = time.monotonic()
        if now < self._look_at:
            return {}
        self._look_at = now + LOOK_EVERY_S
        there = self._counts().items()  # a topic that is not there just now is missed by who reads it
        places = [TopicPartition(topic, number) for topic, count in there for number in range(count)]
        added = [place for place in places if f"{place.topic}/{place.partition}" not in self._known]
        begun = {f"{place.topic}/{place.partition}": self._span(place).start for place in added}
        self._consumer.incremental_assign([_partition(name, offset) for name, offset in begun.items()])
        self._behind |= begun.keys()
        self._known |= begun.keys()
        return begun

    def take(self, timeout_s: float) -> list[Taken]:
        """Messages that are there, after waiting at most so long for the first. Retention has passed by: FatalError."""
        assert self._consumer is not None
        found = self._consumer.consume(_BATCH, 0)
        if not found:
            message = self._consumer.poll(timeout_s)
            found = [] if message is None else [message]
        return [taken for message in found if (taken := self._taken(message)) is not None]

    @property
    def caught_up(self) -> bool:
        """Whether all partitions have been read to their ends, as they were just now."""
        return not self._behind

    def ends(self) -> dict[str, int]:
        """By place the end that writers see now, of partitions as well that are not read yet."""
        places = self._places()
        admin = self._cluster.admin()  # a future does not keep its client alive
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        try:
            asked = admin.list_offsets(dict.fromkeys(places, latest), request_timeout=self._timeout_s)
            return {f"{place.topic}/{place.partition}": found.result().offset for place, found in asked.items()}
        except KafkaException as error:
            raise self._cluster.failure(error, f"find the ends of {', '.join(self._topics)}") from error

    def has_read(self, ends: Mapping[str, int]) -> bool:
        """Whether all before these ends was taken."""
        return all(self._read_to.get(name, 0) >= end for name, end in ends.items())

    def close(self) -> None:
        """Ends the connections. Idempotent."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._cluster.close()

    def _taken(self, message: Message) -> Taken | None:
        name, error = f"{message.topic()}/{message.partition()}", message.error()
        offset = message.offset() or 0
        if error is None:
            self._behind.add(name)
            self._read_to[name] = offset + 1
            headers = message.headers() if self._with_headers else None
            return Taken(name, offset, message.key(), message.value(), message.timestamp()[1], headers)
        if error.code() == KafkaError._PARTITION_EOF:
            self._behind.discard(name)
            self._read_to[name] = offset  # behind records that nobody is shown, too
        elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            raise no_longer_kept(f"topic and partition {name}", message.offset() or 0)
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # we are in no group
            raise self._cluster.failure(error, f"read {name}")
        return None

    def _places(self) -> list[TopicPartition]:
        counts = self._counts()
        if missing := [topic for topic, count in counts.items() if count == 0]:
            raise ConfigError(
                f"there is no topic {', '.join(missing)}", fix="correct `topics` of the source, or make it"
            )
        return [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]

    def _counts(self) -> dict[str, int]:
        topics = Topics(self._cluster)
        return {topic: topics.partitions(topic) for topic in self._topics}

    def _span(self, place: TopicPartition) -> Span:
        try:
            return Span(*self._cluster.asker().get_watermark_offsets(place, timeout=self._timeout_s, cached=False))
        except KafkaException as error:
            raise self._cluster.failure(error, f"find the end of topic {place.topic}") from error


def _partition(name: str, offset: int) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number), offset)
