"""What is measured at a stage: counts, ages of changes, percentiles, heartbeats."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from headrace.capture.stage import STEPS_MS, Arrival, Passed, Passing, percentile_ms, step_of
from headrace.ums.change import ChangeBatch, Clear, Heartbeat
from headrace.ums.schema import Column, Namespace, TableSchema

TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int64(), "bigint"),), ("id",))
NAME = "mysql.db1.shop.t.0.0.0"


def committed(*times_us: int) -> ChangeBatch:
    """One change per commit time."""
    rows = [
        {"_ums_id_": at, "_ums_ts_": ts, "_ums_op_": "i", "_ums_commit_ts_": ts, "_ums_raw_": None, "id": at}
        for at, ts in enumerate(times_us)
    ]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))


def test_changes_are_counted_when_they_are_through() -> None:
    passing, passed = Passing(), Passed()
    batch = committed(0, 1_000_000, 9_000_000)
    passing.add(batch)
    passing.add(Clear(TABLE, 9, 9_999_000))
    assert passed.rows == {}
    passed.passed(passing, 10_000_000)
    assert passed.rows == {NAME: 4}
    assert passed.bytes == {NAME: batch.data.nbytes}
    assert passed.latency == {NAME: {step_of(10_000): 2, step_of(1_000): 1, step_of(1): 1}}
    assert passed.latency_ms == {NAME: 10_000 + 9_000 + 1_000 + 1}


def test_of_many_changes_every_one_is_counted_and_few_times_are_kept() -> None:
    passing, passed = Passing(), Passed()
    passing.add(committed(*(at * 1000 for at in range(10_007))))
    assert len(list(passing.latencies(0))) == 16
    passed.passed(passing, 10_007_000)
    assert sum(passed.latency[NAME].values()) == 10_007
    assert percentile_ms(passed.latency[NAME], 0.5) == pytest.approx(5_000, rel=0.1)


@pytest.mark.parametrize(
    ("latency", "share", "expected"),
    [
        ({}, 0.5, None),
        ({step_of(7): 1}, 1.0, 10),
        ({step_of(7): 10}, 0.5, 7.5),
        ({step_of(1): 99, step_of(900): 1}, 0.5, 50 / 99),
        ({step_of(1): 99, step_of(900): 1}, 1.0, 1000),
        ({step_of(-5): 1}, 0.5, 0.5),
    ],
)
def test_percentiles(latency: dict[int, int], share: float, expected: float | None) -> None:
    assert percentile_ms(latency, share) == (None if expected is None else pytest.approx(expected))


def test_what_is_later_than_the_last_step_is_unknown_and_not_small() -> None:
    assert percentile_ms(Counter({step_of(STEPS_MS[-1] + 1): 3, step_of(1): 1}), 0.5) is None


def test_a_heartbeat_that_comes_again_was_there_when_it_came_first() -> None:
    passed = Passed()
    for sent_us, at_us in ((100, 150), (200, 260), (100, 900), (200, 900)):
        passing = Passing()
        passing.heartbeats.append(Heartbeat("db1", None, 1, sent_us))
        passed.passed(passing, at_us)
    assert passed.heartbeats == {"db1": Arrival(200, 260)}
