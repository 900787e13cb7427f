"""How precise a watermark is: hosts, their delays and their troubles simulated; server, store and client real, on a clock that is simulated.

Each host writes rows by a rate of its own (the busiest 1 % write about a third) in the order of time, and sends them, with a sign of life
each second, after a delay that is its own and varies. A row counts for its window when it was delivered before the window closed. The
*difference* is the share of rows that came later than that: what the windows lack against the offline result, before amendments.
The *closing delay* is from a window's end to its closing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.errors import RetryableError
from headrace.watermark.api import WatermarkApi
from headrace.watermark.client import StageClient, WatermarkClient
from headrace.watermark.embedded import ServingThread
from headrace.watermark.server import WatermarkServer
from headrace.watermark.store import WatermarkStore
from headrace.watermark.topology import Stage, Topology
from headrace.watermark.wire import NEVER

Seconds = npt.NDArray[np.float32]
Counts = npt.NDArray[np.uint16]

START_S = 1_000_000
"""When it begins, in seconds since 1970."""
LENGTH_S = 1500
WINDOWS_S = (60, 300)
_LATE_S = 600.0
_DELAY_S = np.exp(0.5)
"""Of the middle host."""
_NORMAL_S = 200
"""So long all is well, and the server learns what each host writes."""
_AWAY_S = 30
"""So long nobody starts a server again that has died."""
_LEASE_S = 900.0
_LAST_S = LENGTH_S + 1800
_PARTITIONS = 60
_NAME = "simulation"


@dataclass(frozen=True, slots=True)
class Cell:
    """One method in one scenario with windows of one length. `difference`: rows lacking at closing, of all; None: windows that never closed."""

    scenario: str
    method: str
    window_s: int
    difference: float
    close_p50_s: float | None
    close_worst_s: float | None
    unclosed: int


@dataclass(slots=True)
class Traffic:
    """Rows by host and second of their time, when those of a second have arrived, and who is there when.

    `arrives_s`, `rows`: hosts x seconds, seconds since the begin. `joins_s`, `leaves_s`, `dies_s` by host.
    """

    arrives_s: Seconds
    rows: Counts
    joins_s: Seconds
    leaves_s: Seconds
    dies_s: Seconds
    server_dies_s: float = np.inf


Trouble = Callable[[Traffic, np.random.Generator], None]


def simulate(hosts: int, scenarios: Sequence[str], methods: Sequence[str], seed: int = 1) -> Iterator[Cell]:
    """All windows of each scenario, by some of `METHODS`."""
    for name in scenarios:
        traffic = traffic_of(name, hosts, seed)
        precise = {method: how for method, how in PRECISE.items() if method in methods}
        lows = (_precise(traffic, precise) if precise else {}) | _of_newest(traffic)
        for method in methods:
            for window_s in WINDOWS_S:
                yield _cell(name, method, window_s, traffic, lows[method])


def traffic_of(scenario: str, hosts: int, seed: int) -> Traffic:
    """What hosts write in a scenario; the same for the same seed."""
    pick = np.random.default_rng(seed)
    traffic = _usual(hosts, pick)
    SCENARIOS[scenario](traffic, pick)
    return traffic


def _usual(hosts: int, pick: np.random.Generator) -> Traffic:
    rates = pick.pareto(1.2, hosts) + 0.2
    rows = pick.poisson(np.minimum(rates * 2, 60)[:, None], (hosts, LENGTH_S)).astype(np.uint16)
    arrives_s = _delivered(pick.lognormal(np.log(_DELAY_S), 0.5, hosts), pick)
    never = np.full(hosts, np.inf, np.float32)
    return Traffic(arrives_s, rows, np.zeros(hosts, np.float32), never.copy(), never.copy())


def _delivered(own_s: npt.NDArray[np.floating], pick: np.random.Generator) -> Seconds:
    """When each second arrives of hosts with delays of their own, which vary from second to second."""
    delays_s = own_s[:, None] * pick.lognormal(0, 0.3, (len(own_s), LENGTH_S))
    return _in_order(np.arange(1, LENGTH_S + 1) + delays_s)


def _in_order(arrives_s: npt.NDArray[np.floating]) -> Seconds:
    return np.maximum.accumulate(arrives_s, axis=1).astype(np.float32)


def _late(share: float, *, busiest: bool = False) -> Trouble:
    """A share of the hosts falls behind by ten minutes, give or take a few seconds, after a while in which all is well."""

    def trouble(traffic: Traffic, pick: np.random.Generator) -> None:
        count = round(share * len(traffic.rows))
        by_volume = np.argsort(-traffic.rows.sum(axis=1, dtype=np.int64))
        late = by_volume[:count] if busiest else pick.choice(len(traffic.rows), count, replace=False)
        traffic.arrives_s[late, _NORMAL_S:] += _LATE_S + pick.normal(0, 3, (count, 1)).astype(np.float32)

    return trouble


def _lagging_partition(traffic: Traffic, pick: np.random.Generator) -> None:
    """One of 60 partitions of the topic is read two minutes late for ten minutes."""
    in_it = pick.permutation(len(traffic.rows)) % _PARTITIONS == 0
    seconds = np.arange(LENGTH_S)
    lagging = (seconds >= 600) & (seconds < 1200)
    arrives_s = traffic.arrives_s[in_it]
    arrives_s[:, lagging] += 120
    traffic.arrives_s[in_it] = _in_order(arrives_s)


def _bad_clock(traffic: Traffic, pick: np.random.Generator) -> None:
    """One host's clock is ten minutes ahead: what it writes now has a time ten minutes from now."""
    host = int(pick.integers(len(traffic.rows)))
    traffic.rows[host] = np.roll(traffic.rows[host], round(_LATE_S))
    traffic.rows[host, : round(_LATE_S)] = 0
    traffic.arrives_s[host] -= _LATE_S


def _dead_hosts(traffic: Traffic, pick: np.random.Generator) -> None:
    """Two of a thousand hosts die, and nobody says so."""
    dead = pick.choice(len(traffic.rows), max(1, len(traffic.rows) // 500), replace=False)
    traffic.dies_s[dead] = 600
    traffic.rows[dead, 600:] = 0


def _membership(traffic: Traffic, pick: np.random.Generator) -> None:
    """One in a hundred hosts comes later, another one leaves and says so."""
    moved = pick.permutation(len(traffic.rows))
    count = max(1, len(moved) // 100)
    new, old = moved[:count], moved[count : 2 * count]
    traffic.joins_s[new] = 500
    traffic.rows[new, :500] = 0
    traffic.leaves_s[old] = 1000
    traffic.rows[old, 1000:] = 0


def _server_killed(traffic: Traffic, _: np.random.Generator) -> None:
    """The server dies, and is back half a minute later with what its store has."""
    traffic.server_dies_s = 700


def _nothing(_: Traffic, __: np.random.Generator) -> None:
    """All is well."""


def _alike(traffic: Traffic, pick: np.random.Generator) -> None:
    """All is well, and no host is slower than the others for longer than some seconds."""
    traffic.arrives_s = _delivered(np.full(len(traffic.rows), _DELAY_S), pick)


SCENARIOS: dict[str, Trouble] = {
    "none_late": _nothing,
    "alike": _alike,
    "few_late": _late(0.0008),
    "many_late": _late(0.005),
    "busiest_late": _late(0.0008, busiest=True),
    "lagging_partition": _lagging_partition,
    "bad_clock": _bad_clock,
    "dead_hosts": _dead_hosts,
    "membership": _membership,
    "server_killed": _server_killed,
}

PRECISE: dict[str, dict[str, object]] = {
    "precise_hosts_99.9": {"tolerate": 0.001, "by": "hosts", "grace": 0},
    "precise_hosts_99.99": {"tolerate": 0.0001, "by": "hosts", "grace": 0},
    "precise_volume_99.9": {"tolerate": 0.001, "by": "volume", "grace": 0},
    "precise_volume_99.99": {"tolerate": 0.0001, "by": "volume", "grace": 0},
    "precise_volume_99.9_grace15": {"tolerate": 0.001, "by": "volume", "grace": 15},
}
"""The methods of this server, each a stage of its own. The first two are the article's way."""
_BEHIND_NEWEST_S = {f"max_minus_{behind_s}s": behind_s for behind_s in (0, 10, 60, 300)}
METHODS = (*PRECISE, *_BEHIND_NEWEST_S)


def _of_newest(traffic: Traffic) -> dict[str, Seconds]:
    """The watermarks by second that are the newest time that was seen, minus a delay, as in other systems."""
    there = traffic.rows > 0
    times_s = np.broadcast_to(np.arange(1, LENGTH_S + 1, dtype=np.float32), traffic.rows.shape)[there]
    seen_s = np.clip(np.ceil(traffic.arrives_s[there]), 0, _LAST_S - 1).astype(np.int64)
    newest_s = np.full(_LAST_S, -np.inf, np.float32)
    np.maximum.at(newest_s, seen_s, times_s)
    newest_s = np.maximum.accumulate(newest_s)
    return {method: newest_s - np.float32(behind_s) for method, behind_s in _BEHIND_NEWEST_S.items()}


class _Running:
    """A server on loopback, whose clock does not run by itself, and which may die and come back with what its store has."""

    def __init__(self, store: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._server: WatermarkServer | None = None
        self._app: ASGIApp = _nobody
        self._serving = ServingThread(self, lifespan="off")
        self.url = self._serving.start("127.0.0.1", 0)

    def start(self) -> WatermarkServer:
        self._server = WatermarkServer(WatermarkStore(self._store, self._clock), self._clock)
        self._server.open()
        self._app = WatermarkApi(self._server).app()
        return self._server

    def die(self) -> None:
        """As by kill -9: what it had in memory is gone."""
        self._server, self._app = None, _nobody

    def lows_us(self, methods: Iterable[str]) -> dict[str, int]:
        """What it publishes now; nothing while it is dead."""
        if self._server is None:
            return {}
        self._server.tick()
        return {method: self._server.watermarks(_NAME, method).output_us for method in methods}

    def close(self) -> None:
        self._serving.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def _nobody(scope: Scope, receive: Receive, send: Send) -> None:
    """What answers where no server is."""
    await Response(status_code=503)(scope, receive, send)


def _precise(traffic: Traffic, methods: Mapping[str, Mapping[str, object]]) -> dict[str, Seconds]:
    """The watermarks by second that a server publishes for each method."""
    now = [float(START_S)]
    hosts = _Hosts(traffic)
    lows = {method: np.full(_LAST_S, -np.inf, np.float32) for method in methods}
    with tempfile.TemporaryDirectory() as directory:
        stages = [Stage.model_validate({"name": name, "lease": _LEASE_S, **how}) for name, how in methods.items()]
        with closing(_Running(f"sqlite:///{Path(directory) / 'store.db'}", lambda: now[0])) as running:
            running.start().register(Topology(name=_NAME, stages=stages))
            client = WatermarkClient([running.url])
            reporting = [client.stage(_NAME, stage.name, report_every_s=1e9) for stage in stages]
            for second in range(1, _LAST_S):
                now[0] = START_S + second
                if second == traffic.server_dies_s:
                    running.die()
                elif second == traffic.server_dies_s + _AWAY_S:
                    running.start()
                hosts.go_on_to(second, reporting)
                published_us = running.lows_us(methods)
                for method, low_s in lows.items():
                    low_us = published_us.get(method, NEVER)
                    low_s[second] = low_s[second - 1] if low_us == NEVER else low_us / 1e6 - START_S
                if min(low_s[second] for low_s in lows.values()) >= LENGTH_S:
                    break
            for low_s in lows.values():
                low_s[second:] = low_s[second]
            for one in reporting:
                one.close()
            client.close()
    return lows


class _Hosts:
    """What the hosts have delivered by a second, told as a source would."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._names = np.array([f"host{number:05}" for number in range(len(traffic.rows))])
        self._sent = np.concatenate(
            [np.zeros((len(traffic.rows), 1), np.int64), np.cumsum(traffic.rows, axis=1, dtype=np.int64)], axis=1
        )
        self._passed_s = traffic.joins_s.astype(np.int64)
        """Of each host, up to which second of its time all has arrived."""
        self._last_s = np.minimum(np.minimum(traffic.dies_s, traffic.leaves_s), LENGTH_S).astype(np.int64)

    def go_on_to(self, second: int, reporting: Sequence[StageClient]) -> None:
        before_s = self._passed_s.copy()
        self._pass(second)
        moved = np.flatnonzero((self._passed_s > before_s) | (self._traffic.joins_s == second))
        names = self._names[moved].tolist()
        times_us = ((START_S + self._passed_s[moved]) * 1_000_000).tolist()
        rows = (self._sent[moved, self._passed_s[moved]] - self._sent[moved, before_s[moved]]).tolist()
        gone = self._names[(self._traffic.leaves_s == self._passed_s) & (self._passed_s > before_s)].tolist()
        progress_us, counts = dict(zip(names, times_us, strict=True)), dict(zip(names, rows, strict=True))
        for one in reporting:
            one.passed(progress_us, counts)
            with suppress(RetryableError):  # nobody is there: it is told again with the next report
                one.report()
            if gone:
                one.leave(gone)

    def _pass(self, second: int) -> None:
        """Moves each host over the seconds that have arrived by now."""
        going = np.flatnonzero((self._passed_s < self._last_s) & (self._traffic.joins_s < second))
        while len(going):
            arrived = self._traffic.arrives_s[going, self._passed_s[going]] <= second
            going = going[arrived]
            self._passed_s[going] += 1
            going = going[self._passed_s[going] < self._last_s[going]]


def _cell(scenario: str, method: str, window_s: int, traffic: Traffic, low_s: Seconds) -> Cell:
    """Windows between the begin, when late hosts have not been heard yet, and the end, which the newest row must pass."""
    lacking = total = unclosed = 0
    delays_s: list[float] = []
    for end_s in range(2 * max(WINDOWS_S), LENGTH_S - max(_BEHIND_NEWEST_S.values()) + 1, window_s):
        of_window = slice(end_s - window_s, end_s)
        rows = traffic.rows[:, of_window].astype(np.int64)
        total += int(rows.sum())
        passed = np.flatnonzero(low_s >= end_s)
        if not len(passed):
            unclosed += 1
            continue
        closed_s = int(passed[0])
        delays_s.append(closed_s - end_s)
        lacking += int(rows[traffic.arrives_s[:, of_window] > closed_s].sum())
    middle, worst = (float(np.median(delays_s)), max(delays_s)) if delays_s else (None, None)
    return Cell(scenario, method, window_s, lacking / total, middle, worst, unclosed)
