"""Log files of many hosts as a source.

::

    files --rules--> rows    _ums_id_: 4 x (bytes that were read of all files) + 2    (applog/pieces.py)
                             position: {"read": bytes of all files, "files": [where each one is], "next": whose turn it is,
                                        "hosts": {host: newest time of its lines, of those that came last, µs since 1970 UTC}}

Crash story: lines and the position behind them are one unit on the log. What was read and not appended is read again from the newest
mark, at the exact byte; what was appended is not. Files that have not changed meanwhile are read again in the same pieces, so their lines
get the same ids. Versions of tables are kept in `seen_tables.py`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headrace.capture.applog.files import LogFiles
from headrace.capture.applog.followed import Followed, Piece
from headrace.capture.applog.pattern import FilePattern
from headrace.capture.applog.pieces import IDS_PER_BYTE, lines_of, splits_at_newlines
from headrace.capture.base import NO_PROGRESS, Event, Progress
from headrace.capture.lines.fields import HOST
from headrace.capture.lines.rules import Rule, tables_of
from headrace.capture.lines.samples import sample_findings
from headrace.capture.lines.tables import Lines, LineTables
from headrace.capture.seen_tables import SeenTables
from headrace.errors import ConfigError, FatalError, Finding
from headrace.model import LocalPath, SourceConfig
from headrace.ums.change import ChangeBatch, End, Mark
from headrace.ums.schema import TableSchema

_WAIT_S = 0.1
_LOOK_S = 1.0
"""Between two looks at the directories."""


class AppLogConfig(SourceConfig):
    """Log files of applications, of many hosts, followed through rotation: lines become rows by rules."""

    type: Literal["applog"] = "applog"
    files: LocalPath
    """The files that applications write, ``/var/log/remote/{host}/*.log``: ``*`` and ``?`` stand for anything, ``{host}`` for the host's name.
    Rotated ones need not match: they are found by what was read of them."""
    host: str = Field(default_factory=socket.gethostname)
    """The host of files whose names do not say it; this machine's name when left out."""
    rules: Annotated[list[Rule], Field(min_length=1)]
    """From lines to rows: the first rule that fits takes the line. Lines that none fits are rows of the table `logs._unmatched_`."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin at the first start: with all that is in the files, or with what comes."""
    encoding: str = "utf-8"
    """The files' encoding: bytes that are no text in it become ``\\xff``."""
    longest_line_bytes: Annotated[int, Field(ge=100, le=64 << 20)] = 1 << 20
    """Of a longer line this many bytes are a row of `logs._unmatched_`, and the rest is left out."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        self.pattern()
        tables_of(self.rules)
        for rule in self.rules:
            if rule.time is None:
                raise ValueError(
                    f"a rule of table {rule.table} says no `time`, which a line in a file has nowhere else"
                )
        try:
            if not splits_at_newlines(self.encoding):
                raise ValueError(f"lines in {self.encoding} do not end with the byte 10, which is needed here")
        except LookupError as error:
            raise ValueError(f"there is no encoding '{self.encoding}'") from error
        return self

    @property
    def reports_for_itself(self) -> bool:
        return False

    @property
    def parted_by(self) -> str:
        return HOST

    def pattern(self) -> FilePattern:
        return FilePattern(self.files, self.host)

    def lines_of(self, texts: Sequence[str]) -> Lines:
        """Texts as lines of a file."""
        data = "".join(f"{text}\n" for text in texts).encode(self.encoding)
        piece = Piece(self.files.name, self.host, 0, data, len(data))
        return lines_of([piece], 0, self.longest_line_bytes, self.encoding)


class AppLogSource:
    """A `Source` over log files. `state` is the directory in which versions of tables are kept, `clock` gives seconds since 1970."""

    Config = AppLogConfig

    def __init__(
        self,
        config: AppLogConfig,
        state: Path,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._path = state / "tables.json"
        self._files: LogFiles | None = None

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        yield from sample_findings(self._config.rules, self._config.lines_of)
        try:
            files = self._open(newest)
            files.scan(self._clock())
        except (FatalError, ConfigError) as error:
            yield Finding.of(error)
        else:
            if not files.files:
                yield Finding(
                    f"no files match {self._config.files} yet",
                    "correct `files` of the source, or wait for the first line",
                    stops=False,
                )
        finally:
            self.close()

    def tables(self) -> Sequence[TableSchema]:
        return self._load().tables()

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        yield from self.tables()

    def follow(self, start: Mark | None) -> Iterator[Event]:
        self.close()
        files, seen = self._open(start), self._load()
        seen.go_on_behind(start.id if start is not None else 0)
        reading = Reading(self._config, files, LineTables(self._config.rules, seen), start)
        looked_s = 0.0
        while True:
            now_s = self._clock()
            if files.needs_look or not 0 <= now_s - looked_s < _LOOK_S:
                files.scan(now_s)
                if start is None and not looked_s and self._config.start == "latest":
                    files.go_to_ends()
                looked_s = now_s
            event = reading.event(now_s)
            seen.save()
            yield event
            if not event.changes:
                self._sleep(_WAIT_S)

    def skip(self, newest: Mark, to: str) -> Mark:
        if to not in ("earliest", "latest"):
            raise ConfigError(f"'{to}' is no place to go on at", fix="write earliest (what is left) or latest")
        files = self._open(newest, forgives=True)
        try:
            files.scan(self._clock())
            if to == "latest":
                files.go_to_ends()
            elif not files.take_notices():
                raise ConfigError("there is nothing to skip: all files are there", fix="start the capture")
            # One more than was read: the new mark's id is above the newest one's.
            behind = replace(newest, position=newest.position | {"read": newest.position["read"] + 1})
            return Reading(self._config, files, LineTables(self._config.rules, self._load()), behind).mark()
        finally:
            self.close()

    def confirm(self, mark: Mark) -> None:
        """The files belong to others: nothing is removed there."""

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None

    def _open(self, mark: Mark | None, *, forgives: bool = False) -> LogFiles:
        kept = [] if mark is None else [Followed.of(file) for file in mark.position["files"]]
        config = self._config
        files = LogFiles(config.pattern(), config.longest_line_bytes, kept, forgives=forgives, sleep=self._sleep)
        files.next_host = "" if mark is None else mark.position["next"]
        self._files = files
        return files

    def _load(self) -> SeenTables:
        tables = SeenTables(self._path, self._config.type, self._config.name)
        tables.load()
        return tables


class Rests:
    """How far hosts are that write several logs at once: a line of one may be read before an older one of another.

    When all files have been read to their ends, every line that is older than one that was read is in its file, as hosts write in the
    order of their times. It is read when that is so the next time. So what was the newest at one rest is passed at the next.
    """

    def __init__(self) -> None:
        self._newest_us: dict[str, int] = {}
        self._at_rest_us: dict[str, int] = {}

    def passed(self, progress: Progress, *, at_rest: bool) -> Progress:
        """What may be told. Which lines are out of order cannot be said of several logs."""
        self._newest_us |= progress.passed_us
        if not at_rest:
            return Progress({}, progress.rows)
        told_us, self._at_rest_us = self._at_rest_us, dict(self._newest_us)
        return Progress(told_us, progress.rows)


class Reading:
    """What is read of files from a mark on: their lines as events, numbered by the bytes of all files."""

    def __init__(self, config: AppLogConfig, files: LogFiles, tables: LineTables, start: Mark | None) -> None:
        self._config = config
        self._files = files
        self._tables = tables
        self._read_bytes = 0 if start is None else start.position["read"]
        self._hosts: dict[str, int] = {} if start is None else start.position["hosts"]
        self._commit_ts_us = 0 if start is None else start.commit_ts_us
        self._rests = None if config.pattern().has_one_log_per_host else Rests()

    def event(self, now_s: float) -> Event:
        """What the files have now, up to a size, and the mark behind it."""
        pieces = self._files.take(now_s)
        now_us = round(now_s * 1e6)
        changes: list[ChangeBatch | End] = []
        progress = NO_PROGRESS
        if pieces:
            self._commit_ts_us = max(self._commit_ts_us, now_us)
        if any(piece.data for piece in pieces):
            config = self._config
            lines = lines_of(pieces, self._read_bytes, config.longest_line_bytes, config.encoding)
            changes = list(self._tables.changes(lines, self._commit_ts_us, now_us))
            self._hosts, progress = self._tables.times.newest_us, self._tables.progress
        self._read_bytes += sum(piece.used for piece in pieces)
        caught_up = self._files.caught_up
        if self._rests is not None:
            progress = self._rests.passed(progress, at_rest=caught_up)
        return Event(changes, self.mark(), caught_up, self._files.take_notices(), progress=progress)

    def mark(self) -> Mark:
        """Where the files have been read to."""
        position = {
            "read": self._read_bytes,
            "files": [file.to_json() for file in self._files.files],
            "next": self._files.next_host,
            "hosts": self._hosts,
        }
        return Mark(self._config.name, position, self._read_bytes * IDS_PER_BYTE, self._commit_ts_us)
