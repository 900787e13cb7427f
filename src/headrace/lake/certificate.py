"""Certificates: what a lake says of each closed window of a table, so that it can be asked later whether that still holds.

::

    _headrace/windows/mysql/db1/shop/orders/00000000000000000002.json     a round, two lines (checked.py), written once
        {"format":1,"number":2,"time":…,"commit":412,"cut":{"length_us":…,"column":…},
         "until_us":…|null,"watermark":{"of":"commit time","us":…,"lacking":[{"stage":…,"name":…,"us":…,"is_abandoned":…}, …]}|null,
         "members":[{"flow":…,"topic":…,"partition":…,"from":{"offset":…,"id":…,"commit_ts_us":…}|null,"to":{…}|null}, …],
         "certificates":[{"start_us":…,"number":0,"operations":{"i":…,"u":…},"digest":…,"id":[first, last],"versions":[…],"files":[…]}, …]}

A *round* is made of one state of the lake, that of commit `commit`, and is the table's certificates that were due then: windows that have
closed (number 0), and closed windows that have got rows since (1, 2, …: amendments). The first round of a table may have none; it says how its
windows are cut. `until_us`: windows that begin before it are closed; one without a certificate had no rows.

Operations and digest are those of all rows that have ever been in the window. So they never shrink, whatever is done to the files:

    certificate = rows in the lake's files + rows taken from the window by retention, purge, replacement (records.Taken)

`members` are the streams that bring the table, and how far each was read: `from` is where the round before stood (null: the beginning),
`to` where this one stands. All rounds together have them without a gap, and so have the lake's commits between (verify/windows.py).
`files` were the window's files when it was certified; compaction may have merged them since.

Invariants: rounds of a table begin at 1 and have no gaps; a round never changes; `commit`, `until_us` and the watermark never go back.

The crash story. A round is one file, which is created whole, durable and at once, or not at all, behind everything that it speaks of: rows are
committed in the lake long before. Who finds the number taken reads what is there and counts again. Points, in crash.py and killed by tests/faults:

=====================  ===============================================  ====================================================
point                  killed after …, before …                         what is found
=====================  ===============================================  ====================================================
windows.counted        a table's windows counted, before the round      the windows are open, as before; the next care closes them
windows.certified      the round is durable                             the windows are closed
=====================  ===============================================  ====================================================
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from headrace.crash import crash_point
from headrace.lake.checked import checked, not_what_was_written, read_checked
from headrace.lake.cut import Cut
from headrace.lake.layout import WINDOWS, directory_of
from headrace.lake.records import Reached, Stream
from headrace.lake.tally import Tally
from headrace.storage.base import FileTree
from headrace.ums.schema import Namespace

_NAME = re.compile(r"(\d{20})\.json")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is certified of one window."""

    start_us: int
    number: int
    """0 when the window closed, or the number of the amendment."""
    rows: Tally
    id: tuple[int, int]
    """First and last `_ums_id_` of the rows in the files: the window's place in its source's log."""
    versions: tuple[str, ...]
    """Namespaces of the table versions that have rows in it."""
    files: tuple[str, ...]

    def to_json(self) -> Json:
        return {
            "start_us": self.start_us,
            "number": self.number,
            **self.rows.to_json(),
            "id": self.id,
            "versions": self.versions,
            "files": self.files,
        }

    @classmethod
    def from_json(cls, described: Json) -> Self:
        low, high = described["id"]
        sequences = {name: tuple(described[name]) for name in ("versions", "files")}
        return cls(described["start_us"], described["number"], Tally.from_json(described), (low, high), **sequences)


@dataclass(frozen=True, slots=True)
class Member:
    """A stream that brings the table: how far it was read in the round before, and in this one; None before its first commit."""

    stream: Stream
    start: Reached | None
    end: Reached | None

    def to_json(self) -> Json:
        return {
            **self.stream._asdict(),
            "from": asdict(self.start) if self.start else None,
            "to": asdict(self.end) if self.end else None,
        }

    @classmethod
    def from_json(cls, described: Json) -> Self:
        stream = Stream(described["flow"], described["topic"], described["partition"])
        start, end = (Reached(**described[name]) if described[name] else None for name in ("from", "to"))
        return cls(stream, start, end)


@dataclass(frozen=True, slots=True)
class Lacking:
    """A member of an application that a low watermark has not waited for: within the tolerated share, or abandoned."""

    stage: str
    name: str
    us: int
    """How far it was, or when it was given up."""
    is_abandoned: bool


@dataclass(frozen=True, slots=True)
class Passed:
    """The low watermark that closed windows, what it is of, and who may have rows that are not there."""

    of: str
    us: int
    lacking: tuple[Lacking, ...] = ()

    @classmethod
    def from_json(cls, described: Json) -> Self:
        return cls(described["of"], described["us"], tuple(Lacking(**each) for each in described["lacking"]))


@dataclass(frozen=True, slots=True)
class Round:
    """Certificates that were made at once; see the drawing above."""

    number: int
    time: str
    commit: int
    cut: Cut
    until_us: int | None
    watermark: Passed | None
    """None in a round of amendments alone."""
    members: tuple[Member, ...]
    """Also those that earlier rounds had."""
    certificates: tuple[Certificate, ...]

    def to_json(self) -> Json:
        return {
            "number": self.number,
            "time": self.time,
            "commit": self.commit,
            "cut": asdict(self.cut),
            "until_us": self.until_us,
            "watermark": asdict(self.watermark) if self.watermark else None,
            "members": [member.to_json() for member in self.members],
            "certificates": [certificate.to_json() for certificate in self.certificates],
        }

    @classmethod
    def from_json(cls, described: Json) -> Self:
        return cls(
            described["number"],
            described["time"],
            described["commit"],
            Cut(**described["cut"]),
            described["until_us"],
            Passed.from_json(described["watermark"]) if described["watermark"] else None,
            tuple(map(Member.from_json, described["members"])),
            tuple(map(Certificate.from_json, described["certificates"])),
        )


class Rounds:
    """The rounds of one table as they stand when this is made; the newest is read at once, older ones when they are asked for."""

    def __init__(self, lake: FileTree, table: str) -> None:
        """`table`: `Namespace.all_versions`. CorruptError when a round is missing or the newest is damaged."""
        versions = directory_of(Namespace.parse(f"{table}.0.0.0"))
        self._lake = lake
        self.directory = f"{WINDOWS}/{versions.rpartition('/')[0]}"
        self.count = self._counted()
        self.last = self._read(self.count) if self.count else None
        """The newest round; None when the table's windows were never looked at."""

    @property
    def until_us(self) -> int | None:
        """Windows that begin before are closed; None when none is."""
        return self.last.until_us if self.last else None

    @cached_property
    def all(self) -> list[Round]:
        """All of them, oldest first; CorruptError when one is damaged."""
        return [self._read(number) for number in range(1, self.count + 1)]

    @cached_property
    def newest(self) -> dict[int, tuple[Round, Certificate]]:
        """The newest certificate of each window that has one, by its start, with its round."""
        return {each.start_us: (round_, each) for round_ in self.all for each in round_.certificates}

    def newest_of(self, starts: Collection[int]) -> dict[int, Certificate]:
        """The same of some windows only: reads no older rounds than it must."""
        left, found = set(starts), dict[int, Certificate]()
        for number in range(self.count, 0, -1):
            if not left:
                break
            fit = [each for each in self._read(number).certificates if each.start_us in left]
            found.update((each.start_us, each) for each in fit)
            left -= found.keys()
        return found

    def known_at(self, commit: int) -> Round | None:
        """The newest round that speaks of no state of the lake behind a commit."""
        read = (self._read(number) for number in range(self.count, 0, -1))
        return next((round_ for round_ in read if round_.commit <= commit), None)

    def add(self, made: Round) -> bool:
        """Makes a round count, at once and durably; False when its number is taken, by another caretaker. Then this is out of date."""
        crash_point("windows.counted")
        if not self._lake.create(self._path(made.number), checked(made.to_json())):
            return False
        crash_point("windows.certified")
        return True

    def _path(self, number: int) -> str:
        return f"{self.directory}/{number:020d}.json"

    def _counted(self) -> int:
        found = [_NAME.fullmatch(name) for name in self._lake.names(self.directory)]
        numbers = {int(match[1]) for match in found if match}
        missing = next((number for number in range(1, len(numbers) + 1) if number not in numbers), None)
        if missing is not None:
            raise not_what_was_written(self._lake, self._path(missing), "it is missing, but later rounds exist")
        return len(numbers)

    def _read(self, number: int) -> Round:
        path = self._path(number)
        try:
            found = Round.from_json(read_checked(self._lake, path))
        except FileNotFoundError as error:
            raise not_what_was_written(self._lake, path, "it is missing") from error
        except (KeyError, TypeError, ValueError) as error:
            raise not_what_was_written(self._lake, path, f"it lacks or misuses {error}") from error
        if found.number != number:
            raise not_what_was_written(self._lake, path, f"it holds round {found.number}")
        return found
