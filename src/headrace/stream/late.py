"""Late rows of a query (tide.py) in a lake of their own, counted by the window that they came too late for.

A batch of Spark is one commit of the lake, with the batch's number as position: so a batch that is run again is written once. In this lake each
window counts as closed: what is in it came late. So late rows of a window are certified as its amendments 1, 2, 3, …: who keeps the
query's result corrects it window by window in this order, and can see that none is missing (`headrace lake windows`).

===========================  =============================================  ==========================================================
the query has                the lake's windows                             an amendment says
===========================  =============================================  ==========================================================
windows of a length          of that length, by the event time              these rows are missing in this window
windows of a length, one     `every`, by the column `window_start`, which   these rows are missing in the window that begins there; a row
every so often               a late row has besides (and in its key)        is in the lake once for each window that it came too late for
sessions, joins,             of any length, by the event time               these rows of this time are missing: what of the result they belong
deduplication                                                               to is said by who has it, as only the rows around them tell
===========================  =============================================  ==========================================================

Rows in the lake are told apart by the table's key; those of a table without one by `_ums_id_`, of which there would be several in overlapping windows: so these are
refused for such tables.

::

    SPOOL/<batch>-<partition>.arrow   late rows that a task has left; <batch> is a name for the range that the batch has read
    SPOOL/done                        the name of the newest batch that was written

Crash story: killed before the commit, Spark runs the batch again, its files take the place of those of the first time, and are written; between
commit and certificate, it is run again and only certified; behind the certificate, its files are only removed. A batch that is worked out once more behind `write`
leaves its files again: `done` says that they are not of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError
from headrace.files import replace_file
from headrace.lake.certificate import Certificate, Lacking
from headrace.lake.commit import Manifest
from headrace.lake.records import Stream
from headrace.lake.windows import Closing, WindowPolicy, certify
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeConfig, LakeSink
from headrace.stream.tide import WINDOW, Until, Windows
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import COMMIT_TS, ID, Column, Namespace, TableSchema

_PARTITION = 0
_FOR_EVER_US = 250_000_000_000_000_000
"""Behind all times that a row may have (the year 9892)."""


class _AllIsOver:
    """The watermark of late rows."""

    name: ClassVar[str] = "tide"

    def low_watermark_us(self) -> int:
        return _FOR_EVER_US

    def lacking(self) -> tuple[Lacking, ...]:
        return ()


class LateRows:
    """The late rows of one query, in the driver."""

    def __init__(self, lake: LakeConfig, query: str, table: TableSchema, spool: Path, until: Until) -> None:
        """`table`: what the rows are; they have its columns, the system columns too. `spool`, `until`: those of `tidal`. ConfigError when the lake's
        `windows` are not those of the query."""
        if lake.windows is None:
            raise ConfigError(
                f"the lake {lake.path} for late rows of {query} says no windows",
                fix="give it the `windows` of the query: length and event time",
            )
        if isinstance(until, Windows):
            _require_same(lake.windows, query, table, until)
        self._config = lake
        self._query = query
        self._table = _named(table) if isinstance(until, Windows) and not until.are_apart else table
        self._spool = spool
        self._closing = Closing(lake.windows, self._members, lambda _manifest, _members: _AllIsOver())

    def write(self, batch: int) -> Sequence[Certificate]:
        """Writes the late rows of a batch that has been worked out as a whole, once however often it comes; the amendments that they are."""
        done = self._spool / "done"
        before = done.read_text() if done.exists() else ""
        spooled = sorted(self._spool.glob("*.arrow"))
        new = [path for path in spooled if not path.name.startswith(f"{before}-")]
        made = self._write(batch, new) if new else ()
        if new:
            replace_file(done, new[0].name.partition("-")[0].encode())
        for path in spooled:
            path.unlink()
        return made

    def _write(self, batch: int, spooled: Sequence[Path]) -> Sequence[Certificate]:
        late = pa.concat_tables([_read(path) for path in spooled]).select(self._table.arrow_schema().names)
        with closing(LakeSink(self._config, self._query)) as sink:
            self._begin()
            reached = sink.position(self._query, _PARTITION)
            if reached is None or reached.offset <= batch:
                rows = late.cast(self._table.arrow_schema()).sort_by(ID).combine_chunks()
                for part in rows.to_batches():
                    sink.write(ChangeBatch(self._table, part))
                newest = [pc.max(late.column(name).cast(pa.int64())).as_py() for name in (ID, COMMIT_TS)]
                sink.commit(Position(self._query, _PARTITION, batch + 1, *newest))
        return self._certify()

    def _begin(self) -> None:
        """Before the first late row all windows are over."""
        Manifest.open_to_write(self._config.tree())
        self._certify()

    def _certify(self) -> Sequence[Certificate]:
        now = datetime.now(UTC).isoformat()
        return certify(Manifest.open(self._config.tree()), self._table.namespace.all_versions, now, self._closing)

    def _members(self, _table: Namespace) -> Sequence[Stream]:
        return [Stream(self._query, self._query, _PARTITION)]


def _require_same(of_lake: WindowPolicy, query: str, table: TableSchema, until: Windows) -> None:
    """ConfigError when amendments would be of other windows than the query's."""
    cut = of_lake.cut(table.namespace)
    length_us = until.length_us if until.are_apart else until.every_us
    fits = bool(cut.column) if until.are_apart else cut.column == WINDOW
    if cut.length_us != length_us or not fits:
        name = f"{table.namespace.schema}.{table.namespace.table}"
        column = "the column of the event time" if until.are_apart else WINDOW
        raise ConfigError(
            f"the lake for late rows of {query} has other windows than the query: {cut}",
            fix=f"write `windows: {{length: {length_us / 1e6:g}s, event_time: {{{name}: …}}}}` with {column}",
        )
    if not until.are_apart and not table.key:
        raise ConfigError(
            f"{table.namespace.all_versions} has no key, so its rows cannot be kept once for each window that they are late for ({query})",
            fix="name its key columns in `table`, or take windows that do not overlap",
        )
    if not until.are_apart and any(column.name == WINDOW for column in table.columns):
        raise ConfigError(
            f"{table.namespace.all_versions} has a column {WINDOW}, which is to say what window of {query} a row is late for",
            fix="give the column another name in `table` and in what opens entries",
        )


def _named(table: TableSchema) -> TableSchema:
    """With the window that a row is too late for."""
    window = Column(WINDOW, pa.timestamp("us", "UTC"), "timestamp(6)", nullable=False)
    return TableSchema(table.namespace, (*table.columns, window), (*table.key, WINDOW))


def _read(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as file:
        return pa.ipc.open_file(file).read_all()
