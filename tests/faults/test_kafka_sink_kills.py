"""Writers and brokers that are killed at any moment: what is committed on the topic is every change once, in order."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.sinks.kafka import KafkaSink
from tests.conformance.scanned import records
from tests.servers.kafka import Kafka

KILLS = int(os.environ.get("HEADRACE_KILLS", "2"))
TRANSACTIONS = 80
WORK = """
import sys
from contextlib import closing
from headrace.errors import RetryableError
from headrace.retry import Backoff
from headrace.sinks.base import Position
from headrace.sinks.kafka import KafkaSink
from headrace.testing.sink import ORDERS, batch_of, order
import time

config, last = KafkaSink.Config.model_validate_json(sys.argv[1]), int(sys.argv[2])
backoff = Backoff(60)
told = False
while True:
    try:
        with closing(KafkaSink(config, "flow")) as sink:
            at = sink.position("db1", 0)
            sink.prepare(ORDERS)
            if not told:
                told = print("working", flush=True) is None
            for n in range(1 if at is None else at.offset, last + 1):
                sink.write(batch_of(ORDERS, [order(n * 10 + row, row) for row in range(4)]))
                sink.commit(Position("db1", 0, n + 1, n, n))
                backoff.worked()
        break
    except RetryableError as error:
        time.sleep(backoff.failed(error))
"""


def start(config: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, config, str(TRANSACTIONS)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    return process


def kill_writer(_: Kafka, writer: subprocess.Popen[bytes]) -> None:
    writer.kill()


def kill_broker(broker: Kafka, writer: subprocess.Popen[bytes]) -> None:
    broker.kill9()
    broker.start()


@pytest.mark.parametrize("kill", [kill_writer, kill_broker])
def test_every_change_is_there_once(kill: Callable[[Kafka, subprocess.Popen[bytes]], None]) -> None:
    chance = random.Random(27)
    with Kafka() as broker:
        config = KafkaSink.Config(type="kafka", brokers=broker.brokers, format="json", topic="orders", timeout=5.0)
        text = config.model_dump_json()
        writer = start(text)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0, 0.5))
            kill(broker, writer)
            if writer.poll() is not None or kill is kill_writer:
                writer.wait()
                writer = start(text)
        assert writer.wait(300) == 0
        found = [int(json.loads(value or b"")["_ums_id_"]) for _, value, _ in records(broker.client(), "orders")]
    assert found == [n * 10 + row for n in range(1, TRANSACTIONS + 1) for row in range(4)]
