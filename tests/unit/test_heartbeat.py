"""Heartbeats from a source through the log to each flow that takes from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from headrace.capture.base import Event
from headrace.capture.heartbeat import written_heartbeats
from headrace.capture.mask import Masker
from headrace.capture.runner import run_capture
from headrace.errors import Finding, SourceError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog
from headrace.model import SourceConfig
from headrace.retry import Backoff
from headrace.sinks.memory import MemorySink
from headrace.stream.deliver import Delivered, Follower
from headrace.ums.change import HEARTBEAT_KEY, MARK_KEY, Heartbeat, Mark, read_block
from headrace.ums.schema import Namespace, TableSchema

ORDERS = Namespace("mysql", "db1", "shop", "orders", 3)
BEATS = (Heartbeat("db1", None, 7, 1_000), Heartbeat("db1", ORDERS, 8, 2_000))


class Beating:
    """A source that has nothing but these heartbeats, and a mark behind them unless it is in a transaction."""

    def __init__(self, *heartbeats: Heartbeat, mark: Mark | None = None) -> None:
        self._events = [Event([], None, heartbeats=heartbeats)] if heartbeats else []
        self._events.append(Event([], mark or Mark("db1", {"at": 1}, 9, 0), caught_up=True))

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        return iter(())

    def tables(self) -> Sequence[TableSchema]:
        return []

    def follow(self, start: Mark | None) -> Iterator[Event]:
        return iter(self._events)

    def skip(self, newest: Mark, to: str) -> Mark:
        return newest

    def confirm(self, mark: Mark) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DirectoryLog]:
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))
    yield log
    log.close()


def capture(source: Beating, log: DirectoryLog) -> object:
    return run_capture(
        source,
        log,
        "db1",
        Masker(SourceConfig(type="beating", name="db1"), None),
        source_type="mysql",
        over=lambda: True,
        until_idle=True,
        backoff=Backoff(0),
        progress=lambda captured: None,
    )


def delivered(log: DirectoryLog, pattern: str) -> Delivered:
    config = MemorySink.Config(type="memory", name=uuid4().hex)
    flow = FlowSpec.model_validate({"name": "f", "from": pattern, "to": config})
    clock = count().__next__  # a second has passed each time that somebody looks: nothing is waited for
    follower = Follower(lambda: MemorySink(config, "f"), Shaper(flow), log, "db1", 0, start=None, clock=clock)
    follower.run(lambda: True, lambda offset: True, Backoff(0))
    return follower.delivered


def test_it_is_on_the_log_before_a_mark_and_reads_as_it_was(log: DirectoryLog) -> None:
    capture(Beating(*BEATS), log)
    records = list(log.read("db1", 0, log.spans("db1")[0]))
    assert [record.entry.key for record in records] == [HEARTBEAT_KEY, HEARTBEAT_KEY, MARK_KEY]
    assert [read_block(record.entry.value) for record in records[:2]] == list(BEATS)


def test_a_mark_that_is_on_the_log_already_comes_again_behind_a_heartbeat(log: DirectoryLog) -> None:
    mark = Mark("db1", {"at": 1}, 9, 0)
    capture(Beating(mark=mark), log)
    capture(Beating(mark=mark), log)
    assert len(log.spans("db1")[0]) == 1
    source = Beating(mark=mark)
    source._events[0] = Event([], mark, heartbeats=BEATS)
    capture(source, log)
    assert len(log.spans("db1")[0]) == 4


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("mysql.db1.shop.orders", {"db1", "mysql.db1.shop.orders"}),
        ("mysql.db1.shop.customers", {"db1"}),
        ("mysql.db1", {"db1", "mysql.db1.shop.orders"}),
    ],
)
def test_it_reaches_the_flows_that_take_its_table(log: DirectoryLog, pattern: str, paths: set[str]) -> None:
    capture(Beating(*BEATS), log)
    found = delivered(log, pattern).heartbeats
    assert set(found) == paths
    assert found["db1"].sent_us == 1_000
    assert found["db1"].at_us > 10**15, "the time of its arrival is the clock's"


def test_it_has_not_arrived_before_its_mark_is_committed(log: DirectoryLog) -> None:
    log.append("db1", 0, [Entry(HEARTBEAT_KEY, BEATS[0].to_block(), 0)])
    assert delivered(log, "mysql.db1").heartbeats == {}
    log.append("db1", 0, [Entry(MARK_KEY, Mark("db1", {}, 9, 0).to_block(), 0)])
    assert set(delivered(log, "mysql.db1").heartbeats) == {"db1"}


def heartbeat_rows(*rows: tuple[str, str, str, str, int]) -> pa.RecordBatch:
    """Changes of the heartbeat table as (op, source, schema, table, sent)."""
    names = ["_ums_op_", "source", "schema_name", "table_name", "sent_us"]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays([pa.array(range(len(rows)), pa.int64()), *columns], ["_ums_id_", *names])


def test_rows_of_the_table_are_heartbeats_of_this_source_only() -> None:
    rows = heartbeat_rows(
        ("i", "db1", "", "", 5),
        ("u", "db1", "shop", "orders", 6),
        ("u", "db1", "shop", "new", 7),
        ("i", "db2", "shop", "orders", 8),
        ("d", "db1", "shop", "orders", 9),
    )
    assert written_heartbeats("db1", rows, {("shop", "orders"): ORDERS}) == [
        Heartbeat("db1", None, 0, 5),
        Heartbeat("db1", ORDERS, 1, 6),
        Heartbeat("db1", Namespace("mysql", "db1", "shop", "new"), 2, 7),
    ]


def test_another_table_of_that_name_is_refused() -> None:
    rows = heartbeat_rows(("i", "db1", "", "", 5)).drop_columns(["sent_us"])
    with pytest.raises(SourceError, match="lacks the column sent_us"):
        written_heartbeats("db1", rows, {})
