"""The Kafka log on a real broker: it dies and comes back, writers die, topics go, rights are missing, records are too large."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from headrace.capture.runner import resume_point
from headrace.errors import ConfigError, FatalError, FencedError, RetryableError
from headrace.log.base import Entry, Record, Span
from headrace.log.kafka import KafkaLog
from headrace.retry import retrying
from headrace.ums.change import MARK_KEY, Mark
from tests.faults.kafka_writer import Appender, unit, value
from tests.servers.kafka import Kafka

KILLS = int(os.environ.get("HEADRACE_KILLS", "6"))
EVERYTHING = Span(0, 1 << 60)
WRITER = Path(__file__).parent / "kafka_writer.py"


@pytest.fixture
def prefix(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as prefix:
        yield prefix


@pytest.fixture
def open_log(kafka: Kafka, prefix: str) -> Iterator[Callable[..., KafkaLog]]:
    opened: list[KafkaLog] = []

    def open_(**options: object) -> KafkaLog:
        config = KafkaLog.Config.model_validate({"brokers": kafka.brokers, "prefix": prefix, **options})
        opened.append(KafkaLog(config))
        return opened[-1]

    yield open_
    for log in opened:
        log.close()


def entry(content: bytes) -> Entry:
    return Entry(b"k", content, 1_000)


def numbers_are_unbroken(records: list[Record]) -> bool:
    return [record.entry.value for record in records] == [value(number) for number in range(len(records))]


def set_config(broker: Kafka, topic: str, name: str, setting: str) -> None:
    entries = [ConfigEntry(name, setting, incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient(broker.client())
    admin.incremental_alter_configs([resource])[resource].result()


def cut_before(broker: Kafka, topic: str, offset: int) -> None:
    place = TopicPartition(topic, 0, offset)
    admin = AdminClient(broker.client())
    admin.delete_records([place])[place].result()


def test_a_broker_that_dies_and_comes_back_takes_nothing_with_it() -> None:
    """Appends go on while it is killed and started; each acknowledged one is there once, whole and in order."""
    with Kafka() as broker:
        config = KafkaLog.Config(brokers=broker.brokers, timeout=1)
        writer, reader = KafkaLog(config), KafkaLog(config)
        appender = Appender(writer)
        for _ in range(max(1, KILLS // 20)):
            appender.wait_for_more(20)
            broker.kill9()
            appender.wait_for_an_outage()
            broker.restart()
        appender.wait_for_more(20)
        acknowledged = appender.stop()
        records = list(reader.read("t", 0, EVERYTHING))
        assert numbers_are_unbroken(records)
        assert appender.acknowledged == sorted(set(appender.acknowledged))
        assert len(records) == acknowledged
        writer.close()
        reader.close()


def test_a_writer_that_is_killed_leaves_no_half_of_an_append(
    kafka: Kafka, prefix: str, open_log: Callable[..., KafkaLog]
) -> None:
    random = Random(7)
    reader = open_log()
    for _ in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, str(WRITER), kafka.brokers, prefix], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(random.randint(1, 40)):
            acknowledged = int(writer.stdout.readline())
            records = list(reader.read("t", 0, EVERYTHING))
            assert numbers_are_unbroken(records)
            assert len(records) > acknowledged
        writer.kill()
        writer.communicate()
    log = open_log()
    log.append("t", 0, [])
    records = list(reader.read("t", 0, EVERYTHING))
    assert numbers_are_unbroken(records)
    starts = [0]
    while starts[-1] < len(records):
        starts.append(starts[-1] + len(unit(starts[-1])))
    assert starts[-1] == len(records), "an append is there by half"


def test_without_a_broker_there_is_one_clear_message() -> None:
    log = KafkaLog(KafkaLog.Config(brokers="127.0.0.1:1", timeout=1))
    for use in (lambda: log.append("t", 0, [entry(b"a")]), lambda: log.spans("t")):
        with pytest.raises(RetryableError, match=r"127\.0\.0\.1:1") as raised:
            use()
        assert "start the brokers" in raised.value.fix
    log.close()


def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    config = {"brokers": "127.0.0.1:1", "tls": {"ca": str(tmp_path / "ca.pem")}}
    log = KafkaLog(KafkaLog.Config.model_validate(config))
    for use in (lambda: log.append("t", 0, [entry(b"a")]), lambda: log.spans("t")):
        with pytest.raises(ConfigError, match=r"ssl\.ca\.location") as raised:
            use()
        assert "tls" in raised.value.fix
    log.close()


def test_entries_larger_than_a_record_are_cut_and_made_whole(
    kafka: Kafka, prefix: str, open_log: Callable[..., KafkaLog]
) -> None:
    kafka.create_topic(f"{prefix}t", max_message_bytes="10000")
    contents = [os.urandom(length) for length in (5, 250_000, 8_900, 9_000, 10_000, 0, 30_000)]
    log = open_log()
    log.append("t", 0, [entry(content) for content in contents[:3]])
    log.append("t", 0, [entry(content) for content in contents[3:]])
    everything = list(log.read("t", 0, EVERYTHING))
    assert [record.entry.value for record in everything] == contents
    end = log.spans("t")[0].stop
    for start in range(0, end, 3):
        for stop in (start + 1, start + 7, end):
            found = (
                list(open_log().read("t", 0, Span(start, stop)))
                if stop == end
                else list(log.read("t", 0, Span(start, stop)))
            )
            assert found == [record for record in everything if start <= record.offset < stop]


def test_a_limit_that_is_lowered_on_the_way_costs_one_attempt(
    kafka: Kafka, prefix: str, open_log: Callable[..., KafkaLog]
) -> None:
    log = open_log()
    log.append("t", 0, [entry(b"before")])
    set_config(kafka, f"{prefix}t", "max.message.bytes", "20000")
    large = os.urandom(300_000)
    retrying(lambda: log.append("t", 0, [entry(large)]), give_up_after_s=60)
    assert [record.entry.value for record in log.read("t", 0, EVERYTHING)] == [b"before", large]


def test_a_topic_that_is_deleted_is_told_to_writer_and_reader(
    kafka: Kafka, prefix: str, open_log: Callable[..., KafkaLog]
) -> None:
    writer, reader = open_log(timeout=3), open_log(timeout=3)
    writer.append("t", 0, [entry(b"a"), entry(b"b")])
    assert reader.spans("t")[0].stop >= 2
    kafka.delete_topic(f"{prefix}t")
    with pytest.raises(FatalError, match="topic") as raised:
        retrying(lambda: writer.append("t", 0, [entry(b"c")]), give_up_after_s=60)
    assert "bring" in raised.value.fix
    with pytest.raises(FatalError, match="topic"):
        retrying(lambda: reader.spans("t"), give_up_after_s=60)
    assert f"{prefix}t" not in kafka.topics()


def test_a_topic_made_anew_is_not_taken_for_the_old_one(
    kafka: Kafka, prefix: str, open_log: Callable[..., KafkaLog]
) -> None:
    writer, reader = open_log(timeout=3), open_log(timeout=3)
    for _ in range(5):
        writer.append("t", 0, [entry(b"old")])
    assert len(reader.spans("t")[0]) >= 5
    kafka.delete_topic(f"{prefix}t")
    kafka.create_topic(f"{prefix}t")
    with pytest.raises(FatalError, match="made anew"):
        retrying(lambda: reader.spans("t"), give_up_after_s=60)
    with pytest.raises(FatalError):
        retrying(lambda: writer.append("t", 0, [entry(b"new")]), give_up_after_s=60)
    assert list(open_log().read("t", 0, EVERYTHING)) == []


def test_what_retention_has_taken_is_told(kafka: Kafka, prefix: str, open_log: Callable[..., KafkaLog]) -> None:
    writer, reader = open_log(), open_log()
    mark = Mark("db1", {"file": "binlog.1"}, 7, 0)
    writer.append("t", 0, [Entry(MARK_KEY, mark.to_block(), 1_000), entry(b"a")])
    kept = writer.append("t", 0, [entry(b"b")])
    assert resume_point(reader, "t") == mark
    cut_before(kafka, f"{prefix}t", kept.start)
    assert reader.spans("t")[0].start == kept.start
    assert [record.entry.value for record in reader.read("t", 0, reader.spans("t")[0])] == [b"b"]
    for log in (reader, open_log()):
        with pytest.raises(FatalError, match="no longer kept"):
            list(log.read("t", 0, Span(0, kept.stop)))
    with pytest.raises(FatalError, match="lost the position of its capture"):
        resume_point(reader, "t")


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"cleanup_policy": "compact"}, {}, "is compacted"),
        ({}, {"min_insync_replicas": 2}, "with 1 of 1 copies"),
        ({"max_message_bytes": "1000"}, {}, "only 1000 bytes"),
    ],
)
def test_a_topic_that_would_lose_entries_is_refused(
    kafka: Kafka,
    prefix: str,
    open_log: Callable[..., KafkaLog],
    settings: dict[str, str],
    options: dict[str, object],
    message: str,
) -> None:
    kafka.create_topic(f"{prefix}t", **settings)
    with pytest.raises(ConfigError, match=message) as raised:
        open_log(**options).append("t", 0, [entry(b"a")])
    assert raised.value.fix


def test_too_few_brokers_for_the_copies(open_log: Callable[..., KafkaLog]) -> None:
    with pytest.raises(ConfigError, match="could not make topic") as raised:
        open_log(replicas=3).append("t", 0, [entry(b"a")])
    assert "fewer brokers" in raised.value.fix


def test_a_fenced_writer_stays_fenced_after_an_outage_of_its_own(open_log: Callable[..., KafkaLog]) -> None:
    first, second = open_log(), open_log()
    first.append("t", 0, [entry(b"1")])
    second.append("t", 0, [entry(b"2")])
    for _ in range(3):
        with pytest.raises(FencedError):
            first.append("t", 0, [entry(b"fenced")])
    second.append("t", 0, [entry(b"3")])
    assert [record.entry.value for record in first.read("t", 0, EVERYTHING)] == [b"1", b"2", b"3"]


def test_records_of_an_aborted_transaction_are_not_seen(
    kafka: Kafka, prefix: str, open_log: Callable[..., KafkaLog]
) -> None:
    log = open_log()
    log.append("t", 0, [entry(b"a")])
    stranger = Producer(kafka.client() | {"transactional.id": f"{prefix}stranger"})
    stranger.init_transactions()
    stranger.begin_transaction()
    stranger.produce(f"{prefix}t", b"aborted", partition=0)
    stranger.flush()
    before = log.spans("t")[0]
    assert not log.wait("t", 0, before.stop, 0.2)
    stranger.abort_transaction()
    log.append("t", 0, [entry(b"b")])
    assert [record.entry.value for record in log.read("t", 0, EVERYTHING)] == [b"a", b"b"]
    stranger.begin_transaction()
    stranger.produce(f"{prefix}t", b"aborted", partition=0)
    stranger.flush()
    stranger.abort_transaction()
    assert [record.entry.value for record in open_log().read("t", 0, EVERYTHING)] == [b"a", b"b"]


def test_login_and_rights() -> None:
    with Kafka(users={"alice": "her secret"}, tls=True) as broker:

        def open_(password: str = "her secret") -> KafkaLog:
            sasl = {"mechanism": "PLAIN", "username": "alice", "password": password}
            place = {"brokers": broker.brokers, "tls": {"ca": broker.certificate}, "timeout": 2}
            return KafkaLog(KafkaLog.Config.model_validate({**place, "sasl": sasl}))

        stranger, alice = open_("wrong"), open_()
        distrustful = KafkaLog(KafkaLog.Config.model_validate({"brokers": broker.brokers, "tls": {}, "timeout": 2}))
        with pytest.raises(ConfigError, match="refused the connection"):
            distrustful.spans("t")
        distrustful.close()
        for use in (lambda: stranger.append("t", 0, [entry(b"a")]), lambda: stranger.spans("t")):
            with pytest.raises(ConfigError, match="refused the connection") as raised:
                use()
            assert "password" in raised.value.fix
        assert "her secret" not in str(raised.value)
        assert "on its topics" in refusal(alice, "on its topics")
        for resource, name, operations, still_missing in (
            (ResourceType.TOPIC, "t", ["CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"], "transactional ids"),
            (ResourceType.TRANSACTIONAL_ID, "headrace-", ["WRITE", "DESCRIBE"], "on its topics"),
        ):
            allow(broker, "alice", resource, name, operations)
            assert still_missing in refusal(alice, still_missing)
        allow(broker, "alice", ResourceType.TOPIC, "t", ["READ", "WRITE"])
        assert refusal(alice, "nothing") == "nothing"
        assert [record.entry.value for record in alice.read("t", 0, EVERYTHING)] == [b"a"]
        stranger.close()
        alice.close()


def refusal(log: KafkaLog, expected: str) -> str:
    """What `append` says is missing; rights that were just granted take a moment to be known."""
    found = "nothing"
    for _ in range(100):
        try:
            log.append("t", 0, [entry(b"a")])
        except ConfigError as error:
            found = error.fix
        else:
            return "nothing"
        if expected in found:
            break
        time.sleep(0.1)
    return found


def allow(broker: Kafka, user: str, resource: ResourceType, name: str, operations: list[str]) -> None:
    kind, permission = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
    acls = [
        AclBinding(resource, name, kind, f"User:{user}", "*", AclOperation[operation], permission)
        for operation in operations
    ]
    admin = AdminClient(broker.client())
    for made in admin.create_acls(acls).values():
        made.result()
