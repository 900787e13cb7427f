"""All that a lake can do in one history, mixed by chance, against an oracle that keeps all changes in memory: rows land (late ones, clears, new
versions), care merges, retains, purges and sweeps, derived tables are kept up, ranges are backfilled into a database and put into another
lake; and whatever is at work dies now and then. Meanwhile and at the end every moment, the tables, the database and the other lake are what
a replay gives.

Each history has a seed, which the name of a failing test shows; HEADRACE_HISTORIES sets how many are run.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.flow.spec import FlowSpec
from headrace.lake.asof import as_of
from headrace.lake.backfill import Range
from headrace.lake.commit import Manifest, is_lake
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.sinks.lake import LakeSink
from headrace.storage.location import tree_at
from headrace.stream import backfill
from headrace.ums.schema import COMMIT_TS, ID
from tests.lake_tables import ORDERS, rows
from tests.lake_windows import START_US
from tests.property.test_lake_care import POINTS, Died
from tests.property.test_lake_derived import SHARED_SPECS, Derivation, DerivedHistory

HISTORIES = max(3, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 50)
SHARED_HISTORIES = max(1, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 200)
STEPS, MOMENTS = 36, 200
SHARED_STEPS = 12
FILL_POINTS = ["backfill.read", *POINTS]


class Copies:
    """A database and another lake, which get ranges of a history's lake."""

    def __init__(self, history: DerivedHistory, mart: Path, copy: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.history = history
        self.mart, self.copy = mart, tree_at(copy)
        self.done = Counter[str]()
        monkeypatch.setattr(backfill, "crash_point", history.crash_point)

    def fill(self) -> None:
        """A range of ids or of times into one of the two, by a backfill that may die."""
        history = self.history
        low, high = sorted(history.random.sample(range(-10, history.last_id + 2), 2))
        bounds = [None if history.random.random() < 0.3 else bound for bound in (low, high)]
        range_ = Range(ID, *bounds)
        if history.random.random() < 0.5:
            range_ = Range(COMMIT_TS, *(None if b is None else START_US + max(0, b) * 1_000_000 for b in bounds))
        replace = history.random.random() < 0.5
        if self._is_thinned(range_, replace=replace):
            with pytest.raises(ConfigError, match="was overwritten before is gone"):
                self._fill(range_, replace=replace)
            self.done["refused"] += 1
            return
        history.die_at = history.random.choice(["", "", *FILL_POINTS])
        try:
            self._fill(range_, replace=replace)
            self.done["replaced" if replace else "filled"] += 1
        except Died:
            self.done["died"] += 1
        finally:
            history.die_at = ""
        if is_lake(self.copy) and history.random.random() < 0.3:
            Caretaker(self.copy, Policy(state_changes=20, grace=0)).tend(all_periods=True)

    def _is_thinned(self, range_: Range, *, replace: bool) -> bool:
        """Whether the range begins before what retention has left; a database may have all that is left."""
        horizon = Manifest.open(self.history.path).horizons.get(ORDERS)
        if horizon is None:
            return False
        if range_.low is None:
            return replace
        return range_.low <= (horizon.id if range_.column == ID else horizon.commit_ts_us)

    def _fill(self, range_: Range, *, replace: bool) -> None:
        to = (
            {"type": "lake", "path": self.copy.root}
            if replace
            else {"type": "database", "url": f"sqlite:///{self.mart}"}
        )
        flow = FlowSpec.model_validate({"name": "copy", "from": "mysql.db1", "to": to})
        lake = LakeSink.Config(type="lake", path=self.history.path)
        backfill.fill(backfill.Backfill(lake, flow, range_, replace=replace))

    def check(self) -> None:
        """Once all of the lake has come, the database has its newest rows, and the other lake the same moments."""
        everything = Range(ID, None, None)
        self._fill(everything, replace=False)
        newest = as_of(self.history.path, ORDERS)
        with sqlite3.connect(self.mart) as connection:
            found = connection.execute(
                f"SELECT {', '.join(newest.column_names)} FROM orders WHERE _is_active_ = 1"
            ).fetchall()
        # A purge is of a lake alone: what a database has of such a key stays.
        place = newest.column_names.index("id")
        assert sorted((row for row in found if row[place] not in self.history.purged), key=repr) == rows(newest)
        if self._is_thinned(everything, replace=True):
            with pytest.raises(ConfigError, match="was overwritten before is gone"):
                self._fill(everything, replace=True)
            return
        self._fill(everything, replace=True)
        for until in self.history.some_moments(20):
            assert rows(as_of(self.copy, ORDERS, id=until)) == self.history.log.as_of(until), until


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_whatever_happens_all_is_what_a_replay_gives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = DerivedHistory(tmp_path / "lake", seed, monkeypatch)
    tables = Derivation(history, tmp_path / "derived", monkeypatch)
    copies = Copies(history, tmp_path / "mart.db", tmp_path / "copy", monkeypatch)
    history.land()
    steps = [history.land, history.land, history.land, history.tend, history.tend, tables.keep_up, tables.keep_up]
    for _ in range(STEPS):
        history.random.choice([*steps, copies.fill, copies.fill])()
        history.check(3)
    history.tend_at_last()
    history.check(MOMENTS)
    tables.check()
    copies.check()
    assert history.care["moments"] > MOMENTS // 4
    assert copies.done["filled"] + copies.done["replaced"]
    assert any(history.care[done] for done in ("merged", "states", "given_up"))


@pytest.mark.parametrize("seed", range(SHARED_HISTORIES))
def test_the_same_on_shared_stores(
    seed: int, shared_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = DerivedHistory(f"{shared_place}/lake", seed, monkeypatch)
    tables = Derivation(history, f"{shared_place}/derived", monkeypatch, SHARED_SPECS)
    copies = Copies(history, tmp_path / "mart.db", f"{shared_place}/copy", monkeypatch)
    history.land()
    for _ in range(SHARED_STEPS):
        history.random.choice([history.land, history.land, history.tend, tables.keep_up, copies.fill])()
        history.check(1)
    history.tend_at_last()
    history.check(10)
    tables.check()
    copies.check()
    assert history.care["moments"]
