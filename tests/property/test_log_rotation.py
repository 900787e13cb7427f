"""Log files that are rotated while they are read, with captures that die: every line comes once, in its host's order, with a larger id.

The files are real. What happens to them happens before any of the capture's own calls to the file system (listing a directory, asking for a file, opening, reading),
as it does when both are processes. The clock of the file system moves in steps, so most things happen in the same moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.capture.applog import content, listing
from headrace.capture.applog.content import Content, PlainContent
from headrace.capture.applog.source import AppLogConfig, AppLogSource
from headrace.ums.change import ChangeBatch, Mark
from tests.rotation import WrittenLog

HISTORIES = max(40, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 5)
RULE = {
    "table": "said",
    "steps": [{"do": "extract", "regex": r"^(?P<at>\S+) (?P<who>\S+) (?P<number>\d+)"}],
    "time": "at",
    "columns": {"who": "text", "number": "int", "line": "text"},
}
BEGIN_S, TICK_S = 1_770_000_000.5, 0.004


class Captured:
    """A log and a capture that dies: what was appended stays, with its mark; what was only read comes again."""

    def __init__(self, directory: Path, pattern: str, clock: Callable[[], float]) -> None:
        options = {"name": "web", "files": str(directory / pattern), "rules": [RULE]}
        self.config = AppLogConfig.model_validate(options)
        self.directory = directory
        self.rows: list[dict[str, Any]] = []
        self.marks: list[Mark] = []
        self.source: AppLogSource | None = None
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """As after kill -9."""
        if self.source is not None:
            self.source.close()
        self.source = AppLogSource(self.config, self.directory / "state", self._clock, lambda _: None)
        self._events = self.source.follow(self.marks[-1] if self.marks else None)

    def step(self, *, dies: bool = False) -> bool:
        """One event; with `dies` it does not come to the log. Whether all was read."""
        event = next(self._events)
        if dies:
            self.begin()
            return False
        before = self.marks[-1].id if self.marks else -1
        assert event.mark is not None
        assert not event.notices
        for batch in event.changes:
            assert isinstance(batch, ChangeBatch)
            ids = batch.data.column("_ums_id_").to_pylist()
            assert before < ids[0]
            assert ids[-1] <= event.mark.id
            assert ids == sorted(set(ids))
            self.rows += [row | {"table": batch.table.namespace.table} for row in batch.data.to_pylist()]
        self.marks.append(event.mark)
        return event.caught_up

    def close(self) -> None:
        assert self.source is not None
        self.source.close()

    def all(self) -> None:
        """To the end, with a look at the directories."""
        self.begin()
        while not self.step():
            pass


class Site:
    """Two hosts whose logs are written and rotated, a limited number of times, while somebody looks."""

    def __init__(self, directory: Path, pick: Random, pattern: str, *, dated: bool) -> None:
        self.pick = pick
        self.now_s = BEGIN_S
        self.left = 0
        self._dated = dated
        self.logs = [
            WrittenLog(directory / "logs" / host / "app.log", host, clock_ns=self._clock_ns, dated=dated)
            for host in ("web1", "web2")
        ]
        self._rotations: dict[str, Iterator[None]] = {}
        # The clock jumps, so that some events come after a look at the directories and some do not.
        self.captured = Captured(directory, pattern, lambda: self.now_s + pick.choice((0.0, 0.0, 2.0)))

    def _clock_ns(self) -> int:
        return int(self.now_s / TICK_S) * int(TICK_S * 10**9)

    def meanwhile(self) -> None:
        """What others do before one call of the capture."""
        if self.pick.random() < 0.15:
            for _ in range(self.pick.randrange(1, 6)):
                self.happens()

    def happens(self) -> None:
        """One thing that happens to a log."""
        if self.left <= 0:
            return
        self.left -= 1
        log, pick = self.pick.choice(self.logs), self.pick
        self.now_s += pick.choice((0.0, 0.0, 0.0, TICK_S, 1.0))
        if pick.random() < 0.4 and not log.held:
            log.write(pick.randrange(1, 8), padding=pick.choice([0, 10, 3000]), ends=pick.random() < 0.7)
        else:
            self._goes_on(log)

    def _goes_on(self, log: WrittenLog) -> None:
        rotation = self._rotations.pop(log.host, None) or self._rotation(log)
        if next(rotation, self) is None:
            self._rotations[log.host] = rotation

    def _rotation(self, log: WrittenLog) -> Iterator[None]:
        pick = self.pick
        self.now_s += TICK_S * self._dated  # a day has passed
        match pick.randrange(3):
            case 0:
                return log.renamed(creates=pick.random() < 0.5)
            case 1:
                return log.copied(pick.choice((40, 4000, 1 << 20)))
            case _:
                return log.packed(kept=pick.randrange(2), whole_seconds=pick.random() < 0.5)

    def rests(self) -> None:
        """All that was begun is done."""
        for log in self.logs:
            while log.host in self._rotations:
                self._goes_on(log)

    def is_looked_at(self) -> None:
        """One thing that may happen to the capture."""
        match self.pick.randrange(6):
            case 0:
                self.captured.begin()
            case 1:
                self.captured.step(dies=True)
            case 2 if self.pick.random() < 0.2:
                left, self.left = self.left, 0
                self.rests()
                self.captured.all()
                self.captured.step()
                self.pick.choice(self.logs).remove(self.pick.randrange(1, 4))
                self.left = left
            case _:
                self.captured.step()


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Called before each call of the capture to the file system."""
    called: list[Callable[[], None]] = []

    def interrupt() -> None:
        for each in called:
            each()

    entries, open_content, read = listing.entries, content.open_content, PlainContent.read

    def entries_one_by_one(directory: Path) -> Iterator[os.DirEntry[str]]:
        for entry in entries(directory):
            interrupt()
            yield entry

    def open_later(path: Path) -> Content | None:
        interrupt()
        return open_content(path)

    def read_later(plain: PlainContent, offset: int, count: int) -> bytes:
        interrupt()
        return read(plain, offset, count)

    monkeypatch.setattr(listing, "entries", entries_one_by_one)
    for module in ("copies", "followed"):
        monkeypatch.setattr(f"headrace.capture.applog.{module}.open_content", open_later)
    monkeypatch.setattr(PlainContent, "read", read_later)
    return called


def histories() -> list[int]:
    seed = os.environ.get("HEADRACE_SEED")
    return [int(seed)] if seed else list(range(HISTORIES))


@pytest.mark.parametrize("seed", histories())
@pytest.mark.parametrize("pattern", ["logs/{host}/app.log", "logs/{host}/app.log*"])
def test_every_line_comes_once_and_in_order(
    tmp_path: Path, seed: int, pattern: str, interrupts: list[Callable[[], None]]
) -> None:
    pick = Random(seed)
    site = Site(tmp_path, pick, pattern, dated=pick.random() < 0.3)
    for log in site.logs:
        log.write(1)
    site.captured.step()
    site.left = pick.randrange(10, 150)
    interrupts.append(site.meanwhile)
    while site.left:
        pick.choice((site.happens, site.is_looked_at))()
    site.rests()
    for log in site.logs:
        log.write(1)
    site.captured.all()
    assert [row for row in site.captured.rows if row["table"] != "said"] == []
    for log in site.logs:
        mine = [row for row in site.captured.rows if row["who"] == log.host]
        places = [(row["number"], row["path"], row["offset"]) for row in mine]
        assert [number for number, _, _ in places] == list(range(len(log.lines))), places
        assert all(row["line"] == line for row, line in zip(mine, log.lines, strict=True))
        assert {row["host"] for row in mine} == {log.host}
        log.close()
    site.captured.close()
