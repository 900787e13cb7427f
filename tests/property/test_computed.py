"""The proof at the head of compute/transform.py: in whatever order and however often changes come, a target ends with the rows whose newest change
passes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.compute.sink import ComputingSink
from headrace.compute.steps import Sql
from headrace.compute.transform import Transform
from headrace.sinks.base import Position
from headrace.sinks.memory import MemorySink
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, Namespace, TableSchema

TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "t"),
    (Column("id", pa.int64(), "bigint"), Column("n", pa.int64(), "bigint")),
    ("id",),
)
TRANSFORM = Transform("f", [Sql(do="sql", query="SELECT n * 10 AS tenfold, id AS number FROM t WHERE n % 3 <> 0")])
Change = tuple[str, int, int | None]
CHANGES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9), st.booleans()), max_size=30)


def history(drawn: list[tuple[int, int, bool]]) -> list[Change]:
    """Changes as a source has them: an insert of a key that is not there, else an update or a delete."""
    there: set[int] = set()
    found: list[Change] = []
    for key, n, deletes in drawn:
        op = "i" if key not in there else "d" if deletes else "u"
        there = there - {key} if op == "d" else there | {key}
        found.append((op, key, None if op == "d" else n))
    return found


def batch(changes: list[tuple[int, Change]]) -> ChangeBatch:
    rows = [{ID: id_, TS: 0, OP: op, COMMIT_TS: 0, RAW: None, "id": key, "n": n} for id_, (op, key, n) in changes]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))


@settings(max_examples=60, deadline=None)
@given(CHANGES, st.data())
def test_a_target_ends_with_the_rows_whose_newest_change_passes(drawn: list[Any], data: st.DataObject) -> None:
    numbered = list(enumerate(history(drawn), 1))
    cleared = data.draw(st.integers(0, len(numbered)))
    again = data.draw(st.lists(st.sampled_from(numbered), max_size=10)) if numbered else []
    parts: list[list[tuple[int, Change]] | None] = [[one] for one in data.draw(st.permutations([*numbered, *again]))]
    parts.insert(data.draw(st.integers(0, len(parts))), None)
    sink = ComputingSink(TRANSFORM, MemorySink(MemorySink.Config(type="memory", name=uuid4().hex), "f"))
    sink.prepare(TABLE)
    for part in parts:
        if part is None:
            sink.clear(Clear(TABLE, cleared, 0))
        else:
            sink.write(batch(part))
    sink.write(batch(numbered))
    sink.commit(Position("db1", 0, 1, len(numbered), 0))
    newest = {key: n for id_, (_, key, n) in numbered if id_ >= cleared}
    expected = {(n * 10, key) for key, n in newest.items() if n is not None and n % 3}
    found = [tuple(row.values()) for rows in sink.scan(TABLE) for row in rows.to_pylist()]
    assert sorted(found) == sorted(expected)
    sink.close()
