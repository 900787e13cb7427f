"""Random histories of the embedded log against a list: appends, closes, crashes between system calls, lost power, full
disks, other writers, damaged indexes; readers look in at every step.

Nothing acknowledged is lost, nothing torn is read, nothing is seen that a power loss takes back. A history that fails names
its seed; HEADRACE_HISTORIES sets how many are run.
"""

from __future__ import annotations

import os
from itertools import chain, combinations
from pathlib import Path
from random import Random

import pytest

from headrace.errors import FencedError, StorageError
from headrace.log import index, segment
from headrace.log.base import Entry, Span
from headrace.log.directory import DirectoryLog, Retention
from tests.property.simulated_disk import Crash, Machine, Process

HISTORIES = int(os.environ.get("HEADRACE_HISTORIES", "300"))
PER_TEST = 25
STEPS = 40
HOUR_MS = 3_600_000
ROOT = Path("/data/log")


class History:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.machine = Machine()
        retention = Retention(age_s=random.choice([None, 7200]), size_bytes=random.choice([None, 1500]))
        self.keeps_all = retention == Retention() or random.random() < 0.5
        self.config = DirectoryLog.Config(
            path=ROOT,
            segment_bytes=random.choice([1, 300, 1000, 5000]),
            retention=Retention() if self.keeps_all else retention,
            writer_wait_s=0,
        )
        self.log: list[Entry] = []
        self.doubtful: list[list[Entry]] = []
        self.seen: dict[int, Entry] = {}
        self.time_ms = self.newest_ms = HOUR_MS * 1000
        self.new_writer()
        self.new_reader()

    def run(self) -> None:
        steps = [self.append] * 6 + [self.reopen, self.crash, self.crash, self.fill_disk, self.look, self.spoil_index]
        if self.keeps_all:
            steps += [self.take_over, self.overtake]
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.append()
        self.check()

    # what happens

    def append(self) -> None:
        batch = self.new_batch()
        self.doubtful.append(batch)
        span = self.writer.append("t", 0, batch)
        self.acknowledged(span, batch)

    def reopen(self) -> None:
        self.writer.close()
        if self.random.random() < 0.3:
            self.lose_power()
        else:
            self.new_writer()

    def crash(self) -> None:
        """Dies at some system call of an append, of opening before it, or of the close after it."""
        self.process.calls_left = self.random.randint(0, 14)
        try:
            while True:
                self.append()
                if self.random.random() < 0.3:
                    self.writer.close()
        except Crash:
            pass
        if self.random.random() < 0.5:
            self.lose_power()
        else:
            self.new_writer()
        self.look()

    def fill_disk(self) -> None:
        self.process.full_after = self.random.randint(0, 8)
        for _ in range(self.random.randint(1, 4)):
            try:
                self.append()
            except StorageError:
                self.look()
        self.process.full_after = None
        self.append()

    def take_over(self) -> None:
        """Another host, where the lock does not reach, becomes the writer; this one is a zombie now."""
        zombie = self.writer
        self.append()
        self.new_writer(is_elsewhere=True)
        self.append()
        self.refused(zombie)
        self.append()

    def overtake(self) -> None:
        """The same in the middle of an append."""
        zombie, process = self.writer, self.process
        self.append()
        calls = self.random.randint(0, 5)

        def before_call(_: str) -> None:
            nonlocal calls
            calls -= 1
            if calls == -1:
                self.new_writer(is_elsewhere=True)
                self.append()

        process.before_call = before_call
        batch = self.new_batch()
        self.doubtful.append(batch)
        try:
            span = zombie.append("t", 0, batch)
        except FencedError:
            pass
        else:
            if zombie is self.writer:
                self.acknowledged(span, batch)
            assert self.log[span.start : span.stop] == batch
        process.before_call = lambda _: self.glance()
        if zombie is not self.writer:
            self.append()
            self.refused(zombie)
            self.append()

    def spoil_index(self) -> None:
        """Deletes or scribbles over an index file."""
        try:
            directory = self.machine.directory(ROOT / "t" / "0")
        except FileNotFoundError:
            return
        for name in [name for name in directory.names if name.endswith(".index")]:
            content = directory.names[name].content
            if self.random.random() < 0.3:
                directory.set(name, None)
            elif content:
                content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)

    def look(self) -> None:
        """A reader that starts anew, at any offset."""
        if self.random.random() < 0.5:
            self.new_reader()
        kept = self.reader.spans("t").get(0, Span(0, 0))
        if len(kept):
            start = self.random.randrange(kept.start, kept.stop)
            self.see(Span(start, self.random.randint(start, kept.stop)))
            self.find(kept)

    def glance(self) -> None:
        """The following reader, between two system calls of the writer."""
        if self.random.random() < 0.3:
            kept = self.reader.spans("t").get(0, Span(0, 0))
            self.see(Span(max(kept.start, self.following), kept.stop))
            self.following = max(self.following, kept.stop)

    # the rules

    def acknowledged(self, span: Span, batch: list[Entry]) -> None:
        """Before an acknowledged batch there may be those that were in doubt, whole, in their order."""
        readable = max(len(self.log), self.reader.spans("t")[0].start)  # retention may have dropped some already
        found = self.read(Span(readable, max(readable, span.start)))
        self.log += next(
            kept
            for batches in range(len(self.doubtful) + 1)
            for chosen in combinations(self.doubtful, batches)
            for kept in [list(chain(*chosen))]
            if len(self.log) + len(kept) == span.start and kept[readable - len(self.log) :] == found
        )
        assert span == Span(len(self.log), len(self.log) + len(batch))
        self.log += batch
        self.doubtful.clear()

    def refused(self, zombie: DirectoryLog) -> None:
        with pytest.raises(FencedError):
            zombie.append("t", 0, self.new_batch())
        zombie.close()

    def see(self, span: Span) -> None:
        for offset, entry in enumerate(self.read(span), span.start):
            assert self.seen.setdefault(offset, entry) == entry
            assert offset >= len(self.log) or self.log[offset] == entry

    def find(self, kept: Span) -> None:
        entries = self.read(kept)
        wanted_ms = self.random.choice(entries).time_ms + self.random.choice([-1, 0, 1])
        found = next((at for at, entry in enumerate(entries, kept.start) if entry.time_ms >= wanted_ms), kept.stop)
        assert self.reader.offset_at("t", 0, wanted_ms) == found

    def check(self) -> None:
        kept = self.reader.spans("t")[0]
        assert kept.stop == len(self.log)
        assert self.read(kept) == self.log[kept.start :]
        assert all(self.log[offset] == entry for offset, entry in self.seen.items())
        if self.keeps_all:
            assert kept.start == 0
        assert all(self.newest_ms - entry.time_ms > HOUR_MS for entry in self.log[: kept.start])

    # tools

    def read(self, span: Span) -> list[Entry]:
        records = list(self.reader.read("t", 0, span))
        assert [record.offset for record in records] == list(range(span.start, span.stop))
        return [record.entry for record in records]

    def new_batch(self) -> list[Entry]:
        self.time_ms += self.random.choice([-5, 0, 1, 60_000, HOUR_MS // 4])
        self.newest_ms = max(self.newest_ms, self.time_ms)
        return [
            Entry(
                self.random.randbytes(self.random.randint(0, 5)), self.random.randbytes(self.new_size()), self.time_ms
            )
            for _ in range(self.random.randint(1, 4))
        ]

    def new_size(self) -> int:
        return self.random.choice([0, 1, 30, 100, 100, 700, 3000])

    def new_writer(self, *, is_elsewhere: bool = False) -> None:
        self.process = Process(self.machine, self.random, is_elsewhere=is_elsewhere)
        self.process.before_call = lambda _: self.glance()
        self.writer = DirectoryLog(self.config, self.process)

    def new_reader(self) -> None:
        self.reader = DirectoryLog(self.config, Process(self.machine, self.random))
        self.following = 0

    def lose_power(self) -> None:
        self.machine.root.lose_power(self.random)
        self.new_writer()
        self.new_reader()


@pytest.mark.parametrize("first", range(0, HISTORIES, PER_TEST))
def test_histories(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "STEP_BYTES", 500)
    monkeypatch.setattr(segment, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(segment, "_HOP_BYTES", 200)
    for seed in range(first, min(first + PER_TEST, HISTORIES)):
        try:
            History(seed).run()
        except BaseException as error:
            error.add_note(f"history with seed {seed}")
            raise
