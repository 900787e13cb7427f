"""Random histories of appends to several partitions: crashes between system calls, lost power, full disks, other writers.

Every unit is in all of its partitions or in none, those that were acknowledged are there, and units stand in one order everywhere.
HEADRACE_HISTORIES sets how many histories are run.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from headrace.errors import RetryableError, StorageError
from headrace.log.base import Entry, Span
from headrace.log.directory import DirectoryLog
from tests.property.simulated_disk import Crash, Machine, Process

HISTORIES = int(os.environ.get("HEADRACE_HISTORIES", "300"))
PER_TEST = 50
STEPS = 25
PARTITIONS = 3
ROOT = Path("/data/log")


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = Machine()
        self.config = DirectoryLog.Config(path=ROOT, segment_bytes=self.random.choice([1, 300, 5000]), writer_wait_s=0)
        self.units: list[set[int]] = []
        """By the number of each unit its partitions."""
        self.acknowledged: set[int] = set()
        self.new_writer()

    def run(self) -> None:
        steps = [self.append] * 5 + [self.crash] * 3 + [self.reopen, self.fill_disk, self.overtake]
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.append()
        self.check()

    def append(self) -> None:
        """One unit, of one partition or of several; now and then to a partition alone, by the other method."""
        number = len(self.units)
        chosen = set(self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS)))
        self.units.append(chosen)
        parts = {partition: self.entries(number) for partition in chosen}
        if len(parts) == 1 and self.random.random() < 0.5:
            [(partition, entries)] = parts.items()
            self.writer.append("t", partition, entries)
        else:
            spans = self.writer.append_together("t", parts)
            assert {partition: len(span) for partition, span in spans.items()} == {
                partition: len(entries) for partition, entries in parts.items()
            }
        self.acknowledged.add(number)

    def crash(self) -> None:
        self.process.calls_left = self.random.randint(0, 25)
        try:
            while True:
                self.append()
                if self.random.random() < 0.2:
                    self.writer.close()
        except Crash:
            pass
        self.after_death()

    def reopen(self) -> None:
        self.writer.close()
        self.after_death()

    def after_death(self) -> None:
        if self.random.random() < 0.5:
            self.machine.root.lose_power(self.random)
        self.new_writer()

    def fill_disk(self) -> None:
        self.process.full_after = self.random.randint(0, 12)
        for _ in range(self.random.randint(1, 4)):
            with suppress(StorageError):
                self.append()
        self.process.full_after = None
        if self.random.random() < 0.5:
            self.append()
            self.check()

    def overtake(self) -> None:
        """Another host, where locks do not reach, becomes the writer in the middle of an append; this one is a zombie then."""
        self.append_everywhere()  # it has opened all partitions then, and does not take over by itself
        zombie, process = self.writer, self.process
        calls = self.random.randint(0, 15)

        def before_call(_: str) -> None:
            nonlocal calls
            calls -= 1
            if calls == -1:
                self.new_writer(is_elsewhere=True)
                self.append_everywhere()

        process.before_call = before_call
        number = len(self.units)
        self.units.append(set(range(PARTITIONS)))
        try:
            zombie.append_together("t", {partition: self.entries(number) for partition in range(PARTITIONS)})
        except RetryableError:
            pass
        else:
            self.acknowledged.add(number)
        process.before_call = lambda _: None
        if zombie is not self.writer:
            with pytest.raises(RetryableError):
                zombie.append_together("t", {0: self.entries(number)})
            zombie.close()
            self.append()

    def append_everywhere(self) -> None:
        number = len(self.units)
        self.units.append(set(range(PARTITIONS)))
        self.writer.append_together("t", {partition: self.entries(number) for partition in range(PARTITIONS)})
        self.acknowledged.add(number)

    def check(self) -> None:
        self.append_everywhere()  # the published end of a partition may be behind after a power loss or a zombie, until the next append
        reader = DirectoryLog(self.config, Process(self.machine, self.random))
        found: dict[int, set[int]] = {}
        orders: list[list[int]] = []
        for partition, span in reader.spans("t").items():
            there = [record.entry for record in reader.read("t", partition, Span(0, span.stop))]
            at = 0
            while at < len(there):
                number = int(there[at].key)
                entries = self.entries(number)
                assert there[at : at + len(entries)] == entries, f"unit {number} is in partition {partition} by half"
                at += len(entries)
                assert partition not in found.setdefault(number, set()), f"unit {number} is there twice"
                found[number].add(partition)
            orders.append(list(dict.fromkeys(int(entry.key) for entry in there)))
        for number, partitions in enumerate(self.units):
            assert found.get(number, set()) in (set(), partitions), (
                f"unit {number} is in {found[number]} of {partitions}"
            )
            assert number in found or number not in self.acknowledged, f"unit {number} is lost"
        for one, other in combinations(orders, 2):
            both = set(one) & set(other)
            assert [number for number in one if number in both] == [number for number in other if number in both]

    def entries(self, number: int) -> list[Entry]:
        return [Entry(b"%d" % number, b"%d:" % part + b"x" * (number * 37 % 200), 1) for part in range(1 + number % 3)]

    def new_writer(self, *, is_elsewhere: bool = False) -> None:
        self.process = Process(self.machine, self.random, is_elsewhere=is_elsewhere)
        self.writer = DirectoryLog(self.config, self.process)


@pytest.mark.parametrize("first", range(0, HISTORIES, PER_TEST))
def test_histories(first: int) -> None:
    for seed in range(first, min(first + PER_TEST, HISTORIES)):
        try:
            History(seed).run()
        except BaseException as error:
            error.add_note(f"history with seed {seed}")
            raise
