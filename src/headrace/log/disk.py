"""The system calls of the embedded log, one method each: the only place in this room that touches a file system.

Tests put a simulated disk in its place, which loses power between any two of these calls (tests/property/disk.py).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import ConfigError, storage_error

NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_RDWR


class Disk:
    """A real file system. Every method raises the OSError of its system call."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        return os.pread(fd, size_bytes, position)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        return os.pwrite(fd, data, position)

    def pwritev(self, fd: int, parts: Sequence[bytes], position: int) -> int:
        return os.pwritev(fd, parts, position)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def size_bytes(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def is_linked(self, fd: int) -> bool:
        """False when the file was deleted or replaced in its directory while it was open."""
        return os.fstat(fd).st_nlink > 0

    def try_lock(self, fd: int) -> bool:
        """Takes the file's exclusive lock, held until its descriptor is closed; False when another holds it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def names(self, directory: Path) -> list[str]:
        return os.listdir(directory)  # noqa: PTH208 - names are what is wanted, not paths

    def mkdir(self, directory: Path) -> None:
        directory.mkdir()

    def unlink(self, path: Path) -> None:
        path.unlink()

    def fsync_directory(self, directory: Path) -> None:
        """Makes the names in a directory durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class OpenFile:
    """A descriptor that closes itself when nobody refers to it any more.

    Iterators over a segment hold their file, so a cache may drop it at any time without closing it under a reader.
    """

    def __init__(self, disk: Disk, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path = path
        self._disk = disk
        self._fd: int | None = None
        self._fd = disk.open(path, flags)

    @property
    def fd(self) -> int:
        assert self._fd is not None, "the file is closed"
        return self._fd

    def read(self, size_bytes: int, position: int) -> bytes:
        """`size_bytes` from `position` on, less only where the file ends; the kernel hands out at most 2 GiB at a time."""
        with storage("read", self.path):
            chunk = self._disk.pread(self.fd, size_bytes, position)
            while len(chunk) < size_bytes:
                more = self._disk.pread(self.fd, size_bytes - len(chunk), position + len(chunk))
                if not more:
                    break
                chunk += more
        return chunk

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._disk.close(fd)

    def __del__(self) -> None:
        self.close()


@contextmanager
def storage(action: str, path: Path) -> Iterator[None]:
    """Turns what the operating system refuses into a message with the path."""
    try:
        yield
    except NotADirectoryError as error:
        in_the_way = next((above for above in (path, *path.parents) if above.is_file()), path)
        raise ConfigError(
            f"{in_the_way} is not a directory, so there is no log in it",
            fix="name the directory of a log, or one that is not there yet",
        ) from error
    except OSError as error:
        raise storage_error(action, path, error) from error


def write_all(disk: Disk, fd: int, parts: Sequence[bytes], position: int) -> None:
    """Writes all parts, one after the other: the kernel may take less at a time, most of all just before a disk is full."""
    written = disk.pwritev(fd, parts, position)
    if written == sum(map(len, parts)):
        return
    left = memoryview(b"".join(parts))[written:]
    while left:
        position += written
        written = disk.pwrite(fd, left, position)
        left = left[written:]
