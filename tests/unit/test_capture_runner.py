"""The loop from a source to the log: what a source that went back may not bring onto it, and what is read while it is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.capture.base import Event
from headrace.capture.mask import Masker
from headrace.capture.runner import MANY_CHANGES, PARTITION, resume_point, run_capture
from headrace.errors import Finding, SourceError, StorageError
from headrace.log.base import Entry, Span
from headrace.log.directory import DirectoryLog
from headrace.model import SourceConfig
from headrace.retry import Backoff
from headrace.ums.change import ChangeBatch, Clear, Mark
from headrace.ums.schema import Column, Namespace, TableSchema

TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int32(), "int", False),), ("id",))


class ScriptedSource:
    """Hands out what it was given, whatever was asked for; what can be called is called first."""

    def __init__(self, *events: Event | Callable[[], object]) -> None:
        self._events = events

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        yield from ()

    def tables(self) -> Sequence[TableSchema]:
        return [TABLE]

    def follow(self, start: Mark | None) -> Iterator[Event]:
        for event in self._events:
            if isinstance(event, Event):
                yield event
            else:
                event()

    def skip(self, newest: Mark, to: str) -> Mark:
        return newest

    def confirm(self, mark: Mark) -> None:
        pass

    def close(self) -> None:
        pass


def mark(id_: int) -> Mark:
    return Mark("db1", {"at": id_}, id_, 0)


def batch(*ids: int) -> ChangeBatch:
    rows = [
        {"_ums_id_": id_, "_ums_ts_": 0, "_ums_op_": "i", "_ums_commit_ts_": 0, "_ums_raw_": None, "id": id_}
        for id_ in ids
    ]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))


def many(first: int) -> ChangeBatch:
    return batch(*range(first, first + MANY_CHANGES))


class WatchedLog(DirectoryLog):
    """A real log that does something before each append."""

    def __init__(self, directory: Path, before: Callable[[], object]) -> None:
        super().__init__(DirectoryLog.Config(type="directory", path=directory))
        self._before = before

    def append_together(self, topic: str, parts: Mapping[int, Sequence[Entry]]) -> Mapping[int, Span]:
        if any(parts.values()):  # else it is how a capture becomes the writer
            self._before()
        return super().append_together(topic, parts)


def opened(directory: Path) -> DirectoryLog:
    return DirectoryLog(DirectoryLog.Config(type="directory", path=directory))


def newest_mark(directory: Path) -> Mark | None:
    log = opened(directory)
    try:
        return resume_point(log, "db1")
    finally:
        log.close()


def capture(log: Path | DirectoryLog, *events: Event | Callable[[], object]) -> int:
    """Captures onto a real log; where it ends."""
    log = opened(log) if isinstance(log, Path) else log
    try:
        options = {
            "source_type": "mysql",
            "over": lambda: False,
            "until_idle": True,
            "backoff": Backoff(0),
            "progress": lambda _captured: None,
        }
        masker = Masker(SourceConfig(type="scripted", name="db1"), None)
        run_capture(ScriptedSource(*events), log, "db1", masker, **options)
        return log.spans("db1")[PARTITION].stop
    finally:
        log.close()


@pytest.mark.parametrize(
    "event",
    [
        Event([batch(90, 120)], None),
        Event([batch(110), batch(99)], mark(130), caught_up=True),
        Event([Clear(TABLE, 99, 0)], mark(130), caught_up=True),
        Event([], mark(99), caught_up=True),
    ],
)
def test_what_lies_before_the_newest_mark_does_not_come_onto_the_log(tmp_path: Path, event: Event) -> None:
    end = capture(tmp_path, Event([batch(50)], mark(100), caught_up=True))
    with pytest.raises(SourceError, match="went back"):
        capture(tmp_path, event)
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path))
    assert log.spans("db1")[PARTITION].stop == end
    assert resume_point(log, "db1") == mark(100)
    log.close()


def test_what_lies_behind_it_does(tmp_path: Path) -> None:
    end = capture(tmp_path, Event([batch(50)], mark(100), caught_up=True))
    assert capture(tmp_path, Event([batch(-5, -4), batch(101)], mark(130), caught_up=True)) > end


def test_the_source_is_asked_for_more_while_many_changes_are_written(tmp_path: Path) -> None:
    asked = threading.Event()

    def wait() -> None:
        assert asked.wait(10), "the source was not asked before the append had ended"

    log = WatchedLog(tmp_path, wait)
    capture(log, Event([many(1)], mark(5_000)), asked.set, Event([many(5_001)], mark(9_000), caught_up=True))
    assert newest_mark(tmp_path) == mark(9_000)


def test_few_changes_are_on_the_log_before_the_source_is_asked_again(tmp_path: Path) -> None:
    found: list[Mark | None] = []

    def look() -> None:
        found.append(newest_mark(tmp_path))

    capture(tmp_path, Event([batch(1)], mark(10)), look, Event([], mark(20)), look, Event([], mark(20), caught_up=True))
    assert found == [mark(10), mark(20)]


def test_what_a_source_has_handed_out_is_on_the_log_when_its_error_is_told(tmp_path: Path) -> None:
    def fail() -> None:
        raise SourceError("the source is broken", fix="mend it")

    with pytest.raises(SourceError, match="broken"):
        capture(tmp_path, Event([many(1)], mark(5_000)), fail)
    assert newest_mark(tmp_path) == mark(5_000)


def test_nothing_is_written_behind_an_append_that_failed(tmp_path: Path) -> None:
    def refuse() -> None:
        raise StorageError("the disk is full", fix="make room")

    capture(tmp_path, Event([batch(1)], mark(10), caught_up=True))
    with pytest.raises(StorageError, match="full"):
        capture(
            WatchedLog(tmp_path, refuse),
            Event([many(100)], mark(5_000)),
            Event([many(5_001)], mark(9_000), caught_up=True),
        )
    assert newest_mark(tmp_path) == mark(10)
