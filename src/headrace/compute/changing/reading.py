"""What the inputs of a computed table have on the log, in whole transactions: up to the newest mark of each partition, and not farther."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge

from headrace.capture.base import Upstream
from headrace.capture.load.plan import is_lane_topic
from headrace.codec.entries import EntryReader, table_of
from headrace.codec.ums import is_heartbeat, is_mark
from headrace.errors import FatalError
from headrace.log.base import Log, Span, last
from headrace.ums.change import ChangeBatch, Clear, End, Mark
from headrace.ums.schema import Namespace, TableSchema

Change = ChangeBatch | Clear | End
_PIECE_ROWS = 65_536
_WAIT_S = 0.05


@dataclass(slots=True)
class Taken:
    """Where the inputs have been read to."""

    offsets: dict[str, int] = field(default_factory=dict)
    """The next offset by ``topic/partition``."""
    commit_ts_us: int = 0
    """The newest commit time of their marks."""
    passed_us: dict[str, int] = field(default_factory=dict)
    """By ``topic/partition`` the commit time of the newest mark."""


class Reading:
    """Reads what matches some patterns. For one thread; to be closed."""

    def __init__(self, upstream: Upstream, patterns: Sequence[str], keys: Mapping[str, Sequence[str]]) -> None:
        """`keys`: key columns of tables that have none, by ``schema.table``."""
        self._upstream = upstream
        self._patterns = patterns
        self._keys = keys
        self._log: Log = upstream.log()
        self._reader = EntryReader()
        self._wanted: dict[bytes, bool] = {}
        self._keyed: dict[TableSchema, TableSchema] = {}
        self._marks: dict[str, tuple[int, int]] = {}

    def begins(self) -> dict[str, int]:
        """The oldest offset that is kept, by ``topic/partition``."""
        return {_at(topic, partition): span.start for topic, partition, span in self._places()}

    def take(self, taken: Taken, most_rows: int, stop: Mapping[str, int] | None = None) -> Iterator[list[Change]]:
        """What is there behind `taken`, which goes on with it; about so many rows at most.

        `stop`: where to end instead, marks that were read before.
        """
        rows = 0
        for topic, partition, span in self._places():
            at = _at(topic, partition)
            offset = taken.offsets.get(at, span.start)
            end = self._newest_mark(topic, partition, span) if stop is None else stop.get(at, offset)
            for piece in self._piece(topic, partition, Span(offset, end), taken, most_rows - rows):
                rows += sum(map(len, piece))
                yield piece

    def own(self, topic: str, offsets: Mapping[str, int]) -> Iterator[Change]:
        """What stands on another topic behind offsets (by partition), as of `told_on`."""
        return told_on(self._log, topic, offsets)

    def ends(self, topic: str) -> dict[str, int]:
        """Where a topic ends now, by partition."""
        return {str(partition): span.stop for partition, span in self._log.spans(topic).items()}

    def captured_ends(self) -> dict[str, int]:
        """Where the partitions of what is captured end now, by ``topic/partition``."""
        return {_at(topic, partition): span.stop for topic, partition, span in self._captured()}

    def commit_low_us(self, taken: Taken) -> int | None:
        """The commit time before which nothing of what is captured will come any more; None while a partition has no mark."""
        found = [taken.passed_us.get(_at(topic, partition)) for topic, partition, _ in self._captured()]
        known = [each for each in found if each is not None]
        return min(known) if known and len(known) == len(found) else None

    def _captured(self) -> list[tuple[str, int, Span]]:
        return [place for place in self._places() if not is_lane_topic(place[0])]

    def is_idle(self, taken: Taken) -> bool:
        """Whether nothing is there, or will be, that was not taken."""
        ends = {
            _at(topic, partition): (self._upstream.end(topic, partition, span.stop), span.start)
            for topic, partition, span in self._places()
        }
        return all(end is not None and taken.offsets.get(at, start) >= end for at, (end, start) in ends.items())

    def wait(self) -> None:
        """Until there is something that `take` has not looked at, for a short time."""
        places = self._places()
        for topic, partition, span in places:
            behind, _ = self._marks.get(_at(topic, partition), (span.start, 0))
            if self._log.wait(topic, partition, behind, _WAIT_S / len(places)):
                return

    def close(self) -> None:
        self._log.close()

    def _places(self) -> list[tuple[str, int, Span]]:
        """Every partition; of a topic that is not there yet the first."""
        found: list[tuple[str, int, Span]] = []
        for topic in self._upstream.topics(self._log):
            spans = self._log.spans(topic) or {0: Span(0, 0)}
            found += [(topic, partition, span) for partition, span in sorted(spans.items())]
        return found

    def _newest_mark(self, topic: str, partition: int, span: Span) -> int:
        """Where whole transactions end: the offset behind the newest mark."""
        at = _at(topic, partition)
        end, whole = self._marks.get(at, (-1, span.start))
        if end != span.stop:
            mark, newest = last(self._log, topic, partition, is_mark), last(self._log, topic, partition)
            if mark is not None and newest is not None:
                # The end may stand some offsets behind the last record.
                whole = span.stop if mark.offset == newest.offset else mark.offset + 1
            self._marks[at] = span.stop, whole
        return whole

    def _piece(self, topic: str, partition: int, span: Span, taken: Taken, most_rows: int) -> Iterator[list[Change]]:
        at, rows, piece = _at(topic, partition), 0, list[Change]()
        if most_rows <= 0 or span.stop <= span.start:
            return
        for record in self._log.read(topic, partition, span):
            found = self._change(record.entry.key) and self._reader.read(record.entry)
            if isinstance(found, Mark):
                taken.offsets[at] = record.offset + 1
                taken.commit_ts_us = max(taken.commit_ts_us, found.commit_ts_us)
                taken.passed_us[at] = found.commit_ts_us
                if rows >= most_rows:
                    break
            elif isinstance(found, (ChangeBatch, Clear, End)):
                piece.append(self._with_key(found))
                rows += len(found)
                if sum(map(len, piece)) >= _PIECE_ROWS:
                    yield piece
                    piece = []
        else:
            taken.offsets[at] = span.stop
        if piece:
            yield piece

    def _change(self, key: bytes) -> bool:
        """Whether an entry with that key is to be opened."""
        if is_mark(key):
            return True
        if is_heartbeat(key):
            return False
        name = table_of(key)
        if name not in self._wanted:
            namespace = Namespace.parse(name.decode())
            self._wanted[name] = any(map(namespace.matches, self._patterns))
        return self._wanted[name]

    def _with_key(self, change: Change) -> Change:
        table = self._table(change.table)
        if table is change.table:
            return change
        if isinstance(change, End):
            return replace(change, table=table, successor=self._table(change.successor))
        return replace(change, table=table)

    def _table(self, table: TableSchema) -> TableSchema:
        if table not in self._keyed:
            named = self._keys.get(f"{table.namespace.schema}.{table.namespace.table}")
            self._keyed[table] = replace(table, key=tuple(named)) if named else table
        return self._keyed[table]


def told_on(log: Log, topic: str, offsets: Mapping[str, int]) -> Iterator[Change]:
    """The changes of a computed table behind offsets (by partition), of all partitions in the order in which they were told. FatalError as of `lost`."""
    spans = log.spans(topic)
    for partition, span in spans.items():
        if offsets.get(str(partition), 0) < span.start:
            raise lost(f"{topic}/{partition}")

    def changes(partition: int) -> Iterator[Change]:
        reader = EntryReader()
        for record in log.read(topic, partition, Span(offsets.get(str(partition), 0), spans[partition].stop)):
            found = reader.read(record.entry)
            if isinstance(found, (ChangeBatch, Clear, End)):
                yield found

    return merge(*map(changes, sorted(spans)), key=_first_id)


def _first_id(change: Change) -> int:
    return change.id_range[0] if isinstance(change, ChangeBatch) else change.id


def lost(place: str) -> FatalError:
    """What a computed table begins with is not on the log any more."""
    return FatalError(
        f"the log has given up the begin of {place}, which is needed to compute the table from",
        fix="give the source a new name and write `start: kept`, then load the tables again (`headrace load`); let the log keep more",
    )


def _at(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"
