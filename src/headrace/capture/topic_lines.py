"""Messages of shippers of logs: each one is a line, which the rules of the source make rows of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from headrace.capture.base import NO_PROGRESS
from headrace.capture.lines.fields import EVENT, HOST, LINE, PATH, Fields, numbers, texts_of
from headrace.capture.lines.tables import IDS_PER_ROW, Lines, LineTables
from headrace.capture.topic_messages import IDS_PER_MESSAGE, Arrived, Refusal
from headrace.codec.foreign.log_events import LINE_READERS, LogEvent
from headrace.codec.foreign.reading import ForeignMessage, NotThisFormatError
from headrace.log.kafka.tail import Taken
from headrace.ums.change import ChangeBatch, End

_MOST_ROWS = IDS_PER_MESSAGE // IDS_PER_ROW - 1


class LineMessages:
    """An `Interpreter` of lines. `hosts`: by host the newest time of the lines that came last, µs since 1970 UTC.

    Commit times are those of the messages, which never go back and are not ahead of the clock: shippers give a message the time of its line,
    and one host's clock that is wrong must not be everybody's.
    """

    def __init__(
        self,
        form: str,
        tables: LineTables,
        refusal: Refusal,
        *,
        commit_ts_us: int,
        hosts: dict[str, int],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.commit_ts_us = commit_ts_us
        self.hosts = hosts
        self.progress = NO_PROGRESS
        """What the last call of `changes` says of hosts."""
        self._read = LINE_READERS[form]
        self._tables = tables
        self._refusal = refusal
        self._clock = clock

    def changes(self, arrived: Sequence[Arrived]) -> Iterator[ChangeBatch | End]:
        """See `Interpreter.changes`."""
        self.progress = NO_PROGRESS
        now_us = self._clock() // 1000
        found = [(one, event) for one in arrived if (event := self._event(one.message)) is not None]
        if not found:
            return
        newest_us = max(one.message.time_ms for one, _ in found) * 1000
        self.commit_ts_us = max(self.commit_ts_us, min(newest_us, now_us))
        lines = lines_of([event for _, event in found], [one.first_id for one, _ in found])
        yield from self._tables.changes(lines, self.commit_ts_us, now_us)
        self.hosts, self.progress = self._tables.times.newest_us, self._tables.progress

    def _event(self, taken: Taken) -> LogEvent | None:
        try:
            return self._read(ForeignMessage(taken.topic, taken.key, taken.value, taken.time_ms))
        except NotThisFormatError as error:
            self._refusal.refuse(taken, str(error), error)
            return None


def lines_of(events: Sequence[LogEvent], first_ids: Sequence[int]) -> Lines:
    """Events as lines, each with the id of its first row."""
    texts = {
        LINE: texts_of([event.line for event in events]),
        HOST: texts_of([event.host for event in events]),
        PATH: texts_of([event.path for event in events]),
        EVENT: texts_of([event.event for event in events]),
    }
    count = len(events)
    return Lines(
        fields=Fields(texts, numbers(count)),
        times_us=pa.array([event.time_us for event in events], pa.int64()),
        offsets=pa.array([event.offset for event in events], pa.int64()),
        first_ids=pa.array(first_ids, pa.int64()),
        rooms=pa.repeat(pa.scalar(_MOST_ROWS, pa.int64()), count),
        faults=pa.nulls(count, pa.utf8()),
    )
