"""What windows of a lake should say, counted in memory from all changes that were ever landed; and lakes with windows for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.lake.certificate import Rounds
from headrace.lake.cut import tally_of
from headrace.lake.policy import Policy
from headrace.lake.records import Stream
from headrace.lake.tally import Tally
from headrace.lake.tend import Caretaker
from headrace.lake.windows import Closing, WindowPolicy
from headrace.sinks.base import Position
from headrace.storage.location import tree_at
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import COMMIT_TS
from tests.lake_tables import ORDERS, START, open_sink

FLOW = "orders_lake"
MEMBERS = (Stream(FLOW, "db1", 0),)
SECOND = 1_000_000
START_US = int(START.timestamp()) * SECOND


def closing(length: object = 10, members: Sequence[Stream] = MEMBERS, **settings: object) -> Closing:
    """Windows of so many seconds."""
    return Closing(
        WindowPolicy.model_validate({"length": length, **settings}),
        lambda table: list(members),
    )


def caretaker(path: Path, windows: Closing | None = None, **policy: object) -> Caretaker:
    return Caretaker(path, Policy.model_validate(policy), windows or closing())


def passed(offset: int, seconds: float, partition: int = 0) -> Position:
    """A position whose mark was committed so many seconds after START."""
    return Position("db1", partition, offset, int(seconds), START_US + int(seconds * SECOND))


def land_until(
    path: Path, seconds: float, *batches: ChangeBatch, offset: int, partition: int = 0, flow: str = FLOW
) -> None:
    """Commits changes with a mark that was committed so many seconds after START."""
    sink = open_sink(path, flow)
    for batch in batches:
        sink.write(batch)
    sink.commit(passed(offset, seconds, partition))
    sink.close()


def expected(batches: Sequence[ChangeBatch], length_s: float = 10, column: str = "") -> dict[int, Tally]:
    """All rows by window, row by row; by their commit time where there is no other."""
    found: dict[int, Tally] = {}
    for batch in batches:
        rows = pa.Table.from_batches([batch.data])
        for at in range(len(batch)):
            time = rows.column(column)[at].cast(pa.int64()).as_py() if column else None
            time = rows.column(COMMIT_TS)[at].cast(pa.int64()).as_py() if time is None else time
            start = int(time // (length_s * SECOND) * length_s * SECOND)
            found[start] = found.get(start, Tally()) + tally_of(rows.slice(at, 1))
    return found


def certified(path: Path, table: str = ORDERS) -> dict[float, tuple[int, int]]:
    """By window, in seconds after START, the number of its newest certificate and its rows."""
    newest = Rounds(tree_at(path), table).newest
    return {(start - START_US) / SECOND: (each.number, each.rows.rows) for start, (_, each) in sorted(newest.items())}
