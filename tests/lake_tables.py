"""Small tables and changes for the tests of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.lake.commit import Manifest
from headrace.lake.parquet import open_file
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeSink
from headrace.storage.base import FileTree
from headrace.storage.location import tree_at
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import ID, Column, Namespace, TableSchema

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = "mysql.db1.shop.orders"


def table(
    *columns: tuple[str, pa.DataType] | Column, key: tuple[str, ...] = ("id",), name: str = "orders", version: int = 0
) -> TableSchema:
    made = tuple(c if isinstance(c, Column) else Column(c[0], c[1], str(c[1])) for c in columns)
    return TableSchema(Namespace("mysql", "db1", "shop", name, version), made, key)


ID_NAME = table(("id", pa.int64()), ("name", pa.utf8()))


def time_of(id_: int) -> datetime:
    """The commit time of the change with this id: a second per id; all first-load rows together at the start."""
    return START + timedelta(seconds=max(0, id_))


def changes(schema: TableSchema, *rows: tuple[Any, ...]) -> ChangeBatch:
    """Rows are (id, operation, value of each column…)."""
    names = schema.arrow_schema().names
    lists = [(row[0], time_of(row[0]), row[1], time_of(row[0]), None, *row[2:]) for row in rows]
    dicts = [dict(zip(names, values, strict=True)) for values in lists]
    return ChangeBatch(schema, pa.RecordBatch.from_pylist(dicts, schema=schema.arrow_schema()))


def open_sink(path: Path | str, flow: str = "orders_lake", **settings: Any) -> LakeSink:
    return LakeSink(LakeSink.Config(type="lake", path=path, **settings), flow)


def at(offset: int, id_: int = 0, topic: str = "db1", partition: int = 0) -> Position:
    return Position(topic, partition, offset, id_, id_ * 1_000_000)


def land(path: Path | str, *batches: ChangeBatch, offset: int = 1, flow: str = "orders_lake") -> None:
    """Commits batches, as one run of a flow."""
    sink = open_sink(path, flow)
    for batch in batches:
        sink.write(batch)
    sink.commit(at(offset))
    sink.close()


def ids_in(path: Path | str | FileTree, name: str = ORDERS) -> list[int]:
    """The ids of all committed changes of a table, in the order of its files."""
    ids: list[int] = []
    for file in Manifest.open(path).tables.get(name, []):
        ids += open_file(tree_at(path), file).read(columns=[ID]).column(ID).to_pylist()
    return ids


def rows(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def parquet_files(path: Path) -> Sequence[Path]:
    return sorted(path.rglob("*.parquet"))
