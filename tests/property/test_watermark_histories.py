"""Watermark Servers that share a store, through random histories: members join, leave, fall silent and come back, reports come late, again,
out of order and from zombies, servers die. And that wrong servers are caught by the same histories.

What must hold after each step: a committed watermark never falls; nobody sees one that is not committed; when one rises, the expected
members that are behind it are at most the tolerated share, whatever any server has forgotten; an operator is never ahead of its input.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headrace.watermark.server import Lacking, WatermarkServer
from headrace.watermark.store import Published, StageState, WatermarkStore
from headrace.watermark.topology import Topology
from headrace.watermark.tracker import Ids, Times, Tracker
from headrace.watermark.wire import NEVER

HISTORIES = max(40, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 10)
STEPS = 150
SHARE = 0.25
APPLICATION = Topology.model_validate(
    {
        "name": "app",
        "stages": [
            {"name": "logs", "tolerate": SHARE, "by": "hosts", "grace": 3, "lease": 40},
            {"name": "join", "after": ["logs"]},
        ],
    }
)


class World:
    """Two servers, their store, and what was told to any of them."""

    def __init__(self, directory: Path, seed: int, server: type[WatermarkServer], store: type[WatermarkStore]) -> None:
        self.pick = Random(seed)
        self.now_s = 1e6
        self.path = directory / f"{seed}.db"
        self.kinds = server, store
        self.servers = [self.start(), self.start()]
        self.servers[0].register(APPLICATION)
        self.told: dict[tuple[str, str], int] = {}
        self.committed = self.read()
        self.names = 0
        for _ in range(4):
            self.join()
        self.server().join("app", "join", ["op"])

    def start(self) -> WatermarkServer:
        server, store = self.kinds
        started = server(store(f"sqlite:///{self.path}", lambda: self.now_s), lambda: self.now_s)
        started.open()
        return started

    def server(self) -> WatermarkServer:
        return self.pick.choice(self.servers)

    def rows(self, query: str) -> list[tuple[str, ...]]:
        with sqlite3.connect(self.path) as connection:
            found = connection.execute(query).fetchall()
        connection.close()
        return found

    def read(self) -> dict[str, int]:
        return {str(name): int(low) for name, low in self.rows("SELECT name, published_us FROM watermark_stages")}

    def expected(self, stage: str) -> dict[str, int]:
        """The members of a stage by the store, with the farthest that any server was ever told."""
        query = (
            "SELECT m.name, m.since_us FROM watermark_members m JOIN watermark_stages s ON m.stage = s.id "
            f"WHERE s.name = '{stage}' AND m.state = 'expected'"
        )
        return {name: max(int(since), self.told.get((stage, name), NEVER)) for name, since in self.rows(query)}

    def join(self) -> None:
        self.names += 1
        self.server().join("app", "logs", [f"h{self.names}"])

    def leave(self) -> None:
        if len(hosts := sorted(self.expected("logs"))) > 2:
            self.server().leave("app", "logs", [self.pick.choice(hosts)])

    def report(self, stage: str, name: str, progress_us: int) -> None:
        """To one server or both, once or twice."""
        before = self.told.get((stage, name), NEVER)
        self.told[stage, name] = max(before, progress_us)
        for server in self.servers:
            if self.pick.random() < 0.8:
                for _ in range(self.pick.choice((1, 1, 2))):
                    ids = np.array(list(server.join("app", stage, [name]).values()), np.int64)
                    server.report("app", stage, ids, np.array([progress_us]), np.array([1]))

    def hosts_report(self) -> None:
        for name in sorted(self.expected("logs")):
            if self.pick.random() < 0.7:
                ahead = self.pick.choice((0, 1, 1, 2, 5, -4))  # -4: an old report comes after a newer one
                self.report("logs", name, max(0, self.told.get(("logs", name), 10) + ahead))

    def operator_reports(self) -> None:
        input_us = self.server().watermarks("app", "join").input_us
        self.report("join", "op", max(0, input_us - self.pick.choice((0, 0, 2))))

    def crash(self) -> None:
        self.servers[self.pick.randrange(2)] = self.start()

    def tick(self) -> None:
        self.server().tick()

    def wait(self) -> None:
        self.now_s += self.pick.choice((0.1, 1, 5, 15))

    def step(self) -> None:
        does = (self.hosts_report, self.operator_reports, self.tick, self.tick, self.tick, self.wait, self.join)
        self.pick.choices((*does, self.leave, self.crash), (6, 3, 3, 3, 3, 4, 1, 1, 1))[0]()
        self.check()

    def check(self) -> None:
        before, self.committed = self.committed, self.read()
        for server in self.servers:
            for stage, low_us in self.committed.items():
                assert server.watermarks("app", stage).output_us <= low_us, "seen before it was committed"
        for stage, low_us in self.committed.items():
            assert low_us >= before[stage], "it went back"
        assert self.committed["join"] <= self.committed["logs"]
        for stage, share in (("logs", SHARE), ("join", 0.0)):
            if self.committed[stage] > before[stage]:
                members = self.expected(stage)
                behind = [name for name, progress_us in members.items() if progress_us < self.committed[stage]]
                assert len(behind) <= share * len(members), f"{behind} of {members} are behind {self.committed[stage]}"
        if self.committed != before:
            self.check_names()

    def check_names(self) -> None:
        """Whoever is behind what has left the application is named."""
        members = self.expected("logs")
        for server in self.servers:
            low_us, lacking = server.complete("app")
            behind = {name for name, progress_us in members.items() if progress_us < low_us}
            assert behind <= {one.name for one in lacking}, "not named"


def live(
    directory: Path,
    seeds: Iterable[int],
    server: type[WatermarkServer] = WatermarkServer,
    store: type[WatermarkStore] = WatermarkStore,
) -> int:
    """How often a watermark rose in all of these histories."""
    rises = 0
    for seed in seeds:
        world = World(directory, seed, server, store)
        for _ in range(STEPS):
            before = world.committed
            world.step()
            rises += sum(low_us > before[stage] for stage, low_us in world.committed.items())
    return rises


class TicksMeanwhile(WatermarkStore):
    """Does something once, when the topologies have been asked for."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def topologies(self) -> list[Topology]:
        found = super().topologies()
        does, self.meanwhile = self.meanwhile, TicksMeanwhile.meanwhile
        does()
        return found


def test_a_tick_while_a_changed_topology_is_taken_in_does_not_let_its_watermark_fall(tmp_path: Path) -> None:
    store = TicksMeanwhile(f"sqlite:///{tmp_path / 'store.db'}")
    server = WatermarkServer(store, lambda: 1e6)
    server.open()
    server.register(APPLICATION)
    ids = np.array(list(server.join("app", "logs", ["h1"]).values()), np.int64)
    server.tick()  # from now on with the members of now
    server.report("app", "logs", ids, np.array([50]), np.array([1]))
    store.meanwhile = server.tick
    [logs, *others] = APPLICATION.stages
    server.register(Topology(name="app", stages=[logs.model_copy(update={"lease": 60.0}), *others]))
    assert store.publish([]).stages[0].published_us == 50
    assert server.watermarks("app", "logs").output_us == 50


@pytest.mark.parametrize("part", range(4))
def test_it_never_falls_and_is_never_ahead(tmp_path: Path, part: int) -> None:
    seeds = range(part, HISTORIES, 4)
    assert live(tmp_path, seeds) > 3 * len(seeds)


class Unfenced(WatermarkStore):
    """Commits what was reckoned with members of yesterday."""

    def publish(self, lows: Iterable[tuple[StageState, int]]) -> Published:
        now = {state.id: state for state in super().publish([]).stages}
        return super().publish([(replace(state, version=now[state.id].version), low_us) for state, low_us in lows])


class KeepsTheNewest(WatermarkStore):
    """Commits what comes, also when another server has committed more."""

    def publish(self, lows: Iterable[tuple[StageState, int]]) -> Published:
        with sqlite3.connect(str(self._engine.url.database)) as connection:
            for stage, low_us in lows:
                wanted = (low_us, stage.id, stage.version)
                connection.execute("UPDATE watermark_stages SET published_us = ? WHERE id = ? AND version = ?", wanted)
        connection.close()
        return super().publish([])


class PublishesFirst(WatermarkServer):
    """Tells a watermark, and commits it with the next one."""

    def tick(self) -> None:
        super().tick()
        for topology in self._topologies.values():
            for state, low_us in self._lows(topology, self._clock()):
                topology.stages[state.name].state = replace(state, published_us=low_us)


class Nameless(WatermarkServer):
    """Does not say whom a watermark has not waited for."""

    def complete(self, topology: str) -> tuple[int, list[Lacking]]:
        return super().complete(topology)[0], []


class ReportersOnly(Tracker):
    """Waits for nobody whom it has not heard itself."""

    def __init__(self, *arguments: float, by_volume: bool) -> None:
        super().__init__(*arguments, by_volume=by_volume)
        self._heard: set[int] = set()

    def report(self, ids: Ids, progress_us: Times, rows: Times, now_s: float) -> None:
        super().report(ids, progress_us, rows, now_s)
        self._heard.update(ids.tolist())

    def low_us(self, now_s: float) -> int:
        whole = self._expected, self._weights, self._holds
        heard = np.array([member in self._heard for member in self._expected.tolist()], np.bool_)
        self._expected, self._weights, self._holds = (column[heard] for column in whole)
        try:
            return super().low_us(now_s)
        finally:
            self._expected, self._weights, self._holds = whole


@pytest.mark.parametrize(
    ("server", "store", "told"),
    [
        (WatermarkServer, Unfenced, "are behind"),
        (WatermarkServer, KeepsTheNewest, "it went back|seen before it was committed"),
        (PublishesFirst, WatermarkStore, "seen before it was committed"),
        (Nameless, WatermarkStore, "not named"),
    ],
)
def test_wrong_servers_are_caught(
    tmp_path: Path, server: type[WatermarkServer], store: type[WatermarkStore], told: str
) -> None:
    with pytest.raises(AssertionError, match=told):
        live(tmp_path, range(200), server, store)


def test_a_server_that_waits_only_for_reporters_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.watermark.server.Tracker", ReportersOnly)
    with pytest.raises(AssertionError, match="are behind"):
        live(tmp_path, range(200))
