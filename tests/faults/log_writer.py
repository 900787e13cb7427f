"""A process that appends to a log and prints each offset after it was acknowledged. Killed by the tests beside it.

The log is given as JSON, as in a flow file. Entry number n is n as text, followed by n % 5000 bytes; batches have 1 to 5 entries.
"""

from __future__ import annotations

import json
import resource
import sys

from headrace import registry
from headrace.errors import HeadraceError
from headrace.log.base import Entry, Log, Span


def value(number: int) -> bytes:
    return b"%d:" % number + b"x" * (number % 5000)


def opened(config: str) -> Log:
    options = json.loads(config)
    kind = registry.load("logs", options["type"])
    log: Log = kind(kind.Config.model_validate(options))  # type: ignore[attr-defined]
    return log


def count(log: Log) -> int:
    """How many entries there are: offsets have gaps where a writer has begun."""
    span = log.spans("t").get(0, Span(0, 0))
    return sum(1 for _ in log.read("t", 0, span))


def main(config: str, batches: int, largest_file_bytes: int) -> None:
    if largest_file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, resource.RLIM_INFINITY))
    log = opened(config)
    log.append("t", 0, [])
    number = count(log)
    for batch in range(batches):
        entries = [Entry(b"k", value(at), batch) for at in range(number, number + 1 + batch % 5)]
        try:
            log.append("t", 0, entries)
            number += len(entries)
        except HeadraceError as error:
            print(f"error {error}", flush=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            continue
        print(number, flush=True)
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
