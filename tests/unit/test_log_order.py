"""Files of logs that nobody has read yet, the oldest first."""

from __future__ import annotations

from random import Random

import pytest

from headrace.capture.applog.order import Unread, in_order


@pytest.mark.parametrize(
    "expected",
    [
        # The clock's tick: all was written in one moment.
        [("a.log.10.gz", 5.0), ("a.log.9", 5.0), ("a.log.1", 5.0), ("a.log", 5.0)],
        [("a.log-20260101", 5.0), ("a.log-20260102", 5.0), ("a.log", 5.0)],
        [("a.log.2026-01-01", 5.0), ("a.log.2026-01-02.1", 5.0), ("a.log.2026-01-02.2", 5.0), ("a.log", 5.0)],
        # Some loggers count up what is new.
        [("a.log.1", 5.0), ("a.log.2", 6.0), ("a.log.10", 6.0), ("a.log", 6.0)],
        # An old file to which the application still writes; the new one was made before.
        [("a.log.2", 5.0), ("a.log.1", 9.0), ("a.log", 6.0)],
        # A packer that keeps no fractions of seconds.
        [("a.log-20260101", 5.9), ("a.log-20260102.gz", 5.0), ("a.log", 6.0)],
        [("a.log.3", 5.9), ("a.log.2.gz", 5.0), ("a.log.1", 6.1), ("a.log", 6.2)],
        # Clocks that differ by a little.
        [("a.log.3", 5.0), ("a.log.2", 6.5), ("a.log.1", 6.0), ("a.log", 1.0)],
        # Numbers that go round say nothing.
        [("a.log.3", 50.0), ("a.log.1", 60.0), ("a.log.2", 70.0), ("a.log", 80.0)],
        # Two logs keep their own order, and come by their times.
        [("b.log.2", 1.0), ("b.log.1", 2.0), ("a.log.1", 3.0), ("a.log", 4.0), ("b.log", 5.0)],
        [("app-9.log", 5.0), ("app-10.log", 5.0)],
    ],
)
def test_the_oldest_comes_first(expected: list[tuple[str, float]]) -> None:
    for seed in range(10):
        files = list(expected)
        Random(seed).shuffle(files)
        found = [Unread(name, name, written_s) for name, written_s in files]
        assert [files[place] for place in in_order(found)] == expected
