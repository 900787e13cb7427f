"""Rows that a target refuses: found by halving, put into the error ledger, left out of what is delivered.

A store says "no" to a transaction or a request, seldom to a row. So what was refused is tried again in parts, each in a new sink that is
closed without a commit: a part that is refused is halved until the row stands alone.

    Proof. A row that the store refuses whatever comes with it makes every part refused that it is in; of the two halves of such a part one
    has the row, so by halving it comes to stand alone, and is found. A part that is taken has no such row; when the first half of a refused
    part has none, the second is refused, and need not be tried to be halved. Of n rows with k such ones at most 2 k log2 n + 1 parts are
    tried. Rows that are refused only together come out of no half: nothing is found, and the flow stops.

A row that is found has an entry in the ledger of the flow (head of codec/error_ledger.py), which says besides::

    flow      whose target refused it          offset, number   of the entry in the topic's partition that has the row, and of the row in it
    reason    what the store said              partition        of the topic, as of the ledger

Rows that have waited to become valid (waiting.py) come here too, when they are refused then or lack something still: `offset` is their number there, `number` -1.

The row is as the log has it, before the flow drops or renames columns: a replay does that anew, by the flow file of its day.

Crash story: the rows of a search are entered as one unit, when all are found. The follower commits nothing behind them before: it then goes
back to the last commit and delivers without them. A kill in between enters them a second time, under the same offsets and numbers.

A later change of the row's key goes on. When the row is delivered after all, by a replay, it has the smaller `_ums_id_` and loses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from headrace.codec.entries import EntryReader, table_of
from headrace.codec.error_ledger import LedgerName, entries_of, found_in
from headrace.codec.ums import is_heartbeat, is_mark
from headrace.crash import crash_point
from headrace.errors import DataError
from headrace.flow.shape import Shaper
from headrace.flow.spec import SetAside
from headrace.log.base import Entry, Log, Span
from headrace.sinks.base import Sink
from headrace.ums.change import ChangeBatch, Clear, End
from headrace.ums.schema import ID
from headrace.ums.values import to_text

_TOGETHER_ROWS = 65_536
_TOGETHER_BYTES = 32 << 20
_FEWEST_ROWS = 10_000
NewSink = Callable[[], Sink]
Read = TypeVar("Read", ChangeBatch, ChangeBatch | Clear | End)


HAS_WAITED = -1
"""`Place.number` of a row that has waited to become valid; `Place.offset` is the number that it had then (waiting.py)."""


class Place(NamedTuple):
    """Where a row stands on the log, for ever."""

    partition: int
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one entry of the log: where they stand, as it has them, and as the target is to get them."""

    places: Sequence[Place]
    read: ChangeBatch
    shaped: ChangeBatch

    def __len__(self) -> int:
        return len(self.places)

    def sliced(self, first: int, count: int) -> Part:
        read, shaped = (ChangeBatch(rows.table, rows.data.slice(first, count)) for rows in (self.read, self.shaped))
        return Part(self.places[first : first + count], read, shaped)


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the target does not take."""

    row: Part
    error: DataError

    def entries(self, flow: str, now_ms: int) -> Iterator[Entry]:
        """Its entry in the ledger."""
        place = self.row.places[0]
        return entries_of(self.row.read, {"flow": flow, **place._asdict(), "reason": self.error.message}, now_ms)

    def named(self) -> DataError:
        """The store's error with the table and the key of the row."""
        shaped = self.row.shaped
        key = ", ".join(f"{name}={to_text(shaped.data.column(name))[0].as_py()}" for name in shaped.table.key)
        space = shaped.table.namespace
        row = f"row with {key}" if key else f"row with {ID} {shaped.data.column(ID)[0]}"
        return DataError(f"table {space.schema}.{space.table}, {row}: {self.error.message}", fix=self.error.fix)


def refused(parts: Sequence[Part], new_sink: NewSink, *, surely: bool = False) -> Iterator[Refused]:
    """The rows that a target refuses one by one; errors of `Sink.prepare` and outages come out. `surely`: all of them together it refuses."""
    rows = sum(map(len, parts))
    if not rows:
        return
    if rows == 1 or not surely:
        error = _tried(parts, new_sink)
        if error is None:
            return
        if rows == 1:
            yield Refused(parts[0], error)
            return
    first, second = _halves(parts, rows // 2)
    is_in_the_first = False
    for one in refused(first, new_sink):
        is_in_the_first = True
        yield one
    yield from refused(second, new_sink, surely=not is_in_the_first)


def _tried(parts: Sequence[Part], new_sink: NewSink) -> DataError | None:
    """What the store says to rows; nothing of them stays where it has transactions."""
    sink = new_sink()
    try:
        for table in dict.fromkeys(part.shaped.table for part in parts):
            sink.prepare(table)
        try:
            for part in parts:
                sink.write(part.shaped)
            sink.flush()
        except DataError as error:
            return error
        return None
    finally:
        sink.close()


def _halves(parts: Sequence[Part], rows: int) -> tuple[list[Part], list[Part]]:
    """The first so many rows, and the others."""
    first, second, left = [], [], rows
    for part in parts:
        taken = min(left, len(part))
        left -= taken
        if taken:
            first.append(part.sliced(0, taken))
        if taken < len(part):
            second.append(part.sliced(taken, len(part) - taken))
    return first, second


class Refusals:
    """What one flow leaves out of one partition of a topic."""

    def __init__(self, shaper: Shaper, new_sink: NewSink, log: Log, topic: str, partition: int) -> None:
        self._shaper = shaper
        self._new_sink = new_sink
        self._log = log
        self._topic = topic
        self._partition = partition
        self._left_out: dict[int, set[int]] = {}
        """By offset the numbers of rows that are in the ledger and not yet behind a commit."""
        self._set_aside = 0

    def without(self, offset: int, change: Read) -> Read | None:
        """What an entry says without the rows that are in the ledger; None when that is nothing."""
        numbers = self._left_out.get(offset)
        if not numbers or not isinstance(change, ChangeBatch):
            return change
        kept = [number for number in range(len(change)) if number not in numbers]
        return ChangeBatch(change.table, change.data.take(pa.array(kept, pa.int64()))) if kept else None

    def committed(self, offset: int) -> None:
        """Nothing before `offset` will be read again."""
        for behind in [known for known in self._left_out if known < offset]:
            del self._left_out[behind]

    def settle(self, span: Span, error: DataError, rows_read: int, waited: Sequence[Part] = ()) -> list[Refused]:
        """Puts the rows of `span`, and those of `waited`, that the target refuses into the ledger.

        `error`: what it said to all of them together, which is raised, with the row where one is found, when the flow is to stop.
        """
        policy = self._shaper.flow.set_aside
        room = 0 if policy is None else self._room(policy, rows_read)
        found: list[Refused] = []
        for parts in chain([waited], self._together(span)):
            for one in refused(parts, self._new_sink):
                if policy is None:
                    raise one.named() from error
                if len(found) >= room:
                    raise self._too_many(one)
                found.append(one)
        if not found:
            raise error
        self.enter(found)
        return found

    def _room(self, policy: SetAside, rows_read: int) -> int:
        """How many more rows may be set aside."""
        rooms = []
        if policy.rows is not None:
            there = waiting_places(self._log, self._topic, self._shaper.flow.name)
            rooms.append(policy.rows - sum(place.number != HAS_WAITED for place in there))
        if policy.percent is not None:
            rooms.append(int(max(rows_read, _FEWEST_ROWS) * policy.percent / 100) - self._set_aside)
        return min(rooms)

    def _too_many(self, one: Refused) -> DataError:
        named = one.named()
        return DataError(
            f"flow {self._shaper.flow.name}: its target refuses more rows than `set_aside` allows, of which one is {named.message}",
            fix=f"{named.fix}; then deliver what waits in the error ledger with `headrace errors replay`, or allow more",
        )

    def enter(self, found: Sequence[Refused]) -> None:
        """Puts rows into the ledger, all at once."""
        flow, now_ms = self._shaper.flow.name, time.time_ns() // 1_000_000
        entries = [entry for one in found for entry in one.entries(flow, now_ms)]
        crash_point("refused.found")
        self._log.append(str(LedgerName(self._topic, flow)), self._partition, entries)
        crash_point("refused.entered")
        for one in found:
            place = one.row.places[0]
            if place.number != HAS_WAITED:
                self._left_out.setdefault(place.offset, set()).add(place.number)
                self._set_aside += 1

    def _together(self, span: Span) -> Iterator[list[Part]]:
        """The rows of `span` in parts to be tried together, up to where a table gets another key: a target that is ready for that key
        may not be ready for the one before, and the follower commits there anyway."""
        reader, keys = EntryReader(), dict[str, tuple[str, ...]]()
        parts: list[Part] = []
        rows = size_bytes = 0
        for record in self._log.read(self._topic, self._partition, span):
            part = self._part(reader, record.offset, record.entry)
            if part is None:
                continue
            table = part.shaped.table
            if keys.setdefault(table.namespace.all_versions, table.key_identities) != table.key_identities:
                break
            parts.append(part)
            rows, size_bytes = rows + len(part), size_bytes + part.read.data.nbytes
            if rows >= _TOGETHER_ROWS or size_bytes >= _TOGETHER_BYTES:
                yield parts
                parts, rows, size_bytes = [], 0, 0
        if parts:
            yield parts

    def _part(self, reader: EntryReader, offset: int, entry: Entry) -> Part | None:
        key = entry.key
        if is_mark(key) or is_heartbeat(key) or not self._shaper.wants(table_of(key)):
            return None
        read = reader.read(entry)
        if not isinstance(read, ChangeBatch):
            return None
        left_out = self._left_out.get(offset, set())
        places = [Place(self._partition, offset, n) for n in range(len(read)) if n not in left_out]
        rows = self.without(offset, read)
        shaped = None if rows is None else self._shaper.shape(rows)
        return Part(places, rows, shaped) if rows is not None and isinstance(shaped, ChangeBatch) else None


def waiting_places(log: Log, topic: str, flow: str) -> set[Place]:
    """The rows of a topic that a flow's target has refused, and that were not delivered since."""
    name = LedgerName(topic, flow)
    found = {place_of(found) for found in found_in(log, str(name))}
    return found - {place_of(found) for found in found_in(log, str(LedgerName(topic, flow, is_done=True)))}


def place_of(found: Mapping[str, Any]) -> Place:
    return Place(found["partition"], found["offset"], found["number"])
