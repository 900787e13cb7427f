"""Low watermarks: up to which event time a table is complete. Windows close by nothing else (windows.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from headrace.lake.certificate import Lacking
from headrace.lake.commit import Manifest
from headrace.lake.records import Stream


class LowWatermark(Protocol):
    """Says how far a table has come."""

    name: ClassVar[str]
    """What it is of, for certificates."""

    def low_watermark_us(self) -> int | None:
        """No row with an earlier event time will come, and all that have come are committed in the lake; None while that is not known.

        Microseconds since 1970 UTC. Never goes back. Rows that come though it had passed them are late: they amend their window.
        """
        ...

    def lacking(self) -> tuple[Lacking, ...]:
        """Whom the watermark that was said last has not waited for."""
        ...


class CommitTimes:
    """The sources' own commit time: each stream that brings the table has committed up to a mark, and later changes have the mark's commit
    time or a later one, as that time is monotone (ums/schema.py). The least of the streams counts, and none may be missing.

    A source that is quiet has no newer mark, and so keeps its last window open.
    """

    name: ClassVar[str] = "commit time"

    def __init__(self, manifest: Manifest, members: Sequence[Stream]) -> None:
        """`members`: the streams that are expected, whether they have committed yet or not; the manifest is read, never refreshed."""
        self._manifest = manifest
        self._members = members

    def low_watermark_us(self) -> int | None:
        reached = [self._manifest.reached.get(member) for member in self._members]
        if not reached or None in reached:
            return None
        return min(each.commit_ts_us for each in reached if each is not None)

    def lacking(self) -> tuple[Lacking, ...]:
        """Nobody: all streams are waited for."""
        return ()
