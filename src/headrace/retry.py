"""Trying again: the one rule of how long headrace waits before it repeats something, and when it stops."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import FencedError, RetryableError

T = TypeVar("T")


class Backoff:
    """Pauses between attempts: half as long again each time (with jitter) up to `longest_s`, and never shorter than the error's
    `retry_after_s`.

    `failing_since_s` (seconds since 1970) carries an outage over from an earlier instance, so that many short lives do not
    wait for ever; it is None while all is well.
    """

    def __init__(
        self,
        give_up_after_s: float,
        *,
        failing_since_s: float | None = None,
        longest_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.failing_since_s = failing_since_s
        self._give_up_after_s = give_up_after_s
        self._longest_s = longest_s
        self._clock = clock
        self._delay_s = 0.0

    def failed(self, error: RetryableError) -> float:
        """The pause in seconds before the next attempt; raises `error` when it has lasted too long or was fenced."""
        now = self._clock()
        if self.failing_since_s is None:
            self.failing_since_s = now
        if isinstance(error, FencedError) or now - self.failing_since_s >= self._give_up_after_s:
            raise error
        self._delay_s = max(error.retry_after_s, min(self._longest_s, self._delay_s * 1.5))
        return max(error.retry_after_s, self._delay_s * random.uniform(0.5, 1.0))

    def worked(self) -> None:
        """An attempt made progress: the outage is over."""
        self.failing_since_s = None
        self._delay_s = 0.0


def retrying(action: Callable[[], T], *, give_up_after_s: float, sleep: Callable[[float], None] = time.sleep) -> T:
    """Runs `action` until it returns; RetryableErrors are waited out, every other error goes through."""
    backoff = Backoff(give_up_after_s)
    while True:
        try:
            return action()
        except RetryableError as error:
            sleep(backoff.failed(error))
