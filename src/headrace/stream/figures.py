"""Figures of a whole run: what its finished epochs have reported, and on top what the current ones report so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from headrace.capture.runner import Captured
from headrace.capture.stage import Passed
from headrace.stream.deliver import Delivered

Json = dict[str, Any]
Progress = Callable[[dict[str, Json]], None]
"""What is called with the newest figures of every task."""
_SUMMED = ("commits", "retries", "rows", "failed", "bytes", "latency", "latency_ms", "disordered", "overdue")


_DISORDERED_TOLD = 5
"""Of so many hosts it is said."""


class Figures:
    """Adds up epochs per task. `finished` is called from Spark's thread, `now` from the driver's."""

    def __init__(self) -> None:
        self._finished: dict[str, tuple[int, Json]] = {}
        self._lock = threading.Lock()

    def finished(self, task: str, epoch: int, message: Json) -> None:
        """An epoch of a task has ended with this message."""
        with self._lock:
            _, before = self._finished.get(task, (0, {}))
            self._finished[task] = (epoch, added_figures(before, message))

    def now(self, reports: dict[str, Json]) -> dict[str, Json]:
        """Per task the sum; `reports` are the newest figures of each task, with the `epoch` that they belong to."""
        found: dict[str, Json] = {}
        with self._lock:
            for task in sorted({*self._finished, *reports}):
                epoch, before = self._finished.get(task, (0, {}))
                current = reports.get(task, {})
                found[task] = added_figures(before, current) if current.get("epoch", 0) > epoch else before
        return found


def capture_figures(captured: Captured) -> Json:
    """What a capture reports."""
    return {
        **passed_figures(captured),
        "ends": {str(partition): end for partition, end in captured.ends.items()},
        "position": captured.mark.position if captured.mark else None,
        "commit_ts_us": captured.mark.commit_ts_us if captured.mark else None,
        "disordered": dict(captured.disordered),
        "notices": [*captured.notices, *_of_disorder(captured.disordered)],
        "problem": captured.problem,
    }


def _of_disorder(rows: Mapping[str, int]) -> list[str]:
    """Rows of hosts that are not in the order of their times: said by host once, not with each number."""
    return [
        f"rows of host {host} are not in the order of their times (their number: `disordered` in the figures): windows that were closed"
        " before they came are amended; write each host's log in order, and to one partition"
        for host in sorted(rows)[:_DISORDERED_TOLD]
    ]


def delivery_figures(delivered: Delivered) -> Json:
    """What a flow's follower reports."""
    delays = sorted(delivered.delay_ms)
    return {
        **passed_figures(delivered),
        "overdue": dict(delivered.overdue),
        "waiting": delivered.waiting,
        "commits": delivered.commits,
        "committed_ms": delivered.committed_ms,
        "notices": delivered.notices,
        "problem": delivered.problem,
        "delay_p50_ms": delays[len(delays) // 2] if delays else None,
        "delay_p99_ms": delays[len(delays) * 99 // 100] if delays else None,
        "position": asdict(delivered.position) if delivered.position else None,
    }


class Throttle:
    """Says when something that may be done often is due again."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every_s
        return True


def passed_figures(passed: Passed) -> Json:
    """What a task reports of a stage, while another thread may be at work on it: what can grow meanwhile is copied, not walked over."""
    latency = {namespace: dict(steps) for namespace, steps in dict(passed.latency).items()}
    heartbeats = dict(passed.heartbeats)
    return {
        "rows": dict(passed.rows),
        "failed": dict(passed.failed),
        "bytes": dict(passed.bytes),
        "latency": {
            namespace: {str(step): rows for step, rows in steps.items()} for namespace, steps in latency.items()
        },
        "latency_ms": dict(passed.latency_ms),
        "heartbeats": {path: [arrival.sent_us, arrival.at_us] for path, arrival in heartbeats.items()},
        "retries": passed.retries,
    }


def added_figures(before: Json, later: Json) -> Json:
    """Figures of two epochs, or of two parts of the same work: counts add up, of states the later one counts."""
    found = {**before, **{key: value for key, value in later.items() if value is not None}}
    for key in _SUMMED:
        if key in before and key in later:
            found[key] = _added(before[key], later[key])
    if "heartbeats" in before and "heartbeats" in later:
        # The log is read again from an older position: a heartbeat that comes a second time was there when it came first.
        known = before["heartbeats"]
        new = {
            path: beat for path, beat in later["heartbeats"].items() if path not in known or beat[0] > known[path][0]
        }
        found["heartbeats"] = {**known, **new}
    if "flows" in before and "flows" in later:
        names = {**before["flows"], **later["flows"]}
        found["flows"] = {
            name: added_figures(before["flows"].get(name, {}), later["flows"].get(name, {})) for name in names
        }
    return found


def figures_beside(one: Json, other: Json) -> Json:
    """Figures of two parts of a stage that work side by side: counts add up, and the stage is as far as the one that is behind."""
    found = added_figures(one, other)
    found["problem"] = one.get("problem") or other.get("problem") or ""
    if "heartbeats" in one and "heartbeats" in other:
        paths = one["heartbeats"].keys() & other["heartbeats"].keys()
        found["heartbeats"] = {path: min(one["heartbeats"][path], other["heartbeats"][path]) for path in sorted(paths)}
    waiting = [part["waiting"] for part in (one, other) if part.get("waiting") is not None]
    if waiting:
        found["waiting"] = sum(waiting)
    positions = [part["position"] for part in (one, other) if "position" in part]
    if positions:
        found["position"] = None if None in positions else min(positions, key=lambda reached: reached["commit_ts_us"])
    return found


def _added(before: Any, later: Any) -> Any:
    """The sum of two numbers, or of the numbers under each name."""
    if not isinstance(before, dict):
        return before + later
    return {
        name: _added(before[name], later[name]) if name in before and name in later else {**before, **later}[name]
        for name in {**before, **later}
    }
