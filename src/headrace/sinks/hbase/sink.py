"""The HBase sink: a change becomes a put (or a delete) of its row with the change's own version, and HBase keeps the newest.

Nothing is read before it is written, and nothing is compared: version = `_ums_id_` + 10 billion, so cells that come late, again or in another
order end where they belong. What a row looks like is drawn at the head of rows.py, row keys at that of rowkey.py, values at that of cells.py.

Crash story. `commit` returns when HBase has acknowledged every row of it; the flow's position is the ledger's, which is never newer. A
batch of which a part was written, by a server or a worker that died, is written again with the same versions. Tables that change beside
rows that are being written (another shape, TRUNCATE): head of layout.py. After TRUNCATE, rows with smaller ids that still come are written
as ended by it.

Limits. Transactions of the source are not visible as one. `delete: hard` writes HBase's own delete marker, which hides what is older only until
a major compaction drops both: an older change that comes after that is there again. Ids reach to 2^63 - 10^10.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DataError, Finding, RetryableError
from headrace.sinks.base import Capabilities, Places, Position, refuse_names, refuse_types, refused, require_key
from headrace.sinks.gathered import GatheringSink
from headrace.sinks.hbase.client import Client
from headrace.sinks.hbase.config import HBaseConfig
from headrace.sinks.hbase.layout import Layout
from headrace.sinks.hbase.protocol import IDL
from headrace.sinks.hbase.rowkey import RowKeys
from headrace.sinks.hbase.rows import (
    JSON_QUALIFIER,
    Cells,
    deletes,
    ended,
    is_live,
    moved,
    moved_object,
    to_batch,
    upserts,
)
from headrace.sinks.hbase.tables import OFFSET, TELL_APART, Record, Tables
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import ID, Namespace, TableSchema

_GATHERED_ROWS = 20_000
_NEWEST = 2**62
"""A version above all others."""
_MOVING_S = 60.0


@dataclass(frozen=True, slots=True)
class _Target:
    """A version of a source's table, and where it goes."""

    table: TableSchema
    name: str
    keys: RowKeys


class HBaseSink(GatheringSink):
    """One connection to one Thrift2 server."""

    Config = HBaseConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=True, remembers_position=False, scans=True)

    def __init__(self, config: HBaseConfig, flow: str) -> None:
        super().__init__(_GATHERED_ROWS)
        self._config = config
        self._client = Client(config.url, framed=config.framed, compact=config.compact, timeout_s=config.timeout)
        self._tables = Tables(config, self._client)
        self._family = config.family.encode()
        self._names = config.system_columns
        self._places = Places(TELL_APART)
        self._targets: dict[Namespace, _Target] = {}
        self._records: dict[str, Record] = {}

    # --- the contract

    def prepare(self, table: TableSchema) -> None:
        for check in self._checks(table, self._places):
            check()
        self.flush()
        keys = self._keys(table)
        target = _Target(table, self._tables.name(table.namespace), keys)
        self._records[target.name] = self._shaped(target)
        self._targets[table.namespace] = target

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        places = Places(TELL_APART)
        for table in tables:
            if findings := list(refused(*self._checks(table, places))):
                yield from findings
            else:
                yield from refused(partial(self._rehearse, table))

    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], object]]:
        checks: list[Callable[[], object]] = [
            partial(require_key, table, "an HBase target"),
            partial(refuse_names, table, self._names.of_rows),
            partial(refuse_types, table),
            partial(self._claim, places, table),
        ]
        return [*checks, partial(self._keys, table)] if table.key else checks

    def _claim(self, places: Places, table: TableSchema) -> None:
        name = self._tables.name(table.namespace)
        places.take(name, table, f"the HBase table {name}")

    def _rehearse(self, table: TableSchema) -> None:
        """Raises what `prepare` would, and leaves HBase as it is."""
        layout = self._tables.rehearse(table, self._keys(table)).layout
        if layout.is_settled:
            layout.evolved(table, self._config.on_change)

    def _keys(self, table: TableSchema) -> RowKeys:
        return RowKeys(self._config.row_key, self._config.key_encoding, table)

    def clear(self, clear: Clear) -> None:
        self.flush()
        name = self._targets[clear.table.namespace].name
        end = self._tables.clear(name, clear)
        self._records[name] = replace(self._records[name], cleared=end)
        # Only rows that have something older: the others are of after the clear.
        before = IDL.TTimeRange(0, end.version + 1)
        columns = [IDL.TColumn(self._family, self._names.active.encode())]
        for page in self._client.pages(name, columns=columns, timeRange=before, maxVersions=1):
            rows = [row.row for row in page if row.columnValues[0].value == b"1"]
            self._end(
                name, [(row, end.version) for row in rows], [ended(end.id - 1, end.ts_us, self._names)] * len(rows)
            )

    def flush(self) -> None:
        pending = list(self._take())
        while pending:
            for batch in pending:
                self._send(batch)
            changed = {name for name in {self._name(batch) for batch in pending} if self._has_changed(name)}
            pending = [batch for batch in pending if self._name(batch) in changed]

    def commit(self, position: Position) -> None:
        self.flush()

    def check(self) -> None:
        self._tables.check()

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        name = self._tables.name(table.namespace)
        record = self._settled(name, self._tables.record(name))
        yield to_batch([], record.layout, table, name)
        if record.text is None:
            return
        first = 0 if record.cleared is None else record.cleared.id + OFFSET
        for page in self._client.pages(name, columns=[IDL.TColumn(self._family)], maxVersions=1):
            live = []
            for row in page:
                versions = {cell.qualifier: cell.timestamp for cell in row.columnValues}
                cells = {cell.qualifier: cell.value for cell in row.columnValues}
                if is_live(cells, self._names) and versions[self._names.active.encode()] >= first:
                    live.append(cells)
            if live:
                yield to_batch(live, record.layout, table, name)

    def close(self) -> None:
        super().close()
        self._client.close()

    # --- rows

    def _name(self, batch: ChangeBatch) -> str:
        return self._targets[batch.table.namespace].name

    def _has_changed(self, name: str) -> bool:
        """Whether rows that have just been written may have been written by an outdated record (head of layout.py)."""
        record = self._tables.record(name)
        before, self._records[name] = self._records[name], record
        return record != before

    def _send(self, batch: ChangeBatch) -> None:
        low, high = batch.id_range
        if low + OFFSET < 0 or high + OFFSET >= 2**63 - 1:
            raise DataError(
                f"table {batch.table.namespace.all_versions}: the ids {low} to {high} do not fit into HBase's versions",
                fix="report this: ids of sources are between -10^10 and 9.2 x 10^18",
            )
        for first in range(0, len(batch), self._config.batch_rows):
            data = batch.data.slice(first, self._config.batch_rows)
            target = self._targets[batch.table.namespace]
            cleared = self._records[target.name].cleared
            is_old = pc.less(data.column(ID), pa.scalar(cleared.id if cleared else -(2**63), pa.int64()))
            gone = pc.and_not(is_delete(data), is_old)
            live = pc.invert(pc.or_(is_old, gone))
            self._put_live(target, data.filter(live))
            self._put_deletes(target, data.filter(gone))
            if cleared and (old := data.filter(is_old)).num_rows:
                keys = [(key, cleared.version) for key in target.keys.of(old)]
                self._end(target.name, keys, [ended(cleared.id - 1, cleared.ts_us, self._names)] * len(keys))

    def _put_live(self, target: _Target, data: pa.RecordBatch) -> None:
        if data.num_rows:
            layout = self._records[target.name].layout
            self._put(target.name, self._versions(target, data), upserts(data, layout, target.table, self._names))

    def _put_deletes(self, target: _Target, data: pa.RecordBatch) -> None:
        if data.num_rows:
            layout = self._records[target.name].layout
            self._end(target.name, self._versions(target, data), deletes(data, layout, target.table, self._names))

    def _versions(self, target: _Target, data: pa.RecordBatch) -> list[tuple[bytes, int]]:
        ids: list[Any] = data.column(ID).to_pylist()
        return [(key, id_ + OFFSET) for key, id_ in zip(target.keys.of(data), ids, strict=True)]

    def _put(self, name: str, keys: Sequence[tuple[bytes, int]], rows: Sequence[Cells]) -> None:
        cell, put, family = IDL.TColumnValue, IDL.TPut, self._family
        puts = [
            put(key, [cell(family, qualifier, value, version) for qualifier, value in cells])
            for (key, version), cells in zip(keys, rows, strict=True)
        ]
        self._client.call("putMultiple", name.encode(), puts)

    def _end(self, name: str, keys: Sequence[tuple[bytes, int]], rows: Sequence[Cells]) -> None:
        """Rows are gone: softly by what they then hold, or by HBase's marker."""
        if not keys:
            return
        if self._config.delete == "soft":
            self._put(name, keys, rows)
            return
        kind = IDL.TDeleteType.DELETE_FAMILY
        markers = [
            IDL.TDelete(row=key, columns=[IDL.TColumn(self._family, None, version)], deleteType=kind)
            for key, version in keys
        ]
        self._client.call("deleteMultiple", name.encode(), markers)

    # --- layouts

    def _shaped(self, target: _Target) -> Record:
        """The record of a table whose layout takes this version: changed when it does not."""
        give_up_at = time.monotonic() + _MOVING_S
        while time.monotonic() < give_up_at:
            record = self._settled(target.name, self._tables.opened(target.table, target.keys))
            layout = record.layout.evolved(target.table, self._config.on_change)
            if layout == record.layout:
                return record
            changed = self._tables.change(target.name, record, layout)
            if changed is not None:
                return self._settled(target.name, changed)
        raise RetryableError(
            f"the record of {target.name} is changed again and again by others", fix="wait until they are through"
        )

    def _settled(self, name: str, record: Record) -> Record:
        """The record when all rows have come to its layout, by us or by whoever is quicker."""
        while not record.layout.is_settled:
            layout = record.layout
            for page in self._client.pages(
                name, columns=[IDL.TColumn(self._family)], maxVersions=self._config.versions
            ):
                self._move(name, page, layout)
            done = self._tables.change(name, record, layout.settled())
            record = done or self._tables.record(name)
        return record

    def _move(self, name: str, page: Sequence[Any], layout: Layout) -> None:
        puts = [IDL.TPut(row.row, cells) for row in page if (cells := self._moved(row, layout))]
        if puts:
            self._client.call("putMultiple", name.encode(), puts)
        if layout.settings["form"] == "columns" and layout.abandoned:
            columns = [IDL.TColumn(self._family, old.encode(), _NEWEST) for old in layout.abandoned]
            kind = IDL.TDeleteType.DELETE_COLUMNS
            markers = [IDL.TDelete(row=row.row, columns=columns, deleteType=kind) for row in page]
            self._client.call("deleteMultiple", name.encode(), markers)

    def _moved(self, row: Any, layout: Layout) -> list[Any]:
        """The cells that a row gets."""
        cells = [(cell.qualifier, cell.value, cell.timestamp) for cell in row.columnValues]
        if layout.settings["form"] == "json":
            return [
                self._cell(name, moved_object(text, layout), version)
                for name, text, version in cells
                if name == JSON_QUALIFIER
            ]
        made = []
        for move in layout.moves:
            to = move.to.qualifier.encode()
            if move.start is None:
                made.append(
                    self._cell(to, layout.default(move.identity), 0)
                )  # anything that was ever written there wins
                continue
            start = move.start.qualifier.encode()
            made += [self._cell(to, moved(value, move), version) for name, value, version in cells if name == start]
        return made

    def _cell(self, qualifier: bytes, value: bytes, version: int) -> Any:
        return IDL.TColumnValue(self._family, qualifier, value, version)
