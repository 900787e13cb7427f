"""The Kafka log on three real brokers: the leader of its partition goes, then one more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.errors import RetryableError
from headrace.log.base import Span
from headrace.log.kafka import KafkaLog
from headrace.retry import retrying
from tests.faults.kafka_writer import Appender, next_number, unit, value
from tests.servers.kafka import Kafka

COPIES = {
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
    "offsets_topic_replication_factor": "3",
}


@pytest.fixture
def brokers() -> Iterator[list[Kafka]]:
    """Three brokers, of which the first is the controller; topic `t` is led by the second."""
    with ExitStack() as stack:
        first = stack.enter_context(Kafka(**COPIES))
        others = [stack.enter_context(Kafka(joins=first, node=node, **COPIES)) for node in (2, 3)]
        admin = AdminClient(first.client())
        while len(admin.list_topics(timeout=10).brokers) < 3:
            time.sleep(0.05)
        topic = NewTopic("t", num_partitions=1, replica_assignment=[[2, 3, 1]], config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result()
        yield [first, *others]


def test_a_leader_that_goes_takes_nothing_with_it(brokers: list[Kafka]) -> None:
    addresses = ",".join(broker.brokers for broker in brokers)
    config = KafkaLog.Config(brokers=addresses, timeout=3)
    writer, reader = KafkaLog(config), KafkaLog(config)
    appender = Appender(writer)
    appender.wait_for_more(10)
    assert brokers[0].leader("t") == 2
    brokers[1].kill9()
    appender.wait_for_more(10)
    assert brokers[0].leader("t") != 2
    acknowledged = appender.stop()

    brokers[2].kill9()
    with pytest.raises(RetryableError) as raised:
        writer.append("t", 0, unit(next_number_there(reader)))
    assert raised.value.fix
    for broker in brokers[1:]:
        broker.start()
    number = retrying(lambda: next_number(writer), give_up_after_s=60)
    retrying(lambda: writer.append("t", 0, unit(number)), give_up_after_s=60)
    records = list(reader.read("t", 0, Span(0, 1 << 60)))
    assert [record.entry.value for record in records] == [value(at) for at in range(len(records))]
    assert len(records) >= acknowledged
    writer.close()
    reader.close()


def next_number_there(reader: KafkaLog) -> int:
    """The number behind the newest entry, as a reader sees it when a leader is left."""
    return retrying(lambda: next_number(reader), give_up_after_s=30)
