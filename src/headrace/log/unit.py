"""Appends to several partitions of a topic at once: decided by one write, done again by the next writer when they were cut short.

::

    PATH/<topic>/unit-00000000000000000007      the newest unit of the seventh writer of partition 0; written in place
    +-------+-------+--------+-----------+--------------------+-----------+----------+---
    | magic | crc32 | length | partition | batch (record.py)  | partition | batch    | …       length: of all parts
    | HRU1  | u32   | u64    | u64       |                    | u64       |          |
    +-------+-------+--------+-----------+--------------------+-----------+----------+---
                    '---------------------- the crc32 covers all from here on -----------'

A unit is written here and synced (1), then each of its parts is appended to its partition, in their order (2). Only when all are
durable is it acknowledged, and only then may the next one take its place.

Why it is all or nothing. Before (1) is whole nothing of the unit is in any partition, and a torn unit fails its checksum: it was never
there. From then on it is decided: the batches say at which offset they belong, so the next writer of partition 0 appends those that are
missing, and only those, as nobody else has appended there in between. It does so before it appends anything of its own, and dies
in the middle of that without harm, because what it goes by is still there.

Why a writer that was taken over does no harm. Each has a file of its own, named by its epoch (ownership.py). The new one finishes the
newest unit of those before it, then makes its own file durable, then deletes theirs; whoever comes next goes by the file with the
largest epoch. What the old one still writes is read by nobody, and its partitions refuse it. It opens no partition anew without being
the writer of partition 0.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace._native import checksum
from headrace.log.base import Entry
from headrace.log.disk import Disk, OpenFile, storage, write_all
from headrace.log.record import encode, header_at, run_at

_NAME = "unit-"
_DIGITS = 20
_MAGIC = b"HRU1"
_HEAD = struct.Struct("<4sIQ")
_CRC = struct.Struct("<4sI")
_LENGTH = struct.Struct("<Q")
_PARTITION = struct.Struct("<Q")
Parts = dict[int, tuple[int, list[Entry]]]
"""By partition the offset at which entries belong, and the entries."""


class Units:
    """The units of one topic, of the writer of its partition 0. `epoch`: that writer's."""

    def __init__(self, disk: Disk, directory: Path, epoch: int) -> None:
        self._disk = disk
        self._directory = directory
        self._epoch = epoch
        self._file: OpenFile | None = None
        self._in_doubt = False
        self.left = self._newest()
        """What may have to be finished before anything else is appended; the owner empties it when that is done."""

    def decide(self, parts: Mapping[int, tuple[int, Sequence[Entry]]], require: Callable[[], None]) -> None:
        """Makes a unit durable: from here on it is there, whatever happens, once its parts are finished.

        `require` raises when another has become the writer. It is asked when the file is there, so that either that one has found the file,
        or nothing gets into it.
        """
        content: list[bytes] = []
        for partition, (base_offset, entries) in parts.items():
            content += (_PARTITION.pack(partition), *encode(entries, base_offset, self._epoch))
        unit = _LENGTH.pack(sum(map(len, content))) + b"".join(content)
        file = self._open()
        require()
        self._in_doubt = True
        with storage("write", file.path):
            write_all(self._disk, file.fd, [_CRC.pack(_MAGIC, checksum(unit)), unit], 0)
            self._disk.fdatasync(file.fd)
        self._in_doubt = False
        self.left = {partition: (base_offset, list(entries)) for partition, (base_offset, entries) in parts.items()}

    def settle(self) -> None:
        """Takes a unit away for good that the disk refused: it may be there whole, and must not be found once others have been appended."""
        if self._in_doubt:
            file = self._open()
            with storage("cut", file.path):
                self._disk.ftruncate(file.fd, 0)
                self._disk.fdatasync(file.fd)
            self._in_doubt = False

    def take_over(self) -> None:
        """What earlier writers left is finished: theirs no longer counts."""
        self.left = {}
        if epochs := [epoch for epoch in unit_epochs(self._disk, self._directory) if epoch < self._epoch]:
            self._open()
            for epoch in epochs:
                path = _path(self._directory, epoch)
                with storage("delete", path), suppress(FileNotFoundError):
                    self._disk.unlink(path)

    def close(self) -> None:
        """Lets go of the file. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> OpenFile:
        if self._file is None:
            path = _path(self._directory, self._epoch)
            with storage("create", path):
                file = OpenFile(self._disk, path, os.O_RDWR | os.O_CREAT)
                self._disk.fsync_directory(self._directory)
            self._file = file
        return self._file

    def _newest(self) -> Parts:
        """The unit in the file with the largest epoch; empty when it was not decided."""
        epochs = unit_epochs(self._disk, self._directory)
        if not epochs:
            return {}
        path = _path(self._directory, epochs[-1])
        with storage("read", path):
            file = OpenFile(self._disk, path, os.O_RDWR)
            self._disk.fdatasync(
                file.fd
            )  # its writer may have died before: what is acted upon must not be lost afterwards
            content = self._disk.pread(file.fd, self._disk.size_bytes(file.fd), 0)
        if len(content) < _HEAD.size:
            return {}
        magic, crc32, length = _HEAD.unpack_from(content)
        stop = _HEAD.size + length
        if magic != _MAGIC or stop > len(content) or checksum(content, _CRC.size, stop) != crc32:
            return {}
        return _parts(content[:stop])


def unit_epochs(disk: Disk, directory: Path) -> list[int]:
    """The epochs of writers whose units are there, oldest first; none in a topic whose appends are of one partition each."""
    with storage("list", directory):
        try:
            names = disk.names(directory)
        except FileNotFoundError:
            return []
    return sorted(int(name.removeprefix(_NAME)) for name in names if name.startswith(_NAME))


def _path(directory: Path, epoch: int) -> Path:
    return directory / f"{_NAME}{epoch:0{_DIGITS}d}"


def _parts(content: bytes) -> Parts:
    """The parts of a unit whose checksum was right."""
    found: Parts = {}
    at = _HEAD.size
    while at < len(content):
        [partition] = _PARTITION.unpack_from(content, at)
        at += _PARTITION.size
        header = header_at(content, at)
        run = run_at(content, at, header.base_offset, 0, header.next_offset)
        found[partition] = (header.base_offset, [record.entry for record in run.records])
        at += header.length
    return found
