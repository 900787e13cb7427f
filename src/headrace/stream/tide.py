"""The tide: what closes the windows of Spark's own operators is the precise watermark, and no row is dropped without a word.

Spark's watermark cannot be set, but it can be fed: it is the largest value that a column has ever had. So the source `headrace-tide`
(tide_source.py) puts the watermark as a row of its own, the *tide*, behind the data that it covers, and only the tide's column is watched. The
column of event time is merely marked as one, so rows that are far ahead do not move anything::

    headrace-tide --entries, tides--> withWatermark(tide) --> one task opens entries into rows --> rows in time --> SQL, windows, joins
                                                              (the tide's row ends here)       \\-> late rows --> spool --> lake (late.py)

How to use it::

    session.dataSource.register(TideDataSource)
    entries = session.readStream.format("headrace-tide").options(path=…, topic=…, watermarks=…, topology=…, stage=…).load()
    changes = Changes(["applog.web.logs.said"], said.arrow_schema().names)            # `said`: the table's schema
    rows = tidal(entries, changes, SCHEMA, event_time="at", until=Windows(60), spool=directory)
    rows.createOrReplaceTempView("said")                    # or groupBy(window("at", …)), joins, dropDuplicatesWithinWatermark
    result = session.sql("SELECT window.start, count(*) AS n FROM said GROUP BY window(at, '1 minute')")
    result.writeStream.foreachBatch(write).option("checkpointLocation", …).start()

    late = LateRows(lake, "per-minute", said, directory, Windows(60))

    def write(batch, number):
        …                                                   # all of `batch`: windows that are over, each once
        amendments = late.write(number)                     # behind it: late rows, in their own lake and counted by window

What opens entries (`Changes`, or a function of one's own) is called in tasks with a batch of entries (columns of headrace-log) and gives the rows in them, as batches with the
columns that were named: filters and projections of a query stop at it, and so never take away the tide's row. Append mode is meant.

A row is *late* when what it belongs to is over by the tide of the batches before. What it belongs to is said by `until`: windows of time, sessions, or the
row's own time (joins, deduplication). That is decided where the row is read, before any operator of Spark drops it without a word (which it does,
and counts wrongly: after partial aggregation). A row that is late for some of its overlapping windows is with the late ones, once for each of these, and goes on for the
others. Spark's own watermark is never ahead of ours, so it takes all that is in time.

Joins: Spark reads a stream that stands in a query twice by two readers, whose batches end where they like. So each side is a `tidal` of its own,
with a spool of its own. The smallest of their tides counts for Spark, each side's own one for what is late.

Late rows leave the task by the spool: a file per batch and partition, with the name of both, in place of an earlier one when the batch is run again. A second stream of
late rows would be read by another reader, for which other rows are late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.files import make_directories
from headrace.ums.change import ChangeBatch, read_block
from headrace.ums.schema import Namespace

WINDOW = "window_start"
"""The column of late rows of overlapping windows that says which window they are too late for."""
_US = pa.timestamp("us", "UTC")
_MARK_OF_EVENT_TIME = {"spark.watermarkDelayMs": 0}
"""What `withWatermark` puts on a column too: operators find their event time by it."""
OpenEntries = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
Times: TypeAlias = "pa.Array[Any]"
"""Whole µs since 1970."""
Flags: TypeAlias = "pa.Array[Any]"


class Changes:
    """Opens the changes of some tables, which are only added to, as rows with some of their columns."""

    def __init__(self, tables: Iterable[str], columns: Iterable[str]) -> None:
        """`tables`: namespaces without versions, ``mysql.db1.shop.orders``."""
        self._tables = frozenset(tables)
        self._columns = list(columns)

    def __call__(self, entries: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for namespace, block in zip(entries.column("namespace"), entries.column("block"), strict=True):
            if namespace.is_valid and Namespace.parse(namespace.as_py()).all_versions in self._tables:
                change = read_block(block.as_py())
                if isinstance(change, ChangeBatch):
                    yield change.data.select(self._columns)


class Until(Protocol):
    """Until when rows may come."""

    def ends(self, times: Times) -> tuple[Times, Times]:
        """When the first and the last of the things is over that a row of each time belongs to."""
        ...

    def named(self, late: pa.RecordBatch, times: Times, passed: Times) -> Sequence[pa.RecordBatch]:
        """Rows for which at least the first of their things was over at a time, as they are kept: where they belong to several, once for each that was over."""
        ...


class _OfOneThing:
    """Each row belongs to one thing, and so is late once."""

    def named(self, late: pa.RecordBatch, _times: Times, _passed: Times) -> Sequence[pa.RecordBatch]:
        return [late]


class Instants(_OfOneThing):
    """Each row for itself: joins by event time, deduplication."""

    def ends(self, times: Times) -> tuple[Times, Times]:
        return times, times


@dataclass(frozen=True, slots=True)
class Windows:
    """`window(…)`: so long, and one every so many seconds; one behind the other when `every_s` is left out."""

    length_s: float
    every_s: float | None = None

    @property
    def length_us(self) -> int:
        return round(self.length_s * 1e6)

    @property
    def every_us(self) -> int:
        return self.length_us if self.every_s is None else round(self.every_s * 1e6)

    @property
    def are_apart(self) -> bool:
        """Whether each row is in exactly one."""
        return self.every_us == self.length_us

    def ends(self, times: Times) -> tuple[Times, Times]:
        last = pc.add(self._newest_start(times), self.length_us)
        first = pc.add(self._newest_start(pc.subtract(times, self.length_us)), self.length_us + self.every_us)
        return first, last

    def named(self, late: pa.RecordBatch, times: Times, passed: Times) -> Sequence[pa.RecordBatch]:
        """With the start of the window (`WINDOW`) that each row is too late for, unless windows are apart."""
        if self.are_apart:
            return [late]
        parts = []
        newest = self._newest_start(times)
        for back in range(-(-self.length_us // self.every_us)):
            starts = pc.subtract(newest, back * self.every_us)
            ends = pc.add(starts, self.length_us)
            missed = pc.and_(pc.greater(ends, times), pc.less_equal(ends, passed))
            parts.append(late.append_column(WINDOW, starts.cast(_US)).filter(missed))
        return parts

    def _newest_start(self, before: Times) -> Times:
        towards_1970 = pc.multiply(pc.divide(before, self.every_us), self.every_us)
        start: Times = pc.if_else(
            pc.greater(towards_1970, before), pc.subtract(towards_1970, self.every_us), towards_1970
        )
        return start


@dataclass(frozen=True, slots=True)
class Sessions(_OfOneThing):
    """`session_window(…)`: a session is over when nothing has come for so long. A row is late by its own time, as for Spark: also when a later row
    still keeps its session open, which then ends without it."""

    gap_s: float

    def ends(self, times: Times) -> tuple[Times, Times]:
        over = pc.add(times, round(self.gap_s * 1e6))
        return over, over


def tidal(
    entries: DataFrame, open_entries: OpenEntries, schema: str, *, event_time: str, until: Until, spool: Path
) -> DataFrame:
    """Entries of format headrace-tide as rows of a schema (DDL), those that are in time.

    `event_time`: the column of their event time, a timestamp; a row without one is in time, and for Spark in no window. `until`: what they are for.
    `spool`: a directory of this one stream, seen by driver and executors, where late rows wait for `LateRows`.
    """
    watched = entries.withWatermark("tide", "0 seconds")
    opened = watched.mapInArrow(opening(open_entries, event_time, until, spool), schema)
    return opened.withMetadata(event_time, _MARK_OF_EVENT_TIME)


def opening(
    open_entries: OpenEntries, event_time: str, until: Until, spool: Path
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its part of a batch: gives the rows in time, and leaves the late ones in the spool."""

    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        late: list[pa.RecordBatch] = []
        name = ""
        for batch in batches:
            entries = batch.filter(batch.column("tide").is_null())
            if not len(entries):
                continue
            name = f"{entries.column('batch')[0]}-{entries.column('partition')[0]}"
            passed = entries.column("passed")[0].cast(_US).cast(pa.int64())
            for rows in open_entries(entries):
                times = rows.column(event_time).cast(_US).cast(pa.int64())
                first, last = until.ends(times)
                is_late = pc.less_equal(first, passed)
                late += until.named(rows.filter(is_late), times.filter(is_late), passed)
                in_time: Flags = pc.greater(last, passed).fill_null(True)
                yield rows.filter(in_time)
        _leave(spool, name, [rows for rows in late if len(rows)])

    return opened


def _leave(spool: Path, name: str, late: Sequence[pa.RecordBatch]) -> None:
    """Not synced: until Spark has committed the batch, it is run again."""
    if late:
        make_directories(spool)
        path = spool / f"{name}.arrow"
        aside = path.with_suffix(".new")
        with pa.OSFile(str(aside), "wb") as file, pa.ipc.new_file(file, late[0].schema) as writer:
            for rows in late:
                writer.write_batch(rows)
        aside.replace(path)
