"""Which partitions are wanted at a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from headrace.doris.config import Partitions
from headrace.doris.partitions import spans


def starts(at: datetime, **settings: object) -> list[str]:
    found = spans(Partitions.model_validate(settings), at.timestamp())
    assert all(one[1] == two[0] for one, two in pairwise(found))
    return [first.isoformat(" ", "hours") for first, _ in found]


LATE = datetime(2027, 12, 31, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"unit": "hour", "ahead": 1, "back": 1}, ["2027-12-31 22", "2027-12-31 23", "2028-01-01 00"]),
        ({"unit": "day", "ahead": 1, "back": 0}, ["2027-12-31 00", "2028-01-01 00"]),
        ({"unit": "day", "ahead": 1, "zone": "Asia/Shanghai"}, ["2028-01-01 00", "2028-01-02 00"]),
        ({"unit": "week", "ahead": 1, "back": 1}, ["2027-12-20 00", "2027-12-27 00", "2028-01-03 00"]),
        (
            {"unit": "month", "ahead": 2, "back": 1},
            ["2027-11-01 00", "2027-12-01 00", "2028-01-01 00", "2028-02-01 00"],
        ),
        ({"unit": "year", "ahead": 1, "back": 1}, ["2026-01-01 00", "2027-01-01 00", "2028-01-01 00"]),
    ],
)
def test_the_span_of_now_and_those_around_it(settings: dict[str, object], expected: list[str]) -> None:
    assert starts(LATE, **settings) == expected


@pytest.mark.parametrize("unit", ["hour", "day", "week", "month", "year"])
def test_now_is_in_the_first_of_them(unit: str) -> None:
    for days in range(800):
        now = datetime(2024, 1, 1, 5, 7, tzinfo=UTC) + timedelta(days=days)
        first, stop = spans(Partitions.model_validate({"unit": unit, "ahead": 1}), now.timestamp())[0]
        assert first <= now.replace(tzinfo=None) < stop
