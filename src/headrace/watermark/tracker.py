"""How far one stage is: from the progress of its members to its own low watermark.

A member's *progress* t says: no row with a time below t will come from it any more, and all of its rows below t are durable downstream.
Windows are half-open, so one that ends at e is complete when all progress is e or more.

The low watermark is the largest w such that the members whose progress is below w have at most the tolerated share of all weight. Let
p_0 <= p_1 <= ... be the progress of all members, w_i their weights and c_i = w_0 + ... + w_i. It is p_j for the first j with
c_j > share x c_n: the members below p_j are among the first j, whose weight is c_(j-1) <= share x c_n; and for any w > p_j the members
0 to j are below w, with more than the share. With equal weights, j is floor(share x n): the article's "(k + 1)th smallest".

Two low watermarks are kept: that of all members (share 0), which counts at once, and that of the share, which counts after a grace: so who
is only a little late is waited for. Reports are joined by maximum, so that repeated, reordered and old ones change nothing.

Weights are shares of volume (rows per member) or all 1. They change only together with the membership's version, so that every server
of one store reckons with the same ones (server.py). A member of whom no volume is known yet is waited for, whatever the share: it may be
the one that writes most. One that has been heard of, and has sent nothing, is known to write little.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from headrace.watermark.wire import NEVER

_FEW = 64
_LITTLE = 0.5
"""The volume of who has sent nothing, in rows."""
_OUTAGE_S = 5.0
"""When a stage has heard of nobody for so long, those who report are away themselves, and not the members they speak for."""

Ids = npt.NDArray[np.int64]
Times = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Members:
    """Who is expected, in columns. `ids`: a member's number in its stage, never used again. `since_us`: the low watermark when it joined."""

    ids: Ids
    names: Sequence[str]
    since_us: Times
    weights: Weights

    @classmethod
    def of(cls, pieces: Iterable[Sequence[tuple[int, str, int, float]]]) -> Self:
        """From rows of id, name, since and weight, some at a time: a million of them at once would be a million objects for the collector to look at."""
        ids, since_us, weights = array("q"), array("q"), array("d")
        names: list[str] = []
        for rows in pieces:
            some_ids, some_names, some_since_us, some_weights = zip(*rows, strict=True)
            ids.extend(some_ids)
            names.extend(some_names)
            since_us.extend(some_since_us)
            weights.extend(some_weights)
        return cls(np.array(ids, np.int64), names, np.array(since_us, np.int64), np.array(weights, np.float64))


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a member stands. `silent_s`: seconds since it was heard; `share`: of all weight."""

    name: str
    progress_us: int
    silent_s: float
    share: float


class Tracker:
    """The expected members of one stage. All times of the clock are seconds of any steady clock, given by the caller."""

    def __init__(self, tolerated_share: float, grace_s: float, now_s: float, *, by_volume: bool = False) -> None:
        self._tolerated = tolerated_share
        self._by_volume = by_volume
        self._grace_s = grace_s
        self._lease_from_s = now_s
        """Nobody's silence counts before."""
        self._reported_s = now_s
        self._names: Sequence[str] = ()
        self._by_name: dict[str, int] = {}
        self._expected: Ids = np.empty(0, np.int64)
        """Ids, in the order of the names."""
        self._known_weights: Weights = np.empty(0, np.float64)
        self._progress: Times = np.empty(0, np.int64)
        self._heard_s = np.empty(0, np.float64)
        self._rows: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._weights = np.empty(0, np.float64)
        self._holds = np.empty(0, np.float64)
        """The weights, without end where the volume is not known."""
        self._has_reported = np.empty(0, np.bool_)
        self._is_expected = np.empty(0, np.bool_)
        self._returned: set[int] = set()
        self._of_share: deque[tuple[float, int]] = deque()
        """When which low watermark of the share was reached, oldest first."""
        self._released_us = NEVER

    @property
    def members(self) -> Mapping[str, int]:
        """The ids of those who are expected, by their names."""
        return self._by_name

    def expect(self, members: Members, now_s: float) -> None:
        """Who is expected from now on. What is known of those that stay is kept."""
        ids = members.ids
        self._room_for(int(ids.max()) + 1 if len(ids) else 0)
        self._heard_s[ids] = np.where(self._is_expected[ids], self._heard_s[ids], now_s)
        self._progress[ids] = np.maximum(self._progress[ids], members.since_us)
        self._is_expected[:] = False
        self._is_expected[ids] = True
        self._expected, self._names = ids, members.names
        self._by_name = dict(zip(members.names, ids.tolist(), strict=True))
        known = members.weights[members.weights > 0]
        self._known_weights = members.weights
        self._weights = np.where(members.weights > 0, members.weights, known.mean() if len(known) else 1.0)
        self._holds = np.where(members.weights > 0, members.weights, np.inf) if self._by_volume else self._weights
        self._forget_what_newcomers_hold()

    def knows(self, ids: Ids) -> bool:
        """Whether all ids have been members at some time."""
        return not len(ids) or (int(ids.min()) >= 0 and int(ids.max()) < len(self._progress))

    def report(self, ids: Ids, progress_us: Times, rows: npt.NDArray[np.int64], now_s: float) -> None:
        """Takes progress in: of each member the largest counts. `rows`: how many it has sent since its last report."""
        if len(ids):
            if now_s - self._reported_s > _OUTAGE_S:
                self._lease_from_s = now_s
            self._reported_s = now_s
        self._returned.update(ids[~self._is_expected[ids]].tolist())
        np.maximum.at(self._progress, ids, progress_us)
        np.add.at(self._rows, ids, rows)
        self._has_reported[ids] = True
        self._heard_s[ids] = now_s

    def low_us(self, now_s: float) -> int:
        """The low watermark now; NEVER while there are no members, or none that has been heard of."""
        if not len(self._expected):
            return NEVER
        progress = self._progress[self._expected]
        whole_us = int(progress.min())
        if self._tolerated:
            self._follow_share(self._low_of(progress, self._tolerated), now_s)
        return max(whole_us, self._released_us)

    def _forget_what_newcomers_hold(self) -> None:
        """A low watermark of the share that waits, for its grace or for being committed, must hold for the members of now."""
        low_us = self._low_of(self._progress[self._expected], self._tolerated) if len(self._expected) else NEVER
        while self._of_share and self._of_share[-1][1] > low_us:
            self._of_share.pop()
        self._released_us = min(self._released_us, low_us)

    def _follow_share(self, low_us: int, now_s: float) -> None:
        if low_us > (self._of_share[-1][1] if self._of_share else self._released_us):
            self._of_share.append((now_s, low_us))
        while self._of_share and now_s - self._of_share[0][0] >= self._grace_s:
            self._released_us = self._of_share.popleft()[1]

    def _low_of(self, progress: Times, share: float) -> int:
        allowed = share * float(self._weights.sum())
        count = min(len(progress), max(_FEW, int(2 * share * len(progress))))
        while True:
            lowest = np.argpartition(progress, count - 1)[:count]
            lowest = lowest[np.argsort(progress[lowest], kind="stable")]
            behind = np.cumsum(self._holds[lowest])
            first = int(np.searchsorted(behind, allowed, side="right"))
            if first < count:
                return int(progress[lowest[first]])
            count = min(len(progress), 2 * count)

    def share_below(self, time_us: int) -> float:
        """Which share of all weight has not got to a time."""
        if not len(self._expected):
            return 1.0
        below = self._progress[self._expected] < time_us
        return float(self._weights[below].sum() / self._weights.sum())

    def behind(self, time_us: int) -> list[tuple[str, int]]:
        """The members that have not got to a time, and how far they are."""
        progress = self._progress[self._expected]
        return [(self._names[at], int(progress[at])) for at in np.flatnonzero(progress < time_us).tolist()]

    def lowest(self, count: int, now_s: float) -> list[Standing]:
        """Who holds the watermark: the members that are farthest back."""
        progress = self._progress[self._expected]
        order = np.argsort(progress, kind="stable")[:count]
        total = float(self._weights.sum())
        return [
            Standing(
                self._names[at],
                int(progress[at]),
                now_s - float(self._heard_s[self._expected[at]]),
                float(self._weights[at]) / total,
            )
            for at in order
        ]

    def silent(self, lease_s: float, now_s: float) -> list[str]:
        """Members that have not been heard for longer than their lease, while others were: an outage of those who report for all of them
        is nobody's silence, and behind it each has its whole lease to be heard in. So it is after the start of a server."""
        is_outage = now_s - self._reported_s > _OUTAGE_S
        if is_outage or now_s - self._lease_from_s <= lease_s or not len(self._expected):
            return []
        heard_s = np.maximum(self._heard_s[self._expected], self._lease_from_s)
        return [self._names[at] for at in np.flatnonzero(now_s - heard_s > lease_s).tolist()]

    def take_returned(self) -> list[int]:
        """Ids that have reported and are not expected, since the last time."""
        returned, self._returned = sorted(self._returned), set()
        return returned

    def weigh(self) -> dict[int, float]:
        """The weights for the next version of the membership, by volume: what has come since the last time, and half of what was before."""
        weights = self._rows[self._expected] + self._known_weights / 2
        weights = np.where(self._has_reported[self._expected], np.maximum(weights, _LITTLE), weights)
        self._rows[:] = 0
        return dict(zip(self._expected.tolist(), weights.tolist(), strict=True))

    def _room_for(self, count: int) -> None:
        more = count - len(self._progress)
        if more > 0:
            self._progress = np.concatenate([self._progress, np.full(more, NEVER, np.int64)])
            self._heard_s = np.concatenate([self._heard_s, np.full(more, -np.inf)])
            self._rows = np.concatenate([self._rows, np.zeros(more, np.int64)])
            self._is_expected = np.concatenate([self._is_expected, np.zeros(more, np.bool_)])
            self._has_reported = np.concatenate([self._has_reported, np.zeros(more, np.bool_)])
