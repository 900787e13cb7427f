"""Answers of a store, kept for a time and up to a number: what is asked of the store is only what is not known.

That a key has no row is an answer too, and kept as long as others. When there are too many, those go that were not asked for longest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from headrace.compute.lookups.base import Key, Lookup, Values, as_texts
from headrace.errors import DataError

_ASKED_TOGETHER = 5_000


class Cached:
    """A lookup and what it has answered. `rows`: how many answers are kept; `ttl_s`: for how long. `has_active`: the last of the values says
    whether the row counts, and is not handed on."""

    def __init__(
        self, lookup: Lookup, *, rows: int, ttl_s: float, has_active: bool = False, clock: Callable[[], float]
    ) -> None:
        self._lookup = lookup
        self._rows = rows
        self._ttl_s = ttl_s
        self._has_active = has_active
        self._clock = clock
        self._answers: OrderedDict[Key, tuple[float, Values | None]] = OrderedDict()
        """By key the time until which it is known, and its row."""
        self.asked = 0
        """How many keys the store was asked for."""

    def find(self, keys: Iterable[Key], *, anew: bool = False) -> dict[Key, Values]:
        """The rows of those keys that have one. `anew`: whatever was answered before. Errors as of `Lookup.find`; DataError when a key has several."""
        now = self._clock()
        found: dict[Key, Values] = {}
        unknown: list[Key] = []
        for key in keys:
            until, values = self._answers.get(key, (0.0, None))
            if anew or until <= now:
                unknown.append(key)
                continue
            self._answers.move_to_end(key)
            if values is not None:
                found[key] = values
        for first in range(0, len(unknown), _ASKED_TOGETHER):
            found |= self._ask(unknown[first : first + _ASKED_TOGETHER], now + self._ttl_s)
        return found

    def check(self) -> None:
        """Finds out whether the store can be used. Errors as of `Lookup.find`."""
        list(self._lookup.find([]))

    def close(self) -> None:
        """Idempotent; answers stay."""
        self._lookup.close()

    def _ask(self, keys: Sequence[Key], until: float) -> dict[Key, Values]:
        same = _Same(keys)
        found: dict[Key, Values] = {}
        for theirs, values in self._lookup.find(keys):
            ours = same.find(theirs)
            if ours is None or (self._has_active and as_texts(values[-1:]) == ("0",)):
                continue
            if ours in found:
                raise DataError(
                    f"a lookup finds more than one row for the key {', '.join(map(str, ours))}",
                    fix="look up by columns that are unique in the store",
                )
            found[ours] = values[:-1] if self._has_active else values
        self.asked += len(keys)
        for key in keys:
            self._answers[key] = until, found.get(key)
        while len(self._answers) > self._rows:
            self._answers.popitem(last=False)
        return found


class _Same:
    """Which of the keys that were asked for a store means. Texts, which cost more, are compared only where it has them in another type."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = {key: key for key in keys}
        self._by_text: dict[Key, Key] = {}

    def find(self, theirs: Key) -> Key | None:
        ours = self._keys.get(theirs)
        if ours is None:
            self._by_text = self._by_text or {as_texts(key): key for key in self._keys}
            ours = self._by_text.get(as_texts(theirs))
        return ours
