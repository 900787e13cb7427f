"""Messages that came, cut into the ranges of loads."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from headrace.doris.config import LoaderConfig
from headrace.doris.ranges import Offsets, Range
from headrace.log.kafka.tail import Taken


class Cut:
    """Messages that are not in a load yet."""

    def __init__(self, config: LoaderConfig, at: Offsets) -> None:
        self._config = config
        self._at = dict(at)
        self._messages: list[Taken] = []
        self._bytes = 0
        self._since = 0.0

    def add(self, grown: Offsets, messages: Sequence[Taken]) -> None:
        """Partitions that were added, and messages as they came."""
        self._at |= grown
        if messages and not self._messages:
            self._since = time.monotonic()
        self._messages += messages
        self._bytes += _size(messages)

    def is_due(self) -> bool:
        """Whether a load is to be made of them."""
        return bool(self._messages) and (
            len(self._messages) >= self._config.batch_rows
            or self._bytes >= self._config.batch_bytes
            or time.monotonic() - self._since >= self._config.batch_wait
        )

    def take(self) -> tuple[Range, list[Taken]]:
        """The first of them, as many as a load may have; `ordered`."""
        count = self._most()
        taken, self._messages = self._messages[:count], self._messages[count:]
        self._bytes = _size(self._messages)
        places = _by_place(taken)
        start = dict(self._at)
        self._at |= {place: of_place[-1].offset + 1 for place, of_place in places.items()}
        return Range(start, dict(self._at)), _joined(places)

    def _most(self) -> int:
        sizes = accumulate(len(one.value or b"") for one in self._messages[: self._config.batch_rows])
        return max(1, bisect_right(list(sizes), self._config.batch_bytes))


def ordered(messages: Sequence[Taken]) -> list[Taken]:
    """By place, and by offset as they came: so the same messages give the same body."""
    return _joined(_by_place(messages))


def _by_place(messages: Sequence[Taken]) -> dict[str, list[Taken]]:
    places: dict[str, list[Taken]] = {}
    for one in messages:
        places.setdefault(one.place, []).append(one)
    return places


def _joined(places: Mapping[str, list[Taken]]) -> list[Taken]:
    return [one for place in sorted(places) for one in places[place]]


def _size(messages: Sequence[Taken]) -> int:
    return sum([len(one.value or b"") for one in messages])
