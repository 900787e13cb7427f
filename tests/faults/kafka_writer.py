"""A process that appends numbers to a Kafka log and prints each append's last number after it was acknowledged.

Entry number n is n as text, followed by n % 5000 bytes; an append has 1 to 5 entries, so that halves would be seen. At its start
it goes on behind the newest entry, as capture does behind the newest mark. Killed by the tests beside it.
"""

from __future__ import annotations

import sys

from headrace.log.base import Entry, last
from headrace.log.kafka import KafkaLog


def value(number: int) -> bytes:
    return b"%d:" % number + b"x" * (number % 5000)


def unit(first: int) -> list[Entry]:
    return [Entry(b"k", value(number), 1 + number) for number in range(first, first + 1 + first % 5)]


def next_number(log: KafkaLog) -> int:
    newest = last(log, "t", 0, b"k")
    return 0 if newest is None else int(newest.entry.value.split(b":")[0]) + 1


def main(brokers: str, prefix: str) -> None:
    log = KafkaLog(KafkaLog.Config(brokers=brokers, prefix=prefix))
    log.append("t", 0, [])
    number = next_number(log)
    while True:
        entries = unit(number)
        log.append("t", 0, entries)
        number += len(entries)
        print(number - 1, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
