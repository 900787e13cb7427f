"""A sink that gets computed rows: steps on one side, a store on the other. To whoever delivers it is a sink like all others.

So computing has the crash story of the sink behind it (positions, repeats, refused rows, loads, replays), and keeps nothing of its own. It works on
rows that have been put together from many transactions, which costs a hundredth of computing each of them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headrace.compute.transform import Transform
from headrace.compute.validity import Judged
from headrace.errors import DataError, Finding
from headrace.sinks.base import Position, Sink, refused
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import TableSchema


class ComputingSink(Sink):
    """Hands computed changes to another sink. The transform is not its own: others may go on with it."""

    def __init__(self, transform: Transform, behind: Sink, *, refuses_invalid: bool = False) -> None:
        """Rows that are not valid (`validity` of the flow) are left out by `write`; `refuses_invalid`: they are refused as a store refuses rows."""
        self._transform = transform
        self._refuses_invalid = refuses_invalid
        self._behind = behind
        self.capabilities = behind.capabilities  # type: ignore[misc]  # those of the store behind
        self.commit_interval_s = behind.commit_interval_s
        self.prints_every_s = behind.prints_every_s

    def prepare(self, table: TableSchema) -> None:
        self._behind.prepare(self._transform.table(table))

    def write(self, batch: ChangeBatch) -> None:
        if self._transform.validity is None:
            self.hand_on(self._transform.changes(batch))
            return
        judged = self.judged(batch)
        if self._refuses_invalid and pc.any(judged.lacks).as_py():
            raise DataError(
                f"it lacks {', '.join(self._transform.validity.check)}, which `validity` of the flow checks",
                fix="bring what it lacks to where it is looked up, or change `validity`",
            )
        self.hand_on(judged.valid())

    def judged(self, batch: ChangeBatch, *, anew: bool = False) -> Judged:
        """What becomes of changes, and which are valid; nothing is written. Errors as of `Transform.judged`."""
        return self._transform.judged(batch, anew=anew)

    def hand_on(self, computed: ChangeBatch) -> None:
        """Writes what is computed already."""
        if len(computed):
            self._behind.low_watermark = self.low_watermark
            self._behind.write(computed)

    def clear(self, clear: Clear) -> None:
        self._behind.clear(replace(clear, table=self._transform.table(clear.table)))

    def commit(self, position: Position) -> None:
        self._behind.low_watermark = self.low_watermark
        self._behind.commit(position)

    def flush(self) -> None:
        self._behind.flush()

    def check(self) -> None:
        self._transform.check()
        self._behind.check()

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        computed: list[TableSchema] = []
        for table in tables:
            yield from refused(partial(self._compute, table, computed))
        yield from self._behind.misfits(computed)

    def _compute(self, table: TableSchema, into: list[TableSchema]) -> None:
        into.append(self._transform.table(table))

    def position(self, topic: str, partition: int) -> Position | None:
        return self._behind.position(topic, partition)

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        return self._behind.scan(self._transform.table(table))

    def close(self) -> None:
        self._transform.release()
        self._behind.close()
