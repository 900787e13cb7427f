"""Signs of life of hosts that have nothing to write: lines in their own logs, so that they take the way that their other lines take.

::

    2026-03-02T12:00:00.000000Z headrace-beat

It says: all lines of this log with an earlier time are before it. It is written when the log was quiet for a while, and has the time at which
that began; so an application has that long to write a line of which it has taken the time.

A line is one write at the file's end. A log that ends within a line is being written, and one that is not there is being rotated: both
get none then.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from headrace.errors import ConfigError

BEAT = "headrace-beat"


def beat_line(time_us: int) -> str:
    """The line, without its end."""
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%fZ} {BEAT}"


def beat(log: Path, quiet_s: float) -> bool | None:
    """Gives a log that has been quiet for so long a sign of life; whether it did, None when there is no log. ConfigError when it may not be written."""
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"{log} cannot be written: {error.strerror}",
            fix="run `headrace beat` as a user that may append to the log; directories are no logs",
        ) from error
    try:
        now_s, found = time.time(), os.fstat(descriptor)
        if now_s - found.st_mtime < quiet_s or not _ends_a_line(descriptor, found.st_size):
            return False
        os.write(descriptor, f"{beat_line(round((now_s - quiet_s) * 1e6))}\n".encode())
        return True
    finally:
        os.close(descriptor)


def _ends_a_line(descriptor: int, size_bytes: int) -> bool:
    return size_bytes == 0 or os.pread(descriptor, 1, size_bytes - 1) == b"\n"
