"""`headrace doris` as a process of its own: a real Kafka, the stand-in for Doris, and SIGKILL at the named points."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.cli.doris import doris as doris_command
from headrace.cli.main import cli
from headrace.errors import ConfigError, FatalError
from headrace.log.kafka.again import Again
from headrace.log.kafka.config import KafkaConfig
from tests.doris_topic import LONG_S, TABLE, Setup, wait_for
from tests.servers.doris import Doris
from tests.servers.kafka import Kafka


@pytest.fixture
def doris() -> Iterator[Doris]:
    with Doris(frontends=2, backends=2, password="secret") as server:
        server.sql(TABLE)
        yield server


@pytest.fixture
def setup(kafka: Kafka, doris: Doris, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    monkeypatch.setenv("DORIS_PASSWORD", "secret")
    with kafka.prefix() as prefix:
        kafka.create_topic(f"{prefix}shop")
        made = Setup(kafka, doris, f"{prefix}shop", tmp_path)
        yield made
        made.close()


POINTS = {
    False: ("doris.row_durable:2", "doris.after_send:3", "doris.before_loaded:2", "doris.repairing"),
    True: ("doris.after_send:3", "doris.decided:2", "doris.committed:1"),
}


@pytest.mark.parametrize("two_phase", [False, True], ids=["one phase", "two phases"])
def test_a_loader_that_is_killed_loads_each_message_once(setup: Setup, two_phase: bool) -> None:
    setup.write(two_phase=two_phase)
    for number, point in enumerate(POINTS[two_phase]):
        setup.produce(0, 250)
        if number == 1:
            setup.kafka.add_partitions(setup.topic, 2)
        if number >= 1:
            setup.produce(1, 30)
        if number == 2:
            setup.doris.faults.add("be_cut_committed", "^hr-shop-t-[0-9a-f]{8}-0", times=2)
        process = setup.start(point)
        assert process.wait(LONG_S) == -signal.SIGKILL, (point, (setup.folder / "run.log").read_text())
    setup.run_until(setup.has_all)
    setup.check()
    told = json.loads(CliRunner().invoke(doris_command, ["status", str(setup.file), "--json"]).output)
    assert told["unloaded"] == []
    assert all(lag <= 1 for lag in told["lag"].values())  # the marker of the last transaction
    assert all(row["kafka_committed"] for row in told["newest"])
    assert setup.group_offsets() == {int(place.rpartition("/")[2]): n for place, n in told["offsets"].items()}


def test_partitions_are_added_while_it_runs_and_servers_go_away(setup: Setup) -> None:
    setup.produce(0, 100)
    process = setup.start()
    wait_for(setup.has_all)
    setup.doris.stop_backend(0)
    setup.doris.stop_frontend(0)
    setup.kafka.add_partitions(setup.topic, 3)
    setup.produce(2, 100)
    wait_for(setup.has_all)
    setup.doris.start_backend(0)
    setup.doris.stop_backend(1)
    setup.doris.sql("ALTER TABLE t ADD COLUMN `unused` STRING NULL")
    setup.produce(1, 100)
    wait_for(setup.has_all)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG_S) == 0
    setup.check()


def test_bad_messages_stop_it_or_are_kept(setup: Setup) -> None:
    setup.produce(0, 30)
    producer = Producer(setup.kafka.client())
    producer.produce(setup.topic, b"no JSON", partition=0)
    assert producer.flush(30) == 0
    process = setup.start()
    assert process.wait(LONG_S) == 1
    log = (setup.folder / "run.log").read_text()
    assert "1 of 31 rows cannot be loaded" in log
    assert "not a JSON object: no JSON" in log
    assert "Traceback" not in log
    assert setup.doris.rows("t") == []
    setup.write(bad_rows=0.1)
    setup.run_until(setup.has_all)
    setup.check()
    assert "not a JSON object: no JSON" in CliRunner().invoke(doris_command, ["refused", str(setup.file)]).output


def test_what_stands_in_the_way_is_told(setup: Setup) -> None:
    for wrong, message in (
        ({"table": "nowhere"}, "no table db.nowhere"),
        ({"kafka": {"brokers": setup.kafka.brokers, "topics": ["no-such-topic"]}}, "no topic no-such-topic"),
        ({"batch_row": 4}, "batch_row"),
        ({"audit_column": "who"}, "take it out of `columns`"),
    ):
        setup.write(**wrong)
        process = setup.start()
        assert process.wait(LONG_S) == 2, message
        log = (setup.folder / "run.log").read_text()
        assert message in log
        assert "Traceback" not in log
    setup.write()
    outcome = CliRunner().invoke(doris_command, ["accept", str(setup.file), "7"])
    assert isinstance(outcome.exception, ConfigError)
    assert "no load 7 that is open" in outcome.exception.message
    assert "doris" in CliRunner().invoke(cli, ["--help"]).output


def test_offsets_that_kafka_has_lost_are_skipped_by_hand(setup: Setup) -> None:
    setup.produce(0, 70)
    setup.run_until(setup.has_all)
    outcome = CliRunner().invoke(doris_command, ["skip", str(setup.file)])
    assert isinstance(outcome.exception, ConfigError)
    assert "there is nothing to skip" in outcome.exception.fix
    setup.produce(0, 70)  # with a marker behind each seven: offsets 80 to 159
    place = TopicPartition(setup.topic, 0, 120)
    admin = AdminClient(setup.kafka.client())  # a future does not keep its client alive
    admin.delete_records([place])[TopicPartition(setup.topic, 0)].result()
    process = setup.start()
    assert process.wait(LONG_S) == 1
    log = (setup.folder / "run.log").read_text()
    assert re.search(rf"the offsets \d+ to 119 of {setup.topic}/0 are not kept any more", log)
    assert "headrace doris skip" in log
    assert "0 to 119" not in CliRunner().invoke(doris_command, ["skip", str(setup.file)]).output
    wanted = sorted([*range(70), *range(105, 140)])
    setup.run_until(lambda: len(setup.doris.rows("t")) == len(wanted))
    assert [n for (n,) in sorted(setup.doris.rows("t", "n"))] == wanted
    assert "skipped hr-shop-t-" in CliRunner().invoke(doris_command, ["status", str(setup.file)]).output


def test_a_range_is_read_again_exactly_or_not_at_all(setup: Setup) -> None:
    setup.produce(0, 50)
    place, again = f"{setup.topic}/0", Again(KafkaConfig(brokers=setup.kafka.brokers))
    try:
        found = [one.offset for one in again.read({place: (3, 20)})]
        assert found == [offset for offset in range(3, 20) if (offset + 1) % 8]  # markers behind each seven
        admin = AdminClient(setup.kafka.client())
        admin.delete_records([TopicPartition(setup.topic, 0, 10)])[TopicPartition(setup.topic, 0)].result()
        assert admin.list_offsets({TopicPartition(setup.topic, 0): OffsetSpec.earliest()})
        with pytest.raises(FatalError, match=place):
            again.read({place: (3, 20)})
    finally:
        again.close()
