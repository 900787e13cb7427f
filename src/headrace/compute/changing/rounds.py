"""The work of a computed table: rounds, each of which takes in what is there and tells what that changes (head of source.py)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headrace.capture.base import NO_PROGRESS, Event, Progress, Upstream
from headrace.compute.changing.answer import Answers
from headrace.compute.changing.config import SqlSourceConfig
from headrace.compute.changing.late import late_table
from headrace.compute.changing.low import Low
from headrace.compute.changing.reading import Reading, Taken, lost
from headrace.compute.changing.state import Place, State
from headrace.compute.changing.told import as_changes
from headrace.compute.changing.windows import us
from headrace.crash import crash_point
from headrace.ums.change import ChangeBatch, End, Mark
from headrace.ums.schema import TableSchema

_ROUND_ROWS = 65_536
_QUIET_S = 1.0
"""How often the place is put on the log while nothing is told."""
_ASK_AGAIN_S = 5.0
_FORGET_TIMES = 10
"""So many times in the life of a tombstone it is looked for those that are over."""
Json = dict[str, Any]


class Rounds:
    """One attempt, from one mark on. `state` and `reading` are open, and stay others' to close."""

    def __init__(
        self, config: SqlSourceConfig, answers: Answers, upstream: Upstream, reading: Reading, state: State
    ) -> None:
        self._config = config
        self._answers = answers
        self._upstream = upstream
        self._reading = reading
        self._state = state
        self._windows = config.windows
        self._low = Low(reading, upstream.low_us, us(config.windows.delay) if config.windows else 0)
        self._passed_us: int | None = None
        """Up to which time windows were told as final."""
        self._taken = Taken()
        self._began: dict[str, int] = {}
        self._is_anew = True
        """The columns of an input are others than when the SQL was prepared."""
        self._table: TableSchema | None = None
        self._pending: Mark | None = None
        """Was handed out, and is not kept."""
        self._rows = 0
        self._ask_at = self._kept_at = time.monotonic()
        self._forgotten_us = 0
        self._notices: tuple[str, ...] = ()
        self._said = ""

    def begin(self, start: Mark | None, began: dict[str, int]) -> Mark:
        """Brings the state to a mark; the mark from which rounds go on. FatalError when the log has not kept what that takes."""
        self._began = began
        if start is None:
            if self._state.place.offsets:
                self._state.reset()
            self._taken = Taken(dict(began))
            return self._mark(Mark(self._config.name, {}, 0, 0), [])
        self._catch_up(start)
        self._rows = self._state.rows()
        return start

    def events(self, mark: Mark) -> Iterator[Event]:
        """Without end."""
        while True:
            offsets = dict(self._taken.offsets)
            self._low.look()
            news = self._take()
            idle = self._reading.is_idle(self._taken)
            changes = self._told(mark.id, news=news)
            quiet_s = time.monotonic() - self._kept_at
            notices, self._notices = self._notices, ()
            is_due = quiet_s >= _QUIET_S or (idle and self._upstream.is_finite)
            if changes or (is_due and self._position() != mark.position):
                mark = self._mark(mark, changes)
                self._pending = mark
                crash_point("sql.computed")
                yield Event(changes, mark, caught_up=idle, notices=notices, progress=self._progress())
                while self._pending is not None:
                    # What was handed out is durable when it is confirmed; whoever asks before that gets nothing new.
                    yield Event([], mark)
            else:
                yield Event([], mark, caught_up=idle, notices=notices)
            if self._taken.offsets == offsets:
                self._reading.wait()

    def keep(self, mark: Mark) -> None:
        """A mark is durable on the log, and with it what was told."""
        if mark is not self._pending:
            return
        crash_point("sql.told")
        self._forget()
        own = self._reading.ends(self._config.name)
        self._state.commit(Place(dict(self._taken.offsets), own, self._state.over_us))
        crash_point("sql.kept")
        self._pending = None
        self._kept_at = time.monotonic()
        self._rows = self._state.rows()

    def _catch_up(self, start: Mark) -> None:
        state, reading, offsets = self._state, self._reading, start.position["offsets"]
        ends = reading.ends(self._config.name)
        is_ahead = any(offset > offsets.get(at, 0) for at, offset in state.place.offsets.items())
        if is_ahead or any(offset > ends.get(partition, 0) for partition, offset in state.place.own.items()):
            state.reset()
        if not state.place.offsets:
            self._require_begin()
        state.late.catch_up()
        for change in reading.own(self._config.name, state.place.own):
            if change.table.namespace.all_versions == self._answers.namespace.all_versions:
                state.told.follow(change)
            elif isinstance(change, ChangeBatch):
                state.late.know(change)
        taken = Taken(dict(state.place.offsets or self._began))
        for piece in reading.take(taken, sys.maxsize, offsets):
            state.take(piece, self._anew)
        state.late.caught_up()
        self._taken = Taken(dict(offsets), start.commit_ts_us, dict(start.position.get("passed_by", {})))
        self._passed_us = self._low.passed_us = start.position.get("passed")
        state.pass_by(self._bound_us())
        state.commit(Place(dict(offsets), ends, state.over_us))

    def _require_begin(self) -> None:
        kept = self._reading.begins()
        for at, began in self._began.items():
            if kept.get(at, 0) > began:
                raise lost(at)

    def _take(self) -> bool:
        """Takes in what is there; whether any is news."""
        news = False
        for piece in self._reading.take(self._taken, max(_ROUND_ROWS, self._rows)):
            news |= self._state.take(piece, self._anew)
        self._low.took(self._taken)
        return news

    def _anew(self) -> None:
        self._is_anew = True

    def _told(self, newest_id: int, *, news: bool) -> list[ChangeBatch | End]:
        """What is to be told now, with ids behind the newest one."""
        is_further = self._windows is not None and self._low.passed_us != self._passed_us
        whole = self._is_anew
        if not (news or whole or is_further) or (whole and not self._prepared()):
            return []
        assert self._table is not None
        told, changes, next_id = self._state.told, list[ChangeBatch | End](), newest_id + 1
        if told.table is None:
            told.become(self._table)
        elif not told.table.same_shape(self._table):
            before, version = told.table, told.table.namespace.version + 1
            told.become(self._table.with_version(version))
            assert told.table is not None
            changes.append(End(before, told.table, next_id, self._taken.commit_ts_us))
            next_id += 1
        assert told.table is not None
        late = late_table(self._answers.namespace)
        of_tables = [(told.table, rows) for rows in self._differing(whole=whole, news=news)]
        of_tables += [(late, rows) for rows in self._state.late.rows()]
        for table, rows in of_tables:
            changes.append(as_changes(table, rows, next_id, self._taken.commit_ts_us))
            next_id += rows.num_rows
        return changes

    def _differing(self, *, whole: bool, news: bool) -> list[pa.RecordBatch]:
        """What the answer is otherwise; windows that the watermark has passed are over behind it."""
        if self._windows is None:
            return self._answers.difference(self._state, whole=whole, passed_us=None)
        passed_us, found = self._low.passed_us, list[pa.RecordBatch]()
        if self._windows.early:
            ask = news or whole
        else:
            first_us = self._state.first_end_us()
            ask = passed_us is not None and (whole or (first_us is not None and first_us <= passed_us))
        if ask:
            found = self._answers.difference(self._state, whole=whole, passed_us=passed_us)
        self._passed_us = passed_us
        self._state.pass_by(self._bound_us())
        return found

    def _bound_us(self) -> int | None:
        """What ends by then is over, and not corrected any more."""
        if self._windows is None or self._passed_us is None:
            return None
        return self._passed_us - us(self._windows.amend)

    def _progress(self) -> Progress:
        """No row that ends before will come any more."""
        return NO_PROGRESS if self._passed_us is None else Progress({self._config.name: self._passed_us})

    def _prepared(self) -> bool:
        """Makes the SQL ready for the inputs as they are; False while nothing is known of one of them."""
        if self._answers.unknown(self._state) and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + _ASK_AGAIN_S
            for table in self._upstream.tables_now():
                if isinstance(table, TableSchema) and self._answers.takes(table):
                    self._state.meet(table)
        if missing := self._answers.unknown(self._state):
            notice = f"source {self._config.name} waits for the first table that matches its input {missing[0]}"
            self._notices = () if notice == self._said else (notice,)
            self._said = notice
            return False
        self._table = self._answers.prepare(self._state)
        self._is_anew = False
        return True

    def _mark(self, before: Mark, changes: list[ChangeBatch | End]) -> Mark:
        if self._taken.offsets.keys() - self._began.keys():
            self._began = {**self._reading.begins(), **self._began}
        newest = [change.id_range[1] if isinstance(change, ChangeBatch) else change.id for change in changes]
        return Mark(self._config.name, self._position(), max(newest, default=before.id), self._taken.commit_ts_us)

    def _position(self) -> Json:
        of_windows = {"passed": self._passed_us, "passed_by": dict(self._taken.passed_us)}
        return {
            "offsets": dict(self._taken.offsets),
            "began": self._began,
            "sql": self._config.fingerprint,
            **(of_windows if self._windows is not None else {}),
        }

    def _forget(self) -> None:
        """Gives up tombstones whose time is over, now and then."""
        keep_us = round(self._config.tombstones * 1e6)
        if self._taken.commit_ts_us - self._forgotten_us > keep_us // _FORGET_TIMES:
            self._forgotten_us = self._taken.commit_ts_us
            self._state.forget(self._taken.commit_ts_us - keep_us)
