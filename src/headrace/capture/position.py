"""Where capture of a MySQL or MariaDB source stands: a place in a server's binlog, and what is needed to find it on another server.

It travels as the position of the marks on the log (ums/change.py)::

    {"file": "binlog.000012", "offset": 4711, "expanded": 0, "gtids": "…:1-815", "server": "…", "renumbered": 0, "behind_gap": false}

The place names bytes of one server's files. `gtids` names the transactions before it, which every server of a replication group
knows: they lead to the same point in another server's log. Its files have other numbers, so `renumbered` is chosen such that the
ids made of them are larger than all ids before.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from headrace.codec.binlog import GtidSet
from headrace.ums.change import Mark

FILE_START = 4
"""Where the first event of a file is, behind its magic number."""
FILE_IDS = 10**12
"""Ids of a file are from its number times this on."""


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    """A place between transactions in a server's binlog."""

    file: str
    offset: int
    expanded: int = 0
    """Bytes that decompression has added before the offset in this file: ids count them."""
    gtids: str = ""
    """All transactions before it, as servers write sets of them; empty when they are not known or have no names."""
    server: str = ""
    """Whose file it is; empty in recorded files."""
    renumbered: int = 0
    """What is added to the number of the file, and of those that follow, in ids."""
    behind_gap: bool = False
    """What stands before it was not read (`headrace skip`): what tables are from here on is not known from there."""

    @classmethod
    def of(cls, mark: Mark) -> BinlogPosition:
        """The position that a mark of this source has."""
        return cls(**mark.position)

    def to_json(self) -> dict[str, Any]:
        """The form that marks carry."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    @property
    def file_number(self) -> int:
        """The number in the file's name."""
        return int(self.file.rpartition(".")[2])

    @property
    def order(self) -> tuple[int, int]:
        """What positions of one server are compared by."""
        return self.file_number, self.offset

    @property
    def id(self) -> int:
        """The `_ums_id_` that a change at this place has."""
        return (self.file_number + self.renumbered) * FILE_IDS + self.offset + self.expanded

    def is_behind(self, goal: BinlogPosition) -> bool:
        """Whether nothing before `goal` comes any more: by place or by name, as a server that is asked by GTIDs does not send
        the last places of its log when nothing happened there."""
        if self.server == goal.server and self.order >= goal.order:
            return True
        return bool(goal.gtids and self.gtids) and GtidSet(goal.gtids) <= GtidSet(self.gtids)

    def on_another_server(self, server: str, first_file: str) -> BinlogPosition:
        """The same point in the log of another server whose oldest file is `first_file`: to be looked for by `gtids`."""
        return BinlogPosition(first_file, FILE_START, gtids=self.gtids, server=server).in_new_files_after(self)

    def behind(self, other: BinlogPosition) -> BinlogPosition:
        """This position with ids above those before `other`, which is where capture stopped."""
        if self.server != other.server or self.order < other.order:
            return self.in_new_files_after(other)
        same_file = self.file_number == other.file_number
        return replace(self, renumbered=other.renumbered, expanded=other.expanded if same_file else self.expanded)

    def in_new_files_after(self, other: BinlogPosition) -> BinlogPosition:
        """This position in files that are renumbered, so that their ids are above those of the file of `other`."""
        return replace(self, renumbered=other.file_number + other.renumbered + 1 - self.file_number)


def first_event_seconds(events: bytes | memoryview) -> int:
    """When the first of some events was written, seconds since 1970 UTC: the first four bytes of its header."""
    return int.from_bytes(events[:4], "little")


def newest_before(files: Sequence[str], time: datetime, begun_at: Callable[[str], int]) -> str:
    """Of files in their order, the newest that was begun before `time` (the oldest when all are younger).

    `begun_at` costs a read or a connection, so few files are asked.
    """
    younger = bisect.bisect_left(files, time.timestamp(), lo=1, key=begun_at)
    return files[younger - 1]
