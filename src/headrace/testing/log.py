"""What every log must do. A log passes by subclassing `LogConformance` with its own `open_log`::

    class TestMyLog(LogConformance):
        @pytest.fixture
        def open_log(self, tmp_path):
            return lambda: MyLog(MyLog.Config(path=tmp_path))

Each call of `open_log()` gives one more instance on the same storage, as another process would have it.

Two things may differ between logs, and the tests take either: offsets may have gaps, and of two writers the newer one may be
refused (RetryableError) or the older one be fenced (FencedError). A log that cannot keep a topic's name refuses it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import pytest

from headrace.errors import ConfigError, FencedError, HeadraceError, RetryableError
from headrace.log.base import Entry, Log, Record, Span, last, offset_at

OpenLog = Callable[[], Log]
_LATE_S = 30.0
_EVERYTHING = Span(0, 1 << 60)


def entry(value: bytes, key: bytes = b"k", time_ms: int = 1_000) -> Entry:
    return Entry(key, value, time_ms)


def values(records: Iterable[Record]) -> list[bytes]:
    return [bytes(record.entry.value) for record in records]


def everything(log: Log, topic: str) -> list[Record]:
    return list(log.read(topic, 0, _EVERYTHING))


class LogConformance(ABC):
    """The rules of `headrace.log.base.Log`, one test each. Subclass it, give `open_log`, get every test."""

    @pytest.fixture
    @abstractmethod
    def open_log(self) -> OpenLog:
        """Opens the log, which is empty at the start of a test; all that it returns share the log."""

    def test_opening_and_closing_an_unused_log_is_harmless(self, open_log: OpenLog) -> None:
        log = open_log()
        log.close()
        log.close()

    def test_unknown_topic_is_empty(self, open_log: OpenLog) -> None:
        log = open_log()
        assert dict(log.spans("nothing")) == {}
        assert list(log.read("nothing", 0, _EVERYTHING)) == []
        assert not log.wait("nothing", 0, 0, 0.0)
        assert last(log, "nothing", 0, b"k".__eq__) is None

    def test_offsets_ascend_within_the_spans_of_their_appends(self, open_log: OpenLog) -> None:
        log = open_log()
        first, second = log.append("t", 0, [entry(b"a"), entry(b"b")]), log.append("t", 0, [entry(b"c")])
        assert first.start == 0
        assert first.stop <= second.start
        assert values(log.read("t", 0, first)) == [b"a", b"b"]
        assert values(log.read("t", 0, second)) == [b"c"]
        offsets = [record.offset for record in everything(log, "t")]
        assert offsets == sorted(set(offsets))
        assert offsets[:2] == [first.start, first.stop - 1]
        assert offsets[2:] == [second.start] == [second.stop - 1]
        log.close()

    def test_appending_nothing_changes_nothing(self, open_log: OpenLog) -> None:
        log = open_log()
        log.append("t", 0, [entry(b"a")])
        before = dict(log.spans("t"))
        end = before[0].stop
        assert log.append("t", 0, []) == Span(end, end)
        assert dict(log.spans("t")) == before
        log.close()

    def test_entries_come_back_as_they_were(self, open_log: OpenLog) -> None:
        log = open_log()
        written = [Entry(b"", b"", 0), Entry(b"\x00\xff", bytes(range(256)) * 5000, 1 << 40), Entry(b"k", b"", -1)]
        log.append("t", 0, written)
        assert [record.entry for record in log.read("t", 0, _EVERYTHING)] == written
        log.close()

    def test_any_span_is_readable_again_and_again(self, open_log: OpenLog) -> None:
        log = open_log()
        for number in range(10):
            log.append("t", 0, [entry(b"%d-%d" % (number, part)) for part in range(3)])
        there = everything(log, "t")
        end = log.spans("t")[0].stop
        for start in range(end):
            for stop in (start, start + 1, start + 4, end, end + 69):
                found = list(log.read("t", 0, Span(start, stop)))
                assert found == [record for record in there if start <= record.offset < stop]
        log.close()

    def test_an_iterator_may_be_left_in_the_middle(self, open_log: OpenLog) -> None:
        log = open_log()
        log.append("t", 0, [entry(b"%d" % number) for number in range(5)])
        assert next(log.read("t", 0, _EVERYTHING)).entry.value == b"0"
        assert values(log.read("t", 0, Span(1, 3))) == [b"1", b"2"]
        log.close()

    def test_topics_and_partitions_are_apart(self, open_log: OpenLog) -> None:
        log = open_log()
        log.append("t", 0, [entry(b"t0")])
        log.append("t", 3, [entry(b"t3"), entry(b"t3")])
        log.append("t2", 0, [entry(b"other")])
        assert {partition for partition, span in log.spans("t").items() if len(span)} == {0, 3}
        assert values(log.read("t", 0, _EVERYTHING)) == [b"t0"]
        assert values(log.read("t", 3, _EVERYTHING)) == [b"t3", b"t3"]
        assert values(log.read("t2", 0, _EVERYTHING)) == [b"other"]
        log.close()

    def test_parts_appended_together_are_all_there(self, open_log: OpenLog) -> None:
        log = open_log()
        log.append("t", 0, [entry(b"before")])
        if not log.takes_parts:
            with pytest.raises(ConfigError, match="one partition"):
                log.append_together("t", {0: [entry(b"a")], 1: [entry(b"b")]})
            assert values(log.read("t", 0, _EVERYTHING)) == [b"before"]
            log.close()
            return
        spans = log.append_together("t", {2: [entry(b"c"), entry(b"d")], 0: [entry(b"a")], 1: []})
        assert {partition: len(span) > 0 for partition, span in spans.items()} == {0: True, 1: False, 2: True}
        later = log.append_together("t", {0: [entry(b"e")], 2: [entry(b"f")]})
        assert all(later[partition].start >= spans[partition].stop for partition in later)
        for reader in (log, open_log()):
            assert [values(reader.read("t", partition, _EVERYTHING)) for partition in range(3)] == [
                [b"before", b"a", b"e"],
                [],
                [b"c", b"d", b"f"],
            ]
            assert values(reader.read("t", 2, spans[2])) == [b"c", b"d"]
        log.close()
        other = open_log()
        other.append_together("t", {1: [entry(b"g")], 2: [entry(b"h")]})
        assert values(other.read("t", 1, _EVERYTHING)) == [b"g"]
        other.close()

    def test_who_appends_together_is_the_writer_of_partition_0(self, open_log: OpenLog) -> None:
        first, second = open_log(), open_log()
        partitions = (0, 1) if first.takes_parts else (0,)
        first.append_together("t", {partition: [entry(b"first")] for partition in partitions})
        winner, loser = second, first
        try:
            second.append_together("t", {})
        except RetryableError:
            winner, loser = first, second
        with pytest.raises(RetryableError):
            loser.append_together("t", {partition: [entry(b"lost")] for partition in partitions})
        winner.append_together("t", {partition: [entry(b"won")] for partition in reversed(partitions)})
        for partition in partitions:
            assert values(winner.read("t", partition, _EVERYTHING)) == [b"first", b"won"]
        winner.close()
        loser.close()

    @pytest.mark.parametrize("topic", ["mysql.db1/ü %2F", ".", "..", "a" * 249])
    def test_a_strange_topic_is_kept_apart_or_refused(self, open_log: OpenLog, topic: str) -> None:
        log = open_log()
        log.append("t", 0, [entry(b"t")])
        refused: ConfigError | None = None
        try:
            log.append(topic, 0, [entry(b"strange")])
        except ConfigError as error:
            refused = error
        if refused is None:
            assert values(log.read(topic, 0, _EVERYTHING)) == [b"strange"]
        else:
            assert refused.fix
        assert values(log.read("t", 0, _EVERYTHING)) == [b"t"]
        log.close()

    def test_another_instance_sees_what_was_appended(self, open_log: OpenLog) -> None:
        writer, reader = open_log(), open_log()
        for number in range(20):
            span = writer.append("t", 0, [entry(b"%d" % number)])
            assert reader.spans("t")[0].stop >= span.stop
            assert values(reader.read("t", 0, span)) == [b"%d" % number]
        writer.close()
        assert len(list(reader.read("t", 0, _EVERYTHING))) == 20
        reader.close()

    def test_the_log_goes_on_after_reopening(self, open_log: OpenLog) -> None:
        for number in range(5):
            log = open_log()
            log.append("t", 0, [entry(b"%d" % number)])
            log.close()
        reader = open_log()
        assert values(everything(reader, "t")) == [b"0", b"1", b"2", b"3", b"4"]
        reader.close()

    def test_of_two_writers_one_goes_on(self, open_log: OpenLog) -> None:
        first, second = open_log(), open_log()
        first.append("t", 0, [entry(b"first")])
        winner, loser = second, first
        try:
            second.append("t", 0, [entry(b"won")])
        except RetryableError:
            winner, loser = first, second
            first.append("t", 0, [entry(b"won")])
        else:
            for _ in range(2):
                with pytest.raises(FencedError):
                    first.append("t", 0, [entry(b"fenced")])
        winner.append("t", 0, [entry(b"still there")])
        winner.close()
        loser.close()
        third = open_log()
        third.append("t", 0, [entry(b"third")])
        assert values(everything(third, "t")) == [b"first", b"won", b"still there", b"third"]
        third.close()

    def test_wait_sees_an_append(self, open_log: OpenLog) -> None:
        writer, reader = open_log(), open_log()
        assert not reader.wait("t", 0, 0, 0.001)
        appended = threading.Timer(0.02, writer.append, ("t", 0, [entry(b"a")]))
        appended.start()
        assert reader.wait("t", 0, 0, _LATE_S)
        assert values(everything(reader, "t")) == [b"a"]
        end = reader.spans("t")[0].stop
        assert not reader.wait("t", 0, end, 0.001)
        appended.join()
        writer.close()
        reader.close()

    def test_a_follower_misses_nothing(self, open_log: OpenLog) -> None:
        writer, reader = open_log(), open_log()

        def write() -> None:
            for number in range(200):
                writer.append("t", 0, [entry(b"%d" % number), entry(b"x" * number)])

        thread = threading.Thread(target=write)
        thread.start()
        got: list[Record] = []
        reached = 0
        give_up_at = time.monotonic() + _LATE_S
        while len(got) < 400 and time.monotonic() < give_up_at:
            if reader.wait("t", 0, reached, 1.0):
                stop = reader.spans("t")[0].stop
                got += reader.read("t", 0, Span(reached, stop))
                reached = stop
        thread.join()
        assert values(got[::2]) == [b"%d" % number for number in range(200)]
        assert values(got[1::2]) == [b"x" * number for number in range(200)]
        assert got == everything(reader, "t")
        writer.close()
        reader.close()

    def test_last_finds_the_newest_entry_of_a_key(self, open_log: OpenLog) -> None:
        log = open_log()
        marks = log.append("t", 0, [entry(b"old", key=b"~mark"), entry(b"new", key=b"~mark")])
        for _ in range(10):
            log.append("t", 0, [entry(b"data") for _ in range(50)])
        found = last(log, "t", 0, b"~mark".__eq__)
        assert found is not None
        assert (found.offset, found.entry.value) == (marks.stop - 1, b"new")
        assert last(log, "t", 0, b"no such key".__eq__) is None
        log.close()

    def test_offset_at_finds_the_first_entry_of_a_time(self, open_log: OpenLog) -> None:
        log = open_log()
        times_ms = [100, 200, 150, 300, 300, 250, 400]
        spans = [log.append("t", 0, [entry(b"v", time_ms=time_ms)]) for time_ms in times_ms]
        end = log.spans("t")[0].stop
        for wanted_ms in (0, 100, 101, 250, 300, 301, 400, 401):
            late_enough = (span.start for span, time_ms in zip(spans, times_ms, strict=True) if time_ms >= wanted_ms)
            expected = next(late_enough, end)
            assert offset_at(log, "t", 0, wanted_ms) == expected
        log.close()

    def test_an_impossible_topic_has_a_clear_message(self, open_log: OpenLog) -> None:
        log = open_log()
        with pytest.raises(HeadraceError) as raised:
            log.append("", 0, [entry(b"a")])
        assert raised.value.fix
        log.close()
