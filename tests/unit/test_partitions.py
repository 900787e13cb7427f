"""Changes in several partitions: where they go, that they stay there, and that followers of all partitions have everything once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from headrace._native import parts_of_rows
from headrace.capture.base import Event
from headrace.capture.mask import Masker
from headrace.capture.partitions import parted
from headrace.capture.runner import run_capture
from headrace.codec.entries import EntryReader
from headrace.errors import ConfigError, Finding
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.directory import DirectoryLog
from headrace.model import SourceConfig
from headrace.retry import Backoff
from headrace.sinks.memory import MemorySink
from headrace.stream.deliver import Follower
from headrace.stream.figures import figures_beside
from headrace.ums.change import ChangeBatch, Clear, End, Heartbeat, Mark
from headrace.ums.schema import Column, Namespace, TableSchema

SPACE = Namespace("mysql", "db1", "shop", "t")
TABLE = TableSchema(SPACE, (Column("id", pa.int32(), "int", False), Column("name", pa.utf8(), "text")), ("id",))
PARTITIONS = 4


def batch(rows: Sequence[tuple[int, str, int]], table: TableSchema = TABLE) -> ChangeBatch:
    """Changes as (_ums_id_, op, key)."""
    found = [
        {"_ums_id_": id_, "_ums_ts_": 0, "_ums_op_": op, "_ums_commit_ts_": 0, "id": key, "name": f"{id_}"}
        for id_, op, key in rows
    ]
    return ChangeBatch(table, pa.RecordBatch.from_pylist(found, schema=table.arrow_schema()))


def ids(change: ChangeBatch | Clear | End) -> list[int]:
    assert isinstance(change, ChangeBatch)
    found: list[int] = change.data.column("_ums_id_").to_pylist()  # type: ignore[assignment]
    return found


def test_rows_go_by_their_keys_and_keep_their_order() -> None:
    changes = batch([(number, "u", number * 7919 % 500 - 250) for number in range(5_000)])
    parts = parted(changes, PARTITIONS)
    assert sorted(parts) == list(range(PARTITIONS))
    assert sorted(id_ for part in parts.values() for id_ in ids(part)) == list(range(5_000))
    home = {}
    for partition, part in parts.items():
        assert ids(part) == sorted(ids(part))
        assert 800 < len(part) < 1_700, "keys are spread unevenly"
        assert isinstance(part, ChangeBatch)
        for key in part.data.column("id").to_pylist():
            assert home.setdefault(key, partition) == partition


def test_rows_that_go_by_a_column_stay_together_whatever_their_keys() -> None:
    lines = TableSchema(SPACE, (*TABLE.columns, Column("host", pa.utf8(), "varchar(255)")), ("id",))
    rows = [
        {"_ums_id_": id_, "_ums_op_": "i", "id": id_, "host": f"web{id_ % 7}" if id_ % 9 else None}
        for id_ in range(500)
    ]
    batch_ = pa.RecordBatch.from_pylist(
        [{"_ums_ts_": 0, "_ums_commit_ts_": 0, **row} for row in rows], lines.arrow_schema()
    )
    parts = parted(ChangeBatch(lines, batch_), PARTITIONS, "host")
    homes: dict[object, set[int]] = {}
    for partition, part in parts.items():
        assert isinstance(part, ChangeBatch)
        assert ids(part) == sorted(ids(part))
        for host in part.data.column("host").to_pylist():
            homes.setdefault(host, set()).add(partition)
    assert sorted(id_ for part in parts.values() for id_ in ids(part)) == list(range(500))
    assert len(homes) == 8
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_a_key_stays_where_it_is_when_its_number_grows() -> None:
    wider = TableSchema(SPACE, (Column("id", pa.int64(), "bigint", False), TABLE.columns[1]), ("id",))
    for key in (-(1 << 31), -1, 0, 1, 77, (1 << 31) - 1):
        assert parted(batch([(1, "i", key)]), 64).keys() == parted(batch([(1, "i", key)], wider), 64).keys()


def test_the_partition_of_a_key_is_the_same_in_every_version() -> None:
    keys = pa.RecordBatch.from_pydict({"k": pa.array([0, 1, 2, -1, 1 << 40]), "l": ["", "a", "b", "ä", "long" * 9]})
    assert pa.Array.from_buffers(pa.uint16(), 5, [None, pa.py_buffer(parts_of_rows(keys, 64))]).to_pylist() == [
        42,
        47,
        18,
        0,
        8,
    ]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.utf8(), ["", "a", "ü" * 300]),
        (pa.binary(), [b"", b"\0"]),
        (pa.decimal128(20, 3), ["1.500", "-2.000"]),
        (pa.timestamp("us"), [0, 1]),
        (pa.date32(), [0, 1]),
        (pa.uint64(), [0, (1 << 64) - 1]),
        (pa.float64(), [0.5, -1.0]),
        (pa.bool_(), [True, False]),
    ],
)
def test_keys_of_every_type(type_: pa.DataType, values: list[object]) -> None:
    table = TableSchema(SPACE, (Column("k", type_, "k", False),), ("k",))
    keys = pa.array(values, pa.utf8()).cast(type_) if pa.types.is_decimal(type_) else pa.array(values, type_)
    nothing = pa.RecordBatch.from_pylist([{"_ums_id_": at} for at in range(len(keys))], table.arrow_schema())
    data = pa.RecordBatch.from_arrays([*nothing.columns[:-1], keys], schema=table.arrow_schema())
    parts = parted(ChangeBatch(table, data), 3)
    assert sorted(id_ for part in parts.values() for id_ in ids(part)) == list(range(len(values)))


def test_what_has_no_key_goes_together_and_what_is_of_a_table_everywhere() -> None:
    keyless = TableSchema(SPACE, TABLE.columns, ())
    assert len(parted(batch([(number, "i", number) for number in range(50)], keyless), PARTITIONS)) == 1
    for change in (Clear(TABLE, 1, 0), End(TABLE, keyless, 1, 0)):
        assert parted(change, PARTITIONS) == dict.fromkeys(range(PARTITIONS), change)


class Scripted:
    """Goes on behind a mark, as a source does; stops in the middle of what it has when told so."""

    def __init__(self, events: Sequence[Event], fails_at: int | None = None) -> None:
        self._events = events
        self._fails_at = fails_at

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        yield from ()

    def tables(self) -> Sequence[TableSchema]:
        return [TABLE]

    def follow(self, start: Mark | None) -> Iterator[Event]:
        marks = [event.mark for event in self._events]
        first = 0 if start is None else marks.index(start) + 1
        for number, event in enumerate(self._events[first:], first):
            if number == self._fails_at:
                raise KeyboardInterrupt
            yield event
        yield Event([], marks[-1], caught_up=True)

    def skip(self, newest: Mark, to: str) -> Mark:
        return newest

    def confirm(self, mark: Mark) -> None:
        pass

    def close(self) -> None:
        pass


def history(seed: int) -> list[Event]:
    """Transactions over 40 keys; now and then one of several events, or all rows gone."""
    chance, id_, events = random.Random(seed), 0, []
    for _ in range(30):
        parts = chance.choice([1, 1, 1, 3])
        for part in range(parts):
            rows = [(id_ := id_ + 1, chance.choice("iud"), chance.randrange(40)) for _ in range(chance.randint(1, 6))]
            changes: list[ChangeBatch | Clear | End] = [batch(rows)]
            if chance.random() < 0.1:
                changes.append(Clear(TABLE, id_ := id_ + 1, 0))
            mark = Mark("db1", {"at": id_}, id_, 0) if part == parts - 1 else None
            events.append(Event(changes, mark, heartbeats=(Heartbeat("db1", None, id_, id_),)))
    return events


def capture(log: DirectoryLog, source: Scripted, partitions: int) -> None:
    run_capture(
        source,
        log,
        "db1",
        Masker(SourceConfig(type="scripted", name="db1"), None),
        source_type="mysql",
        partitions=partitions,
        over=lambda: False,
        until_idle=True,
        backoff=Backoff(0),
        progress=lambda _captured: None,
    )


def deliver(log: DirectoryLog, store: str) -> int:
    """Delivers all partitions up to their ends; how many rows came to the store."""
    config = MemorySink.Config(type="memory", name=store)
    flow = FlowSpec.model_validate({"name": "f", "from": "mysql.db1", "to": config})
    came = 0
    for partition in log.spans("db1"):
        follower = Follower(
            lambda: MemorySink(config, "f"), Shaper(flow), log, "db1", partition, start=None, clock=count().__next__
        )
        follower.run(lambda: False, lambda _: True, Backoff(0))
        came += sum(follower.delivered.rows.values())
    return came


def live(store: str) -> dict[object, str]:
    rows = MemorySink.stores[store].tables.get("mysql.db1.shop.t", {})
    return {key[0]: row.values["name"].as_py() for key, row in rows.items() if row.is_active}


@pytest.mark.parametrize("seed", range(8))
def test_captures_that_end_anywhere_lose_nothing_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """With one partition, and with several whose number changes: the same rows, each change delivered once."""
    events, chance = history(seed), random.Random(seed)
    whole, parted_ = (DirectoryLog(DirectoryLog.Config(path=tmp_path / name)) for name in ("one", "many"))
    expected, found = uuid4().hex, uuid4().hex
    capture(whole, Scripted(events), 1)
    came = 0
    for fails_at in sorted(chance.sample(range(1, len(events)), 5)):
        with pytest.raises((KeyboardInterrupt, ConfigError)):
            capture(parted_, Scripted(events, fails_at=fails_at), chance.randint(1, PARTITIONS))
        came += deliver(parted_, found)
    for partitions in range(1, PARTITIONS + 1):
        with suppress(ConfigError):
            capture(parted_, Scripted(events), partitions)
    came += deliver(parted_, found)
    deliver(whole, expected)
    assert live(found) == live(expected)
    changes = sum(len(change) for event in events for change in event.changes if isinstance(change, ChangeBatch))
    clears = sum(isinstance(change, Clear) for event in events for change in event.changes)
    assert changes + clears <= came <= changes + clears * PARTITIONS
    whole.close()
    parted_.close()


def test_every_partition_has_the_marks_and_heartbeats(tmp_path: Path) -> None:
    log, events = DirectoryLog(DirectoryLog.Config(path=tmp_path / "log")), history(1)
    capture(log, Scripted(events), 3)
    reader = EntryReader()
    for partition, span in log.spans("db1").items():
        found = [reader.read(record.entry) for record in log.read("db1", partition, span)]
        assert [one for one in found if isinstance(one, Mark)] == [event.mark for event in events if event.mark]
        assert [one for one in found if isinstance(one, Heartbeat)] == [event.heartbeats[0] for event in events]
    log.close()


def test_a_stage_is_as_far_as_its_partition_that_is_behind() -> None:
    one = {"rows": {"t": 1}, "problem": "", "heartbeats": {"db1": [5, 6], "t": [1, 2]}, "position": {"commit_ts_us": 9}}
    other = {"rows": {"t": 2}, "problem": "away", "heartbeats": {"db1": [3, 9]}, "position": {"commit_ts_us": 7}}
    for found in (figures_beside(one, other), figures_beside(other, one)):
        assert found["rows"] == {"t": 3}
        assert found["problem"] == "away"
        assert found["heartbeats"] == {"db1": [3, 9]}
        assert found["position"] == {"commit_ts_us": 7}
