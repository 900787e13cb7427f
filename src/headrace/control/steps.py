"""What is to be done for a pipeline next: a pure function of what is wanted, what is noted, and what is seen.

::

    (none), ended ──LAUNCH──> launching ──BEGUN──> running ──STOP──> stopping ──ENDED──> ended
                                  │                   └───────ENDED──────────────────────^
                                  └──CALL_OFF (no sign of life, or not wanted any more)──^

**Never two processes**: LAUNCH only comes when the newest run has ended, and a run only ends in the store when its process has (its lock is
free) or can never begin (its claim is taken). **Never none**: whoever asks again and again comes to a process that is alive, of the generation that
is wanted, or to a failure that only a person can change: each other state has a step.
"""

from __future__ import annotations

from enum import Enum, auto

from headrace.control.launch import Seen
from headrace.control.pipelines import Pipeline
from headrace.control.runs import Run

STOP_PATIENCE_S = 120.0
"""How long a process may take to stop at a whole transaction, before it is killed."""
_GOOD_LIFE_S = 300.0
"""Who lived so long had begun well: its end is the first failure, not one more."""
_LONGEST_PAUSE_S = 60.0
_CONFIGURATION = 2
"""The exit code of what only the author of the flow file can change."""


class Step(Enum):
    """One step of the drawing above."""

    NOTHING = auto()
    LAUNCH = auto()
    BEGUN = auto()
    STOP = auto()
    KILL = auto()
    CALL_OFF = auto()
    ENDED = auto()


def next_step(wanted: Pipeline, run: Run | None, seen: Seen, *, is_submitted: bool, now_us: int) -> Step:
    """`seen` is of the newest run. `is_submitted`: the command that was to begin it may still do so."""
    if run is None or run.state == "ended":
        return Step.LAUNCH if wanted.wanted == "running" and _is_due(wanted, run, now_us) else Step.NOTHING
    if seen.end is not None:
        return Step.ENDED
    unwanted = wanted.wanted == "stopped" or run.generation != wanted.generation
    if not seen.is_alive:
        late = now_us - run.asked_us > run.placement.patience_s * 1e6
        return Step.CALL_OFF if unwanted or late or not is_submitted else Step.NOTHING
    if run.state == "launching":
        return Step.BEGUN
    if run.state == "stopping":
        assert run.stopping_us is not None
        late = now_us - run.stopping_us > STOP_PATIENCE_S * 1e6
        return Step.KILL if late else Step.STOP
    return Step.STOP if unwanted else Step.NOTHING


def due_us(wanted: Pipeline, run: Run | None) -> int | None:
    """When a process that is wanted and not there is begun; None when a person must act first."""
    if run is None or run.generation != wanted.generation:
        return 0
    if run.code == _CONFIGURATION:
        return None
    return (run.ended_us or 0) + round(min(_LONGEST_PAUSE_S, 2.0 ** (run.attempt - 1)) * 1e6)


def next_attempt(wanted: Pipeline, before: Run | None) -> int:
    """1, or one more after a failure."""
    if before is None or before.generation != wanted.generation or before.ended_us is None:
        return 1
    lived_us = before.ended_us - before.began_us if before.began_us is not None else 0
    return 1 if lived_us >= _GOOD_LIFE_S * 1e6 else before.attempt + 1


def kind_of_end(run: Run, seen: Seen) -> str:
    """What an end is called in the events."""
    if seen.end is not None and seen.end.code == 0:
        return "stopped"
    if run.state == "stopping":
        return "stopped" if seen.end is None or seen.end.code is None else "failed"
    return "lost" if seen.end is None or seen.end.code is None else "failed"


def _is_due(wanted: Pipeline, run: Run | None, now_us: int) -> bool:
    due = due_us(wanted, run)
    return due is not None and now_us >= due
