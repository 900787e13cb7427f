"""Up to which event time the inputs of a computed table are complete.

With Watermark Servers: what a server says is asked *before* the ends of the partitions, and holds when everything up to those ends was taken (proof at the
head of stream/passage.py). Without: every partition has been taken up to a mark, and no change behind that has an earlier commit time.

Lanes of full loads are not waited for: their rows are as old as they are, and late where windows are over.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.compute.changing.reading import Reading, Taken

Ask = Callable[[], int | None]
"""Says the input watermark of the source, µs since 1970; None while it is not known."""


class Low:
    """Of one source. Never goes back."""

    def __init__(self, reading: Reading, ask: Ask | None, delay_us: int) -> None:
        """`ask`: None where there are no servers."""
        self._reading = reading
        self._ask = ask
        self._delay_us = delay_us
        self._coming: tuple[int, dict[str, int]] | None = None
        self.passed_us: int | None = None
        """No row with an earlier time will come, and all of them are taken; None while that is not known."""

    def look(self) -> None:
        """Asks, before anything is taken."""
        if self._ask is not None and self._coming is None:
            said_us = self._ask()
            if said_us is not None and self._is_news(said_us):
                self._coming = said_us, self._reading.captured_ends()

    def took(self, taken: Taken) -> None:
        """Everything up to there is taken."""
        found = self._reading.commit_low_us(taken) if self._ask is None else self._reached(taken)
        if found is not None and self._is_news(found):
            self.passed_us = found - self._delay_us

    def _reached(self, taken: Taken) -> int | None:
        if self._coming is None:
            return None
        said_us, ends = self._coming
        if any(taken.offsets.get(at, 0) < end for at, end in ends.items()):
            return None
        self._coming = None
        return said_us

    def _is_news(self, said_us: int) -> bool:
        return self.passed_us is None or said_us - self._delay_us > self.passed_us
