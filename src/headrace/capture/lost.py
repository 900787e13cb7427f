"""A position that a source does not have any more: why, which changes went with it, and how capture goes on.

Two things take a position away: the server purges old files of its binlog, or its binlog is reset and begins anew. What was
written between the position and the oldest transaction that is still there cannot be known; so capture stops, until a person
lets it go on behind the gap (`headrace skip`) and loads the tables again.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.capture.position import BinlogPosition
from headrace.capture.replica import Replica
from headrace.errors import PositionLostError

_TABLES_NAMED = 10


def why_lost(replica: Replica, position: BinlogPosition) -> str | None:
    """Why a server cannot go on from a position that was reached there or at another server; None when it can.

    A server that is not the one where the position was reached may still get what it lacks: that is no reason here.
    """
    by_name = bool(replica.names_transactions and position.gtids)
    here = position.server in ("", replica.server)
    if here and by_name and (missing := replica.missing_of(position.gtids)):
        return f"it was reset: it does not have all transactions that were captured, {missing} are missing"
    if by_name and (purged := replica.purged_behind(position.gtids)):
        return f"it has purged transactions that were not captured: {purged}"
    return _why_place_is_lost(replica, position, by_name=by_name) if here else None


def _why_place_is_lost(replica: Replica, position: BinlogPosition, *, by_name: bool) -> str | None:
    sizes = replica.sizes()
    files = list(sizes)
    newest = BinlogPosition(files[-1], sizes[files[-1]])
    if position.order > newest.order:
        return f"it was reset: its log ends at {newest}"
    if by_name:
        return None
    if position.file not in sizes:
        return f"it has purged that file: its log begins with {files[0]}"
    if position.offset > sizes[position.file]:
        return f"it was reset: {position.file} has only {sizes[position.file]} bytes"
    return None


def position_lost(
    where: object, source: str, position: BinlogPosition, why: str, tables: Sequence[str]
) -> PositionLostError:
    """The one message of a position that is gone. `tables`: those whose changes are lost, or patterns of them."""
    more = len(tables) - _TABLES_NAMED
    named = ", ".join(tables[:_TABLES_NAMED]) + (f" and {more} more" if more > 0 else "")
    again = " ".join(f"--table {table}" for table in tables[:_TABLES_NAMED]) + (" …" if more > 0 else "")
    return PositionLostError(
        f"capture of {source} stopped at {position}, and {where} cannot go on from there: {why}; changes of {named} are lost",
        fix=f"let capture go on behind the gap: `headrace skip FLOW.yaml --source {source}` (a Spark query: with a new `path` and checkpoint); then load the tables again:"
        f" `headrace load FLOW.yaml {again}`; and let the server keep its binlog for longer than captures stand still"
        " (binlog_expire_logs_seconds)",
    )
