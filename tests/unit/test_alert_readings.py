"""What rules see of pipelines, and what comes of it: over a store and the files of launches, on a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture.changed_tables import ChangedTables
from headrace.capture.log_numbers import LogNumbers
from headrace.capture.position import BinlogPosition
from headrace.control.alerts.book import AlertBook
from headrace.control.alerts.messages import filled, words_of
from headrace.control.alerts.noted import Message, NotedAlerts
from headrace.control.alerts.rules import Rule, Webhook
from headrace.control.alerts.watch import AlertWatch, Seeing
from headrace.control.pipelines import Pipelines
from headrace.control.placement import Local
from headrace.control.places import Places
from headrace.control.runs import Runs
from headrace.control.tables import ControlDatabase
from headrace.control.verifications import Verifications, record
from headrace.flow.load import load
from headrace.stream.surroundings import Surroundings
from headrace.ums.change import Cause, Clear, Statement
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.control import TEST, led, shop

S = 1_000_000


class Plane:
    """A control plane with the running pipeline `shop`, whose process tells what a test says."""

    def __init__(self, database: ControlDatabase, directory: Path) -> None:
        self.now_s = 1_000_000_000.0
        self.database = database
        self.pipelines = Pipelines(database, self.clock)
        self.runs = Runs(database, self.clock)
        self.places = Places(directory, directory / "secrets")
        self.book = AlertBook(database, self.clock)
        self.alerts = NotedAlerts(database, self.runs, self.clock)
        seeing = Seeing(self.runs, self.places, Verifications(database, self.clock))
        self.watch = AlertWatch(self.book, self.alerts, seeing, lambda: None)
        self.pipelines.create("shop", "", Local(), TEST)
        lease, run = led(self.runs, "me"), "a" * 32
        assert self.runs.launching(lease, run, self.pipelines.start("shop", TEST), "host", 1)
        self.runs.running(lease, self.runs.get("shop", run), "host", 7)
        self.places.launch_of("shop", run).create()

    def clock(self) -> float:
        return self.now_s

    def tell(self, *stages: dict[str, Any], **more: Any) -> None:
        told = {"at_us": round(self.now_s * S), "problems": [], "stages": list(stages), **more}
        self.places.launch_of("shop", "a" * 32).tell(told, told)

    def rule(self, name: str, when: dict[str, Any], **options: Any) -> None:
        self.book.put_rule(name, Rule.model_validate({"when": when, "holds_s": 0, "settles_s": 0, **options}), TEST)

    def look(self, later_s: float = 0) -> dict[tuple[str, str], str]:
        """The states of the alerts that are not over, by rule and subject."""
        self.now_s += later_s
        self.watch.look(led(self.runs, "me"))
        return {(alert.rule, alert.subject): alert.state for alert in self.alerts.active()}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    with closing(ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")) as opened:
        opened.open()
        yield Plane(opened, tmp_path)


def stage(name: str = "delivered", flow: str = "mart", **said: Any) -> dict[str, Any]:
    figures = {"lag_ms": 5.0, "latency_p99_ms": 5.0, "silent": False, "failed": 0, "watermark_us": None}
    return {"source": "db1", "stage": name, "flow": flow if name == "delivered" else "", "table": "", **figures, **said}


MART = "flow mart from db1"


@pytest.mark.parametrize(
    ("when", "well", "bad", "subject"),
    [
        ({"kind": "lag", "above_s": 3}, {"lag_ms": 3000.0}, {"lag_ms": 3001.0}, MART),
        ({"kind": "latency", "above_s": 3}, {"latency_p99_ms": 3000.0}, {"latency_p99_ms": 3001.0}, MART),
        ({"kind": "silent"}, {"silent": False}, {"silent": True}, MART),
        ({"kind": "set_aside", "above": 2}, {"failed": 2}, {"failed": 3}, MART),
        ({"kind": "watermark", "above_s": 60}, {"watermark_us": 999_999_940 * S}, {"watermark_us": 999_999_939 * S}, MART),
    ],
)  # fmt: skip
def test_figures_of_stages(plane: Plane, when: dict[str, Any], well: Any, bad: Any, subject: str) -> None:
    plane.rule("r", when)
    plane.tell(stage(**well))
    assert plane.look() == {}
    plane.tell(stage(**bad))
    assert plane.look() == {("r", subject): "firing"}
    plane.tell(stage(**well))
    assert plane.look() == {}
    assert [alert.state for alert in plane.alerts.page(None, before=None, limit=9)] == ["over"]


def test_what_is_not_told_is_not_known(plane: Plane) -> None:
    plane.rule("late", {"kind": "lag", "above_s": 3}, settles_s=60)
    plane.tell(stage(lag_ms=9000.0))
    plane.look()
    plane.tell(stage(lag_ms=None))
    assert plane.look(3600) == {("late", MART): "firing"}, "a lag that is not known has not gone"
    (plane.places.launch_of("shop", "a" * 32).directory / "summary").unlink()
    assert plane.look(3600) == {("late", MART): "firing"}
    plane.tell(stage(flow="other"))
    plane.look()
    assert plane.look(59) == {("late", MART): "firing"}
    assert plane.look(1) == {}, "the flow is not there any more"
    plane.tell(stage(lag_ms=9000.0))
    plane.look()
    plane.pipelines.stop("shop", TEST)
    assert plane.look() == {}, "nothing is expected of what is to stand"


def test_a_rule_is_about_what_it_names(plane: Plane) -> None:
    plane.rule("captured", {"kind": "lag", "above_s": 3, "stage": "captured"})
    plane.rule("flows", {"kind": "lag", "above_s": 3, "stage": "delivered"}, flow="ma*")
    plane.rule("elsewhere", {"kind": "lag", "above_s": 3}, pipeline="other*")
    plane.rule("off", {"kind": "lag", "above_s": 3}, active=False)
    plane.tell(stage("captured", lag_ms=9000.0), stage(lag_ms=9000.0), stage(flow="raw", lag_ms=9000.0))
    assert set(plane.look()) == {("captured", "log of db1"), ("flows", MART)}
    plane.book.remove_rule("flows", TEST)
    assert set(plane.look()) == {("captured", "log of db1")}


def test_states_hosts_disks_and_verifications(plane: Plane) -> None:
    plane.rule("state", {"kind": "state"})
    plane.rule("host", {"kind": "host"})
    plane.rule("disk", {"kind": "disk", "below_percent": 10}, pipeline="shop")
    plane.rule("red", {"kind": "verification"})
    disks = [
        {"path": "/full", "free_bytes": 9, "total_bytes": 100},
        {"path": "/wide", "free_bytes": 10, "total_bytes": 100},
    ]
    gone = [{"name": "logs", "gone": [f"web{number}" for number in range(7)]}, {"name": "flow", "gone": []}]
    plane.tell(problems=["flow mart: away"], disks=disks, watermarks=gone)
    line = {
        "ok": False,
        "took_s": 0.5,
        "problem": "",
        "fix": "",
        "differing_keys": 2,
        "flow": "mart",
        "table": "shop.t",
    }
    with plane.database.transaction() as connection:
        record(connection, "shop", "b" * 32, 7, [line, line | {"table": "shop.u", "ok": True}])
    found = plane.look()
    assert set(found) == {
        ("state", ""),
        ("host", "members of logs"),
        ("disk", "disk /full"),
        ("red", "flow mart, table shop.t"),
    }
    texts = {alert.rule: alert.text for alert in plane.alerts.active()}
    assert texts["state"] == "stalled: flow mart: away"
    assert texts["host"] == "not heard of any more: web0, web1, web2, web3, web4 and 2 more"
    assert texts["red"] == "2 keys differ"


def test_a_changed_table_is_an_alert_for_a_while_and_each_version_is_one(plane: Plane) -> None:
    plane.rule("changed", {"kind": "schema", "within_s": 3600, "table": "shop.*"})
    at_us = round(plane.now_s * S)
    change = {"table": "mysql.db1.shop.orders", "id": 7, "at_us": at_us, "became": "version 3", "what": "note added"}
    elsewhere = {**change, "table": "mysql.db1.other.orders"}
    plane.tell(changed_tables=[change, elsewhere])
    assert plane.look() == {("changed", "table mysql.db1.shop.orders, version 3"): "firing"}
    assert plane.alerts.active()[0].text == "note added"
    plane.tell(changed_tables=[{**change, "id": 9, "became": "version 4", "at_us": at_us + 600 * S}])
    assert plane.look(600) == {("changed", "table mysql.db1.shop.orders, version 4"): "firing"}
    assert set(plane.look(3599).values()) == {"firing"}
    assert plane.look(1) == {}


def test_a_number_that_fell_is_an_alert_for_a_while_and_a_loss_until_capture_goes_on(plane: Plane) -> None:
    plane.rule("numbers", {"kind": "log_number", "within_s": 3600})
    fell = {"at_us": round(plane.now_s * S), "text": "it fell"}
    log = {"source": "db1", "fell": None, "lost": None}
    plane.tell(log_numbers=[log])
    assert plane.look() == {}
    plane.tell(log_numbers=[{**log, "fell": fell}])
    assert plane.look(3599) == {("numbers", "source db1"): "firing"}
    plane.tell(log_numbers=[{**log, "fell": fell, "lost": {"at_us": 0, "text": "it is lost"}}])
    assert plane.look(1) == {("numbers", "source db1"): "firing"}
    assert plane.alerts.active()[0].text == "it fell", "an alert's figures change without its being kept anew"
    plane.tell(log_numbers=[{**log, "fell": fell}])
    assert plane.look() == {}


def test_an_alert_is_told_when_it_has_held_for_long_enough(plane: Plane) -> None:
    plane.rule("late", {"kind": "lag", "above_s": 3}, holds_s=30)
    plane.tell(stage(lag_ms=9000.0))
    assert plane.look() == {("late", MART): "pending"}
    plane.tell(stage())
    assert plane.look(29) == {}
    plane.tell(stage(lag_ms=9000.0))
    plane.look()
    assert plane.look(30) == {("late", MART): "firing"}
    assert len(plane.alerts.page(None, before=None, limit=9)) == 1


def test_a_run_tells_of_its_disks(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(shop())
    surroundings = Surroundings(load(tmp_path / "flow.yaml"))
    surroundings.look()
    [disk] = surroundings.told["disks"]
    assert disk["path"] == str(tmp_path / "state")
    assert 0 <= disk["free_bytes"] <= disk["total_bytes"]
    assert surroundings.told["watermarks"] == []
    assert surroundings.told["changed_tables"] == []
    assert surroundings.told["log_numbers"] == [{"source": "db1", "fell": None, "lost": None}]
    state = tmp_path / "state" / "sources" / "db1"
    table = TableSchema(Namespace("mysql", "db1", "shop", "orders"), (Column("id", pa.int32(), "int"),))
    ChangedTables(state, lambda: 5).note([Clear(table, 7, 0, Cause.DROPPED, Statement("DROP TABLE orders", "b.1:4"))])
    numbers = LogNumbers(state, lambda: 6)
    numbers.begin(BinlogPosition("b.000012", 4, server="one"))
    numbers.ends_at(BinlogPosition("b.000002", 4, server="two"))
    surroundings.look()
    change = {"id": 7, "at_us": 5 * S, "became": "dropped", "what": "b.1:4: DROP TABLE orders"}
    assert surroundings.told["changed_tables"] == [{"table": "mysql.db1.shop.orders", **change}]
    [told] = surroundings.told["log_numbers"]
    assert told["fell"]["text"] == (
        "the number of the server's log file fell from b.000012 to b.000002; two answers, not one"
    )


def test_placeholders_are_filled_in_without_breaking_what_they_stand_in(plane: Plane) -> None:
    plane.book.put_channel("chat", Webhook(kind="webhook", url="https://chat.example.org/"), TEST)
    plane.rule("late", {"kind": "lag", "above_s": 3}, to=["chat"], note='say "{title}"')
    plane.tell(stage(lag_ms=9000.0))
    plane.look()
    message = plane.alerts.take(led(plane.runs, "me"), "chat")
    assert isinstance(message, Message)
    words = words_of(message)
    body = filled(
        {"text": "{severity}: {title} {nothing} {text}", "n": 5, "all": ["{alerts}", "{count}"]}, words.fields
    )
    assert isinstance(body, dict)
    assert body["text"] == f"warning: {words.title} {{nothing}} {words.text}"
    assert 'What to do: say "{title}"' in words.text
    assert body["all"] == [words.fields["alerts"], 1]
