"""A remote file as Arrow reads one: at any place, a range at a time."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pyarrow as pa

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_WHOLE_BYTES = 1 << 20
"""A file up to this size is read in one request: a second one costs more than the bytes."""


def ranged(size_bytes: int, read: Callable[[int, int], bytes]) -> pa.NativeFile:
    """A file of a known size; `read` gives the bytes from a start to a stop."""
    if size_bytes <= _WHOLE_BYTES:
        return pa.BufferReader(read(0, size_bytes))
    return pa.PythonFile(_Ranges(size_bytes, read), mode="r")


class _Ranges(io.RawIOBase):
    def __init__(self, size_bytes: int, read: Callable[[int, int], bytes]) -> None:
        self._size_bytes = size_bytes
        self._read = read
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = begin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """A whole range in one request; `readinto` would copy it once more."""
        stop = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        found = self._read(self._at, stop) if stop > self._at else b""
        self._at += len(found)
        return found

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)


class BufferedTarget:
    """What Arrow writes a file to: small writes reach `write` gathered into large ones."""

    _GATHERED_BYTES = 4 << 20

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.file = pa.BufferedOutputStream(pa.PythonFile(_Writes(write), mode="w"), self._GATHERED_BYTES)


class _Writes(io.RawIOBase):
    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, buffer: object) -> int:
        content = bytes(cast("bytes", buffer))
        self._write(content)
        return len(content)
