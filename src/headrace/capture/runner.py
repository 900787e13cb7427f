"""Source -> log: the one loop that every capture runs, inside a Spark task or as a process of its own.

Where capture goes on after a stop is in the log itself: the newest mark (ums/change.py). Changes and their mark are appended
as one unit, so there is no moment at which the log has changes whose position is lost, or a position whose changes are lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.capture.base import Event, Source
from headrace.errors import FatalError, RetryableError, SourceError
from headrace.log.base import Entry, Log, Span, last
from headrace.retry import Backoff
from headrace.ums.change import MARK_KEY, Mark, read_block

_NOTICES_KEPT = 100
PARTITION = 0
"""One partition per source keeps the order of the source."""


@dataclass(slots=True)
class Captured:
    """What one run of a capture has done so far."""

    rows: Counter[str] = field(default_factory=Counter)
    """Changes per namespace."""
    end_offset: int = 0
    """The log's end after the last append."""
    mark: Mark | None = None
    notices: list[str] = field(default_factory=list)
    caught_up: bool = False
    problem: str = ""
    """The message of the outage that is being waited out, empty while all is well."""


def resume_point(log: Log, topic: str) -> Mark | None:
    """The newest mark of a source in the log; None when it has not been captured before.

    FatalError when retention has taken it: to begin anew without a word would deliver changes twice, or leave some out.
    """
    record = last(log, topic, PARTITION, MARK_KEY)
    if record is None:
        start = log.spans(topic).get(PARTITION, Span(0, 0)).start
        if start == 0:
            return None
        raise FatalError(
            f"topic {topic} has lost the position of its capture to retention: it starts at offset {start}, without a mark",
            fix="give the source a new name, to capture it anew; and let the log keep more than the source's longest silence",
        )
    mark = read_block(record.entry.value)
    assert isinstance(mark, Mark)
    return mark


def run_capture(
    source: Source,
    log: Log,
    topic: str,
    *,
    over: Callable[[], bool],
    until_idle: bool,
    backoff: Backoff,
    progress: Callable[[Captured], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Captured:
    """Appends what the source hands out to `topic` until `over()` or, with `until_idle`, until the source has nothing more.

    Ends only at a mark, so that a transaction is not left half in the log by a planned stop. An outage of the source is waited
    out by `backoff`; the run then goes on from the newest mark.
    """
    captured = Captured(end_offset=log.spans(topic)[PARTITION].stop if log.spans(topic) else 0)
    while True:
        try:
            captured.mark = resume_point(log, topic)
            for event in source.follow(captured.mark):
                _must_not_fall(captured.mark, event.mark)
                _append(log, topic, event, captured)
                backoff.worked()
                captured.problem = ""
                if event.mark is not None:
                    source.confirm(event.mark)
                    captured.caught_up = event.caught_up
                    progress(captured)
                    if over() or (until_idle and event.caught_up):
                        return captured
        except RetryableError as error:
            captured.problem = error.message
            progress(captured)
            pause_s = backoff.failed(error)
            if over():
                return captured
            sleep(pause_s)


def _must_not_fall(before: Mark | None, mark: Mark | None) -> None:
    if before is not None and mark is not None and mark.id < before.id:
        raise SourceError(
            f"the source's log went back: from {before.position} to {mark.position}",
            fix="it was reset, or another server answers: capture it under a new source name and load the tables again",
        )


def _append(log: Log, topic: str, event: Event, captured: Captured) -> None:
    now_ms = time.time_ns() // 1_000_000
    entries = [Entry(change.key(), change.to_block(), now_ms) for change in event.changes]
    if event.mark is not None and (entries or event.mark != captured.mark):
        entries.append(Entry(MARK_KEY, event.mark.to_block(), now_ms))
    if entries:
        captured.end_offset = log.append(topic, PARTITION, entries).stop
    for change in event.changes:
        captured.rows[str(change.table.namespace)] += len(change)
    captured.notices += event.notices
    del captured.notices[:-_NOTICES_KEPT]
    if event.mark is not None:
        captured.mark = event.mark
