"""Reading the own log of a query: as a stream, while its consumer writes it; and any range of it again, as a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.capture.runner import PARTITION
from headrace.codec.entries import EntryReader
from headrace.errors import ConfigError
from headrace.log.base import Holding, Log
from headrace.stream.sources.consumer import Consumer
from headrace.stream.sources.frames import Frame
from headrace.stream.sources.own_log import OwnLog
from headrace.stream.sources.plan import Offsets, Plan, Slice, complete_up_to, limited
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import COMMIT_TS, ID

_WAIT_S = 0.1
"""So long a query that has read all waits for more, before it says that there is nothing."""


@dataclass(frozen=True)
class Range:
    """Which rows are wanted: by id from `low_id` to before `high_id`, by time (µs since 1970 UTC) from `low_us` to before `high_us`."""

    low_id: int | None = None
    high_id: int | None = None
    low_us: int | None = None
    high_us: int | None = None
    time: str = COMMIT_TS
    """The column that times are compared with."""

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        bounds = (
            (ID, pc.greater_equal, self.low_id),
            (ID, pc.less, self.high_id),
            (self.time, pc.greater_equal, self.low_us),
            (self.time, pc.less, self.high_us),
        )
        for name, compare, bound in bounds:
            if bound is not None:
                rows = rows.filter(compare(rows[name].cast(pa.int64()), pa.scalar(bound)))
        return rows


ALL = Range()


@dataclass(frozen=True)
class Reading:
    """A query's log, how it is divided, and what its rows look like. It is sent to executors."""

    own: OwnLog
    plan: Plan
    frame: Frame

    def batches(self, piece: Slice, range_: Range = ALL) -> Iterator[pa.RecordBatch]:
        log = self.own.open()
        try:
            for change in self._changes(log, piece):
                if len(rows := range_.of(self.frame.rows(change))):
                    yield rows
        finally:
            log.close()

    def _changes(self, log: Log, piece: Slice) -> Iterator[ChangeBatch | Clear]:
        """Each change once: what a capture that died had appended of an unfinished transaction stands there again, under the same ids."""
        reader, newest = EntryReader(), dict[str, int]()
        for span in piece.spans:
            for record in log.read(self.own.topic, piece.partition, span):
                change = reader.read(record.entry)
                if not isinstance(change, (ChangeBatch, Clear)):
                    continue
                name = change.table.namespace.all_versions
                seen = newest.get(name, -1)
                if isinstance(change, Clear):
                    low = high = change.id
                else:
                    low, high = change.id_range
                if high <= seen:
                    continue
                newest[name] = high
                yield change if low > seen or isinstance(change, Clear) else change.not_before(seen + 1)


class ChangesReader(DataSourceReader):
    """All that the own log keeps, or a range of it."""

    def __init__(self, reading: Reading, range_: Range) -> None:
        self._reading = reading
        self._range = range_

    def partitions(self) -> Sequence[InputPartition]:
        own, log = self._reading.own, self._reading.own.open()
        try:
            kept = {partition: span.start for partition, span in log.spans(own.topic).items()}
            if not kept:
                raise ConfigError(
                    f"there is no log of a query in {own.path}",
                    fix="name the `path` of a query that has run; to read the source itself, leave `path` out",
                )
            return self._reading.plan.slices(log, own.topic, kept, complete_up_to(log, own.topic))
        finally:
            log.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return self._reading.batches(partition, self._range)


class ChangesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What the consumer writes. Spark calls the methods below in one process of the driver, but `read`, which it calls on executors with a copy."""

    def __init__(self, reading: Reading, consumer: Consumer, *, start: str, most_rows: int) -> None:
        """`start`: the option, for a new checkpoint on a log that another has read."""
        self._reading = reading
        self._own = reading.own
        self._consumer = consumer
        self._start = start
        self._most_rows = most_rows
        self._until: dict[int, int] | None = None
        self._log: Holding | None = None

    def __getstate__(self) -> dict[str, object]:
        # To executors goes what `read` needs.
        return {"_reading": self._reading}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        log = self._opened()
        if self._own.read_up_to() is None or self._start == "earliest":
            begin = {partition: span.start for partition, span in log.spans(self._own.topic).items()} or {PARTITION: 0}
        elif self._start == "latest":
            self._consumer.start()
            self._consumer.wait_caught_up()
            begin = complete_up_to(log, self._own.topic)
        else:
            raise ConfigError(
                f"`startingOffsets` {self._start} cannot be used with a new checkpoint on {self._own.path}, which has the log of an earlier"
                " query: where that log begins was decided then",
                fix="give `path` a new directory, or begin at earliest or latest",
            )
        return self._reading.plan.offsets(log, self._own.topic, begin, begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._most_rows) if self._most_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._consumer.start()
        self._consumer.wait_caught_up()
        self._until = complete_up_to(self._opened(), self._own.topic)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        self._consumer.start()
        self._consumer.require_alive()
        begin = self._begin(start)
        end = self._until if self._until is not None else self._complete(begin)
        end = {partition: max(stop, begin.get(partition, 0)) for partition, stop in end.items()}
        if all(stop == begin.get(partition, 0) for partition, stop in end.items()):
            return start
        log, topic = self._opened(), self._own.topic
        if isinstance(limit, ReadMaxRows):
            end = limited(log, topic, begin, end, limit.max_rows)
        return self._reading.plan.offsets(log, topic, begin, end)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        begin, ends = self._begin(start), self._reading.plan.ends(end)
        return self._reading.plan.slices(self._opened(), self._own.topic, begin, ends)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return self._reading.batches(partition)

    def commit(self, end: Offsets) -> None:
        self._own.note_read(self._reading.plan.ends(end))
        self._consumer.has_read()

    def stop(self) -> None:
        self._consumer.stop()
        if self._log is not None:
            self._log.close()

    def _begin(self, start: Offsets) -> dict[int, int]:
        begin = self._reading.plan.ends(start)
        spans = self._opened().spans(self._own.topic)
        for partition, offset in begin.items():
            self._own.require_has(spans, partition, offset)
        return begin

    def _complete(self, begin: Mapping[int, int]) -> dict[int, int]:
        """What is complete; when nothing is new, after a moment in which something may come."""
        log, topic = self._opened(), self._own.topic
        if not log.wait(topic, PARTITION, begin.get(PARTITION, 0), _WAIT_S):
            return dict(begin)
        return complete_up_to(log, topic)

    def _opened(self) -> Holding:
        if self._log is None:
            self._log = self._own.open()
        return self._log
