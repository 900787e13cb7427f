"""Rows that wait to become valid, where the log is Kafka, which takes offsets for itself."""

from __future__ import annotations

from pathlib import Path

from headrace.log.kafka import KafkaLog
from headrace.stream.refused import waiting_places
from tests.servers.kafka import Kafka
from tests.unit.test_validity import Leads, order


def test_rows_wait_over_restarts_and_go_on(kafka: Kafka, tmp_path: Path) -> None:
    with kafka.prefix() as prefix:
        leads = Leads(tmp_path, action="alert")
        leads.close()
        leads.log = KafkaLog(KafkaLog.Config(type="kafka", brokers=kafka.brokers, prefix=prefix))
        try:
            leads.segment(2, "gold")
            leads.append(order(1, 10), order(2, 20, customer=2), order(3, 30, customer=3), mark=3)
            leads.deliver()
            leads.append(order(4, 40), order(5, 50, at_us=1), mark=5)
            leads.deliver()
            assert leads.rows() == {20: ("new", "gold")}
            assert leads.waiting() == 3
            assert len(waiting_places(leads.log, "db1", "leads")) == 1
            leads.segment(1, "late")
            leads.deliver()
            assert leads.rows() == {10: ("new", "late"), 20: ("new", "gold"), 40: ("new", "late")}
            leads.append(order(6, 30, "d"), mark=6)
            leads.deliver()
            assert leads.waiting() == 0
        finally:
            leads.close()
