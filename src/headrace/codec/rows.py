"""Rows that a MySQL or MariaDB server answers to a SELECT, into Arrow: the thin Python face of the native reader (rust/src/rows).

::

    bytes of a connection -> RowsReader.feed -> RowsReader.take -> a batch

Values become what the binlog decoder (codec/binlog.py) makes of them: types, texts and side texts are the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace import _native
from headrace.codec.binlog import Definition, TableInfo
from headrace.ums.schema import RAW, TableSchema


@dataclass(frozen=True, slots=True)
class Stored:
    """What a definition says of a column beside what the decoder needs to know.

    `arguments`: the numbers in the parentheses behind the type (none of ENUM and SET); `compressed`: MariaDB's COMPRESSED.
    """

    arguments: tuple[int, ...]
    nullable: bool
    compressed: bool


def describe(schema: str, table: str, definition: Definition, stored: Sequence[Stored]) -> tuple[TableInfo, pa.Schema]:
    """A table as its log describes it when it does so in full, with the Arrow types of its columns.

    `stored` has an entry for each column of the definition. SourceError: a type or a character set is not known.
    """
    described, empty = _native.describe_table(schema, table, definition, stored)
    return TableInfo.parse(described), pa.record_batch(empty).schema


class RowsReader:
    """Takes the answer to one prepared SELECT of the columns of a table, in their order.

    The server must send texts in their columns' character sets (`character_set_results=NULL`) and TIMESTAMP in UTC.
    """

    def __init__(self, table: TableSchema) -> None:
        columns = [pa.field(column.name, column.type, nullable=True) for column in table.columns]
        self._reader = _native.RowsReader(pa.schema([*columns, pa.field(RAW, pa.utf8(), nullable=True)]))

    def feed(self, data: memoryview, *, rows: int, size_bytes: int) -> tuple[int, bool]:
        """Takes whole packets up to a batch of that size; returns the bytes they had, and whether the batch is full.

        The buffer must not be written to meanwhile (other threads run). CorruptError: the bytes are no such answer.
        """
        return self._reader.feed(data, stop_after_rows=rows, stop_after_bytes=size_bytes)

    def take(self) -> pa.RecordBatch:
        """The rows taken since the last time: the table's columns, then `_ums_raw_`."""
        return pa.record_batch(self._reader.take())

    @property
    def rows(self) -> int:
        """How many rows `take` would give."""
        return self._reader.rows

    @property
    def at_end(self) -> bool:
        """The answer is over: all rows came, or `error` or `unfit` says why not."""
        return self._reader.at_end

    @property
    def error(self) -> tuple[int, str] | None:
        """The server's error code and text, when it could not give all rows."""
        return self._reader.error

    @property
    def unfit(self) -> str | None:
        """Which column does not hold what the table's schema says; no row was taken then."""
        return self._reader.unfit
