"""Rows that a target refuses: found, set aside, delivered again; on a real embedded log, with a store that has a rule of its own."""

from __future__ import annotations

import json
import math
import random
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headrace import registry
from headrace.cli.error_ledger import errors
from headrace.codec.error_ledger import LedgerName, entries_of, found_in, row_of
from headrace.errors import DataError, RetryableError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry, Inspectable, Log, Span
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.sinks.base import Position, Sink
from headrace.sinks.memory import MemorySink
from headrace.stream.deliver import Follower
from headrace.stream.pace import Pace
from headrace.stream.refused import Part, Place, refused, waiting_places
from headrace.stream.replay import replay
from headrace.testing.sink import ORDERS, TYPES, Change, batch_of, order
from headrace.ums.change import MARK_KEY, ChangeBatch, Clear, Mark
from headrace.ums.schema import Column, Namespace, TableSchema


class LookedInto(Log, Inspectable, Protocol):
    """A log that says what is on it."""


class Store:
    """A SQLite file whose table refuses rows, a log, and a flow between them."""

    def __init__(self, directory: Path, **flow: Any) -> None:
        self.path = directory / "mart.db"
        self.log_path = directory / "log"
        self.log: LookedInto = DirectoryLog(DirectoryLog.Config(type="directory", path=self.log_path))
        self.flow = FlowSpec.model_validate(
            {
                "name": "mart",
                "from": "mysql.db1",
                "to": {"type": "database", "url": f"sqlite:///{self.path}"},
                **flow,
            }
        )
        self.file = directory / "flow.yaml"
        self.file.write_text(
            f"source: {{type: mysql, name: db1, tables: ['*.*'], files: {directory}/b.*}}\nlog: {{type: directory, path: {self.log_path}}}\n"
            f"state: {directory}/state\nflows:\n  - {{name: mart, from: mysql.db1, to: {{type: database, url: 'sqlite:///{self.path}'}}}}\n"
        )

    def refuses(self) -> None:
        """The target is there, and takes no row with poison in it."""
        self.append(batch_of(ORDERS, [order(1, 1)]), 1)
        self.deliver()
        self.run("DELETE FROM orders")
        self.forbids()

    def forbids(self) -> None:
        """The target's owner makes the rule."""
        self.run(
            "CREATE TRIGGER rule BEFORE INSERT ON orders WHEN NEW.note = 'poison' BEGIN SELECT RAISE(ABORT, 'against the rule'); END"
        )

    def takes_all(self) -> None:
        """The target's owner has repaired it."""
        self.run("DROP TRIGGER rule")

    def run(self, *statements: str) -> list[Any]:
        with sqlite3.connect(self.path) as connection:
            found = [connection.execute(statement).fetchall() for statement in statements]
        connection.close()
        return found[-1]

    def append(self, *found: ChangeBatch | Clear | int, topic: str = "db1") -> None:
        entries = [
            Entry(MARK_KEY, Mark("db1", {}, one, one).to_block(), 0)
            if isinstance(one, int)
            else Entry(one.key(), one.to_block(), 0)
            for one in found
        ]
        self.log.append(topic, 0, entries)

    def open(self) -> Sink:
        sink: Sink = registry.load("sinks", self.flow.to.type)(self.flow.target(), self.flow.name)
        return sink

    def deliver(self) -> Follower:
        follower = Follower(self.open, Shaper(self.flow), self.log, "db1", 0, start=None)
        follower.run(lambda: False, lambda offset: offset >= self.log.spans("db1")[0].stop, Backoff(0))
        return follower

    def rows(self) -> dict[int, str]:
        return dict(self.run("SELECT id, note FROM orders WHERE _is_active_ = 1 ORDER BY id"))

    def ledger(self) -> list[dict[str, Any]]:
        return list(found_in(self.log, "db1.errors.mart"))

    def close(self) -> None:
        self.log.close()


def poison(change_id: int, key: int) -> Change:
    return order(change_id, key, note="poison")


# --- found by halving


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_every_refused_row_is_found_and_no_other_whatever_the_parts(sizes: list[int], data: st.DataObject) -> None:
    total = sum(sizes)
    bad = data.draw(st.sets(st.integers(0, total - 1), max_size=6))
    tried = []

    class Picky(MemorySink):
        def flush(self) -> None:
            keys = [key for change in self._pending for key in change.data.column("id").to_pylist()]  # type: ignore[union-attr]
            tried.append(len(keys))
            if bad.intersection(keys):
                raise DataError("no", fix="-")

    parts, first = [], 0
    for size in sizes:
        batch = batch_of(ORDERS, [order(key + 1, key) for key in range(first, first + size)])
        parts.append(Part([Place(0, len(parts), number) for number in range(size)], batch, batch))
        first += size
    config = MemorySink.Config(type="memory", name="refused")
    found = list(refused(parts, lambda: Picky(config, "f")))
    assert [one.row.shaped.data.column("id")[0].as_py() for one in found] == sorted(bad)
    assert [(place.offset, place.number) for one in found for place in one.row.places] == [
        next((at, key - sum(sizes[:at])) for at in range(len(sizes)) if key < sum(sizes[: at + 1]))
        for key in sorted(bad)
    ]
    assert len(tried) <= 1 + 2 * len(bad) * math.ceil(math.log2(total) if total > 1 else 1)


# --- stop


def test_a_flow_stops_at_a_refused_row_and_names_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.refuses()
    store.append(batch_of(ORDERS, [order(n, n) for n in range(2, 40)]), batch_of(ORDERS, [poison(40, 777)]), 40)
    for _ in range(2):
        with pytest.raises(DataError, match=r"table shop\.orders, row with id=777: .*against the rule"):
            store.deliver()
        assert store.rows() == {}
        assert store.ledger() == []
    store.takes_all()
    store.deliver()
    assert len(store.rows()) == 39
    store.close()


def test_what_is_refused_only_together_stops_the_flow(tmp_path: Path) -> None:
    class Together(MemorySink):
        def commit(self, position: Position) -> None:
            if len(self._pending) and sum(map(len, self._pending)) > 1:
                raise DataError("both are too many", fix="-")
            super().commit(position)

    store = Store(tmp_path, set_aside=100)
    store.append(batch_of(ORDERS, [order(1, 1), order(2, 2)]), 2)
    config = MemorySink.Config(type="memory", name="together")
    follower = Follower(lambda: Together(config, "f"), Shaper(store.flow), store.log, "db1", 0, start=None)
    with pytest.raises(DataError, match="both are too many"):
        follower.run(lambda: True, lambda offset: True, Backoff(0))
    assert store.ledger() == []
    store.close()


# --- set aside


def test_the_others_go_on_and_the_row_is_in_the_ledger(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=2)
    store.refuses()
    store.append(batch_of(ORDERS, [order(2, 2), poison(3, 3), order(4, 4)]), 4)
    store.append(batch_of(ORDERS, [order(5, 5), poison(6, 6)]), batch_of(ORDERS, [order(7, 7)]), 7)
    follower = store.deliver()
    assert store.rows() == {2: "by 2", 4: "by 4", 5: "by 5", 7: "by 7"}
    assert follower.delivered.failed == {"mysql.db1.shop.orders.0.0.0": 2}
    assert follower.delivered.position is not None
    assert follower.delivered.position.id == 7
    assert "refused 2 rows of mysql.db1.shop.orders.0.0.0" in follower.delivered.notices[0]
    first, second = store.ledger()
    assert (first["id"], first["flow"], first["partition"], first["offset"], first["number"]) == (3, "mart", 0, 2, 1)
    assert "against the rule" in first["reason"]
    row = row_of(second)
    assert row.data.equals(batch_of(ORDERS, [poison(6, 6)]).data)
    store.deliver()
    assert len(store.ledger()) == 2, "behind the commit nothing is read again"
    store.close()


def test_one_more_than_allowed_stops_the_flow_and_loses_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=2)
    store.refuses()
    store.append(batch_of(ORDERS, [poison(2, 2), order(3, 3), poison(4, 4), poison(5, 5)]), 5)
    for _ in range(2):
        with pytest.raises(
            DataError,
            match=r"refuses more rows than `set_aside` allows, of which one is table shop\.orders, row with id=5",
        ):
            store.deliver()
    assert store.rows() == {}
    assert store.ledger() == []
    store.takes_all()
    store.deliver()
    assert store.rows() == {2: "poison", 3: "by 3", 4: "poison", 5: "poison"}


def test_rows_that_wait_count_until_they_are_replayed(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=2)
    store.refuses()
    store.append(batch_of(ORDERS, [poison(2, 2), poison(3, 3)]), 3)
    store.deliver()
    store.append(batch_of(ORDERS, [poison(4, 4)]), 4)
    with pytest.raises(DataError, match="row with id=4"):
        store.deliver()
    store.takes_all()
    replay(store.log, store.log.topics(), store.flow)
    store.forbids()
    store.deliver()
    assert [row["id"] for row in store.ledger()] == [2, 3, 4]
    store.close()


def test_a_share_of_the_rows_may_be_set_aside(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside="0.02%")
    store.refuses()
    store.append(batch_of(ORDERS, [poison(2, 2), poison(3, 3)]), 3)
    store.deliver()
    store.append(batch_of(ORDERS, [poison(n, n) for n in (4, 5, 6)]), 6)
    with pytest.raises(DataError, match="more rows than `set_aside` allows"):
        store.deliver()
    store.close()


@pytest.mark.parametrize("wrong", [0, -1, "x", "0%", "101%", {}, {"rows": 0}, "%"])
def test_wrong_policies_are_told(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="set_aside"):
        Store(tmp_path, set_aside=wrong)


def test_a_table_that_cannot_be_prepared_is_not_taken_for_refused_rows(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=100, on_change="fail")
    store.append(batch_of(ORDERS, [order(1, 1)]), 1)
    store.deliver()
    wider = TableSchema(
        ORDERS.namespace, (*ORDERS.columns, Column("size", pa.int32(), "int")), ORDERS.key
    ).with_version(1)
    store.append(batch_of(wider, [order(2, 2)]), 2)
    with pytest.raises(DataError, match="has column"):
        store.deliver()
    assert store.ledger() == []
    store.close()


def test_an_outage_while_rows_are_searched_is_waited_out(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=5)
    store.refuses()
    store.append(batch_of(ORDERS, [order(2, 2), poison(3, 3), order(4, 4)]), 4)
    attempts = iter([None, RetryableError("away", fix="-", retry_after_s=0.01), RetryableError("away", fix="-")])

    class Flaky(type(store.open())):  # type: ignore[misc]
        def prepare(self, table: TableSchema) -> None:
            if (error := next(attempts, None)) is not None:
                raise error
            super().prepare(table)

    follower = Follower(lambda: Flaky(store.flow.target(), "mart"), Shaper(store.flow), store.log, "db1", 0, start=None)
    asked = iter([False] * 60)
    follower.run(lambda: next(asked, True), lambda offset: True, Backoff(30))
    assert follower.delivered.retries == 2
    assert store.rows() == {2: "by 2", 4: "by 4"}
    assert [row["id"] for row in store.ledger()] == [3]
    store.close()


# --- what comes later


def test_a_later_change_of_the_key_is_neither_lost_nor_overtaken(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=10)
    store.refuses()
    store.append(batch_of(ORDERS, [order(2, 1), order(3, 2), order(4, 3), order(5, 4)]), 5)
    store.append(batch_of(ORDERS, [poison(6, 1), poison(7, 2), poison(8, 3), poison(9, 5)]), 9)
    store.deliver()
    store.append(batch_of(ORDERS, [order(10, 1, "u"), order(11, 2, "d")]), 11)
    store.append(batch_of(ORDERS, [poison(12, 3)]), 12)
    store.deliver()
    assert store.rows() == {1: "by 10", 3: "by 4", 4: "by 5"}
    store.takes_all()
    done = replay(store.log, store.log.topics(), store.flow)
    assert done.delivered == {"mysql.db1.shop.orders.0.0.0": 5}
    assert store.rows() == {1: "by 10", 3: "poison", 4: "by 5", 5: "poison"}
    assert dict(store.run("SELECT id, _ums_id_ FROM orders")) == {1: 10, 2: 11, 3: 12, 4: 5, 5: 9}
    assert waiting_places(store.log, "db1", "mart") == set()
    assert replay(store.log, store.log.topics(), store.flow).delivered == {}
    store.append(batch_of(ORDERS, [order(13, 5, "d")]), 13)
    store.deliver()
    assert store.rows() == {1: "by 10", 3: "poison", 4: "by 5"}
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_any_history_ends_as_if_nothing_had_been_refused(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    store = Store(tmp_path, set_aside=1000)
    store.refuses()
    expected: dict[int, str] = {}
    for first in range(2, 122, 12):
        changes = []
        for change_id in range(first, first + 12):
            key = chance.randrange(6)
            op = "d" if key in expected and chance.random() < 0.2 else "u"
            changes.append(order(change_id, key, op, note="poison" if chance.random() < 0.3 else None))
            expected.pop(key, None)
            if op != "d":
                expected[key] = str(changes[-1].values["note"])
        cut = chance.randint(1, 11)
        store.append(batch_of(ORDERS, changes[:cut]), batch_of(ORDERS, changes[cut:]), first + 11)
        if chance.random() < 0.7:
            store.deliver()
    store.deliver()
    store.takes_all()
    assert not replay(store.log, store.log.topics(), store.flow).refused
    assert store.rows() == dict(sorted(expected.items()))
    store.close()


def test_a_replay_beside_a_run_disturbs_neither(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=10)
    store.refuses()
    store.append(batch_of(ORDERS, [poison(2, 2)]), 2)
    store.deliver()
    store.takes_all()
    beside = DirectoryLog(DirectoryLog.Config(type="directory", path=store.log_path))
    assert replay(beside, beside.topics(), store.flow).delivered.total() == 1
    store.forbids()
    store.append(batch_of(ORDERS, [poison(3, 3), order(4, 4)]), 4)
    store.deliver()
    assert [row["id"] for row in store.ledger()] == [2, 3]
    store.takes_all()
    assert replay(beside, beside.topics(), store.flow).delivered.total() == 1
    beside.close()
    assert store.rows() == {2: "poison", 3: "poison", 4: "by 4"}
    store.close()


def test_what_is_still_refused_stays_in_the_ledger(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=10)
    store.refuses()
    store.append(batch_of(ORDERS, [poison(2, 2), order(3, 3, note="x" * 9)]), 3)
    store.deliver()
    done = replay(store.log, store.log.topics(), store.flow)
    assert done.delivered == {}
    assert len(done.refused) == 1
    assert "row with id=2" in done.refused[0]
    assert waiting_places(store.log, "db1", "mart") == {Place(0, 2, 0)}
    store.close()


# --- the command line, the form


def test_errors_are_listed_shown_and_replayed(tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=10)
    store.refuses()
    store.append(batch_of(ORDERS, [poison(2, 2), order(3, 3), poison(4, 4)]), 4)
    store.deliver()
    store.close()
    run = CliRunner().invoke
    listed = run(errors, ["ls", str(store.log_path)]).output
    assert listed.startswith("mysql.db1.shop.orders.0.0.0  flow mart  ")
    assert listed.endswith("2 rows\n")
    [shown, _] = map(json.loads, run(errors, ["show", str(store.log_path), "db1"]).output.splitlines())
    assert (shown["id"], shown["delivered"], shown["row"]["payload"][0]["tuple"][-2]) == (2, False, "poison")
    told = json.loads(run(errors, ["replay", str(store.file), "--json"]).output)
    assert (told["flow"], told["delivered"], len(told["refused"])) == ("mart", {}, 2)
    failed = run(errors, ["replay", str(store.file), "--flow", "mart"])
    assert failed.exit_code == 1
    assert "still refused: table shop.orders, row with id=2" in failed.stderr
    store.takes_all()
    assert run(errors, ["replay", str(store.file)]).output == "mart: 2 rows of mysql.db1.shop.orders.0.0.0 delivered\n"
    assert store.rows() == {2: "poison", 3: "by 3", 4: "poison"}
    counted = json.loads(run(errors, ["ls", str(store.log_path), "--json"]).output)
    assert (counted["rows"], counted["delivered"]) == (2, 2)
    for wrong in (["ls", str(store.log_path), "db2"], ["show", str(store.log_path), "--flow", "x"]):
        assert "has no error ledger of" in str(run(errors, wrong).exception)
    assert "has no flow x" in str(run(errors, ["replay", str(store.file), "--flow", "x"]).exception)


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_every_type_come_back_out_of_the_ledger(kind: str) -> None:
    source_type, values = TYPES[kind]
    columns = (Column("id", pa.int64(), "bigint"), Column("value", values.type, source_type))
    table = TableSchema(Namespace("mysql", "db1", "shop", kind), columns, ("id",))
    plain = batch_of(table, [Change("i", n - 5, {"id": n}) for n in range(len(values))])
    batch = ChangeBatch(
        table, plain.data.set_column(plain.data.num_columns - 1, table.arrow_schema().field("value"), values)
    )
    for number, entry in enumerate(entries_of(batch, {"reason": "r"}, 0)):
        back = row_of(json.loads(entry.value))
        assert back.table.namespace == table.namespace
        assert back.table.key == ("id",)
        assert back.data.columns == batch.data.slice(number, 1).columns


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("db1.errors", LedgerName("db1")),
        ("db1.load.2.errors", LedgerName("db1.load.2")),
        ("db1.errors.mart", LedgerName("db1", "mart")),
        ("db1.errors.errors", LedgerName("db1", "errors")),
        ("db1.load.2.errors.done.done", LedgerName("db1.load.2", "done", is_done=True)),
        ("db1", None),
        ("db1.load.1", None),
        ("db1.errorsome", None),
    ],
)
def test_names_of_ledgers(topic: str, name: LedgerName | None) -> None:
    assert LedgerName.of(topic) == name
    assert name is None or str(name) == topic


# --- pace


def test_a_flow_keeps_its_pace_and_commits_meanwhile(tmp_path: Path) -> None:
    now = [0.0]
    pace = Pace(10, clock=lambda: now[0])
    pace.taken(25)
    assert pace.left_s() == 2.5
    now[0] = 2.0
    pace.taken(10)
    assert pace.left_s() == 1.5
    now[0] = 9.0
    assert pace.left_s() == 0

    store = Store(tmp_path)
    config = MemorySink.Config(type="memory", name=str(tmp_path))
    for n in range(1, 4):
        store.append(batch_of(ORDERS, [order(n, n)]), n)
    seen: list[tuple[int, float]] = []

    class Seen(MemorySink):
        def commit(self, position: Position) -> None:
            seen.append((position.offset, pace.left_s()))
            super().commit(position)

    now[0] = 100.0
    ticking = Pace(10, clock=lambda: now.__setitem__(0, now[0] + 0.01) or now[0])  # type: ignore[func-returns-value]
    follower = Follower(lambda: Seen(config, "f"), Shaper(store.flow), store.log, "db1", 0, start=None, pace=ticking)
    follower.run(lambda: len(seen) >= 3, lambda offset: offset >= 6, Backoff(0))
    assert [offset for offset, _ in seen] == [2, 4, 6], "each transaction is committed while the next one has to wait"
    assert store.log.spans("db1")[0] == Span(0, 6)
    store.close()
