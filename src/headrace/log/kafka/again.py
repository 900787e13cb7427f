"""Messages of ranges that were read before, and what those are told who look at lags."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from headrace.log.kafka.cluster import Cluster
from headrace.log.kafka.config import KafkaConfig
from headrace.log.kafka.reader import no_longer_kept
from headrace.log.kafka.tail import Taken

_BATCH = 2000
_PAUSE_S = 0.1


class Again:
    """Topics whose messages are read a second time, by offset. Belongs to one thread."""

    def __init__(self, config: KafkaConfig) -> None:
        self._cluster = Cluster(config)
        self._timeout_s = config.timeout

    def read(self, ranges: Mapping[str, tuple[int, int]]) -> list[Taken]:
        """By place the first offset and the one behind the last. FatalError when one is not kept any more."""
        found: list[Taken] = []
        left = dict(ranges)
        consumer = self._cluster.consumer()
        try:
            consumer.assign([_at(place, first) for place, (first, _) in ranges.items()])
            give_up_at = time.monotonic() + self._timeout_s
            while left:
                for message in consumer.consume(_BATCH, _PAUSE_S):
                    place = f"{message.topic()}/{message.partition()}"
                    offset, error = message.offset() or 0, message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        self._refuse(error, place, offset)
                        continue
                    give_up_at = time.monotonic() + self._timeout_s
                    stop = ranges[place][1]
                    if error is None and offset < stop:
                        found.append(Taken(place, offset, message.key(), message.value(), message.timestamp()[1]))
                    # Behind the last message there may be markers of transactions, which nobody sees.
                    if offset + (error is None) >= stop:
                        left.pop(place, None)
                if time.monotonic() > give_up_at:
                    raise self._cluster.failure(KafkaError(KafkaError._TIMED_OUT), f"read {', '.join(left)} again")
        finally:
            consumer.close()
        return found

    def tell(self, group: str, offsets: Mapping[str, int]) -> None:
        """Commits offsets for a group that has no members."""
        places = [_at(place, offset) for place, offset in offsets.items()]
        asked = self._cluster.admin()
        try:
            for future in asked.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values():
                future.result(self._timeout_s)
        except KafkaException as error:
            raise self._cluster.failure(error, f"commit offsets for the group {group}") from error

    def close(self) -> None:
        """Idempotent."""
        self._cluster.close()

    def _refuse(self, error: KafkaError, place: str, offset: int) -> None:
        if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            raise no_longer_kept(f"topic and partition {place}", offset)
        if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # we are in no group
            raise self._cluster.failure(error, f"read {place} again")


def _at(place: str, offset: int) -> TopicPartition:
    topic, _, number = place.rpartition("/")
    return TopicPartition(topic, int(number), offset)
