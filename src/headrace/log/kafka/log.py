"""The `Log` on Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from confluent_kafka import KafkaException, TopicPartition

from headrace.errors import ConfigError, FatalError, FencedError, HeadraceError, RetryableError
from headrace.log.base import Entry, EntryForm, Reader, Record, Span
from headrace.log.kafka.cluster import Cluster
from headrace.log.kafka.config import KafkaConfig
from headrace.log.kafka.groups import readers_of
from headrace.log.kafka.reader import Cursors, no_longer_kept
from headrace.log.kafka.topics import Topics
from headrace.log.kafka.writer import Writer, room_for

_LOOK_EVERY_S = 0.05
_PARTITIONS_KNOWN_S = 5.0
_LONGEST_KEY_BYTES = 1024
"""Names of a source, schema and table in characters of four bytes, and what stands around them."""


class KafkaLog:
    """The `Log` on topics of Kafka. The first `append` to a partition makes this one its writer, and fences the one before."""

    Config = KafkaConfig
    takes_parts: ClassVar[bool] = True

    def __init__(self, config: KafkaConfig) -> None:
        self._cluster = Cluster(config)
        self._timeout_s = config.timeout
        self._topics = Topics(self._cluster)
        self._cursors = Cursors(self._cluster)
        self._writers: dict[tuple[str, int], Writer] = {}
        self._in_doubt: set[tuple[str, int]] = set()
        self._writing = threading.Lock()
        self._ends: dict[tuple[str, int], int] = {}
        self._partitions: dict[str, tuple[int, float]] = {}

    def append(self, topic: str, partition: int, entries: Sequence[Entry]) -> Span:
        """See `Log.append`. Never refused because of another writer: that one gets FencedError from now on."""
        return self._append((self._topics.name(topic), partition), {partition: entries})[partition]

    def append_together(self, topic: str, parts: Mapping[int, Sequence[Entry]]) -> Mapping[int, Span]:
        """See `Log.append_together`: one transaction."""
        return self._append((self._topics.name(topic), 0), parts)

    def _append(self, place: tuple[str, int], parts: Mapping[int, Sequence[Entry]]) -> dict[int, Span]:
        with self._writing:
            writer = self._writer(place, max(parts, default=0))
            try:
                return writer.append(parts)
            except FencedError:
                raise
            except HeadraceError as error:
                self._writers.pop(place).close()
                if isinstance(error, RetryableError):
                    self._in_doubt.add(place)
                raise

    def read(self, topic: str, partition: int, span: Span) -> Iterator[Record]:
        """See `Log.read`."""
        name = self._topics.name(topic)
        stop = span.stop
        if stop > self._ends.get((name, partition), 0):
            kept = self.spans(topic).get(partition, Span(0, 0))
            stop = min(stop, kept.stop)
            if span.start < min(kept.start, stop):
                raise no_longer_kept(f"partition {partition} of topic {name}", span.start)
        if span.start >= stop:
            return
        with self._cursors.at(name, partition, span.start) as cursor:
            yield from cursor.records(span.start, stop)

    def spans(self, topic: str) -> Mapping[int, Span]:
        """See `Log.spans`. An append of this process whose fate was open is decided first."""
        name = self._topics.name(topic)
        with self._writing:
            for place in [place for place in self._in_doubt if place[0] == name]:
                self._writer(place)
        return {partition: self._span(name, partition) for partition in range(self._partition_count(name))}

    def wait(self, topic: str, partition: int, offset: int, timeout_s: float) -> bool:
        """See `Log.wait`."""
        name = self._topics.name(topic)
        give_up_at = time.monotonic() + timeout_s
        while self._partition_count(name) <= partition:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(_LOOK_EVERY_S, left_s))
        with self._cursors.at(name, partition, offset) as cursor:
            return cursor.wait(offset, max(0.0, give_up_at - time.monotonic()))

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """See `headrace.log.base.offset_at`."""
        kept = self.spans(topic).get(partition, Span(0, 0))
        name = self._topics.name(topic)
        if not len(kept):
            return kept.stop
        try:
            wanted = TopicPartition(name, partition, max(0, time_ms))
            [found] = self._cluster.asker().offsets_for_times([wanted], timeout=self._timeout_s)
        except KafkaException as error:
            raise self._cluster.failure(error, f"look for a time in topic {name}") from error
        if found.offset < 0:
            return kept.stop
        # What Kafka finds may be a marker, whose time is the broker's: the entry comes behind it.
        for record in self.read(topic, partition, Span(found.offset, kept.stop)):
            if record.entry.time_ms >= time_ms:
                return record.offset
        return kept.stop

    def entry_form(self, topic: str, partition: int) -> EntryForm:
        """See `Shared.entry_form`. Makes the topic where it is missing, to know what it takes."""
        config = self._cluster.config
        settings = self._topics.ready(self._topics.name(topic), partition)
        most_bytes = room_for(settings.max_message_bytes, _LONGEST_KEY_BYTES)
        return EntryForm(config.format, config.zone, config.message_rows, config.message_bytes, most_bytes)

    def close(self) -> None:
        """See `Log.close`."""
        with self._writing:
            while self._writers:
                self._writers.popitem()[1].close()
        self._cursors.close()
        self._cluster.close()

    def topics(self) -> list[str]:
        """See `Inspectable.topics`."""
        return self._topics.names()

    def statistics(self, topic: str, partition: int) -> dict[str, int | str]:
        """See `Inspectable.statistics`."""
        settings = self._topics.settings(self._topics.name(topic))
        return {
            "replicas": settings.replicas,
            "min_insync_replicas": settings.min_insync_replicas,
            "max_message_bytes": settings.max_message_bytes,
            "retention_ms": settings.retention_ms,
            "retention_bytes": settings.retention_bytes,
        }

    def readers(self, topic: str) -> list[Reader]:
        """See `Committed.readers`: consumer groups."""
        return list(readers_of(self._cluster, self._topics.name(topic)))

    def _writer(self, place: tuple[str, int], most: int = 0) -> Writer:
        """The writer that is named by a partition; `most`: the largest partition that it is to write."""
        writer = self._writers.get(place)
        name, partition = place
        if writer is None or most >= self._partitions.get(name, (0, 0.0))[0]:
            if partition < 0:
                raise ConfigError(f"partition {partition} cannot be", fix="partitions are numbered from 0")
            if place in self._ends and not self._topics.partitions(name):
                raise self._cluster.missing(f"topic {name} is not there any more")
            settings = self._topics.ready(name, max(partition, most))
            self._partitions[name] = (settings.partitions, time.monotonic() + _PARTITIONS_KNOWN_S)
            if writer is not None:  # it knows the topic as it was
                self._writers.pop(place).close()
            writer = Writer(self._cluster, name, partition, settings.max_message_bytes)
            self._span(name, partition)
            self._writers[place] = writer
            self._in_doubt.discard(place)
        return writer

    def _span(self, name: str, partition: int) -> Span:
        place = TopicPartition(name, partition)
        try:
            start, stop = self._cluster.asker().get_watermark_offsets(place, timeout=self._timeout_s, cached=False)
        except KafkaException as error:
            raise self._cluster.failure(error, f"find the end of topic {name}") from error
        if stop < self._ends.get((name, partition), 0):
            raise FatalError(
                f"topic {name} was deleted and made anew while it was in use: it ends at offset {stop}",
                fix="bring the topic back; or give the source a new name and the targets a new place, to capture everything anew",
            )
        self._cluster.found()
        self._ends[name, partition] = stop
        return Span(start, stop)

    def _partition_count(self, name: str) -> int:
        """How many partitions a topic has, looked up again from time to time; 0 when it has never been there."""
        count, until = self._partitions.get(name, (0, 0.0))
        now = time.monotonic()
        if count == 0 or now >= until:
            before, count = count, self._topics.partitions(name)
            if before and not count:
                raise self._cluster.missing(f"topic {name} is not there any more")
            self._partitions[name] = (count, now + _PARTITIONS_KNOWN_S)
        return count
