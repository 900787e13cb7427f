"""What there is to be seen of pipelines, in the light of a rule: one reading for each subject that the rule is about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from headrace.control.alerts.course import Reading
from headrace.control.alerts.rules import (
    DiskFull,
    HostSilent,
    LagAbove,
    LatencyAbove,
    LogNumberFell,
    PathSilent,
    RowsSetAside,
    Rule,
    StateIs,
    TableChanged,
    VerificationRed,
    WatermarkBehind,
)
from headrace.control.states import State
from headrace.control.verifications import Verification

Json = Mapping[str, Any]
_SUBJECTS = {"captured": "log of {source}", "delivered": "flow {flow} from {source}"}


@dataclass(frozen=True, slots=True)
class Scene:
    """A pipeline as it is at a moment. `told` is empty while its process has told nothing."""

    pipeline: str
    is_wanted: bool
    """Whether it is to run; of one that stands as it should there is nothing to say but what was found of its data."""
    state: State
    told: Json
    verifications: Sequence[Verification] = ()


def readings(rule: Rule, scene: Scene, now_us: int) -> Iterator[Reading]:
    """All that a rule sees of a pipeline which it is about."""
    when = rule.when
    if isinstance(when, VerificationRed):
        yield from _verified(rule, scene)
    elif scene.is_wanted and isinstance(when, StateIs):
        why = f"{scene.state.name}: {scene.state.why}" if scene.state.why else scene.state.name
        yield Reading(scene.pipeline, "", scene.state.name in when.states, why)
    elif scene.is_wanted and isinstance(when, HostSilent):
        yield from _hosts(scene)
    elif scene.is_wanted and isinstance(when, TableChanged):
        yield from _changed(when, scene, now_us)
    elif scene.is_wanted and isinstance(when, LogNumberFell):
        yield from _numbers(when, scene, now_us)
    elif scene.is_wanted and isinstance(when, DiskFull):
        yield from (
            _disk(scene.pipeline, disk["path"], disk["free_bytes"], disk["total_bytes"], when)
            for disk in scene.told.get("disks", [])
        )
    elif scene.is_wanted:
        yield from _stages(rule, scene, now_us)


def server_disk(when: DiskFull, directory: Path) -> Reading:
    """Of the file system on which the server keeps its files."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        return Reading("", f"disk {directory}", None, str(error))
    return _disk("", str(directory), usage.free, usage.total, when)


def _stages(rule: Rule, scene: Scene, now_us: int) -> Iterator[Reading]:
    for stage in scene.told.get("stages", []):
        if stage["stage"] not in _SUBJECTS or not fnmatchcase(stage["flow"], rule.flow):
            continue
        seen = _of_stage(rule, stage, now_us)
        if seen is not None:
            yield Reading(scene.pipeline, _SUBJECTS[stage["stage"]].format_map(stage), *seen)


def _of_stage(rule: Rule, stage: Json, now_us: int) -> tuple[bool | None, str] | None:
    """Whether it is bad, and in words; None when the rule is not about such a stage."""
    when = rule.when
    is_delivered = stage["stage"] == "delivered"
    if isinstance(when, LagAbove | LatencyAbove):
        if when.stage not in {None, stage["stage"]}:
            return None
        what, value_ms = (
            ("lag", stage["lag_ms"]) if isinstance(when, LagAbove) else ("latency", stage["latency_p99_ms"])
        )
        return _above(what, None if value_ms is None else value_ms / 1000, when.above_s)
    if isinstance(when, WatermarkBehind) and is_delivered:
        reached_us = stage["watermark_us"]
        return _above("watermark's age", None if reached_us is None else (now_us - reached_us) / 1e6, when.above_s)
    if isinstance(when, PathSilent):
        return stage["silent"], "nothing comes through" if stage["silent"] else "it comes through"
    if isinstance(when, RowsSetAside):
        return stage["failed"] > when.above, f"{stage['failed']:,} rows set aside since its process began"
    return None


def _above(what: str, value_s: float | None, limit_s: float) -> tuple[bool | None, str]:
    if value_s is None:
        return None, f"{what} is not known"
    return value_s > limit_s, f"{what} is {value_s:,.1f} s, and may be {limit_s:,g} s"


def _hosts(scene: Scene) -> Iterator[Reading]:
    """One reading for each stage of its watermark, so that a thousand hosts behind a switch are one alert."""
    for stage in scene.told.get("watermarks", []):
        gone = stage["gone"]
        names = ", ".join(gone[:5]) + (f" and {len(gone) - 5:,} more" if len(gone) > 5 else "")
        text = f"not heard of any more: {names}" if gone else "all of them are heard"
        yield Reading(scene.pipeline, f"members of {stage['name']}", bool(gone), text)


def _changed(when: TableChanged, scene: Scene, now_us: int) -> Iterator[Reading]:
    """One reading for each version, so that the next change is an alert of its own."""
    for change in scene.told.get("changed_tables", []):
        table = change["table"].split(".", 2)[2]
        if fnmatchcase(table, when.table):
            is_new = now_us - change["at_us"] < when.within_s * 1_000_000
            yield Reading(scene.pipeline, f"table {change['table']}, {change['became']}", is_new, change["what"])


def _numbers(when: LogNumberFell, scene: Scene, now_us: int) -> Iterator[Reading]:
    for log in scene.told.get("log_numbers", []):
        texts = []
        if (lost := log["lost"]) is not None:
            texts.append(lost["text"])
        if (fell := log["fell"]) is not None and now_us - fell["at_us"] < when.within_s * 1_000_000:
            texts.append(fell["text"])
        yield Reading(scene.pipeline, f"source {log['source']}", bool(texts), "; ".join(texts) or "its numbers grow")


def _verified(rule: Rule, scene: Scene) -> Iterator[Reading]:
    for found in scene.verifications:
        if fnmatchcase(found.flow, rule.flow):
            keys = "" if found.differing_keys is None else f"{found.differing_keys:,} keys differ"
            text = "the same" if found.ok else (keys or found.problem)
            yield Reading(scene.pipeline, f"flow {found.flow}, table {found.source_table}", not found.ok, text)


def _disk(pipeline: str, path: str, free_bytes: int, total_bytes: int, when: DiskFull) -> Reading:
    free_percent = 100 * free_bytes / total_bytes if total_bytes else 0.0
    text = f"{free_percent:.1f} % free ({free_bytes / 1e9:,.1f} GB), wanted {when.below_percent:g} %"
    return Reading(pipeline, f"disk {path}", free_percent < when.below_percent, text)
