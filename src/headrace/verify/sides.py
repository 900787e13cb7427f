"""The two sides of a verification: a source's tables as they are now, and what a flow's target has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.load.base import Loader, Range
from headrace.capture.load.worker import as_inserts
from headrace.capture.mask import Masker
from headrace.compute.transform import Transform
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.sinks.base import Sink
from headrace.stream.parts import open_transform
from headrace.ums.change import DELETE, ChangeBatch, Clear, End, Mark
from headrace.ums.schema import OP, TableSchema
from headrace.verify.followed import Followed, Offsets

_CHUNK_ROWS = 250_000
"""Rows that a source is asked for at once, where its tables have an order."""
_BATCH_ROWS = 50_000


class View:
    """What a flow makes of tables and changes before its target sees them. Serves one thread."""

    def __init__(self, flow: FlowSpec) -> None:
        self._shaper = Shaper(flow)
        self._transform: Transform | None = open_transform(flow)

    def wants(self, table: TableSchema) -> bool:
        return self._shaper.wants(str(table.namespace).encode())

    def shaped(self, table: TableSchema) -> TableSchema:
        """As the flow's sink is told of it."""
        return self._shaper.table(table)

    def table(self, table: TableSchema) -> TableSchema:
        """As the target has it."""
        shaped = self._shaper.table(table)
        return self._transform.table(shaped) if self._transform is not None else shaped

    def seen(self, change: ChangeBatch | Clear | End) -> ChangeBatch | Clear | End | None:
        """What the target gets of a change; None for nothing."""
        shaped = self._shaper.shape(change)
        if self._transform is not None and isinstance(shaped, ChangeBatch):
            return self._transform.changes(shaped)
        return shaped


@dataclass(frozen=True, slots=True)
class SourceSide:
    """A table of a live source, read in chunks, as the flow's target should have it."""

    loader: Loader
    masker: Masker
    view: View
    captured: TableSchema
    """As capture has it."""

    def read(self) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in self.view.table(self._masked).columns]
        for rows in self._rows():
            seen = self.view.seen(rows)
            if isinstance(seen, ChangeBatch) and len(seen):
                lives = pc.not_equal(seen.data.column(OP), pa.scalar(DELETE))
                yield seen.data.filter(lives).select(names)

    def wait_for(self, ends: Offsets) -> None:
        """What is on the log has happened here."""

    def has_come(self) -> Callable[[Mark], bool]:
        return self.loader.end_of_log()

    @property
    def table(self) -> TableSchema:
        """As the target has it."""
        return self.view.table(self._masked)

    @property
    def _masked(self) -> TableSchema:
        return self.masker.plan(self.captured).table

    def _rows(self) -> Iterator[ChangeBatch]:
        for range_ in self._ranges():
            for part in self.loader.read(self.captured, range_, "", _BATCH_ROWS):
                ids = pa.repeat(pa.scalar(0, pa.int64()), part.data.num_rows)
                change = self.masker.mask(
                    ChangeBatch(self.captured, as_inserts(self.captured, part.data, ids, 0, 0))
                ).change
                if isinstance(change, ChangeBatch):
                    yield change

    def _ranges(self) -> Iterator[Range]:
        """Short reads, so that the source keeps no old versions of rows for long; one read where there is no order."""
        last = self.loader.last_key(self.captured, "") if self.loader.order(self.captured) else None
        after = None
        while last is not None and (to := self.loader.key_behind(self.captured, Range(after, last), "", _CHUNK_ROWS)):
            yield Range(after, to)
            after = to
        # What is behind the last key by now is captured as well, so it does not matter whether it is read.
        yield Range(after, None)


@dataclass(frozen=True, slots=True)
class FlowSide:
    """A table in the target of a flow."""

    sink: Sink
    shaped: TableSchema

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.sink.scan(self.shaped)


@dataclass(frozen=True, slots=True)
class OtherFlow:
    """A table in the target of another flow, as a reference: it has nothing that is not on the log."""

    side: FlowSide
    followed: Followed

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.side.read()

    def wait_for(self, ends: Offsets) -> None:
        self.followed.wait_delivered(ends)

    def has_come(self) -> Callable[[Mark], bool]:
        return lambda mark: True
