"""Writers of topics: a transaction per append, fenced by whoever opens the partition next.

Two transactional ids take turns. When an append can be read, the coordinator has still to note that its transaction is complete, and sends
away who begins the next one under the same id: librdkafka comes again after 20 ms. Under the other id it begins at once, and by its end the
first one is complete. An append begins when the one before it can be read, so their order is that of a single id; whoever opens
takes both ids over, so a writer before it can append under neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from headrace.errors import ConfigError, FatalError, RetryableError
from headrace.log.base import Entry, Span
from headrace.log.kafka.cluster import Cluster

_HEADERS_BYTES = 1024
"""Room for what a record and its batch have besides key and value."""
Headers = list[tuple[str, str | bytes | None]]
Acknowledged = Callable[[KafkaError | None, Message], None]
_Ready = tuple[Entry, bytes, Headers | None]
"""An entry, the value of one of its records, and that one's headers."""


class Writer:
    """Writes a partition of a topic, and with it others in the same transactions. Opening one fences every earlier writer of the
    partition that it is named by, and ends what that one left open. After an error it is of no use."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, max_message_bytes: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._max_message_bytes = max_message_bytes
        self._timeout_s = cluster.config.timeout
        self._stops: dict[int, int] = {}
        ids = [f"headrace-{topic}-{partition}{turn}" for turn in ("", ".b")]
        self._producers = [cluster.producer(transactional_id, max_message_bytes) for transactional_id in ids]
        try:
            for producer in self._producers:
                producer.init_transactions(self._timeout_s)
        except KafkaException as error:
            raise cluster.failure(error, f"become the writer of {self._name(partition)}") from error

    def append(self, parts: Mapping[int, Sequence[Entry]]) -> dict[int, Span]:
        """Appends to partitions as one transaction; see `Log.append_together`."""
        for partition in parts.keys() - self._stops.keys():
            self._stops[partition] = self._end(partition)
        filled = {partition: entries for partition, entries in sorted(parts.items()) if entries}
        spans = {partition: Span(self._stops[partition], self._stops[partition]) for partition in parts}
        if filled:
            try:
                self._producers.reverse()
                self._producer.begin_transaction()
                spans |= self._send(filled)
                self._producer.commit_transaction(self._timeout_s)
            except KafkaException as error:
                raise self._failure(error.args[0], ", ".join(map(self._name, filled))) from error
            for partition in filled:
                self._wait_for_marker(partition, spans[partition].stop)
        return spans

    def close(self) -> None:
        """Drops what has not been sent; what is committed stays. Idempotent."""
        for producer in self._producers:
            producer.purge()
            producer.flush(0)

    @property
    def _producer(self) -> Producer:
        """The one whose turn it is."""
        return self._producers[0]

    def _send(self, parts: Mapping[int, Sequence[Entry]]) -> dict[int, Span]:
        """Sends all and has it acknowledged; it is not committed then."""
        sent = {partition: _Sent() for partition in parts}
        for partition, entries in parts.items():
            self._send_part(partition, entries, sent[partition])
        self._flush()
        if error := next((one.error for one in sent.values() if one.error is not None), None):
            if error.code() in {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}:
                self._producer.commit_transaction(self._timeout_s)  # raises why they were given up
            raise KafkaException(error)
        if any(not one.offsets for one in sent.values()):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for partition, one in sent.items():
            if one.offsets[0] < self._stops[partition]:
                raise FatalError(
                    f"{self._name(partition)} has come to offset {one.offsets[0]}, and was at {self._stops[partition]} before: the"
                    " topic was deleted and made anew",
                    fix="bring the topic back; or delete it and the source's part of `state`, and load the targets anew",
                )
        return {partition: Span(one.offsets[0], one.offsets[-1] + 1) for partition, one in sent.items()}

    def _flush(self) -> None:
        try:
            self._producer.flush(self._timeout_s * 2)
        except SystemError:
            # The client loses a fatal error that is raised while callbacks are served. Asked for anything else, it says it again.
            self._producer.begin_transaction()
            raise

    def _send_part(self, partition: int, entries: Sequence[Entry], sent: _Sent) -> None:
        # The records of an append follow one another in the partition: its ends are all that need be told.
        newest: _Ready | None = None
        is_first = True
        for entry in entries:
            for ready in self._records(partition, entry):
                if newest is not None:
                    self._produce(partition, newest, sent.acknowledged if is_first else None)
                    is_first = False
                newest = ready
        assert newest is not None, "there are entries"
        entry, value, headers = newest
        self._produce(partition, (entry, value, [*(headers or ()), ("end", b"")]), sent.acknowledged)

    def _produce(self, partition: int, ready: _Ready, callback: Acknowledged | None) -> None:
        (key, _, time_ms), value, headers = ready
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition,
                    on_delivery=callback,
                    timestamp=max(1, time_ms),
                    headers=headers,
                )
            except BufferError:  # the queue is full: give it time to be sent
                self._producer.poll(0.05)
            else:
                return

    def _records(self, partition: int, entry: Entry) -> Iterator[_Ready]:
        """The records that hold an entry: one, or as many as its value needs."""
        headers: Headers | None = None if entry.time_ms > 0 else [("time", b"%d" % entry.time_ms)]
        room = room_for(self._max_message_bytes, len(entry.key))
        if len(entry.value) <= room:
            yield entry, entry.value, headers
            return
        if room <= 0:
            raise ConfigError(
                f"a key of {len(entry.key)} bytes does not fit into a record of {self._name(partition)}",
                fix="raise the topic's max.message.bytes",
            )
        value = memoryview(entry.value)
        count = -(-len(value) // room)
        for number in range(count):
            part = ("part", b"%d/%d" % (number + 1, count))
            yield entry, bytes(value[number * room : (number + 1) * room]), [*(headers or ()), part]

    def _wait_for_marker(self, partition: int, stop: int) -> None:
        give_up_at = time.monotonic() + self._timeout_s
        while (end := self._end(partition)) < stop:
            if time.monotonic() > give_up_at:
                raise RetryableError(
                    f"{self._name(partition)} was written to, but what was written cannot be read yet",
                    fix="see the broker's log; it must end another program's transaction, or its own",
                )
        self._stops[partition] = end

    def _end(self, partition: int) -> int:
        place = TopicPartition(self._topic, partition)
        try:
            return self._cluster.asker().get_watermark_offsets(place, timeout=self._timeout_s, cached=False)[1]
        except KafkaException as error:
            raise self._cluster.failure(error, f"find the end of {self._name(partition)}") from error

    def _name(self, partition: int) -> str:
        return f"partition {partition} of topic {self._topic}"

    def _failure(self, error: KafkaError, where: str) -> Exception:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return RetryableError(
                f"{where} takes smaller records than a moment ago",
                fix="its max.message.bytes was lowered: entries are cut to the new size at the next attempt",
            )
        if error.code() == KafkaError.INVALID_TIMESTAMP:
            return ConfigError(
                f"{where} refuses the time of an entry: {error.str()}",
                fix="set the clocks of this host and of the brokers, or the topic's message.timestamp.after.max.ms",
            )
        return self._cluster.failure(error, f"append to {where}")


class _Sent:
    """What the brokers said of the first and the last record of a part."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.error: KafkaError | None = None

    def acknowledged(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = error
        else:
            self.offsets.append(message.offset() or 0)


def room_for(max_message_bytes: int, key_bytes: int) -> int:
    """The longest value that goes into one record; a longer one is cut into several."""
    return max_message_bytes - _HEADERS_BYTES - key_bytes
