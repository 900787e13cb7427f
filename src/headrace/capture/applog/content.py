"""The bytes of a log file by their places; of a packed one (``.gz``, ``.bz2``, ``.zst``) those that it was packed from."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from headrace.errors import CorruptError, FatalError, storage_error

_PACKED: dict[str, Literal["gzip", "bz2", "zstd"]] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_SKIP_BYTES = 1 << 20


class Content(Protocol):
    """An open file. It stays readable when its name is taken away. `inode`: which file it is."""

    @property
    def inode(self) -> int: ...

    @property
    def bound(self) -> int:
        """How far it can be read now, at most."""
        ...

    def read(self, offset: int, count: int) -> bytes:
        """Bytes from a place on, fewer than `count` only at the end. CorruptError when a packed file is damaged, or not whole yet."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


def is_packed(name: str) -> bool:
    """Whether a file is packed, by its name."""
    return name.endswith(tuple(_PACKED))


def without_packing(name: str) -> str:
    """The name that a file had before it was packed."""
    return name.rpartition(".")[0] if is_packed(name) else name


def open_content(path: Path) -> Content | None:
    """The file; None when it is not there."""
    try:
        return PackedContent(path) if is_packed(path.name) else PlainContent(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise FatalError(
                f"there are more log files to follow than this process may open: {path}",
                fix="let it open more (`ulimit -n`), or let `files` of the source match fewer",
            ) from error
        raise storage_error("read", path, error) from error


class PlainContent:
    """A file as it is, which may still grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY)
        self._closed = False

    @property
    def inode(self) -> int:
        return self.status.st_ino

    @property
    def bound(self) -> int:
        return self.status.st_size

    def read(self, offset: int, count: int) -> bytes:
        try:
            return os.pread(self._handle, count, offset)
        except OSError as error:
            raise storage_error("read", self._path, error) from error

    @property
    def status(self) -> os.stat_result:
        return os.fstat(self._handle)

    def close(self) -> None:
        if not self._closed:
            os.close(self._handle)
            self._closed = True


class PackedContent:
    """A packed file. It is read forward; going back begins anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self.inode = os.fstat(self._file.fileno()).st_ino
        self.bound = sys.maxsize
        self._begin()

    def read(self, offset: int, count: int) -> bytes:
        try:
            if offset < self._at:
                self._begin()
            while self._at < offset:
                if not (skipped := len(self._stream.read(min(_SKIP_BYTES, offset - self._at)))):
                    return b""
                self._at += skipped
            found: bytes = self._stream.read(count)
        except (OSError, EOFError, pa.ArrowInvalid) as error:
            raise CorruptError(
                f"{self._path} cannot be unpacked behind byte {self._at}: {error}",
                fix="bring back a whole copy; or let capture go on without it (`headrace skip FLOW.yaml`)",
            ) from error
        self._at += len(found)
        return found

    def close(self) -> None:
        self._stream.close()
        self._file.close()

    def _begin(self) -> None:
        self._file.seek(0)
        # Of a handle of its own, as it is closed with the stream: the name may be another file's by now.
        handle = os.fdopen(os.dup(self._file.fileno()), "rb")
        self._stream = pa.CompressedInputStream(pa.PythonFile(handle, "r"), _PACKED[self._path.suffix])
        self._at = 0
