"""How tests wait for what comes: as long as the slowest machine may take, so that only a hang fails."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 480.0


def wait_until(
    happened: Callable[[], object], told: Callable[[], object] = lambda: "", *, every_s: float = 0.02
) -> None:
    """Until it has happened; `told` says what there is when it does not, or raises before as soon as it cannot any more.

    `every_s`: longer where looking costs what happens its time.
    """
    give_up_at = time.monotonic() + HANG_S
    while not happened():
        state = told()
        assert time.monotonic() < give_up_at, f"it did not happen within {HANG_S:.0f} s: {state}"
        time.sleep(every_s)
