"""What messages on the topics of others say: rows by the formats of other tools, batches by UMS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.load.plan import plan_topic
from headrace.capture.seen_tables import SeenTables
from headrace.codec.foreign.batches import Numbered, batch_of
from headrace.codec.foreign.reading import CLEAR, READERS, ForeignMessage, ForeignRow
from headrace.codec.ums import MalformedMessage, UmsReader, UmsRows
from headrace.codec.ums_schema import Kind
from headrace.errors import CorruptError, SourceError
from headrace.log.kafka.tail import Taken
from headrace.ums.change import ChangeBatch, Clear, End, Mark, Statement
from headrace.ums.schema import COMMIT_TS, ID, TableSchema

IDS_PER_MESSAGE = 100_000
"""Ids that a message has for its rows."""
IDS_PER_ROW = 2
"""Where a row may start a version: its own, and the one before, which the end of the version before has."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message, and the `_ums_id_` of its first row."""

    first_id: int
    message: Taken


class Interpreter(Protocol):
    """Turns messages into changes. `commit_ts_us`: the newest commit time so far, µs since 1970 UTC."""

    commit_ts_us: int

    def changes(self, arrived: Sequence[Arrived]) -> Iterator[ChangeBatch | Clear | End]:
        """What messages say, in their order, and the end of a version before the first row of the next.

        CorruptError at a message that is not of the format, SourceError at one of a full load, unless such are left out.
        """
        ...


class Wanted:
    """The tables of a source, those that it is to take."""

    def __init__(self, tables: SeenTables, patterns: Sequence[str]) -> None:
        self.tables = tables
        self._patterns = patterns

    def wants(self, schema: str, table: str) -> bool:
        return any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in self._patterns)


class Refusal:
    """What becomes of messages that are not of the format, or are of a full load: an error, or a notice."""

    def __init__(self, form: str, *, skip: bool) -> None:
        self._form = form
        self._skip = skip
        self._notices: list[str] = []

    def refuse(self, message: Taken, reason: str, cause: Exception) -> None:
        what = f"offset {message.offset} of {message.place} is not a message of {self._form}: {reason}"
        fix = "check `format` and `topics` of the source; or leave such messages out: `bad_messages: skip`"
        self._leave_out(CorruptError(what, fix=fix), cause)

    def refuse_loaded(self, message: Taken) -> None:
        """Ids here are given by arrival: a row that was read early and comes late would win, and a clear would end what came before it."""
        what = f"offset {message.offset} of {message.place} is of a full load, whose place among changes on other topics is not known here"
        fix = (
            "take the topics of full loads out of `topics`, and load where the database itself is captured; or leave such messages out:"
            " `bad_messages: skip`"
        )
        self._leave_out(SourceError(what, fix=fix))

    def take_notices(self) -> tuple[str, ...]:
        """What was left out since the last time."""
        taken, self._notices = tuple(self._notices), []
        return taken

    def _leave_out(self, error: CorruptError | SourceError, cause: Exception | None = None) -> None:
        if not self._skip:
            raise error from cause
        self._notices.append(f"{error.message}; it was left out")


def interpreter_of(form: str, wanted: Wanted, refusal: Refusal, commit_ts_us: int) -> Interpreter:
    """The interpreter of a format. `commit_ts_us`: where commit times begin, as they never go back."""
    if form == "ums":
        return _UmsMessages(wanted, refusal, commit_ts_us)
    return _RowMessages(form, wanted, refusal, commit_ts_us)


class _RowMessages:
    """Messages of a few rows each: they are gathered into batches of one table version."""

    def __init__(self, form: str, wanted: Wanted, refusal: Refusal, commit_ts_us: int) -> None:
        self.commit_ts_us = commit_ts_us
        self._read = READERS[form]
        self._wanted = wanted
        self._refusal = refusal
        self._ums = UmsReader()

    def changes(self, arrived: Sequence[Arrived]) -> Iterator[ChangeBatch | Clear | End]:
        """See `Interpreter.changes`. A table that is not known yet needs no clearing."""
        rows = [found for one in arrived for found in self._numbered(one)]
        for (table, clears), run in groupby(rows, key=lambda found: (found[0], found[1].row.op == CLEAR)):
            together = list(run)
            numbered = [row for _, row, _ in together]
            if clears:
                yield from (Clear(table, row.id, row.commit_ts_us) for row in numbered)
            else:
                yield from _behind_end(self._wanted.tables, batch_of(table, numbered, self._ums), together[0][2])

    def _numbered(self, arrived: Arrived) -> Iterator[tuple[TableSchema, Numbered, Taken]]:
        for number, (table, row) in enumerate(self._rows(arrived.message)):
            self.commit_ts_us = max(self.commit_ts_us, row.ts_us)
            id_ = arrived.first_id + IDS_PER_ROW * number
            yield table, Numbered(id_, self.commit_ts_us, row), arrived.message

    def _rows(self, taken: Taken) -> list[tuple[TableSchema, ForeignRow]]:
        """The rows of a message with the versions of their tables."""
        try:
            read = self._read(ForeignMessage(taken.topic, taken.key, taken.value, taken.time_ms))
            rows = [row for row in read if self._wanted.wants(row.schema, row.table)]
            _must_be_few(len(rows))
            found = [(self._version(row), row) for row in rows]
        except (ValueError, OverflowError) as error:
            self._refusal.refuse(taken, str(error), error)
            return []
        return [(table, row) for table, row in found if table is not None]

    def _version(self, row: ForeignRow) -> TableSchema | None:
        tables = self._wanted.tables
        return tables.known(row.schema, row.table) if row.op == CLEAR else tables.version_of(row)


class _UmsMessages:
    """UMS: its rows are batches already. They keep their times, and get ids and namespaces of this source."""

    def __init__(self, wanted: Wanted, refusal: Refusal, commit_ts_us: int) -> None:
        self.commit_ts_us = commit_ts_us
        self._wanted = wanted
        self._refusal = refusal
        self._ums = UmsReader(commit_ts_us=commit_ts_us)
        self._lanes: set[str] = set()

    def changes(self, arrived: Sequence[Arrived]) -> Iterator[ChangeBatch | Clear | End]:
        """See `Interpreter.changes`. Heartbeats, marks and ends of the writer's versions say nothing here.

        A clear is of the newest version: by itself it does not start one, and a table that is not known yet needs none.
        """
        for one, changes in [(one, self._read(one.message)) for one in arrived]:
            id_ = one.first_id
            for found in self._of_no_load(one.message, changes):
                place = found.table.namespace
                if isinstance(found, ChangeBatch):
                    yield from _behind_end(self._wanted.tables, self._renumbered(found, id_), one.message)
                elif (known := self._wanted.tables.known(place.schema, place.table)) is not None:
                    self.commit_ts_us = max(self.commit_ts_us, found.commit_ts_us)
                    yield replace(found, table=known, id=id_, commit_ts_us=self.commit_ts_us)
                id_ += len(found)

    def _read(self, taken: Taken) -> list[UmsRows | Clear]:
        """Wanted changes. A mark of a load says what its topic is, for all messages that were taken together."""
        try:
            items = self._ums.read([taken.value or b""])
            found = [item for item in items if isinstance(item, (UmsRows, Clear))]
            changes = [item for item in found if len(_change(item)) and self._wants(_change(item))]
            _must_be_few(sum(len(_change(item)) for item in changes))
        except MalformedMessage as error:
            self._refusal.refuse(taken, f"byte {error.at}: {error.reason}", error)
        except ValueError as error:
            self._refusal.refuse(taken, str(error), error)
        else:
            if any(isinstance(item, Mark) and "shard" in item.position for item in items):
                self._lanes.add(taken.topic)
            return changes
        return []

    def _of_no_load(self, taken: Taken, changes: Sequence[UmsRows | Clear]) -> list[ChangeBatch | Clear]:
        """The changes, none when they are of a full load. Rows that are loaded again look like changes: their topic tells."""
        if any(_is_initial(item) or self._is_lane(taken.topic, _change(item)) for item in changes):
            self._refusal.refuse_loaded(taken)
            return []
        return [_change(item) for item in changes]

    def _is_lane(self, topic: str, change: ChangeBatch | Clear) -> bool:
        """Whether a topic is that of a lane: by its name, or by a mark that it had, as a copy may have another name."""
        plan, _, lane = topic.rpartition(".")
        named = lane.isdecimal() and plan.endswith(plan_topic(change.table.namespace.source))
        return named or topic in self._lanes

    def _wants(self, change: ChangeBatch | Clear) -> bool:
        return self._wanted.wants(change.table.namespace.schema, change.table.namespace.table)

    def _renumbered(self, batch: ChangeBatch, first_id: int) -> ChangeBatch:
        told, data = batch.table, batch.data
        place = told.namespace
        table = self._wanted.tables.version_with(place.schema, place.table, told.columns, told.key)
        times = data.column(COMMIT_TS).view(pa.int64())
        commit_ts = pc.cumulative_max(times, start=pa.scalar(self.commit_ts_us, pa.int64()))
        self.commit_ts_us = commit_ts[-1].as_py()
        columns = list(data.columns)
        columns[data.schema.get_field_index(ID)] = pa.array(range(first_id, first_id + len(batch)), pa.int64())
        columns[data.schema.get_field_index(COMMIT_TS)] = commit_ts.view(data.schema.field(COMMIT_TS).type)
        return ChangeBatch(table, pa.RecordBatch.from_arrays(columns, schema=table.arrow_schema()))


def _change(item: UmsRows | Clear) -> ChangeBatch | Clear:
    return item.batch if isinstance(item, UmsRows) else item


def _is_initial(item: UmsRows | Clear) -> bool:
    return isinstance(item, UmsRows) and item.kind is Kind.INITIAL


def _behind_end(tables: SeenTables, batch: ChangeBatch, message: Taken) -> Iterator[ChangeBatch | End]:
    """The rows; before them the end of the version before theirs, when theirs starts with them. `message`: that of the first row."""
    first_id = batch.data.column(ID)[0].as_py()
    ended = tables.ended_by(batch.table, first_id)
    if ended is not None:
        commit_ts_us = batch.data.column(COMMIT_TS).view(pa.int64())[0].as_py()
        place = Statement(place=f"{message.place}:{message.offset}")
        yield End(ended, batch.table, first_id - 1, commit_ts_us, place)
    yield batch


def _must_be_few(rows: int) -> None:
    most = IDS_PER_MESSAGE // IDS_PER_ROW - 1
    if rows > most:
        raise ValueError(f"it has {rows:,} rows, where {most:,} are the most")
