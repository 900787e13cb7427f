"""``headrace decode … --format ums``: changes of recorded logs as UMS messages, one a line.

Messages of one table are in log order, those of several tables as far as messages of many rows can be. A table's versions are counted from 0
as the log shows them: a log alone does not say how many there were before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from headrace.capture.gather import described_table
from headrace.codec.binlog import Ddl, Rows
from headrace.codec.ums import UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import TableSchema


class UmsLines:
    """`source`: what the data source is called in namespaces."""

    def __init__(self, dialect: Dialect, source: str) -> None:
        self._writer = UmsWriter(dialect)
        self._source = source
        self._newest: dict[tuple[str, str], TableSchema] = {}

    def lines(self, items: Iterable[Rows | Ddl]) -> Iterator[str]:
        """The messages of what was decoded without before images."""
        for item in items:
            if isinstance(item, Rows):
                table = self._version(described_table(self._source, item.table, item.data.schema))
                data = pa.RecordBatch.from_arrays(item.data.columns, schema=table.arrow_schema())
                yield from (message.value.decode() for message in self._writer.rows(ChangeBatch(table, data)))

    def _version(self, table: TableSchema) -> TableSchema:
        name = (table.namespace.schema, table.namespace.table)
        newest = self._newest.get(name)
        if newest is None or not newest.same_shape(table):
            version = 0 if newest is None else newest.namespace.version + 1
            newest = self._newest[name] = table.with_version(version)
        return newest
