"""A follower on a real embedded log: what it takes, when it commits, what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from headrace.errors import FatalError, RetryableError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.sinks.base import Position
from headrace.sinks.memory import MemorySink
from headrace.stream.deliver import Follower
from headrace.ums.change import MARK_KEY, ChangeBatch, Clear, Mark
from headrace.ums.schema import Column, Namespace, TableSchema

TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int64(), "bigint"),), ("id",))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DirectoryLog]:
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))
    yield log
    log.close()


@pytest.fixture
def store() -> str:
    return uuid4().hex


def batch(*changes: tuple[str, int, int]) -> ChangeBatch:
    """Changes as (op, _ums_id_, key)."""
    rows = [
        {"_ums_id_": id_, "_ums_ts_": id_, "_ums_op_": op, "_ums_commit_ts_": id_, "_ums_raw_": None, "id": key}
        for op, id_, key in changes
    ]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))


def append(log: DirectoryLog, *blocks: ChangeBatch | Clear | int) -> None:
    """Appends changes; a number is a mark with that id."""
    entries = [
        Entry(MARK_KEY, Mark("db1", {"at": block}, block, block).to_block(), 0)
        if isinstance(block, int)
        else Entry(block.key(), block.to_block(), 0)
        for block in blocks
    ]
    log.append("db1", 0, entries)


def follow(log: DirectoryLog, store: str, start: Position | None = None) -> Follower:
    """Delivers what is there."""
    config = MemorySink.Config(type="memory", name=store)
    flow = FlowSpec.model_validate({"name": "f", "from": "mysql.db1", "to": config})
    follower = Follower(lambda: MemorySink(config, "f"), Shaper(flow), log, "db1", 0, start=start)
    follower.run(lambda: True, lambda offset: True, Backoff(0))
    return follower


def live(store: str) -> list[int]:
    rows = MemorySink.stores[store].tables.get("mysql.db1.shop.t", {})
    return sorted(key[0] for key, row in rows.items() if row.is_active)


def test_only_whole_transactions_are_delivered(log: DirectoryLog, store: str) -> None:
    append(log, batch(("i", 1, 1), ("i", 2, 2)), 2)
    append(log, batch(("i", 3, 3)))
    follower = follow_until(log, store, offset=2)
    assert live(store) == [1, 2]
    assert follower.delivered.position == Position("db1", 0, 2, 2, 2)
    append(log, 3)
    follow(log, store)
    assert live(store) == [1, 2, 3]


def follow_until(log: DirectoryLog, store: str, offset: int) -> Follower:
    """Delivers the log as it was when it ended at `offset`."""
    config = MemorySink.Config(type="memory", name=store)
    flow = FlowSpec.model_validate({"name": "f", "from": "mysql.db1", "to": config})
    follower = Follower(lambda: MemorySink(config, "f"), Shaper(flow), log, "db1", 0, start=None)
    asked = iter([False])
    follower.run(lambda: next(asked, True), lambda at: at >= offset, Backoff(0))
    return follower


def test_what_capture_appended_again_is_dropped(log: DirectoryLog, store: str) -> None:
    first = batch(("i", 1, 1), ("u", 2, 1))
    append(log, first)
    append(log, first, batch(("i", 3, 2)), 3)
    follower = follow(log, store)
    assert live(store) == [1, 2]
    assert follower.delivered.rows == {"mysql.db1.shop.t.0.0.0": 3}


def test_a_clear_stands_between_what_was_before_and_after(log: DirectoryLog, store: str) -> None:
    append(log, batch(("i", 1, 1), ("i", 2, 2)), Clear(TABLE, 3, 3), batch(("i", 4, 2)), 4)
    follow(log, store)
    assert live(store) == [2]


def test_another_log_in_its_place_is_refused(log: DirectoryLog, store: str, tmp_path: Path) -> None:
    append(log, batch(("i", 1, 1)), 1)
    append(log, batch(("i", 2, 2)), 2)
    follow(log, store)
    other = DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "other"))
    with pytest.raises(FatalError, match="not the log that the flow has been reading"):
        follow(other, store)
    for id_ in (7, 8, 9):
        append(other, batch(("i", id_, id_)), id_)
    with pytest.raises(FatalError, match="not the log that the flow has been reading"):
        follow(other, store)
    other.close()


def test_an_outage_that_lasts_ends_the_follower(log: DirectoryLog, store: str) -> None:
    class Away(MemorySink):
        def commit(self, position: Position) -> None:
            raise RetryableError("the store is away", fix="start it", retry_after_s=0.01)

    append(log, batch(("i", 1, 1)), 1)
    config = MemorySink.Config(type="memory", name=store)
    flow = FlowSpec.model_validate({"name": "f", "from": "mysql.db1", "to": config})
    follower = Follower(lambda: Away(config, "f"), Shaper(flow), log, "db1", 0, start=None)
    with pytest.raises(RetryableError, match="the store is away"):
        follower.run(lambda: False, lambda offset: False, Backoff(0.2))
    assert follower.delivered.retries > 2
    assert follower.delivered.position is None
