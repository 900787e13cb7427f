"""``format("headrace-mysql")``: changes in the binlog of a MySQL or MariaDB server, or in recorded files of one (docs/how-to/spark-sources.md).

A stream captures into its own log under `path`. A batch reads the source from `startingOffsets` to `endingOffsets`: a server in one task, files in
a task each (capture/recorded.py); or, with `path`, what the log of a stream keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pydantic import Field
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.capture import recorded
from headrace.capture.binlog_files import BinlogFiles
from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig, StartBehind, parsed_start
from headrace.capture.position import FILE_IDS, FILE_START, BinlogPosition
from headrace.errors import ConfigError, Finding
from headrace.stream.sources.frames import column_schema, value_schema
from headrace.stream.sources.options import QueryOptions, checked, masks, nested, parted, refuse
from headrace.stream.sources.plan import ByPartition
from headrace.stream.sources.query import NowReader, Query
from headrace.stream.sources.reading import Range
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema

FORMAT = "headrace-mysql"
_LISTS = frozenset({"tables", "failover"})
_REFUSED = ("load", "heartbeat", "type", "start")


class _Options(QueryOptions):
    before_images: bool = Field(default=False, alias="beforeimages")
    """Rows as they were before they were changed, in `_ums_before_`."""


@dataclass(frozen=True)
class _Query(Query):
    """A query over a binlog."""

    spark_format = FORMAT
    options: _Options
    config: MySqlConfig

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Query:
        options, rest = parted(given, _Options, FORMAT)
        refuse(rest, _REFUSED, FORMAT)
        # An id is no place to begin at: a batch reads from the beginning, and passes over what is before it.
        start = "earliest" if options.starting.isdecimal() else options.starting
        fixed: dict[str, object] = {"type": "mysql", "name": options.source_name, "start": start}
        if "files" not in rest:
            fixed["heartbeat"] = None
        return cls(options, checked(MySqlConfig, nested(rest, _LISTS) | masks(rest, FORMAT) | fixed, FORMAT))

    @property
    def tables(self) -> list[str]:
        return self.config.tables

    @property
    def plan(self) -> ByPartition:
        return ByPartition()

    def source(self, state: Path) -> MySqlSource:
        return MySqlSource(self.config, state, before_images=self.options.before_images)

    def table(self) -> TableSchema:
        """The one table as it is now. Where the query begins does not count: one that goes on began there long ago."""
        with TemporaryDirectory() as state:
            source = MySqlSource(self.config.model_copy(update={"start": "earliest"}), Path(state))
            try:
                for finding in source.check(None):
                    _raise_if_it_stops(finding)
                found = list(source.tables_now())
            finally:
                source.close()
        for one in found:
            if isinstance(one, TableSchema):
                return one
            raise ConfigError(one.message, fix=one.fix)
        raise ConfigError(
            f"there is no table {self.config.tables[0]} whose columns could be told",
            fix="check `tables` and the user's rights; or give the query its columns with .schema(…)",
        )

    def range(self) -> Range:
        """From `startingOffsets` to `endingOffsets`, where they are ids, places or times."""
        low, high = (self._bound(name, text) for name, text in self.options.bounds.items())
        if isinstance(high, BinlogPosition) and self.config.files is not None:
            high = BinlogFiles(self.config.files).counted(high)
        return Range(_id(low), _id(high), _us(low), _us(high))

    def is_over(self, mark: Mark | None) -> bool:
        if mark is None:
            return False
        range_ = self.range()
        position, end_id = BinlogPosition.of(mark), range_.high_id
        if (
            end_id is not None
            and position.expanded
            and mark.id >= end_id > position.file_number * FILE_IDS + FILE_START
        ):
            raise ConfigError(
                f"`endingOffsets` is within {position.file}, which is compressed: offsets in it are not the places of rows",
                fix="end at the beginning of a file (FILE:4), at a time or at an _ums_id_",
            )
        return (end_id is not None and mark.id >= end_id) or (
            range_.high_us is not None and mark.commit_ts_us >= range_.high_us
        )

    @staticmethod
    def _bound(name: str, text: str) -> object:
        if text.isdecimal():
            return int(text)
        try:
            return parsed_start(text)
        except ValueError as error:
            raise ConfigError(f"option '{name}' of format {FORMAT}: {error}", fix="correct it") from error


def _id(bound: object) -> int | None:
    if isinstance(bound, StartBehind):
        raise ConfigError(
            "a range of changes cannot begin or end at a set of GTIDs",
            fix="name FILE:OFFSET, a time, an _ums_id_, earliest or latest",
        )
    return bound.id if isinstance(bound, BinlogPosition) else bound if isinstance(bound, int) else None


def _us(moment: object) -> int | None:
    return round(moment.timestamp() * 1_000_000) if isinstance(moment, datetime) else None


def _raise_if_it_stops(finding: Finding) -> None:
    if finding.stops:
        raise ConfigError(finding.message, fix=finding.fix)


class MySqlDataSource(DataSource):
    """``format("headrace-mysql")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        query = _Query.of(self.options)
        before_images = query.options.before_images
        promised = (
            column_schema(query.promised(query.table()), before_images=before_images)
            if query.in_columns
            else value_schema(before_images=before_images)
        )
        return from_arrow_schema(promised, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        query = _Query.of(self.options)
        if query.options.path is not None:
            return query.kept(schema)
        return (_FilesReader if query.config.files is not None else NowReader)(query, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _Query.of(self.options).stream(schema)


class _FilePartition(InputPartition):
    """One recorded file."""

    def __init__(self, part: recorded.Part) -> None:
        super().__init__(None)
        self.part = part


class _FilesReader(DataSourceReader):
    """Recorded files, each read by a task."""

    def __init__(self, query: _Query, schema: StructType) -> None:
        self._query = query
        self._frame = query.frame(schema)

    def partitions(self) -> Sequence[InputPartition]:
        config, range_ = self._query.config, self._query.range()
        assert config.files is not None
        _, first, not_before_us = self._query.source(Path()).recorded()
        parts = recorded.parts_of(config, first, not_before_us)
        behind = range_.high_id
        wanted = takewhile(lambda part: behind is None or part.start.id < behind, parts)
        return [_FilePartition(part) for part in wanted] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _FilePartition):
            before_images = self._query.options.before_images
            changes = recorded.changes(self._query.config, partition.part, before_images=before_images)
            for change in self._query.masked(changes):
                yield self._query.range().of(self._frame.rows(change))
