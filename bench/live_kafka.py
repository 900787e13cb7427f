"""A live MySQL server onto Kafka by the capture process, as UMS JSON, beside Debezium writing its JSON.

    python -m bench.live_kafka [--inserts N] [--rounds N] [--seconds N] [--only throughput|latency]

Throughput: the orders workload (bench/workload.py: 1,350,000 changes in transactions of 10 rows at full size) is in the binlog when the
clock starts; MySQL, the broker and what is measured share the machine. The limit is a bare producer of headrace's own messages, out of
memory, idempotent, without transactions, with the same compression. Latency: 500 transactions of one row a second; from COMMIT's
return to a consumer that has the message (of headrace: a committed one). Debezium is its embedded engine with Kafka's producer, built by
bench/decode_peers/peers.py, its first 400,000 rows left out as start-up. Wanted of headrace: 400,000 changes/s, p99 below 12 ms, memory
below 300 MB. Results are written when both parts ran at full size.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.servers.kafka import STEADY, Kafka
from tests.servers.mysql import MySql

from bench.decode_log.record import END_TABLE
from bench.decode_peers.measure import Run, measure
from bench.decode_peers.peers import build_java, java
from bench.machine import write_results
from bench.steady import FIRST, TABLE, quantiles, write
from bench.workload import DATABASE, FAST, write_orders

INSERTS, SECONDS = 1_000_000, 60
RATE = 500
WARM_UP_S = 15
WARM_UP_ROWS = 400_000
PROGRAM = Path(__file__).parent / "live_peers" / "headrace_capture.py"
HEADRACE, DEBEZIUM, BARE = "headrace, UMS JSON", "Debezium embedded, its JSON", "bare producer of headrace's messages"
FLOW = """\
source: {{type: mysql, name: {topic}, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.orders"]}}
log: {{type: kafka, brokers: "{broker.brokers}"}}
state: ./state
"""


@dataclass(frozen=True)
class Follow:
    """How a way followed a server: the delay of each change, its share of a core, its memory."""

    delays_ms: list[float]
    cpu_share: float
    resident_mb: float


class Setting:
    """A server, a broker, and how the ways between them are started."""

    def __init__(self, server: MySql, broker: Kafka, directory: Path) -> None:
        self.server = server
        self.broker = broker
        self._directory = directory

    def headrace(self, topic: str) -> Path:
        """The flow file of a capture onto a topic."""
        directory = self._directory / topic
        directory.mkdir()
        flow = directory / "flow.yaml"
        flow.write_text(FLOW.format(server=self.server, broker=self.broker, topic=topic, database=DATABASE))
        return flow

    def debezium(self, topic: str, warm_up_rows: int) -> list[str]:
        """The command that brings all changes onto a topic, which it makes, until a row in `END_TABLE`."""
        for name in {topic, "warm-up"} - set(self.broker.topics()):
            self.broker.create_topic(name)
        server = self.server
        place = [server.host, str(server.port), server.user, server.password, END_TABLE, self.broker.brokers, topic]
        return [*java(), "DebeziumKafka", *place, str(warm_up_rows)]

    def end(self) -> None:
        """Ends Debezium."""
        create = f"CREATE TABLE IF NOT EXISTS {END_TABLE} (id INT AUTO_INCREMENT PRIMARY KEY)"
        self.server.execute(create, f"INSERT INTO {END_TABLE} VALUES ()", database=DATABASE)


def throughput(directory: Path, inserts: int, rounds: int) -> tuple[int, dict[str, Run]]:
    """The number of changes, and of each way the run with the median of the time on the clock."""
    runs: dict[str, list[Run]] = {HEADRACE: [], DEBEZIUM: [], BARE: []}
    with MySql(*FAST) as server, Kafka(jvm=STEADY) as broker:
        setting = Setting(server, broker, directory)
        changes = write_orders(inserts, server)
        setting.end()
        for number in range(rounds):
            flow = setting.headrace(f"headrace-{number}")
            runs[HEADRACE].append(measure([sys.executable, str(PROGRAM), str(flow)]))
            found = list(messages(broker, f"headrace-{number}", to_the_end=True))
            runs[BARE].append(produced(broker, f"bare-{number}", found))
            del found
            broker.delete_topic(f"headrace-{number}", f"bare-{number}")
            runs[DEBEZIUM].append(measure(setting.debezium(f"debezium-{number}", min(WARM_UP_ROWS, inserts // 2))))
            broker.delete_topic(f"debezium-{number}")
    for way, each in runs.items():
        assert all(run.rows == changes for run in each), f"{way}: {[run.rows for run in each]} of {changes} changes"
    return changes, {way: sorted(each, key=lambda run: run.seconds)[(len(each) - 1) // 2] for way, each in runs.items()}


def rows_in(found: list[tuple[bytes, bytes]]) -> int:
    """The changes in UMS messages."""
    return sum(value.count(b'{"tuple":') for key, value in found if key[:1] != b"~")


def produced(broker: Kafka, topic: str, found: list[tuple[bytes, bytes]]) -> Run:
    """What it takes to bring messages that are there onto a topic."""
    broker.create_topic(topic)
    producer = Producer({**broker.client(), "enable.idempotence": True, "compression.type": "lz4"})
    began, cpu_s = time.perf_counter(), time.process_time()
    for key, value in found:
        while True:
            try:
                producer.produce(topic, value, key, 0)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    return Run(rows_in(found), seconds, cpu_s, 0.0, 0)


def messages(broker: Kafka, topic: str, *, to_the_end: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of the topic's messages, those that come later too."""
    properties = {"group.id": "bench", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**broker.client(), **properties, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    with closing(consumer):
        while True:
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                yield message.key(), message.value()
            elif to_the_end:
                return


def latency(directory: Path, seconds: int) -> dict[str, Follow]:
    """Each way by itself, on a server and a broker of its own."""
    ways: dict[str, tuple[Callable[[Setting], list[str]], Callable[[bytes], list[int]]]] = {
        HEADRACE: (
            lambda setting: [sys.executable, "-m", "headrace", "capture", str(setting.headrace("orders"))],
            keys_of_headrace,
        ),
        DEBEZIUM: (lambda setting: setting.debezium("orders", 0), keys_of_debezium),
    }
    found = {}
    for way, (command, keys_of) in ways.items():
        with MySql(*FAST) as server, Kafka(jvm=STEADY) as broker:
            broker.create_topic("orders")
            server.execute(f"CREATE DATABASE {DATABASE}")
            server.execute(TABLE, FIRST, database=DATABASE)
            process = subprocess.Popen(command(Setting(server, broker, directory)))
            try:
                found[way] = follow(server, broker, psutil.Process(process.pid), keys_of, seconds)
            finally:
                process.terminate()
                process.wait(timeout=60)
    return found


def follow(
    server: MySql, broker: Kafka, process: psutil.Process, keys_of: Callable[[bytes], list[int]], seconds: int
) -> Follow:
    """Writes at the rate and looks when the changes come to a consumer."""
    committed: dict[int, float] = {}
    seen: dict[int, float] = {}
    total = RATE * (seconds + WARM_UP_S)
    writer = threading.Thread(target=write, args=(server, committed, RATE, total))
    cpu_s = began = 0.0
    for key, value in messages(broker, "orders"):
        now = time.time()
        if key[:1] != b"~":
            seen.update(dict.fromkeys(keys_of(value), now))
        if not writer.ident:
            writer.start()
            cpu_s, began = sum(process.cpu_times()[:2]), now
        if len(seen) > total:
            break
    writer.join()
    share = (sum(process.cpu_times()[:2]) - cpu_s) / (time.time() - began)
    delays_ms = [1000 * (seen[key] - at) for key, at in committed.items() if key > RATE * WARM_UP_S]
    return Follow(delays_ms, share, process.memory_info().rss / 1e6)


def keys_of_headrace(value: bytes) -> list[int]:
    return [int(row["tuple"][5]) for row in orjson.loads(value)["payload"]]


def keys_of_debezium(value: bytes) -> list[int]:
    return [orjson.loads(value)["after"]["id"]]


def throughput_lines(changes: int, runs: dict[str, Run], rounds: int) -> list[str]:
    peer = runs[DEBEZIUM]
    return [
        f"{changes:,} changes (orders workload, transactions of 10 rows), in the binlog of MySQL 9 when the clock starts; median of {rounds} rounds in turns.",
        "",
        "| way | s | changes/s | times Debezium | CPU-s | changes/CPU-s | peak MB | start-up, CPU-s |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {way} | {run.seconds:.2f} | {changes / run.seconds:,.0f} | {peer.seconds / run.seconds:.1f} | {run.cpu_s:.2f} "
            f"| {changes / run.cpu_s:,.0f} | {f'{run.peak_bytes / 1e6:,.0f}' if run.peak_bytes else ''} | {run.startup_cpu_s:.1f} |"
            for way, run in runs.items()
        ),
        "",
    ]


def latency_lines(found: dict[str, Follow], seconds: int) -> list[str]:
    return [
        f"{RATE} transactions of one row a second for {seconds} s, commit to consumer:",
        "",
        "| way | changes | p50 ms | p95 ms | p99 ms | max ms | of a core | resident MB |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {way} | {len(one.delays_ms):,} | {' | '.join(f'{value:.1f}' for value in quantiles(one.delays_ms))} "
            f"| {one.cpu_share:.0%} | {one.resident_mb:,.0f} |"
            for way, one in found.items()
        ),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inserts", type=int, default=INSERTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--only", choices=["throughput", "latency"])
    arguments = parser.parse_args()
    build_java()
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        if arguments.only != "latency":
            changes, runs = throughput(Path(name), arguments.inserts, arguments.rounds)
            lines += throughput_lines(changes, runs, arguments.rounds)
        if arguments.only != "throughput":
            lines += latency_lines(latency(Path(name), arguments.seconds), arguments.seconds)
    lines.append(
        "On such a machine with relaxed durability: Debezium in Kafka Connect 71,000 changes/s, 919 MB, p99 12.7 ms; Flink CDC 69,000, 13.9 ms."
    )
    if arguments.only is None and (arguments.inserts, arguments.seconds) == (INSERTS, SECONDS):
        write_results("live_kafka", lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
