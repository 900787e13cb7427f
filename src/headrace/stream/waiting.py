"""Rows that are not valid yet (`validity` of a flow): they wait on the log, are looked at again, and go on when they are valid or their time is over.

::

    db1.waiting-leads      rows of db1 that wait for what flow leads checks, by partitions as in db1; two kinds of entries

    a row      as in the error ledger (codec/error_ledger.py), and  "number": 7    its name here
                                                                    "until_us": …  when its time is over, µs since 1970
                                                                    "passed": …    the topic's offset up to which everything else was delivered then
    some done  {"done": [5, 6], …}                                  they wait no more
    both       "oldest": …                                          no row that stands before this offset waits any more

Of each key the newest change alone waits: one that comes later, valid or not, takes its place, as it would in a target. It keeps the time of the
first, so that a row which changes all the time is not put off for ever. Rows are kept as the log has them, and computed by the flow file of the day.

Crash story (points of `headrace.crash`). A row's entry is durable before the flow's position passes the row, and it is entered as done behind the commit that
delivers it:

* ``waiting.entered`` the position is older: the row is read again, and takes its own place.
* ``waiting.settled`` it was delivered (or is in the error ledger) and still stands here: it is delivered once more, with the `_ums_id_` that it has.

What is dropped is told to the target in the same commit, and counted.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.error_ledger import entries_of, row_of
from headrace.compute.validity import Judged, Validity
from headrace.crash import crash_point
from headrace.errors import CorruptError, DataError
from headrace.flow.shape import Shaper
from headrace.log.base import Entry, Log, Span
from headrace.sinks.base import Sink
from headrace.stream.refused import HAS_WAITED, Part, Place, Refused
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import COMMIT_TS, ID, TableSchema

_LOOK_EVERY_S = 1.0
_SHARE = 10
"""Looking takes at most one part in so many of the time."""
_LAST = 100
"""Among so many offsets before the end of a topic is its last entry: some logs take offsets for themselves."""
Key = tuple[object, ...]


class _Judging(Protocol):
    """What a flow's sink can do where the flow has `validity` (compute/sink.py)."""

    def judged(self, batch: ChangeBatch, *, anew: bool = False) -> Judged: ...
    def hand_on(self, computed: ChangeBatch) -> None: ...


@dataclass(slots=True)
class _Row:
    """What is known of a row that waits, beside what it says."""

    number: int
    key: Key
    id: int
    until_us: int
    passed: int
    stands_at: int | None = None
    """The offset of its entry, or of one before it; None while it has none."""
    is_gone: bool = False


@dataclass(slots=True)
class _Rows:
    """Rows of one version of a table: as the log has them, and each one's own."""

    read: ChangeBatch
    of: list[_Row]

    def without_gone(self) -> None:
        if any(row.is_gone for row in self.of):
            stay = pa.array([not row.is_gone for row in self.of], pa.bool_())
            self.read = ChangeBatch(self.read.table, self.read.data.filter(stay))
            self.of = [row for row in self.of if not row.is_gone]

    def add(self, read: ChangeBatch, rows: Sequence[_Row]) -> None:
        joined: pa.RecordBatch = pa.concat_batches([self.read.data, read.data])  # type: ignore[attr-defined]  # not in the stubs
        self.read = ChangeBatch(read.table, joined)
        self.of += rows

    def one(self, at: int) -> ChangeBatch:
        return ChangeBatch(self.read.table, self.read.data.slice(at, 1))


@dataclass(slots=True)
class Settled:
    """What has become of rows that waited, until it is committed."""

    delivered: list[ChangeBatch] = field(default_factory=list)
    """As the log has them; those that are sent though they lack something are among them."""
    alerted: list[Refused] = field(default_factory=list)
    overdue: Counter[str] = field(default_factory=Counter)
    """Rows whose time was over, by namespace, whatever has become of them."""
    numbers: list[int] = field(default_factory=list)
    """Of rows that stand in the topic."""
    tried: list[Part] = field(default_factory=list)
    """Rows that stand in the topic and were looked at."""


class Waiting:
    """Of one flow and one partition of a topic, in the thread of its follower."""

    _tables: dict[TableSchema, _Rows]
    _by_key: dict[Key, _Row]
    _reads: dict[int, ChangeBatch]
    """What the log has of changes that are to be written, by the identity of these."""
    _settled: Settled
    _superseded: list[int]
    _next: int
    _look_at_us: float

    def __init__(
        self, shaper: Shaper, log: Log, topic: str, partition: int, clock: Callable[[], float] = time.time
    ) -> None:
        assert shaper.flow.validity is not None
        self._rule: Validity = shaper.flow.validity
        self._shaper = shaper
        self._log = log
        self._topic = waiting_topic(topic, shaper.flow.name)
        self._partition = partition
        self._clock = clock
        self._forget()

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def is_full(self) -> bool:
        """No more should be read before some of them have gone on."""
        return len(self) >= self._rule.rows

    def passed(self, offset: int) -> int:
        """Up to where everything is in the target when all but what waits is there up to an offset."""
        return min([offset, *(row.passed for row in self._all())])

    # --- from and to the log

    def open(self) -> None:
        """Waits for what stands on the log, and nothing else."""
        self._forget()
        done: set[int] = set()
        found: dict[int, dict[str, Any]] = {}
        for offset, entry in self._entries():
            self._next = max(self._next, entry["next"])
            if "row" in entry:
                found[entry["number"]] = entry | {"offset": offset}
            else:
                done.update(entry["done"])
        tables: dict[TableSchema, list[tuple[ChangeBatch, _Row]]] = {}
        for number in sorted(found.keys() - done):
            entry = found[number]
            read = row_of(entry)
            shaped = self._shaper.shape(read) if self._shaper.wants(read.key()) else None
            if isinstance(shaped, ChangeBatch):
                [key], [id_] = _keys(shaped), _ids(read)
                row = _Row(number, key, id_, entry["until_us"], entry["passed"], entry["offset"])
                tables.setdefault(read.table, []).append((read, row))
        for table, rows in tables.items():
            self._take(_joined(table, [read for read, _ in rows]), [row for _, row in rows])

    def enter(self) -> None:
        """What has begun to wait is durable on return: before the position passes it."""
        start = self._end()
        oldest = min([start, *(row.stands_at for row in self._all() if row.stands_at is not None)])
        new: list[_Row] = []
        entries: list[Entry] = []
        for rows in self._tables.values():
            rows.without_gone()
            for at, row in enumerate(rows.of):
                if row.stands_at is None:
                    said = {"number": row.number, "until_us": row.until_us, "passed": row.passed}
                    entries += entries_of(rows.one(at), said | {"next": self._next, "oldest": oldest}, self._now_ms())
                    new.append(row)
        if entries:
            self._log.append(self._topic, self._partition, entries)
            crash_point("waiting.entered")
        for row in new:
            row.stands_at = start

    def committed(self) -> Settled:
        """The target has what was settled: that is entered."""
        done = [*self._settled.numbers, *self._superseded]
        if done:
            crash_point("waiting.settled")
            oldest = min([self._end(), *(row.stands_at for row in self._all() if row.stands_at is not None)])
            said = {"done": done, "next": self._next, "oldest": oldest}
            self._log.append(self._topic, self._partition, [Entry(b"", json.dumps(said).encode(), self._now_ms())])
        settled, self._settled, self._superseded = self._settled, Settled(), []
        return settled

    @property
    def tried(self) -> list[Part]:
        """Rows that stand in the topic of which some may have been written since the last commit; others are read again."""
        return self._settled.tried

    def refused(self, found: Iterable[Refused]) -> None:
        """These rows are in the error ledger: those that stand in the topic wait no more. `open` comes next."""
        places = [one.row.places[0] for one in found]
        self._settled = Settled(numbers=[place.offset for place in places if place.number == HAS_WAITED])
        self._superseded = []
        self.committed()

    # --- what comes

    def read(self, shaped: ChangeBatch, read: ChangeBatch) -> None:
        """Says what the log has of changes that `write` will be given."""
        self._reads[id(shaped)] = read

    def write(
        self, sink: Sink, table: TableSchema, changes: Iterable[ChangeBatch], passed: int
    ) -> Iterator[ChangeBatch]:
        """Writes the valid ones of changes of one version of a table, the others wait; yields what was written, as the log has it.

        `passed`: the offset of the topic up to which everything is in the target. Errors as of the sink.
        """
        together = list(changes)
        shaped = _joined(table, together)
        found = [self._reads.pop(id(change)) for change in together]
        read = _joined(found[0].table, found)
        judged = _judging(sink).judged(shaped)
        _judging(sink).hand_on(judged.valid())
        lacks = [*map(bool, judged.lacks.to_pylist())]
        if any(lacks) or self._by_key:
            self._wait(shaped, read, lacks, passed)
        yield ChangeBatch(read.table, read.data.filter(pc.invert(judged.lacks)))

    def clear(self, clear: Clear) -> None:
        """Rows of a table that are older than this wait no more."""
        family = clear.table.namespace.all_versions
        for row in self._all():
            if row.key[0] == family and row.id < clear.id:
                self._supersede(row)

    def _wait(self, shaped: ChangeBatch, read: ChangeBatch, lacks: Sequence[bool], passed: int) -> None:
        new: dict[int, _Row] = {}
        commit_us: list[Any] = shaped.data.column(COMMIT_TS).view(pa.int64()).to_pylist()
        for at, (key, id_, is_lacking) in enumerate(zip(_keys(shaped), _ids(shaped), lacks, strict=True)):
            before = self._by_key.get(key)
            if before is not None and before.id > id_:
                continue  # it was read before, and is not the newest
            until_us = commit_us[at] + round(self._rule.timeout * 1e6) if self._rule.timeout else 0
            if before is not None:
                self._supersede(before)
                until_us = min(until_us, before.until_us)
            if is_lacking:
                new[at] = self._by_key[key] = _Row(self._next, key, id_, until_us, passed)
                self._next += 1
        rows = [(at, row) for at, row in new.items() if not row.is_gone]
        if rows:
            taken = read.data.take(pa.array([at for at, _ in rows], pa.int64()))
            self._take(ChangeBatch(read.table, taken), [row for _, row in rows])

    def _supersede(self, row: _Row) -> None:
        row.is_gone = True
        self._by_key.pop(row.key, None)
        if row.stands_at is not None:
            self._superseded.append(row.number)

    def _take(self, read: ChangeBatch, rows: Sequence[_Row]) -> None:
        """Of two rows with one key, which a kill may leave, the later one stays."""
        for row in rows:
            before = self._by_key.get(row.key)
            if before is not None and before is not row:
                self._supersede(before)
            self._by_key[row.key] = row
        if read.table in self._tables:
            self._tables[read.table].add(read, rows)
        else:
            self._tables[read.table] = _Rows(read, list(rows))

    # --- what goes on

    def is_due(self) -> bool:
        """Whether it is time to look at the rows that wait."""
        now_us = self._clock() * 1e6
        return any(now_us >= self._look_at_us or row.until_us <= now_us for row in self._all())

    def settle(self, sink: Sink, prepare: Callable[[TableSchema], None]) -> Settled:
        """Writes the rows that are valid now, and does what is to be done with those whose time is over; not committed yet. Errors as of the sink.

        Rows of which an alert is to be given are not written; the caller enters them in the error ledger before it commits.
        """
        began = self._clock()
        for rows in self._tables.values():
            rows.without_gone()
            if rows.of:
                self._settle(sink, prepare, rows, began * 1e6)
        self._tables = {table: rows for table, rows in self._tables.items() if rows.of}
        self._look_at_us = self._clock() * 1e6 + max(_LOOK_EVERY_S, (self._clock() - began) * _SHARE) * 1e6
        return self._settled

    def _settle(self, sink: Sink, prepare: Callable[[TableSchema], None], rows: _Rows, now_us: float) -> None:
        shaped = self._shaper.shape(rows.read)
        assert isinstance(shaped, ChangeBatch)
        prepare(shaped.table)
        self._settled.tried += [
            self._part(rows, shaped, at) for at, row in enumerate(rows.of) if row.stands_at is not None
        ]
        judged = _judging(sink).judged(shaped, anew=True)
        lacks = [*map(bool, judged.lacks.to_pylist())]
        is_over = [lacking and row.until_us <= now_us for row, lacking in zip(rows.of, lacks, strict=True)]
        if self._rule.action == "alert":  # one that is not on the log yet has no number that lasts
            is_over = [over and row.stands_at is not None for over, row in zip(is_over, rows.of, strict=True)]
        over = pa.array(is_over, pa.bool_())
        sent = pc.or_(pc.invert(judged.lacks), over) if self._rule.action == "send" else pc.invert(judged.lacks)
        delivered = rows.read.data.filter(sent)
        _judging(sink).hand_on(judged.sent(sent))
        if self._rule.action == "drop":
            _judging(sink).hand_on(judged.dropped(over))
        if self._rule.action == "alert":
            error = DataError(
                f"it lacked {', '.join(self._rule.check)} when its time ({self._rule.timeout:g}s) was over",
                fix="bring what it lacks to where it is looked up, then `headrace errors replay`",
            )
            self._settled.alerted += [
                Refused(self._part(rows, shaped, at), error) for at, over_ in enumerate(is_over) if over_
            ]
        if delivered.num_rows:
            self._settled.delivered.append(ChangeBatch(rows.read.table, delivered))
        if any(is_over):
            self._settled.overdue[str(rows.read.table.namespace)] += sum(is_over)
        for row, gone, over_ in zip(rows.of, sent.to_pylist(), is_over, strict=True):
            if gone or over_:
                row.is_gone = True
                del self._by_key[row.key]
                self._settled.numbers += [row.number] if row.stands_at is not None else []
        rows.without_gone()

    def _part(self, rows: _Rows, shaped: ChangeBatch, at: int) -> Part:
        place = Place(self._partition, rows.of[at].number, HAS_WAITED)
        return Part([place], rows.one(at), ChangeBatch(shaped.table, shaped.data.slice(at, 1)))

    # --- small things

    def _forget(self) -> None:
        self._tables = {}
        self._by_key = {}
        self._reads = {}
        self._settled = Settled()
        self._superseded = []
        self._next = 0
        self._look_at_us = 0.0

    def _all(self) -> Iterator[_Row]:
        return (row for rows in self._tables.values() for row in rows.of if not row.is_gone)

    def _end(self) -> int:
        return self._log.spans(self._topic).get(self._partition, Span(0, 0)).stop

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    def _entries(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Offsets and what the entries there say, from the oldest that matters."""
        span = self._log.spans(self._topic).get(self._partition, Span(0, 0))
        oldest = [said["oldest"] for _, said in self._said(Span(max(span.start, span.stop - _LAST), span.stop))]
        if oldest:
            yield from self._said(Span(max(span.start, oldest[-1]), span.stop))

    def _said(self, span: Span) -> Iterator[tuple[int, dict[str, Any]]]:
        for record in self._log.read(self._topic, self._partition, span):
            try:
                yield record.offset, json.loads(record.entry.value)
            except ValueError as error:
                raise CorruptError(
                    f"the topic {self._topic} has something else at offset {record.offset} of partition {self._partition}: {error}",
                    fix="see what else writes to that topic; only headrace may",
                ) from error


def waiting_topic(topic: str, flow: str) -> str:
    """Where rows of a topic wait for a flow. No dot before the flow's name, which may be that of a ledger."""
    return f"{topic}.waiting-{flow}"


def _judging(sink: Sink) -> _Judging:
    return cast("_Judging", sink)


def _joined(table: TableSchema, changes: Sequence[ChangeBatch]) -> ChangeBatch:
    joined: pa.RecordBatch = pa.concat_batches([change.data for change in changes])  # type: ignore[attr-defined]  # not in the stubs
    return ChangeBatch(table, joined)


def _ids(changes: ChangeBatch) -> list[int]:
    found: list[Any] = changes.data.column(ID).to_pylist()
    return found


def _keys(changes: ChangeBatch) -> list[Key]:
    """What tells rows apart: the table and its key, or the change's own id where it has none."""
    family = changes.table.namespace.all_versions
    columns = [changes.data.column(name).to_pylist() for name in changes.table.key or (ID,)]
    return [(family, *values) for values in zip(*columns, strict=True)]
