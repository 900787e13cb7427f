"""Log -> sinks: what a following task does for each flow of its part of the log.

A `Follower` serves one flow in a thread of its own, with its own position, so a slow or absent target holds up nobody else while
an epoch lasts. All tasks of a run meet at an epoch's end, and a target that stays away longer than `give_up_after` ends the run.

What it writes is cut at marks (ums/change.py), so a transaction of the source becomes visible in the target whole:

* changes since the newest mark wait in `_Gathered.open` until their mark comes;
* complete changes are written in sets as large as what is there, then committed together with the position of their mark;
* a transaction larger than `_GATHER_BYTES` is written while it is still open, and not committed before its mark.

Repeats: when capture died in a transaction that needed several appends, the log holds its first changes twice, with the same
ids. Ids of one table only grow along the log, so a change that is not above the newest seen of its table is a repeat and is
dropped before a sink sees it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FatalError, RetryableError
from headrace.flow.shape import Shaper
from headrace.log.base import Log, Record, Span
from headrace.retry import Backoff
from headrace.sinks.base import Position, Sink
from headrace.ums.change import MARK_KEY, ChangeBatch, Clear, Mark, read_block
from headrace.ums.schema import ID, TableSchema

_GATHER_BYTES = 32 << 20
_GATHER_ROWS = 65_536
_WAIT_S = 0.05
_REST_S = 2.0
"""How long the rest of an open transaction may keep an epoch waiting."""


@dataclass(slots=True)
class Delivered:
    """What a follower has done since it started, for progress and statistics."""

    position: Position | None = None
    rows: Counter[str] = field(default_factory=Counter)
    """Changes per namespace that are committed in the target."""
    commits: int = 0
    delay_ms: list[float] = field(default_factory=list)
    """From append to the log until visible in the target, of the newest commits (at most 10,000)."""
    committed_ms: float = 0.0
    """When the newest commit was visible, milliseconds since 1970 UTC."""
    retries: int = 0
    problem: str = ""
    """The message of the outage that is being waited out, empty while all is well."""

    def committed(self, position: Position, rows: Counter[str], appended_at_ms: int, now_ms: float) -> None:
        self.position = position
        self.rows.update(rows)
        self.commits += 1
        self.committed_ms = now_ms
        self.delay_ms.append(now_ms - appended_at_ms)
        del self.delay_ms[:-10_000]


class _Pile:
    """Changes in log order per table, all versions of a table together: what comes between two versions stays between them."""

    def __init__(self) -> None:
        self.tables: dict[str, list[ChangeBatch | Clear]] = {}
        self.rows = 0
        self.bytes = 0

    def add(self, change: ChangeBatch | Clear) -> None:
        self.tables.setdefault(change.table.namespace.all_versions, []).append(change)
        self.rows += len(change)
        self.bytes += change.data.nbytes if isinstance(change, ChangeBatch) else 0

    def absorb(self, later: _Pile) -> None:
        for table, changes in later.tables.items():
            self.tables.setdefault(table, []).extend(changes)
        self.rows += later.rows
        self.bytes += later.bytes


class _Gathered:
    """Changes on their way from the log to the sink, complete ones apart from those of an open transaction."""

    def __init__(self) -> None:
        self.complete = _Pile()
        self.open = _Pile()
        self.mark: Position | None = None
        self.mark_appended_at_ms = 0

    def close(self, mark: Position, appended_at_ms: int) -> None:
        self.complete.absorb(self.open)
        self.open = _Pile()
        self.mark = mark
        self.mark_appended_at_ms = appended_at_ms

    @property
    def is_large(self) -> bool:
        return (
            self.complete.rows + self.open.rows >= _GATHER_ROWS
            or self.complete.bytes + self.open.bytes >= _GATHER_BYTES
        )

    def take_complete(self) -> _Pile:
        taken, self.complete = self.complete, _Pile()
        return taken

    def take_open(self) -> _Pile:
        taken, self.open = self.open, _Pile()
        return taken


class Follower:
    """Follows one partition of the log for one flow. `start` is the position that the ledger has; a sink that remembers knows better."""

    def __init__(
        self,
        new_sink: Callable[[], Sink],
        shaper: Shaper,
        log: Log,
        topic: str,
        partition: int,
        *,
        start: Position | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.delivered = Delivered(position=start)
        self._new_sink = new_sink
        self._shaper = shaper
        self._log = log
        self._topic = topic
        self._partition = partition
        self._clock = clock

    def run(self, over: Callable[[], bool], idle: Callable[[int], bool], backoff: Backoff) -> None:
        """Delivers until `over()` or until `idle(offset)` says that nothing will come at or behind `offset`.

        Outages of the target are waited out by `backoff`; each new attempt starts at the last committed position.
        """
        self._backoff = backoff
        while True:
            self._sink = self._new_sink()
            try:
                self._follow(over, idle)
            except RetryableError as error:
                self.delivered.retries += 1
                self.delivered.problem = error.message
                pause_s = backoff.failed(error)
            else:
                return
            finally:
                # Before the pause: an open transaction of the target holds locks.
                self._sink.close()
            until = self._clock() + pause_s
            while self._clock() < until and not over():
                time.sleep(_WAIT_S)
            if over():
                return

    def _follow(self, over: Callable[[], bool], idle: Callable[[int], bool]) -> None:
        offset = self._open()
        arrived_at = self._clock()
        while True:
            before, offset = offset, self._take_what_is_there(offset, over)
            arrived_at = self._clock() if offset > before else arrived_at
            # The rest of an open transaction is waited for only while it keeps coming: capture may have died in it, and what has
            # taken its place may start only when this epoch is over. It is then read again from the mark before.
            whole = not self._in_transaction or self._clock() - arrived_at >= _REST_S
            ending = whole and (over() or idle(offset))
            if ending or self._commit_is_due():
                self._commit()
            if ending:
                return
            self._log.wait(self._topic, self._partition, offset, self._patience_s())

    @property
    def _in_transaction(self) -> bool:
        """Changes were read, perhaps written, whose mark has not come."""
        return bool(self._gathered.open.tables) or (self._gathered.mark is None and bool(self._written))

    def _open(self) -> int:
        """Forgets what an earlier attempt gathered; returns the offset to read on from."""
        self._gathered = _Gathered()
        self._prepared: set[TableSchema] = set()
        self._written: Counter[str] = Counter()
        self._newest_id: dict[str, int] = {}
        self._committed_at = self._clock()
        position = self.delivered.position
        if self._sink.capabilities.remembers_position:
            position = self._sink.position(self._topic, self._partition)
        self.delivered.position = position
        span = self._log.spans(self._topic).get(self._partition, Span(0, 0))
        if position is None:
            return span.start
        self._must_be_the_same_log(position, span)
        return position.offset

    def _must_be_the_same_log(self, position: Position, span: Span) -> None:
        """FatalError when the mark at which the position was taken is not in the log: another log has taken its place.

        Reading on at that offset would skip or repeat changes without a word.
        """
        if position.offset == span.start > 0:
            return  # retention has taken the mark, and nothing behind it
        if position.offset <= span.stop:
            for record in self._log.read(self._topic, self._partition, Span(position.offset - 1, position.offset)):
                found = read_block(record.entry.value) if record.entry.key == MARK_KEY else None
                if isinstance(found, Mark) and found.id == position.id:
                    return
        raise FatalError(
            f"the target has been delivered up to offset {position.offset} of topic {self._topic}, but this log ends at"
            f" {span.stop} or has something else there: it is not the log that the flow has been reading",
            fix="bring the log back; or give the flow a new name and the target a new place, to deliver everything anew",
        )

    def _take_what_is_there(self, offset: int, over: Callable[[], bool]) -> int:
        span = self._log.spans(self._topic).get(self._partition)
        if span is None or span.stop <= offset:
            return offset
        for record in self._log.read(self._topic, self._partition, Span(offset, span.stop)):
            self._take(record)
            offset = record.offset + 1
            if not self._in_transaction and over():
                return offset
        return span.stop

    def _take(self, record: Record) -> None:
        if record.entry.key == MARK_KEY:
            mark = read_block(record.entry.value)
            assert isinstance(mark, Mark)
            position = Position(self._topic, self._partition, record.offset + 1, mark.id, mark.commit_ts_us)
            self._gathered.close(position, record.entry.time_ms)
        elif self._shaper.wants(record.entry.key):
            change = read_block(record.entry.value)
            assert not isinstance(change, Mark)
            fresh = self._without_repeats(change)
            if fresh is not None:
                self._gathered.open.add(self._shaper.shape(fresh))
        if self._gathered.is_large:
            self._relieve()

    def _without_repeats(self, change: ChangeBatch | Clear) -> ChangeBatch | Clear | None:
        table = change.table.namespace.all_versions
        position = self.delivered.position
        newest = self._newest_id.get(table, position.id if position is not None else None)
        low, high = (change.id, change.id) if isinstance(change, Clear) else change.id_range
        self._newest_id[table] = high if newest is None else max(high, newest)
        if newest is None or low > newest:
            return change
        if high <= newest:
            return None
        assert isinstance(change, ChangeBatch)
        return ChangeBatch(change.table, change.data.filter(pc.greater(change.data.column(ID), pa.scalar(newest))))

    def _relieve(self) -> None:
        """Writes what has been gathered, so that memory stays bounded; commits what is complete first."""
        if self._gathered.open.tables:
            if self._gathered.mark is not None:
                self._commit()
            self._write(self._gathered.take_open())
        else:
            self._write(self._gathered.take_complete())
            if self._sink.commit_interval_s == 0 or self._commit_is_due():
                self._commit()

    def _write(self, pile: _Pile) -> None:
        # All tables first: shaping one ends the transaction of some stores, and would show half of ours.
        for table in {change.table: None for changes in pile.tables.values() for change in changes}:
            if table not in self._prepared:
                self._sink.prepare(table)
                self._prepared.add(table)
        for changes in pile.tables.values():
            for (table, kind), together in groupby(changes, key=lambda change: (change.table, type(change))):
                if kind is ChangeBatch:
                    self._sink.write(_concatenated(table, together))
                else:
                    for clear in together:
                        assert isinstance(clear, Clear)
                        self._sink.clear(clear)
            for change in changes:
                self._written[str(change.table.namespace)] += len(change)

    def _commit_is_due(self) -> bool:
        waited_s = self._clock() - self._committed_at
        return self._gathered.mark is not None and waited_s >= self._sink.commit_interval_s

    def _commit(self) -> None:
        """Makes what is complete visible up to its mark."""
        mark = self._gathered.mark
        if mark is None:
            return
        self._write(self._gathered.take_complete())
        self._sink.commit(mark)
        self._gathered.mark = None
        self._committed_at = self._clock()
        self.delivered.committed(mark, self._written, self._gathered.mark_appended_at_ms, time.time() * 1000)
        self._written = Counter()
        self.delivered.problem = ""
        self._backoff.worked()

    def _patience_s(self) -> float:
        """How long to wait for more: until the next commit is due, but never so long that a stop goes unnoticed."""
        if self._gathered.mark is None:
            return _WAIT_S
        left_s = self._sink.commit_interval_s - (self._clock() - self._committed_at)
        return min(_WAIT_S, max(0.0, left_s))


def _concatenated(table: TableSchema, changes: Iterable[ChangeBatch | Clear]) -> ChangeBatch:
    batches = [change.data for change in changes if isinstance(change, ChangeBatch)]
    joined: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
    return ChangeBatch(table, joined)
