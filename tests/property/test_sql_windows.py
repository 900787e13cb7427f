"""The claim at the head of compute/changing/windows.py: whatever comes late, dies or is lost, each window is told once it is over as the answer over its rows that
were in time, those that were not are told apart, and nothing is kept of what is over."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headrace.compute.changing.answer import Answers
from headrace.compute.changing.state import State
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import OP
from tests.property.test_sql_tables import DiedError, Dying
from tests.sql_tables import Computed, Row, Writer, batch, in_order, table

HISTORIES = int(os.environ.get("HEADRACE_SQL_HISTORIES", "1"))
BIDS = table("bids", ("id", pa.int64()), ("who", pa.int64()), ("price", pa.int64()), ("placed", pa.timestamp("us")))
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
LATENESS = 10 * SECOND
"""So far rows of a history are out of order, less those that are late."""
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Question:
    """SQL over `bids` with windows, and the same SQL over plain rows."""

    sql: str
    key: list[str]
    window: dict[str, Any]
    plain: str
    """The relation `bids` of a batch over `rows`."""

    @property
    def windows(self) -> dict[str, Any]:
        return {"of": {"bids": {"time": "placed", **self.window}}, "delay": LATENESS / SECOND}


def cut(length: int, every: int) -> str:
    """Windows of seconds, reckoned otherwise than headrace does: each window that there may be is joined to its rows."""
    return f"""SELECT r.*, make_timestamp(s) AS window_start, make_timestamp(s + {length}000000) AS window_end FROM rows AS r
        JOIN (SELECT unnest(range({(BEGIN - 200 * SECOND) // (every * SECOND) * every * SECOND}, {BEGIN + 2000 * SECOND}, {every}000000)) AS s) AS w
        ON epoch_us(r.placed) >= s AND epoch_us(r.placed) < s + {length}000000"""


SESSIONS = """SELECT *, min(placed) OVER s AS window_start, (max(placed) OVER s) + INTERVAL 7 seconds AS window_end FROM
    (SELECT *, sum(CASE WHEN placed - before < INTERVAL 7 seconds THEN 0 ELSE 1 END) OVER (PARTITION BY who ORDER BY placed, id) AS n FROM
    (SELECT *, lag(placed) OVER (PARTITION BY who ORDER BY placed, id) AS before FROM rows)) AS r WINDOW s AS (PARTITION BY who, n)"""
TUMBLING = "SELECT window_start, window_end, who, count(*) AS n, sum(price)::BIGINT AS price FROM bids GROUP BY ALL"
QUESTIONS = {
    "tumbling": Question(TUMBLING, ["window_end", "who"], {"length": 20}, cut(20, 20)),
    "hopping": Question(TUMBLING, ["window_end", "who"], {"length": 30, "every": 12}, cut(30, 12)),
    "session": Question(TUMBLING, ["window_start", "who"], {"gap": 7, "by": ["who"]}, SESSIONS),
    "top two": Question(
        "SELECT window_end, row_number() OVER (PARTITION BY window_end ORDER BY price DESC, id) AS place, id FROM bids QUALIFY place <= 2",
        ["window_end", "place"], {"length": 20}, cut(20, 20),
    ),
    "hot": Question(
        """WITH counts AS (SELECT window_end, who, count(*) AS n FROM bids GROUP BY ALL)
        SELECT * FROM counts QUALIFY n = max(n) OVER (PARTITION BY window_end)""", ["window_end", "who"], {"length": 30, "every": 10}, cut(30, 10),
    ),
    "first of each": Question(
        """SELECT id, who, price, placed + INTERVAL 1 microsecond AS window_end FROM bids AS a WHERE NOT EXISTS
        (FROM bids AS b WHERE b.who = a.who AND b.price % 5 = a.price % 5 AND (b.placed, b.id) < (a.placed, a.id) AND b.placed > a.placed - INTERVAL 15 seconds)""",
        ["id"], {"keep": 15}, "FROM rows",
    ),
    "left join": Question(
        """SELECT a.id, b.id AS other, a.placed + INTERVAL 8 seconds AS window_end, coalesce(b.id, -1) AS b FROM bids AS a LEFT JOIN bids AS b
        ON a.who = b.who AND b.price < 300 AND b.placed >= a.placed AND b.placed < a.placed + INTERVAL 8 seconds AND a.id <> b.id WHERE a.price >= 300""",
        ["id", "b"], {"keep": 8}, "FROM rows",
    ),
}  # fmt: skip


@dataclass
class Bids:
    """A stream whose times are out of order, now and then by more than is waited for."""

    draw: random.Random
    now_us: int = BEGIN
    rows: list[Row] = field(default_factory=list)

    def changes(self, first_id: int, count: int) -> list[ChangeBatch]:
        made: list[tuple[int, str, Row]] = []
        for number in range(count):
            self.now_us += self.draw.randrange(2 * SECOND)
            late = self.draw.randrange(LATENESS if self.draw.random() < 0.9 else 8 * LATENESS)
            row = {
                "id": first_id + number, "who": self.draw.randrange(4), "price": self.draw.randrange(1000), "placed": self.now_us - late,
            }  # fmt: skip
            self.rows.append(row)
            made.append((first_id + number, "i", row))
        return [batch(BIDS, made)]


class Stream(Writer):
    """Its marks carry the newest time, as those of a capture carry the commit time."""

    def unit(self, bids: Bids, count: int) -> list[ChangeBatch]:
        changes = bids.changes(self.id + 1, count)
        self.put(bids, changes)
        return changes

    def put(self, bids: Bids, changes: list[ChangeBatch]) -> None:
        self.transact(*changes, commit_us=bids.now_us)


def computed_over(directory: Path, question: Question, **windows: Any) -> Computed:
    options = {"windows": {**question.windows, **windows}}
    return Computed(directory, question.sql, question.key, {"bids": "mysql.db1.shop.bids"}, options)


def told(computed: Computed) -> tuple[list[Row], list[Row]]:
    """The changes of the table and of its late rows."""
    changes = [change for change in computed.told() if isinstance(change, ChangeBatch)]
    rows = [(change.table.namespace.table, row) for change in changes for row in change.data.to_pylist()]
    return [row for name, row in rows if name == "made"], [row for name, row in rows if name == "made_late"]


def answer(question: Question, bids: Bids, late: Iterable[Row], passed: datetime) -> Rows:
    """What a batch says of the windows that are over, of all rows but those that were late for them."""
    with closing(duckdb.connect()) as whole:
        rows = pa.Table.from_pylist(bids.rows, schema=pa.schema([(c.name, c.type) for c in BIDS.columns]))
        gone = pa.table({"id": [row["source_id"] for row in late], "over": [row["over_at"] for row in late]})
        whole.register("all_rows", rows)
        whole.register("late", gone)
        by_window = "length" in question.window
        whole.execute(
            f"CREATE VIEW rows AS FROM all_rows {'' if by_window else 'WHERE id NOT IN (SELECT l.id FROM late AS l)'}"
        )
        left_out = (
            "AS b WHERE NOT EXISTS (FROM late l WHERE l.id = b.id AND l.over = b.window_end)" if by_window else ""
        )
        whole.execute(f"CREATE TABLE bids AS SELECT * FROM ({question.plain}) {left_out}")
        found = whole.execute(f"SELECT * FROM ({question.sql}) WHERE window_end <= ?", [passed]).fetchall()
        return in_order(found)


def final(computed: Computed, rows: Iterable[Row]) -> Rows:
    """What was told in the columns of the answer."""
    names = [column.name for column in next(iter(computed.source().tables())).columns]
    return in_order(tuple(row[name] for name in names) for row in rows)


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("name", QUESTIONS)
def test_windows_are_told_once_and_whole(tmp_path: Path, name: str, seed: int) -> None:
    draw = random.Random(f"{name} {seed}")
    question, bids, stream = QUESTIONS[name], Bids(draw), Stream(tmp_path)
    computed = computed_over(tmp_path, question)
    for _ in range(5):
        changes = stream.unit(bids, draw.randrange(5, 40))
        if draw.random() < 0.3:
            stream.put(bids, changes)
        if draw.random() < 0.3:
            shutil.rmtree(computed.state, ignore_errors=True)
        with suppress(DiedError):
            computed.run(lambda source: Dying(source, draw) if draw.random() < 0.5 else source)
    computed.run()
    rows, late = told(computed)
    assert {row[OP] for row in rows} == {"i"}, "each row is told once"
    passed = datetime.fromtimestamp((bids.now_us - LATENESS) / SECOND, UTC).replace(tzinfo=None)
    assert final(computed, rows) == answer(question, bids, late, passed)
    assert kept(computed) < len(bids.rows)


def kept(computed: Computed) -> int:
    """How many rows of the input are in the state."""
    with closing(State(computed.state, "1GB", Answers(computed.config))) as state:
        state.open()
        return state.rows()


@pytest.mark.parametrize("name", ["tumbling", "session"])
def test_early_results_are_corrected_until_they_are_final(tmp_path: Path, name: str) -> None:
    draw = random.Random(name)
    question, bids, stream = QUESTIONS[name], Bids(draw), Stream(tmp_path)
    computed = computed_over(tmp_path, question, early=True, amend=30)
    for number in range(5):
        stream.unit(bids, 20)
        if number == 3:
            shutil.rmtree(computed.state)
        with suppress(DiedError):
            computed.run(lambda source: Dying(source, draw) if draw.random() < 0.5 else source)
    computed.run()
    rows, late = told(computed)
    there: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[column] for column in question.key)
        assert (row[OP] == "i") == (key not in there)
        there.pop(key, None)
        if row[OP] != "d":
            there[key] = row
    everything = datetime(2100, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    assert final(computed, there.values()) == answer(question, bids, late, everything)
