"""A lake under care against an oracle that keeps all changes in memory: whatever is merged, retained, purged and swept, in any order,
with restarts and crashes in between, every moment that is kept is what a replay gives.

Each history has a seed, which the name of a failing test shows; HEADRACE_HISTORIES sets how many are run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headrace import files
from headrace.errors import ConfigError
from headrace.lake import commit, tend
from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.parquet import verify_file
from headrace.lake.policy import Policy
from headrace.lake.purge import key_digest
from headrace.lake.tend import Caretaker
from headrace.sinks import lake as lake_sink
from headrace.storage import hdfs, local, s3
from headrace.storage.location import tree_at
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, TableSchema
from tests.lake_tables import ORDERS, START, at, changes, open_sink, rows, table, time_of

HISTORIES = max(3, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 100)
STEPS, KEYS = 30, 12
SHARED_HISTORIES, SHARED_STEPS = (1, 8) if HISTORIES <= 3 else (HISTORIES // 3, 20)
"""On HDFS and S3, where each takes longer."""
MOMENTS = 200 if HISTORIES > 3 else 40
EMAIL = Column("email", pa.utf8(), "text", initial_default="none")
VERSIONS: list[TableSchema] = [
    table(("id", pa.int32()), ("a", pa.int32()), version=0),
    table(("id", pa.int32()), ("a", pa.int64()), EMAIL, version=1),
    table(("id", pa.int64()), EMAIL, version=2),
    table(("id", pa.int64()), Column("mail", pa.utf8(), "text", initial_default="none", born_as="email"), version=3),
]
"""Columns are added, widened, dropped and renamed; identities are as capture gives them."""
POINTS = ["tend.files_named", "tend.edited", "tend.hidden", "tend.swept", "create.written", "file.synced"]
LANDING_POINTS = ["lake.rows_written", "lake.files_named", "create.written", "create.named"]


class Died(BaseException):
    """The process has gone at a named point (tests/faults kills real ones)."""


@dataclass(frozen=True)
class Change:
    id: int
    operation: str
    version: int
    values: tuple[Any, ...]


@dataclass
class Log:
    """What was captured: changes by id, and clears."""

    changes: list[Change] = field(default_factory=list)
    clears: list[int] = field(default_factory=list)

    def as_of(self, until: int) -> list[tuple[Any, ...]]:
        floor = max((clear for clear in self.clears if clear <= until), default=-(10**9))
        newest: dict[int, Change] = {}
        for change in sorted(self.changes, key=lambda change: change.id):
            if floor < change.id <= until:
                newest[change.values[0]] = change
        seen = max(change.version for change in self.changes if change.id <= until)
        live = [change for change in newest.values() if change.operation != "d"]
        return sorted((_reshaped(change, VERSIONS[seen]) for change in live), key=repr)


def _reshaped(change: Change, target: TableSchema) -> tuple[Any, ...]:
    names = [column.identity for column in VERSIONS[change.version].columns]
    known = dict(zip(names, change.values, strict=True))
    return tuple(known.get(column.identity, column.initial_default) for column in target.columns)


class History:
    """One lake, one flow, a caretaker now and then, all driven by one seed."""

    def __init__(self, path: Path | str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = Random(seed)
        self.path = path
        self.log = Log()
        self.now = START.timestamp()
        self.last_id = self.version = 0
        self.load_ids = list(range(-20, 0))
        self.purged: set[int] = set()
        self.die_at = ""
        self.landing = False
        for module in (tend, commit, files, local, hdfs, s3, lake_sink):
            monkeypatch.setattr(module, "crash_point", self.crash_point)
        monkeypatch.setattr("headrace.lake.parquet.crash_point", self.crash_point)
        for module in ("parquet", "rewrite", "joined"):
            monkeypatch.setattr(f"headrace.lake.{module}.ROW_GROUP_ROWS", 7)
        monkeypatch.setattr("headrace.lake.joined._LARGE_ROWS", self.random.choice([3, 6, 1000]))
        monkeypatch.setattr("headrace.lake.states._FILE_ROWS", 3)
        monkeypatch.setattr("headrace.lake.replay._FORGET_ROWS", 7)
        self.offset = 0
        self.care = {"merged": 0, "states": 0, "given_up": 0, "swept": 0, "died": 0, "moments": 0}

    def crash_point(self, name: str) -> None:
        # A writer's files are completed in threads, whose order no seed decides.
        if name == self.die_at and (self.landing or self.random.random() < 0.5):
            raise Died

    def land(self) -> None:
        """Some transactions in a commit; sometimes rows of a full load, older than all, come late."""
        delivered: list[ChangeBatch | Clear] = []
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.04:
                self.last_id += 1
                self.log.clears.append(self.last_id)
                delivered.append(Clear(VERSIONS[self.version], self.last_id, self.last_id * 1_000_000 + _us(0)))
            if self.version < 3 and self.random.random() < 0.05:
                self.version += 1
            written = [self._change() for _ in range(self.random.randint(1, 8))]
            self.log.changes += written
            delivered.append(changes(VERSIONS[self.version], *((c.id, c.operation, *c.values) for c in written)))
        self.offset += 1
        self._deliver(delivered)
        self.now = max(self.now, time_of(self.last_id).timestamp())

    def _deliver(self, delivered: list[ChangeBatch | Clear]) -> None:
        """Lands in one commit; a writer that dies is started again, and told all again unless its commit is there."""
        self.landing, self.die_at = True, self.random.choice(["", "", "", *LANDING_POINTS])
        while True:
            sink = open_sink(self.path)
            try:
                position = sink.position("db1", 0)
                if position is None or position.offset < self.offset:
                    for each in delivered:
                        sink.clear(each) if isinstance(each, Clear) else sink.write(each)
                    sink.commit(at(self.offset, self.last_id))
                sink.close()
                break
            except Died:
                self.care["died"] += 1
                self.die_at = ""
        self.landing, self.die_at = False, ""

    def _change(self) -> Change:
        key = self.random.choice([k for k in range(KEYS) if k not in self.purged])
        if self.load_ids and self.random.random() < 0.1:
            id_, operation = self.load_ids.pop(self.random.randrange(len(self.load_ids))), "i"
        else:
            self.last_id += self.random.randint(1, 3)
            id_, operation = self.last_id, self.random.choice("iuud")
        values: dict[str, Any] = {"id": key, "a": self.random.randint(0, 99), "email": f"{id_}@example.org"}
        columns = VERSIONS[self.version].columns
        return Change(id_, operation, self.version, tuple(values[column.identity] for column in columns))

    def tend(self) -> None:
        """Care with a policy of its own, which may die at a point."""
        keep = self.random.choice([None, None, 50.0, 200.0])
        policy = Policy(
            period=self.random.choice([20, 100, 1000]),
            target_bytes=self.random.choice([1 << 10, 8 << 10, 1 << 20]),
            grace=self.random.choice([0, 10]),
            keep=keep,
            state_changes=self.random.choice([10, 100]),
        )
        self.die_at = self.random.choice(["", "", *POINTS])
        try:
            caretaker = Caretaker(self.path, policy, clock=lambda: self.now)
            if self.random.random() < 0.15 and len(self.purged) < 3:
                self._purge(caretaker)
            before = self._sums() if keep is None else None
            done = caretaker.tend(all_periods=self.random.random() < 0.5)
            assert not done.problems
            assert before is None or before == self._sums(), "care without retention changes no row"
            self.care["merged"] += done.merged_files
            self.care["states"] += done.states
            self.care["given_up"] += done.given_up_rows
            self.care["swept"] += done.swept_files
        except Died:
            self.care["died"] += 1
        finally:
            self.die_at = ""
        self._settle_purge()

    def tend_at_last(self) -> None:
        """Care that lives: whatever was killed before, each history has had some."""
        done = Caretaker(self.path, Policy(state_changes=10), clock=lambda: self.now).tend(all_periods=True)
        assert not done.problems
        self.care["merged"] += done.merged_files
        self.care["states"] += done.states
        self.verify_files()

    def verify_files(self) -> None:
        """Each file is what was written."""
        for file in Manifest.open(self.path).files():
            verify_file(tree_at(self.path), file)

    def _purge(self, caretaker: Caretaker) -> None:
        key = self.random.randrange(KEYS)
        self.purged.add(key)
        caretaker.purge(ORDERS, {"id": str(key)}, "asked for")

    def _settle_purge(self) -> None:
        """A purge that died before its edit is done again: whoever asked for it was not told that it is done."""
        recorded = {purge.key_sha256 for purge in Manifest.open(self.path).purges}
        for key in sorted(self.purged):
            caretaker = Caretaker(self.path, Policy(), clock=lambda: self.now)
            if key_digest({"id": str(key)}) not in recorded:
                caretaker.purge(ORDERS, {"id": str(key)}, "asked for")
        self.log.changes = [change for change in self.log.changes if change.values[0] not in self.purged]

    def _sums(self) -> tuple[int, int]:
        files = list(Manifest.open(self.path).files())
        return sum(file.rows for file in files), sum(int(file.digest, 16) for file in files) % (1 << 128)

    def some_moments(self, count: int) -> list[int]:
        """Ids, from the first change on."""
        lowest = min(change.id for change in self.log.changes)
        return [self.random.randint(lowest, self.last_id) for _ in range(count)]

    def check(self, moments: int) -> None:
        horizon = Manifest.open(self.path).horizons.get(ORDERS)
        for until in self.some_moments(moments):
            moment: dict[str, Any] = {"id": until} if self.random.random() < 0.5 else {"time": time_of(until)}
            if "time" in moment and until < 0:
                continue
            if horizon is not None and until < horizon.id:
                with pytest.raises(ConfigError, match="keeps the history"):
                    as_of(self.path, ORDERS, **moment)
            elif any(change.id <= until for change in self.log.changes):
                assert rows(as_of(self.path, ORDERS, **moment)) == self.log.as_of(until), moment
                self.care["moments"] += 1


def _us(seconds: int) -> int:
    return int(START.timestamp() + seconds) * 1_000_000


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_every_moment_that_is_kept_is_what_a_replay_gives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path, seed, monkeypatch)
    play(history, STEPS, moments=4)
    history.tend_at_last()
    history.check(MOMENTS)
    assert history.care["moments"] > MOMENTS // 4
    assert any(history.care[done] for done in ("merged", "states", "given_up")), (
        "care has worked, or the test shows nothing"
    )


@pytest.mark.parametrize("seed", range(SHARED_HISTORIES))
def test_the_same_on_shared_stores(seed: int, shared_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(shared_place, seed, monkeypatch)
    play(history, SHARED_STEPS, moments=1)
    history.check(10)
    history.die_at = ""
    Caretaker(shared_place, Policy(grace=0, state_changes=10), clock=lambda: history.now).tend(all_periods=True)
    history.check(10)
    assert history.care["moments"]


def play(history: History, steps: int, moments: int) -> None:
    """Lands, tends and looks, in an order of its own; at the end each file is what was written."""
    history.land()
    for _ in range(steps):
        history.random.choice([history.land, history.land, history.tend])()
        history.check(moments)
    history.verify_files()
