"""Two applications in a row on real Kafka: the low watermark of the first is printed on its records, and closes the windows of the second.

Each has a Watermark Server of its own run's, and each is killed before the other goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from headrace.ums.printed import ALONE, LowWatermark, printed, read
from tests.flows.command import kill_group, running
from tests.flows.test_watermark_flow import (
    HOSTS,
    MINUTE_US,
    RULE,
    START_US,
    Hosts,
    certified,
    until,
    until_certified,
    windows,
)
from tests.servers.kafka import Kafka


@pytest.fixture
def prefix(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as name:
        yield name


def first(directory: Path, kafka: Kafka, prefix: str) -> Path:
    """Log files of hosts onto a topic of two partitions."""
    target = {
        "type": "kafka",
        "brokers": kafka.brokers,
        "topic": f"{prefix}{{table}}",
        "positions": f"{prefix}positions",
        "partitions": 2,
        "watermark_every": "300ms",
    }
    content = {
        "source": {"type": "applog", "name": "web", "files": "./logs/{host}/app.log", "rules": [RULE]},
        "log": {"type": "directory", "path": "./first-log"},
        "state": "./first-state",
        "epoch": "2s",
        "watermark": {"topology": "first", "sources": {"web": {"expected": {"names": list(HOSTS)}}}},
        "flows": [{"name": "on", "from": "applog.web.logs.said", "to": target}],
    }
    return written(directory / "first.yaml", content)


def second(directory: Path, kafka: Kafka, prefix: str) -> Path:
    """That topic into a lake with windows by the lines' time."""
    lake = {"type": "lake", "path": "./lake", "commit_interval": 0.2, "care": {"every": "500ms"}}
    source = {"type": "kafka", "name": "up", "brokers": kafka.brokers, "topics": [f"{prefix}said"], "format": "ums"}
    content = {
        "source": source | {"watermark": "records"},
        "log": {"type": "directory", "path": "./second-log"},
        "state": "./second-state",
        "epoch": "2s",
        "watermark": {},
        "flows": [
            {
                "name": "raw",
                "from": "kafka.up.logs.said",
                "to": lake | {"windows": {"length": "1m", "event_time": {"logs.said": "time"}}},
            }
        ],
    }
    return written(directory / "second.yaml", content)


def written(path: Path, content: dict[str, object]) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def newest(kafka: Kafka, topic: str) -> int:
    """The largest watermark on a topic's records; each record has one that is not above those that were committed before it."""
    consumer = Consumer({"bootstrap.servers": kafka.brokers, "group.id": "looks", "enable.partition.eof": True})
    found, ended = 0, set[int | None]()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        while ended < {0, 1}:
            for message in consumer.consume(100, 0.2):
                if message.error() is not None:
                    ended.add(message.partition())
                    continue
                low = read(message.headers())
                assert low is None or low.by == "first/on"
                assert message.value() is not None or message.key() == ALONE
                found = max(found, low.us if low is not None else 0)
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(1800)
def test_the_last_watermark_is_printed_though_nothing_comes_any_more(tmp_path: Path, kafka: Kafka, prefix: str) -> None:
    path = first(tmp_path, kafka, prefix)
    kafka.create_topic(f"{prefix}said")
    kafka.add_partitions(f"{prefix}said", 2)
    for host in HOSTS:
        Hosts(tmp_path).write(host, [0])
    with running(path) as run:
        until(lambda: newest(kafka, f"{prefix}said") == START_US + MINUTE_US - MINUTE_US // 20, run)
        kill_group(run)


def minutes(hosts: Hosts, count: int) -> dict[int, int]:
    return {START_US + minute * MINUTE_US: hosts.written[START_US + minute * MINUTE_US] for minute in range(count)}


@pytest.mark.timeout(1800)
def test_two_applications_in_a_row(tmp_path: Path, kafka: Kafka, prefix: str) -> None:
    """Both at once, then each goes on while the other is down: what they know of each other is on Kafka."""
    before, behind = first(tmp_path, kafka, prefix), second(tmp_path, kafka, prefix)
    hosts, topic = Hosts(tmp_path), f"{prefix}said"
    kafka.create_topic(topic)
    kafka.add_partitions(topic, 2)

    def printed_up_to(minute: int) -> bool:
        # What web4 has not passed, nobody has.
        newest_us, goal_us = newest(kafka, topic), START_US + minute * MINUTE_US - MINUTE_US // 20
        assert newest_us <= goal_us
        return newest_us == goal_us

    def write(from_minute: int, until_minute: int) -> None:
        for host in HOSTS:
            hosts.write(host, range(from_minute, until_minute - (host == "web4")))

    with hosts.at_work():
        write(0, 3)
        with running(before, "run", str(behind)) as run:
            until(lambda: printed_up_to(2), run)
            until_certified(tmp_path / "lake", minutes(hosts, 1), run)
            kill_group(run)
        hosts.write("web4", [2])
        write(3, 5)
        with running(before) as run:
            until(lambda: printed_up_to(4), run)
            kill_group(run)
        with running(behind) as run:
            until_certified(tmp_path / "lake", minutes(hosts, 3), run)
            kill_group(run)
    found = windows(tmp_path / "lake")
    assert {start: window.rows.rows for start, window in found.items() if window.state != "open"} == certified(
        tmp_path / "lake"
    )
    assert Counter(window.state for window in found.values())["amended"] == 0


def test_what_is_printed_is_read() -> None:
    low = LowWatermark("first/on", -5)
    assert read([("other", b"1 x"), *printed(low)]) == low
    assert read(printed(None)) is None
    assert read([("headrace-watermark", b"soon first/on")]) is None
