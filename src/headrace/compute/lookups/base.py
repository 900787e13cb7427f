"""The contract of a store in which rows are looked up by key.

A lookup is opened by its first `find` and serves one thread. Answers are kept by `cache.py`, so a store keeps none of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import date, time
from decimal import Decimal
from typing import ClassVar

from headrace.model import Component

Key = tuple[object, ...]
"""Values of the columns of a key, as Python has them."""
Values = tuple[object, ...]
"""Values of the columns that are taken; documents within one (dict, list) are kept as JSON."""


class Lookup(ABC):
    """Finds rows of one table by one key."""

    Config: ClassVar[type[Component]]

    @abstractmethod
    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        """The rows that have these keys, in any order, each once; a key that has no row is left out, one that was not asked for does
        no harm.

        `keys` are different, without nulls, and a few thousand at most; without any it is only found out whether the store can be used.
        RetryableError when the store is away (the flow waits for it), ConfigError when
        it has no such table or column or does not let us in.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases connections and files. Idempotent."""


def as_texts(key: Key) -> tuple[str, ...]:
    """Equal for keys that mean the same, though a store has them in another type (10, Decimal(10), "10")."""
    return tuple(value if isinstance(value, str) else _text(value) for value in key)


def _text(value: object) -> str:
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return str(int(value)) if isinstance(value, bool) else str(value)
