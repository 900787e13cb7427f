"""Nexmark: an auction house as three streams, and ten questions about it that headrace can be asked; for tests and bench/nexmark.py.

The generator is our own, after the published description (Tucker, Tufte, Papadimos, Maier: NEXMark, a benchmark for queries over data streams, and
its form of today in Apache Beam). Of 50 events one is a person who registers, three are auctions that open, 46 are bids. Half of the bids are for the hot
auction of the moment, three of four of one of its hot bidders, others for any of those that opened last; prices are spread evenly by their logarithm. What a table does without is left
out (credit cards, padding); a bid has a number, which tells bids of one moment apart.

Events come late and out of order, by less than a bound: ``parts`` puts them in the order in which they arrive, in transactions, each closed at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.ums.change import ChangeBatch
from headrace.ums.schema import TableSchema
from tests.sql_tables import Row, table

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
LATENESS = 4 * SECOND
"""An event arrives less than so long behind its time, µs."""
CHANNELS = 100
"""Rows of the side table that bids are looked up in."""
_OF, _PERSONS, _AUCTIONS = 50, 1, 3
_OPEN, _ACTIVE = 100, 1_000
"""Auctions that may be bid for, and persons who may bid and sell: the last so many."""
_IDS_OF_A_PART = 10**9
_STATES = ["OR", "ID", "CA", "AZ", "WA", "WY"]
_CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
Numbers = npt.NDArray[np.int64]

_LONG, _TEXT, _TIME = pa.int64(), pa.utf8(), pa.timestamp("us")
PERSON = table(
    "person", ("id", _LONG), ("name", _TEXT), ("email", _TEXT), ("city", _TEXT), ("state", _TEXT), ("date_time", _TIME)
)
AUCTION = table(
    "auction", ("id", _LONG), ("item", _TEXT), ("seller", _LONG), ("category", _LONG), ("initial_bid", _LONG), ("reserve", _LONG),
    ("expires", _TIME), ("date_time", _TIME),
)  # fmt: skip
BID = table(
    "bid",
    ("id", _LONG),
    ("auction", _LONG),
    ("bidder", _LONG),
    ("price", _LONG),
    ("channel", _LONG),
    ("url", _TEXT),
    ("date_time", _TIME),
)
TABLES = (PERSON, AUCTION, BID)


@dataclass(frozen=True)
class Question:
    """One of the ten. Row by row it is `steps` of a flow over bids; else SQL over the streams, with their windows."""

    sql: str
    """With windows, its inputs have `window_start` and `window_end`."""
    key: list[str]
    steps: list[Row] | None = None
    windows: Mapping[str, Row] = field(default_factory=dict)
    inputs: tuple[str, ...] = ("bid",)


def _flow(sql: str, *before: Row) -> Question:
    return Question(sql, ["id"], [*before, {"do": "sql", "query": sql.replace("FROM bid", "FROM input")}])


QUESTIONS: dict[str, Question] = {
    "pass": _flow("SELECT id, auction, bidder, price, channel, url, date_time FROM bid"),
    "projection": _flow("SELECT id, auction, split_part(url, '/', 4) AS item, hour(date_time) AS hour FROM bid"),
    "filter": _flow("SELECT id, auction, price FROM bid WHERE auction % 13 = 0"),
    "currency": _flow("SELECT id, auction, bidder, CAST(price * 0.908 AS DECIMAL(18,3)) AS euros, date_time FROM bid"),
    "lookup join": Question(
        "SELECT b.id, b.auction, b.price, s.name FROM bid AS b LEFT JOIN side AS s ON b.channel = s.id",
        ["id"],
        [{"do": "lookup", "on": {"channel": "id"}, "take": {"name": "text"}}, {"do": "sql", "query": "SELECT id, auction, price, name FROM input"}],
    ),
    "window join": Question(
        """SELECT p.id, p.name, p.window_end FROM person AS p
        JOIN (SELECT DISTINCT seller, window_end FROM auction) AS a ON p.id = a.seller AND p.window_end = a.window_end""",
        ["id"], windows={"person": {"length": 10}, "auction": {"length": 10}}, inputs=("person", "auction"),
    ),
    "hot items": Question(
        """WITH counts AS (SELECT window_end, auction, count(*) AS n FROM bid GROUP BY ALL)
        SELECT * FROM counts QUALIFY n = max(n) OVER (PARTITION BY window_end)""",
        ["window_end", "auction"], windows={"bid": {"length": 10, "every": 2}},
    ),
    "session": Question(
        "SELECT window_start, window_end, bidder, count(*) AS bids FROM bid GROUP BY ALL",
        ["window_start", "bidder"], windows={"bid": {"gap": 2, "by": ["bidder"]}},
    ),
    "top-N": Question(
        """SELECT window_end, auction, row_number() OVER w AS place, id, bidder, price FROM bid
        WINDOW w AS (PARTITION BY window_end, auction ORDER BY price DESC, id) QUALIFY place <= 3""",
        ["window_end", "auction", "place"], windows={"bid": {"length": 10}},
    ),
    "newest bid": Question(
        """SELECT auction, bidder, id, price, date_time FROM bid QUALIFY row_number() OVER (PARTITION BY auction, bidder ORDER BY date_time DESC, id DESC) = 1""",
        ["auction", "bidder"],
    ),
}  # fmt: skip


def side_rows() -> pa.Table:
    """What bids are looked up in; channels without a row are there too."""
    known = [number for number in range(CHANNELS) if number % 7]
    return pa.table({"id": pa.array(known, _LONG), "name": [f"channel {number}" for number in known]})


@dataclass(frozen=True)
class Part:
    """What arrives in one transaction."""

    changes: list[ChangeBatch]
    newest_id: int
    closed_us: int
    """Everything that arrives later has an event time behind this, less LATENESS."""


class Events:
    """So many events, always the same of one seed."""

    def __init__(self, count: int, *, seed: int = 15, a_second: int = 1_000) -> None:
        draw = np.random.default_rng(seed)
        number = np.arange(count, dtype=np.int64)
        self._at_us = BEGIN + number * SECOND // a_second
        self._arrival_us = self._at_us + draw.integers(0, LATENESS, count)
        group, place = number // _OF, number % _OF
        kinds = {"person": place < _PERSONS, "auction": (place >= _PERSONS) & (place < _PERSONS + _AUCTIONS)}
        kinds["bid"] = ~(kinds["person"] | kinds["auction"])
        self._numbers = {name: np.flatnonzero(chosen).astype(np.int64) for name, chosen in kinds.items()}
        made = {"person": _persons, "auction": _auctions, "bid": _bids}
        self.tables = {
            schema.namespace.table: _table(
                schema, made[schema.namespace.table](draw, group[at], place[at]), self._at_us[at]
            )
            for schema in TABLES
            for at in [self._numbers[schema.namespace.table]]
        }
        """Every row, by table, in the order of event times."""

    @property
    def end_us(self) -> int:
        """All has arrived by then."""
        return int(self._arrival_us.max()) + 1

    def parts(self, count: int) -> Iterator[Part]:
        """The events in so many transactions, as they arrive."""
        rank = np.empty(len(self._arrival_us), np.int64)
        order = np.argsort(self._arrival_us, kind="stable")
        rank[order] = np.arange(len(order))
        size = -(-len(order) // count)
        for part in range(count):
            first, behind = part * size, min((part + 1) * size, len(order))
            changes = [self._change(schema, rank, first, behind, (part + 1) * _IDS_OF_A_PART) for schema in TABLES]
            newest = (part + 1) * _IDS_OF_A_PART + behind
            yield Part([each for each in changes if len(each)], newest, int(self._arrival_us[order[behind - 1]]))

    def _change(self, schema: TableSchema, rank: Numbers, first: int, behind: int, base: int) -> ChangeBatch:
        """The inserts of a table among the events from one rank up to another, in their order."""
        name = schema.namespace.table
        ranks = rank[self._numbers[name]]
        chosen = np.flatnonzero((ranks >= first) & (ranks < behind))
        chosen = chosen[np.argsort(ranks[chosen])]
        rows = self.tables[name].take(pa.array(chosen)).combine_chunks()
        times = pa.array(self._arrival_us[self._numbers[name]][chosen]).view(pa.timestamp("us", "UTC"))
        ids = pa.array(ranks[chosen] + base)
        system: list[Any] = [ids, times, pa.repeat("i", len(chosen)), times, pa.nulls(len(chosen), pa.utf8())]
        columns = [column.combine_chunks() for column in rows.columns]
        return ChangeBatch(schema, pa.RecordBatch.from_arrays([*system, *columns], schema=schema.arrow_schema()))


def _table(schema: TableSchema, columns: Mapping[str, Any], at_us: Numbers) -> pa.Table:
    made = {**columns, "date_time": pa.array(at_us).view(_TIME)}
    return pa.table([pa.array(made[c.name]).cast(c.type) for c in schema.columns], [c.name for c in schema.columns])


def _persons(draw: np.random.Generator, group: Numbers, place: Numbers) -> dict[str, Any]:
    count = len(group)
    return {
        "id": group,
        "name": [f"person {number}" for number in group],
        "email": [f"p{number}@example.org" for number in group],
        "city": np.array(_CITIES)[draw.integers(0, len(_CITIES), count)],
        "state": np.array(_STATES)[draw.integers(0, len(_STATES), count)],
    }


def _auctions(draw: np.random.Generator, group: Numbers, place: Numbers) -> dict[str, Any]:
    count, ids = len(group), group * _AUCTIONS + place - _PERSONS
    first = _prices(draw, count)
    at_us = BEGIN + draw.integers(0, 20 * SECOND, count)
    return {
        "id": ids,
        "item": [f"item {number}" for number in ids],
        "seller": _chosen(draw, group, _ACTIVE, hot_of=4, step=10),
        "category": 10 + draw.integers(0, 5, count),
        "initial_bid": first,
        "reserve": first + _prices(draw, count),
        "expires": pa.array(at_us).view(_TIME),
    }


def _bids(draw: np.random.Generator, group: Numbers, place: Numbers) -> dict[str, Any]:
    count, channel = len(group), draw.integers(0, CHANNELS, len(group))
    auction = _chosen(draw, group * _AUCTIONS + _AUCTIONS - 1, _OPEN, hot_of=2, step=100)
    return {
        "id": group * _OF + place,
        "auction": auction,
        "bidder": _chosen(draw, group, _ACTIVE, hot_of=4, step=100),
        "price": _prices(draw, count),
        "channel": channel,
        "url": [f"https://auctions.example.org/item{number}/bid" for number in auction.tolist()],
    }


def _chosen(draw: np.random.Generator, newest: Numbers, last: int, *, hot_of: int, step: int) -> Numbers:
    """Ids at or below the newest: the hot one (a multiple of `step`), but once in `hot_of` any of the last."""
    cold = newest - np.minimum(draw.integers(0, last, len(newest)), newest)
    return np.where(draw.integers(0, hot_of, len(newest)) > 0, newest // step * step, cold)


def _prices(draw: np.random.Generator, count: int) -> Numbers:
    found: Numbers = np.round(10 ** (draw.random(count) * 6) * 100).astype(np.int64)
    return found


def plain(question: Question, name: str) -> str:
    """A relation of a batch over whole tables (``person_rows``, …): the input with its windows, written otherwise than headrace does it."""
    window = question.windows.get(name)
    rows = f"{name}_rows"
    if window is None:
        return f"FROM {rows}"
    if "gap" in window:
        gap, by = window["gap"], ", ".join(window["by"])
        return f"""SELECT *, min(date_time) OVER s AS window_start, (max(date_time) OVER s) + INTERVAL {gap} seconds AS window_end FROM
            (SELECT *, sum(begins) OVER (PARTITION BY {by} ORDER BY date_time, id ROWS UNBOUNDED PRECEDING) AS session FROM
            (SELECT *, CASE WHEN date_time - lag(date_time) OVER (PARTITION BY {by} ORDER BY date_time, id) < INTERVAL {gap} seconds THEN 0 ELSE 1 END AS begins FROM {rows}))
            WINDOW s AS (PARTITION BY {by}, session)"""
    length, every = window["length"], window.get("every", window["length"])
    start = f"time_bucket(INTERVAL {every} seconds, date_time)"
    back = f"unnest(generate_series({start} - INTERVAL {length - every} seconds, {start}, INTERVAL {every} seconds))"
    return f"SELECT *, s AS window_start, s + INTERVAL {length} seconds AS window_end FROM (SELECT *, {back} AS s FROM {rows})"
