"""Trying again: the only place where headrace waits and repeats.

The delay grows by half each time (full jitter between half and the whole of it), from the error's own `retry_after_s` up to
`longest_s`. When `give_up_after_s` has passed since the first failure, the last error is raised as it is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import FencedError, RetryableError

T = TypeVar("T")


def retrying(
    action: Callable[[], T],
    *,
    give_up_after_s: float,
    longest_s: float = 5.0,
    on_retry: Callable[[RetryableError, float], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Runs `action` until it returns; a RetryableError is waited out, every other error goes through.

    `on_retry` is called before each pause with the error and the pause in seconds. FencedError is never retried here: what
    was fenced must not write again.
    """
    started_at: float | None = None
    delay_s = 0.0
    while True:
        try:
            return action()
        except FencedError:
            raise
        except RetryableError as error:
            now = clock()
            started_at = now if started_at is None else started_at
            delay_s = min(longest_s, max(error.retry_after_s, delay_s * 1.5))
            if now - started_at + delay_s > give_up_after_s:
                raise
            pause_s = delay_s * random.uniform(0.5, 1.0)
            if on_retry is not None:
                on_retry(error, pause_s)
            sleep(pause_s)
