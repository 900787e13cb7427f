"""Derived tables against an oracle that keeps all changes in memory: whatever lands (late rows, clears, new versions), whatever care does to
the lake in between (merges, retention, purges), and wherever an upkeep dies, the tables are what a replay gives.

Each history has a seed, which the name of a failing test shows; HEADRACE_HISTORIES sets how many are run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.derived import delta, directory, pieces, upkeep
from headrace.lake.derived.spec import Derive, Format
from headrace.on_change import OnChange
from headrace.storage.location import tree_at
from headrace.ums.schema import ACTIVE, ID
from tests.lake_tables import ORDERS, time_of
from tests.property.test_lake_care import VERSIONS, Died, History
from tests.property.test_lake_care import _reshaped as reshaped

HISTORIES = max(4, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 100)
STEPS, MOMENTS = 24, 12
FOLLOW = OnChange.model_validate("evolve")
POINTS = ["derived.pieces_written", "derived.committed", "derived.version_made", "derived.version_named"]
SPECS: list[dict[str, str]] = [
    {"current": "delta", "delete": "hard"},
    {"current": "parquet", "delete": "soft"},
    {"zipper": "delta"},
    {"zipper": "parquet"},
]
SHARED_SPECS: list[dict[str, str]] = [
    {"current": "delta", "delete": "hard"},
    {"current": "delta", "delete": "soft"},
    {"zipper": "delta"},
]


class Derivation:
    """The derived tables of a history, kept up now and then."""

    def __init__(
        self,
        history: History,
        root: Path | str,
        monkeypatch: pytest.MonkeyPatch,
        specs: Sequence[dict[str, str]] = SPECS,
    ) -> None:
        self.history = history
        self.root = root
        self.specs = specs
        self.died = 0
        for module in (delta, directory):
            monkeypatch.setattr(module, "crash_point", self._crash_point)
        random = history.random
        monkeypatch.setattr(pieces, "PIECE_BYTES", random.choice([200, 1000]))
        monkeypatch.setattr(pieces, "SMALL_BYTES", random.choice([0, 1 << 20]))
        monkeypatch.setattr(upkeep, "_PORTION_ROWS", random.choice([5, 20, 1000]))
        monkeypatch.setattr(upkeep, "_MANY_CLOSED", random.choice([1, 4]))
        self.die_at = ""

    def _crash_point(self, name: str) -> None:
        if name == self.die_at:
            raise Died

    def wanted(self, number: int, root: Path | None = None) -> Derive:
        return Derive.model_validate({**self.specs[number], "path": f"{root or self.root}/{number}", "grace": 0})

    def keep_up(self) -> None:
        """One of the tables, by an upkeep that may die."""
        number = self.history.random.randrange(len(self.specs))
        self.die_at = self.history.random.choice(["", "", *POINTS])
        try:
            done = upkeep.derive(Manifest.open(self.history.path), self.wanted(number), FOLLOW)
            assert not done.problems
        except Died:
            self.died += 1
        finally:
            self.die_at = ""

    def check(self) -> None:
        """All tables, once they are kept up."""
        manifest = Manifest.open(self.history.path)
        for number in range(len(self.specs)):
            assert not upkeep.derive(manifest, self.wanted(number), FOLLOW).problems
            again = upkeep.derive(manifest, self.wanted(number), FOLLOW)
            assert (again.tables, again.changes) == (0, 0)
        newest = sorted(as_of(self.history.path, ORDERS).to_pylist(), key=repr)
        names = [column.name for column in VERSIONS[self.history.version].columns]
        hard, soft = self.rows(0), self.rows(1)
        assert _values(hard, names) == _tuples(newest, names)
        assert _values(soft.filter(pc.equal(soft.column(ACTIVE), 1)), names) == _tuples(newest, names)
        assert len(set(soft.column("id").to_pylist())) == soft.num_rows
        zippers = [self.rows(number) for number in range(2, len(self.specs))]
        for zipper in zippers:
            self.check_zipper(zipper, names)
        if not manifest.horizons:  # or one may have states that the lake has given up
            assert all(_all(zipper) == _all(zippers[0]) for zipper in zippers)

    def check_zipper(self, zipper: pa.Table, names: list[str]) -> None:
        horizon = self.history.manifest_horizon()
        first = max(min(change.id for change in self.history.log.changes), horizon)
        for _ in range(MOMENTS):
            until = self.history.random.randint(first, max(first, self.history.last_id))
            here = _valid(zipper, pa.scalar(until, pa.int64()), "from_id", "to_id")
            assert _values(here, names) == self.expected(until), until
            if until >= 0:
                at = pa.scalar(time_of(until), pa.timestamp("us", "UTC"))
                assert _values(_valid(zipper, at, "valid_from", "valid_to"), names) == self.expected(until), until

    def expected(self, until: int) -> list[tuple[Any, ...]]:
        """The rows as of an id, in the columns of now."""
        log = self.history.log
        floor = max((clear for clear in log.clears if clear <= until), default=-(10**9))
        newest = {c.values[0]: c for c in sorted(log.changes, key=lambda c: c.id) if floor < c.id <= until}
        seen = max(change.version for change in log.changes)
        live = [change for change in newest.values() if change.operation != "d"]
        return sorted((reshaped(change, VERSIONS[seen]) for change in live), key=repr)

    def rows(self, number: int, root: Path | None = None) -> pa.Table:
        wanted = self.wanted(number, root)
        place = f"{wanted.path}/mysql/db1/shop/orders"
        if wanted.format is Format.DELTA:
            return pa.table(delta.DeltaTable(place, storage_options=tree_at(wanted.path).settings).to_pyarrow_table())
        return pq.read_table(f"{place}/latest")


class DerivedHistory(History):
    """A history whose newest version is known to the oracle as the lake knows it: by its changes."""

    def manifest_horizon(self) -> int:
        horizon = Manifest.open(self.path).horizons.get(ORDERS)
        return horizon.id if horizon else -(10**9)


def _valid(zipper: pa.Table, at: pa.Scalar[Any], begin: str, end: str) -> pa.Table:
    return zipper.filter(pc.and_(pc.less_equal(zipper.column(begin), at), pc.greater(zipper.column(end), at)))


def _values(rows: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    return _tuples(rows.to_pylist(), names)


def _tuples(rows: list[dict[str, Any]], names: list[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def _all(rows: pa.Table) -> list[tuple[Any, ...]]:
    return _values(rows, sorted(rows.column_names))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_derived_tables_are_what_a_replay_gives(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = DerivedHistory(tmp_path / "lake", seed, monkeypatch)
    tables = Derivation(history, tmp_path / "derived", monkeypatch)
    history.land()
    steps = [history.land, history.land, history.tend, tables.keep_up, tables.keep_up, tables.keep_up]
    for _ in range(STEPS):
        history.random.choice(steps)()
    tables.check()
    if not Manifest.open(history.path).horizons:
        for number in range(len(SPECS)):
            fresh = tables.wanted(number, tmp_path / "fresh")
            assert not upkeep.derive(Manifest.open(history.path), fresh, FOLLOW).problems
            assert _all(tables.rows(number)) == _all(tables.rows(number, tmp_path / "fresh"))
    assert tables.rows(0).column(ID).type == pa.int64()
