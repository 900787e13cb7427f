"""Rows as the cells of one layout: what changes write, and what a row that is read holds.

::

    row key        cf:_ums_id_   cf:_ums_ts_                  cf:_is_active_   form columns: cf:id   cf:note   …    form json: cf:row
    shop 10        103000…678    2026-11-22 02:30:00.000000   1                10            it's 5             {"id":"10","note":"it's 5"}

Each change writes its row's cells with one version, its `_ums_id_` + 10 billion; HBase itself shows the newest. A delete writes the first three
(and the key's columns), so the others keep what they had. Values in cells: cells.py. The first three are always text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace.errors import DataError
from headrace.sinks.hbase.cells import RAW, from_cells, to_cells
from headrace.sinks.hbase.config import JSON_CELL
from headrace.sinks.hbase.layout import Layout, Move
from headrace.ums.schema import ID, TS, TableSchema
from headrace.ums.system_columns import SystemColumns
from headrace.ums.values import Array, from_values, is_bytes, to_text

JSON_QUALIFIER = JSON_CELL.encode()
_LIVE, _GONE = b"1", b"0"
Cells = list[tuple[bytes, bytes]]
"""Qualifier and value."""


def upserts(data: pa.RecordBatch, layout: Layout, table: TableSchema, names: SystemColumns) -> list[Cells]:
    """What rows that were inserted or updated write."""
    if layout.settings["form"] == "json":
        return _together([*_system(data, _LIVE, names), (JSON_QUALIFIER, _objects(data, layout, table))])
    own = [
        (place.qualifier.encode(), to_cells(data.column(name), place.kind)) for name, place in layout.of_columns(table)
    ]
    later = [(place.qualifier.encode(), [layout.default(one)] * data.num_rows) for one, place in layout.later(table)]
    return _together([*_system(data, _LIVE, names), *own, *later])


def deletes(data: pa.RecordBatch, layout: Layout, table: TableSchema, names: SystemColumns) -> list[Cells]:
    """What rows that were deleted write when they stay."""
    of_key = [(name, place) for name, place in layout.of_columns(table) if name in table.key]
    own = [(place.qualifier.encode(), to_cells(data.column(name), place.kind)) for name, place in of_key]
    return _together([*_system(data, _GONE, names), *(own if layout.settings["form"] == "columns" else [])])


def ended(id_: int, ts_us: int, names: SystemColumns) -> Cells:
    """What a row writes that a clear has ended."""
    ts = to_text(pa.array([ts_us], pa.int64()).view(pa.timestamp("us", "UTC"))).to_pylist()[0]
    return list(zip(_cells(names), (b"%d" % id_, str(ts).encode(), _GONE), strict=True))


def is_live(cells: Mapping[bytes, bytes], names: SystemColumns) -> bool:
    """Whether a row that was read has not been deleted."""
    return cells.get(names.active.encode()) == _LIVE


def to_batch(rows: Sequence[Mapping[bytes, bytes]], layout: Layout, table: TableSchema, where: str) -> pa.RecordBatch:
    """Rows that were read, as a version of the table has them; DataError when a value is not what the column can hold."""
    arrays = []
    objects = (
        [json.loads(row.get(JSON_QUALIFIER, b"{}")) for row in rows] if layout.settings.get("form") == "json" else None
    )
    for column in table.columns:
        place = layout.places.get(column.identity)
        try:
            if place is None:
                arrays.append(from_values([None] * len(rows), column.type))
            elif objects is not None:
                arrays.append(_from_texts([row.get(place.qualifier) for row in objects], column.type))
            else:
                cells = [row.get(place.qualifier.encode()) for row in rows]
                arrays.append(from_cells(cells, place.kind, column.type))
        except (ValueError, ArithmeticError, TypeError) as error:
            raise DataError(
                f"HBase table {where}, column '{column.name}': a stored value is not {column.type}: {error}",
                fix="correct the value in the target, or drop the table and load it again",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in table.columns])


def moved(value: bytes, move: Move) -> bytes:
    """A cell's value at another place; DataError when it cannot be there."""
    assert move.start is not None
    if move.start.kind == move.to.kind:
        return value
    try:
        return to_cells(from_cells([value], move.start.kind, move.arrow_type), move.to.kind)[0]
    except (ValueError, ArithmeticError, TypeError) as error:
        raise DataError(
            f"a value of '{move.start.qualifier}' is not {move.arrow_type}, which the column is now: {error}",
            fix="correct the value in the target, or give the flow a new name and another `table` and load it again",
        ) from error


def moved_object(text: bytes, layout: Layout) -> bytes:
    """The object of a row in a layout that columns have moved in."""
    row: dict[str, str | None] = json.loads(text)
    for move in layout.moves:
        name = move.to.qualifier
        if move.start is None:
            row.setdefault(name, _as_json(layout.shape.default(move.identity)))
        elif move.start.qualifier in row:
            row[name] = row[move.start.qualifier]
    return _to_json({name: value for name, value in row.items() if name not in layout.abandoned})


def _objects(data: pa.RecordBatch, layout: Layout, table: TableSchema) -> list[bytes]:
    placed = layout.of_columns(table)
    names = [place.qualifier for _, place in placed]
    columns = [_texts(data.column(name)) for name, _ in placed]
    later = {place.qualifier: _as_json(layout.shape.default(one)) for one, place in layout.later(table)}
    return [_to_json({**later, **dict(zip(names, values, strict=True))}) for values in zip(*columns, strict=True)]


def _texts(column: Array) -> list[str | None]:
    if is_bytes(column.type):
        return [None if value is None else _as_json(value) for value in column.to_pylist()]
    texts: list[str | None] = to_text(column).to_pylist()
    return texts


def _from_texts(texts: Sequence[str | None], to: pa.DataType) -> Array:
    if not is_bytes(to):
        return from_values(texts, to)
    return from_values([None if text is None else base64.b64decode(text) for text in texts], to)


def _as_json(value: str | bytes) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _to_json(row: Mapping[str, str | None]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _cells(names: SystemColumns) -> list[bytes]:
    return [name.encode() for name in names.of_rows]


def _system(data: pa.RecordBatch, active: bytes, names: SystemColumns) -> list[tuple[bytes, list[bytes]]]:
    ids, times = (to_cells(data.column(name), RAW) for name in (ID, TS))
    return list(zip(_cells(names), (ids, times, [active] * data.num_rows), strict=True))


def _together(columns: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Cells]:
    names = [name for name, _ in columns]
    return [list(zip(names, values, strict=True)) for values in zip(*(values for _, values in columns), strict=True)]
