"""Commit times that never fall behind what was proven of a quiet source.

A log says when a transaction was committed, and not always truly: MariaDB writes when its statement began. The decoder makes these times
monotone among themselves. When it was proven that what comes was committed at T or later (heartbeat.py), the mark says T, and what comes gets
no earlier time: so time order stays log order, and no row is late by commit time. A capture that goes on from that mark begins at T.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.base import Event
from headrace.ums.change import ChangeBatch, Clear, End
from headrace.ums.schema import COMMIT_TS


class CommitFloor:
    """Of one source, from its newest mark on."""

    def __init__(self, floor_us: int) -> None:
        self._floor_us = floor_us

    def raised(self, event: Event) -> Event:
        """The event with no commit time below the floor."""
        floor_us = self._floor_us
        changes = [_raised(change, floor_us) for change in event.changes]
        mark = event.mark
        if mark is not None and mark.commit_ts_us < floor_us:
            mark = replace(mark, commit_ts_us=floor_us)
        return replace(event, changes=changes, mark=mark)

    def prove(self, event: Event, proven_us: int) -> Event:
        """Nothing behind this event was committed before `proven_us`: its mark says so."""
        self._floor_us = max(self._floor_us, proven_us)
        assert event.mark is not None, "only at marks something is proven"
        return replace(event, mark=replace(event.mark, commit_ts_us=max(event.mark.commit_ts_us, proven_us)))


def _raised(change: ChangeBatch | Clear | End, floor_us: int) -> ChangeBatch | Clear | End:
    if not isinstance(change, ChangeBatch):
        return change if change.commit_ts_us >= floor_us else replace(change, commit_ts_us=floor_us)
    times = change.data.column(COMMIT_TS)
    micros = times.view(pa.int64())
    if not len(change) or micros[0].as_py() >= floor_us:  # commit times only grow
        return change
    columns = list(change.data.columns)
    raised: pa.Array[Any] = pc.call_function("max_element_wise", [micros, pa.scalar(floor_us, pa.int64())])
    columns[change.data.schema.get_field_index(COMMIT_TS)] = raised.view(times.type)
    return ChangeBatch(change.table, pa.RecordBatch.from_arrays(columns, schema=change.data.schema))
