"""A zipper table (拉链表): one row per state of a key, with the time and the ids in which it held.

::

    valid_from ≤ T < valid_to     the state as of time T (the source's monotone commit time); 9999-12-31 while it holds
    from_id ≤ N < to_id           the state as of the change N, which also keeps apart what happened in one microsecond; 2^63-1 while it holds
    is_current                    whether it still holds

What is equal to what. A state begins with an insert or update and ends with the next change of its key, or with a clear, by id. By time, as of T
is made of the changes with a commit time up to T, so a state has ended at the *smallest* commit time of all later changes of its key. That is
the next one's, as commit times do not go back as ids grow; but rows of a full load are older by id than changes that were committed before
them. Then a state can have no time at all (valid_to = valid_from), while its ids are right.

What is kept up. Open rows (is_current) lie as those of a current table do. A change of a key reads its open row alone: that becomes a closed row, and
closed rows are only added. A change that comes late, by id not behind all that was taken in, may fall between two states: all rows of its key
are taken out, together with the deletes that the lake knows of it, and put together anew. Rows tell all else: a row says where its state began
and where it ended, and where no state begins at an end, the key was deleted (or cleared) there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.derived.columns import Columns, conform, true_count
from headrace.lake.derived.pieces import CLOSED, OPEN, Piece, PieceWriter, Range, key_codes, sorted_by
from headrace.lake.derived.source import Source, is_among
from headrace.lake.layout import LakeFile
from headrace.lake.records import LakeClear
from headrace.ums.change import DELETE
from headrace.ums.schema import COMMIT_TS, ID, OP, TS

VALID_FROM, VALID_TO, IS_CURRENT, FROM_ID, TO_ID = "valid_from", "valid_to", "is_current", "from_id", "to_id"
OPEN_ID = 2**63 - 1
OPEN_US = 253_402_214_400_000_000
"""9999-12-31, as users of such tables write it."""
_TIME = pa.timestamp("us", "UTC")
_RANK, _END, _STATE, _END_AT_ONCE = "_ums_rank_", 0, 1, 2
"""At the same id: ends of others come before a state, the end of a state that had ended where it began (by a clear) comes behind it."""


class ZipperRows:
    """How a zipper table's rows are made and merged."""

    id_column = FROM_ID

    def system_fields(self) -> list[pa.Field[Any]]:
        return [
            pa.field(VALID_FROM, _TIME),
            pa.field(VALID_TO, _TIME),
            pa.field(IS_CURRENT, pa.bool_()),
            pa.field(FROM_ID, pa.int64()),
            pa.field(TO_ID, pa.int64()),
        ]

    def changes(self, source: Source, files: Sequence[LakeFile], columns: Columns, newest_id: int) -> pa.Table:
        """The changes in new files as events; with those of keys that were changed late come all deletes that the lake has of them."""
        found = source.all_changes(files, columns)
        late = late_keys(_events(found), columns.key, newest_id)
        if late.num_rows:
            deletes = source.deletes(late, pc.min(found.column(ID)).as_py(), columns)
            # What is still to come finds the state open that it ends.
            deletes = deletes.filter(pc.less_equal(deletes.column(ID), pa.scalar(newest_id, pa.int64())))
            found = pa.concat_tables(
                [found, deletes.append_column(OP, _all(DELETE, deletes))], promote_options="default"
            )
        return _events(found)

    def merge(
        self, some: Range, clears: Sequence[LakeClear], writer: PieceWriter
    ) -> tuple[list[Piece], pa.Table] | None:
        """The new open pieces of a range, and the states that are over."""
        events = some.rows
        kept = writer.schema.empty_table()
        if some.pieces:
            old = pa.concat_tables([conform(piece.read(), writer.schema) for piece in some.pieces])
            touched = is_among(old, events, writer.key)
            if clears:
                touched = pc.or_(
                    touched, pc.less_equal(old.column(FROM_ID).combine_chunks(), pa.scalar(clears[-1].id, pa.int64()))
                )
            kept = old.filter(pc.invert(touched))
            events = pa.concat_tables([events, *as_events(old.filter(touched))], promote_options="default")
        if not events.num_rows:
            return None
        states = _states(events, writer.key, clears).select(writer.schema.names)
        is_open = states.column(IS_CURRENT)
        now = pa.concat_tables([kept, states.filter(is_open).cast(writer.schema)]).combine_chunks()
        over = states.filter(pc.invert(is_open)).cast(writer.schema)
        return writer.write(now.take(sorted_by(now, writer.key)), OPEN), over


def late_keys(events: pa.Table, key: Sequence[str], newest_id: int) -> pa.Table:
    """The keys of events that are not behind all that was taken in."""
    late = events.filter(pc.less_equal(events.column(FROM_ID), pa.scalar(newest_id, pa.int64())))
    return late.group_by(list(key), use_threads=False).aggregate([])


def take_out(piece: Piece, keys: pa.Table, writer: PieceWriter) -> tuple[list[Piece], pa.Table] | None:
    """A closed piece without the rows of some keys, and these rows; None when it has none."""
    hit = is_among(piece.keys(), keys, writer.key)
    if not true_count(hit):
        return None
    rows = conform(piece.read(), writer.schema)
    return writer.write(rows.filter(pc.invert(hit)), CLOSED), rows.filter(hit)


def as_events(rows: pa.Table) -> list[pa.Table]:
    """Rows of the table as the events they were made of."""
    begins = rows.drop_columns([VALID_TO, IS_CURRENT, TO_ID]).append_column(_RANK, _all(_STATE, rows))
    over = rows.filter(pc.less(rows.column(TO_ID), pa.scalar(OPEN_ID, pa.int64())))
    at_once = pc.equal(over.column(TO_ID), over.column(FROM_ID))
    rank = pc.if_else(at_once, pa.scalar(_END_AT_ONCE, pa.int8()), pa.scalar(_END, pa.int8()))
    ends = over.drop_columns([VALID_FROM, FROM_ID, IS_CURRENT])
    ends = ends.rename_columns({VALID_TO: VALID_FROM, TO_ID: FROM_ID}).append_column(_RANK, rank)
    return [begins, ends.select(begins.column_names)]


def _events(changes: pa.Table) -> pa.Table:
    deleted = pc.equal(changes.column(OP), pa.scalar(DELETE))
    rank = pc.if_else(deleted, pa.scalar(_END, pa.int8()), pa.scalar(_STATE, pa.int8()))
    return (
        changes.drop_columns([name for name in (OP, TS) if name in changes.column_names])
        .rename_columns({ID: FROM_ID, COMMIT_TS: VALID_FROM})
        .append_column(_RANK, rank)
    )


def _all(value: Any, rows: pa.Table) -> pa.Array[Any]:
    each: Any = pa.scalar(value, pa.utf8() if isinstance(value, str) else pa.int8())
    values: pa.Array[Any] = pa.repeat(each, rows.num_rows)
    return values


def _states(events: pa.Table, key: Sequence[str], clears: Sequence[LakeClear]) -> pa.Table:
    """All states of the keys that have events, in the order of keys and ids."""
    events = events.combine_chunks().take(sorted_by(events, [*key, FROM_ID, _RANK]))
    codes = key_codes(events.select(list(key)))
    again = pc.and_(
        _same_as_before(codes),
        pc.and_(_same_as_before(events.column(FROM_ID)), _same_as_before(events.column(_RANK))),
    )
    # A change that was delivered twice, or that the table has already.
    events, codes = events.filter(pc.invert(again)), codes.filter(pc.invert(again))
    is_last = pc.invert(_same_as_next(codes))
    to_id = pc.if_else(is_last, OPEN_ID, _next(events.column(FROM_ID)))
    valid_to = pc.if_else(is_last, OPEN_US, _next(events.column(VALID_FROM).cast(pa.int64())))
    valid_to = _smallest_behind(valid_to, is_last)
    is_state = pc.equal(events.column(_RANK), pa.scalar(_STATE, pa.int8()))
    states = events.filter(is_state)
    return _with_ends(states, to_id.filter(is_state), valid_to.filter(is_state), clears)


def _with_ends(
    states: pa.Table, to_id: pa.Array[Any], valid_to: pa.Array[Any], clears: Sequence[LakeClear]
) -> pa.Table:
    from_id = states.column(FROM_ID).combine_chunks()
    for clear in clears:
        at: pa.Scalar[Any] = pa.scalar(clear.id, pa.int64())
        ended = pc.and_(pc.less_equal(from_id, at), pc.greater(to_id, at))
        to_id = pc.if_else(ended, at, to_id)
        valid_to = pc.if_else(ended, pc.min_element_wise(valid_to, clear.commit_ts_us), valid_to)
    began = states.column(VALID_FROM).combine_chunks().cast(pa.int64())
    valid_to = pc.max_element_wise(valid_to, began)
    return (
        states.drop_columns(_RANK)
        .append_column(VALID_TO, valid_to.cast(_TIME))
        .append_column(IS_CURRENT, pc.equal(to_id, pa.scalar(OPEN_ID, pa.int64())))
        .append_column(TO_ID, to_id)
    )


def _smallest_behind(times: pa.Array[Any], is_last: pa.Array[Any]) -> pa.Array[Any]:
    """Of each event's key the smallest time from the next event on; one pass where times do not go back."""
    while True:
        behind = pc.if_else(is_last, OPEN_US, _next(times))
        smaller = pc.min_element_wise(times, behind)
        if smaller.equals(times):
            return times
        times = smaller


def _next(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Each row's successor; the last row is its own, as it is asked for nowhere."""
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays([flat[1:], flat[-1:]])


def _same_as_before(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays([pa.array([False] * min(1, len(flat))), pc.equal(flat[1:], flat[:-1])])


def _same_as_next(codes: pa.Array[Any]) -> pa.Array[Any]:
    return pa.concat_arrays([pc.equal(codes[1:], codes[:-1]), pa.array([False] * min(1, len(codes)))])
