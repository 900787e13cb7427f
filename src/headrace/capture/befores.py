"""Changes with the rows before them as well: two columns behind the table's own, the image and what its types cannot hold."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.codec.binlog import BEFORE, BEFORE_RAW
from headrace.ums.schema import Column, TableSchema


def with_befores(table: TableSchema) -> TableSchema:
    """The table whose changes have the rows before them."""
    image = pa.struct([pa.field(column.name, column.type) for column in table.columns])
    return replace(table, columns=(*table.columns, Column(BEFORE, image, ""), Column(BEFORE_RAW, pa.utf8(), "")))


def has_befores(table: TableSchema) -> bool:
    return tuple(column.name for column in table.columns[-2:]) == (BEFORE, BEFORE_RAW)


def without_befores(table: TableSchema) -> TableSchema:
    """The inverse of `with_befores`."""
    return replace(table, columns=table.columns[:-2])
