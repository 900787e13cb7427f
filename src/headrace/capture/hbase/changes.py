"""Cells into changes of rows: what stands together in the log about one row is one row here.

::

    entry     row a: d:x put, d:y put | row b: d:x delete column | row a: d:x put           cells in their order
    changes   a {x, y}                | b {x gone}               | a {x}                    cell 0, 2, 3 of the entry

A change says what was done, not what the row is then: of a put that sets some columns the others are not known. So changes are a history:
each is a row of its own, and none replaces another.

    region     which region it was in (its encoded name, new with every table that is made anew)       } together they name a change,
    sequence   the number of its entry, growing within the region                                       } always the same
    cell       the number of its first cell in the entry                                               }
    row        the row's key, in its declared type
    kind       put, delete, or mixed
    …          a column for each declared cell: what was put there; null when nothing was
    cells      all cells as JSON: family, qualifier, timestamp, kind, value (rust/src/hbase/events.rs); without the values of masked columns
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace._native import hbase_cells_json, hbase_values
from headrace.capture.hbase.mapping import CellMapping, Mappings, TableMapping
from headrace.capture.lines.fields import Array, call, numbers
from headrace.codec.hbase_wal import KINDS, MARKERS, WalBatch
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column

KEY = ("region", "sequence", "cell")
_PUT = next(number for number, kind in KINDS.items() if kind == "put")


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of one table in the order of the log. `columns`: as drawn above. `raw`: null, or JSON of values that are not of their type.
    `written_ms`: when each was written, by its server's clock."""

    table: str
    columns: Mapping[str, Array]
    raw: Array
    written_ms: Array

    def __len__(self) -> int:
        return len(self.raw)

    def grouped(self) -> RowChanges:
        """Region after region, as each first comes, in their order: so a region that others were made of stays in front of them."""
        regions = self.columns["region"].dictionary_encode().indices
        # Sorting keeps the order of what is equal.
        order = call("sort_indices", regions)
        columns = {name: column.take(order) for name, column in self.columns.items()}
        return RowChanges(self.table, columns, self.raw.take(order), self.written_ms.take(order))


def joined(changes: Sequence[RowChanges]) -> RowChanges:
    """Changes of one table that follow each other as one."""
    [first, *others] = changes
    if not others:
        return first
    names = first.columns
    columns = {name: pa.concat_arrays([one.columns[name] for one in changes]) for name in names}
    raw = pa.concat_arrays([one.raw for one in changes])
    return RowChanges(first.table, columns, raw, pa.concat_arrays([one.written_ms for one in changes]))


def columns_of(mapping: TableMapping) -> tuple[Column, ...]:
    """The columns of a table of changes."""
    head = (
        Column("region", pa.utf8(), "text", nullable=False),
        Column("sequence", pa.int64(), "bigint", nullable=False),
        Column("cell", pa.int32(), "int", nullable=False),
        Column("row", mapping.row_type, mapping.row),
        Column("kind", pa.utf8(), "text", nullable=False),
    )
    typed = tuple(Column(name, cell.arrow_type, cell.type) for name, cell in mapping.columns.items())
    return (*head, *typed, Column("cells", pa.utf8(), "json", nullable=False))


def row_changes(
    batch: WalBatch, mappings: Mappings, is_masked: Callable[[str, str], bool] = lambda table, column: False
) -> Iterator[RowChanges]:
    """The changes of each table that has a mapping, in their order. `is_masked`: whether values of a table's column must not be in `cells`."""
    cells = batch.cells.append_column("number", numbers(batch.cells.num_rows))
    is_change = call("not_equal", cells["family"], pa.scalar(MARKERS))
    tables = batch.entries["table"]
    names: list[Any] = pc.unique(tables).to_pylist()
    for name in names:
        mapping = mappings.of(name.decode())
        if mapping is None:
            continue
        mine = is_change
        if len(names) > 1:
            mine = call("and", mine, call("equal", tables, pa.scalar(name)).take(cells["entry"]))
        found = cells.filter(mine)
        if found.num_rows:
            masked = [cell for column, cell in mapping.columns.items() if is_masked(name.decode(), column)]
            yield _changes(name.decode(), mapping, batch.entries, found, masked)


def by_region(changes: ChangeBatch) -> Iterator[ChangeBatch]:
    """Changes that were put together by `grouped`, those of each region by themselves."""
    regions = changes.data["region"]
    is_other = call("not_equal", regions.slice(1), regions.slice(0, len(regions) - 1))
    begins: list[Any] = [0, *call("add", call("indices_nonzero", is_other), 1).to_pylist()]
    for begin, end in zip(begins, [*begins[1:], len(regions)], strict=True):
        yield ChangeBatch(changes.table, changes.data.slice(begin, end - begin))


def _changes(
    table: str, mapping: TableMapping, entries: pa.RecordBatch, cells: pa.RecordBatch, masked: Sequence[CellMapping]
) -> RowChanges:
    firsts = _firsts(cells)
    counts = entries["cells"].cast(pa.int64())
    starts = call("subtract", pc.cumulative_sum(counts), counts)
    entry = cells["entry"].take(firsts)
    raw: dict[str, Array] = {}
    columns: dict[str, Array] = {
        "region": entries["region"].take(entry).cast(pa.utf8()),
        "sequence": entries["sequence"].take(entry),
        "cell": call("subtract", cells["number"].take(firsts), starts.take(entry)).cast(pa.int32()),
        "row": _typed("row", cells["row"].take(firsts), mapping.row, raw),
        "kind": _kinds(cells, firsts),
    }
    for name, cell in mapping.columns.items():
        columns[name] = _typed(name, _put(cells, firsts, cell.family, cell.qualifier), cell.type, raw)
    numbered = pa.record_batch([firsts], ["first"])
    columns["cells"] = _without(masked, pa.record_batch(hbase_cells_json(cells, numbered)).column(0))
    return RowChanges(table, columns, _raw(raw, len(firsts)), entries["write_time"].take(entry))


def _firsts(cells: pa.RecordBatch) -> Array:
    """The numbers of cells that begin a change: those of another entry or row than the one before."""
    before, behind = cells.slice(0, cells.num_rows - 1), cells.slice(1)
    is_other = [call("not_equal", before[name], behind[name]) for name in ("entry", "row")]
    begins = pa.concat_arrays([pa.array([True]), call("or", *is_other)])
    return call("indices_nonzero", begins).cast(pa.int64())


def _kinds(cells: pa.RecordBatch, firsts: Array) -> Array:
    is_put = call("equal", cells["kind"], pa.scalar(_PUT, pa.uint8())).cast(pa.int64())
    # Before each cell, and behind the last one.
    puts = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(is_put)])
    ends = pa.concat_arrays([firsts.slice(1), pa.array([cells.num_rows], pa.int64())])
    count = call("subtract", puts.take(ends), puts.take(firsts))
    are_all = call("equal", count, call("subtract", ends, firsts))
    return call("if_else", are_all, "put", call("if_else", call("equal", count, 0), "delete", "mixed"))


def _without(masked: Sequence[CellMapping], cells: Array) -> Array:
    """Cells as JSON without what was put into masked columns."""
    if not masked:
        return cells
    places = {(cell.family, cell.qualifier) for cell in masked}
    texts: list[Any] = cells.to_pylist()
    shown = ([_shown(cell, places) for cell in json.loads(text)] for text in texts)
    return pa.array([json.dumps(some, ensure_ascii=False, separators=(",", ":")) for some in shown], pa.utf8())


def _shown(cell: dict[str, Any], masked: Collection[tuple[bytes, bytes]]) -> dict[str, Any]:
    if cell["kind"] != "put" or tuple(_bytes(cell, name) for name in ("family", "qualifier")) not in masked:
        return cell
    return {name: held for name, held in cell.items() if name not in ("value", "value_base64")} | {"masked": True}


def _bytes(cell: Mapping[str, str], name: str) -> bytes:
    """The bytes of a member of a cell in JSON."""
    return cell[name].encode() if name in cell else b64decode(cell[f"{name}_base64"])


def _put(cells: pa.RecordBatch, firsts: Array, family: bytes, qualifier: bytes) -> Array:
    """What was put into one column by each change, null where nothing was; the newest by timestamp when there are several, the last of those."""
    is_family = call("equal", cells["family"], pa.scalar(family))
    is_column = call("and", is_family, call("equal", cells["qualifier"], pa.scalar(qualifier)))
    is_put = call("equal", cells["kind"], pa.scalar(_PUT, pa.uint8()))
    places = call("indices_nonzero", call("and", is_column, is_put))
    begins = call("is_in", numbers(cells.num_rows), options=pc.SetLookupOptions(firsts)).cast(pa.int64())
    changes = call("subtract", pc.cumulative_sum(begins), 1).take(places)
    if len(pc.unique(changes)) < len(changes):
        found = pa.table([changes, cells["timestamp"].take(places), places], ["change", "timestamp", "place"])
        found = found.sort_by([("change", "ascending"), ("timestamp", "ascending"), ("place", "ascending")])
        newest = found.group_by("change", use_threads=False).aggregate([("place", "last")])
        changes, places = (newest[name].combine_chunks() for name in ("change", "place_last"))
    found_at = call("index_in", numbers(len(firsts)), options=pc.SetLookupOptions(changes))
    return cells["value"].take(places.take(found_at))


def _typed(name: str, values: Array, kind: str, raw: dict[str, Array]) -> Array:
    if kind == "bytes":
        return values
    found = pa.record_batch(hbase_values(pa.record_batch([values], ["bytes"]), kind))
    if found["left"].null_count < len(values):
        raw[name] = found["left"]
    return found["value"]


def _raw(beyond: Mapping[str, Array], rows: int) -> Array:
    """The column `_ums_raw_`: null, or a JSON object of the bytes, in base64, that are not of their column's type."""
    if not beyond:
        return pa.nulls(rows, pa.utf8())
    texts: Sequence[dict[str, str | None]] = pa.table(dict(beyond)).to_pylist()
    kept = ({name: text for name, text in row.items() if text is not None} for row in texts)
    return pa.array([json.dumps(row) if row else None for row in kept], pa.utf8())
