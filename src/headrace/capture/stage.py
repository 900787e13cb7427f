"""What is measured at each stage of a path (in the log; visible in a flow's target): how much has passed, how late, and signs of life.

Lateness is counted in steps, so that figures of many processes and epochs add up, and percentiles of any period can be told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.ums.change import ChangeBatch, Clear, End, Heartbeat
from headrace.ums.schema import COMMIT_TS

STEPS_MS: tuple[int, ...] = tuple(digit * 10**power for power in range(9) for digit in (1, 2, 5))
"""Upper ends of the steps, from 1 ms to 5.8 days; what is later than the last has a step of its own."""
_SAMPLES = 16

Latency = Counter[int]
"""Changes per step, by the number of the step."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A heartbeat at a stage: when it was sent and when it was there, microseconds since 1970 UTC."""

    sent_us: int
    at_us: int


class Passing:
    """Changes and heartbeats on their way into a stage, until they are there."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.heartbeats: list[Heartbeat] = []
        self._committed: list[tuple[str, int, int]] = []

    def add(self, change: ChangeBatch | Clear | End) -> None:
        if isinstance(change, End):
            return
        namespace = str(change.table.namespace)
        self.rows[namespace] += len(change)
        self.bytes[namespace] += change.data.nbytes if isinstance(change, ChangeBatch) else 0
        self._committed += ((namespace, ts_us, rows) for ts_us, rows in _commit_times(change))

    def latencies(self, at_us: int) -> Iterator[tuple[str, int, int]]:
        """Namespace, microseconds since the commit at the source, and how many changes have that age."""
        return ((namespace, at_us - ts_us, rows) for namespace, ts_us, rows in self._committed)


@dataclass(slots=True)
class Passed:
    """What has passed a stage. Counted per namespace; heartbeats by their path."""

    rows: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    """Of the changes in memory, Arrow's way; the log and files are smaller or larger."""
    latency: dict[str, Latency] = field(default_factory=dict)
    """From commit at the source to this stage, clocks as they are."""
    latency_ms: Counter[str] = field(default_factory=Counter)
    """Sum of the same."""
    heartbeats: dict[str, Arrival] = field(default_factory=dict)
    """The newest of each path."""
    failed: Counter[str] = field(default_factory=Counter)
    """Rows that are in the error ledger instead."""
    retries: int = 0

    def passed(self, passing: Passing, at_us: int) -> None:
        """All of `passing` is there now."""
        self.rows.update(passing.rows)
        self.bytes.update(passing.bytes)
        for namespace, age_us, rows in passing.latencies(at_us):
            self.latency.setdefault(namespace, Counter())[step_of(age_us / 1000)] += rows
            self.latency_ms[namespace] += age_us * rows // 1000
        for heartbeat in passing.heartbeats:
            known = self.heartbeats.get(heartbeat.path)
            if known is None or heartbeat.sent_us > known.sent_us:
                self.heartbeats[heartbeat.path] = Arrival(heartbeat.sent_us, at_us)


def step_of(latency_ms: float) -> int:
    """The number of the step; that behind the last one for what is later."""
    return bisect_left(STEPS_MS, latency_ms)


def percentile_ms(latency: Mapping[int, int], share: float) -> float | None:
    """The latency that `share` of the changes do not exceed, spread evenly within a step; None when nothing tells it."""
    total = sum(latency.values())
    rank, seen = share * total, 0
    for step in sorted(latency):
        if seen + latency[step] >= rank and step < len(STEPS_MS) and total:
            low = STEPS_MS[step - 1] if step else 0
            return low + (STEPS_MS[step] - low) * (rank - seen) / latency[step]
        seen += latency[step]
    return None


def _commit_times(change: ChangeBatch | Clear) -> Iterator[tuple[int, int]]:
    """Commit time and number of changes: all when they are few, else of each part of the batch that of its last change.

    Only numbers are kept, as a column would keep its whole block in memory.
    """
    if isinstance(change, Clear):
        yield change.commit_ts_us, 1
        return
    rows = len(change)
    parts = min(rows, _SAMPLES)
    times = change.data.column(COMMIT_TS).view(pa.int64())
    for part in range(parts):
        first, behind = rows * part // parts, rows * (part + 1) // parts
        yield times[behind - 1].as_py(), behind - first
