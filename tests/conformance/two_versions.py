"""A table whose columns exchange their names, written in both shapes at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.sinks.base import Position, Sink
from headrace.testing.sink import ORDERS, Change, batch_of, in_threads, order, retried, version_of
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column

KEY, NOTE, AMOUNT = ORDERS.columns
SWAPPED = version_of(
    ORDERS,
    1,
    KEY,
    replace(NOTE, name="amount", born_as="note"),
    replace(AMOUNT, name="note", born_as="amount"),
    Column("size", pa.int32(), "int", initial_default="7"),
)
_KEYS = 40


def written(open_sink: Callable[[], Sink], count: int) -> set[tuple[Any, ...]]:
    """Writes `count` changes, half of them in each shape, by three writers beside each other; id, amount, note and size of the rows."""
    history = [(n, n % _KEYS) for n in range(1, count + 1)]
    random.Random(3).shuffle(history)
    old, new = history[: count // 2], history[count // 2 :]
    before = [batch_of(ORDERS, [order(n, k)]) for n, k in old]
    after = [batch_of(SWAPPED, [Change("u", n, {"id": k, "amount": f"by {n}", "note": n, "size": 3})]) for n, k in new]

    def write(changes: list[ChangeBatch]) -> None:
        with closing(open_sink()) as sink:
            for n, change in enumerate(changes):
                sink.prepare(change.table)
                sink.write(change)
                if n % 9 == 0:
                    sink.commit(Position("topic", 0, n, n, 1))
            sink.commit(Position("topic", 0, len(changes), 1, 1))

    in_threads(*(lambda changes=changes: retried(lambda: write(changes)) for changes in (before, after, before)))
    newest = {k: max(n for n, key in history if key == k) for k in range(_KEYS)}
    is_new = {n for n, _ in new}
    return {(k, f"by {n}", n, 3 if n in is_new else 7) for k, n in newest.items()}
