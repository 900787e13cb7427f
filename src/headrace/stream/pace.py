"""How fast a flow may be: so many rows a second on average, as its target shall bear no more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """Rows are taken as they come, whole entries at once; the next may be taken when the time of these is over. Threads share it."""

    def __init__(self, rows_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows_per_s = rows_per_s
        self._clock = clock
        self._free_at_s = 0.0
        self._lock = threading.Lock()

    def taken(self, rows: int) -> None:
        """So many rows are on their way."""
        with self._lock:
            self._free_at_s = max(self._free_at_s, self._clock()) + rows / self._rows_per_s

    def left_s(self) -> float:
        """How long to wait before more are taken."""
        return max(0.0, self._free_at_s - self._clock())
