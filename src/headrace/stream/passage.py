"""Which watermark has passed from the log into a target.

Proof. Let W be the input low watermark of the flow's stage, asked *before* the end E of the partition. W was published by then, so
everyone who was waited for had reported W or more; and a capture reports what is durable on the log. So each row below W, but for those within
the tolerated share, is before E in its partition. When the target has committed up to E or farther, all of them are there: the partition has
passed W. Rows that were on their way are in the part between, which is not passed yet.

Nothing is kept: after a crash the same is asked again, and what has been passed is the server's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.ums.printed import LowWatermark
from headrace.watermark.wire import NEVER

if TYPE_CHECKING:  # loads only where a file asks for a watermark
    from headrace.watermark.client import StageClient


class Passage:
    """Of one partition of a flow, in the thread of its follower."""

    def __init__(self, stage: StageClient, flow: str, member: str) -> None:
        """`flow`: its name with that of its topology, for who reads what it has written."""
        self._stage = stage
        self._flow = flow
        self._member = member
        self._coming: deque[tuple[int, int]] = deque()
        """Ends, with the watermark that holds before them, both growing."""
        self._newest_us = NEVER
        self.passed_us: int | None = None
        """Up to where all partitions of the flow had passed when `look` was called last, for figures."""

    def low_watermark(self) -> LowWatermark | None:
        """Up to where all partitions of the flow have passed; None when that is not known."""
        low_us = self._stage.low().output_us
        return None if low_us == NEVER else LowWatermark(self._flow, low_us)

    def look(self, end: Callable[[], int]) -> int:
        """The end of the partition, asked after the watermark."""
        low = self._stage.low()
        self.passed_us = None if low.output_us == NEVER else low.output_us
        input_us = low.input_us
        found = end()
        if input_us > self._newest_us:
            self._newest_us = input_us
            self._coming.append((found, input_us))
        return found

    def begin(self) -> None:
        """Delivery goes back to the last commit: what is coming is reckoned anew."""
        self._coming.clear()
        self._newest_us = NEVER

    def committed(self, offset: int) -> None:
        """The target has all before an offset."""
        passed_us = NEVER
        while self._coming and self._coming[0][0] <= offset:
            passed_us = self._coming.popleft()[1]
        if passed_us != NEVER:
            self._stage.passed({self._member: passed_us})
