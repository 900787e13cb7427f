"""A full load beside capture, with crashes anywhere: whatever the order of delivery, the target is the source in the end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.capture.load.base import LoadConfig, Part, Range
from headrace.capture.load.plan import LARGEST_ID, SMALLEST_ID, Plan, Progress, lane_topic, plan_topic
from headrace.capture.load.planner import Planner
from headrace.capture.load.wishes import Request
from headrace.capture.load.worker import Worker
from headrace.capture.mask import Masker
from headrace.capture.runner import PARTITION
from headrace.errors import RetryableError
from headrace.log.base import Entry, Log, Span
from headrace.log.directory import DirectoryLog
from headrace.model import SourceConfig
from headrace.sinks.base import Position
from headrace.sinks.memory import MemorySink
from headrace.testing.sink import Change, batch_of
from headrace.ums.change import MARK_KEY, Cause, ChangeBatch, Clear, Mark, read_block
from headrace.ums.schema import RAW, Column, Namespace, TableSchema

SOURCE = "db1"
TABLE = TableSchema(
    Namespace("mysql", SOURCE, "shop", "t"),
    (Column("id", pa.int64(), "bigint", nullable=False), Column("v", pa.utf8(), "varchar(9)")),
    ("id",),
)
Key = tuple[str, ...]


def masker(**masks: dict[str, str]) -> Masker:
    """Masks of columns of `shop.t`, kept nowhere."""
    config = {"type": "memory", "name": SOURCE, "mask": {f"shop.t.{name}": mask for name, mask in masks.items()}}
    return Masker(SourceConfig.model_validate(config), None)


UNMASKED = masker()


class CrashError(Exception):
    """The process is gone."""


@dataclass
class Database:
    """A source in memory whose changes go to the log at once, as capture would bring them."""

    log: Log
    chance: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    id: int = 10**12
    replaced_at: int | None = None
    renames: float = 0.0

    def change(self) -> None:
        key = self.chance.randrange(60)
        op = "u" if key in self.rows else "i"
        if op == "u" and self.chance.random() < 0.4:
            op = "d"
            del self.rows[key]
        else:
            self.rows[key] = f"{self.id}"
        if self.chance.random() < 0.01:
            self.rows.clear()
            self.write(Clear(TABLE, self.id, self.id))
        elif self.chance.random() < self.renames:
            # What the table that takes the name holds has never been in the log.
            self.rows = {key: f"renamed {self.id}" for key in range(60) if self.chance.random() < 0.5}
            self.replaced_at = self.id
            self.write(Clear(TABLE, self.id, self.id, Cause.CREATED))
        else:
            self.write(batch_of(TABLE, [Change(op, self.id, {"id": key, "v": self.rows.get(key)})]))

    @property
    def mark_id(self) -> int:
        """Of the newest mark; the next change is some bytes behind it."""
        return self.id - 50

    def write(self, *changes: ChangeBatch | Clear) -> None:
        self.id += 100
        entries = [Entry(change.key(), change.to_block(), 0) for change in changes]
        mark = Entry(MARK_KEY, Mark(SOURCE, {}, self.mark_id, self.id).to_block(), 0)
        self.log.append(SOURCE, PARTITION, [*entries, mark])


@dataclass
class MemoryLoader:
    """Reads the database above a few rows at a time; it changes between two reads, and the process may die at any of them."""

    database: Database
    chance: random.Random
    dies: float = 0.0
    ordered: bool = True
    reads: int = 0

    def names(self) -> Sequence[tuple[str, str]]:
        return [("shop", "t")]

    def table(self, schema: str, name: str) -> TableSchema | None:
        self._something_happens()
        return TABLE if (schema, name) == ("shop", "t") else None

    def has_past(self, schema: str, name: str) -> bool:
        return False

    def replaced_at(self, schema: str, name: str) -> int | None:
        return self.database.replaced_at

    def end_of_log(self) -> Callable[[Mark], bool]:
        end = self.database.mark_id
        return lambda mark: mark.id >= end

    def order(self, table: TableSchema) -> tuple[str, ...]:
        return ("id",) if self.ordered else ()

    def estimated_rows(self, table: TableSchema) -> int:
        return len(self.database.rows)

    def last_key(self, table: TableSchema, where: str) -> Key | None:
        return (str(max(self.database.rows)),) if self.database.rows and self.ordered else None

    def key_behind(self, table: TableSchema, range_: Range, where: str, rows: int) -> Key | None:
        found = self._within(range_)
        return (str(found[rows - 1]),) if len(found) >= rows else None

    def read(self, table: TableSchema, range_: Range, where: str, batch_rows: int) -> Iterator[Part]:
        rest: Range | None = range_
        while rest is not None and (keys := self._within(rest)[:3]):
            self._something_happens()
            self.reads += 1
            keys = [key for key in keys if key in self.database.rows] or keys[:0]
            rows = [{"id": key, "v": self.database.rows[key], RAW: None} for key in keys]
            schema = pa.schema([("id", pa.int64()), ("v", pa.utf8()), (RAW, pa.utf8())])
            if keys:
                last = (str(keys[-1]),)
                yield Part(pa.RecordBatch.from_pylist(rows, schema=schema), last if self.ordered else None)
                rest = Range(last, rest.to)
            self._something_happens()

    def close(self) -> None: ...

    def _within(self, range_: Range) -> list[int]:
        after = int(range_.after[0]) if range_.after else -1
        to = int(range_.to[0]) if range_.to else 10**9
        return [key for key in sorted(self.database.rows) if after < key <= to]

    def _something_happens(self) -> None:
        for _ in range(self.chance.randrange(3)):
            self.database.change()
        if self.chance.random() < self.dies:
            raise CrashError


def open_log(path: Path) -> Log:
    return DirectoryLog(DirectoryLog.Config(type="directory", path=path / "log"))


def load(database: Database, loader: MemoryLoader, config: LoadConfig, state: Path, masker: Masker = UNMASKED) -> None:
    """Runs planner and workers by turns, in a random order, until everything is loaded; starts again after each crash."""
    for _ in range(10_000):
        plan = Plan(database.log, SOURCE)
        planner = Planner(loader, database.log, plan, SOURCE, config=config, directory=state)
        plan.refresh()
        workers = [
            Worker(loader, database.log, plan, SOURCE, lane, source_type="mysql", masker=masker, rows_per_s=None)
            for lane in sorted({*range(1, config.workers + 1), *plan.lanes})
        ]
        try:
            while not planner.step():
                worker = loader.chance.choice(workers)
                shard = worker.next()
                if shard is not None:
                    for _ in worker.work(shard, lambda: loader.chance.random() < 0.2):
                        database.change()
        except CrashError:
            continue
        return
    raise AssertionError("the load does not come to its end")


def delivered(log: Log, lanes: int, chance: random.Random, sink: MemorySink) -> dict[int, str]:
    """All topics into a sink, interleaved at random, unit by unit."""
    topics = [SOURCE, *(lane_topic(SOURCE, lane) for lane in range(1, lanes + 1))]
    waiting = {topic: list(units(log, topic)) for topic in topics}
    sink.prepare(TABLE)
    while any(waiting.values()):
        topic = chance.choice([topic for topic, left in waiting.items() if left])
        for change in waiting[topic].pop(0):
            sink.clear(change) if isinstance(change, Clear) else sink.write(change)
        sink.commit(Position(topic, 0, 0, 0, 0))
    return {
        key: value
        for batch in sink.scan(TABLE)
        for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    }


def units(log: Log, topic: str) -> Iterator[list[ChangeBatch | Clear]]:
    gathered: list[ChangeBatch | Clear] = []
    for record in log.read(topic, PARTITION, log.spans(topic).get(PARTITION, Span(0, 0))):
        block = read_block(record.entry.value)
        if isinstance(block, Mark):
            yield gathered
            gathered = []
        else:
            gathered.append(block)


def loaded_ids(log: Log, lanes: int) -> list[int]:
    blocks = [
        block
        for lane in range(1, lanes + 1)
        for unit in units(log, lane_topic(SOURCE, lane))
        for block in unit
        if isinstance(block, ChangeBatch)
    ]
    return [id_ for block in blocks for id_ in block.data.column("_ums_id_").to_pylist()]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "without order"])
@pytest.mark.demand(4)
@pytest.mark.parametrize("renames", [0.0, 0.02], ids=["the same table", "replaced"])
def test_the_target_is_the_source_in_the_end(seed: int, ordered: bool, renames: float, tmp_path: Path) -> None:
    chance = random.Random(seed)
    log = open_log(tmp_path)
    database = Database(log, chance)
    for _ in range(chance.randrange(120)):
        database.change()
    database.renames = renames
    config = LoadConfig(workers=chance.randint(1, 3), chunk_rows=chance.randint(1, 12))
    load(database, MemoryLoader(database, chance, dies=0.02, ordered=ordered), config, tmp_path)
    database.renames = 0.0
    for _ in range(chance.randrange(20)):
        database.change()
    ids = loaded_ids(log, config.workers)
    if database.replaced_at is None:
        assert all(SMALLEST_ID <= id_ <= LARGEST_ID for id_ in ids)
    if ordered:
        first = [id_ for id_ in ids if id_ < 0]
        assert len(first) == len(set(first))
    for _ in range(3):
        sink = MemorySink(MemorySink.Config(type="memory", name=f"{tmp_path}-{chance.random()}"), "flow")
        assert delivered(log, config.workers, chance, sink) == database.rows
    log.close()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.demand(15)
def test_loading_again_repairs_a_target(seed: int, tmp_path: Path) -> None:
    """Rows that the target lost, has wrong or should not have at all, with ids of changes that never were so."""
    chance = random.Random(seed)
    log = open_log(tmp_path)
    database = Database(log, chance)
    for _ in range(80):
        database.change()
    sink = MemorySink(MemorySink.Config(type="memory", name=str(tmp_path)), "flow")
    sink.prepare(TABLE)
    spoiled = [Change("i", database.id - 50 - key, {"id": key, "v": "spoiled"}) for key in range(60)]
    sink.write(batch_of(TABLE, sorted(spoiled, key=lambda change: change.id)))
    database.write()
    Request([("shop", "t")]).write(tmp_path)
    config = LoadConfig(workers=2, chunk_rows=7, first=False)
    load(database, MemoryLoader(database, chance, dies=0.02), config, tmp_path)
    assert delivered(log, 2, chance, sink) == database.rows
    log.close()


@pytest.mark.demand(3)
def test_after_a_crash_at_most_one_part_is_read_again(tmp_path: Path) -> None:
    """A reader that dies at each of its parts once reads every part twice at most."""
    log = open_log(tmp_path)
    chance = random.Random(5)
    database = Database(log, chance, rows={key: str(key) for key in range(60)})
    database.write()
    quiet = random.Random()
    quiet.randrange = lambda *_: 0  # type: ignore[method-assign] - nothing changes
    loader = MemoryLoader(database, quiet)
    config = LoadConfig(workers=1, chunk_rows=30)
    crashed = 0
    while not _steps(database, loader, config, tmp_path, units=2):
        crashed += 1
    rows = loaded_ids(log, 1)
    assert crashed >= 5
    assert len(rows) == 60
    assert loader.reads <= 20 + crashed
    log.close()


def _steps(database: Database, loader: MemoryLoader, config: LoadConfig, state: Path, units: int) -> bool:
    """A process that lives for so many units; True when the load is at its end."""
    plan = Plan(database.log, SOURCE)
    planner = Planner(loader, database.log, plan, SOURCE, config=config, directory=state)
    plan.refresh()
    worker = Worker(loader, database.log, plan, SOURCE, 1, source_type="mysql", masker=UNMASKED, rows_per_s=None)
    while not planner.step():
        shard = worker.next()
        if shard is None:
            continue
        for _ in worker.work(shard, lambda: False):
            units -= 1
            if not units:
                return False
    return True


def test_nothing_is_read_before_capture_has_begun(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    database = Database(log, random.Random(1), rows={1: "a"})
    loader = MemoryLoader(database, random.Random(1))
    planner = Planner(loader, log, Plan(log, SOURCE), SOURCE, config=LoadConfig(), directory=tmp_path)
    assert not planner.step()
    assert not log.spans(plan_topic(SOURCE))
    log.close()


def test_a_table_is_loaded_once_and_what_is_excluded_never(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    database = Database(log, random.Random(1), rows={1: "a"})
    database.write()
    loader = MemoryLoader(database, random.Random(1))
    load(database, loader, LoadConfig(exclude=["shop.*"]), tmp_path)
    assert not loader.reads
    load(database, loader, LoadConfig(), tmp_path)
    reads = loader.reads
    assert reads
    load(database, loader, LoadConfig(), tmp_path)
    assert loader.reads == reads
    log.close()


def test_lanes_of_workers_that_are_no_longer_there_are_read_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    database = Database(log, random.Random(1), rows=dict.fromkeys(range(50), "a"))
    database.write()
    loader = MemoryLoader(database, random.Random(3))
    plan = Plan(log, SOURCE)
    Planner(loader, log, plan, SOURCE, config=LoadConfig(workers=3, chunk_rows=5), directory=tmp_path).step()
    assert {*plan.lanes} == {1, 2, 3}
    load(database, loader, LoadConfig(workers=1, chunk_rows=5), tmp_path)
    assert not Progress.of(log, SOURCE, 3).wants_ids
    sink = MemorySink(MemorySink.Config(type="memory", name=str(tmp_path)), "flow")
    assert delivered(log, 3, random.Random(1), sink) == database.rows
    log.close()


def test_a_request_for_a_table_that_is_gone_is_taken(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    database = Database(log, random.Random(1))
    database.write()
    Request([("shop", "gone")]).write(tmp_path)
    load(database, MemoryLoader(database, random.Random(1)), LoadConfig(first=False), tmp_path)
    assert not list((tmp_path / "requests").iterdir())
    log.close()


def test_while_the_source_is_away_nothing_is_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    database = Database(log, random.Random(1), rows=dict.fromkeys(range(9), "a"))
    database.write()
    loader = MemoryLoader(database, random.Random(1))
    plan = Plan(log, SOURCE)
    planner = Planner(loader, log, plan, SOURCE, config=LoadConfig(workers=1), directory=tmp_path)
    planner.step()
    worker = Worker(loader, log, plan, SOURCE, 1, source_type="mysql", masker=UNMASKED, rows_per_s=None)
    shard = worker.next()
    assert shard is not None
    reading = worker.work(shard, lambda: False)
    next(reading)
    with pytest.raises(RetryableError):
        reading.throw(RetryableError("away", fix="wait"))
    load(database, loader, LoadConfig(workers=1), tmp_path)
    sink = MemorySink(MemorySink.Config(type="memory", name=str(tmp_path)), "flow")
    assert delivered(log, 1, random.Random(1), sink) == database.rows
    log.close()


def test_what_is_masked_is_loaded_masked(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    database = Database(log, random.Random(1), rows={key: f"secret {key}" for key in range(9)})
    database.write()
    loader = MemoryLoader(database, random.Random(1))
    loader.database.change = lambda: None  # type: ignore[method-assign] - what it would write has no mask
    hashed = {"type": "hash", "algorithm": "md5"}
    load(database, loader, LoadConfig(workers=1, chunk_rows=5), tmp_path, masker(v=hashed))
    sink = MemorySink(MemorySink.Config(type="memory", name=str(tmp_path)), "flow")
    found = delivered(log, 1, random.Random(1), sink)
    assert found == {key: hashlib.md5(f"secret {key}".encode()).hexdigest() for key in range(9)}
    log.close()
    assert not [path for path in (tmp_path / "log").rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
