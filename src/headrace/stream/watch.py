"""The driver's watch over all paths: how far behind each stage is, and which one nothing comes through any more.

Lag is an upper bound: how long ago the moment was up to which a stage has all that its source had committed. That moment is the
send time of the newest heartbeat that came (ums/change.py says what it proves), or the commit time of the newest transaction when
that is later. Before the first heartbeat nothing is known of it, and nothing is said.

A stage is silent when neither a heartbeat nor anything else came through it for `_PERIODS` periods of its source's heartbeat:
its tasks may live, and yet it is dead. A stage whose task has never told anything is watched as well, with time to start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.flow.spec import PipelineSpec
from headrace.stream.figures import Json
from headrace.stream.statistics import CAPTURED, DELIVERED, Recorder, Stage, parts, stages

_PERIODS = 3
_START_S = 180.0


class Watch:
    """Adds `lag_ms` and `silent` to the figures of each stage; feeds the statistics sources."""

    def __init__(
        self,
        pipelines: Sequence[PipelineSpec],
        *,
        delivers: bool,
        until_idle: bool,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`delivers`: whether flows run here. With `until_idle` stages end one by one, so none is silent."""
        self._sources = [source for pipeline in pipelines for source in pipeline.source]
        self._recorders = [Recorder(pipeline, clock) for pipeline in pipelines]
        self._clock = clock
        self._elapsed = elapsed
        self._paths = {} if until_idle else _watched(pipelines, delivers=delivers)
        self._heard: dict[Stage, _Heard] = {}

    def look(self, figures: dict[str, Json]) -> dict[str, Json]:
        """The figures of all tasks with what they mean now; called often."""
        found = {task: _copied(reported) for task, reported in figures.items()}
        told = stages(found, self._sources)
        meanings = {stage: self._meaning(stage, told.get(stage, {})) for stage in {**self._paths, **told}}
        for stage, meaning in meanings.items():
            if stage not in told and meaning["silent"]:
                _tell(found, stage)
        for stage, part in parts(found, self._sources):
            part.update(meanings[stage])
        for recorder in self._recorders:
            recorder.look(found)
        return found

    def _meaning(self, stage: Stage, part: Json) -> Json:
        meaning: Json = {"lag_ms": self._lag_ms(stage, part)}
        if stage in self._paths:
            meaning["silent"] = self._silence(stage, part)
        return meaning

    def _lag_ms(self, stage: Stage, part: Json) -> float | None:
        newest = part.get("heartbeats", {}).get(stage.source)
        if newest is None:
            return None
        sent_us: int = newest[0]
        commit_ts_us: int = (part.get("position") or {}).get("commit_ts_us") or part.get("commit_ts_us") or 0
        return self._clock() * 1000 - max(sent_us, commit_ts_us) / 1000

    def _silence(self, stage: Stage, part: Json) -> str:
        sign = (part.get("heartbeats"), part.get("ends"), part.get("position"))
        if stage not in self._heard or sign != self._heard[stage].sign:
            self._heard[stage] = _Heard(sign, self._elapsed(), self._clock())
        heard, expected = self._heard[stage], self._paths[stage]
        patience_s = _PERIODS * expected.every_s + expected.gathered_s
        if self._elapsed() - heard.elapsed_s < (patience_s if part else max(patience_s, _START_S)):
            return ""
        since = datetime.fromtimestamp(heard.time_s, UTC)
        return (
            f"nothing comes from {stage} since {since:%Y-%m-%d %H:%M:%S} UTC: no change, and no heartbeat in {_PERIODS}"
            f" times {expected.every_s:g} s"
        )


@dataclass(frozen=True, slots=True)
class _Expected:
    """How often a heartbeat is sent, and how long a target may gather before it lets anything be seen."""

    every_s: float
    gathered_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Heard:
    """The newest sign of life of a stage."""

    sign: object
    elapsed_s: float
    time_s: float


def _watched(pipelines: Sequence[PipelineSpec], *, delivers: bool) -> dict[Stage, _Expected]:
    """Every stage that heartbeats are to reach."""
    found: dict[Stage, _Expected] = {}
    for pipeline in pipelines:
        for source in pipeline.source:
            every_s = source.heartbeat_every_s
            if every_s is None:
                continue
            found[Stage(source.name, CAPTURED)] = _Expected(every_s)
            for flow in pipeline.flows:
                if delivers and flow.may_take(source):
                    gathered_s = getattr(flow.to, "commit_interval", 0.0)
                    found[Stage(source.name, DELIVERED, flow.name)] = _Expected(every_s, gathered_s)
    return found


def _copied(reported: Json) -> Json:
    if "flows" not in reported:
        return dict(reported)
    return {**reported, "flows": {flow: dict(part) for flow, part in reported["flows"].items()}}


def _tell(figures: dict[str, Json], stage: Stage) -> None:
    """Puts an empty report in the place of the one that has not come."""
    part: Json = {"rows": {}, "problem": ""}
    if stage.name == CAPTURED:
        figures[f"capture-{stage.source}"] = part
    else:
        figures.setdefault(f"deliver-{stage.source}", {"flows": {}})["flows"][stage.flow] = part
