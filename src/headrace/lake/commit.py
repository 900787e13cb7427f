"""The lake's commit log: which files are visible, and how far each flow has come, in one atomic step.

::

    _headrace/commits/00000000000000000017.json       two lines, UTF-8, written once
        {"format":1,"number":17,"time":"2026-01-31T12:00:00+00:00","flow":"orders_lake","topic":"db1","partition":0,
         "start":{"offset":…,"id":…,"commit_ts_us":…}|null,"end":{…},"added":[LakeFile, …],"cleared":[LakeClear, …]}
        {"crc32":…}                                    of the first line's bytes, without its line end

    _headrace/checkpoints/00000000000000000064.json   the sum of commits 1..64, same two lines
        {"format":1,"number":64,"time":…,"streams":[{"flow":…,"topic":…,"partition":…,"offset":…,"id":…,"commit_ts_us":…}, …],
         "files":[LakeFile, …],"cleared":[LakeClear, …]}

Invariants: numbers start at 1 and have no gaps; a commit never changes. A *stream* is what one flow reads of one partition of
one topic; its `end` never goes back, and each commit's `start` is the `end` of the stream's commit before. A checkpoint is a
cache: when it is missing or damaged, older ones or the commits themselves are read.

Exactly once. A writer opens the log once, and goes on from its stream's `end`. A commit of number n is created by os.link, which
one of two racers wins. The loser reads what has appeared: commits of other streams do not touch it, and it tries the next
number; a commit of its own stream means that another run of the flow has taken over the same range, and it is fenced. As
numbers have no gaps, nobody can commit without having read all commits before: the same range is never committed twice.

The crash story, from the first row to the end; each point is one of crash.py, and tests/faults kills a writer at each:

=====================  ===============================================  ====================================================
point                  killed after …, before …                         what is found; in all cases the log delivers again
=====================  ===============================================  ====================================================
lake.rows_written      rows in a hidden file, before its footer         hidden orphan; old commit is the newest
lake.file_closed       footer written, before its fsync                 hidden orphan; old commit is the newest
lake.file_synced       fsync of the file, before its final name         hidden orphan; old commit is the newest
lake.files_named       all files named and directories synced,          orphans under final names; old commit is the newest
                       before the commit is written
lake.commit_written    commit in a temporary file and synced,           orphans; old commit is the newest
                       before the link
lake.commit_linked     the link, before the directory's fsync           the new commit is the newest. After a power cut it may
                                                                        be there or not, but whole if there; who opens the log
                                                                        to write syncs the directory before relying on it
lake.commit_durable    the directory's fsync                            the new commit is the newest
lake.checkpoint        checkpoint in a temporary file, before its name  the new commit; the checkpoint before, or none
=====================  ===============================================  ====================================================
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from headrace.crash import crash_point
from headrace.errors import ConfigError, CorruptError, FencedError, storage_error
from headrace.files import make_directories, sync_directory
from headrace.lake.layout import STATE, LakeFile, parse_namespace

CHECKPOINT_COMMITS = 64
CHECKPOINTS_KEPT = 2
LARGE_FILES = 4096
_FORMAT = 1
_NAME = re.compile(r"(\d{20})\.json")


class Stream(NamedTuple):
    """What one flow reads of one partition of one topic."""

    flow: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a stream has come: the next `offset`; the id and monotone commit time of the last mark before it."""

    offset: int
    id: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class LakeClear:
    """TRUNCATE TABLE at the source: all changes of this table with a smaller id are history from then on."""

    namespace: str
    id: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class Commit:
    """What became visible at once."""

    number: int
    time: str
    stream: Stream
    start: Reached | None
    end: Reached
    added: tuple[LakeFile, ...]
    cleared: tuple[LakeClear, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "number": self.number,
            "time": self.time,
            **self.stream._asdict(),
            "start": asdict(self.start) if self.start else None,
            "end": asdict(self.end),
            "added": [file.to_json() for file in self.added],
            "cleared": [asdict(clear) for clear in self.cleared],
        }

    @classmethod
    def from_json(cls, commit: dict[str, Any]) -> Commit:
        return cls(
            number=commit["number"],
            time=commit["time"],
            stream=Stream(commit["flow"], commit["topic"], commit["partition"]),
            start=Reached(**commit["start"]) if commit["start"] else None,
            end=Reached(**commit["end"]),
            added=tuple(map(LakeFile.from_json, commit["added"])),
            cleared=tuple(LakeClear(**clear) for clear in commit["cleared"]),
        )


class Manifest:
    """The state of a lake after some commit. Reading it takes no lock and disturbs no writer. Not thread-safe."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.number = 0
        self.time: str | None = None
        self.tables: dict[str, list[LakeFile]] = {}
        """Files by `Namespace.all_versions`."""
        self.clears: dict[str, list[LakeClear]] = {}
        """Clears by `Namespace.all_versions`."""
        self.reached: dict[Stream, Reached] = {}
        self._commits = lake / STATE / "commits"
        self._checkpoints = lake / STATE / "checkpoints"
        self._files = 0
        self._checkpoint = (0, 0)

    @classmethod
    def open(cls, lake: Path) -> Manifest:
        """The newest state of an existing lake; ConfigError when there is none, CorruptError when it is damaged."""
        manifest = cls(lake)
        if not manifest._commits.is_dir():
            raise ConfigError(
                f"there is no lake at {lake}", fix="give the path that the flow's `to: {type: lake}` names"
            )
        manifest._load()
        return manifest

    @classmethod
    def open_to_write(cls, lake: Path) -> Manifest:
        """The newest state, created when there is none, durable: what it says can be built upon."""
        manifest = cls(lake)
        make_directories(manifest._commits)
        make_directories(manifest._checkpoints)
        manifest._load()
        sync_directory(manifest._commits)
        return manifest

    def files(self) -> Iterator[LakeFile]:
        """All files, table by table."""
        for files in self.tables.values():
            yield from files

    def refresh(self) -> list[Commit]:
        """Takes in the commits that have appeared since, and returns them."""
        found = []
        while (commit := _commit_at(self._path(self.number + 1))) is not None:
            self._apply(commit)
            found.append(commit)
        return found

    def commit(
        self, stream: Stream, end: Reached, added: Sequence[LakeFile], time: str, cleared: Sequence[LakeClear] = ()
    ) -> Commit:
        """Makes durable files visible together with how far the stream has come.

        FencedError when the stream was moved by another run, StorageError when the disk refuses; then nothing is visible.
        """
        start = self.reached.get(stream)
        if start is not None and end.offset < start.offset:
            raise _fenced(
                stream, self.lake, f"it has come to offset {start.offset}, behind which offset {end.offset} lies"
            )
        while True:
            commit = Commit(self.number + 1, time, stream, start, end, tuple(added), tuple(cleared))
            if self._publish(commit):
                self._apply(commit)
                self._write_checkpoint_when_due()
                return commit
            for other in self.refresh():
                if other.stream == stream:
                    raise _fenced(stream, self.lake, f"another run of it has written commit {other.number}")

    def _path(self, number: int) -> Path:
        return self._commits / f"{number:020d}.json"

    def _load(self) -> None:
        # Checkpoints are listed first: a commit older than a checkpoint seen is then certainly in the later list.
        checkpoints = _numbers(self._checkpoints)
        commits = _numbers(self._commits)
        newest = commits[-1] if commits else 0
        for number in reversed(checkpoints):
            if self._load_checkpoint(self._checkpoints / f"{number:020d}.json"):
                break
        self.refresh()
        if self.number < newest or (checkpoints and newest < checkpoints[-1]):
            missing = self.number + 1 if self.number < newest else newest + 1
            raise CorruptError(
                f"{self._path(missing)} is missing, but later commits or checkpoints exist",
                fix="restore this file from a copy of the lake",
            )

    def _load_checkpoint(self, path: Path) -> bool:
        try:
            state = _read(path)
        except (CorruptError, FileNotFoundError):
            return False  # only a cache
        for reached in state["streams"]:
            stream = Stream(reached.pop("flow"), reached.pop("topic"), reached.pop("partition"))
            self.reached[stream] = Reached(**reached)
        self._add_files(map(LakeFile.from_json, state["files"]))
        self._add_clears(LakeClear(**clear) for clear in state["cleared"])
        self.number, self.time = state["number"], state["time"]
        self._checkpoint = (self.number, self._files)
        return True

    def _apply(self, commit: Commit) -> None:
        self.number, self.time = commit.number, commit.time
        self.reached[commit.stream] = commit.end
        self._add_files(commit.added)
        self._add_clears(commit.cleared)

    def _add_files(self, added: Iterator[LakeFile] | Sequence[LakeFile]) -> None:
        for file in added:
            self.tables.setdefault(file.table.all_versions, []).append(file)
            self._files += 1

    def _add_clears(self, cleared: Iterable[LakeClear]) -> None:
        for clear in cleared:
            self.clears.setdefault(parse_namespace(clear.namespace).all_versions, []).append(clear)

    def _publish(self, commit: Commit) -> bool:
        """Creates the commit's file; False when its number is taken."""
        temporary = self._commits / f".{uuid4().hex}.tmp"
        try:
            _write(temporary, commit.to_json(), durable=True)
            crash_point("lake.commit_written")
            os.link(temporary, self._path(commit.number))
        except FileExistsError:
            return False
        except OSError as error:
            raise storage_error("write the commit", self._path(commit.number), error) from error
        finally:
            temporary.unlink(missing_ok=True)
        crash_point("lake.commit_linked")
        sync_directory(self._commits)
        crash_point("lake.commit_durable")
        return True

    def _write_checkpoint_when_due(self) -> None:
        """Every CHECKPOINT_COMMITS commits; in a large lake only when an eighth is new, so that the work per commit stays small."""
        number, files = self._checkpoint
        if self.number - number < CHECKPOINT_COMMITS or (self._files - files) * 8 < self._files - LARGE_FILES:
            return
        path = self._checkpoints / f"{self.number:020d}.json"
        temporary = self._checkpoints / f".{uuid4().hex}.tmp"
        state = {
            "format": _FORMAT,
            "number": self.number,
            "time": self.time,
            "streams": [{**stream._asdict(), **asdict(reached)} for stream, reached in self.reached.items()],
            "files": [file.to_json() for file in self.files()],
            "cleared": [asdict(clear) for several in self.clears.values() for clear in several],
        }
        try:
            _write(temporary, state, durable=False)
            crash_point("lake.checkpoint")
            temporary.rename(path)
            for old in _numbers(self._checkpoints)[:-CHECKPOINTS_KEPT]:
                (self._checkpoints / f"{old:020d}.json").unlink(missing_ok=True)
        except OSError:
            temporary.unlink(missing_ok=True)  # only a cache: the commit stands, and the next one tries again
        else:
            self._checkpoint = (self.number, self._files)


def _fenced(stream: Stream, lake: Path, reason: str) -> FencedError:
    return FencedError(
        f"flow '{stream.flow}' must not write to {lake} any more: in {stream.topic}/{stream.partition} {reason}",
        fix="let one run of the flow go on; a new one continues after the last commit",
    )


def _numbers(directory: Path) -> list[int]:
    try:
        return sorted(int(match[1]) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name)))
    except OSError as error:
        raise storage_error("list", directory, error) from error


def _write(path: Path, content: dict[str, Any], *, durable: bool) -> None:
    line = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    with path.open("xb") as file:
        file.write(b'%b\n{"crc32":%d}\n' % (line, zlib.crc32(line)))
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _commit_at(path: Path) -> Commit | None:
    """The commit in that file; None when there is none yet."""
    try:
        commit = Commit.from_json(_read(path))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, f"it lacks or misuses {error}") from error
    if path.name != f"{commit.number:020d}.json":
        raise _corrupt(path, f"it holds commit {commit.number}")
    return commit


def _read(path: Path) -> dict[str, Any]:
    try:
        line, _, check = path.read_bytes().partition(b"\n")
        if json.loads(check) != {"crc32": zlib.crc32(line)}:
            raise _corrupt(path, "its checksum differs")
        content: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise _corrupt(path, str(error)) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error("read", path, error) from error
    if (format_ := content.get("format", _FORMAT)) != _FORMAT:
        raise ConfigError(
            f"{path} has format {format_}, which is unknown here", fix="use the headrace that wrote this lake"
        )
    return content


def _corrupt(path: Path, reason: str) -> CorruptError:
    return CorruptError(f"{path} is not what was written: {reason}", fix="restore this file from a copy of the lake")
