"""Source -> log: the one loop that every capture runs, inside a Spark task or as a process of its own.

Where capture goes on after a stop is in the log itself: the newest mark (ums/change.py). Changes and their mark are appended
as one unit, so there is no moment at which the log has changes whose position is lost, or a position whose changes are lost. With several
partitions it is still one unit: each has its part of the changes (partitions.py), and the mark. The first has every mark ever written,
so it is the one that is asked where to go on.

Capture becomes the writer of its topic before it asks that: what a writer before it left half done is finished then, and that one can
append nothing any more.

Changes are masked here (mask.py), once for all sources, before they are written. Rows on which a mask failed are appended to the error
ledger first: after a crash in between they come again, with the same ids, and never are missing in both.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from headrace.capture.base import Event, Source
from headrace.capture.error_ledger import counted, masked_for, told
from headrace.capture.mask import Masker
from headrace.capture.partitions import Parts
from headrace.capture.stage import Passed, Passing
from headrace.codec.entries import EntryReader, EntryWriter
from headrace.codec.ums import is_mark
from headrace.errors import ConfigError, FatalError, HeadraceError, RetryableError, SourceError
from headrace.log.base import Log, Span, entry_form, last
from headrace.retry import Backoff
from headrace.ums.change import ChangeBatch, Clear, End, Mark
from headrace.ums.schema import ID

NOTICES_KEPT = 100
MANY_CHANGES = 1_000
"""So many in one event are a backlog: of a source that is followed as it changes, each append has fewer."""
PARTITION = 0
"""Where all marks of a source are, and everything of a topic that is not parted."""


@dataclass(slots=True)
class Captured(Passed):
    """What one run of a capture has done so far: what has passed into the log."""

    ends: dict[int, int] = field(default_factory=dict)
    """By partition the log's end after the last append."""
    mark: Mark | None = None
    notices: list[str] = field(default_factory=list)
    caught_up: bool = False
    problem: str = ""
    """The message of the outage that is being waited out, empty while all is well."""
    disordered: Counter[str] = field(default_factory=Counter)
    """By host, rows that are older than one of the same host before them."""


def resume_point(log: Log, topic: str) -> Mark | None:
    """The newest mark of a source in the log; None when it has not been captured before.

    FatalError when retention has taken it: to begin anew without a word would deliver changes twice, or leave some out.
    """
    record = last(log, topic, PARTITION, is_mark)
    if record is None:
        start = log.spans(topic).get(PARTITION, Span(0, 0)).start
        if start == 0:
            return None
        raise FatalError(
            f"topic {topic} has lost the position of its capture to retention: it starts at offset {start}, without a mark",
            fix="give the source a new name, to capture it anew; and let the log keep more than the source's longest silence",
        )
    mark = EntryReader().read(record.entry)
    assert isinstance(mark, Mark)
    return mark


def run_capture(
    source: Source,
    log: Log,
    topic: str,
    masker: Masker,
    *,
    source_type: str,
    partitions: int = 1,
    parted_by: str = "",
    over: Callable[[], bool],
    until_idle: bool,
    backoff: Backoff,
    progress: Callable[[Captured], None],
    before_append: Callable[[Sequence[ChangeBatch | Clear | End]], None] = lambda changes: None,
    durable: Callable[[Event], None] = lambda event: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Captured:
    """Appends what the source hands out to `topic` until `over()` or, with `until_idle`, until the source has nothing more.

    Ends only at a mark, so that a transaction is not left half in the log by a planned stop. An outage of the source is waited
    out by `backoff`; the run then goes on from the newest mark. `source_type`: the first part of the source's namespaces. `parted_by`: the column
    that says to which partition a row goes (partitions.py). `before_append` is called with the changes of an event when what it needs of the source's
    state is on this machine's disk, `durable` with each event that is on the log.
    """
    captured = Captured()
    while True:
        try:
            log.append_together(topic, dict.fromkeys(range(partitions), ()))
            captured.ends = {partition: span.stop for partition, span in log.spans(topic).items()}
            captured.mark = resume_point(log, topic)
            _require_same_partitions(log, topic, partitions)
            parts = Parts(EntryWriter(entry_form(log, topic, partitions - 1), source_type), partitions, parted_by)
            append = partial(_append, log, topic, captured, parts=parts, masker=masker, before=before_append)
            for event in _appended(source.follow(captured.mark), append, until_idle=until_idle):
                backoff.worked()
                captured.problem = ""
                captured.disordered.update(event.progress.disordered)
                durable(event)
                if event.mark is not None:
                    source.confirm(event.mark)
                    if event.caught_up and not captured.caught_up:
                        captured.notices += [text for text in _without_effect(masker) if text not in captured.notices]
                    captured.caught_up = event.caught_up
                    progress(captured)
                    if over() or (until_idle and event.caught_up):
                        return captured
        except RetryableError as error:
            captured.retries += 1
            captured.problem = error.message
            progress(captured)
            pause_s = backoff.failed(error)
            if over():
                return captured
            sleep(pause_s)


def _appended(events: Iterator[Event], append: Callable[[Event], None], *, until_idle: bool) -> Iterator[Event]:
    """The events, each when it is in the log.

    While one of many changes is appended the source is asked for the next: one waits for a disk or for brokers, the other for a network. An
    event of few is in the log before the source is asked, which may have nothing for long then; so is one that may be the last.
    """
    under_way: tuple[Event, Future[None]] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="append") as pool:
        for event in _with_end(events):
            if under_way is not None:
                yield _finished(*under_way)
                under_way = None
            if isinstance(event, HeadraceError):
                raise event
            if sum(map(len, event.changes)) < MANY_CHANGES or (until_idle and event.caught_up):
                append(event)
                yield event
            else:
                under_way = event, pool.submit(append, event)
        if under_way is not None:
            yield _finished(*under_way)


def _with_end(events: Iterator[Event]) -> Iterator[Event | HeadraceError]:
    """The events and the error that ends them: it must not be told before they are in the log."""
    try:
        yield from events
    except HeadraceError as error:
        yield error


def _finished(event: Event, appended: Future[None]) -> Event:
    appended.result()
    return event


def skip(source: Source, log: Log, topic: str, to: str, *, source_type: str, partitions: int = 1) -> tuple[Mark, Mark]:
    """Lets capture go on at `to` although that leaves changes out, by a mark of its own; the marks before and after.

    ConfigError when there is nothing to skip. No capture of the source may run: the log has one writer.
    """
    newest = resume_point(log, topic)
    if newest is None:
        raise ConfigError(
            f"{topic} has not been captured yet", fix="start the capture: it begins at `start` of the source"
        )
    mark = source.skip(newest, to)
    parts = Parts(EntryWriter(entry_form(log, topic, partitions - 1), source_type), partitions)
    log.append_together(topic, parts.of([], [], mark, time.time_ns() // 1_000_000))
    return newest, mark


def _require_same_partitions(log: Log, topic: str, partitions: int) -> None:
    """ConfigError when a transaction was left open that went to another number of partitions: begun anew, its changes would come to others,
    where they are not known as repeats. All partitions in use have the newest mark; before the first one nothing tells."""
    there = log.spans(topic)
    newest = {number: last(log, topic, number) for number in there} if len(there) > 1 else {}
    if all(record is None or is_mark(record.entry.key) for record in newest.values()):
        return
    marks = {number: last(log, topic, number, is_mark) for number in newest}
    values = {number: record.entry.value for number, record in marks.items() if record is not None}
    before = sum(value == values.get(PARTITION) for value in values.values()) or partitions
    if before != partitions:
        raise ConfigError(
            f"capture of {topic} ended in the middle of a large transaction that it was appending to {before} partitions, not {partitions}",
            fix=f"start it once more with `partitions: {before}`; change the number when it has passed that transaction",
        )


def _must_not_fall(before: Mark | None, event: Event) -> None:
    """Ids grow: an event from before the newest mark must not come onto the log. First-load rows, below zero, are of no position."""
    if before is None:
        return
    ids = [
        change.data.column(ID)[0].as_py() if isinstance(change, ChangeBatch) else change.id for change in event.changes
    ]
    if event.mark is not None:
        ids.append(event.mark.id)
    lowest = min((id_ for id_ in ids if id_ >= 0), default=before.id)
    if lowest < before.id:
        raise SourceError(
            f"the source's log went back: from {before.position} (id {before.id}) to {event.mark or 'changes'} with id {lowest}",
            fix="it was reset, or another server answers: let capture go on there (`headrace skip FLOW.yaml`) and load the tables"
            " again",
        )


def _without_effect(masker: Masker) -> list[str]:
    return [
        f"mask `{pattern}` matches no column of the tables captured so far: what it is meant for may be in clear"
        for pattern in masker.unmatched()
    ]


def _append(
    log: Log,
    topic: str,
    captured: Captured,
    event: Event,
    *,
    parts: Parts,
    masker: Masker,
    before: Callable[[Sequence[ChangeBatch | Clear | End]], None],
) -> None:
    _must_not_fall(captured.mark, event)
    now_ms = time.time_ns() // 1_000_000
    changes, failed = masked_for(topic, event.changes, masker, log, now_ms)
    before(changes)
    is_news = bool(changes or event.heartbeats) or event.mark != captured.mark
    unit = parts.of(changes, event.heartbeats, event.mark if is_news else None, now_ms)
    if unit:
        spans = log.append_together(topic, unit)
        captured.ends |= {partition: span.stop for partition, span in spans.items()}
    passing = Passing()
    for change in changes:
        passing.add(change)
    passing.heartbeats += event.heartbeats
    captured.passed(passing, time.time_ns() // 1000)
    captured.failed.update(counted(failed))
    captured.notices += [*event.notices, *map(told, failed)]
    del captured.notices[:-NOTICES_KEPT]
    if event.mark is not None:
        captured.mark = event.mark
