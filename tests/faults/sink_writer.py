"""A writer of a target as a process of its own, to be killed: ``python -m tests.faults.sink_writer SETTINGS SEED CHANGES``.

It writes the changes of `history` from where the target says that it stands, prints the offset behind each commit, and opens the target anew
when that has been away.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import closing
from decimal import Decimal
from itertools import count

from headrace import registry
from headrace.errors import RetryableError
from headrace.sinks.base import Position, Sink
from headrace.testing.sink import ORDERS, Change, batch_of, order

KEYS = 3000
PER_COMMIT = 900
PER_BATCH = 300


def commit_of(seed: int, first: int, behind: int) -> list[Change]:
    """The changes of a commit of a source, whose ids are above `first` and not above `behind`."""
    chance = random.Random(f"{seed} {first}")
    return [order(number, chance.randrange(KEYS), chance.choice("iuud")) for number in range(first + 1, behind + 1)]


def history(seed: int, size: int) -> list[Change]:
    """All changes, with ids from 1."""
    firsts = range(0, size, PER_COMMIT)
    return [change for first in firsts for change in commit_of(seed, first, min(first + PER_COMMIT, size))]


def rows_behind(changes: list[Change]) -> list[tuple[object, ...]]:
    """The live rows at the end."""
    newest = {change.values["id"]: change for change in changes}
    live = [change for change in newest.values() if change.op != "d"]
    return sorted((change.values["id"], f"by {change.id}", Decimal(change.id)) for change in live)  # type: ignore[type-var]


def open_sink(settings: dict[str, object]) -> Sink:
    made: type[Sink] = registry.load("sinks", str(settings["type"]))
    sink: Sink = made(made.Config.model_validate(settings), "flow")  # type: ignore[call-arg]
    return sink


def deliver(settings: dict[str, object], seed: int, size: int) -> None:
    with closing(open_sink(settings)) as sink:
        position = sink.position("topic", 0)
        done = position.offset if position else 0
        sink.prepare(ORDERS)
        while done < size:
            until = min(done + PER_COMMIT, size)
            changes = commit_of(seed, done, until)
            for start in range(0, len(changes), PER_BATCH):
                sink.write(batch_of(ORDERS, changes[start : start + PER_BATCH]))
                sink.flush()
            sink.commit(Position("topic", 0, until, until, until))
            done = until
            print(done, flush=True)


def main(settings: dict[str, object], seed: int, size: int) -> int:
    for _ in count():
        try:
            deliver(settings, seed, size)
        except RetryableError as error:
            print(f"away: {error.message}", flush=True)
            time.sleep(0.2)
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
