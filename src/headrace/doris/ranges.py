"""What a load is of: a range of offsets in each partition, and the label that names it.

::

    hr-clicks-web_clicks-5e1f09ab-000042-9f3c1e…                 up to 128 of [-_A-Za-z0-9:]
       |      |          |        |      `- 20 hex digits of SHA-256 over loader, incarnation, database, table, sequence and all offsets
       |      |          |        `- sequence: the number of the load
       |      |          `- 8 hex digits of SHA-256 over loader, database and table: the beginning is of no other loader
       |      `- table, up to 32 characters
       `- loader, up to 24 characters

So a label belongs to its offsets for ever: the same offsets have the same label at each attempt, and no other offsets ever get it, also when a
sequence is counted anew because the store was put back to an older copy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Offsets: TypeAlias = Mapping[str, int]
"""``topic/partition`` -> the next offset."""


@dataclass(frozen=True, slots=True)
class Range:
    """From one state of all partitions to another; a partition that stands only in `end` begins there with its first message."""

    start: Offsets
    end: Offsets

    def moved(self) -> dict[str, tuple[int, int]]:
        """The partitions that have something in it: first offset, and the one behind the last."""
        return {
            place: (self.start[place], stop) for place, stop in sorted(self.end.items()) if self.start[place] < stop
        }

    def __str__(self) -> str:
        return ", ".join(f"{place} {first}..{stop - 1}" for place, (first, stop) in self.moved().items()) or "nothing"


@dataclass(frozen=True, slots=True)
class Job:
    """Who loads what. `incarnation`: made once for a loader; a new one means to load again on purpose."""

    name: str
    incarnation: str
    database: str
    table: str

    @property
    def prefix(self) -> str:
        """What all labels of it begin with, and those of nobody else."""
        return f"hr-{self.name[:24]}-{self.table[:32]}-{_digest([self.name, self.database, self.table])[:8]}-"

    def label(self, sequence: int, range_: Range) -> str:
        """The label of a load."""
        named = [self.name, self.incarnation, self.database, self.table, sequence, range_.moved()]
        return f"{self.prefix}{sequence:06}-{_digest(named)[:20]}"


def _digest(named: list[object]) -> str:
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
