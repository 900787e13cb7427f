"""What the options of a query over a source say, and the readers that come of it: the same for every source."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.capture.base import Source
from headrace.capture.error_ledger import told
from headrace.capture.mask import Masker, check_masks
from headrace.errors import ConfigError, DataError
from headrace.model import SourceConfig
from headrace.stream.sources.consumer import Consumer
from headrace.stream.sources.frames import ColumnFrame, Frame, ValueFrame
from headrace.stream.sources.options import QueryOptions, in_columns
from headrace.stream.sources.plan import Plan
from headrace.stream.sources.reading import ChangesReader, ChangesStreamReader, Range, Reading
from headrace.ums.change import ChangeBatch, Clear, Mark
from headrace.ums.schema import TableSchema

_logger = logging.getLogger("headrace")


@dataclass(frozen=True)
class Query(ABC):
    """A query over one source. It is sent to executors."""

    spark_format: ClassVar[str]
    options: QueryOptions
    config: SourceConfig

    @abstractmethod
    def source(self, state: Path) -> Source:
        """The source, with that directory for its state."""

    @property
    @abstractmethod
    def tables(self) -> list[str]:
        """As the options name them."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """How the own log is divided."""

    @abstractmethod
    def range(self) -> Range:
        """What is wanted, from `startingOffsets` to `endingOffsets`."""

    def is_over(self, mark: Mark | None) -> bool:
        """Whether nothing that is wanted comes behind a mark of the source."""
        del mark
        return False

    @property
    def in_columns(self) -> bool:
        return in_columns(self.options, self.tables)

    def promised(self, table: TableSchema) -> TableSchema:
        """A table as its masks make it. ConfigError for a mask that fits none of its columns, or not what it is to mask."""
        place = table.namespace
        names = [(place.schema, place.table, column.name, column.name in table.key) for column in table.columns]
        check_masks(self.config, names)
        return Masker(self.config, None).plan(table).table

    def masked(self, changes: Iterable[ChangeBatch | Clear]) -> Iterator[ChangeBatch | Clear]:
        """Changes of the source itself, as masks make them; DataError where one fails, since there is no ledger for the row."""
        masker = Masker(self.config, None)
        for change in changes:
            found = masker.mask(change)
            for failure in found.failed:
                raise DataError(told(failure), fix="correct the mask, or read a stream, which sets such rows aside")
            if isinstance(found.change, (ChangeBatch, Clear)):
                yield found.change

    def frame(self, schema: StructType) -> Frame:
        promised = to_arrow_schema(schema, timezone="UTC")
        return ColumnFrame(promised) if self.in_columns else ValueFrame(promised)

    def kept(self, schema: StructType) -> ChangesReader:
        """A batch of what the log of a stream keeps."""
        return ChangesReader(self._reading(schema), self.range())

    def stream(self, schema: StructType) -> ChangesStreamReader:
        reading = self._reading(schema)
        self.options.require_a_stream(self.spark_format)
        consumer = Consumer(self.config, self.source, reading.own, self.options.give_up_after)
        return ChangesStreamReader(reading, consumer, start=self.options.starting, most_rows=self.options.most_rows)

    def _reading(self, schema: StructType) -> Reading:
        return Reading(self.options.own(self.spark_format), self.plan, self.frame(schema))


class NowReader(DataSourceReader):
    """The source itself, from the start to the end that it has when the reading begins, or that is wanted."""

    def __init__(self, query: Query, schema: StructType) -> None:
        self._query = query
        self._frame = query.frame(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One. What is wrong with the source is told here, in the driver, not by a task."""
        with TemporaryDirectory() as state, closing(self._query.source(Path(state))) as source:
            for finding in source.check(None):
                if finding.stops:
                    raise ConfigError(finding.message, fix=finding.fix)
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        range_ = self._query.range()
        with TemporaryDirectory() as state:
            source = self._query.source(Path(state))
            try:
                for event in source.follow(None):
                    for notice in event.notices:
                        _logger.warning("headrace: %s", notice)
                    changes = [change for change in event.changes if isinstance(change, (ChangeBatch, Clear))]
                    for change in self._query.masked(changes):
                        yield range_.of(self._frame.rows(change))
                    if event.caught_up or self._query.is_over(event.mark):
                        return
            finally:
                source.close()
