"""What retention drops: whole segments, oldest first, never one with an entry of the last hour, never the newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from headrace.log.disk import Disk, OpenFile
from headrace.log.index import SegmentIndex
from headrace.log.segment import Extent, segment_bases, segment_path
from headrace.model import Model

HOUR_MS = 3_600_000


class Retention(Model):
    """When old entries may go, by whole segments. Without bounds everything is kept."""

    age_s: int | None = Field(default=None, ge=3600)
    """Entries older than this go (seconds, at least an hour)."""
    size_bytes: int | None = Field(default=None, ge=1)
    """The oldest segments go while a partition is larger than this."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept for certain: entries of the last hour, and older ones as long as neither bound is passed."""

    age_ms: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Closed:
    """A segment that is no longer written."""

    base: int
    size_bytes: int
    max_time_ms: int


def expired(closed: Sequence[Closed], keep: Keep, now_ms: int) -> int:
    """How many of the oldest segments may go."""
    total_bytes = sum(segment.size_bytes for segment in closed)
    for number, segment in enumerate(closed):
        age_ms = now_ms - segment.max_time_ms
        too_old = keep.age_ms is not None and age_ms > keep.age_ms
        too_many = keep.size_bytes is not None and total_bytes > keep.size_bytes
        if age_ms <= HOUR_MS or not (too_old or too_many):
            return number
        total_bytes -= segment.size_bytes
    return len(closed)


def closed_segments(disk: Disk, directory: Path, newest: int) -> list[Closed]:
    """The segments before the one that starts at `newest`."""
    found = []
    bases = [base for base in segment_bases(disk, directory) if base < newest]
    for base, stop_offset in zip(bases, [*bases[1:], newest], strict=False):
        file = OpenFile(disk, segment_path(directory, base))
        size_bytes = disk.size_bytes(file.fd)
        extent = Extent(file, size_bytes, stop_offset)
        found.append(Closed(base, size_bytes, SegmentIndex.load(disk, file.path, extent, base).max_time_ms(extent)))
    return found
