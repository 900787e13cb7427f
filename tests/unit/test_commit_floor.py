"""Commit times behind a proof: none is earlier than it, and the mark says so."""

from __future__ import annotations

import pyarrow as pa

from headrace.capture.base import Event
from headrace.capture.commit_floor import CommitFloor
from headrace.ums.change import ChangeBatch, Clear, Mark
from headrace.ums.schema import COMMIT_TS, ID, OP, TS, Column, Namespace, TableSchema

TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int32(), "int", False),), ("id",))


def event(*times_us: int) -> Event:
    rows = [
        {ID: number + 1, TS: time_us, OP: "i", COMMIT_TS: time_us, "_ums_raw_": None, "id": number}
        for number, time_us in enumerate(times_us)
    ]
    batch = ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, TABLE.arrow_schema()))
    return Event([batch, Clear(TABLE, 99, times_us[-1])], Mark("db1", {}, 99, times_us[-1]))


def times(found: Event) -> tuple[list[int], int, int]:
    batch, clear = found.changes
    assert isinstance(batch, ChangeBatch)
    assert isinstance(clear, Clear)
    assert found.mark is not None
    return batch.data.column(COMMIT_TS).view(pa.int64()).to_pylist(), clear.commit_ts_us, found.mark.commit_ts_us


def test_what_comes_behind_a_proof_is_not_earlier() -> None:
    floor = CommitFloor(5)
    assert times(floor.raised(event(6, 7))) == ([6, 7], 7, 7)
    assert times(floor.prove(floor.raised(event(7, 8)), 20)) == ([7, 8], 8, 20)
    assert times(floor.raised(event(9, 30))) == ([20, 30], 30, 30)
    assert times(floor.raised(event(9, 10))) == ([20, 20], 20, 20)


def test_an_older_proof_changes_nothing() -> None:
    floor = CommitFloor(50)
    assert times(floor.prove(floor.raised(event(60)), 10)) == ([60], 60, 60)
    assert times(floor.raised(event(40))) == ([50], 50, 50)
