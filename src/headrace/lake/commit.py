"""The lake's commit log: which files are visible, and how far each flow has come, in one atomic step.

::

    _headrace/commits/00000000000000000017.json       two lines, UTF-8, written once
        {"format":1,"number":17,"time":"2026-01-31T12:00:00+00:00","landing":{"flow":"orders_lake","topic":"db1","partition":0,
         "start":{"offset":…,"id":…,"commit_ts_us":…}|null,"end":{…},"added":[LakeFile, …],"cleared":[LakeClear, …]},"by":…}
        {"crc32":…}                                    of the first line's bytes, without its line end
    or, in place of the landing, what care has done (records.py; its crash story is in tend.py)
         "edit":{"cause":"compact","table":…,"added":[LakeFile, …],"removed":[path, …],"state":LakeState|null,"ended":[name, …],
                 "horizon":{…}|null,"purge":{…}|null,"taken":[Taken, …],"cleared":[LakeClear, …],
                 "swept":[path, …]}

    _headrace/checkpoints/00000000000000000064.json   the sum of commits 1..64, same two lines
        {"format":1,"number":64,"time":…,"streams":[{"flow":…,"topic":…,"partition":…,"offset":…,"id":…,"commit_ts_us":…}, …],
         "files":[LakeFile, …],"cleared":[LakeClear, …],"states":{table:[LakeState, …]},"horizons":{table:{…}},
         "purges":[Purge, …],"takings":{table:[number of a commit, …]},"retired":{path:time}}

Invariants: numbers start at 1 and have no gaps; a commit never changes. `by` is another one for each writer, so no two ever write the same
bytes: who asks whether it has made a commit (`FileStore.create`) is answered rightly. A *stream* is what one flow reads of one partition of
one topic; its `end` never goes back, and each commit's `start` is the `end` of the stream's commit before. A checkpoint is a cache: when it
is missing or damaged, older ones or the commits themselves are read.

Exactly once. A writer opens the log once, and goes on from its stream's `end`. A commit of number n is created as a file that was not there
(a link, a rename, a conditional PUT), which one of two racers manages. The loser reads what has appeared: commits of other streams do not
touch it, and it tries the next number; a commit of its own stream means that another run of the flow has taken over the same range, and it
is fenced. As numbers have no gaps, nobody can commit without having read all commits before: the same range is never committed twice. In
the same way an edit is refused when another edit of its table has appeared: so no two of them exchange the same file, and what one has left
out (a purge) another that has read the old files cannot bring back.

The crash story, from the first row to the end; each point is one of crash.py, and tests/faults kills a writer at each:

=====================  ===============================================  ====================================================
point                  killed after …, before …                         what is found; in all cases the log delivers again
=====================  ===============================================  ====================================================
lake.rows_written      rows in a hidden file, before its footer         hidden orphan; old commit is the newest
lake.file_closed       footer written, before the file is durable       hidden orphan; old commit is the newest
file.synced            the file is durable, before its final name       hidden orphan; old commit is the newest
lake.files_named       all files named and directories synced,          orphans under final names; old commit is the newest
                       before the commit is written
create.written         commit in a temporary file and synced,           orphans; old commit is the newest
                       before its name
create.named           the commit has its name, before the directory's  the new commit is the newest. After a power cut it may
                       fsync                                            be there or not, but whole if there; who opens the log
                                                                        to write syncs the directory before relying on it
lake.commit_durable    the directory's fsync                            the new commit is the newest
lake.checkpoint        a commit that makes a checkpoint due, before it  the new commit; the checkpoint before, or none
=====================  ===============================================  ====================================================

On shared stores (storage/) it is the same with fewer moments in between. HDFS: a file is hidden until the NameNode renames it; a name is durable when it
is given. S3: a file lies on the writer's machine until it is uploaded whole, so there is nothing to hide and nothing left behind, but the parts
of a large upload; a commit is one PUT that the store refuses when the number is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

from headrace.crash import crash_point
from headrace.errors import ConfigError, CorruptError, FencedError, HeadraceError
from headrace.lake.checked import checked, not_what_was_written, read_checked
from headrace.lake.layout import STATE, LakeFile, parse_namespace, retired_name
from headrace.lake.records import (
    Commit,
    Edit,
    Horizon,
    LakeClear,
    LakeState,
    Landing,
    Purge,
    Reached,
    Stream,
)
from headrace.storage.base import FileTree
from headrace.storage.location import tree_at

CHECKPOINT_COMMITS = 64
CHECKPOINTS_KEPT = 2
LARGE_FILES = 4096
_READERS = 16
_MARKER = f"{STATE}/lake"
_COMMITS = f"{STATE}/commits"
_CHECKPOINTS = f"{STATE}/checkpoints"
_NAME = re.compile(r"(\d{20})\.json")


class Manifest:
    """The state of a lake after some commit. Reading it takes no lock and disturbs no writer. Not thread-safe."""

    def __init__(self, lake: FileTree) -> None:
        self.lake = lake
        self.number = 0
        self.time: str | None = None
        self.tables: dict[str, list[LakeFile]] = {}
        """Files by `Namespace.all_versions`."""
        self.clears: dict[str, list[LakeClear]] = {}
        """Clears by `Namespace.all_versions`."""
        self.states: dict[str, list[LakeState]] = {}
        """States by `Namespace.all_versions`."""
        self.horizons: dict[str, Horizon] = {}
        """Horizons by `Namespace.all_versions`; none where all is kept."""
        self.purges: list[Purge] = []
        self.takings: dict[str, list[int]] = {}
        """Commits that say what was taken from windows of a table (retention, purge, replacement), by `Namespace.all_versions`."""
        self.retired: dict[str, str] = {}
        """Files that others have taken the place of, with the time of the commit that said so, until they are deleted."""
        self.reached: dict[Stream, Reached] = {}
        self._by = uuid4().hex
        self._files = 0
        self._checkpoint = (0, 0)

    @classmethod
    def open(cls, lake: Path | str | FileTree) -> Manifest:
        """The newest state of an existing lake; ConfigError when there is none, CorruptError when it is damaged.

        `lake`: a directory, a URL that the environment says how to reach, or where the files of a store lie.
        """
        manifest = cls(tree_at(lake))
        if not is_lake(manifest.lake):
            raise ConfigError(
                f"there is no lake at {manifest.lake.root}",
                fix="give the path that the flow's `to: {type: lake}` names",
            )
        manifest._load()
        return manifest

    @classmethod
    def open_to_write(cls, lake: Path | str | FileTree) -> Manifest:
        """The newest state, created when there is none, durable: what it says can be built upon. `lake` is that of `open`."""
        manifest = cls(tree_at(lake))
        if not is_lake(manifest.lake):
            manifest.lake.claim(_MARKER)
        manifest._load()
        if manifest.number:
            manifest.lake.sync([_COMMITS])
        return manifest

    def files(self) -> Iterator[LakeFile]:
        """All files, table by table."""
        for files in self.tables.values():
            yield from files

    def known_paths(self) -> Iterator[str]:
        """All files that belong to the lake in some way: visible, of a state, or retired (under either name)."""
        yield from (file.path for file in self.files())
        yield from (file.path for states in self.states.values() for state in states for file in state.files)
        for path in self.retired:
            yield from (path, retired_name(path))

    def refresh(self) -> list[Commit]:
        """Takes in the commits that have appeared since, and returns them."""
        found = []
        while (commit := self._commit_at(self.number + 1)) is not None:
            self._apply(commit)
            found.append(commit)
        return found

    def commits(self, numbers: Iterable[int]) -> Iterator[Commit]:
        """Those of the commits that this manifest has taken in; CorruptError when one is missing."""
        for number in numbers:
            commit = self._commit_at(number)
            if commit is None:
                raise not_what_was_written(self.lake, _path(number), "it is missing, but later commits exist")
            yield commit

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
        landing = Landing(stream, start, end, tuple(added), tuple(cleared))
        while True:
            commit = Commit(self.number + 1, time, landing.numbered(self.number + 1))
            if self._published(commit):
                return commit
            for other in self.refresh():
                if isinstance(other.what, Landing) and other.what.stream == stream:
                    raise _fenced(stream, self.lake, f"another run of it has written commit {other.number}")

    def edit(self, edit: Edit, time: str) -> Commit:
        """Makes an edit visible that was made of the files as this manifest knows them.

        FencedError when another edit of the table has appeared since, StorageError when the disk refuses; then nothing is visible.
        """
        while True:
            commit = Commit(self.number + 1, time, edit.numbered(self.number + 1))
            if self._published(commit):
                return commit
            for other in self.refresh():
                if isinstance(other.what, Edit) and other.what.table == edit.table:
                    raise FencedError(
                        f"the files of {edit.table or 'the lake'} in {self.lake.root} were changed by another process meanwhile "
                        f"({other.what.cause}, commit {other.number}); nothing was done",
                        fix="start it again: it goes on from what the other has made",
                    )

    def _published(self, commit: Commit) -> bool:
        if not self._publish(commit):
            return False
        self._apply(commit)
        self._write_checkpoint_when_due()
        return True

    def _load(self) -> None:
        # Checkpoints are listed first: a commit older than a checkpoint seen is then certainly in the later list.
        checkpoints = self._numbers(_CHECKPOINTS)
        for number in reversed(checkpoints):
            if self._load_checkpoint(f"{_CHECKPOINTS}/{number:020d}.json"):
                break
        numbers = self._numbers(_COMMITS, behind=max(0, self.number - 1))
        newest = max(numbers, default=0)
        self._take_in(number for number in numbers if number > self.number)
        self.refresh()
        if self.number < newest or (checkpoints and newest < checkpoints[-1]):
            missing = self.number if newest < self.number else self.number + 1
            raise CorruptError(
                f"{self.lake.root}/{_path(missing)} is missing, but later commits or checkpoints exist",
                fix="restore this file from a copy of the lake",
            )

    def _take_in(self, numbers: Iterable[int]) -> None:
        """Applies commits up to the first gap; far away, they take as long as the slowest of several at once."""
        with ThreadPoolExecutor(_READERS, "lake-commits") as readers:
            for commit in readers.map(self._commit_at, numbers):
                if commit is None or commit.number != self.number + 1:
                    return
                self._apply(commit)

    def _load_checkpoint(self, path: str) -> bool:
        try:
            state = read_checked(self.lake, path)
        except (CorruptError, FileNotFoundError):
            return False  # only a cache
        for reached in state["streams"]:
            stream = Stream(reached.pop("flow"), reached.pop("topic"), reached.pop("partition"))
            self.reached[stream] = Reached(**reached)
        self._add_files(map(LakeFile.from_json, state["files"]))
        self._add_clears(map(LakeClear.from_json, state["cleared"]))
        self.states = {table: list(map(LakeState.from_json, states)) for table, states in state["states"].items()}
        self.horizons = {table: Horizon(**horizon) for table, horizon in state["horizons"].items()}
        self.purges = list(map(Purge.from_json, state["purges"]))
        self.takings = state["takings"]
        self.retired = state["retired"]
        self.number, self.time = state["number"], state["time"]
        self._checkpoint = (self.number, self._files)
        return True

    def _apply(self, commit: Commit) -> None:
        self.number, self.time = commit.number, commit.time
        if isinstance(commit.what, Edit):
            self._apply_edit(commit.what, commit.time)
            return
        self.reached[commit.what.stream] = commit.what.end
        self._add_files(commit.what.added)
        self._add_clears(commit.what.cleared)

    def _apply_edit(self, edit: Edit, time: str) -> None:
        removed = set(edit.removed)
        if removed:
            known = self.tables[edit.table]
            self.tables[edit.table] = kept = [file for file in known if file.path not in removed]
            self._files -= len(known) - len(kept)
        self._add_files(edit.added)
        self._add_clears(edit.cleared)
        states = self.states.get(edit.table, [])
        ended = [file.path for state in states if state.name in edit.ended for file in state.files]
        states = [state for state in states if state.name not in edit.ended] + ([edit.state] if edit.state else [])
        if states or edit.ended:
            self.states[edit.table] = states
        if edit.horizon is not None:
            self.horizons[edit.table] = edit.horizon
        if edit.purge is not None:
            self.purges.append(edit.purge)
        if edit.taken:
            self.takings.setdefault(edit.table, []).append(self.number)
        self.retired.update(dict.fromkeys([*edit.removed, *ended], time))
        for path in edit.swept:
            self.retired.pop(path, None)

    def _add_files(self, added: Iterable[LakeFile]) -> None:
        for file in added:
            self.tables.setdefault(file.table.all_versions, []).append(file)
            self._files += 1

    def _add_clears(self, cleared: Iterable[LakeClear]) -> None:
        for clear in cleared:
            self.clears.setdefault(parse_namespace(clear.namespace).all_versions, []).append(clear)

    def _publish(self, commit: Commit) -> bool:
        """Creates the commit's file; False when its number is taken."""
        if not self.lake.create(_path(commit.number), checked({**commit.to_json(), "by": self._by})):
            return False
        crash_point("lake.commit_durable")
        return True

    def _write_checkpoint_when_due(self) -> None:
        """Every CHECKPOINT_COMMITS commits; in a large lake only when an eighth has changed, so that the work per commit stays small."""
        number, files = self._checkpoint
        if self.number - number < CHECKPOINT_COMMITS or abs(self._files - files) * 8 < self._files - LARGE_FILES:
            return
        state = {
            "number": self.number,
            "time": self.time,
            "streams": [{**stream._asdict(), **asdict(reached)} for stream, reached in self.reached.items()],
            "files": [file.to_json() for file in self.files()],
            "cleared": [asdict(clear) for several in self.clears.values() for clear in several],
            "states": {table: [each.to_json() for each in states] for table, states in self.states.items()},
            "horizons": {table: asdict(horizon) for table, horizon in self.horizons.items()},
            "purges": [asdict(purge) for purge in self.purges],
            "takings": self.takings,
            "retired": self.retired,
        }
        crash_point("lake.checkpoint")
        try:
            self.lake.create(f"{_CHECKPOINTS}/{self.number:020d}.json", checked(state))
            for old in self._numbers(_CHECKPOINTS)[:-CHECKPOINTS_KEPT]:
                self.lake.delete(f"{_CHECKPOINTS}/{old:020d}.json")
        except HeadraceError:
            return  # only a cache: the commit stands, and the next one tries again
        self._checkpoint = (self.number, self._files)

    def _numbers(self, directory: str, behind: int = 0) -> list[int]:
        found = (_NAME.fullmatch(file.name) for file in self.lake.files(directory, f"{behind:020d}.json"))
        return [int(match[1]) for match in found if match]

    def _commit_at(self, number: int) -> Commit | None:
        """The commit of that number; None when there is none yet."""
        path = _path(number)
        try:
            commit = Commit.from_json(read_checked(self.lake, path))
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise not_what_was_written(self.lake, path, f"it lacks or misuses {error}") from error
        if commit.number != number:
            raise not_what_was_written(self.lake, path, f"it holds commit {commit.number}")
        return commit


def is_lake(tree: FileTree) -> bool:
    """Whether there is a lake at a place."""
    return bool(tree.names(STATE))


def _fenced(stream: Stream, lake: FileTree, reason: str) -> FencedError:
    return FencedError(
        f"flow '{stream.flow}' must not write to {lake.root} any more: in {stream.topic}/{stream.partition} {reason}",
        fix="let one run of the flow go on; a new one continues after the last commit",
    )


def _path(number: int) -> str:
    return f"{_COMMITS}/{number:020d}.json"
