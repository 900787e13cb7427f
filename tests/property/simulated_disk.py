"""A disk in memory that can be killed between any two system calls, lose power, fill up and fail.

What a power loss leaves of a file: its synced bytes and any part of what was written or cut since. A write within one
sector of 512 bytes is there or not; a longer one may be there in part, its sectors in any selection. What it leaves of a
directory: its synced names and the changes since, up to some point.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from headrace.log.disk import Disk

SECTOR_BYTES = 512


class Crash(BaseException):
    """The process is gone; nothing may catch this but the test."""


@dataclass(eq=False)
class File:
    durable: bytes = b""
    content: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)  # (position, data); None: cut at position
    links: int = 0
    locked_by: int | None = None

    def apply(self, position: int, data: bytes | None) -> None:
        _apply(self.content, position, data)
        self.unsynced.append((position, data))

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.unsynced.clear()

    def lose_power(self, random: Random) -> None:
        self.content = bytearray(self.durable)
        for position, data in self.unsynced:
            if random.random() < 0.5:
                _apply(self.content, position, data)
            elif data is not None and random.random() < 0.7:
                _apply_in_part(self.content, position, data, random)
        self.sync()


@dataclass(eq=False)
class Directory:
    durable: dict[str, File | Directory] = field(default_factory=dict)
    names: dict[str, File | Directory] = field(default_factory=dict)
    unsynced: list[tuple[str, File | Directory | None]] = field(default_factory=list)

    def set(self, name: str, node: File | Directory | None) -> None:
        _set(self.names, name, node)
        self.unsynced.append((name, node))

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.unsynced.clear()

    def lose_power(self, random: Random) -> None:
        self.names = dict(self.durable)
        for name, node in self.unsynced[: random.randint(0, len(self.unsynced))]:
            _set(self.names, name, node)
        self.sync()
        for node in self.names.values():
            node.lose_power(random)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
        return
    content.extend(bytes(max(0, position - len(content))))
    content[position : position + len(data)] = data


def _apply_in_part(content: bytearray, position: int, data: bytes, random: Random) -> None:
    """Some bytes at the start, or some of the sectors, the file being as long as any of them needs."""
    if position % SECTOR_BYTES + len(data) <= 64:
        return  # the small files of the log: one sector, whole or not at all
    if random.random() < 0.5:
        _apply(content, position, data[: random.randint(0, len(data))])
        return
    step = random.choice([16, 100, SECTOR_BYTES])
    for at in range(0, len(data), step):
        if random.random() < 0.5:
            _apply(content, position + at, data[at : at + step])


def _set(names: dict[str, File | Directory], name: str, node: File | Directory | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class Machine:
    """The disk that the processes of a history share."""

    def __init__(self) -> None:
        self.root = Directory()

    def node(self, path: Path) -> File | Directory:
        node: File | Directory = self.root
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            if part not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = node.names[part]
        return node

    def directory(self, path: Path) -> Directory:
        node = self.node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node


class Process(Disk):
    """The disk as one process sees it. `calls_left` counts down to its death at a system call that changes something."""

    def __init__(self, machine: Machine, random: Random, *, is_elsewhere: bool = False) -> None:
        self.machine = machine
        self.random = random
        self.is_elsewhere = is_elsewhere  # on another host, where locks do not reach
        self.files: dict[int, File] = {}
        self.next_fd = 3
        self.calls_left: int | None = None
        self.full_after: int | None = None
        self.before_call: Callable[[str], None] = lambda call: None
        self.is_dead = False

    def kill(self) -> None:
        self.is_dead = True
        for fd in list(self.files):
            self.close(fd)

    def open(self, path: Path, flags: int) -> int:
        parent = self.machine.directory(path.parent)
        if path.name not in parent.names and flags & os.O_CREAT:
            self._change("create")
        node = parent.names.get(path.name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        if node is not None and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        if node is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = File(links=1)
            parent.set(path.name, node)
        self.next_fd += 1
        self.files[self.next_fd] = node
        return self.next_fd

    def close(self, fd: int) -> None:
        file = self.files.pop(fd, None)
        if file is not None and file.locked_by == id(self) * 1000 + fd:
            file.locked_by = None

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        return bytes(self.files[fd].content[position : position + size_bytes])

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        data = bytes(data)
        file = self.files[fd] if not self.is_dead else File()
        taken = self.random.randint(0, len(data)) if len(data) > 64 else 0
        try:
            self._change("pwrite")
        except (Crash, OSError):
            if taken:
                file.apply(position, data[:taken])
            raise
        if len(data) > 64 and self.random.random() < 0.2:
            data = data[: max(1, taken)]
        file.apply(position, data)
        return len(data)

    def pwritev(self, fd: int, parts: Sequence[bytes], position: int) -> int:
        return self.pwrite(fd, b"".join(parts), position)

    def fdatasync(self, fd: int) -> None:
        self._change("fdatasync")
        self.files[fd].sync()

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        self._change("ftruncate")
        self.files[fd].apply(size_bytes, None)

    def size_bytes(self, fd: int) -> int:
        return len(self.files[fd].content)

    def is_linked(self, fd: int) -> bool:
        return self.files[fd].links > 0

    def try_lock(self, fd: int) -> bool:
        file = self.files[fd]
        if file.locked_by is not None and not self.is_elsewhere:
            return False
        file.locked_by = id(self) * 1000 + fd
        return True

    def names(self, directory: Path) -> list[str]:
        return list(self.machine.directory(directory).names)

    def mkdir(self, directory: Path) -> None:
        parent = self.machine.directory(directory.parent)
        if directory.name in parent.names:
            raise FileExistsError(errno.EEXIST, "exists", str(directory))
        self._change("mkdir")
        parent.set(directory.name, Directory())

    def unlink(self, path: Path) -> None:
        file = self.machine.node(path)
        assert isinstance(file, File)
        self._change("unlink")
        file.links -= 1
        self.machine.directory(path.parent).set(path.name, None)

    def fsync_directory(self, directory: Path) -> None:
        self._change("fsync_directory")
        self.machine.directory(directory).sync()

    def _change(self, call: str) -> None:
        """Comes before every call that changes something: the place to die, to be refused, or to be overtaken."""
        if self.is_dead:
            raise Crash
        self.before_call(call)
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                self.kill()
                raise Crash
        if self.full_after is not None and call not in ("unlink", "ftruncate"):
            self.full_after -= 1
            if self.full_after < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
