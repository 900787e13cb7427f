"""Low watermarks that applications of headrace have printed on records, as the input watermark of who reads them (ums/printed.py).

Crash story: the newest that were seen stand in the mark. After a crash the ends are asked anew, for the same watermarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.capture.base import NO_PROGRESS, Progress
from headrace.log.kafka.tail import Tail, Taken
from headrace.ums.printed import read


class PrintedWatermarks:
    """Of one source, while it follows its topics."""

    def __init__(self, tail: Tail, seen_us: Mapping[str, int]) -> None:
        self._tail = tail
        self.seen_us = dict(seen_us)
        """By application the newest that was read."""
        self._passed_us: dict[str, int] = {}
        self._coming_us: dict[str, int] = {}
        self._ends: Mapping[str, int] | None = None

    def progress(self, messages: Sequence[Taken]) -> Progress:
        """What is passed when these messages, the newest that were taken, are on the log."""
        for message in messages:
            if (low := read(message.headers)) is not None:
                self.seen_us[low.by] = max(low.us, self.seen_us.get(low.by, low.us))
        if self._ends is None and self.seen_us != self._passed_us:
            self._coming_us, self._ends = dict(self.seen_us), self._tail.ends()
        if self._ends is None or not self._tail.has_read(self._ends):
            return NO_PROGRESS
        self._passed_us, self._ends = self._coming_us, None
        return Progress(self._passed_us)
