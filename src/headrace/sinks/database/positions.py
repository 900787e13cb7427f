"""How far each flow has delivered, in the target itself: written in the transaction of the rows it speaks of.

So a target that was restored from a copy, or made anew, is delivered to from where it really is. Table ``_headrace_positions``: one
row per flow, topic and partition; as everywhere only a larger `_ums_id_` replaces a row, and here that is the offset.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.sinks.base import Position
from headrace.sinks.database.dialect import Destination, Dialect, Target
from headrace.ums.schema import Column
from headrace.ums.values import Array

TARGET = Target(
    "_headrace_positions",
    (
        Column("flow", pa.utf8(), "varchar(200)"),
        Column("topic", pa.utf8(), "varchar(200)"),
        Column("part", pa.int32(), "int"),
        Column("next_offset", pa.int64(), "bigint"),
        Column("mark_id", pa.int64(), "bigint"),
        Column("commit_ts_us", pa.int64(), "bigint"),
    ),
    ("flow", "topic", "part"),
)
_ROWS = 1000


def row(flow: str, position: Position) -> list[Array]:
    """The position as arrays of one row, in the order of the table's columns."""
    return [
        pa.array([flow], pa.utf8()),
        pa.array([position.topic], pa.utf8()),
        pa.array([position.partition], pa.int32()),
        pa.array([position.offset], pa.int64()),
        pa.array([position.id], pa.int64()),
        pa.array([position.commit_ts_us], pa.int64()),
        pa.array([position.offset], pa.int64()),
        pa.array([position.commit_ts_us], pa.timestamp("us", "UTC")),
        pa.array([1], pa.int16()),
    ]


def find(dialect: Dialect, table: Destination, flow: str, topic: str, partition: int) -> Position | None:
    """The position of a flow's last commit; None when it has never committed here."""
    for rows in dialect.select(table, "1 = 1", _ROWS):
        for name, of_topic, part, offset, id_, commit_ts_us in rows:
            if (name, of_topic, int(part)) == (flow, topic, partition):
                return Position(topic, partition, int(offset), int(id_), int(commit_ts_us))
    return None
