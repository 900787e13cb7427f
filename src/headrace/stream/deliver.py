"""Log -> sinks: what a following task does for each flow of its part of the log.

A `Follower` serves one flow in a thread of its own, with its own position, so a slow or absent target holds up nobody else while
an epoch lasts. All tasks of a run meet at an epoch's end, and a target that stays away longer than `give_up_after` ends the run.

What it writes is cut at marks (ums/change.py), so a transaction of the source becomes visible in the target whole:

* changes since the newest mark wait in `_Gathered.open` until their mark comes;
* complete changes are written in sets as large as what is there, then committed together with the position of their mark;
* a transaction larger than `_GATHER_BYTES` is written while it is still open, and not committed before its mark.

Repeats: the log can hold changes twice, with the same ids. When capture died in a transaction that needed several appends, it begins
that one anew; and a capture that has been given up may append once more after its successor has looked where to go on. Ids of one
table only grow along the log, so a change that is not above the newest seen of its table is a repeat and is dropped before a sink sees
it. Topics of a full load are different: their ids do not grow (all rows of a table that is loaded again have the same one), and a part
that is there twice does no harm to a table with a key.

Rows that are not valid wait (waiting.py), where the flow has `validity`: they begin to before the commit that passes them, and go on with a commit,
of other rows or of their own at the position that there is.

Refused rows: when a target refuses rows the follower goes back to the last commit, and what is between it and the place that had been read
is searched for them (refused.py). They go to the error ledger, and the delivery goes on from that commit without them; or the flow stops.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.stage import Passed, Passing
from headrace.codec.entries import EntryReader, table_of
from headrace.codec.ums import UmsNotice, is_heartbeat, is_mark
from headrace.errors import DataError, FatalError, RetryableError
from headrace.flow.shape import Shaper
from headrace.log.base import Log, Record, Span
from headrace.retry import Backoff
from headrace.sinks.base import Position, Sink
from headrace.stream.pace import Pace
from headrace.stream.passage import Passage
from headrace.stream.refused import Refusals
from headrace.stream.waiting import Waiting
from headrace.ums.change import ChangeBatch, Clear, End, Heartbeat, Mark
from headrace.ums.schema import ID, TableSchema

_GATHER_BYTES = 32 << 20
_GATHER_ROWS = 65_536
_LARGE_ROWS = 8_192
"""A batch of so many is written as it is."""
_WAIT_S = 0.05
_REST_S = 2.0
"""How long the rest of an open transaction may keep an epoch waiting."""
_THEN = {
    "drop": "they were left out",
    "send": "they were delivered as they were",
    "alert": "they are in the error ledger (`headrace errors show`)",
}


@dataclass(slots=True)
class Delivered(Passed):
    """What a follower has done since it started: what has passed into the target, and is visible there."""

    position: Position | None = None
    commits: int = 0
    delay_ms: list[float] = field(default_factory=list)
    """From append to the log until visible in the target, of the newest commits (at most 10,000)."""
    committed_ms: float = 0.0
    """When the newest commit was visible, milliseconds since 1970 UTC."""
    problem: str = ""
    """The message of the outage that is being waited out, empty while all is well."""
    notices: list[str] = field(default_factory=list)
    """What a person should know of rows that were set aside or are not valid, by table."""
    waiting: int | None = None
    """Rows that wait to become valid; None where the flow has no `validity`."""
    overdue: Counter[str] = field(default_factory=Counter)
    """Rows that were not valid when their time was over, per namespace."""

    def committed(self, position: Position, written: Passing, appended_at_ms: int, now_ms: float) -> None:
        self.position = position
        self.passed(written, round(now_ms * 1000))
        self.commits += 1
        self.committed_ms = now_ms
        self.delay_ms.append(now_ms - appended_at_ms)
        del self.delay_ms[:-10_000]


class _Pile:
    """Changes in log order per table, all versions of a table together: what comes between two versions stays between them."""

    def __init__(self) -> None:
        self.tables: dict[str, list[ChangeBatch | Clear | End]] = {}
        self.heartbeats: list[Heartbeat] = []
        self.rows = 0
        self.bytes = 0

    def add(self, change: ChangeBatch | Clear | End) -> None:
        self.tables.setdefault(change.table.namespace.all_versions, []).append(change)
        self.rows += len(change)
        self.bytes += change.data.nbytes if isinstance(change, ChangeBatch) else 0

    @property
    def is_large(self) -> bool:
        return self.rows >= _GATHER_ROWS or self.bytes >= _GATHER_BYTES

    def absorb(self, later: _Pile) -> None:
        for table, changes in later.tables.items():
            self.tables.setdefault(table, []).extend(changes)
        self.heartbeats += later.heartbeats
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
        return self.open.is_large or self.complete.is_large

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
        may_repeat: bool = True,
        asks_sink: bool = True,
        pace: Pace | None = None,
        passage: Passage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`may_repeat`: the topic may hold changes twice, and each table's ids grow along it (see above). `asks_sink`: a sink that
        remembers its position says where to go on; where not, everything from `start` on is written, again if it was before.
        `pace`: of the flow. `passage`: what tells a Watermark Server how far this partition has passed."""
        self._may_repeat = may_repeat
        self._asks_sink = asks_sink
        self.delivered = Delivered(position=start)
        self._new_sink = new_sink
        self._shaper = shaper
        self._refusals = Refusals(shaper, new_sink, log, topic, partition)
        self._waiting = None if shaper.flow.validity is None else Waiting(shaper, log, topic, partition)
        self._read_to = 0
        self._pace = pace
        self._passage = passage
        self._log = log
        self._topic = topic
        self._partition = partition
        self._clock = clock
        self._reader = EntryReader()
        self._refused = Counter[str]()
        self._of_refused: list[str] = []
        self._is_idle = False

    def run(self, over: Callable[[], bool], idle: Callable[[int], bool], backoff: Backoff) -> None:
        """Delivers until `over()` or until `idle(offset)` says that nothing will come at or behind `offset`.

        Outages of the target are waited out by `backoff`; each new attempt starts at the last committed position.
        """
        self._backoff = backoff
        while True:
            try:
                while (refused := self._attempt(over, idle)) is not None:
                    self._set_aside(refused)
            except RetryableError as error:
                self.delivered.retries += 1
                self.delivered.problem = error.message
                pause_s = backoff.failed(error)
            else:
                return
            until = self._clock() + pause_s
            while self._clock() < until and not over():
                time.sleep(_WAIT_S)
            if over():
                return

    def _attempt(self, over: Callable[[], bool], idle: Callable[[int], bool]) -> DataError | None:
        """Delivers from the last committed position on; returns what the target said when it refused rows."""
        self._sink = self._new_sink()
        try:
            self._follow(over, idle)
        except DataError as error:
            return error
        finally:
            # Before anything else is tried: an open transaction of the target holds locks.
            self._sink.close()
        return None

    def _set_aside(self, refused: DataError) -> None:
        """Puts the rows that the target refuses into the error ledger; DataError when the flow is to stop."""
        start = self._span().start if self.delivered.position is None else self.delivered.position.offset
        span, waited = Span(start, max(start, self._read_to)), [] if self._waiting is None else self._waiting.tried
        found = self._refusals.settle(span, refused, self.delivered.rows.total(), waited)
        if self._waiting is not None:
            self._waiting.refused(found)
        self.delivered.failed.update(str(one.row.read.table.namespace) for one in found)
        self._refused.update(str(one.row.read.table.namespace) for one in found)
        self._of_refused = [
            f"the target of flow {self._shaper.flow.name} refused {rows:,} rows of {namespace}: they are in the error ledger"
            f" (`headrace errors show`); the last time it said: {refused.message}"
            for namespace, rows in self._refused.items()
        ]
        self._notice()

    def _notice(self) -> None:
        """Says anew what a person should know."""
        self.delivered.notices = [*self._of_refused, *self._of_waiting()]

    def _ended(self, is_idle: bool) -> None:
        self._is_idle = is_idle
        self._notice()

    def _of_waiting(self) -> Iterator[str]:
        rule = self._shaper.flow.validity
        if rule is None:
            return
        flow, what = f"flow {self._shaper.flow.name}", ", ".join(rule.check)
        for namespace, rows in self.delivered.overdue.items():
            yield f"{flow}: {rows:,} rows of {namespace} lacked {what} when their time was over: {_THEN[rule.action]}"
        if self.delivered.waiting and self._is_idle:
            yield f"{flow}: {self.delivered.waiting:,} rows still wait for {what}, on the log: the next run goes on with them"

    def _follow(self, over: Callable[[], bool], idle: Callable[[int], bool]) -> None:
        offset = self._open()
        arrived_at = self._clock()
        while True:
            before, offset = offset, offset if self._is_full else self._take_what_is_there(offset, over)
            arrived_at = self._clock() if offset > before else arrived_at
            # The rest of an open transaction is waited for only while it keeps coming: capture may have died in it, and what has
            # taken its place may start only when this epoch is over. It is then read again from the mark before.
            whole = not self._in_transaction or self._clock() - arrived_at >= _REST_S
            ending = whole and (over() or idle(offset))
            if ending or self._commit_is_due():
                self._commit()
            self._look_at_waiting()
            if self._gathered.mark is None and not self._in_transaction:
                self._has_passed(offset)
                self._print()
            if ending:
                self._ended(idle(offset))
                return
            self._log.wait(self._topic, self._partition, offset, self._patience_s())

    @property
    def _is_full(self) -> bool:
        """So many rows wait that no other transaction is begun."""
        return self._waiting is not None and self._waiting.is_full and not self._in_transaction

    @property
    def _in_transaction(self) -> bool:
        """Changes or heartbeats were read, perhaps written, whose mark has not come."""
        coming = self._gathered.open.tables or self._gathered.open.heartbeats
        return bool(coming) or (self._gathered.mark is None and bool(self._written.rows))

    def _open(self) -> int:
        """Forgets what an earlier attempt gathered; returns the offset to read on from."""
        self._gathered = _Gathered()
        self._prepared: set[TableSchema] = set()
        self._written = Passing()
        self._newest_id: dict[str, int] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        if self._passage is not None:
            self._passage.begin()
        if self._waiting is not None:
            self._waiting.open()
            self.delivered.waiting = len(self._waiting)
        position = self.delivered.position
        if self._asks_sink and self._sink.capabilities.remembers_position:
            position = self._sink.position(self._topic, self._partition)
        self.delivered.position = position
        self._committed_at = self._clock()
        span = self._span()
        if position is None:
            return span.start
        self._must_be_the_same_log(position, span)
        return position.offset

    def _span(self) -> Span:
        return self._log.spans(self._topic).get(self._partition, Span(0, 0))

    def _must_be_the_same_log(self, position: Position, span: Span) -> None:
        """FatalError when the mark at which the position was taken is not in the log: another log has taken its place.

        Reading on at that offset would skip or repeat changes without a word.
        """
        if position.offset == span.start > 0:
            return  # retention has taken the mark, and nothing behind it
        if position.offset <= span.stop:
            for record in self._log.read(self._topic, self._partition, Span(position.offset - 1, position.offset)):
                found = self._reader.read(record.entry) if is_mark(record.entry.key) else None
                if isinstance(found, Mark) and found.id == position.id:
                    return
        raise FatalError(
            f"the target has been delivered up to offset {position.offset} of topic {self._topic}, but this log ends at"
            f" {span.stop} or has something else there: it is not the log that the flow has been reading",
            fix="bring the log back; or give the flow a new name and the target a new place, to deliver everything anew",
        )

    def _take_what_is_there(self, offset: int, over: Callable[[], bool]) -> int:
        end = self._end() if self._passage is None else self._passage.look(self._end)
        if end <= offset:
            return offset
        for record in self._log.read(self._topic, self._partition, Span(offset, end)):
            offset = self._read_to = record.offset + 1
            self._take(record)
            self._keep_pace(over)
            if (not self._in_transaction and over()) or self._is_full:
                return offset
        return end

    def _end(self) -> int:
        return self._span().stop

    def _keep_pace(self, over: Callable[[], bool]) -> None:
        """Waits as long as the flow's rate asks for; what is complete is not kept waiting."""
        while self._pace is not None and (left_s := self._pace.left_s()) > 0 and not over():
            if self._commit_is_due():
                self._commit()
            time.sleep(min(_WAIT_S, left_s))

    def _take(self, record: Record) -> None:
        if is_mark(record.entry.key):
            mark = self._reader.read(record.entry)
            assert isinstance(mark, Mark)
            position = Position(self._topic, self._partition, record.offset + 1, mark.id, mark.commit_ts_us)
            self._gathered.close(position, record.entry.time_ms)
        elif is_heartbeat(record.entry.key) or self._shaper.wants(table_of(record.entry.key)):
            change = self._reader.read(record.entry)
            if isinstance(change, Heartbeat):
                if change.table is None or self._shaper.wants(str(change.table).encode()):
                    self._gathered.open.heartbeats.append(change)
                return
            if change is None or isinstance(change, UmsNotice):
                return
            assert not isinstance(change, Mark)
            left = self._refusals.without(record.offset, change)
            fresh = self._without_repeats(left) if self._may_repeat and left is not None else left
            shaped = None if fresh is None else self._shaper.shape(fresh)
            if shaped is not None:
                self._end_key(_written_table(shaped))
                self._gathered.open.add(shaped)
                if self._waiting is not None and isinstance(shaped, ChangeBatch) and isinstance(fresh, ChangeBatch):
                    self._waiting.read(shaped, fresh)
                if self._pace is not None:
                    self._pace.taken(len(shaped))
        if self._gathered.is_large:
            self._relieve()

    def _without_repeats(self, change: ChangeBatch | Clear | End) -> ChangeBatch | Clear | End | None:
        table = change.table.namespace.all_versions
        position = self.delivered.position
        newest = self._newest_id.get(table, None if position is None else position.id)
        low, high = change.id_range if isinstance(change, ChangeBatch) else (change.id, change.id)
        self._newest_id[table] = high if newest is None else max(high, newest)
        if newest is None or low > newest:
            return change
        if high <= newest:
            return None
        assert isinstance(change, ChangeBatch)
        return ChangeBatch(change.table, change.data.filter(pc.greater(change.data.column(ID), pa.scalar(newest))))

    def _end_key(self, table: TableSchema) -> None:
        """What a table had under an earlier key is written before its target gets another one."""
        family = table.namespace.all_versions
        if self._keys.setdefault(family, table.key_identities) == table.key_identities:
            return
        self._keys[family] = table.key_identities
        self._commit()
        self._write(self._gathered.take_open())

    def _relieve(self) -> None:
        """Writes what has been gathered, so that memory stays bounded: what is complete, and is committed when that is due; or a
        large transaction that is still open, behind a commit of what comes before it."""
        if self._gathered.open.is_large:
            if self._gathered.mark is not None:
                self._commit()
            self._write(self._gathered.take_open())
        else:
            self._write(self._gathered.take_complete())
            if self._sink.commit_interval_s == 0 or self._commit_is_due():
                self._commit()

    def _write(self, pile: _Pile) -> None:
        if self._passage is not None:
            self._sink.low_watermark = self._passage.low_watermark()
        # All tables first: shaping one ends the transaction of some stores, and would show half of ours.
        for table in {_written_table(change): None for changes in pile.tables.values() for change in changes}:
            self._prepare(table)
        for changes in pile.tables.values():
            for (table, kind), together in groupby(changes, key=lambda change: (change.table, type(change))):
                if kind is ChangeBatch:
                    self._write_rows(table, [change for change in together if isinstance(change, ChangeBatch)])
                for clear in together if kind is Clear else ():
                    assert isinstance(clear, Clear)
                    self._clear(clear)
        self._written.heartbeats += pile.heartbeats

    def _prepare(self, table: TableSchema) -> None:
        if table not in self._prepared:
            self._sink.prepare(table)
            self._prepared.add(table)

    def _write_rows(self, table: TableSchema, changes: Sequence[ChangeBatch]) -> None:
        if self._waiting is None:
            for batch in _joined(table, changes):
                self._sink.write(batch)
        else:
            position = self.delivered.position
            changes = [*self._waiting.write(self._sink, table, changes, 0 if position is None else position.offset)]
        for change in changes:
            self._written.add(change)

    def _clear(self, clear: Clear) -> None:
        self._sink.clear(clear)
        if self._waiting is not None:
            self._waiting.clear(clear)
        self._written.add(clear)

    def _look_at_waiting(self) -> None:
        """Lets rows go on that have waited, where nothing else is on its way into the target."""
        position = self.delivered.position
        if self._waiting is None or position is None or self._written.rows or not self._waiting.is_due():
            return
        if self._settle_waiting(self._waiting):
            self._sink.commit(position)
            self._settled(self._waiting)
            self.delivered.passed(self._written, round(time.time() * 1e6))
            self._written = Passing()
            self.delivered.commits += 1

    def _settle_waiting(self, waiting: Waiting) -> bool:
        """Writes rows that have waited; whether there is something to commit."""
        settled = waiting.settle(self._sink, self._prepare)
        if settled.alerted:
            self._refusals.enter(settled.alerted)
        for read in settled.delivered:
            self._written.add(read)
        return bool(settled.delivered or settled.overdue)

    def _settled(self, waiting: Waiting) -> None:
        """What was settled is committed."""
        settled = waiting.committed()
        self.delivered.overdue.update(settled.overdue)
        self.delivered.failed.update(str(one.row.read.table.namespace) for one in settled.alerted)
        self.delivered.waiting = len(waiting)
        if settled.overdue.total():
            self._notice()

    def _print(self) -> None:
        """What has passed is known only behind the last commit: a target that prints it is told, though nothing more may come for long."""
        position, every_s = self.delivered.position, self._sink.prints_every_s
        if self._passage is None or position is None or every_s is None or self._clock() - self._committed_at < every_s:
            return
        low = self._passage.low_watermark()
        if low is not None and low != self._sink.low_watermark:
            self._sink.low_watermark = low
            self._sink.commit(position)
            self._committed_at = self._clock()

    def _commit_is_due(self) -> bool:
        waited_s = self._clock() - self._committed_at
        return self._gathered.mark is not None and waited_s >= self._sink.commit_interval_s

    def _commit(self) -> None:
        """Makes what is complete visible up to its mark."""
        mark = self._gathered.mark
        if mark is None:
            return
        self._write(self._gathered.take_complete())
        if self._waiting is not None:
            if self._waiting.is_due():
                self._settle_waiting(self._waiting)
            self._waiting.enter()
        self._sink.commit(mark)
        self._gathered.mark = None
        self._committed_at = self._clock()
        self._refusals.committed(mark.offset)
        if self._waiting is not None:
            self._settled(self._waiting)
        self._has_passed(mark.offset)
        self.delivered.committed(mark, self._written, self._gathered.mark_appended_at_ms, time.time() * 1000)
        self._written = Passing()
        self.delivered.problem = ""
        self._backoff.worked()

    def _has_passed(self, offset: int) -> None:
        """Everything before an offset was delivered, but for what waits."""
        if self._passage is not None:
            self._passage.committed(offset if self._waiting is None else self._waiting.passed(offset))

    def _patience_s(self) -> float:
        """How long to wait for more: until the next commit is due, but never so long that a stop goes unnoticed."""
        if self._gathered.mark is None:
            return _WAIT_S
        left_s = self._sink.commit_interval_s - (self._clock() - self._committed_at)
        return min(_WAIT_S, max(0.0, left_s))


def _written_table(change: ChangeBatch | Clear | End) -> TableSchema:
    """The version that the target must be ready for: behind an end the next one, though no row of it may follow."""
    return change.successor if isinstance(change, End) else change.table


def _joined(table: TableSchema, changes: Iterable[ChangeBatch | Clear | End]) -> Iterator[ChangeBatch]:
    """The same rows in few batches: small ones are put together, and large ones are not worth a copy."""
    batches = (change.data for change in changes if isinstance(change, ChangeBatch))
    for is_large, together in groupby(batches, key=lambda batch: batch.num_rows >= _LARGE_ROWS):
        if is_large:
            yield from (ChangeBatch(table, batch) for batch in together)
        else:
            joined: pa.RecordBatch = pa.concat_batches(together)  # type: ignore[attr-defined]
            yield ChangeBatch(table, joined)
