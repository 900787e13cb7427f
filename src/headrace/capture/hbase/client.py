"""The log of an HBase for programs of one's own: a path and a time in, changes of rows out, without Spark.

At least once: `position` is where reading goes on after all listeners have returned. Whoever keeps it and gives it back to a new client misses
nothing; after an error of a listener, or of a store that was away, the next `poll` begins at it again.

::

    client = HBaseWalClient("hdfs://namenode:8020/hbase", datetime(2026, 1, 31, tzinfo=UTC), tables=["shop:*"])
    client.on_change(lambda change: print(change.table, change.row, [(cell.qualifier, cell.value) for cell in change.cells]))
    client.run(until=lambda: stopped)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from headrace.capture.hbase.following import Following, Piece
from headrace.capture.hbase.mapping import full_name, is_table
from headrace.capture.hbase.places import require_log
from headrace.capture.hbase.source import milliseconds, open_store
from headrace.codec.hbase_wal import KINDS, MARKERS
from headrace.errors import ConfigError
from headrace.storage.options import HdfsOptions

_WAIT_S = 0.05
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class WalCell:
    """One cell. `kind`: put, or delete version, delete family version, delete column, delete family, which have no value."""

    family: bytes
    qualifier: bytes
    timestamp: int
    kind: str
    value: bytes
    tags: bytes


@dataclass(frozen=True, slots=True)
class RowChange:
    """What was done to a row at once. Region, sequence and `cell` (the number of its first cell in the entry) name it for good."""

    table: str
    region: str
    sequence: int
    cell: int
    written: datetime
    row: bytes
    cells: tuple[WalCell, ...]


@dataclass(frozen=True, slots=True)
class RegionNote:
    """What HBase notes of a region: ``HBASE::REGION_EVENT::REGION_OPEN``, ``HBASE::FLUSH``, …, and a message of protobuf that says more."""

    table: str
    region: str
    sequence: int
    written: datetime
    what: str
    message: bytes


class HBaseWalClient:
    """Follows the log under `path`: HBase's root directory or ``hbase.wal.dir``, on HDFS or this machine.

    `start_time` (UTC when it names no zone): what was written earlier is left out; all that is there when None. `tables`: patterns ``namespace:table`` with ``*`` and
    ``?``. `position`: of an earlier client with the same path; `start_time` does not count then.
    """

    def __init__(
        self,
        path: str,
        start_time: datetime | None = None,
        *,
        tables: Sequence[str] = ("*:*",),
        position: dict[str, Any] | None = None,
        hdfs: HdfsOptions | None = None,
    ) -> None:
        self._store = open_store(path, hdfs or HdfsOptions())
        for table in tables:
            if not is_table(table):
                raise ConfigError(f"'{table}' is no name of a table", fix='give a list of names: tables=["shop:*"]')
        self._tables = [full_name(table) for table in tables]
        since = milliseconds(start_time) if start_time is not None else 0
        self.position: dict[str, Any] = position or {"since": since, "files": {}, "seen": {}}
        self._following: Following | None = None
        self._looked_s = 0.0
        self._changes: list[Callable[[RowChange], object]] = []
        self._notes: list[Callable[[RegionNote], object]] = []

    def on_change(self, listener: Callable[[RowChange], object]) -> None:
        """`listener` is called with each change, of a region in the order in which they were made."""
        self._changes.append(listener)

    def on_note(self, listener: Callable[[RegionNote], object]) -> None:
        """`listener` is called with what HBase notes of regions, between the changes before and behind it."""
        self._notes.append(listener)

    def poll(self) -> bool:
        """Gives listeners what the log has now, up to a size; returns whether there may be more at once.

        RetryableError when the store is away; SourceError when files were deleted before they were read, or are written in a way that is
        not read; CorruptError when they are damaged.
        """
        following, self._following = self._following, None
        if following is None:
            require_log(self._store)
            following = Following(self._store, self._tables, self.position["since"], self.position)
            self._looked_s = 0.0
        now_s = time.monotonic()
        if following.needs_look or now_s - self._looked_s >= _LOOK_S or not self._looked_s:
            following.look()
            self._looked_s = now_s
        for piece in following.take():
            for event in _events(piece):
                for listener in self._changes if isinstance(event, RowChange) else self._notes:
                    listener(event)  # type: ignore[arg-type]
        self.position = {"since": self.position["since"]} | following.to_json()
        self._following = following
        return not following.caught_up

    def run(self, until: Callable[[], bool]) -> None:
        """Polls until `until()` is true."""
        while not until():
            if not self.poll():
                time.sleep(_WAIT_S)


def _events(piece: Piece) -> Iterator[RowChange | RegionNote]:
    cells: list[dict[str, Any]] = piece.batch.cells.to_pylist()
    entries: list[dict[str, Any]] = piece.batch.entries.to_pylist()
    for number, mine in groupby(cells, key=lambda cell: cell["entry"]):
        entry = entries[number]
        table, region, sequence = entry["table"].decode(), entry["region"].decode(), entry["sequence"]
        written = datetime.fromtimestamp(entry["write_time"] / 1000, UTC)
        first = 0
        for (row, is_note), group in groupby(mine, key=lambda cell: (cell["row"], cell["family"] == MARKERS)):
            found = list(group)
            if is_note:
                for cell in found:
                    yield RegionNote(table, region, sequence, written, cell["qualifier"].decode(), cell["value"])
            else:
                yield RowChange(table, region, sequence, first, written, row, tuple(map(_cell, found)))
            first += len(found)


def _cell(cell: dict[str, Any]) -> WalCell:
    return WalCell(
        cell["family"],
        cell["qualifier"],
        cell["timestamp"],
        KINDS.get(cell["kind"], "unknown"),
        cell["value"],
        cell["tags"],
    )
