"""``format("headrace-hbase")``: changes in the write-ahead log of an HBase, read from its files (docs/how-to/spark-sources.md).

A stream captures into its own log under `path`, each batch of it of one region, and a task reads what a batch has of one region. A batch reads
HBase's log as it is now, in one task, as only the files of all servers together have a region's order; or, with `path`, what the log of a
stream keeps, region by region.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
from pydantic import Field
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.capture.hbase.changes import KEY, columns_of
from headrace.capture.hbase.mapping import CellType, Mappings, full_name
from headrace.capture.hbase.source import HBaseConfig, HBaseSource
from headrace.errors import ConfigError
from headrace.stream.sources.frames import column_schema, value_schema
from headrace.stream.sources.options import QueryOptions, checked, masks, nested, parted, refuse
from headrace.stream.sources.plan import ByRegion
from headrace.stream.sources.query import NowReader, Query
from headrace.stream.sources.reading import Range
from headrace.ums.schema import TS, Namespace, TableSchema

FORMAT = "headrace-hbase"
_LISTS = frozenset({"tables"})
_REFUSED = ("partitions", "type", "start")
_COLUMN = re.compile(rf"(?P<name>\S+)\s+(?P<type>{'|'.join(get_args(CellType))})\s+(?P<cell>[^\s:]+:\S*)")


class _Options(QueryOptions):
    row: CellType = "bytes"
    """The type of row keys."""
    columns: str = ""
    """Columns for cells, ``total long d:total, note text d:note``; all cells are in `cells` besides."""
    most_regions: int = Field(default=1000, alias="maxregions", ge=1)
    """Of so many regions a batch may have changes."""


@dataclass(frozen=True)
class _Query(Query):
    """A query over HBase's log."""

    spark_format = FORMAT
    options: _Options
    config: HBaseConfig

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Query:
        options, rest = parted(given, _Options, FORMAT)
        refuse(rest, _REFUSED, FORMAT)
        for name, text in options.bounds.items():
            _bound(name, text)
        values = nested(rest, _LISTS) | masks(rest, FORMAT)
        mapping = {"row": options.row, "columns": _cells(options.columns)}
        # An id is no place to begin at: a batch reads from the beginning, and passes over what is before it.
        start = "earliest" if options.starting.isdecimal() else options.starting
        fixed = {"type": "hbase", "name": options.source_name, "start": start}
        tables = {"tables": dict.fromkeys(values.pop("tables"), mapping)} if "tables" in values else {}
        return cls(options, checked(HBaseConfig, values | tables | fixed, FORMAT))

    @property
    def tables(self) -> list[str]:
        return list(self.config.tables)

    @property
    def plan(self) -> ByRegion:
        return ByRegion(self.options.most_regions)

    def schema(self) -> pa.Schema:
        if not self.in_columns:
            return value_schema(before_images=False)
        [name] = self.config.tables
        namespace, _, table = full_name(name).partition(":")
        mapping = Mappings(self.config.tables).of(name)
        assert mapping is not None
        place = Namespace("hbase", self.config.name, namespace, table)
        return column_schema(self.promised(TableSchema(place, columns_of(mapping), KEY)), before_images=False)

    def source(self, state: Path) -> HBaseSource:
        return HBaseSource(self.config, state, by_region=True)

    def range(self) -> Range:
        """From `startingOffsets` to `endingOffsets`, where they are ids or times: of writing, by the servers' clocks."""
        low, high = (_bound(name, text) for name, text in self.options.bounds.items())
        return Range(
            low if isinstance(low, int) else None,
            high if isinstance(high, int) else None,
            _us(low),
            _us(high),
            time=TS,
        )


def _cells(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        column = _COLUMN.fullmatch(part)
        if column is None:
            raise ConfigError(
                f"option 'columns' of format {FORMAT}: '{part}' is no column",
                fix=f'write NAME TYPE FAMILY:QUALIFIER, {", ".join(get_args(CellType))}: columns "total long d:total, note text d:note"',
            )
        if column["name"] in found:
            raise ConfigError(
                f"option 'columns' of format {FORMAT} has '{column['name']}' twice",
                fix="give each cell a name of its own",
            )
        found[column["name"]] = {"cell": column["cell"], "type": column["type"]}
    return found


def _bound(name: str, text: str) -> int | datetime | None:
    if text in ("earliest", "latest"):
        return None
    try:
        return int(text) if text.isdecimal() else datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"option '{name}' of format {FORMAT}: '{text}' is no place in HBase's log",
            fix="write earliest, latest, a time such as 2026-01-31T12:00:00Z, or (a batch) an _ums_id_",
        ) from error


def _us(bound: object) -> int | None:
    if not isinstance(bound, datetime):
        return None
    return round((bound if bound.tzinfo else bound.replace(tzinfo=UTC)).timestamp() * 1_000_000)


class HBaseDataSource(DataSource):
    """``format("headrace-hbase")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        query = _Query.of(self.options)
        return from_arrow_schema(query.schema(), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        query = _Query.of(self.options)
        return NowReader(query, schema) if query.options.path is None else query.kept(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _Query.of(self.options).stream(schema)
