"""``headrace log`` on both logs: read again from any offset or time, and who has read how far."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from headrace.cli.log import log_group
from headrace.log.base import Entry, Log, Span
from headrace.log.directory import DirectoryLog
from headrace.log.kafka import KafkaLog
from headrace.ums.change import MARK_KEY, Mark
from tests.servers.kafka import Kafka

FLOW = """\
source: {{type: mysql, name: db1, host: h, user: u, tables: ["shop.*"], partitions: 2}}
log: {log}
state: ./state
flows: [{{name: lite, from: "mysql.db1", to: {{type: database, url: "sqlite:///./mart.db"}}}}]
"""
BEGIN_MS = 1_700_000_000_000
UNITS = 5


def looked(*arguments: object) -> list[dict[str, Any]]:
    result = CliRunner().invoke(log_group, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return [json.loads(line) for line in result.output.splitlines()]


class Place:
    """A flow file, and its log with a mark a second in two partitions."""

    def __init__(self, directory: Path, options: str, log: Log) -> None:
        self.flow, self.log = directory / "flow.yaml", log
        self.flow.write_text(FLOW.format(log=options))
        for second in range(UNITS):
            mark = Entry(MARK_KEY, Mark("db1", {"at": second}, second, 0).to_block(), BEGIN_MS + 1000 * second)
            log.append_together("db1", {0: [mark], 1: [mark, mark]})
        self.offsets = [[record.offset for record in log.read("db1", number, Span(0, 1 << 60))] for number in (0, 1)]

    def delivered(self, partition: int, units: int) -> None:
        """The flow's last epoch ended behind so many units of a partition."""
        offset = self.offsets[partition][units * (partition + 1) - 1] + 1
        position = {"topic": "db1", "partition": partition, "offset": offset, "id": units, "commit_ts_us": 0}
        follower = "lite" + (f".p{partition}" if partition else "")
        ledger = self.flow.parent / "state" / "epochs" / "deliver-db1"
        ledger.mkdir(parents=True, exist_ok=True)
        (ledger / f"{len(list(ledger.iterdir())):020d}.json").write_text(
            json.dumps({"state": {follower: {"position": position}}, "message": {}})
        )


@pytest.fixture
def prefix(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as prefix:
        yield prefix


@pytest.fixture(params=["directory", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "directory":
        log: Log = DirectoryLog(DirectoryLog.Config(path=tmp_path / "log"))
        options = {"type": "directory", "path": str(tmp_path / "log")}
    else:
        kafka: Kafka = request.getfixturevalue("kafka")
        options = {"type": "kafka", "brokers": kafka.brokers, "prefix": request.getfixturevalue("prefix")}
        log = KafkaLog(KafkaLog.Config.model_validate(options))
    yield Place(tmp_path, json.dumps(options), log)
    log.close()


def test_a_topic_is_read_again_from_any_offset_or_time(place: Place) -> None:
    def ids(*options: object) -> list[tuple[int, int]]:
        return [(row["partition"], row["header"]["id"]) for row in looked("cat", place.flow, "db1", *options)]

    everything = [(0, unit) for unit in range(UNITS)] + [(1, unit) for unit in range(UNITS) for _ in range(2)]
    assert ids() == everything
    for unit in (0, UNITS - 1):
        offset = place.offsets[0][unit]
        assert ids("--partition", 0, "--from", offset) == everything[unit:UNITS]
        assert ids("--partition", 0, "--to", offset) == everything[:unit]
    for second in (-1, 2, UNITS):
        time = f"2023-11-14 22:13:{20 + second}"
        assert ids("--since", time) == [(partition, unit) for partition, unit in everything if unit >= second]
        assert ids("--until", time) == [(partition, unit) for partition, unit in everything if unit < second]
    assert ids("--since", "2023-11-14 22:13:21", "--until", "2023-11-14 22:13:23", "--partition", "0") == [
        (0, 1),
        (0, 2),
    ]
    assert ids("--partition", 1, "--from", 1 << 40) == []


def test_flows_are_shown_by_what_they_have_reported(place: Place) -> None:
    place.delivered(0, UNITS)
    [first, second] = looked("stat", place.flow)
    [reader] = first["readers"]
    assert (reader["reader"], reader["kind"], reader["lag"], second["readers"]) == ("lite", "flow", 0, [])
    place.delivered(1, UNITS - 1)
    [first, second] = looked("ls", place.flow)
    [reader] = second["readers"]
    assert reader["offset"] == place.offsets[1][2 * (UNITS - 1) - 1] + 1
    assert reader["lag"] >= 2
    shown = CliRunner().invoke(log_group, ["stat", str(place.flow)]).output
    assert f"read by flow lite up to {reader['offset']}, {reader['lag']} behind" in shown


def test_consumer_groups_of_others_are_shown(kafka: Kafka, prefix: str) -> None:
    log = KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))
    entries = [Entry(b"k", b"v", 1_000) for _ in range(7)]
    log.append_together("db1", {0: entries, 1: entries})
    end = log.spans("db1")[1].stop
    other = Consumer(kafka.client() | {"group.id": f"{prefix}others", "enable.auto.commit": "false"})
    places = [TopicPartition(f"{prefix}db1", 0, 3), TopicPartition(f"{prefix}db1", 1, end - 1)]
    other.commit(offsets=places, asynchronous=False)
    other.close()
    rows = [row for row in looked("stat", f"kafka://{kafka.brokers}") if row["topic"] == f"{prefix}db1"]
    assert [[(one["reader"], one["kind"], one["offset"], one["lag"]) for one in row["readers"]] for row in rows] == [
        [(f"{prefix}others", "group", 3, end - 3)],
        [(f"{prefix}others", "group", end - 1, 0)],
    ]
    log.close()
