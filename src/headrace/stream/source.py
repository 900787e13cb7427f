"""The log as a Spark source: ``spark.readStream.format("headrace-log")``, and the same as a batch by ``spark.read``.

One row is one entry of the log that holds changes or a mark; a block (ums/change.py) is one cell, so the JVM carries changes without
parsing them and a Python worker opens one into a typed table at no cost (``headrace.ums.change.read_block``). UMS messages of a topic
on Kafka become blocks here; those that say something else (heartbeats, ends of versions) give no row.

Options: `topic`, and which log: `path` (the embedded log's directory, also ``hdfs://…`` and ``s3://…``) or `brokers` (Kafka); any other option of that log in a flow file
too, with a dot where it has levels (``sasl.username``). `startingOffsets` (``earliest``, the default, or ``latest``; a stream's first
start only); `maxEntriesPerTrigger`. Offsets are a map partition -> next offset: a range always gives the same rows again.
Trigger.AvailableNow is supported. Register it once per session: ``headrace.spark.register(spark)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace import registry
from headrace.codec.entries import EntryReader, table_of
from headrace.codec.ums import is_heartbeat, is_mark
from headrace.errors import ConfigError
from headrace.log.base import Log, Record, Span
from headrace.log.layout import kind_of

FORMAT = "headrace-log"
ENTRY_FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.utf8()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("time", pa.timestamp("us", "UTC")),
    pa.field("namespace", pa.utf8()),
    pa.field("block", pa.binary()),
]
ENTRIES_DDL = "topic string, partition int, offset long, time timestamp, namespace string, block binary"
_ENTRIES_PER_BATCH = 256
_OURS = {"topic", "startingoffsets", "maxentriespertrigger"}
Offsets = dict[str, int]


class _Slice(InputPartition):
    """A range of one partition, read by one task."""

    def __init__(self, partition: int, span: Span) -> None:
        super().__init__(None)
        self.partition = partition
        self.span = span


class LogTopic:
    """One topic of a log, opened anew in each process that needs it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        if ("path" in options) == ("brokers" in options) or "topic" not in options:
            raise ConfigError(
                f"format {FORMAT} needs to know which topic of which log",
                fix="set `topic`, and either `path` or `brokers`",
            )
        self.name = options["topic"]
        self._kind = kind_of(options["path"]) if "path" in options else "kafka"
        self._options = {name: value for name, value in options.items() if name.lower() not in _OURS}

    def open(self) -> Log:
        kind = registry.load("logs", self._kind)
        values: dict[str, Any] = {"type": self._kind}
        for name, value in self._options.items():
            *levels, last = name.split(".")
            place = values
            for level in levels:
                place = place.setdefault(level, {})
            place[last] = value
        try:
            log: Log = kind(kind.Config.model_validate(values))  # type: ignore[attr-defined]
        except ValidationError as error:
            [first, *_] = error.errors()
            option = ".".join(map(str, first["loc"]))
            raise ConfigError(f"option '{option}' of format {FORMAT}: {first['msg']}", fix="correct it") from error
        return log

    def spans(self) -> Mapping[int, Span]:
        log = self.open()
        try:
            return log.spans(self.name)
        finally:
            log.close()

    def read(self, piece: _Slice) -> Iterator[pa.RecordBatch]:
        log = self.open()
        reader = EntryReader()
        try:
            records = log.read(self.name, piece.partition, piece.span)
            blocks = ((record, block) for record in records if (block := reader.block(record.entry)) is not None)
            while some := tuple(islice(blocks, _ENTRIES_PER_BATCH)):
                yield self._rows(piece.partition, some)
        finally:
            log.close()

    def _rows(self, partition: int, found: tuple[tuple[Record, bytes], ...]) -> pa.RecordBatch:
        records = [record for record, _ in found]
        keys = [record.entry.key for record in records]
        columns: list[list[Any]] = [
            [self.name] * len(records),
            [partition] * len(records),
            [record.offset for record in records],
            [record.entry.time_ms * 1000 for record in records],
            [None if is_mark(key) or is_heartbeat(key) else table_of(key).decode() for key in keys],
            [block for _, block in found],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, ENTRY_FIELDS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(ENTRY_FIELDS))


class LogReader(DataSourceReader):
    """All that is on the log now."""

    def __init__(self, topic: LogTopic) -> None:
        self._topic = topic

    def partitions(self) -> list[InputPartition]:
        return [_Slice(partition, span) for partition, span in self._topic.spans().items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Slice)
        return self._topic.read(partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log from a starting offset on, as far as it has come, or at most so many entries a trigger."""

    def __init__(self, topic: LogTopic, options: Mapping[str, str]) -> None:
        self._topic = topic
        self._latest = options.get("startingOffsets", "earliest") == "latest"
        self._limit = int(options.get("maxEntriesPerTrigger", "0"))
        self._until: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        return {str(number): span.stop if self._latest else span.start for number, span in self._topic.spans().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._limit) if self._limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self.ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        ends = self.ends()
        if not isinstance(limit, ReadMaxRows):
            return ends
        return shared(start, ends, limit.max_rows)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        spans = {partition: Span(start.get(partition, 0), stop) for partition, stop in end.items()}
        return [_Slice(int(partition), span) for partition, span in spans.items() if len(span)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Slice)
        return self._topic.read(partition)

    def ends(self) -> Offsets:
        """Where all partitions end now; with AvailableNow where they ended at the begin."""
        if self._until is not None:
            return self._until
        return {str(number): span.stop for number, span in self._topic.spans().items()}


def shared(start: Offsets, ends: Offsets, left: int) -> Offsets:
    """So many entries in all, of each partition an equal part or what it has: none keeps another one waiting."""
    there = {partition: end - start.get(partition, 0) for partition, end in ends.items()}
    reached: Offsets = {}
    for number, partition in enumerate(sorted(there, key=lambda partition: there[partition])):
        part = min(there[partition], -(-left // (len(there) - number)))
        reached[partition] = start.get(partition, 0) + part
        left -= part
    return {partition: reached[partition] for partition in ends}


class LogDataSource(DataSource):
    """``format("headrace-log")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ENTRIES_DDL

    def reader(self, schema: object) -> LogReader:
        return LogReader(LogTopic(self.options))

    def streamReader(self, schema: object) -> LogStreamReader:  # noqa: N802
        return LogStreamReader(LogTopic(self.options), self.options)
