"""Figures of a whole run: what its finished epochs have reported, and on top what the current ones report so far."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

Json = dict[str, Any]
_SUMMED = ("commits", "retries")


class Figures:
    """Adds up epochs per task. `finished` is called from Spark's thread, `now` from the driver's."""

    def __init__(self) -> None:
        self._finished: dict[str, tuple[int, Json]] = {}
        self._lock = threading.Lock()

    def finished(self, task: str, epoch: int, message: Json) -> None:
        """An epoch of a task has ended with this message."""
        with self._lock:
            _, before = self._finished.get(task, (0, {}))
            self._finished[task] = (epoch, _sum(before, message))

    def now(self, reports: dict[str, Json]) -> dict[str, Json]:
        """Per task the sum; `reports` are the newest figures of each task, with the `epoch` that they belong to."""
        found: dict[str, Json] = {}
        with self._lock:
            for task in sorted({*self._finished, *reports}):
                epoch, before = self._finished.get(task, (0, {}))
                current = reports.get(task, {})
                found[task] = _sum(before, current) if current.get("epoch", 0) > epoch else before
        return found


def _sum(before: Json, later: Json) -> Json:
    found = {**before, **{key: value for key, value in later.items() if value is not None}}
    if "rows" in before and "rows" in later:
        found["rows"] = dict(Counter(before["rows"]) + Counter(later["rows"]))
    for key in _SUMMED:
        if key in before and key in later:
            found[key] = before[key] + later[key]
    if "flows" in before and "flows" in later:
        names = {**before["flows"], **later["flows"]}
        found["flows"] = {name: _sum(before["flows"].get(name, {}), later["flows"].get(name, {})) for name in names}
    return found
