"""The low watermark of a stage against its definition, by random members, weights and reports."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.watermark.tracker import Members, Tracker
from headrace.watermark.wire import NEVER

TIMES = st.integers(0, 40)


def hosts(weights: Iterable[float], since_us: int = NEVER) -> Members:
    return Members.of([[(number, f"h{number}", since_us, weight)] for number, weight in enumerate(weights)])


def report(tracker: Tracker, told: list[tuple[int, int]], now_s: float) -> None:
    ids = np.array([member for member, _ in told], np.int64)
    tracker.report(ids, np.array([time_us for _, time_us in told], np.int64), np.ones(len(told), np.int64), now_s)


def low_by_definition(progress: dict[int, int], weights: dict[int, int], share: Fraction) -> int:
    """The largest w of all times that are somebody's, behind which there is at most the share."""
    allowed = share * sum(weights.values())
    fit = (
        low
        for low in progress.values()
        if sum(weights[member] for member, time_us in progress.items() if time_us < low) <= allowed
    )
    return max(fit)


@given(st.data(), st.integers(1, 200), st.sampled_from([0, 1, 10, 50, 250]))
def test_it_is_the_largest_that_leaves_at_most_the_share_behind(data: st.DataObject, count: int, permille: int) -> None:
    weights = dict(enumerate(data.draw(st.lists(st.integers(1, 64), min_size=count, max_size=count))))
    progress = dict(enumerate(data.draw(st.lists(TIMES, min_size=count, max_size=count))))
    tracker = Tracker(permille / 1000, grace_s=0, now_s=0)
    tracker.expect(hosts(weights.values()), 0)
    report(tracker, list(progress.items()), 1)
    assert tracker.low_us(2) == low_by_definition(progress, weights, Fraction(permille, 1000))


@given(st.lists(st.tuples(st.integers(0, 9), TIMES), max_size=60), st.randoms(use_true_random=False))
def test_reports_may_come_again_and_in_any_order(told: list[tuple[int, int]], pick: object) -> None:
    members = hosts([1] * 10, since_us=5)
    one, other = Tracker(0.2, 0, 0), Tracker(0.2, 0, 0)
    one.expect(members, 0)
    other.expect(members, 0)
    report(one, told, 1)
    again = told + told[::-1] + told[: len(told) // 2]
    for at in range(0, len(again), 7):
        report(other, again[at : at + 7], 1)
    assert other.low_us(2) == one.low_us(2) >= 5


def test_the_share_counts_after_its_grace_and_all_members_at_once() -> None:
    tracker = Tracker(0.2, grace_s=15, now_s=0)
    tracker.expect(hosts([0] * 5), 0)
    assert tracker.low_us(0) == NEVER
    report(tracker, [(number, 100) for number in range(4)], 1)
    assert tracker.low_us(1) == tracker.low_us(15.9) == NEVER
    assert tracker.low_us(16) == 100
    report(tracker, [(number, 200) for number in range(5)], 17)
    assert tracker.low_us(17) == 200


def test_a_newcomer_holds_what_still_waits_for_its_grace() -> None:
    tracker = Tracker(0.2, grace_s=15, now_s=0)
    tracker.expect(hosts([0] * 5), 0)
    report(tracker, [(number, 100) for number in range(4)], 1)
    assert tracker.low_us(1) == NEVER
    tracker.expect(Members.of([[(number, f"h{number}", NEVER if number < 5 else 50, 0) for number in range(7)]]), 2)
    assert tracker.low_us(20) == NEVER
    report(tracker, [(5, 90), (6, 90)], 21)
    tracker.low_us(21)
    assert tracker.low_us(36) == 90


def test_who_is_silent_is_told_only_when_the_server_has_listened_long_enough() -> None:
    tracker = Tracker(0, 0, now_s=1000)
    tracker.expect(hosts([0, 0]), 1000)
    for now_s in (1003, 1006, 1009):
        report(tracker, [(0, 5)], now_s)
    assert tracker.silent(10, 1010) == []
    assert tracker.silent(10, 1011) == ["h1"]


def test_nobody_is_silent_while_nobody_is_heard_nor_soon_after() -> None:
    tracker = Tracker(0, 0, now_s=1000)
    tracker.expect(hosts([0, 0, 0]), 1000)
    report(tracker, [(0, 5), (1, 5), (2, 5)], 1001)
    assert tracker.silent(10, 1100) == []
    for now_s in range(1100, 1110, 3):
        report(tracker, [(0, 6), (1, 6)], now_s)
        assert tracker.silent(10, now_s) == []
    report(tracker, [(0, 7)], 1111)
    assert tracker.silent(10, 1111) == ["h2"]


def test_weights_are_the_volume_and_newcomers_have_the_mean() -> None:
    tracker = Tracker(0.1, 0, 0)
    tracker.expect(hosts([0] * 3), 0)
    tracker.report(np.array([0, 1]), np.array([10, 10]), np.array([80, 40]), 1)
    weights = tracker.weigh()
    assert weights == {0: 80, 1: 40, 2: 0}
    tracker.expect(hosts(weights.values()), 2)
    assert [round(standing.share, 3) for standing in tracker.lowest(3, 2)] == [0.333, 0.444, 0.222]


def test_who_writes_how_much_nobody_knows_is_waited_for() -> None:
    tracker = Tracker(0.5, 0, 0, by_volume=True)
    tracker.expect(hosts([0] * 4), 0)
    tracker.report(np.array([0, 1, 2]), np.array([10, 10, 5]), np.array([80, 40, 0]), 1)
    assert tracker.low_us(1) == NEVER
    weights = tracker.weigh()
    assert weights == {0: 80, 1: 40, 2: 0.5, 3: 0}
    tracker.expect(hosts(weights.values()), 2)
    assert tracker.low_us(2) == NEVER, "nothing was ever heard of the fourth"
    tracker.expect(hosts(list(weights.values())[:3]), 3)
    assert tracker.low_us(3) == 10
