"""The error ledger of a flow whose log is Kafka."""

from __future__ import annotations

from pathlib import Path

from headrace.log.kafka import KafkaLog
from headrace.stream.refused import waiting_places
from headrace.stream.replay import replay
from headrace.testing.sink import ORDERS, batch_of, order
from tests.servers.kafka import Kafka
from tests.unit.test_refused import Store, poison


def test_rows_are_set_aside_and_replayed_beside_the_run(kafka: Kafka, tmp_path: Path) -> None:
    with kafka.prefix() as prefix:
        config = KafkaLog.Config(type="kafka", brokers=kafka.brokers, prefix=prefix)
        store, beside = Store(tmp_path, set_aside=10), KafkaLog(config)
        store.close()
        store.log = KafkaLog(config)
        try:
            store.refuses()
            for first in (2, 5):
                store.append(
                    batch_of(ORDERS, [order(first, 2), poison(first + 1, first), order(first + 2, 9)]), first + 2
                )
                store.deliver()
            assert store.rows() == {2: "by 5", 9: "by 7"}
            assert [row["id"] for row in store.ledger()] == [3, 6]
            store.takes_all()
            assert replay(beside, beside.topics(), store.flow).delivered.total() == 2
            assert not waiting_places(store.log, "db1", "mart")
            assert store.rows() == {2: "by 5", 5: "poison", 9: "by 7"}
            store.forbids()
            store.append(batch_of(ORDERS, [poison(8, 8)]), 8)
            store.deliver()
            assert len(store.ledger()) == 3, "the replay has not fenced the flow"
        finally:
            beside.close()
            store.close()
