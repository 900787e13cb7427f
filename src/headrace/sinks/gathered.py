"""What sinks share whose stores take rows some at a time, in the order of the log."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa

from headrace.sinks.base import Sink
from headrace.ums.change import ChangeBatch


class GatheringSink(Sink):
    """Gathers what is written, and sends it in `flush`: when it is enough, and whenever the sink itself asks for it."""

    def __init__(self, most_rows: int) -> None:
        """`most_rows`: that the store takes in one piece."""
        self._most_rows = most_rows
        self._gathered: list[ChangeBatch] = []
        self._gathered_rows = 0

    def write(self, batch: ChangeBatch) -> None:
        if len(batch):
            self._gathered.append(batch)
            self._gathered_rows += len(batch)
        if self._gathered_rows >= self._most_rows:
            self.flush()

    @abstractmethod
    def flush(self) -> None:
        """Sends what `_take` has; see `Sink.flush`."""

    def close(self) -> None:
        self._gathered, self._gathered_rows = [], 0

    def _take(self) -> Iterator[ChangeBatch]:
        """All that was gathered, once: the batches of a table version that follow one another together, cut to the most rows."""
        batches, self._gathered, self._gathered_rows = self._gathered, [], 0
        for table, together in groupby(batches, key=lambda batch: batch.table):
            whole: pa.RecordBatch = pa.concat_batches([batch.data for batch in together])  # type: ignore[attr-defined]
            for first in range(0, whole.num_rows, self._most_rows):
                yield ChangeBatch(table, whole.slice(first, self._most_rows))
