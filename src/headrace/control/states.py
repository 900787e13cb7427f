"""The one state that a pipeline is in, made on the server: what people and programs see is never put together twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.control.pipelines import Pipeline
from headrace.control.runs import Run
from headrace.control.steps import STOP_PATIENCE_S, due_us

Json = Mapping[str, Any]
Name = Literal["stopped", "starting", "running", "stalled", "stopping", "waiting", "failed"]
_NO_NEWS_S = 30.0


@dataclass(frozen=True, slots=True)
class State:
    """`since_us`: when it came to be so. `why` and `fix` are for people; empty when there is nothing to say."""

    name: Name
    since_us: int
    why: str = ""
    fix: str = ""


def state_of(pipeline: Pipeline, run: Run | None, figures: Callable[[], Json], now_us: int) -> State:
    """`figures` are what the newest run has told last (launch.py); they are asked for only when it runs."""
    if run is None:
        return State("starting" if pipeline.wanted == "running" else "stopped", pipeline.changed_us)
    if run.state == "ended":
        return _of_ended(pipeline, run)
    if run.state == "launching":
        return State("starting", run.asked_us)
    if run.state == "stopping":
        assert run.stopping_us is not None
        since_us = run.stopping_us
        if now_us - since_us > STOP_PATIENCE_S * 1e6:
            return State("stopping", since_us, "it does not stop", f"end process {run.pid} on {run.host}")
        return State("stopping", since_us)
    return _of_running(run, figures(), now_us)


def _of_running(run: Run, told: Json, now_us: int) -> State:
    since_us = run.began_us or run.asked_us
    if not told:
        return State("running", since_us, "it has not told anything yet")
    age_s = (now_us - told["at_us"]) / 1e6
    if age_s > _NO_NEWS_S:
        return State(
            "stalled",
            told["at_us"],
            f"no news for {age_s:.0f} s",
            f"look at process {run.pid} on {run.host}, and its log",
        )
    if told["problems"]:
        return State("stalled", since_us, "; ".join(told["problems"]), "look at what it names; it goes on by itself")
    return State("running", since_us)


def _of_ended(pipeline: Pipeline, run: Run) -> State:
    ended_us = run.ended_us or run.asked_us
    if pipeline.wanted == "stopped":
        return State("stopped", ended_us, run.why if run.code not in {0, None} else "", run.fix if run.code else "")
    due = due_us(pipeline, run)
    if due is None:
        return State("failed", ended_us, run.why, run.fix or "correct the flow file, then start it again")
    if due == 0:
        return State("starting", ended_us)
    return State("waiting", ended_us, f"{run.why}; attempt {run.attempt + 1} follows", run.fix)
