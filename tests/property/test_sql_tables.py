"""The claim at the head of compute/changing/source.py: whatever changes, repeats, comes late or dies, what was told of a computed table is the answer of
its SQL over the rows that there are."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.base import Source
from headrace.ums.change import Mark
from tests.sql_tables import Computed, Shop, Writer

HISTORIES = int(os.environ.get("HEADRACE_SQL_HISTORIES", "1"))
"""Of each question; `make test-long` tries more."""
QUESTIONS: dict[str, tuple[str, list[str]]] = {
    "sum": ("SELECT status, count(*) AS n, sum(amount) AS amount FROM orders GROUP BY status", ["status"]),
    "having": ("SELECT customer, max(amount) AS most FROM orders GROUP BY customer HAVING count(*) > 1", ["customer"]),
    "inner": ("SELECT o.id, o.amount, c.region FROM orders o JOIN customers c ON o.customer = c.id", ["id"]),
    "left": ("SELECT o.id, o.amount, c.region FROM orders o LEFT JOIN customers c ON o.customer = c.id", ["id"]),
    "right": (
        "SELECT c.id AS customer, coalesce(o.id, -1) AS id, o.amount FROM orders o RIGHT JOIN customers c ON o.customer = c.id",
        ["customer", "id"],
    ),
    "sum of a join": (
        "SELECT coalesce(c.region, '?') AS region, sum(o.amount) AS amount FROM orders o JOIN customers c ON o.customer = c.id GROUP BY 1",
        ["region"],
    ),
    "newest of each": (
        """SELECT c.id, c.region, o.id AS newest, o.amount FROM customers c LEFT JOIN
            (SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY customer ORDER BY placed DESC, id) = 1) o ON o.customer = c.id""",
        ["id"],
    ),
    "tumbling": (
        "SELECT time_bucket(INTERVAL 1 minute, placed) AS minute, status, count(*) AS n FROM orders GROUP BY ALL",
        ["minute", "status"],
    ),
    "hopping": (
        """SELECT begins, count(*) AS n FROM (SELECT unnest(generate_series(time_bucket(INTERVAL 1 minute, placed) - INTERVAL 4 minutes,
            time_bucket(INTERVAL 1 minute, placed), INTERVAL 1 minute)) AS begins FROM orders) GROUP BY begins""",
        ["begins"],
    ),
    "session": (
        """WITH gaps AS (SELECT *, coalesce(placed - lag(placed) OVER w > INTERVAL 20 seconds, true) AS begins FROM orders
            WINDOW w AS (PARTITION BY customer ORDER BY placed, id)), sessions AS (SELECT *, count(*) FILTER (WHERE begins) OVER
            (PARTITION BY customer ORDER BY placed, id) AS session FROM gaps)
            SELECT customer, session, min(placed) AS first, max(placed) AS last, count(*) AS n FROM sessions GROUP BY ALL""",
        ["customer", "session"],
    ),
    "top two of each minute": (
        """SELECT time_bucket(INTERVAL 1 minute, placed) AS minute, row_number() OVER (PARTITION BY minute ORDER BY amount DESC, id) AS place, id, amount
            FROM orders QUALIFY place <= 2""",
        ["minute", "place"],
    ),
    "first of each": ("SELECT DISTINCT ON (customer) customer, id, status FROM orders ORDER BY customer, placed, id", ["customer"]),
    "within a minute": (
        """SELECT a.id, b.id AS other, b.placed - a.placed < INTERVAL 10 seconds AS close FROM orders a JOIN orders b ON a.customer = b.customer AND
            b.placed BETWEEN a.placed AND a.placed + INTERVAL 1 minute AND a.id <> b.id""",
        ["id", "other"],
    ),
    "all": ("SELECT count(*) AS n, sum(amount) AS amount, 1 AS one FROM orders", ["one"]),
}  # fmt: skip


class Dying:
    """A source whose process dies at a random event: before it is on the log, or when it is there and the state does not know."""

    def __init__(self, source: Source, draw: random.Random) -> None:
        self._source = source
        self._left = draw.randrange(6)
        self._before = draw.random() < 0.5
        self.check, self.tables, self.tables_now, self.skip = (
            source.check,
            source.tables,
            source.tables_now,
            source.skip,
        )
        self.close = source.close

    def follow(self, start: Mark | None) -> Any:
        events = self._source.follow(start)
        for event in events:
            self._left -= bool(event.changes)
            if self._left == 0 and self._before:
                events.close()
                raise DiedError
            yield event

    def confirm(self, mark: Mark) -> None:
        if self._left == 0:
            raise DiedError
        self._source.confirm(mark)


class DiedError(Exception):
    """Nothing more is done by this process."""


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_was_told_is_the_answer(tmp_path: Path, question: str, seed: int) -> None:
    draw = random.Random(f"{question} {seed}")
    sql, key = QUESTIONS[question]
    computed, writer, shop = Computed(tmp_path, sql, key), Writer(tmp_path), Shop(draw.getrandbits(30), keys=60)
    again = []
    for number in range(6):
        # Few behind many, so that what few changes touch is computed alone; once as many again, so that it is not.
        changes = [*shop.changes(writer.id + 1, 150 if number in {0, 4} else draw.randrange(1, 8))]
        if draw.random() < 0.1:
            changes = [*changes, shop.clear(writer.id + 500)]  # type: ignore[list-item]
        writer.transact(*changes)
        again.append(changes)
        if draw.random() < 0.5:
            writer.transact(*draw.choice(again))
        if draw.random() < 0.3:
            shutil.rmtree(computed.state, ignore_errors=True)
        with suppress(DiedError):
            computed.run(lambda source: Dying(source, draw) if draw.random() < 0.5 else source)
        if number % 2:
            computed.run()
            assert computed.rows() == computed.answer(**shop.inputs()), f"after transaction {number}"
