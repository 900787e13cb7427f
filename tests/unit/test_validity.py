"""Rows that lack what `validity` of a flow checks: they wait on the log, go on when they are valid, and are dropped, sent or set aside when their time is
over; on a real embedded log, with a lookup and a target in SQLite."""

from __future__ import annotations

import itertools
import sqlite3
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.compute.validity import Validity
from headrace.errors import ConfigError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.stream.deliver import Follower
from headrace.stream.parts import open_transform, sink_opener
from headrace.stream.refused import waiting_places
from headrace.stream.replay import replay
from headrace.stream.waiting import Waiting, waiting_topic
from headrace.ums.change import MARK_KEY, ChangeBatch, Clear, End, Mark
from tests.sql_tables import ORDERS, Row, batch, table
from tests.unit.test_refused import LookedInto

LONG = "1h"


class Leads:
    """Orders on a log, segments of customers in a store beside, a flow that looks them up, and its target."""

    def __init__(self, directory: Path, *, key: bool = True, flow: Row | None = None, **validity: Any) -> None:
        self.crm = directory / "crm.db"
        self.mart = directory / "mart.db"
        self.log: LookedInto = DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))
        store = {"type": "database", "url": f"sqlite:///{self.crm}", "table": "segments"}
        said = {
            "name": "leads",
            "from": "mysql.db1",
            "steps": [{"do": "lookup", "from": store, "on": {"customer": "id"}, "take": {"segment": "text"}}],
            "validity": {"check": ["segment"], "timeout": LONG, "action": "drop", **validity},
            "to": {"type": "database", "url": f"sqlite:///{self.mart}"},
        }
        self.flow = FlowSpec.model_validate(said | (flow or {}))
        self.run(self.crm, "CREATE TABLE IF NOT EXISTS segments (id INTEGER PRIMARY KEY, segment TEXT)")

    def run(self, path: Path, statement: str) -> list[Any]:
        with sqlite3.connect(path) as connection:
            found = connection.execute(statement).fetchall()
        connection.close()
        return found

    def segment(self, customer: int, name: str) -> None:
        """The dimension's row has come."""
        self.run(self.crm, f"INSERT OR REPLACE INTO segments VALUES ({customer}, '{name}')")

    def append(self, *changes: ChangeBatch | Clear | End, mark: int) -> None:
        marked = Entry(MARK_KEY, Mark("db1", {}, mark, mark).to_block(), 0)
        self.log.append("db1", 0, [*(Entry(one.key(), one.to_block(), 0) for one in changes), marked])

    def follower(self) -> Follower:
        return Follower(sink_opener(self.flow), Shaper(self.flow), self.log, "db1", 0, start=None)

    def deliver(self) -> Follower:
        """Delivers what is there, and looks once at what waits."""
        follower = self.follower()
        follower.run(lambda: False, lambda offset: offset >= self.log.spans("db1")[0].stop, Backoff(0))
        return follower

    def rows(self) -> dict[int, tuple[str | None, str | None]]:
        if not self.run(self.mart, "SELECT * FROM sqlite_master WHERE name = 'orders'"):
            return {}
        found = self.run(self.mart, "SELECT id, status, segment FROM orders WHERE _is_active_ = 1 ORDER BY id")
        return {id_: (status, segment) for id_, status, segment in found}

    def waiting(self) -> int:
        """How many rows wait by what the log says."""
        waiting = Waiting(Shaper(self.flow), self.log, "db1", 0)
        waiting.open()
        return len(waiting)

    def close(self) -> None:
        self.log.close()


def now_us() -> int:
    return time.time_ns() // 1000


def order(id_: int, key: int, op: str = "i", *, customer: int = 1, status: str = "new", at_us: int = 0) -> ChangeBatch:
    """A change, committed now unless it is said when."""
    made = batch(ORDERS, [(id_, op, {"id": key, "customer": customer, "status": status})])
    times = pa.array([at_us or now_us()], pa.timestamp("us"))
    at = made.data.schema.get_field_index("_ums_commit_ts_")
    return ChangeBatch(
        ORDERS, made.data.set_column(at, made.data.schema.field(at), times.cast(made.data.schema.field(at).type))
    )


def test_a_row_waits_for_what_it_lacks_and_others_pass_it(tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.segment(2, "gold")
    leads.append(order(1, 10), order(2, 20, customer=2), mark=2)
    follower = leads.deliver()
    assert leads.rows() == {20: ("new", "gold")}
    assert (follower.delivered.waiting, leads.waiting()) == (1, 1)
    assert follower.delivered.rows.total() == 1, "what waits has not been delivered"
    assert "1 rows still wait for segment" in follower.delivered.notices[0]
    leads.segment(1, "late")
    follower = leads.deliver()
    assert leads.rows() == {10: ("new", "late"), 20: ("new", "gold")}
    assert (follower.delivered.waiting, leads.waiting()) == (0, 0)
    assert not follower.delivered.overdue
    leads.close()


def test_nothing_has_passed_that_waits(tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.append(order(1, 10, customer=2), mark=1)
    leads.segment(2, "gold")
    leads.deliver()
    leads.append(order(2, 20), mark=2)
    leads.deliver()
    waiting = Waiting(Shaper(leads.flow), leads.log, "db1", 0)
    waiting.open()
    assert waiting.passed(4) == 2, "a watermark stays before the transaction whose row waits"
    leads.segment(1, "late")
    leads.deliver()
    waiting.open()
    assert waiting.passed(4) == 4
    leads.close()


def test_what_is_looked_at_again_is_asked_of_the_store_whatever_it_said_before(tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.append(order(1, 10), mark=1)
    follower = leads.follower()

    def over() -> bool:
        if leads.waiting() == 1:
            leads.segment(1, "late")
        return bool(leads.rows())

    follower.run(over, lambda offset: False, Backoff(0))
    assert leads.rows() == {10: ("new", "late")}
    leads.close()


@pytest.mark.parametrize("action", ["drop", "send", "alert"])
def test_what_becomes_of_a_row_whose_time_is_over(action: str, tmp_path: Path) -> None:
    leads = Leads(tmp_path, action=action, timeout="5s")
    leads.segment(2, "gold")
    leads.append(order(1, 10, customer=2), order(2, 20, at_us=1), mark=2)
    leads.append(order(3, 10, "u", at_us=2), mark=3)
    follower = leads.deliver()
    assert sum(follower.delivered.overdue.values()) == 2
    if action == "drop":
        assert leads.rows() == {}, "the order that was there has left the target, as by a filter"
        assert "were left out" in follower.delivered.notices[0]
    elif action == "send":
        assert leads.rows() == {10: ("new", None), 20: ("new", None)}
        assert "were delivered as they were" in follower.delivered.notices[0]
    else:
        assert leads.rows() == {10: ("new", "gold")}
        assert follower.delivered.failed.total() == 2
        assert len(waiting_places(leads.log, "db1", "leads")) == 2
        done = replay(leads.log, leads.log.topics(), leads.flow)
        assert len(done.refused) == 2
        assert "it lacks segment" in done.refused[0]
        leads.segment(1, "late")
        assert replay(leads.log, leads.log.topics(), leads.flow).delivered.total() == 2
        assert leads.rows() == {10: ("new", "late"), 20: ("new", "late")}
        assert not waiting_places(leads.log, "db1", "leads")
    assert leads.waiting() == 0
    assert leads.deliver().delivered.overdue.total() == 0, "each is counted once"
    leads.close()


def test_without_a_timeout_nothing_is_kept(tmp_path: Path) -> None:
    leads = Leads(tmp_path, timeout=0)
    leads.append(order(1, 10), mark=1)
    assert leads.deliver().delivered.overdue.total() == 1
    assert waiting_topic("db1", "leads") not in leads.log.topics()
    leads.close()


@pytest.mark.parametrize("is_delivered_between", [False, True])
def test_a_later_change_takes_the_place_of_one_that_waits(is_delivered_between: bool, tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.segment(2, "gold")
    leads.append(order(1, 10), order(2, 20), order(3, 30), order(4, 40), mark=4)
    if is_delivered_between:
        leads.deliver()
    leads.append(order(5, 10, "u", customer=2, status="paid"), mark=5)
    leads.append(order(6, 20, "d"), order(7, 30, "u", status="paid"), mark=7)
    leads.deliver()
    assert leads.rows() == {10: ("paid", "gold")}
    assert leads.waiting() == 2
    leads.segment(1, "late")
    leads.deliver()
    assert leads.rows() == {10: ("paid", "gold"), 30: ("paid", "late"), 40: ("new", "late")}
    leads.close()


def test_a_row_that_changes_all_the_time_is_not_put_off_for_ever(tmp_path: Path) -> None:
    leads = Leads(tmp_path, timeout="10m")
    leads.append(order(1, 10, at_us=now_us() - 500_000_000), mark=1)
    leads.deliver()
    assert leads.waiting() == 1
    leads.append(order(2, 10, "u"), mark=2)
    waiting = Waiting(Shaper(leads.flow), leads.log, "db1", 0, clock=lambda: time.time() + 200)
    follower = leads.follower()
    follower._waiting = waiting
    follower.run(lambda: False, lambda offset: offset >= leads.log.spans("db1")[0].stop, Backoff(0))
    assert follower.delivered.overdue.total() == 1
    leads.close()


def test_rows_of_a_table_that_is_emptied_wait_no_more(tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.append(order(1, 10), mark=1)
    leads.deliver()
    leads.append(Clear(ORDERS, 2, 2), order(3, 20), mark=3)
    leads.deliver()
    leads.segment(1, "late")
    leads.deliver()
    assert leads.rows() == {20: ("new", "late")}
    leads.close()


def test_no_more_wait_than_may(tmp_path: Path) -> None:
    leads = Leads(tmp_path, rows=3)
    for number in range(1, 5):
        leads.append(order(number, number), mark=number)
    leads.deliver()
    for number in range(5, 11):
        leads.append(order(number, number), mark=number)
    looks = itertools.count()
    leads.follower().run(lambda: next(looks) > 20, lambda offset: False, Backoff(0))
    assert leads.waiting() == 4, "the others are not read"
    leads.segment(1, "late")
    leads.follower().run(lambda: len(leads.rows()) == 10, lambda offset: False, Backoff(0))
    assert leads.waiting() == 0
    leads.close()


def test_the_flow_file_of_the_day_computes_a_row_that_has_waited(tmp_path: Path) -> None:
    leads = Leads(tmp_path, flow={"columns": {"rename": {"status": "state"}}})
    leads.append(order(1, 10), mark=1)
    leads.deliver()
    leads.close()
    leads = Leads(tmp_path)
    leads.segment(1, "late")
    leads.deliver()
    assert leads.run(leads.mart, "SELECT id, segment FROM orders WHERE _is_active_ = 1") == [(10, "late")]
    leads.close()


def test_a_row_of_a_version_before_goes_into_the_table_as_it_is_now(tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.segment(2, "gold")
    leads.append(order(1, 10), order(2, 20, customer=2), mark=2)
    leads.deliver()
    noted = table("orders", *((c.name, c.type) for c in ORDERS.columns), ("note", pa.utf8()), version=1)
    later = batch(noted, [(4, "i", {"id": 30, "customer": 2, "status": "new", "note": "a note"})])
    leads.append(End(ORDERS, noted, 3, 3), later, mark=4)
    leads.deliver()
    leads.segment(1, "late")
    leads.deliver()
    found = leads.run(leads.mart, "SELECT id, segment, note FROM orders WHERE _is_active_ = 1 ORDER BY id")
    assert found == [(10, "late", None), (20, "gold", None), (30, "gold", "a note")]
    leads.close()


def test_without_steps_the_columns_that_come_are_checked(tmp_path: Path) -> None:
    leads = Leads(tmp_path, flow={"steps": []}, check=["amount", "placed"], require="any", timeout=0, action="drop")
    rows = [{"id": 1, "amount": 5}, {"id": 2, "placed": 5}, {"id": 3}]
    leads.append(batch(ORDERS, [(number, "i", row) for number, row in enumerate(rows, 1)]), mark=3)
    leads.deliver()
    assert leads.run(leads.mart, "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
    leads.close()


def test_a_row_that_the_target_refuses_when_it_is_valid_goes_to_the_error_ledger(tmp_path: Path) -> None:
    leads = Leads(tmp_path, flow={"set_aside": 10})
    leads.segment(2, "gold")
    leads.append(order(1, 10), order(2, 20, customer=2), mark=2)
    leads.deliver()
    leads.run(
        leads.mart,
        "CREATE TRIGGER rule BEFORE INSERT ON orders WHEN NEW.segment = 'bad' BEGIN SELECT RAISE(ABORT, 'against the rule'); END",
    )
    leads.segment(1, "bad")
    follower = leads.deliver()
    assert follower.delivered.failed.total() == 1
    assert (leads.waiting(), len(waiting_places(leads.log, "db1", "leads"))) == (0, 1)
    leads.run(leads.mart, "DROP TRIGGER rule")
    assert replay(leads.log, leads.log.topics(), leads.flow).delivered.total() == 1
    assert leads.rows() == {10: ("new", "bad"), 20: ("new", "gold")}
    leads.close()


def test_a_column_that_does_not_come_out_is_told(tmp_path: Path) -> None:
    leads = Leads(tmp_path, check=["rank"])
    transform = open_transform(leads.flow)
    assert transform is not None
    with pytest.raises(ConfigError, match="checks the column rank") as caught:
        transform.table(ORDERS)
    assert "segment" in caught.value.fix
    leads.close()


@pytest.mark.parametrize("said", [{"check": []}, {"action": "keep"}, {"timeout": "-1s"}, {"rows": 0}])
def test_what_the_flow_file_may_not_say(said: Row) -> None:
    with pytest.raises(ValidationError):
        Validity.model_validate({"check": ["a"], "action": "drop", **said})
