"""The writer of one partition: a transaction per append, fenced by whoever opens the partition next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from headrace.errors import ConfigError, FatalError, RetryableError
from headrace.log.base import Entry, Span
from headrace.log.kafka.cluster import Cluster

_HEADERS_BYTES = 1024
"""Room for what a record and its batch have besides key and value."""
Headers = list[tuple[str, str | bytes | None]]
Acknowledged = Callable[[KafkaError | None, Message], None]


class PartitionWriter:
    """Opening one fences every earlier writer of the partition, and ends what it left open. After an error it is of no use."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, max_message_bytes: int) -> None:
        self._cluster = cluster
        self._place = TopicPartition(topic, partition)
        self._name = f"partition {partition} of topic {topic}"
        self._max_message_bytes = max_message_bytes
        self._timeout_s = cluster.config.timeout
        self._producer = cluster.producer(f"headrace-{topic}-{partition}", max_message_bytes)
        try:
            self._producer.init_transactions(self._timeout_s)
        except KafkaException as error:
            raise cluster.failure(error, f"become the writer of {self._name}") from error
        self._stop = self._end()

    def append(self, entries: Sequence[Entry]) -> Span:
        """See `Log.append`."""
        if not entries:
            return Span(self._stop, self._stop)
        try:
            self._producer.begin_transaction()
            span = self._send(entries)
            self._producer.commit_transaction(self._timeout_s)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        self._wait_for_marker(span.stop)
        return span

    def close(self) -> None:
        """Drops what has not been sent; what is committed stays. Idempotent."""
        self._producer.purge()
        self._producer.flush(0)

    def _send(self, entries: Sequence[Entry]) -> Span:
        """Sends all and has it acknowledged; it is not committed then."""
        outcomes: list[tuple[KafkaError | None, int]] = []

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            outcomes.append((error, message.offset() or 0))

        records = [record for entry in entries for record in self._records(entry)]
        for number, (entry, value, headers) in enumerate(records):
            is_last = number == len(records) - 1
            # The records of an append follow one another in the partition: its ends are all that need be told.
            callback = acknowledged if is_last or number == 0 else None
            self._produce(entry, value, [*headers, ("end", b"")] if is_last else headers, callback)
        self._producer.flush(self._timeout_s * 2)
        if not outcomes:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if error := next((error for error, _ in outcomes if error is not None), None):
            if error.code() in {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}:
                self._producer.commit_transaction(self._timeout_s)  # raises why they were given up
            raise KafkaException(error)
        start, stop = outcomes[0][1], outcomes[-1][1] + 1
        if start < self._stop:
            raise FatalError(
                f"{self._name} has come to offset {start}, and was at {self._stop} before: the topic was deleted and made anew",
                fix="bring the topic back; or delete it and the source's part of `state`, and load the targets anew",
            )
        return Span(start, stop)

    def _produce(self, entry: Entry, value: bytes, headers: Headers, callback: Acknowledged | None) -> None:
        while True:
            try:
                self._producer.produce(
                    self._place.topic,
                    value=value,
                    key=entry.key,
                    partition=self._place.partition,
                    timestamp=max(1, entry.time_ms),
                    headers=headers,
                    on_delivery=callback,
                )
            except BufferError:  # the queue is full: give it time to be sent
                self._producer.poll(0.05)
            else:
                return

    def _records(self, entry: Entry) -> Iterator[tuple[Entry, bytes, Headers]]:
        """The records that hold an entry: one, or as many as its value needs."""
        headers: Headers = [] if entry.time_ms > 0 else [("time", b"%d" % entry.time_ms)]
        room = self._max_message_bytes - _HEADERS_BYTES - len(entry.key)
        if room <= 0:
            raise ConfigError(
                f"a key of {len(entry.key)} bytes does not fit into a record of {self._name}",
                fix="raise the topic's max.message.bytes",
            )
        if len(entry.value) <= room:
            yield entry, entry.value, headers
            return
        value = memoryview(entry.value)
        count = -(-len(value) // room)
        for number in range(count):
            part = ("part", b"%d/%d" % (number + 1, count))
            yield entry, bytes(value[number * room : (number + 1) * room]), [*headers, part]

    def _wait_for_marker(self, stop: int) -> None:
        give_up_at = time.monotonic() + self._timeout_s
        while (end := self._end()) < stop:
            if time.monotonic() > give_up_at:
                raise RetryableError(
                    f"{self._name} was written to, but what was written cannot be read yet",
                    fix="see the broker's log; it must end another program's transaction, or its own",
                )
        self._stop = end

    def _end(self) -> int:
        try:
            return self._cluster.asker().get_watermark_offsets(self._place, timeout=self._timeout_s, cached=False)[1]
        except KafkaException as error:
            raise self._cluster.failure(error, f"find the end of {self._name}") from error

    def _failure(self, error: KafkaError) -> Exception:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return RetryableError(
                f"{self._name} takes smaller records than a moment ago",
                fix="its max.message.bytes was lowered: entries are cut to the new size at the next attempt",
            )
        if error.code() == KafkaError.INVALID_TIMESTAMP:
            return ConfigError(
                f"{self._name} refuses the time of an entry: {error.str()}",
                fix="set the clocks of this host and of the brokers, or the topic's message.timestamp.after.max.ms",
            )
        return self._cluster.failure(error, f"append to {self._name}")
