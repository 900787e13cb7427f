"""How near the Kafka log comes to librdkafka itself: append against produce, read against consume, of the same payload.

    python -m bench.kafka_log [--megabytes N]

A real broker on this machine, topics of one partition, no compression. All sides have the same settings of librdkafka and are
measured in turns in one run, five times; medians count. The bare producer writes the same records in transactions of the same
size ("bare, transactions") and once more without transactions, idempotent, all in one stream ("bare, idempotent": what fencing and
whole appends cost). The bare consumer reads committed records and looks at key, value and time of each; what is read is several times
what is appended in a round, since turning to its beginning takes either side up to 20 ms.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Thread

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.servers.kafka import STEADY, Kafka

from bench.machine import write_results
from headrace.log.base import Entry, Span
from headrace.log.kafka import KafkaLog
from headrace.log.kafka.cluster import Cluster

ROUNDS = 5
READ_APPENDS = 5
"""How many times the appends of one round are read."""
EVERYTHING = Span(0, 1 << 60)
KEY = b"mysql.db1.shop.t.0.0.0.0"
_topics = itertools.count()


@dataclass(frozen=True)
class Shape:
    """What one append carries."""

    name: str
    value_bytes: int
    entries: int


SHAPES = [
    Shape("16 blocks of 64 KiB", 64 << 10, 16),
    Shape("50 blocks of 4 KiB", 4 << 10, 50),
    Shape("4 blocks of 900 KB", 900_000, 4),
    Shape("1000 entries of 300 B", 300, 1000),
]


class Side:
    """One topic, written and read by one of the ways that are compared."""

    def __init__(self, broker: Kafka) -> None:
        self.topic = f"bench-{next(_topics)}"
        broker.create_topic(self.topic, file_delete_delay_ms="1000")
        self.config = KafkaLog.Config(brokers=broker.brokers, compression="none", timeout=60)
        self.cluster = Cluster(self.config)

    def close(self) -> None:
        self.cluster.close()


def bare_transactions(side: Side, values: list[bytes], appends: int) -> float:
    producer: Producer = side.cluster.producer(f"bare-{side.topic}", 1_048_588)
    producer.init_transactions()
    started = time.perf_counter()
    for _ in range(appends):
        producer.begin_transaction()
        for value in values:
            while True:
                try:
                    producer.produce(side.topic, value, KEY, 0, timestamp=1_000)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.commit_transaction()
    return time.perf_counter() - started


def bare_idempotent(side: Side, values: list[bytes], appends: int, broker: Kafka) -> float:
    producer = Producer(broker.client() | {"enable.idempotence": True, "queue.buffering.max.kbytes": 128 * 1024})
    started = time.perf_counter()
    for value in itertools.chain.from_iterable([values] * appends):
        while True:
            try:
                producer.produce(side.topic, value, KEY, 0, timestamp=1_000)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0
    return time.perf_counter() - started


def append(side: Side, values: list[bytes], appends: int) -> float:
    log = KafkaLog(side.config)
    entries = [Entry(KEY, value, 1_000) for value in values]
    log.append(side.topic, 0, [])
    started = time.perf_counter()
    for _ in range(appends):
        log.append(side.topic, 0, entries)
    took_s = time.perf_counter() - started
    log.close()
    return took_s


def bare_read(side: Side, records: int) -> float:
    consumer: Consumer = side.cluster.consumer()
    consumer.get_watermark_offsets(TopicPartition(side.topic, 0))  # connected before the clock starts, as `read` is
    started = time.perf_counter()
    consumer.assign([TopicPartition(side.topic, 0, 0)])
    seen = 0
    while seen < records:
        for message in consumer.consume(500, 0) or [consumer.poll(1.0)]:
            if message is None:
                continue
            error = message.error()
            if error is None:
                message.key(), message.value(), message.timestamp()
                seen += 1
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
    took_s = time.perf_counter() - started
    consumer.close()
    return took_s


def read(side: Side, records: int) -> float:
    log = KafkaLog(side.config)
    end = log.spans(side.topic)[0].stop
    next(log.read(side.topic, 0, Span(end - 2, end)))
    started = time.perf_counter()
    seen = sum(1 for _ in log.read(side.topic, 0, EVERYTHING))
    took_s = time.perf_counter() - started
    assert seen == records
    log.close()
    return took_s


def measure(broker: Kafka, shape: Shape, megabytes: int) -> dict[str, float]:
    """MB/s of each way, the median of the rounds."""
    values = [os.urandom(shape.value_bytes) for _ in range(shape.entries)]
    unit_bytes = shape.value_bytes * shape.entries
    appends = max(3, megabytes * 1_000_000 // unit_bytes)
    records = READ_APPENDS * appends * shape.entries
    took: dict[str, list[float]] = {}
    written = Side(broker)
    append(written, values, READ_APPENDS * appends)
    for _ in range(ROUNDS):
        ours, bare, loose = Side(broker), Side(broker), Side(broker)
        ways: dict[str, Callable[[], float]] = {
            "bare, transactions": lambda bare=bare: bare_transactions(bare, values, appends),
            "append": lambda ours=ours: append(ours, values, appends),
            "bare, idempotent": lambda loose=loose: bare_idempotent(loose, values, appends, broker),
            "bare read": lambda: bare_read(written, records) / READ_APPENDS,
            "read": lambda: read(written, records) / READ_APPENDS,
        }
        for name, way in ways.items():
            took.setdefault(name, []).append(way())
        for side in (ours, bare, loose):
            side.close()
            broker.delete_topic(side.topic)
    written.close()
    broker.delete_topic(written.topic)
    return {name: appends * unit_bytes / 1e6 / statistics.median(times) for name, times in took.items()}


def delays_ms(broker: Kafka) -> tuple[list[float], list[float]]:
    """Of 1,000 small appends 2 ms apart: how long `append` took, and when a waiting reader had read it, both from its start."""
    side = Side(broker)
    writer, reader = KafkaLog(side.config), KafkaLog(side.config)
    writer.append(side.topic, 0, [])
    appended: list[float] = []
    read_at: list[float] = []
    reached = reader.spans(side.topic)[0].stop
    started: list[float] = []

    def write() -> None:
        for _ in range(1_000):
            started.append(time.perf_counter())
            writer.append(side.topic, 0, [Entry(KEY, b"v" * 300, 1_000), Entry(b"~mark", b"m" * 200, 1_000)])
            appended.append((time.perf_counter() - started[-1]) * 1000)
            time.sleep(0.002)

    thread = Thread(target=write)
    thread.start()
    while len(read_at) < 1_000:
        if reader.wait(side.topic, 0, reached, 1.0):
            stop = reader.spans(side.topic)[0].stop
            for record in reader.read(side.topic, 0, Span(reached, stop)):
                if record.entry.key == b"~mark":
                    read_at.append((time.perf_counter() - started[len(read_at)]) * 1000)
            reached = stop
    thread.join()
    writer.close()
    reader.close()
    side.close()
    return sorted(appended), sorted(read_at)


def report(broker: Kafka, megabytes: int) -> Iterator[str]:
    yield "Kafka 4.2.1 on this machine, one partition, no compression. MB/s, medians of 5 rounds in turns; read ratios, not absolute values.\n"
    yield "| one append | bare, transactions | append | ratio | bare, idempotent | ratio | bare consumer | read | ratio |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for shape in SHAPES:
        speed = measure(broker, shape, megabytes)
        ours, bare, loose = speed["append"], speed["bare, transactions"], speed["bare, idempotent"]
        consumed, read_ = speed["bare read"], speed["read"]
        yield (
            f"| {shape.name} | {bare:,.0f} | {ours:,.0f} | {ours / bare:.2f} | {loose:,.0f} | {ours / loose:.2f} "
            f"| {consumed:,.0f} | {read_:,.0f} | {read_ / consumed:.2f} |"
        )
    appended, seen = delays_ms(broker)
    for what, times in (("`append` of a change and its mark returns", appended), ("a waiting reader has it", seen)):
        p50, p95, p99 = (times[len(times) * percent // 100] for percent in (50, 95, 99))
        yield f"\n1,000 small appends: {what} after p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    megabytes = parser.parse_args().megabytes
    with Kafka(jvm=STEADY) as broker:
        write_results("kafka_log", list(report(broker, megabytes)))


if __name__ == "__main__":
    main()
