"""``headrace decode … --format ums``: changes of recorded logs as UMS messages, one a line.

Messages of one table are in log order, those of several tables as far as messages of many rows can be. A table's versions are counted from 0
as the log shows them: a log alone does not say how many there were before. A version that is over is told by its termination.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from headrace.capture.gather import described_table
from headrace.codec.binlog import Ddl, Rows
from headrace.codec.ums import UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import TS
from headrace.ums.versions import Versions


class UmsLines:
    """`source`: what the data source is called in namespaces."""

    def __init__(self, dialect: Dialect, source: str) -> None:
        self._writer = UmsWriter(dialect)
        self._source = source
        self._versions = Versions()

    def lines(self, items: Iterable[Rows | Ddl]) -> Iterator[str]:
        """The messages of what was decoded without before images."""
        for item in items:
            if isinstance(item, Rows):
                described = described_table(self._source, item.table, item.data.schema)
                before, table = self._versions.newest(described), self._versions.numbered(described)
                if before is not None and before.namespace != table.namespace:
                    ended_us = item.data.column(TS).view(pa.int64())[0].as_py()
                    yield self._writer.termination(before.namespace, ended_us).value.decode()
                data = pa.RecordBatch.from_arrays(item.data.columns, schema=table.arrow_schema())
                yield from (value.decode() for _, value in self._writer.rows(ChangeBatch(table, data)))
