"""How far hosts have come in their own logs, by the times of their lines, and by their signs of life (beat.py), which are no rows.

Lines of a host come in the order of their times. One that is older than a line of its host before it is counted: a watermark may have
passed it, and then it is late in its window.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.base import Progress
from headrace.capture.lines.beat import BEAT
from headrace.capture.lines.fields import HOST, LINE, Array, Fields, call, is_true, texts_of
from headrace.capture.lines.times import TimeFormat

_BEAT = rf"^\S+Z {BEAT}\s*$"
_MOST = 1 << 62


def are_beats(fields: Fields) -> Array:
    """Which lines are signs of life."""
    return is_true(call("match_substring_regex", fields[LINE], options=pc.MatchSubstringOptions(_BEAT)))


class HostTimes:
    """Of one source, since its capture began."""

    def __init__(self) -> None:
        self.newest_us: dict[str, int] = {}
        """By host the newest time in the last batch."""
        self._ever_us: dict[str, int] = {}
        """By host the newest time that was ever seen."""
        self._seen: list[pa.Table] = []

    def beats(self, beats: Fields, places: Array, now_us: int) -> None:
        """Takes signs of life into the batch; `places` as below."""
        times = call("utf8_slice_codeunits", beats[LINE], options=pc.SliceOptions(0, 27))
        self._note(beats[HOST], TimeFormat("iso").micros(times, now_us), places, rows=0)

    def rows(self, hosts: Array, times_us: Array, places: Array) -> None:
        """Takes rows into the batch; `places` grow in the order in which they came."""
        self._note(hosts, times_us, places, rows=1)

    def end(self) -> Progress:
        """What the batch says, and begins the next one."""
        seen, self._seen, self.newest_us = self._seen, [], {}
        batch = pa.concat_tables(seen) if seen else None
        if batch is None or not len(batch):
            return Progress({})
        by_host = batch.group_by("host").aggregate([("us", "max"), ("rows", "sum")])
        newest_us = _by_host(by_host, "us_max")
        disordered = self._disordered(batch, list(newest_us))
        self.newest_us = newest_us
        for host, us in newest_us.items():
            self._ever_us[host] = max(us, self._ever_us.get(host, us))
        return Progress({host: self._ever_us[host] for host in newest_us}, _by_host(by_host, "rows_sum"), disordered)

    def _note(self, hosts: Array, times_us: Array, places: Array, rows: int) -> None:
        self._seen.append(_table(hosts, times_us, places, rows).drop_null())

    def _disordered(self, batch: pa.Table, hosts: list[str]) -> dict[str, int]:
        """By host how many are older than one before them.

        The times of each host are lifted above all of the host before it, so that the running maximum of all is that of each.
        """
        known = [host for host in hosts if host in self._ever_us]
        known_us = pa.array([self._ever_us[host] for host in known], pa.int64())
        before = _table(texts_of(known), known_us, pa.repeat(pa.scalar(-1, pa.int64()), len(known)), rows=0)
        every = pa.concat_tables([before, batch])
        ranks = call("index_in", _column(every, "host"), options=pc.SetLookupOptions(texts_of(hosts))).cast(pa.int64())
        every = every.append_column("rank", ranks).sort_by([("rank", "ascending"), ("place", "ascending")])
        us = _column(every, "us")
        low_us, high_us = (int(found.as_py()) for found in pc.min_max(us).values())
        step = min(high_us - low_us + 1, _MOST // len(hosts))
        heights = call("max_element_wise", call("subtract", us, high_us - step + 1), 0)
        lifted = call("add", heights, call("multiply", _column(every, "rank"), step))
        late = every.filter(call("less", lifted, pc.cumulative_max(lifted)))
        counted = _by_host(late.group_by("host").aggregate([("rows", "sum")]), "rows_sum")
        return {host: rows for host, rows in counted.items() if rows}


def _table(hosts: Array, times_us: Array, places: Array, rows: int) -> pa.Table:
    columns = {"host": hosts, "us": times_us, "place": places}
    return pa.table(columns | {"rows": pa.repeat(pa.scalar(rows, pa.int64()), len(hosts))})


def _column(table: pa.Table, name: str) -> Array:
    column: Array = table.column(name).combine_chunks()
    return column


def _by_host(table: pa.Table, name: str) -> dict[str, int]:
    hosts: list[Any] = table.column("host").to_pylist()
    return dict(zip(hosts, table.column(name).to_pylist(), strict=True))
