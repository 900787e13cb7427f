"""The reconciler's decisions: in any order of wishes, deaths of processes and deaths of servers there are never two processes of a pipeline, and
when nothing happens any more what is wanted comes to be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.control.launch import End, Seen
from headrace.control.pipelines import Pipeline
from headrace.control.placement import Local
from headrace.control.runs import Run
from headrace.control.steps import STOP_PATIENCE_S, Step, due_us, kind_of_end, next_attempt, next_step

WANTED = Pipeline("shop", 1, "running", 1, Local(), None, 0)
RUN = Run("r", "shop", 1, 1, Local(), "running", "host", 7, 1, 0, 0, None, None, None, "", "")
ALIVE = Seen("host", 7)
SECOND_US = 1_000_000


def step(wanted: Pipeline, run: Run | None, seen: Seen, *, is_submitted: bool = True, now_s: float = 1) -> Step:
    return next_step(wanted, run, seen, is_submitted=is_submitted, now_us=round(now_s * 1e6))


def test_what_is_as_wanted_stays() -> None:
    assert step(WANTED, RUN, ALIVE) is Step.NOTHING
    assert step(replace(WANTED, wanted="stopped"), None, Seen()) is Step.NOTHING


def test_a_process_that_is_to_stop_is_asked_and_then_killed() -> None:
    stopped = replace(WANTED, wanted="stopped")
    assert step(stopped, RUN, ALIVE) is Step.STOP
    stopping = replace(RUN, state="stopping", stopping_us=0)
    assert step(stopped, stopping, ALIVE, now_s=STOP_PATIENCE_S - 1) is Step.STOP
    assert step(stopped, stopping, ALIVE, now_s=STOP_PATIENCE_S + 1) is Step.KILL


def test_a_newer_generation_takes_the_place_of_an_older_one() -> None:
    newer = replace(WANTED, generation=2)
    assert step(newer, RUN, ALIVE) is Step.STOP
    assert step(newer, replace(RUN, state="stopping"), Seen(end=End(0, ""))) is Step.ENDED
    assert step(newer, replace(RUN, state="ended", ended_us=0, code=2), Seen()) is Step.LAUNCH


def test_what_nobody_can_begin_any_more_is_called_off() -> None:
    launching = replace(RUN, state="launching", pid=None)
    assert step(WANTED, launching, Seen()) is Step.NOTHING
    assert step(WANTED, launching, Seen(), is_submitted=False) is Step.CALL_OFF
    assert step(WANTED, launching, Seen(), now_s=Local().patience_s + 1) is Step.CALL_OFF
    assert step(WANTED, launching, ALIVE, is_submitted=False) is Step.BEGUN


def test_failures_wait_longer_and_longer_and_a_good_life_forgives_them() -> None:
    ended = replace(RUN, state="ended", ended_us=0, code=1)
    assert step(WANTED, ended, Seen(), now_s=0.5) is Step.NOTHING
    assert step(WANTED, ended, Seen(), now_s=1) is Step.LAUNCH
    assert [due_us(WANTED, replace(ended, attempt=n)) for n in (1, 2, 3, 20)] == [
        SECOND_US, 2 * SECOND_US, 4 * SECOND_US, 60 * SECOND_US,
    ]  # fmt: skip
    assert next_attempt(WANTED, replace(ended, attempt=3)) == 4
    assert next_attempt(WANTED, replace(ended, attempt=3, ended_us=301 * SECOND_US)) == 1


def test_a_wrong_configuration_waits_for_a_person() -> None:
    wrong = replace(RUN, state="ended", ended_us=0, code=2)
    assert due_us(WANTED, wrong) is None
    assert step(WANTED, wrong, Seen(), now_s=10**6) is Step.NOTHING
    assert step(replace(WANTED, generation=2), wrong, Seen()) is Step.LAUNCH


def test_ends_are_called_by_what_was_wanted() -> None:
    assert kind_of_end(RUN, Seen(end=End(None, ""))) == "lost"
    assert kind_of_end(RUN, Seen(end=End(1, ""))) == "failed"
    assert kind_of_end(RUN, Seen(end=End(0, ""))) == "stopped"
    assert kind_of_end(replace(RUN, state="stopping"), Seen(end=End(None, ""))) == "stopped"


@dataclass
class World:
    """One pipeline; its processes as their claims and ends say, and a server that may die after any half of a step."""

    wanted: Pipeline = WANTED
    run: Run | None = None
    seen: dict[str, Seen] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    """Launches whose process is on its way."""
    submitted: set[str] = field(default_factory=set)
    """Those that the server that lives knows of."""
    now_us: int = 0
    ids: count = field(default_factory=count)  # type: ignore[type-arg]

    def tick(self, *, dies: bool, begins: bool) -> None:
        """`begins`: a launch that is noted gets its process, before the server dies (`dies`)."""
        self.now_us += SECOND_US
        seen = self.seen.get(self.run.id, Seen()) if self.run else Seen()
        known = self.run is not None and self.run.id in self.submitted
        found = next_step(self.wanted, self.run, seen, is_submitted=known, now_us=self.now_us)
        if found is Step.LAUNCH:
            attempt = next_attempt(self.wanted, self.run)
            id_ = str(next(self.ids))
            self.run = replace(
                RUN, id=id_, generation=self.wanted.generation, state="launching", attempt=attempt, pid=None,
                asked_us=self.now_us, began_us=None,
            )  # fmt: skip
            if begins:
                self.begun.add(id_)
                self.submitted.add(id_)
        elif self.run is not None:
            self._take(found, self.run, seen)
        if dies:
            self.submitted.clear()

    def _take(self, found: Step, run: Run, seen: Seen) -> None:
        if found is Step.BEGUN:
            self.run = replace(run, state="running", began_us=self.now_us)
        elif found is Step.STOP:
            self.run = replace(run, state="stopping", stopping_us=run.stopping_us or self.now_us)
            self.seen[run.id] = replace(seen, end=End(0, "stopped"))
        elif found is Step.KILL:
            self.seen[run.id] = replace(seen, end=End(None, "killed"))
        elif found is Step.CALL_OFF and run.id not in self.seen:
            self.seen[run.id] = Seen(end=End(None, "called off"))
            self.run = replace(run, state="ended", ended_us=self.now_us)
        elif found is Step.ENDED:
            assert seen.end is not None
            self.run = replace(run, state="ended", ended_us=self.now_us, code=seen.end.code)

    def begin(self) -> None:
        """Processes that are on their way make their claims, unless those are taken."""
        for id_ in sorted(self.begun):
            self.seen.setdefault(id_, ALIVE)
        self.begun.clear()

    def die(self) -> None:
        self.seen = {id_: replace(seen, end=seen.end or End(None, "killed")) for id_, seen in self.seen.items()}

    def alive(self) -> list[str]:
        return [id_ for id_, seen in self.seen.items() if seen.is_alive]


HAPPENINGS = st.lists(
    st.sampled_from(
        ["tick", "tick", "tick", "crash before", "crash after", "begin", "die", "start", "stop", "restart", "wait"]
    )
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a machine may be busy
@given(HAPPENINGS)
def test_never_two_and_in_the_end_what_is_wanted(happenings: list[str]) -> None:
    world = World()
    for what in happenings:
        if what == "tick" or what.startswith("crash"):
            world.tick(dies=what != "tick", begins=what != "crash before")
        elif what == "begin":
            world.begin()
        elif what == "die":
            world.die()
        elif what == "wait":
            world.now_us += 100 * SECOND_US
        else:
            anew = world.wanted.generation + (what != "stop")
            world.wanted = replace(world.wanted, wanted="stopped" if what == "stop" else "running", generation=anew)
        assert len(world.alive()) <= 1
    for _ in range(400):
        world.tick(dies=False, begins=True)
        world.begin()
        assert len(world.alive()) <= 1
    alive = world.alive()
    if world.wanted.wanted == "stopped":
        assert not alive
    else:
        assert world.run is not None
        assert alive == [world.run.id]
        assert world.run.generation == world.wanted.generation
