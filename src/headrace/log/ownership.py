"""Who may write a partition: a lock for those whom it reaches, and an epoch that fences the others.

::

    file `lock`     an flock on it, which the kernel releases when its holder dies; says who holds it
    file `epoch`    | magic HRW1 | u32 crc32 | u64 epoch |     written in place, only by a writer that takes over

Each writer takes the next epoch, durably, before it looks at the log. It looks at `epoch` again before it writes and before
it publishes: another number, or a file that was deleted or replaced, means that it has been fenced. So a writer that flock
did not keep out (another machine on a shared file system, a lock file that was deleted) stops the one before it. What that
one may still do between looking and writing is harmless, because a new writer whose predecessor did not close starts a
segment file of its own: bytes in the old one are behind its end, and a late `end` from the old one is only behind the truth.
"""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from pathlib import Path

from headrace.errors import FencedError, RetryableError
from headrace.log.disk import Disk, OpenFile, storage

_PAUSE_S = 0.02
_HOLDER_BYTES = 256
_MAGIC = b"HRW1"
_EPOCH = struct.Struct("<4sIQ")
_NUMBER = struct.Struct("<Q")


class Ownership:
    """The right to write one partition, from construction until `release` or until somebody else takes it.

    Waits up to `wait_s` for another holder of the lock; RetryableError that names it when it stays.
    """

    def __init__(self, disk: Disk, directory: Path, wait_s: float) -> None:
        self._disk = disk
        self._directory = directory
        self._pid = os.getpid()
        self._lock = _take_lock(disk, directory, wait_s)
        self._file = OpenFile(disk, directory / "epoch", os.O_RDWR | os.O_CREAT)
        self.previous_epoch = self._read() or 0
        self.epoch = self.previous_epoch
        self.is_lost = False

    def advance(self, at_least: int) -> None:
        """Takes the next epoch; from now on every earlier writer is fenced. `at_least` helps when the file was lost."""
        self.epoch = max(self.previous_epoch, at_least) + 1
        number = _NUMBER.pack(self.epoch)
        self._disk.pwrite(self._file.fd, _EPOCH.pack(_MAGIC, zlib.crc32(number), self.epoch), 0)
        self._disk.fdatasync(self._file.fd)

    def require(self) -> None:
        """Raises FencedError when the partition is no longer ours, and for ever after."""
        with storage("read", self._file.path):
            is_ours = self._read() == self.epoch and self._disk.is_linked(self._file.fd)
        if is_ours and not self.is_lost and self._pid == os.getpid():
            return
        self.is_lost = True
        raise FencedError(
            f"{self._directory} was taken over, last by {holder(self._disk, self._directory)}",
            fix="one process writes a partition: stop one of the two; what was acknowledged is in the log",
        )

    def release(self) -> None:
        """Lets others write. Idempotent."""
        self._file.close()
        self._lock.close()

    def _read(self) -> int | None:
        content = self._disk.pread(self._file.fd, _EPOCH.size, 0)
        if len(content) < _EPOCH.size:
            return None
        magic, crc32, epoch = _EPOCH.unpack(content)
        return epoch if magic == _MAGIC and crc32 == zlib.crc32(_NUMBER.pack(epoch)) else None


def holder(disk: Disk, directory: Path) -> str:
    """Who took the lock last, as it described itself."""
    try:
        file = OpenFile(disk, directory / "lock")
        return disk.pread(file.fd, _HOLDER_BYTES, 0).decode("utf-8", "replace") or "another process"
    except OSError:
        return "another process"


def _take_lock(disk: Disk, directory: Path, wait_s: float) -> OpenFile:
    file = OpenFile(disk, directory / "lock", os.O_RDWR | os.O_CREAT)
    give_up_at = time.monotonic() + wait_s
    while not disk.try_lock(file.fd):
        if time.monotonic() >= give_up_at:
            raise RetryableError(
                f"{directory} is being written by {holder(disk, directory)}",
                fix="only one process writes a partition: stop that process, or wait until it has ended",
                retry_after_s=1.0,
            )
        time.sleep(_PAUSE_S)
    me = f"process {os.getpid()} on {socket.gethostname()}".encode()[:_HOLDER_BYTES]
    disk.pwrite(file.fd, me, 0)
    disk.ftruncate(file.fd, len(me))
    return file
