"""Random histories of the log on HDFS and S3 against a list, on real servers: appends, closes, writers that die or are overtaken, answers
that get lost, batches that arrive in part or late, merges that are cut short; readers look in at every step.

A history that fails names its seed; HEADRACE_SERVER_HISTORIES sets how many are run.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from headrace.errors import FencedError, RetryableError
from headrace.log.base import Entry, Log, Record, Span
from headrace.log.shared.hdfs import HdfsLog, SegmentWriter
from headrace.log.shared.s3 import S3Log, UnitWriter
from tests.servers.hdfs import Hdfs
from tests.servers.s3 import S3

HISTORIES = int(os.environ.get("HEADRACE_SERVER_HISTORIES", "2"))
EVERYTHING = Span(0, 1 << 60)


class LostAnswerError(RetryableError):
    """The store may have done what it was asked, or not."""


class History(ABC):
    """What happens on every store."""

    steps = 40

    def __init__(self, random: Random, open_log: Callable[[], Log]) -> None:
        self.random = random
        self.open_log = open_log
        self.log: list[Entry] = []
        self.writer, self.reader = open_log(), open_log()
        self.seen: dict[int, Entry] = {}
        self.reached = 0

    def run(self) -> None:
        for _ in range(self.steps):
            self.random.choice(
                [*[self.append] * 6, self.reopen, self.take_over, self.lose_an_answer, self.look, *self.own()]
            )()
            self.glance()
        self.append()
        found = self.read(EVERYTHING)
        assert [record.entry for record in found] == self.log
        assert all(self.seen[record.offset] == record.entry for record in found if record.offset in self.seen)
        assert len(self.seen) <= len(found)
        self.writer.close()

    def own(self) -> list[Callable[[], None]]:
        """Steps that one store only has."""
        return []

    @abstractmethod
    def lose(self, batch: list[Entry]) -> None:
        """Begins an append whose answer gets lost, in one of the ways in which that can be."""

    # what happens

    def append(self) -> None:
        batch = self.new_batch()
        span = self.writer.append("t", 0, batch)
        assert [record.entry for record in self.read(span)] == batch
        self.log += batch

    def reopen(self) -> None:
        self.writer.close()
        self.writer = self.open_log()

    def take_over(self) -> None:
        """Another writer begins; this one is a zombie then."""
        zombie, self.writer = self.writer, self.open_log()
        for step in (self.append, *self.random.choices(self.own(), k=min(2, len(self.own())))):
            step()
        if zombie._writers:  # type: ignore[attr-defined]
            for _ in range(2):
                with pytest.raises(FencedError):
                    zombie.append("t", 0, self.new_batch())
        zombie.close()

    def lose_an_answer(self) -> None:
        """This process, or the next one, finds out what has become of it."""
        self.append()
        batch = self.new_batch()
        self.lose(batch)
        if self.random.random() < 0.5:
            self.writer = self.open_log()
            self.writer.append("t", 0, [])
        self.writer.spans("t")
        found = [record.entry for record in self.read(EVERYTHING)]
        assert found in (self.log, self.log + batch)
        self.log = found

    def look(self) -> None:
        """A reader that begins anew, somewhere."""
        self.reader, self.reached = self.open_log(), 0
        kept = self.reader.spans("t").get(0, Span(0, 0))
        start = self.random.randint(0, kept.stop)
        self.see(self.reader.read("t", 0, Span(start, self.random.randint(start, kept.stop))))

    def glance(self) -> None:
        """The reader that follows."""
        stop = self.reader.spans("t").get(0, Span(0, 0)).stop
        self.see(self.reader.read("t", 0, Span(self.reached, stop)))
        self.reached = stop
        assert not self.reader.wait("t", 0, stop, 0.0)

    # tools

    def see(self, records: object) -> None:
        for record in records:  # type: ignore[attr-defined]
            assert self.seen.setdefault(record.offset, record.entry) == record.entry

    def read(self, span: Span) -> list[Record]:
        records = list(self.reader.read("t", 0, span))
        assert all(one.offset < other.offset for one, other in pairwise(records))
        return records

    def new_batch(self) -> list[Entry]:
        sizes = [self.random.choice([0, 1, 100, 3000]) for _ in range(self.random.randint(1, 4))]
        return [
            Entry(self.random.randbytes(3), self.random.randbytes(size), self.random.randint(0, 1000)) for size in sizes
        ]


class S3History(History):
    def own(self) -> list[Callable[[], None]]:
        return [self.merge, self.merge, self.cut_a_merge_short]

    def writer_of(self) -> UnitWriter:
        assert isinstance(self.writer, S3Log)
        self.append()
        writer = self.writer._writers["t", 0]
        assert isinstance(writer, UnitWriter)
        writer._merger.close()  # its own thread is not to be at it, too
        return writer

    def lose(self, batch: list[Entry]) -> None:
        """The object is made, or not, or it arrives when the next writer has begun, and must be refused."""
        writer = self.writer_of()
        create, way = writer._store.create, self.random.choice(["made", "lost", "late"])
        late = []

        def without_answer(path: str, content: bytes) -> bool:
            if way == "made":
                create(path, content)
            late.append((path, content))
            writer._store.create = create  # type: ignore[method-assign]
            raise LostAnswerError("no answer", fix="try again")

        writer._store.create = without_answer  # type: ignore[method-assign]
        with pytest.raises(LostAnswerError):
            self.writer.append("t", 0, batch)
        if way == "late":
            self.writer.spans("t")
            assert not create(*late[0])

    def merge(self) -> None:
        self.writer_of()._merger.merge()

    def cut_a_merge_short(self) -> None:
        """The process dies while it deletes what it has put together."""
        writer = self.writer_of()
        left = self.random.randint(0, 3)
        delete = writer._store.delete

        def until_dead(path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise LostAnswerError("dead", fix="-")
            delete(path)

        writer._store.delete = until_dead  # type: ignore[method-assign]
        try:
            writer._merger.merge()
        except LostAnswerError:
            self.writer = self.open_log()
            return
        writer._store.delete = delete  # type: ignore[method-assign]


class HdfsHistory(History):
    steps = 25

    def lose(self, batch: list[Entry]) -> None:
        """The batch arrives whole, or in part, or not at all."""
        assert isinstance(self.writer, HdfsLog)
        writer = self.writer._writers["t", 0]
        assert isinstance(writer, SegmentWriter)
        assert writer._file is not None
        append, part = writer._file.append, self.random.choice([0.0, 0.3, 0.9, 1.0])
        writer._segment_bytes = 1 << 30  # into this very file

        def without_answer(parts: list[bytes]) -> None:
            content = b"".join(parts)
            append([content[: int(len(content) * part)]])
            raise LostAnswerError("no answer", fix="try again")

        writer._file.append = without_answer  # type: ignore[method-assign]
        with pytest.raises(LostAnswerError):
            self.writer.append("t", 0, batch)


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_histories(request: pytest.FixtureRequest, store: str, seed: int) -> None:
    random = Random(seed)
    server = request.getfixturevalue(store)
    place, segment_bytes = server.place(), random.choice([1, 1000, 20_000])
    if store == "hdfs":
        assert isinstance(server, Hdfs)
        hdfs = HdfsLog.Config(path=place, web=server.web, segment_bytes=segment_bytes)
        HdfsHistory(random, lambda: HdfsLog(hdfs)).run()
    else:
        assert isinstance(server, S3)
        s3 = S3Log.Config(path=place, segment_bytes=segment_bytes, **server.options())
        S3History(random, lambda: S3Log(s3)).run()
