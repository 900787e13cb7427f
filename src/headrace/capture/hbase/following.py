"""Following the files of HBase's log, in an order in which every region's changes come as they were made.

Within a group (one log of one server) files follow each other, and a region's entries stand in the order of their sequence. From
group to group a region moves: it is closed on one server, or the server dies, and is then opened on another, which notes that in its log
before the first change. So a group is held at each note of an opening until every other group has been read to an end that was
looked up after the note: what the region had elsewhere was written before it was opened, and so has been read.

Two groups may be held at once, each by a note behind which the other's region might have been closed. That cannot be so for both: closing
comes before opening, and one of the openings was first. So of groups that are held the one whose note was written first goes
on, when all others that are not held have been read to their ends. (First by the clocks of the servers; HBase refuses servers whose clocks
differ by more than 30 s.)

A server makes a file before it has written all that it had begun to write into the one before. It adds nothing more to that one as soon as the new
one has an entry, or was closed. So a file that is followed by another is over when nothing is in it that was not read, looked at after that was
seen; one that has its trailer, or was moved to where finished files are, is over at once.

A writer that loses its file writes what was not acknowledged again into the next one, so entries come twice, within one group. They are known by
their sequence, which grows within a region: what is not above the newest one of its region in the group is left out. A region that
is opened with a smaller sequence is a new beginning.

Crash story: everything here is made anew of `to_json`. Offsets are those behind the entries that were handed out, so an entry that
was read and held is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.hbase.places import Place, WalStore, find, is_log, is_of_procedures
from headrace.codec.hbase_wal import WalBatch, WalReader, read_on
from headrace.errors import SourceError

_CELLS_AT_ONCE = 100_000
_LOOKS = 4
"""So often a file must be missing in a row before it is lost: a directory may be renamed while it is listed."""
_LOOK_PAUSE_S = 0.25
_OVER = -1
_META, _ANY = "hbase:meta", "*:*"


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries of one group that follow each other, with the offset in their file behind them."""

    group: str
    file: str
    batch: WalBatch


@dataclass(slots=True)
class _Hold:
    """A note of an opening at which a group waits. `look`: how often had been looked before."""

    written_ms: int
    look: int


@dataclass(slots=True)
class _File:
    place: Place
    offset: int
    """Behind the last entry that was handed out."""
    reader: WalReader | None = None
    batches: Iterator[WalBatch] | None = None
    is_followed: bool = False
    """Its server writes into a later one, and adds nothing to it."""


@dataclass(slots=True)
class _Group:
    """One log of one server. `seen`: the newest sequence by region, of the regions in its last two files."""

    name: str
    files: list[_File] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    in_file: set[str] = field(default_factory=set)
    waiting: WalBatch | None = None
    """Read and not handed out: it begins with the note that holds the group, when `hold` is set."""
    hold: _Hold | None = None
    has_waited: bool = False
    """The note that `waiting` begins with holds it no more."""
    at_end: int = -1
    """The newest look behind which its end was reached."""
    newest_ms: int = 0
    """The newest write time that was handed out; of a group that nothing was read of, when its first file was begun."""


class Following:
    """All groups. `start_ms`: entries that were written earlier are left out. `tables`: patterns ``namespace:table``."""

    def __init__(
        self,
        store: WalStore,
        tables: Sequence[str],
        start_ms: int,
        position: Mapping[str, Any] | None = None,
        *,
        forgives: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._tables = tables
        self._start_ms = start_ms
        self._forgives = forgives
        self._sleep = sleep
        files: dict[str, int] = position["files"] if position else {}
        self._over = {name for name, offset in files.items() if offset == _OVER}
        self._resumed = {name: offset for name, offset in files.items() if offset != _OVER}
        """Offsets of files that no look has found yet."""
        self._seen: dict[str, dict[str, int]] = dict(position["seen"]) if position else {}
        self._groups: dict[str, _Group] = {}
        self._turn = 0
        self._look = 0
        self._notices: list[str] = []
        self.caught_up = False

    def to_json(self) -> dict[str, Any]:
        """Where reading goes on: the offset in each file, -1 for one that is over; the newest sequences."""
        reading = {file.place.name: file.offset for group in self._groups.values() for file in group.files}
        seen = {group.name: dict(group.seen) for group in self._groups.values() if group.seen}
        return {"files": dict.fromkeys(sorted(self._over), _OVER) | self._resumed | reading, "seen": self._seen | seen}

    def look(self) -> None:
        """Finds the files anew. SourceError when one is gone that was not read to its end."""
        places = self._places()
        self._look += 1
        self._over.intersection_update(places)
        for group in self._groups.values():
            for file in group.files:
                file.place = places[file.place.name]
        reading = {file.place.name for group in self._groups.values() for file in group.files}
        for place in sorted(places.values(), key=lambda place: (place.group, place.created_ms)):
            if place.name not in reading and place.name not in self._over:
                self._add(place, places)
        self._groups = {name: group for name, group in self._groups.items() if group.files}

    def _places(self) -> dict[str, Place]:
        for attempt in range(_LOOKS):
            if attempt:
                self._sleep(_LOOK_PAUSE_S)
            places = find(self._store, meta=_META in self._tables)
            offsets = self.to_json()["files"]
            missing = [name for name, offset in offsets.items() if name not in places and offset != _OVER]
            if not missing:
                return places
        self._lose({name: offsets[name] for name in missing})
        return places

    def take(self) -> list[Piece]:
        """What groups have now, each a batch, up to a size; nothing when all are at their ends, or wait for a look."""
        found: list[Piece] = []
        cells, groups = 0, sorted(self._groups.values(), key=lambda group: group.name)
        turn = self._turn % len(groups) if groups else 0
        for number, group in enumerate(groups[turn:] + groups[:turn]):
            found += (mine := list(self._of_group(group)))
            cells += sum(piece.batch.cells.num_rows for piece in mine)
            if cells >= _CELLS_AT_ONCE:
                self._turn = turn + number + 1
                break
        self._release(groups)
        self.caught_up = not found and all(group.at_end == self._look and group.hold is None for group in groups)
        return found

    def take_notices(self) -> tuple[str, ...]:
        """What a person must know, once."""
        taken, self._notices = tuple(self._notices), []
        return taken

    def low_ms(self, looked_ms: int) -> int:
        """The time up to which all that was written has been handed out, by the clocks of the servers: the least of all groups, those of servers
        that are gone among them until nothing is left of their files. `looked_ms`: when the newest look began; a group whose end was
        reached behind it has nothing older.
        """
        times = [
            max(group.newest_ms, looked_ms) if group.at_end == self._look and group.hold is None else group.newest_ms
            for group in self._groups.values()
        ]
        return min(times, default=looked_ms)

    @property
    def needs_look(self) -> bool:
        """A group is held, and goes on only after a look."""
        return any(group.hold is not None for group in self._groups.values())

    def _lose(self, missing: dict[str, int]) -> None:
        lost = ", ".join(f"{name} (read up to byte {offset:,})" for name, offset in missing.items())
        error = SourceError(
            f"files of HBase's log in {self._store.root} were deleted before they were read to their end: {lost}; what was written to"
            " them behind that is not known here",
            fix="go on behind the gap (`headrace skip FLOW.yaml --to earliest`; a Spark query with a new `path` and checkpoint, a client without its"
            " position) and load the tables again; and raise hbase.master.logcleaner.ttl above the longest time that reading may stand still",
        )
        if not self._forgives:
            raise error
        self._notices.append(error.message)
        self._resumed = {name: offset for name, offset in self._resumed.items() if name not in missing}
        for group in self._groups.values():
            group.files = [file for file in group.files if file.place.name not in missing]

    def _add(self, place: Place, places: dict[str, Place]) -> None:
        others = [other.created_ms for other in places.values() if other.group == place.group]
        if place.name not in self._resumed and any(place.created_ms < other <= self._start_ms for other in others):
            self._over.add(place.name)
            return
        if is_of_procedures(place) and not is_log(self._store, place.path):
            self._over.add(place.name)
            self._notices.append(f"{place.path} is passed over: it holds the procedures of HBase's master, no changes")
            return
        group = self._groups.get(place.group)
        if group is None:
            seen = dict(self._seen.pop(place.group, {}))
            group = self._groups[place.group] = _Group(place.group, seen=seen, in_file=set(seen))
            group.newest_ms = place.created_ms
        group.files.append(_File(place, self._resumed.pop(place.name, 0)))
        group.files.sort(key=lambda file: file.place.created_ms)

    def _of_group(self, group: _Group) -> Iterator[Piece]:
        if group.hold is not None:
            return
        if group.waiting is None and not self._read(group):
            return
        batch, group.waiting = group.waiting, None
        assert batch is not None
        ready = self._cut(group, batch)
        if len(ready):
            file = group.files[0]
            group.newest_ms = max(group.newest_ms, pc.max(ready.entries["write_time"]).as_py())
            file.offset = ready.entries["end"][-1].as_py()
            yield Piece(group.name, file.place.name, self._wanted(group, ready))

    def _read(self, group: _Group) -> bool:
        """Whether there is a batch of the group's oldest file; files that are over are left."""
        look = self._look
        try:
            while group.files:
                file = group.files[0]
                group.waiting = self._next(file)
                if group.waiting is not None:
                    return True
                if file.is_followed or file.place.is_final or (file.reader is not None and file.reader.ended):
                    self._leave(group)
                elif any(map(self._is_begun, group.files[1:])):
                    file.is_followed = True  # and is read once more
                else:
                    break
        except FileNotFoundError:
            return False  # one is being moved: the next look finds it
        group.at_end = look
        return False

    def _next(self, file: _File) -> WalBatch | None:
        if file.reader is None:
            file.reader = WalReader(file.place.name, self._tables, file.offset)
        if file.batches is None:
            file.batches = read_on(file.reader, partial(self._bytes, file))
        found = None
        try:
            found = next(file.batches, None)
        finally:
            if found is None:
                file.batches = None
        return found

    def _is_begun(self, file: _File) -> bool:
        """Whether a file has an entry, of whatever table, or was closed without one."""
        reader = WalReader(file.place.name, [_ANY])
        return next(read_on(reader, partial(self._bytes, file)), None) is not None or reader.ended

    def _bytes(self, file: _File, start: int, stop: int) -> bytes:
        return self._store.read_on(file.place.path, start, stop)

    def _leave(self, group: _Group) -> None:
        """The group's oldest file is over, and nothing more is in it."""
        self._over.add(group.files.pop(0).place.name)
        group.seen = {region: newest for region, newest in group.seen.items() if region in group.in_file}
        group.in_file = set()

    def _cut(self, group: _Group, batch: WalBatch) -> WalBatch:
        """The entries up to the first note of an opening that was not waited for; the rest waits."""
        for entry in batch.openings():
            if entry or not group.has_waited:
                group.hold = _Hold(batch.entries["write_time"][entry].as_py(), self._look)
                group.has_waited = False
                batch, group.waiting = batch.split(entry)
                return batch
        group.has_waited = False
        return batch

    def _release(self, groups: Sequence[_Group]) -> None:
        held = [(group.hold.written_ms, group.name, group) for group in groups if group.hold is not None]
        if not held:
            return
        _, _, first = min(held)
        assert first.hold is not None
        look = first.hold.look
        if self._look > look and all(other.at_end > look for other in groups if other.hold is None):
            first.hold, first.has_waited = None, True

    def _wanted(self, group: _Group, batch: WalBatch) -> WalBatch:
        """Without entries that came before, or that were written before the start."""
        ranges = pa.table([batch.entries["region"], batch.entries["sequence"]], ["region", "sequence"])
        summed = ranges.group_by("region").aggregate([("sequence", "min"), ("sequence", "max")]).to_pylist()
        spans = {one["region"].decode(): (one["sequence_min"], one["sequence_max"]) for one in summed}
        group.in_file.update(spans)
        wanted: list[bool] | None = None
        if all(first > group.seen.get(region, -1) for region, (first, _) in spans.items()):
            group.seen.update({region: newest for region, (_, newest) in spans.items()})
        else:
            wanted = list(self._not_seen(group, batch))
        written: list[Any] = batch.entries["write_time"].to_pylist()
        if min(written) < self._start_ms:
            late = [ms >= self._start_ms for ms in written]
            wanted = late if wanted is None else list(map(all, zip(wanted, late, strict=True)))
        return batch if wanted is None else batch.where(wanted)

    @staticmethod
    def _not_seen(group: _Group, batch: WalBatch) -> Iterator[bool]:
        opened = set(batch.openings())
        places = batch.entries.select(["region", "sequence"]).to_pylist()
        for entry, place in enumerate(places):
            region, sequence = place["region"].decode(), place["sequence"]
            newest = group.seen.get(region, -1)
            is_new = sequence > newest or (entry in opened and sequence < newest)
            if is_new:
                group.seen[region] = sequence
            yield is_new
