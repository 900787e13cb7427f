"""A worker that delivers a made-up history into HBase: ``python -m tests.faults.hbase_writer URL TABLE FROM TO``; says what is committed."""

from __future__ import annotations

import random
import sys
from contextlib import closing
from decimal import Decimal

from headrace.sinks.base import Position
from headrace.sinks.hbase import HBaseSink
from headrace.testing.sink import ORDERS, Change, batch_of
from headrace.ums.change import Clear

KEYS = 300
ROWS = 400
CLEARED_AT = 3


def part(number: int) -> list[Change | Clear]:
    """One commit of the source: changes of few keys, many of each, NULLs, deletes; in one of them a TRUNCATE."""
    chance = random.Random(number)
    changes: list[Change | Clear] = []
    for n in range(ROWS):
        id_ = number * 10_000 + n + 1
        if number == CLEARED_AT and n == ROWS // 2:
            changes.append(Clear(ORDERS, id_, id_))
            continue
        note = chance.choice([None, "", f"by {id_}"])
        values = {"id": chance.randrange(KEYS), "note": note, "amount": Decimal(id_)}
        changes.append(Change(chance.choice("iuud"), id_, values))
    return changes


def expected(parts: int) -> list[tuple[object, ...]]:
    """The live rows of the source behind so many commits."""
    rows: dict[object, tuple[object, ...]] = {}
    for number in range(parts):
        for change in part(number):
            if isinstance(change, Clear):
                rows.clear()
            elif change.op == "d":
                rows.pop(change.values["id"], None)
            else:
                rows[change.values["id"]] = tuple(change.values.values())
    return sorted(rows.values(), key=repr)


def open_sink(url: str, table: str) -> HBaseSink:
    settings = {"type": "hbase", "url": url, "table": table, "batch_rows": 50, "timeout": "5s"}
    return HBaseSink(HBaseSink.Config.model_validate(settings), "flow")


def deliver(sink: HBaseSink, number: int) -> None:
    """Writes one commit of the source and commits it."""
    waiting: list[Change] = []
    for change in part(number):
        if isinstance(change, Clear):
            sink.write(batch_of(ORDERS, waiting))
            waiting = []
            sink.clear(change)
        else:
            waiting.append(change)
    sink.write(batch_of(ORDERS, waiting))
    sink.commit(Position("topic", 0, number + 1, number, 0))


def live(url: str, table: str) -> list[tuple[object, ...]]:
    """The live rows that HBase has."""
    with closing(open_sink(url, table)) as sink:
        return sorted((tuple(row.values()) for batch in sink.scan(ORDERS) for row in batch.to_pylist()), key=repr)


def main(url: str, table: str, first: str, last: str) -> None:
    with closing(open_sink(url, table)) as sink:
        sink.prepare(ORDERS)
        print("ready", flush=True)
        for number in range(int(first), int(last)):
            deliver(sink, number)
            print(number + 1, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
