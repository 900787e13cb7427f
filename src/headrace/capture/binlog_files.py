"""Recorded binlog files as one long stream: in the order of their numbers, each to its end, growing files included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from headrace.capture.position import FILE_START, BinlogPosition, first_event_seconds, newest_before
from headrace.codec.binlog import CHUNK_BYTES, HEAD_BYTES, skim_file
from headrace.errors import ConfigError, SourceError, storage_error

_MAGIC = b"\xfebin"


class BinlogFiles:
    """The binlog files that match a pattern; those with a suffix that is not a number (the index) do not count."""

    def __init__(self, pattern: Path) -> None:
        self._pattern = pattern
        self._buffer = bytearray(CHUNK_BYTES)
        self._full_at: BinlogPosition | None = None

    def check(self) -> None:
        """Raises what reading the first file would: no files at all, or files that are not binlogs."""
        self.read(self.first_position())

    def first_position(self) -> BinlogPosition:
        names = self._names()
        if not names:
            raise ConfigError(f"no binlog files match {self._pattern}", fix="correct `files` of the source")
        return BinlogPosition(names[0], FILE_START)

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return name in self._names()

    def paths_from(self, name: str) -> list[Path]:
        """A file and those behind it, in their order."""
        names = self._names()
        return [self._path(each) for each in names[names.index(name) :]]

    def last_position(self) -> BinlogPosition:
        self.first_position()
        name = self._names()[-1]
        return BinlogPosition(name, self.size_bytes(name))

    def position_before(self, time: datetime) -> BinlogPosition:
        """The start of the newest file that was begun before `time`; of the oldest when all are younger."""
        return BinlogPosition(newest_before(self._names(), time, self._begun_at), FILE_START)

    def _begun_at(self, name: str) -> int:
        return first_event_seconds(self._read(name, FILE_START, HEAD_BYTES))

    def after(self, name: str) -> str | None:
        """The file that follows `name`; None when it is the newest. SourceError when `name` itself is gone."""
        names = self._names()
        if name not in names:
            raise self._gone(name)
        at = names.index(name) + 1
        if at == len(names):
            return None
        if _number(names[at]) != _number(name) + 1:
            raise SourceError(
                f"between {name} and {names[at]} binlog files are missing in {self._pattern.parent}",
                fix="copy the missing files there, and capture goes on with the next one; if they are lost, let it go on behind them"
                f" (`headrace skip FLOW.yaml --to {names[at]}:{FILE_START}`) and load the tables again",
            )
        return names[at]

    def counted(self, position: BinlogPosition) -> BinlogPosition:
        """The position with what decompression adds before it; behind the last whole event if an event is cut there."""
        if position.offset == FILE_START:
            return position
        path = self._path(position.file)
        try:
            with path.open("rb", buffering=0) as file:
                offset, expanded = skim_file(file, position.file, position.offset)
        except OSError as error:
            raise storage_error("read", path, error) from error
        return replace(position, offset=offset, expanded=expanded)

    def size_bytes(self, name: str) -> int:
        """How large a file is now."""
        return self._path(name).stat().st_size

    def head(self, name: str) -> bytes:
        """The first bytes of a file, its format description among them."""
        return bytes(self._read(name, 0, HEAD_BYTES))

    def read(self, position: BinlogPosition) -> memoryview:
        """Bytes from `position` on, up to a chunk; empty at the end of the file. Valid until the next call.

        Asked again for the same position, a full chunk was too small for one event: the next one is larger.
        """
        if position == self._full_at:
            self._buffer = bytearray(2 * len(self._buffer))
        if position.offset == FILE_START and bytes(self._read(position.file, 0, len(_MAGIC))) not in (b"", _MAGIC):
            raise SourceError(
                f"{self._path(position.file)} is not a binlog file: it does not begin with the binlog magic",
                fix="let `files` match binlog files only (an encrypted or compressed copy must be unpacked first)",
            )
        chunk = self._read(position.file, position.offset, len(self._buffer))
        self._full_at = position if len(chunk) == len(self._buffer) else None
        return chunk

    def has_more(self, position: BinlogPosition) -> bool:
        """The last `read` was for that position, and did not come to the end of the file."""
        return position == self._full_at

    def _read(self, name: str, offset: int, count: int) -> memoryview:
        path = self._path(name)
        view = memoryview(self._buffer)[:count]
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(offset)
                return view[: file.readinto(view)]
        except FileNotFoundError:
            raise self._gone(name) from None
        except OSError as error:
            raise storage_error("read", path, error) from error

    def _gone(self, name: str) -> SourceError:
        return SourceError(
            f"the binlog file {name}, where capture stopped, is not among {self._pattern}",
            fix="bring the file back, then start again",
        )

    def _path(self, name: str) -> Path:
        return self._pattern.parent / name

    def _names(self) -> list[str]:
        found = [path for path in self._pattern.parent.glob(self._pattern.name) if path.suffix[1:].isdecimal()]
        if logs := mixed(found):
            raise ConfigError(
                f"files of several logs match {self._pattern}: {', '.join(logs)}",
                fix="let `files` of a source match the files of one server's log",
            )
        return sorted((path.name for path in found), key=_number)


def mixed(paths: Iterable[Path]) -> list[str]:
    """The names of the logs that recorded files are of, without numbers, when there are several; none for files of one log."""
    logs = sorted({path.stem for path in paths})
    return logs if len(logs) > 1 else []


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Files of one log by their numbers."""
    return sorted(paths, key=lambda path: _number(path.name))


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])
