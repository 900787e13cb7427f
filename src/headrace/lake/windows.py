"""Windows of event time: open, closed when and only when all of it is there, amended when rows come later all the same.

A window closes when the low watermark (watermark.py) has passed its end, which says that nothing earlier will come and that what came is
committed in the lake; the state of the lake that is counted is read after the watermark was asked, so it has all of that. What is certified
are the rows in the lake's files and what was taken from the window before (certificate.py); so care may merge, retain and purge at any time.

Amendments. Let N be the commit of a table's newest round. Rows that have come since are in files whose `since` is above N, as a
merged file has the newest `since` of its parts. So only closed windows with rows in such files are counted again; one whose sum is not
that of its newest certificate has got rows, and is certified anew. One whose sum is the same was merely merged. Before care merges,
retains or purges anything in a table it looks for amendments, so that late rows are mostly found in files of their own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from headrace.errors import ConfigError, CorruptError
from headrace.lake.certificate import Certificate, Member, Passed, Round, Rounds
from headrace.lake.commit import Manifest
from headrace.lake.cut import Cut, Found
from headrace.lake.layout import LakeFile
from headrace.lake.records import Edit, Stream, Taken
from headrace.lake.tally import Tally
from headrace.lake.watermark import CommitTimes, LowWatermark
from headrace.model import Duration, Model
from headrace.ums.schema import Namespace

_US = 1_000_000


class WindowPolicy(Model):
    """Windows of event time, that close with a certificate. ``1h`` is short for ``{length: 1h}``."""

    length: Annotated[Duration, Field(ge=1)]
    """How long a window is; the first begins at 1970-01-01T00:00:00 UTC."""
    event_time: dict[str, str] = Field(default_factory=dict)
    """Tables whose rows have their event time in a column: ``{"shop.orders": created_at}``; ``_ums_ts_`` is the time of the change itself, which
    of an HBase is that of writing; of the others the commit time counts."""
    delay: Annotated[Duration, Field(ge=0)] = 0.0
    """How long the watermark must have passed a window's end: the usual lateness of an event time in a column."""

    def cut(self, table: Namespace) -> Cut:
        """How a table is cut into windows."""
        return Cut(round(self.length * _US), self.event_time.get(f"{table.schema}.{table.table}", ""))


def _as_length(value: object) -> object:
    return value if isinstance(value, (dict, WindowPolicy)) or value is None else {"length": value}


Windows = Annotated[WindowPolicy, BeforeValidator(_as_length)]


@dataclass(frozen=True, slots=True)
class Closing:
    """What windows the tables of a lake have, and whose watermark closes them."""

    policy: WindowPolicy
    members: Callable[[Namespace], Sequence[Stream]]
    """The streams that are expected to bring a table."""
    watermark: Callable[[Manifest, Sequence[Stream]], LowWatermark] = CommitTimes


def certify(manifest: Manifest, table: str, time: str, closing: Closing | None = None) -> list[Certificate]:
    """Closes the windows of a table that are due (with `closing`) and amends closed ones that have got rows; returns what was certified.

    Refreshes the manifest. ConfigError when the windows were cut otherwise before; DataError and CorruptError of reading.
    """
    while True:
        rounds = Rounds(manifest.lake, table)
        made = _round(manifest, table, rounds, time, closing)
        if made is None:
            return []
        if rounds.add(made):
            return list(made.certificates)


def _round(manifest: Manifest, table: str, rounds: Rounds, time: str, closing: Closing | None) -> Round | None:
    """The round that is due now; None when there is nothing to say."""
    last = rounds.last
    space = Namespace.parse(f"{table}.0.0.0")
    cut = last.cut if last else closing.policy.cut(space) if closing else None
    if cut is None:
        return None  # nobody has asked for windows of this table
    if closing is not None and closing.policy.cut(space) != cut:
        raise _cut_otherwise(table, cut, closing.policy.cut(space))
    expected = closing.members(space) if closing else ()
    watermark = _asked(manifest, closing, expected)
    manifest.refresh()
    until_us = _later(rounds.until_us, cut.start(watermark.us) if watermark else None)
    certificates = tuple(_due(table, rounds, _count(manifest, table, cut, rounds, until_us)))
    if last is not None and not certificates:
        return None
    return Round(
        number=rounds.count + 1,
        time=time,
        commit=manifest.number,
        cut=cut,
        until_us=until_us,
        watermark=watermark,
        members=tuple(_members(manifest, rounds, expected)),
        certificates=certificates,
    )


def _asked(manifest: Manifest, closing: Closing | None, expected: Sequence[Stream]) -> Passed | None:
    """The watermark that may close windows now, less the delay."""
    if closing is None:
        return None
    watermark = closing.watermark(manifest, expected)
    passed_us = watermark.low_watermark_us()
    if passed_us is None:
        return None
    return Passed(watermark.name, passed_us - round(closing.policy.delay * _US), watermark.lacking())


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


@dataclass(slots=True)
class Counted:
    """All rows that have ever been in some closed windows of a table, and what the files have of them."""

    gross: dict[int, Tally] = field(default_factory=dict)
    found: dict[int, Found] = field(default_factory=dict)


def _count(manifest: Manifest, table: str, cut: Cut, rounds: Rounds, until_us: int | None) -> Counted:
    """The windows that close now, and the closed ones that may have got rows."""
    files = manifest.tables.get(table, [])
    touched = _touched(manifest, cut, rounds, files)
    closed_us = rounds.until_us
    if until_us is None or (until_us == closed_us and not touched):
        return Counted()
    first = closed_us if closed_us is not None else -(2**63)
    starts = sorted(touched)
    spans = [(file, cut.span(manifest.lake, file)) for file in files]
    found = cut.windows(
        manifest.lake,
        (
            file
            for file, (low, high) in spans
            if (high >= first and low < until_us) or bisect_left(starts, cut.start(low)) < bisect_right(starts, high)
        ),
    )
    taken = taken_from(manifest, table)
    wanted = touched.union(start for start in (*found, *taken) if first <= start < until_us)
    gross = {start: found.get(start, Found()).rows + taken.get(start, Tally()) for start in wanted}
    return Counted(gross, found)


def _touched(manifest: Manifest, cut: Cut, rounds: Rounds, files: Iterable[LakeFile]) -> set[int]:
    """Closed windows that have rows in files which came since the newest round."""
    last, closed_us = rounds.last, rounds.until_us
    if last is None or closed_us is None:
        return set()
    new = [file for file in files if file.since > last.commit and cut.span(manifest.lake, file)[0] < closed_us]
    return {start for start in cut.windows(manifest.lake, new) if start < closed_us}


def _due(table: str, rounds: Rounds, counted: Counted) -> Iterator[Certificate]:
    """The certificates of windows that close, and of closed ones that have more rows than their newest certificate says.

    CorruptError for a window that has lost rows: no certificate may be made to fit that.
    """
    closed_us = rounds.until_us
    closed = {start for start in counted.gross if closed_us is not None and start < closed_us}
    newest = rounds.newest_of(closed)
    for start, gross in sorted(counted.gross.items()):
        before = newest.get(start)
        came = gross - before.rows if before else gross
        if not came:
            continue
        if not came.is_within(came):
            raise CorruptError(
                f"a closed window of {table} has lost rows that were certified (it begins at {start} µs, certificate {before.number if before else 0})",
                fix="`headrace verify FLOW --windows` says more; bring the lost files back from a copy of the lake",
            )
        number = (before.number if before else 0) + 1 if start in closed else 0
        found = counted.found.get(start, Found(id=(0, 0)))
        yield Certificate(start, number, gross, found.id, tuple(sorted(found.versions)), tuple(found.files))


def _members(manifest: Manifest, rounds: Rounds, expected: Sequence[Stream]) -> Iterator[Member]:
    """Where each stream that brings the table stands: the expected ones, the lanes of their full loads, and those of earlier rounds."""
    before = {member.stream: member.end for member in rounds.last.members} if rounds.last else {}
    sources = {(stream.flow, f"{stream.topic}.") for stream in expected}
    lanes = [each for each in manifest.reached if any(each.flow == f and each.topic.startswith(t) for f, t in sources)]
    for stream in sorted({*before, *expected, *lanes}):
        yield Member(stream, before.get(stream), manifest.reached.get(stream))


def taken_from(manifest: Manifest, table: str) -> dict[int, Tally]:
    """What was taken from each window of a table, by its start."""
    found: dict[int, Tally] = {}
    for commit in manifest.commits(manifest.takings.get(table, [])):
        assert isinstance(commit.what, Edit), "only edits take rows"
        for taken in commit.what.taken:
            found[taken.start_us] = found.get(taken.start_us, Tally()) + taken.rows
    return found


def takings(manifest: Manifest, table: str, removed: Sequence[LakeFile], kept: Sequence[LakeFile]) -> tuple[Taken, ...]:
    """What an edit takes from windows when it removes files and keeps of their rows those in others; nothing for a table without windows.

    Reads the removed files whole: CorruptError when one is not what was written, as its certificate would then be made to fit.
    """
    last = Rounds(manifest.lake, table).last
    if last is None:
        return ()
    left: dict[int, Tally] = {}
    for file in removed:
        _add(left, {start: found.rows for start, found in last.cut.read(manifest.lake, file).items()})
    _add(left, {start: -found.rows for start, found in last.cut.windows(manifest.lake, kept).items()})
    return tuple(Taken(start, rows) for start, rows in sorted(left.items()) if rows)


def _add(sums: dict[int, Tally], more: Mapping[int, Tally]) -> None:
    for start, rows in more.items():
        sums[start] = sums.get(start, Tally()) + rows


def _cut_otherwise(table: str, before: Cut, now: Cut) -> ConfigError:
    def shown(cut: Cut) -> str:
        by = f"column {cut.column}" if cut.column else "commit time"
        return f"{cut.length_us / _US:g} s by {by}"

    return ConfigError(
        f"windows of {table} are {shown(before)} since the first one, and now are to be {shown(now)}",
        fix="write `windows` as it was; other windows need a lake of their own (a flow with a new name fills it from the log)",
    )


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a table as it is now."""

    table: str
    start_us: int
    end_us: int
    state: Literal["open", "closed", "amended"]
    rows: Tally
    """All that have ever been in it, as certified; of an open one, what is in the files."""
    certificate: Certificate | None = None
    """The newest one."""
    round: Round | None = None
    """The round that it was made in."""


def windows_of(manifest: Manifest, table: str) -> list[Window]:
    """A table's windows that have rows or had some, by time; none for a table that nobody has asked for windows of. Refreshes the manifest."""
    rounds = Rounds(manifest.lake, table)
    if rounds.last is None:
        return []
    manifest.refresh()
    cut = rounds.last.cut
    closed = [
        Window(table, start, start + cut.length_us, "amended" if each.number else "closed", each.rows, each, round_)
        for start, (round_, each) in sorted(rounds.newest.items())
    ]
    from_us = rounds.until_us if rounds.until_us is not None else -(2**63)
    files = [file for file in manifest.tables.get(table, []) if cut.span(manifest.lake, file)[1] >= from_us]
    found = cut.windows(manifest.lake, files)
    opened = [
        Window(table, start, start + cut.length_us, "open", each.rows)
        for start, each in sorted(found.items())
        if start >= from_us
    ]
    return closed + opened
