"""An application that writes a log, and what rotates it, as logrotate does: by renaming, or by copying and emptying; packed or not.

What changes several files is an iterator that stops after each change, where a capture may look; the application may write then too, unless it is
`held`: what it writes between the copy and the emptying of a file is lost to anybody.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_FIRST_DAY = 20260101


class WrittenLog:
    """A log of one host. `lines`: all whole lines that were written. `clock_ns`: the file system's clock, where it is not the kernel's.
    `dated`: old files have names of days, and not numbers."""

    def __init__(
        self, path: Path, host: str, *, clock_ns: Callable[[], int] | None = None, dated: bool = False
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.host = host
        self.lines: list[str] = []
        self.held = False
        self._clock_ns = clock_ns
        self._dated = dated
        self._rotations = 0
        self._begun, self._sent = "", 0
        self._handle: BinaryIO = path.open("ab", buffering=0)
        self._stamp(path)

    def write(self, count: int, *, padding: int = 0, ends: bool = True) -> None:
        """Some lines; the last one is left without its end unless `ends`."""
        assert not self.held
        for number in range(count):
            line = self._begun or self._line(padding)
            rest = line[self._sent :]
            if not ends and number == count - 1:
                self._handle.write(rest[: len(rest) // 2].encode())
                self._begun, self._sent = line, self._sent + len(rest) // 2
            else:
                self._handle.write(f"{rest}\n".encode())
                self.lines.append(line)
                self._begun, self._sent = "", 0
        self._stamp(self._handle.fileno())

    def renamed(self, *, creates: bool = False) -> Iterator[None]:
        """The file becomes the newest of the old ones; the application goes on writing to it until it opens its name again, which has been
        made before or not (`creates`)."""
        yield from self._shifted()
        self.path.rename(self._newest_old())
        yield
        if creates:
            self.path.touch()
            self._stamp(self.path)
            yield
        self._end_line()
        self._handle.close()
        self._handle = self.path.open("ab", buffering=0)
        self._stamp(self.path)

    def copied(self, step_bytes: int = 1 << 20) -> Iterator[None]:
        """The file is copied, so many bytes at a time, and emptied."""
        yield from self._shifted()
        self._end_line()
        self.held = True
        with self.path.open("rb") as file, self._newest_old().open("wb", buffering=0) as copy:
            self._stamp(copy.fileno())
            yield
            while data := file.read(step_bytes):
                copy.write(data)
                self._stamp(copy.fileno())
                yield
        os.truncate(self.path, 0)
        self._stamp(self.path)
        self.held = False

    def packed(self, *, kept: int = 1, whole_seconds: bool = False) -> Iterator[None]:
        """All old files but the newest few are packed; `whole_seconds`: the packer sets no finer times."""
        for old in self._olds()[kept:]:
            if old.suffix == ".gz":
                continue
            packed = gzip.compress(old.read_bytes())
            with Path(f"{old}.gz").open("wb", buffering=0) as file:
                for part in (packed[: len(packed) // 2], packed[len(packed) // 2 :]):
                    file.write(part)
                    self._stamp(file.fileno())
                    yield
            written_ns = old.stat().st_mtime_ns
            os.utime(f"{old}.gz", ns=(written_ns // 10**9 * 10**9 if whole_seconds else written_ns,) * 2)
            yield
            old.unlink()
            yield

    def remove(self, kept: int) -> None:
        """Old files but the newest few."""
        for old in self._olds()[kept:]:
            old.unlink()

    def close(self) -> None:
        self._handle.close()

    def _line(self, padding: int) -> str:
        number = len(self.lines)
        return f"2026-01-01T00:00:00.{number:06}Z {self.host} {number} {'x' * padding}"

    def _end_line(self) -> None:
        if self._begun:
            self.write(1)

    def _newest_old(self) -> Path:
        self._rotations += 1
        behind = f"-{_FIRST_DAY + self._rotations}" if self._dated else ".1"
        return self.path.with_name(f"{self.path.name}{behind}")

    def _olds(self) -> list[Path]:
        """The old files, the newest first."""
        found = [(int(path.name.removesuffix(".gz")[8:]), path) for path in self.path.parent.glob("app.log[.-]*")]
        return [path for _, path in sorted(found, reverse=self._dated)]

    def _shifted(self) -> Iterator[None]:
        for old in [] if self._dated else reversed(self._olds()):
            number, packing = int(old.name.removesuffix(".gz")[8:]), ".gz" * (old.suffix == ".gz")
            old.rename(old.with_name(f"app.log.{number + 1}{packing}"))
            yield

    def _stamp(self, file: Path | int) -> None:
        if self._clock_ns is not None:
            os.utime(file, ns=(self._clock_ns(),) * 2)
