"""What commits of a lake say: how far a flow has come with which files, or what care has made of a table's files.

A commit is one of two. A *landing* brings changes of a stream. An *edit* is made of what is there: it exchanges files for others
(compaction), leaves out what policy or a person's right says (retention, purge), puts other rows in the place of a range (replacement), or
adds what makes reading cheap (states). Landings of different streams and edits of different tables do not disturb each other; of two edits
of one table that know nothing of each other, the second is refused (commit.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from headrace.lake.layout import LakeFile
from headrace.lake.tally import Tally
from headrace.ums.change import Cause as ClearCause
from headrace.ums.schema import Namespace

Json = dict[str, Any]
Shard = tuple[str, str]
"""`dbshard` and `tableshard`: shards of a table are tables of their own, the same key may live in two of them."""


def shard_of(namespace: Namespace) -> Shard:
    return namespace.dbshard, namespace.tableshard


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
    cause: ClearCause = ClearCause.TRUNCATED

    @classmethod
    def from_json(cls, described: Json) -> Self:
        return cls(**{**described, "cause": ClearCause(described["cause"])})


@dataclass(frozen=True, slots=True)
class LakeState:
    """The live rows of one shard of a table as of an id: where a reader may begin instead of with the first change.

    It takes in the changes up to `id` of all files up to commit `commit`; a file that came later with such changes makes it void.
    """

    name: str
    shard: Shard
    id: int
    commit_ts_us: int
    """The newest commit time of what it takes in."""
    commit: int
    files: tuple[LakeFile, ...]
    """Rows by the version of their last change, in its columns; the files lie in STATES (layout.py)."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> Json:
        return {**asdict(self), "files": [file.to_json() for file in self.files]}

    @classmethod
    def from_json(cls, described: Json) -> Self:
        files = tuple(map(LakeFile.from_json, described["files"]))
        return cls(**{**described, "shard": tuple(described["shard"]), "files": files})


@dataclass(frozen=True, slots=True)
class Horizon:
    """From here on each moment of a table can be restored; what was overwritten before is not kept."""

    id: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class Purge:
    """The record of a deletion by key. The key itself is not kept, only what tells whether it is a given one."""

    table: str
    columns: tuple[str, ...]
    key_sha256: str
    """Of the key's values as JSON (purge.py)."""
    reason: str
    rows: int
    files: int
    time: str

    @classmethod
    def from_json(cls, described: Json) -> Self:
        return cls(**{**described, "columns": tuple(described["columns"])})


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows that an edit has taken from a window of a table (windows.py), so that its certificate can be checked without them."""

    start_us: int
    rows: Tally

    def to_json(self) -> Json:
        return {"start_us": self.start_us, **self.rows.to_json()}

    @classmethod
    def from_json(cls, described: Json) -> Self:
        return cls(described["start_us"], Tally.from_json(described))


class Cause(StrEnum):
    """Why a table was edited."""

    COMPACT = "compact"
    STATE = "state"
    RETAIN = "retain"
    PURGE = "purge"
    REPLACE = "replace"
    SWEEP = "sweep"
    """Retired files whose grace is over were deleted."""


@dataclass(frozen=True, slots=True)
class Landing:
    """Changes of a stream that became visible, and how far it has come with them."""

    stream: Stream
    start: Reached | None
    end: Reached
    added: tuple[LakeFile, ...]
    cleared: tuple[LakeClear, ...]

    def to_json(self) -> Json:
        return {
            **self.stream._asdict(),
            "start": asdict(self.start) if self.start else None,
            "end": asdict(self.end),
            "added": [file.to_json() for file in self.added],
            "cleared": [asdict(clear) for clear in self.cleared],
        }

    @classmethod
    def from_json(cls, described: Json) -> Self:
        return cls(
            stream=Stream(described["flow"], described["topic"], described["partition"]),
            start=Reached(**described["start"]) if described["start"] else None,
            end=Reached(**described["end"]),
            added=tuple(map(LakeFile.from_json, described["added"])),
            cleared=tuple(map(LakeClear.from_json, described["cleared"])),
        )

    def numbered(self, number: int) -> Self:
        """With its files knowing the commit that brought them."""
        return replace(self, added=tuple(replace(file, since=number) for file in self.added))


@dataclass(frozen=True, slots=True)
class Edit:
    """What was done to one table; paths in `removed` are retired, those in `swept` are deleted."""

    cause: Cause
    table: str
    """`Namespace.all_versions`; empty for a sweep."""
    added: tuple[LakeFile, ...] = ()
    removed: tuple[str, ...] = ()
    state: LakeState | None = None
    ended: tuple[str, ...] = ()
    """Names of states that are no more; their files are retired."""
    horizon: Horizon | None = None
    purge: Purge | None = None
    taken: tuple[Taken, ...] = ()
    cleared: tuple[LakeClear, ...] = ()
    """Clears that a replacement brings."""
    swept: tuple[str, ...] = ()

    def to_json(self) -> Json:
        return {
            "cause": self.cause,
            "table": self.table,
            "added": [file.to_json() for file in self.added],
            "removed": self.removed,
            "state": self.state.to_json() if self.state else None,
            "ended": self.ended,
            "horizon": asdict(self.horizon) if self.horizon else None,
            "purge": asdict(self.purge) if self.purge else None,
            "taken": [taken.to_json() for taken in self.taken],
            "cleared": [asdict(clear) for clear in self.cleared],
            "swept": self.swept,
        }

    @classmethod
    def from_json(cls, described: Json) -> Self:
        return cls(
            cause=Cause(described["cause"]),
            table=described["table"],
            added=tuple(map(LakeFile.from_json, described["added"])),
            removed=tuple(described["removed"]),
            state=LakeState.from_json(described["state"]) if described["state"] else None,
            ended=tuple(described["ended"]),
            horizon=Horizon(**described["horizon"]) if described["horizon"] else None,
            purge=Purge.from_json(described["purge"]) if described["purge"] else None,
            taken=tuple(map(Taken.from_json, described["taken"])),
            cleared=tuple(map(LakeClear.from_json, described["cleared"])),
            swept=tuple(described["swept"]),
        )

    def numbered(self, number: int) -> Self:
        """With those of its files that bring new rows (a replacement's) knowing the commit that brought them."""
        return replace(self, added=tuple(file if file.since else replace(file, since=number) for file in self.added))


@dataclass(frozen=True, slots=True)
class Commit:
    """What became visible at once."""

    number: int
    time: str
    what: Landing | Edit

    def to_json(self) -> Json:
        kind = "landing" if isinstance(self.what, Landing) else "edit"
        return {"number": self.number, "time": self.time, kind: self.what.to_json()}

    @classmethod
    def from_json(cls, described: Json) -> Self:
        number, time = described["number"], described["time"]
        if "landing" in described:
            return cls(number, time, Landing.from_json(described["landing"]).numbered(number))
        return cls(number, time, Edit.from_json(described["edit"]))
