"""A table of a lake as of a moment, as a Spark source: ``spark.read.format("headrace-lake")``.

Options: `path` (the lake's directory, or its URL on HDFS or S3, with `endpoint`, `region`, … as in a flow file where the environment does not say
them), `table` (``type.source.schema.table``, or a whole namespace for one version's changes), and
`asof`: an `_ums_id_` or a time in ISO 8601 (UTC when it names no zone); the newest state when it is left out. Register it once per session:
``headrace.spark.register(spark)``. In SQL, a view over such a DataFrame; views with one `asof` show each transaction whole.

Each file of a table's state is a partition, and the changes behind it are one more. Every task reads the keys of these changes, which
are few as long as the lake is tended. Types that Spark has not: unsigned numbers become the next wider signed ones, decimals of more
than 38 digits text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property

import pyarrow as pa
from pydantic import ValidationError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headrace.errors import ConfigError
from headrace.lake.asof import Part, Snapshot, snapshot
from headrace.lake.commit import Manifest
from headrace.storage.location import tree_at
from headrace.storage.options import StoreOptions
from headrace.stream.spark_types import spark_type

FORMAT = "headrace-lake"
_OPTIONS = ("path", "table", "asof", "endpoint", "region", "access_key", "secret_key", "timeout")
_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.utf8(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.duration("us"): "interval day to second",
}


class _Slice(InputPartition):
    """A part of the table, read by one task."""

    def __init__(self, part: Part) -> None:
        super().__init__(None)
        self.part = part


class LakeReader(DataSourceReader):
    """The table, part by part."""

    def __init__(self, found: Snapshot) -> None:
        self._found = found

    def partitions(self) -> list[InputPartition]:
        slices: list[InputPartition] = [_Slice(piece) for part in self._found.parts for piece in part.split()]
        return slices or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = _spark_schema(self._found)
        if isinstance(partition, _Slice):
            for batch in partition.part.batches():
                yield from pa.table(batch).cast(schema).to_batches()


class LakeDataSource(DataSource):
    """``format("headrace-lake")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        fields = _spark_schema(self._found)
        return ", ".join(f"`{field.name.replace('`', '``')}` {_spark_name(field.type)}" for field in fields)

    def reader(self, schema: object) -> LakeReader:
        return LakeReader(self._found)

    @cached_property
    def _found(self) -> Snapshot:
        options = _checked(self.options)
        moment: dict[str, int | datetime] = {}
        if "asof" in options:
            moment = _moment(options["asof"])
        lake = tree_at(options["path"], _reached(options))
        return snapshot(Manifest.open(lake), options["table"], **moment)  # type: ignore[arg-type]


def _checked(given: Mapping[str, str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    missing = [name for name in ("path", "table") if name not in options]
    unknown = sorted(set(options) - set(_OPTIONS))
    if missing or unknown:
        wrong = f"lacks option '{missing[0]}'" if missing else f"does not know option '{unknown[0]}'"
        raise ConfigError(
            f"format {FORMAT} {wrong}", fix=f"set `path` and `table`, and `asof` if you like; {_OPTIONS} are all"
        )
    return options


def _reached(options: Mapping[str, str]) -> StoreOptions:
    try:
        return StoreOptions.model_validate({name: options[name] for name in _OPTIONS[3:] if name in options})
    except ValidationError as error:
        raise ConfigError(
            f"format {FORMAT} does not take these options: {error.errors()[0]['msg']}",
            fix="write them as in a flow file",
        ) from error


def _moment(text: str) -> dict[str, int | datetime]:
    try:
        return {"id": int(text)}
    except ValueError:
        pass
    try:
        return {"time": datetime.fromisoformat(text)}
    except ValueError as error:
        raise ConfigError(
            f"'{text}' is neither an id nor a time",
            fix="write ISO 8601, for instance 2026-01-31T12:00:00Z, or a number",
        ) from error


def _spark_schema(found: Snapshot) -> pa.Schema:
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in found.schema])


def _spark_name(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    name = _NAMES.get(type_)
    if name is None:
        raise ConfigError(f"Spark has no type for {type_}", fix="read the table with `headrace lake asof`")
    return name
