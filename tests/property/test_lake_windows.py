"""Certificates of windows against an oracle that keeps all changes in memory: partitions that come at their own pace, rows that come late,
schemas that change, care that merges, retains, purges and dies, in any order. A certificate never says what was not so:

- it has exactly the rows that had been landed in its window by the commit it was made of;
- its window ends before every partition's watermark at that commit;
- every closed window with rows has one, and rows of a closed window are never more or fewer without an amendment;
- whatever care has done since, the check of certificates against files finds nothing wrong.

Each history has a seed, which the name of a failing test shows; HEADRACE_HISTORIES sets how many are run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headrace import files
from headrace.lake import certificate, commit, tend
from headrace.lake.certificate import Rounds
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.records import Stream
from headrace.lake.tally import Tally
from headrace.lake.tend import Caretaker
from headrace.sinks.base import Position
from headrace.storage import hdfs, s3
from headrace.storage.location import tree_at
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, TableSchema
from headrace.verify.windows import check_windows
from tests.lake_tables import ORDERS, START, open_sink, table
from tests.lake_windows import FLOW, SECOND, START_US, closing, expected

HISTORIES = max(4, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 50)
SHARED_HISTORIES = max(1, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 200)
SHARED_STEPS = 8
STEPS, KEYS, LENGTH_S, PARTITIONS = 25, 12, 10, 2
AT = pa.timestamp("us")
VERSIONS: list[TableSchema] = [
    table(("id", pa.int32()), ("at", AT), version=0),
    table(("id", pa.int64()), ("at", AT), Column("note", pa.utf8(), "text", initial_default="none"), version=1),
    table(("id", pa.int64()), Column("happened", AT, "datetime", born_as="at"), version=2),
]
POINTS = [
    "windows.counted", "windows.certified", "tend.files_named", "tend.edited", "tend.hidden", "create.written",
]  # fmt: skip


class Died(BaseException):
    """The process has gone at a named point (tests/faults kills real ones)."""


@dataclass
class Oracle:
    """What was landed in which window, by commit; how far each partition was then."""

    landed: list[tuple[int, dict[int, Tally]]] = field(default_factory=list)
    passed_us: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    column: dict[int, str] = field(default_factory=dict)
    """The event time's column by version; the commit time where there is none."""

    def land(self, number: int, batches: list[ChangeBatch], passed_us: dict[int, int]) -> None:
        for batch in batches:
            column = self.column.get(batch.table.namespace.version, "")
            self.landed.append((number, expected([batch], LENGTH_S, column)))
        self.passed_us.append((number, passed_us))

    def rows(self, until_commit: int) -> dict[int, Tally]:
        found: dict[int, Tally] = {}
        for number, sums in self.landed:
            for start, rows in sums.items() if number <= until_commit else ():
                found[start] = found.get(start, Tally()) + rows
        return found

    def watermark_us(self, until_commit: int) -> int:
        known = [passed for number, passed in self.passed_us if number <= until_commit][-1]
        return min(known.values()) if len(known) == PARTITIONS else -(2**63)


class History:
    """One lake, one flow of several partitions, a caretaker now and then, all driven by one seed."""

    def __init__(self, path: Path | str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = Random(seed)
        self.path = path
        by_column = self.random.random() < 0.5
        self.oracle = Oracle()
        members = [Stream(FLOW, "db1", partition) for partition in range(PARTITIONS)]
        # A column is found by the name that it has, or had at first.
        event_time = {"shop.orders": self.random.choice(["at", "happened"])} if by_column else {}
        columns = {"at": {0: "at", 1: "at", 2: "happened"}, "happened": {2: "happened"}}
        self.oracle.column = columns.get(event_time.get("shop.orders", ""), {})
        delay = self.random.choice([0, 0, 5])
        self.closing = closing(LENGTH_S, members, event_time=event_time, delay=delay)
        self.clock = dict.fromkeys(range(PARTITIONS), 0.0)
        self.offset = dict.fromkeys(range(PARTITIONS), 0)
        self.passed: dict[int, int] = {}
        self.last_id = self.version = 0
        self.load_id = -1000
        self.purged: set[int] = set()
        self.die_at = ""
        for module in (tend, commit, certificate, files, hdfs, s3):
            monkeypatch.setattr(module, "crash_point", self._crash_point)
        for module in ("parquet", "rewrite", "joined"):
            monkeypatch.setattr(f"headrace.lake.{module}.ROW_GROUP_ROWS", 7)
        monkeypatch.setattr("headrace.lake.joined._LARGE_ROWS", self.random.choice([3, 6, 1000]))
        self.seen = {"closed": 0, "amended": 0, "late": 0, "died": 0, "taken": 0}

    def _crash_point(self, name: str) -> None:
        if name == self.die_at and self.random.random() < 0.5:
            raise Died

    def land(self) -> None:
        """Some transactions of a partition; now and then rows of a load, committed long ago."""
        partition = self.random.randrange(PARTITIONS)
        sink = open_sink(self.path, FLOW)
        if self.version < 2 and self.random.random() < 0.06:
            self.version += 1
        batches = []
        for _ in range(self.random.randint(0, 3)):
            self.clock[partition] += self.random.choice([0.0, 0.25, 1, 3])
            batches.append(self._batch(self.clock[partition], self.random.randint(1, 9)))
        if self.random.random() < 0.15:
            batches.append(self._batch(self.random.uniform(0, self.clock[partition]), 3, loaded=True))
        self.clock[partition] += self.random.choice([0, 0, 1, 12])
        for batch in batches:
            sink.write(batch)
        self.offset[partition] += 20_000
        committed_us = START_US + int(self.clock[partition] * SECOND)
        sink.commit(Position("db1", partition, self.offset[partition], self.last_id, committed_us))
        sink.close()
        self.passed[partition] = committed_us
        number = Manifest.open(self.path).number
        self.oracle.land(number, batches, dict(self.passed))

    def _batch(self, committed_s: float, rows: int, *, loaded: bool = False) -> ChangeBatch:
        schema = VERSIONS[self.version]
        committed = START + timedelta(seconds=committed_s)
        made = []
        for _ in range(rows):
            key = self.random.choice([key for key in range(KEYS) if key not in self.purged])
            if loaded:
                self.load_id += 1
            else:
                self.last_id += 1
            happened = committed.replace(tzinfo=None) - timedelta(seconds=self.random.choice([0, 0, 1, 7, 30]))
            values: dict[str, Any] = {"id": key, "note": "n", "at": None if self.random.random() < 0.1 else happened}
            user = [values[column.identity] for column in schema.columns]
            operation = "i" if loaded else self.random.choice("iud")
            made.append((self.load_id if loaded else self.last_id, committed, operation, committed, None, *user))
        names = schema.arrow_schema().names
        dicts = [dict(zip(names, row, strict=True)) for row in made]
        return ChangeBatch(schema, pa.RecordBatch.from_pylist(dicts, schema=schema.arrow_schema()))

    def tend(self) -> None:
        policy = Policy(
            period=self.random.choice([20, 100, 1000]),
            target_bytes=self.random.choice([1 << 10, 8 << 10, 1 << 20]),
            grace=self.random.choice([0, 10]),
            keep=self.random.choice([None, None, 40.0]),
            state_changes=self.random.choice([10, 100]),
        )
        self.die_at = self.random.choice(["", "", *POINTS])
        known = self.random.choice([self.closing, self.closing, None])
        now = START.timestamp() + max(self.clock.values())
        try:
            caretaker = Caretaker(self.path, policy, known, clock=lambda: now)
            if self.random.random() < 0.15 and len(self.purged) < 3 and self.last_id:
                key = self.random.choice([key for key in range(KEYS) if key not in self.purged])
                self.purged.add(key)
                caretaker.purge(ORDERS, {"id": str(key)}, "asked for")
            done = caretaker.tend(all_periods=self.random.random() < 0.5)
            assert not done.problems
        except Died:
            self.seen["died"] += 1
        finally:
            self.die_at = ""

    def check(self) -> None:
        """What the certificates say is what was so, and the files still have it."""
        rounds = Rounds(tree_at(self.path), ORDERS)
        numbers: dict[int, int] = {}
        until_us = -(2**63)
        for round_ in rounds.all:
            truth = self.oracle.rows(round_.commit)
            for each in round_.certificates:
                assert each.rows == truth[each.start_us], (round_.number, each)
                assert each.number == numbers.get(each.start_us, -1 if each.start_us >= until_us else 0) + 1
                numbers[each.start_us] = each.number
            until_us = round_.until_us if round_.until_us is not None else until_us
            assert until_us <= self.oracle.watermark_us(round_.commit), "closed before everything was there"
            closed = {start: rows for start, rows in truth.items() if start < until_us}
            newest = {
                each.start_us: each.rows for before in rounds.all[: round_.number] for each in before.certificates
            }
            assert closed == newest, "every closed window is certified as it is"
        manifest = Manifest.open(self.path)
        truth = self.oracle.rows(manifest.number)
        for result in check_windows(manifest):
            assert result.ok, [window for window in result.windows if window.wrong] or result.problems
            for window in result.windows:
                assert window.there + window.taken == truth[window.start_us]
                self.seen["late"] += bool(window.late)
                self.seen["taken"] += bool(window.taken)
        self.seen["closed"] = sum(number >= 0 for number in numbers.values())
        self.seen["amended"] = sum(number > 0 for number in numbers.values())


def play(history: History, steps: int) -> None:
    """Lands and tends in an order of its own; at the end the windows of all that was landed are closed."""
    history.land()
    Caretaker(history.path, Policy(), history.closing).certify()
    for _ in range(steps):
        history.random.choice([history.land, history.land, history.tend])()
        history.check()
    for partition in history.clock:
        history.clock[partition] += 60
    while len(history.passed) < PARTITIONS or min(history.passed.values()) < START_US + 60 * SECOND:
        history.land()
    Caretaker(history.path, Policy(), history.closing).certify()
    history.check()
    assert history.seen["closed"] > 2
    assert not any(window.late for result in check_windows(Manifest.open(history.path)) for window in result.windows)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_certificate_never_says_what_was_not_so(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(History(tmp_path, seed, monkeypatch), STEPS)


@pytest.mark.parametrize("seed", range(SHARED_HISTORIES))
def test_the_same_on_shared_stores(seed: int, shared_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play(History(shared_place, seed, monkeypatch), SHARED_STEPS)
