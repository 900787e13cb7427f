"""Offsets of a query, and what a batch reads between two of them.

::

    by partition   {"0": 4711, "1": 12}                             next entry of each partition of the own log
    by region      {"log": 4711, "regions": {"<region>": [7, 19]}}  next entry of its one partition; and of each region that has changes in the
                                                                    batch the first and the last sequence

Ends stand behind marks: what is before one is complete (ums/change.py). A limit counts rows, and is passed by what stands up to the next mark,
as a transaction is not divided. A range always gives the same slices again, since the log does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql.datasource import InputPartition

from headrace.capture.runner import PARTITION
from headrace.codec.entries import EntryReader
from headrace.codec.ums import is_heartbeat, is_mark
from headrace.errors import ConfigError
from headrace.log.base import Log, Span, last
from headrace.ums.change import ChangeBatch, read_header

Offsets = dict[str, Any]
Ends = Mapping[int, int]
"""By partition of the own log the next entry."""


class Slice(InputPartition):
    """What one task reads: ranges of one partition of the own log."""

    def __init__(self, partition: int, spans: tuple[Span, ...]) -> None:
        super().__init__(None)
        self.partition = partition
        self.spans = spans


class Plan(Protocol):
    """How a query divides its log. It is sent to executors."""

    def offsets(self, log: Log, topic: str, start: Ends, end: Ends) -> Offsets:
        """The offsets behind a range."""
        ...

    def ends(self, offsets: Offsets) -> dict[int, int]:
        """The inverse: where the log was read to."""
        ...

    def slices(self, log: Log, topic: str, start: Ends, end: Ends) -> list[Slice]:
        """What tasks read of a range."""
        ...


@dataclass(frozen=True)
class ByPartition:
    """A task for each partition of the log."""

    def offsets(self, log: Log, topic: str, start: Ends, end: Ends) -> Offsets:
        return {str(partition): offset for partition, offset in end.items()}

    def ends(self, offsets: Offsets) -> dict[int, int]:
        return {int(partition): offset for partition, offset in offsets.items()}

    def slices(self, log: Log, topic: str, start: Ends, end: Ends) -> list[Slice]:
        spans = {partition: Span(start.get(partition, 0), stop) for partition, stop in end.items()}
        return [Slice(partition, (span,)) for partition, span in spans.items() if len(span)]


@dataclass(slots=True)
class _Region:
    """What a range has of a region."""

    first: int
    last: int
    spans: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class ByRegion:
    """A task for each region of HBase that has changes, each entry being of one region. `most`: so many regions, in a batch, are not too many."""

    most: int

    def offsets(self, log: Log, topic: str, start: Ends, end: Ends) -> Offsets:
        regions = self._regions(log, topic, start, end)
        return {"log": end.get(PARTITION, 0), "regions": {name: [one.first, one.last] for name, one in regions.items()}}

    def ends(self, offsets: Offsets) -> dict[int, int]:
        return {PARTITION: offsets["log"]}

    def slices(self, log: Log, topic: str, start: Ends, end: Ends) -> list[Slice]:
        regions = self._regions(log, topic, start, end)
        return [Slice(PARTITION, tuple(regions[name].spans)) for name in sorted(regions)]

    def _regions(self, log: Log, topic: str, start: Ends, end: Ends) -> dict[str, _Region]:
        reader, found = EntryReader(), dict[str, _Region]()
        for record in log.read(topic, PARTITION, Span(start.get(PARTITION, 0), end.get(PARTITION, 0))):
            if is_mark(record.entry.key) or is_heartbeat(record.entry.key):
                continue
            change = reader.read(record.entry)
            if not isinstance(change, ChangeBatch):
                continue
            name, sequences = change.data["region"][0].as_py(), change.data["sequence"]
            region = found.setdefault(name, _Region(sequences[0].as_py(), 0))
            region.last = sequences[-1].as_py()
            _lengthen(region.spans, record.offset)
        if len(found) > self.most:
            raise ConfigError(
                f"a batch has changes of {len(found):,} regions, more than `maxRegions` ({self.most:,}): each would be a task",
                fix="raise `maxRegions`, name fewer `tables`, or let a batch have less (`maxRowsPerTrigger`)",
            )
        return found


def _lengthen(spans: list[Span], offset: int) -> None:
    if spans and spans[-1].stop == offset:
        spans[-1] = Span(spans[-1].start, offset + 1)
    else:
        spans.append(Span(offset, offset + 1))


def complete_up_to(log: Log, topic: str) -> dict[int, int]:
    """Of each partition the end of what is complete: behind its newest mark."""
    ends = {}
    for partition, span in log.spans(topic).items():
        mark = last(log, topic, partition, is_mark)
        ends[partition] = span.start if mark is None else mark.offset + 1
    return ends


def limited(log: Log, topic: str, start: Ends, end: Ends, most_rows: int) -> dict[int, int]:
    """The first marks behind which there are so many rows; `end` when there are fewer."""
    reached, left = {}, most_rows
    for partition, stop in end.items():
        reached[partition] = begin = start.get(partition, 0)
        if left > 0:
            reached[partition], rows = _behind(log, topic, partition, Span(begin, stop), left)
            left -= rows
    return reached


def _behind(log: Log, topic: str, partition: int, span: Span, most_rows: int) -> tuple[int, int]:
    rows = 0
    for offset, is_end, more in _sizes(log, topic, partition, span):
        rows += more
        if is_end and rows >= most_rows:
            return offset + 1, rows
    return span.stop, rows


def _sizes(log: Log, topic: str, partition: int, span: Span) -> Iterator[tuple[int, bool, int]]:
    for record in log.read(topic, partition, span):
        rows = read_header(record.entry.value).get("rows", 0)
        yield record.offset, is_mark(record.entry.key), rows
