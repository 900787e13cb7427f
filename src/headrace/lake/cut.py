"""A table's rows by windows of event time.

A window is [start, start + length), its start a multiple of the length since 1970 UTC. A row's event time is its commit time, or the value
of a column, `_ums_ts_` among them; where that is null, or the table version has no such column, the commit time again. A column without a zone is UTC.

Most files lie in one window: what the manifest says of them is then what they add, and they are not read. Of the others a row group that
lies in one window is summed whole, and one that does not is sorted by window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.errors import CorruptError, DataError
from headrace.lake.layout import LakeFile
from headrace.lake.parquet import digest, open_file, row_groups, row_groups_in, table_in
from headrace.lake.tally import Tally
from headrace.storage.base import FileTree
from headrace.ums.schema import COMMIT_TS, ID, OP, TS, Column, TableSchema

_CHANGED = Column(TS, pa.timestamp("us", "UTC"), "")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
Span = tuple[int, int]
"""First and last event time in microseconds since 1970 UTC, both inclusive."""


@dataclass(slots=True)
class Found:
    """What files hold of one window."""

    rows: Tally = field(default_factory=Tally)
    id: tuple[int, int] = (2**63 - 1, -(2**63))
    files: dict[str, None] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)

    def add(self, rows: Tally, id_: tuple[int, int], file: LakeFile) -> None:
        self.rows += rows
        self.id = min(self.id[0], id_[0]), max(self.id[1], id_[1])
        self.files[file.path] = None
        self.versions.add(file.namespace)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a table's rows fall into windows."""

    length_us: int
    column: str = ""
    """Name of the column with the event time, as it is or was called; the commit time when empty."""

    def start(self, time_us: int) -> int:
        """The window of a time, by its start."""
        return time_us // self.length_us * self.length_us

    def span(self, lake: FileTree, file: LakeFile) -> Span:
        """The event times between which a file's rows lie; of a column, they are read from its footer."""
        if not self.column:
            return file.commit_ts
        opened = open_file(lake, file)
        spans = list(self._group_spans(opened))
        return min(low for low, _ in spans), max(high for _, high in spans)

    def windows(self, lake: FileTree, files: Iterable[LakeFile]) -> dict[int, Found]:
        """What the files hold of each window, by its start. Files of one window are taken as the manifest describes them.

        CorruptError when a file that is read is missing, or is not what the manifest says; DataError for a column that is no time.
        """
        found: dict[int, Found] = {}
        for file in files:
            low, high = map(self.start, self.span(lake, file))
            if low == high:
                found.setdefault(low, Found()).add(file.tally, file.id, file)
            else:
                self._merge(found, file, self.read(lake, file))
        return found

    def read(self, lake: FileTree, file: LakeFile) -> dict[int, Found]:
        """The same of one file, every row of which is read; CorruptError also when it is not what the manifest says."""
        found: dict[int, Found] = {}
        total = Tally()
        for start, rows in self._by_window(lake, file):
            tally = tally_of(rows)
            total += tally
            limits = pc.min_max(rows.column(ID))
            found.setdefault(start, Found()).add(tally, (limits["min"].as_py(), limits["max"].as_py()), file)
        if total != file.tally:
            raise CorruptError(
                f"{lake.root}/{file.path} is not what was written: it holds {total}, but {file.tally} were written",
                fix="restore this file from a copy; the log can deliver its rows again as long as it keeps them",
            )
        return found

    @staticmethod
    def _merge(into: dict[int, Found], file: LakeFile, found: dict[int, Found]) -> None:
        for start, part in found.items():
            into.setdefault(start, Found()).add(part.rows, part.id, file)

    def _by_window(self, lake: FileTree, file: LakeFile) -> Iterator[tuple[int, pa.Table]]:
        opened = open_file(lake, file)
        column = self._column_in(table_in(opened))
        spans = list(self._group_spans(opened))
        groups = row_groups(lake, file, opened, opened.schema_arrow.names, range(opened.num_row_groups))
        for (low, high), rows in zip(spans, groups, strict=True):
            if self.start(low) == self.start(high):
                yield self.start(low), rows
            else:
                yield from self._sorted(rows, column)

    def _sorted(self, rows: pa.Table, column: Column | None) -> Iterator[tuple[int, pa.Table]]:
        times = _times(rows, column)
        starts = pc.multiply(pc.divide(times, self.length_us), self.length_us)
        # The division is towards zero; before 1970 a window begins below.
        starts = pc.if_else(pc.greater(starts, times), pc.subtract(starts, self.length_us), starts)
        by_window = rows.append_column("", starts).sort_by("")
        at = 0
        for counted in pc.value_counts(by_window.column("").combine_chunks()):  # in the order in which they stand
            count = counted["counts"].as_py()
            yield counted["values"].as_py(), by_window.slice(at, count).drop_columns("")
            at += count

    def _group_spans(self, opened: pq.ParquetFile) -> Iterator[Span]:
        """Per row group the event times between which its rows lie."""
        column = self._column_in(table_in(opened))
        for group in row_groups_in(opened):
            yield group.commit_ts if column is None else _span_in(opened, group.number, column.name, group.commit_ts)

    def _column_in(self, table: TableSchema) -> Column | None:
        """The column in a version of the table; None where the commit time counts. DataError when it is no time."""
        if not self.column:
            return None
        if self.column == TS:
            return _CHANGED
        column = next((each for each in table.columns if self.column in (each.name, each.identity)), None)
        if column is None or pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            return column
        raise DataError(
            f"column '{self.column}' of {table.namespace} is {column.type}, which is no time: the table has no windows by it",
            fix="name a column with dates or times in `windows: {event_time: …}`, or leave the table out there",
        )


def tally_of(rows: pa.Table) -> Tally:
    """Counts and digest of rows as they are stored."""
    counts = {each["values"].as_py(): each["counts"].as_py() for each in rows.column(OP).value_counts()}
    return Tally(dict(sorted(counts.items())), digest(rows))


def _times(rows: pa.Table, column: Column | None) -> pa.ChunkedArray[Any]:
    committed = rows.column(COMMIT_TS).cast(pa.int64())
    if column is None:
        return committed
    values = rows.column(column.name)
    zone = values.type.tz if pa.types.is_timestamp(values.type) else None
    return pc.coalesce(values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()), committed)


def _span_in(opened: pq.ParquetFile, group: int, name: str, committed: Span) -> Span:
    described = opened.metadata.row_group(group)
    found = described.column(opened.schema_arrow.names.index(name)).statistics
    if found is None or not found.has_min_max:
        if found is not None and found.null_count == described.num_rows:
            return committed
        return -(2**63), 2**63 - 1
    low, high = _us(found.min), _us(found.max)
    return (low, high) if found.null_count == 0 else (min(low, committed[0]), max(high, committed[1]))


def _us(value: Any) -> int:
    """Of a date or a time."""
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    time: datetime = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (time - _EPOCH) // _US
