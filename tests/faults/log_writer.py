"""A process that appends to a log and prints each offset after it was acknowledged. Killed by the tests beside it.

Entry number n is n as text, followed by n % 5000 bytes; batches have 1 to 5 entries.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog


def value(number: int) -> bytes:
    return b"%d:" % number + b"x" * (number % 5000)


def main(path: str, batches: int, largest_file_bytes: int) -> None:
    if largest_file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, resource.RLIM_INFINITY))
    log = DirectoryLog(DirectoryLog.Config(path=Path(path), segment_bytes=300_000))
    number = log.append("t", 0, []).start
    for batch in range(batches):
        entries = [Entry(b"k", value(at), batch) for at in range(number, number + 1 + batch % 5)]
        try:
            number = log.append("t", 0, entries).stop
        except HeadraceError as error:
            print(f"error {error}", flush=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            continue
        print(number, flush=True)
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
