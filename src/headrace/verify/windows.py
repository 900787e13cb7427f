"""Certificates against the lake as it is: every file read again, counted and digested, every position and commit followed.

Of each table with windows:

1. Its rounds are whole, and each goes on at the position where the one before stood.
2. The lake's commits, read from the first one on, move each stream on without a gap, and stand at each round's commit where its
   members say. So all that a stream brought is in some commit.
3. Each file holds what the manifest says.
4. Of each window with a certificate, the files and what was recorded as taken (retention, purge, replacement) add up to it. Rows beyond it
   are late, and wait for their amendment, if files that came since the newest round hold them; else something is wrong.
5. A window that is closed and has no certificate has no rows, but for late ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import CorruptError, HeadraceError
from headrace.lake.certificate import Round, Rounds
from headrace.lake.commit import Manifest
from headrace.lake.cut import Cut
from headrace.lake.layout import LakeFile
from headrace.lake.records import Commit, Landing, Reached, Stream
from headrace.lake.tally import Tally
from headrace.lake.windows import taken_from


@dataclass(frozen=True, slots=True)
class WindowResult:
    """How one closed window stands."""

    start_us: int
    end_us: int
    number: int | None
    """Of its newest certificate; None when it has none."""
    certified: Tally
    there: Tally
    """What the files have."""
    taken: Tally
    """What was recorded as taken from it."""
    late: Tally
    """What came since, and waits for its amendment."""
    wrong: str
    """What is wrong with it; empty when nothing is."""


@dataclass(frozen=True, slots=True)
class TableWindows:
    """How the windows of one table stand."""

    table: str
    windows: tuple[WindowResult, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with its files, certificates and positions."""

    @property
    def ok(self) -> bool:
        return not self.problems and not any(window.wrong for window in self.windows)


def check_windows(manifest: Manifest) -> list[TableWindows]:
    """Checks all tables of a lake that have windows; changes nothing. Refreshes the manifest."""
    rounds: dict[str, Rounds] = {}
    results: dict[str, TableWindows] = {}
    for table in sorted(manifest.tables):
        try:
            known = Rounds(manifest.lake, table)
            if known.all:
                rounds[table] = known
        except CorruptError as error:
            results[table] = TableWindows(table, problems=(error.message,))
    manifest.refresh()  # Behind the rounds: rows that came with it are late, and none that a round counted is missing.
    gaps = _followed(manifest, rounds)
    for table, known in rounds.items():
        results[table] = _checked(manifest, table, known, [*_unchained(known), *gaps[table]])
    return [results[table] for table in sorted(results)]


@dataclass(slots=True)
class _Sums:
    """What files hold by window, and what those of them do that came since the newest round."""

    there: dict[int, Tally] = field(default_factory=dict)
    late: dict[int, Tally] = field(default_factory=dict)


def _checked(manifest: Manifest, table: str, rounds: Rounds, problems: Sequence[str]) -> TableWindows:
    assert rounds.last is not None, "a table without windows is not checked"
    cut, sums, found = rounds.last.cut, _Sums(), list(problems)
    for file in manifest.tables[table]:
        found += _read(manifest, file, cut, rounds.last.commit, sums)
    taken: Mapping[int, Tally] = {}
    try:
        taken = taken_from(manifest, table)
    except CorruptError as error:
        found.append(error.message)
    until_us = rounds.until_us
    closed = [start for start in sums.there if until_us is not None and start < until_us]
    windows = tuple(_window(rounds, cut, start, sums, taken) for start in sorted({*rounds.newest, *closed}))
    return TableWindows(table, windows, tuple(found))


def _read(manifest: Manifest, file: LakeFile, cut: Cut, commit: int, sums: _Sums) -> Iterator[str]:
    """Adds up what a file holds; what is wrong with it when it is not what was written."""
    try:
        found = cut.read(manifest.lake, file)
    except HeadraceError as error:
        yield error.message
        return
    for start, part in found.items():
        for into in (sums.there, *((sums.late,) if file.since > commit else ())):
            into[start] = into.get(start, Tally()) + part.rows


def _window(rounds: Rounds, cut: Cut, start: int, sums: _Sums, taken: Mapping[int, Tally]) -> WindowResult:
    newest = rounds.newest[start][1] if start in rounds.newest else None
    there, gone, came = (known.get(start, Tally()) for known in (sums.there, taken, sums.late))
    certified = newest.rows if newest else Tally()
    beyond = there + gone - certified
    is_late = beyond.is_within(came)
    return WindowResult(
        start_us=start,
        end_us=start + cut.length_us,
        number=newest.number if newest else None,
        certified=certified,
        there=there,
        taken=gone,
        late=beyond if is_late else Tally(),
        wrong="" if is_late else _wrong(beyond, has_certificate=newest is not None),
    )


def _wrong(beyond: Tally, *, has_certificate: bool) -> str:
    if not has_certificate:
        return f"it is closed and has {beyond.rows} rows, but no certificate"
    changed = ", ".join(f"{count:+} {name}" for name, count in beyond.operations.items())
    return f"its files do not have what was certified: {changed or 'as many rows, but other ones'}"


def _unchained(rounds: Rounds) -> Iterator[str]:
    """Rounds that do not go on where the one before stood, and amendments without what they amend."""
    stood: dict[Stream, Reached | None] = {}
    numbers: dict[int, int] = {}
    for round_ in rounds.all:
        for member in round_.members:
            if member.start != (before := stood.get(member.stream)):
                yield (
                    f"round {round_.number} begins at {_at(member.start)} of {_named(member.stream)}, and the one before"
                    f" ended at {_at(before)}"
                )
            stood[member.stream] = member.end
        for each in round_.certificates:
            if each.number > numbers.get(each.start_us, 0) + 1:
                yield f"amendment {each.number} of the window at {each.start_us} µs has no certificate before it"
            numbers[each.start_us] = each.number


def _followed(manifest: Manifest, rounds: Mapping[str, Rounds]) -> dict[str, list[str]]:
    """Follows all commits, when there are rounds; by table, what does not fit together."""
    made: dict[int, list[tuple[str, Round]]] = {}
    for table, known in rounds.items():
        for round_ in known.all:
            made.setdefault(round_.commit, []).append((table, round_))
    everywhere: list[str] = []
    own: dict[str, list[str]] = {table: [] for table in rounds}
    reached: dict[Stream, Reached] = {}
    try:
        for commit in manifest.commits(range(1, manifest.number + 1 if rounds else 1)):
            everywhere += _moved(commit, reached)
            for table, round_ in made.get(commit.number, ()):
                own[table] += _elsewhere(round_, reached)
    except CorruptError as error:
        everywhere.append(error.message)
    return {table: [*everywhere, *problems] for table, problems in own.items()}


def _moved(commit: Commit, reached: dict[Stream, Reached]) -> Iterator[str]:
    """Moves a landing's stream on; what is wrong when it does not go on where it stood."""
    if not isinstance(commit.what, Landing):
        return
    stream, start = commit.what.stream, commit.what.start
    if start != (before := reached.get(stream)):
        yield f"commit {commit.number} begins at {_at(start)} of {_named(stream)}, and the one before ended at {_at(before)}"
    reached[stream] = commit.what.end


def _elsewhere(round_: Round, reached: Mapping[Stream, Reached]) -> Iterator[str]:
    """What a round says of positions that is not so."""
    for member in round_.members:
        if member.end != (there := reached.get(member.stream)):
            yield (
                f"round {round_.number} says that it is at {_at(member.end)} of {_named(member.stream)}, and commit"
                f" {round_.commit} is at {_at(there)}"
            )


def _at(reached: Reached | None) -> str:
    return "the beginning" if reached is None else f"offset {reached.offset} (id {reached.id})"


def _named(stream: Stream) -> str:
    return f"{stream.topic}/{stream.partition} in flow {stream.flow}"
