"""Backfills of any ranges, in any order and again and again, against one of everything: stores and lakes end up the same.

Each history has a seed, which the name of a failing test shows; HEADRACE_HISTORIES sets how many are run.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headrace.flow.spec import FlowSpec
from headrace.lake.asof import as_of
from headrace.lake.backfill import Range
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.sinks.lake import LakeSink
from headrace.stream.backfill import Backfill, fill
from headrace.ums.change import Clear
from headrace.ums.schema import COMMIT_TS, ID, Column
from tests.lake_tables import ORDERS, at, changes, open_sink, rows, table
from tests.lake_windows import START_US

HISTORIES = max(2, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 100)
TABLES = [ORDERS, "mysql.db1.shop.lines"]
VERSIONS = {
    "orders": [
        table(("id", pa.int32()), ("a", pa.int32())),
        table(("id", pa.int32()), ("a", pa.int64()), Column("note", pa.utf8(), "text"), version=1),
        table(("id", pa.int32()), Column("b", pa.int64(), "bigint", born_as="a"), version=2),
    ],
    "lines": [table(("id", pa.int32()), ("a", pa.int32()), name="lines")],
}


class History:
    """A lake of two tables, landed in commits and tended now and then."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.path = path
        self.last_id, self.load_id, self.offset = 0, -500, 0
        self.version = {"orders": 0, "lines": 0}
        for _ in range(self.random.randint(4, 12)):
            self.land()
            if self.random.random() < 0.3:
                target = self.random.choice([1 << 10, 1 << 20])
                Caretaker(path, Policy(target_bytes=target, state_changes=20)).tend(all_periods=True)

    def land(self) -> None:
        sink = open_sink(self.path)
        for _ in range(self.random.randint(1, 6)):
            name = self.random.choice(["orders", "orders", "lines"])
            if self.random.random() < 0.1:
                self.version[name] = min(self.version[name] + 1, len(VERSIONS[name]) - 1)
            schema = VERSIONS[name][self.version[name]]
            if self.random.random() < 0.05:
                self.last_id += 1
                sink.clear(Clear(schema, self.last_id, START_US + self.last_id * 1_000_000))
            loaded = self.random.random() < 0.1
            made = []
            for _ in range(self.random.randint(1, 30)):
                self.last_id += 0 if loaded else self.random.randint(1, 2)
                self.load_id += 1
                values = {"id": self.random.randint(0, 15), "a": self.last_id, "note": "n"}
                user = [values[column.identity] for column in schema.columns]
                id_ = self.load_id if loaded else self.last_id
                made.append((id_, "i" if loaded else self.random.choice("iuud"), *user))
            sink.write(changes(schema, *made))
        self.offset += 1
        sink.commit(at(self.offset, self.last_id))
        sink.close()

    def ranges(self) -> list[Range]:
        """Ranges that cover everything, in any order, some of them twice; now and then one of times."""
        cuts = sorted(self.random.sample(range(1, self.last_id), 3))
        bounds = list(zip([None, *cuts], [*cuts, None], strict=True))
        found = [Range(ID, low, high) for low, high in bounds]
        if self.random.random() < 0.5:
            found = [
                Range(COMMIT_TS, *(None if b is None else START_US + b * 1_000_000 for b in bound)) for bound in bounds
            ]
        found += self.random.choices(found, k=2)
        self.random.shuffle(found)
        return found


def flow(to: dict[str, Any], **settings: Any) -> FlowSpec:
    return FlowSpec.model_validate({"name": "mart", "from": "mysql.db1", "to": to, **settings})


def dump(path: Path) -> list[str]:
    """Everything in a SQLite file but how far it has come and what was told of columns in which order."""
    with sqlite3.connect(path) as connection:
        return sorted(line for line in connection.iterdump() if "_headrace_" not in line)


def live(path: Path, name: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        return sorted(connection.execute(f"SELECT * FROM {name} WHERE _is_active_ = 1").fetchall())


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_stores_end_up_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.lake.parquet.ROW_GROUP_ROWS", 7)
    monkeypatch.setattr("headrace.lake.rewrite.ROW_GROUP_ROWS", 7)
    monkeypatch.setattr("headrace.lake.joined.ROW_GROUP_ROWS", 7)
    history = History(tmp_path / "lake", seed)
    lake = LakeSink.Config(type="lake", path=history.path)
    mart = flow({"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"})
    fill(Backfill(lake, mart, Range(ID, None, None)))
    whole = dump(tmp_path / "mart.db")
    for name in TABLES:
        if name in Manifest.open(history.path).tables:
            assert len(live(tmp_path / "mart.db", name.rpartition(".")[2])) == as_of(history.path, name).num_rows
    for range_ in history.ranges():
        fill(Backfill(lake, mart, range_))
        assert dump(tmp_path / "mart.db") == whole, range_


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_lakes_end_up_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.lake.parquet.ROW_GROUP_ROWS", 7)
    monkeypatch.setattr("headrace.lake.rewrite.ROW_GROUP_ROWS", 7)
    monkeypatch.setattr("headrace.lake.joined.ROW_GROUP_ROWS", 7)
    history = History(tmp_path / "lake", seed)
    lake = LakeSink.Config(type="lake", path=history.path)
    copy = flow({"type": "lake", "path": str(tmp_path / "copy")})
    for range_ in history.ranges():
        fill(Backfill(lake, copy, range_, replace=True))
        Caretaker(tmp_path / "copy", Policy(state_changes=20)).tend(all_periods=history.random.random() < 0.5)
    number = Manifest.open(tmp_path / "copy").number
    assert fill(Backfill(lake, copy, Range(ID, None, None), replace=True)).replaced == [], "all of it is there"
    assert Manifest.open(tmp_path / "copy").number == number
    for name in Manifest.open(history.path).tables:
        for id_ in history.random.sample(range(1, history.last_id + 1), 10):
            if any(file.id[0] <= id_ for file in Manifest.open(history.path).tables[name]):
                ours, theirs = (as_of(path, name, id=id_) for path in (history.path, tmp_path / "copy"))
                assert rows(ours) == rows(theirs), (name, id_)
