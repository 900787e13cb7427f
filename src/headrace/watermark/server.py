"""The Watermark Server: low watermarks of all stages of all topologies, after MillWheel.

::

    own low watermark      of the stage's members (tracker.py)
    input low watermark    the smallest output of the stages that it is after; a source has none
    output low watermark   the smaller of input and own; of a source its own
    global low watermark   the smallest output of the stages that nobody is after: all before it has left the application

An operator's or sink's member reports as progress the smaller of two: the input low watermark that it had *before* it looked for work,
and the time of its oldest unfinished work. Then rows that were on their way are counted by the one side or the other.

Crash story: `tick` reckons, commits (store.py) and only then lets anyone see a watermark. Killed before the commit, nothing was seen;
killed after it, the next server publishes the same or more. What members report is in memory only: they report again within a second, and
until then the watermark stands where it is. Several servers over one store may run at once: clients report to all of them, each reckons
by itself, and the store keeps the largest, all of which were true.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError, RetryableError
from headrace.watermark.naming import Asking
from headrace.watermark.store import Gone, StageState, WatermarkStore
from headrace.watermark.topology import Stage, Topology
from headrace.watermark.tracker import Ids, Standing, Times, Tracker
from headrace.watermark.wire import Watermarks

TICK_S = 0.1
_WEIGH_EVERY_S = 3600.0
_FIRST_WEIGHING_S = 60.0
_LEASE_S = 5.0
"""How long a server that died goes on looking after the members of a stage at least: until then no other does."""
_REMEMBERED = 1000
_REPORTED = 20
"""So many of the lowest members are shown."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage, for people: how far it is, and who holds it."""

    name: str
    watermarks: Watermarks
    version: int
    members: int
    lowest: Sequence[Standing]
    gone: Sequence[Gone]
    trouble: str
    """Why the list of members could not be had; empty when it could."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A member that a watermark did not wait for. `us`: how far it was; when it was given up, if it was abandoned."""

    stage: str
    name: str
    us: int
    is_abandoned: bool


@dataclass(slots=True)
class _Stage:
    """A stage in memory."""

    spec: Stage
    state: StageState
    tracker: Tracker
    asking: Asking | None
    """For the list of its members, when there is one."""
    version: int = -1
    """Of the membership that the tracker has."""
    looked_s: float = -1e9
    weighed_s: float = 0.0
    trouble: str = ""
    published: deque[tuple[int, list[tuple[str, int]]]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """The newest low watermarks of a tolerated share that this server has reckoned, with the members behind each."""

    def behind(self, time_us: int) -> list[tuple[str, int]]:
        """Who was behind a time when this server's watermark passed it, though they may have come since; and who still is, also by another's."""
        then = next((behind for low_us, behind in self.published if low_us >= time_us), [])
        behind = dict(self.tracker.behind(time_us)) | {name: us for name, us in then if us < time_us}
        return sorted(behind.items())


@dataclass(slots=True)
class _Topology:
    spec: Topology
    stages: dict[str, _Stage] = field(default_factory=dict)
    last: Sequence[str] = ()
    """The stages that nobody is after."""

    def __post_init__(self) -> None:
        self.last = [stage.name for stage in self.spec.last()]


class WatermarkServer:
    """All that a server does, without a network. Methods may be called by any thread. `clock`: steady seconds."""

    def __init__(self, store: WatermarkStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.RLock()
        self._topologies: dict[str, _Topology] = {}
        self.life = secrets.randbits(63)
        """Changes when progress is forgotten that clients have told: they then tell all of it again."""
        self._me = str(self.life)
        self._watchers: list[Callable[[], None]] = []
        self._registered = 0
        """Of which registrations the topologies in memory are."""

    def open(self) -> None:
        """Goes on from what the store has."""
        self._store.open()
        self._reload()

    def register(self, topology: Topology) -> None:
        """Takes in a topology, or a changed one of the same name."""
        self._store.register(topology)
        self._reload()

    def names(self) -> list[str]:
        """The topologies."""
        with self._lock:
            return list(self._topologies)

    def spec(self, topology: str) -> Topology:
        return self._topology(topology).spec

    def join(self, topology: str, stage: str, names: Sequence[str]) -> dict[str, int]:
        """Expects members from now on; their ids. Of a stage with a list of expected members only those on it can be named."""
        found = self._stage(topology, stage)
        known = zip(names, self.known(topology, stage, names), strict=True)
        ids = {name: member for name, member in known if member is not None}
        if len(ids) < len(set(names)) and found.spec.expected is None:
            ids = self._store.join(found.state.id, names)
            self._refresh([found])
        return ids

    def known(self, topology: str, stage: str, names: Sequence[str]) -> list[int | None]:
        """The ids of those who are expected, None of others."""
        return list(map(self._stage(topology, stage).tracker.members.get, names))

    def leave(self, topology: str, stage: str, names: Sequence[str]) -> None:
        """Members that have said that nothing will come from them any more."""
        found = self._stage(topology, stage)
        self._store.leave(found.state.id, names, "drained")
        self._refresh([found])

    def report(
        self, topology: str, stage: str, ids: Ids, progress_us: Times, rows: npt.NDArray[np.int64]
    ) -> tuple[Watermarks, int]:
        """Takes progress in, and tells the watermarks and which `life` has taken it in. ConfigError when an id is nobody's: join first."""
        self._stage(topology, stage)
        with self._lock:
            # Looked up again under the lock: a registration may just have put a stage that knows nothing in its place.
            found = self._topologies[topology].stages[stage]
            if not found.tracker.knows(ids):
                raise ConfigError(
                    f"the report names members that stage {stage} of {topology} does not have",
                    fix="join the stage with their names, which tells their ids",
                )
            found.tracker.report(ids, progress_us, rows, self._clock())
            return self._watermarks(self._topologies[topology], found), self.life

    def watermarks(self, topology: str, stage: str) -> Watermarks:
        """What is published. Waits for nobody: while a tick reckons, it is asked thousands of times a second."""
        found = self._topology(topology)
        return self._watermarks(found, self._stage_of(found, stage))

    def complete(self, topology: str) -> tuple[int, list[Lacking]]:
        """The global low watermark, and whom it has not waited for: members within the tolerated share, and abandoned ones."""
        found = self._topology(topology)
        with self._lock:
            [last, *_] = found.stages.values()
            low_us = self._watermarks(found, last).global_us
            sharing = [stage for stage in found.stages.values() if stage.spec.tolerate]
            lacking = [
                Lacking(stage.spec.name, name, us, is_abandoned=False)
                for stage in sharing
                for name, us in stage.behind(low_us)
            ]
        for stage in found.stages.values():
            gone = [each for each in self._store.gone(stage.state.id) if each.state == "abandoned"]
            lacking += [Lacking(stage.spec.name, each.name, each.since_us, is_abandoned=True) for each in gone]
        return low_us, lacking

    def show(self, topology: str) -> list[StageReport]:
        """All stages of a topology, in their order."""
        now_s = self._clock()
        found = self._topology(topology)
        stages = [found.stages[spec.name] for spec in found.spec.in_order()]
        reports = []
        for stage in stages:
            gone = self._store.gone(stage.state.id)
            with self._lock:
                reports.append(
                    StageReport(
                        stage.spec.name,
                        self._watermarks(found, stage),
                        stage.version,
                        len(stage.tracker.members),
                        stage.tracker.lowest(_REPORTED, now_s),
                        gone,
                        stage.trouble,
                    )
                )
        return reports

    def on_publish(self, watcher: Callable[[], None]) -> None:
        """Calls `watcher` after each tick that has published something."""
        self._watchers.append(watcher)

    def tick(self) -> None:
        """Reckons all low watermarks anew, commits them, and publishes them. RetryableError when the store is away."""
        now_s = self._clock()
        self._look_after_members(now_s)
        with self._lock:
            lows = [low for topology in self._topologies.values() for low in self._lows(topology, now_s)]
        published = self._store.publish(lows)
        if published.registered != self._registered:
            self._reload()  # at another server of this store
        with self._lock:
            states = {state.id: state for state in published.stages}
            moved = [stage for stage in self._all() if self._take(stage, states)]
            behind = [stage for stage in self._all() if stage.version != stage.state.version]
        self._refresh(behind)
        if moved:
            for watcher in self._watchers:
                watcher()

    @staticmethod
    def _take(stage: _Stage, states: Mapping[int, StageState]) -> bool:
        """Takes in what the store has; whether the watermark has moved."""
        before = stage.state
        stage.state = states.get(before.id, before)
        return stage.state.published_us > before.published_us

    def _lows(self, topology: _Topology, now_s: float) -> Iterable[tuple[StageState, int]]:
        """What can be published of a topology. A stage is reckoned by what was published of those that it is after."""
        for stage in topology.stages.values():
            low_us = min(stage.tracker.low_us(now_s), self._input_us(topology, stage.spec))
            if low_us > stage.state.published_us and stage.version == stage.state.version:
                if stage.spec.tolerate:
                    stage.published.append((low_us, stage.tracker.behind(low_us)))
                yield stage.state, low_us

    def _watermarks(self, topology: _Topology, stage: _Stage) -> Watermarks:
        """Read from the end to the beginning: watermarks only grow, so without the lock, too, none is ahead of what it follows."""
        ends = min(topology.stages[last].state.published_us for last in topology.last)
        published_us = stage.state.published_us
        return Watermarks(
            self._input_us(topology, stage.spec) if stage.spec.after else published_us, published_us, ends
        )

    @staticmethod
    def _input_us(topology: _Topology, stage: Stage) -> int:
        largest = int(np.iinfo(np.int64).max)
        return min((topology.stages[before].state.published_us for before in stage.after), default=largest)

    def _look_after_members(self, now_s: float) -> None:
        """Lists of expected members, leases and weights: one server does it for each stage."""
        for stage in list(self._all()):
            every_s = _look_every_s(stage.spec)
            if now_s - stage.looked_s >= every_s:
                stage.looked_s = now_s
                if self._leads(stage, every_s):
                    if stage.asking is not None:
                        stage.asking.ask(now_s)
                    self._take_back(stage)
                    self._abandon_silent(stage, stage.spec.lease, now_s)
                    self._weigh(stage, now_s)
            if stage.asking is not None:
                self._follow_list(stage, stage.asking, now_s)

    def _leads(self, stage: _Stage, every_s: float) -> bool:
        """Whether this server looks after a stage."""
        return self._store.lease(f"members of stage {stage.state.id}", self._me, max(_LEASE_S, 3 * every_s))

    def _follow_list(self, stage: _Stage, asking: Asking, now_s: float) -> None:
        """Takes in a list that has come. It may have been long on its way: who does not look after the stage any more leaves it to whoever does."""
        try:
            names = asking.answer(now_s)
        except RetryableError as error:
            stage.trouble = error.message
            return
        if names is None or not self._leads(stage, _look_every_s(stage.spec)):
            return
        stage.trouble = ""
        with self._lock:
            known = set(stage.tracker.members)
        abandoned = {gone.name for gone in self._store.gone(stage.state.id) if gone.state == "abandoned"}
        if new := set(names) - known - abandoned:
            self._store.join(stage.state.id, sorted(new))
        if left := known - set(names):
            self._store.leave(stage.state.id, sorted(left), "drained")
        if new or left:
            self._refresh([stage])

    def _take_back(self, stage: _Stage) -> None:
        with self._lock:
            returned = stage.tracker.take_returned()
        if returned:
            self._store.take_back(stage.state.id, returned)
            self._refresh([stage])

    def _abandon_silent(self, stage: _Stage, lease_s: float | None, now_s: float) -> None:
        if lease_s is None:
            return
        with self._lock:
            silent = stage.tracker.silent(lease_s, now_s)
        if silent:
            self._store.leave(stage.state.id, silent, "abandoned")
            self._refresh([stage])

    def _weigh(self, stage: _Stage, now_s: float) -> None:
        if stage.spec.by != "volume" or not stage.spec.tolerate:
            return
        if now_s - stage.weighed_s < _WEIGH_EVERY_S:
            return
        stage.weighed_s = now_s
        with self._lock:
            weights = stage.tracker.weigh()
        self._store.weigh(stage.state, weights)
        self._refresh([stage])

    def _refresh(self, stages: Iterable[_Stage]) -> None:
        """Reads who is expected in stages."""
        for stage in stages:
            version, members = self._store.membership(stage.state.id)
            with self._lock:
                stage.tracker.expect(members, self._clock())
                stage.version = version

    def _reload(self) -> None:
        """Reads what is registered."""
        published = self._store.publish([])
        states = {(state.topology, state.name): state for state in published.stages}
        found: dict[str, _Topology] = {}
        now_s, forgets = self._clock(), False
        for spec in self._store.topologies():
            known = self._topologies[spec.name].stages if spec.name in self._topologies else {}
            found[spec.name] = _Topology(spec)
            for stage in spec.in_order():
                if (state := states.get((spec.name, stage.name))) is None:
                    return  # registered at this moment: the next tick has all of it
                kept = known.get(stage.name)
                if kept is None or kept.spec != stage:
                    kept, forgets = _new_stage(stage, state, now_s), True
                found[spec.name].stages[stage.name] = kept
        with self._lock:
            if forgets:
                self.life = secrets.randbits(63)
            for before in self._all():
                _go_on(found, before)
            self._topologies, self._registered = found, published.registered
        self._refresh(self._all())

    def _all(self) -> Iterable[_Stage]:
        return [stage for topology in self._topologies.values() for stage in topology.stages.values()]

    def _topology(self, name: str) -> _Topology:
        """Without the lock: `_topologies` is never changed, but another one put in its place."""
        found = self._topologies.get(name)
        if found is None:
            self._reload()  # it may be registered at another server of this store
            found = self._topologies.get(name)
        if found is None:
            there = ", ".join(self._topologies) or "none yet"
            raise ConfigError(f"there is no topology '{name}'", fix=f"register it, or name one of: {there}")
        return found

    def _stage(self, topology: str, name: str) -> _Stage:
        return self._stage_of(self._topology(topology), name)

    @staticmethod
    def _stage_of(topology: _Topology, name: str) -> _Stage:
        stages = topology.stages
        if name not in stages:
            said = f"topology '{topology.spec.name}' has no stage '{name}'"
            raise ConfigError(said, fix=f"name one of: {', '.join(stages)}")
        return stages[name]


def _go_on(found: Mapping[str, _Topology], before: _Stage) -> None:
    """A changed stage goes on where the one before it is: a tick may have published since the store was read."""
    stages = found[before.state.topology].stages if before.state.topology in found else {}
    changed = stages.get(before.spec.name)
    if changed is not None and changed.state.published_us < before.state.published_us:
        changed.state = before.state


def _look_every_s(spec: Stage) -> float:
    return min(spec.expected.every if spec.expected else 10.0, spec.lease / 4 if spec.lease else 10.0)


def _new_stage(spec: Stage, state: StageState, now_s: float) -> _Stage:
    tracker = Tracker(spec.tolerate, spec.grace, now_s, by_volume=spec.by == "volume")
    asking = Asking(spec.expected) if spec.expected else None
    return _Stage(spec, state, tracker, asking, weighed_s=now_s - _WEIGH_EVERY_S + _FIRST_WEIGHING_S)
