"""The writer's lock of a partition: one writer at a time.

The file `lock` carries an flock, which the kernel releases when its holder dies, and says who holds it. Where flock does not
reach (another machine on a shared file system, a lock file that was deleted), the epoch in `end` still fences (writer.py).
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from headrace.errors import RetryableError
from headrace.log.disk import Disk, OpenFile, storage

_PAUSE_S = 0.02
_HOLDER_BYTES = 256


def lock_path(directory: Path) -> Path:
    return directory / "lock"


def take_lock(disk: Disk, directory: Path, wait_s: float) -> OpenFile:
    """The locked lock file, to be kept open as long as the partition is written; waits up to `wait_s` for another holder.

    Raises RetryableError that names the holder when it does not let go in time.
    """
    path = lock_path(directory)
    with storage("lock", path):
        file = OpenFile(disk, path, os.O_RDWR | os.O_CREAT)
        give_up_at = time.monotonic() + wait_s
        while not disk.try_lock(file.fd):
            if time.monotonic() >= give_up_at:
                raise _held(directory, _holder(disk, file))
            time.sleep(_PAUSE_S)
        me = f"process {os.getpid()} on {socket.gethostname()}".encode()[:_HOLDER_BYTES]
        disk.pwrite(file.fd, me, 0)
        disk.ftruncate(file.fd, len(me))
    return file


def holder(disk: Disk, directory: Path) -> str:
    """Who took the lock last, as it described itself."""
    try:
        return _holder(disk, OpenFile(disk, lock_path(directory)))
    except OSError:
        return "nobody"


def _holder(disk: Disk, file: OpenFile) -> str:
    return disk.pread(file.fd, _HOLDER_BYTES, 0).decode("utf-8", "replace") or "another process"


def _held(directory: Path, who: str) -> RetryableError:
    return RetryableError(
        f"{directory} is being written by {who}",
        fix="only one process writes a partition: stop that process, or let this one wait until it has ended",
        retry_after_s=1.0,
    )
