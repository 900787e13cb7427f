"""Verification while both sides change, on a simulated clock: a right target is never called wrong, a fault is always found.

Between any two things that verification does, the source may change, capture and flow may go on, each as far as it likes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.testing.sink import Change, batch_of
from headrace.ums.change import ChangeBatch, Clear, End, Mark
from headrace.ums.schema import Column, Namespace, TableSchema
from headrace.verify.contents import Subject, verify
from headrace.verify.followed import Followed, Found, Offsets, TableMovedError

TABLE = TableSchema(
    Namespace.parse("mysql.db1.shop.t.1.0.0"),
    (Column("id", pa.int64(), "bigint", nullable=False), Column("v", pa.utf8(), "varchar(20)")),
    ("id",),
)
PLACE = ("db1", 0)
KEYS = 30
FAULTY = (100, 101)
"""Keys that change no more."""
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.utf8())])


@dataclass
class World:
    """What happened (`history`), how much of it is on the log, and how much of that is in the target."""

    chance: random.Random
    pace: float
    history: list[tuple[int, str | None]] = field(default_factory=list)
    captured: int = 0
    delivered: int = 0
    told: int = 0
    """How far the flow has told that it is: never more than what it has delivered."""
    fault: Callable[[dict[int, str]], None] = lambda rows: None

    def passes(self) -> None:
        """Some time."""
        while self.chance.random() < self.pace:
            key = self.chance.randrange(KEYS)
            self.history.append((key, None if self.chance.random() < 0.3 else f"v{len(self.history)}"))
        self.captured = self.chance.randint(self.captured, len(self.history))
        self.delivered = self.chance.randint(self.delivered, self.captured)
        self.told = self.chance.randint(self.told, self.delivered)

    def rows_after(self, changes: int) -> dict[int, str]:
        rows: dict[int, str] = {}
        for key, value in self.history[:changes]:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return rows


@dataclass
class Store:
    """A side that is read a few rows at a time, in any order, each as it is when it is read; with `at_once` as of one moment."""

    world: World
    now: Callable[[], dict[int, str]]
    at_once: bool

    def read(self) -> Iterator[pa.RecordBatch]:
        rows = self.now()
        keys = [*range(KEYS), *FAULTY]
        self.world.chance.shuffle(keys)
        for at in range(0, len(keys), 7):
            if not self.at_once:
                rows = self.now()
            found = [(key, rows[key]) for key in keys[at : at + 7] if key in rows]
            columns = [pa.array([row[0] for row in found], pa.int64()), pa.array([row[1] for row in found], pa.utf8())]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            self.world.passes()

    def wait_for(self, ends: Offsets) -> None:
        self.world.passes()

    def has_come(self) -> Callable[[Mark], bool]:
        self.world.passes()
        end = len(self.world.history)
        return lambda mark: mark.id >= end


@dataclass
class Log:
    """In the place of `Followed`."""

    world: World
    moved: bool = False

    def ends(self) -> Offsets:
        self.world.passes()
        return {PLACE: self.world.captured}

    def wait_captured(self, has_come: Callable[[Mark], bool]) -> None:
        while not has_come(Mark("db1", {}, self.world.captured, 0)):
            self.world.captured = self.world.chance.randint(self.world.captured, len(self.world.history))

    def wait_delivered(self, ends: Offsets) -> Offsets:
        while self.world.told < ends[PLACE]:
            self.world.delivered = self.world.chance.randint(self.world.delivered, self.world.captured)
            self.world.told = self.world.chance.randint(self.world.told, self.world.delivered)
        self.world.passes()
        return {PLACE: self.world.told}

    def changes(self, begin: Offsets, end: Offsets) -> Iterator[Found]:
        for offset in range(begin[PLACE], end[PLACE]):
            key, value = self.world.history[offset]
            change = Change("d" if value is None else "u", offset + 1, {"id": key, "v": value})
            yield Found(PLACE, offset, batch_of(TABLE, [change]))
        if self.moved:
            yield Found(PLACE, end[PLACE], Clear(TABLE, end[PLACE], 0))


def subject(world: World, *, at_once: bool = False, moved: bool = False) -> Subject:
    def there() -> dict[int, str]:
        rows = world.rows_after(world.delivered)
        world.fault(rows)
        return rows

    source = Store(world, lambda: world.rows_after(len(world.history)), at_once)
    followed = cast(Followed, Log(world, moved))
    return Subject(TABLE, source, Store(world, there, at_once), followed, _as_it_is)


def _as_it_is(change: ChangeBatch | Clear | End) -> ChangeBatch | Clear | End:
    return change


PACES = st.sampled_from([0.0, 0.3, 0.8])
SLOW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


def world_of(seed: int, pace: float) -> World:
    world = World(random.Random(seed), 0.95)
    for _ in range(10):
        world.passes()
    world.pace = pace
    return world


@SLOW
@given(st.integers(0, 2**32), PACES, st.booleans())
def test_a_right_target_is_never_called_wrong(seed: int, pace: float, at_once: bool) -> None:
    came = verify(subject(world_of(seed, pace), at_once=at_once), 10)
    assert came.ok, came.result.differences


@SLOW
@given(st.integers(0, 2**32), PACES, st.sampled_from(["dropped", "bent", "kept"]))
def test_a_fault_is_always_found(seed: int, pace: float, fault: str) -> None:
    world = world_of(seed, pace)
    world.history += [(100, "here"), (101, "here"), (101, None)]

    def break_it(rows: dict[int, str]) -> None:
        if fault == "dropped":
            rows.pop(100, None)
        elif fault == "bent":
            rows[100] = "hera"
        else:
            rows[101] = "here"

    world.fault = break_it
    came = verify(subject(world), 10)
    assert not came.ok
    (found,) = came.result.differences
    assert (found.kind, found.key) == {
        "dropped": ("missing", {"id": "100"}),
        "bent": ("different", {"id": "100"}),
        "kept": ("extra", {"id": "101"}),
    }[fault]


def test_a_table_that_is_emptied_meanwhile_is_looked_at_again() -> None:
    with pytest.raises(TableMovedError):
        verify(subject(world_of(1, 0.3), moved=True), 10)
