"""A topic of a real Kafka, a table of the stand-in for Doris, and the file of a loader between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from tests.servers.doris import Doris
from tests.servers.kafka import Kafka

LONG_S = 180
TABLE = (
    "CREATE TABLE t (part INT NOT NULL, n BIGINT NOT NULL, who STRING NULL, amount DECIMAL(12,2) NULL)"
    " DUPLICATE KEY(part, n) DISTRIBUTED BY HASH(n) BUCKETS 1"
)


class Setup:
    """A topic, a table, and the file of a loader between them."""

    def __init__(self, kafka: Kafka, doris: Doris, topic: str, folder: Path) -> None:
        self.kafka, self.doris, self.topic, self.folder = kafka, doris, topic, folder
        self.produced: list[tuple[int, int]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.file = folder / "loader.yaml"
        self.write()

    def write(self, **more: object) -> None:
        doris = self.doris
        said = {
            "name": "shop", "database": "db", "table": "t", "store": "sqlite:///loads.db", "columns": {"who": "user.name"},
            "kafka": {"brokers": self.kafka.brokers, "topics": [self.topic], "group": f"{self.topic}-lag"},
            "doris": {"frontends": doris.frontend_places, "query": f"127.0.0.1:{doris.sql_port}", "password": "${DORIS_PASSWORD}"},
            "batch_rows": 40, "batch_wait": "50ms", "commit_every": 3, "give_up_after": "2m", **more,
        }  # fmt: skip
        self.file.write_text(json.dumps(said))

    def produce(self, partition: int, count: int) -> None:
        first = sum(1 for part, _ in self.produced if part == partition)
        numbers = range(first, first + count)
        producer = Producer(self.kafka.client() | {"transactional.id": self.topic})
        producer.init_transactions()
        for start in range(0, count, 7):  # markers of transactions are between the offsets
            producer.begin_transaction()
            for n in numbers[start : start + 7]:
                value = {"part": partition, "n": n, "user": {"name": f'Zoë "{n}"'}, "amount": n / 4, "unused": [n]}
                producer.produce(self.topic, json.dumps(value).encode(), partition=partition)
            producer.commit_transaction()
        self.produced += [(partition, n) for n in numbers]

    def start(self, crash_at: str = "") -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DORIS_PASSWORD": "secret", "HEADRACE_CRASH_AT": crash_at}
        with (self.folder / "run.log").open("ab") as log:
            command = [sys.executable, "-m", "headrace", "doris", "run", str(self.file)]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def run_until(self, done: Callable[[], bool]) -> None:
        """Runs it, and stops it in order."""
        process = self.start()
        give_up_at = time.monotonic() + LONG_S
        while not done():
            assert process.poll() is None, (self.folder / "run.log").read_text()
            assert time.monotonic() < give_up_at, (self.folder / "run.log").read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 0, (self.folder / "run.log").read_text()

    def has_all(self) -> bool:
        return len(self.doris.rows("t")) >= len(self.produced)

    def check(self) -> None:
        assert sorted(self.doris.rows("t", "part, n")) == sorted(self.produced)
        assert all(
            who == f'Zoë "{n}"' and float(amount) == n / 4 for n, who, amount in self.doris.rows("t", "n, who, amount")
        )

    def group_offsets(self) -> dict[int, int]:
        admin = AdminClient(self.kafka.client())  # a future does not keep its client alive
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{self.topic}-lag")])
        found = next(iter(asked.values())).result()
        return {place.partition: place.offset for place in found.topic_partitions}


def wait_for(done: Callable[[], bool]) -> None:
    """AssertionError when it does not come about for minutes."""
    give_up_at = time.monotonic() + LONG_S
    while not done():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
