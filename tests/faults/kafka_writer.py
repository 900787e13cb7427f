"""Writers of numbers to a Kafka log: a thread, and a process that prints each append's last number after it was acknowledged.

Entry number n is n as text, followed by n % 5000 bytes; an append has 1 to 5 entries, so that halves would be seen. At its start
a writer goes on behind the newest entry, as capture does behind the newest mark. Killed by the tests beside it.
"""

from __future__ import annotations

import sys
import threading
import time

from headrace.errors import RetryableError
from headrace.log.base import Entry, last
from headrace.log.kafka import KafkaLog


def value(number: int) -> bytes:
    return b"%d:" % number + b"x" * (number % 5000)


def unit(first: int) -> list[Entry]:
    return [Entry(b"k", value(number), 1 + number) for number in range(first, first + 1 + first % 5)]


def next_number(log: KafkaLog) -> int:
    newest = last(log, "t", 0, b"k".__eq__)
    return 0 if newest is None else int(newest.entry.value.split(b":")[0]) + 1


class Appender:
    """A thread that appends, through outages of the brokers, until it is told to stop."""

    def __init__(self, log: KafkaLog) -> None:
        self.acknowledged: list[int] = []
        """The first number of each append."""
        self.outages = 0
        self._log = log
        self._fatal: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            self._wait()

    def wait_for_an_outage(self) -> None:
        met = self.outages
        while self.outages == met:
            self._wait()

    def stop(self) -> int:
        """How many entries were acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._fatal is None
        newest = self.acknowledged[-1]
        return newest + len(unit(newest))

    def _wait(self) -> None:
        assert self._fatal is None
        time.sleep(0.02)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                number = next_number(self._log)
                self._log.append("t", 0, unit(number))
            except RetryableError as error:
                self.outages += 1
                time.sleep(error.retry_after_s)
            except BaseException as error:
                self._fatal = error
                raise
            else:
                self.acknowledged.append(number)


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
