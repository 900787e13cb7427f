"""A current table: the newest row per key, merged from what is new.

The rule is that of sinks (ARCHITECTURE.md): a change with a smaller `_ums_id_` than the stored row's loses. With soft deletes the stored row is
there for ever, so the rule is all there is. With hard deletes the row of a deleted key is gone, and a change that comes late (its id is not
above the newest that was taken in) must not bring it back: for keys of late rows the lake is asked for newer deletes.

A clear (TRUNCATE TABLE) with id c ends all rows up to c: they go, or become inactive. They keep their ids, so that of two rows which a clear has
ended the same one stays in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.derived.columns import Columns, certain, conform, true_count
from headrace.lake.derived.pieces import OPEN, Piece, PieceWriter, Range, match, sorted_by
from headrace.lake.derived.source import Source
from headrace.lake.layout import LakeFile
from headrace.lake.records import LakeClear
from headrace.lake.replay import numbers_from
from headrace.ums.change import DELETE
from headrace.ums.schema import ACTIVE, ID, OP, TS

_DELETED = "_ums_deleted_"


class CurrentRows:
    """How a current table's rows are made and merged."""

    id_column = ID

    def __init__(self, *, soft: bool) -> None:
        self._soft = soft

    def system_fields(self) -> list[pa.Field[Any]]:
        """What stands behind the table's own columns."""
        fields: list[pa.Field[Any]] = [pa.field(ID, pa.int64()), pa.field(TS, pa.timestamp("us", "UTC"))]
        return [*fields, pa.field(ACTIVE, pa.int16())] if self._soft else fields

    def changes(self, source: Source, files: Sequence[LakeFile], columns: Columns, newest_id: int) -> pa.Table:
        """The newest change per key in new files, as rows of the table and whether they are deletes."""
        found = source.newest_changes(files, columns)
        rows = found.drop_columns([OP, "_ums_commit_ts_"]).append_column(
            _DELETED, pc.equal(found.column(OP), pa.scalar(DELETE))
        )
        if source.clears:
            rows = _ended(rows, source.clears[-1])
        return rows if self._soft else _without_deleted(source, rows, columns, newest_id)

    def stored(self, rows: pa.Table) -> pa.Table:
        """Changes as the table stores them."""
        if not self._soft:
            return rows.drop_columns(_DELETED)
        return rows.drop_columns(_DELETED).append_column(ACTIVE, pc.invert(rows.column(_DELETED)).cast(pa.int16()))

    def merge(
        self, some: Range, clears: Sequence[LakeClear], writer: PieceWriter
    ) -> tuple[list[Piece], pa.Table | None] | None:
        """The new pieces of a range; None when it stays as it is."""
        if not some.pieces:
            fresh = some.rows if self._soft else some.rows.filter(pc.invert(some.rows.column(_DELETED)))
            return writer.write(self.stored(fresh), OPEN), None
        known = pa.concat_tables([conform(piece.read(), writer.schema) for piece in some.pieces])
        old, is_swept = self._swept(known, clears)
        places = match(old, some.rows, writer.key)
        theirs = some.rows.column(ID).combine_chunks().take(places)
        wins = certain(pc.greater(theirs, old.column(ID).combine_chunks()))
        deleted = some.rows.column(_DELETED).combine_chunks()
        rows = numbers_from(0, some.rows.num_rows)
        inserted = pc.invert(pc.is_in(rows, value_set=places.drop_null().cast(pa.int64())))
        if not self._soft:
            inserted = pc.and_(inserted, pc.invert(deleted))
        if not (is_swept or true_count(wins) or true_count(inserted)):
            return None
        chosen = pc.if_else(wins, pc.add(places.cast(pa.int64()), old.num_rows), numbers_from(0, old.num_rows))
        if not self._soft:
            chosen = chosen.filter(pc.invert(pc.and_(wins, certain(deleted.take(places)))))
        new = pc.add(rows.filter(inserted), old.num_rows)
        merged = pa.concat_tables([old, self.stored(some.rows).select(old.column_names)]).combine_chunks()
        return writer.write(_in_order(merged, chosen, new, writer.key), OPEN), None

    def _swept(self, old: pa.Table, clears: Sequence[LakeClear]) -> tuple[pa.Table, bool]:
        """The rows that a clear leaves, and whether it ended any."""
        if not clears:
            return old, False
        clear = clears[-1]
        ended = pc.less_equal(old.column(ID), pa.scalar(clear.id, pa.int64()))
        if not self._soft:
            return old.filter(pc.invert(ended)), bool(true_count(ended))
        place = old.column_names.index(ACTIVE)
        active = pc.if_else(ended, pa.scalar(0, pa.int16()), old.column(ACTIVE))
        return old.set_column(place, old.field(place), active), bool(true_count(ended))


def _ended(rows: pa.Table, clear: LakeClear) -> pa.Table:
    """Changes of which the clear makes deletes those that it ends."""
    ended = pc.less_equal(rows.column(ID), pa.scalar(clear.id, pa.int64()))
    deleted = pc.or_(ended, rows.column(_DELETED))
    return rows.set_column(rows.column_names.index(_DELETED), _DELETED, deleted)


def _without_deleted(source: Source, rows: pa.Table, columns: Columns, newest_id: int) -> pa.Table:
    """Late rows whose key the lake knows as deleted since become deletes."""
    late = pc.and_(pc.less_equal(rows.column(ID), pa.scalar(newest_id, pa.int64())), pc.invert(rows.column(_DELETED)))
    if not true_count(late):
        return rows
    keys = rows.filter(late)
    deletes = source.deletes(keys.select(list(columns.key)), pc.min(keys.column(ID)).as_py(), columns)
    newest = deletes.group_by(list(columns.key), use_threads=False).aggregate([(ID, "max")])
    places = match(rows, newest, columns.key)
    deleted_at = newest.column(f"{ID}_max").combine_chunks().take(places)
    gone = certain(pc.greater(deleted_at, rows.column(ID).combine_chunks()))
    return rows.set_column(
        rows.column_names.index(_DELETED), _DELETED, pc.or_(rows.column(_DELETED).combine_chunks(), gone)
    )


def _in_order(rows: pa.Table, kept: pa.Array[Any], new: pa.Array[Any], key: Sequence[str]) -> pa.Table:
    """Those rows, sorted by key; the kept ones are."""
    chosen = pa.concat_arrays([kept, new])
    if len(new):
        chosen = chosen.take(sorted_by(rows.select(list(key)).take(chosen), key))
    return rows.take(chosen)
