"""What an entry of the log holds: changes and marks into entries and back, in the one place that knows all forms.

::

    ChangeBatch, Clear, End, Mark --EntryWriter--> entries --log--> EntryReader --> the same, and UmsNotice

    form       key                               value                                   begins with
    block      namespace; ~mark, ~heartbeat      Arrow (headrace.ums.change)             HRB1
    ums        namespace; ~mark, ~heartbeat      a UMS message                           {
    ums-dbus   kind.namespace.time|…             a UMS message as DBus writes it,        {
                                                 with members that it skips

A value says itself what it is, so entries of all forms may stand in one topic, and its form may be changed between two runs. The
form of what is written is the log's choice (`headrace.log.base.Shared`): on Kafka it is UMS, in the embedded log blocks.

Marks and clears, for which UMS has no message that others know, are heartbeats to them, and ends of versions terminations; what headrace
wants to know besides stands in `protocol.context` (docs/decisions/0011-ums-on-kafka.md). Rows with negative ids, those of a first load, go as `data_initial_data`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.ums import (
    DEFAULT_LIMITS,
    Limits,
    MalformedMessage,
    UmsNotice,
    UmsReader,
    UmsRows,
    UmsWriter,
)
from headrace.codec.ums_schema import Dialect, Kind
from headrace.errors import CorruptError
from headrace.log.base import Entry, EntryForm, Form
from headrace.ums.change import (
    HEARTBEAT_KEY,
    MARK_KEY,
    ChangeBatch,
    Clear,
    End,
    Heartbeat,
    Mark,
    read_block,
    read_header,
)
from headrace.ums.schema import ID

_KINDS = tuple(f"{kind}.".encode() for kind in Kind)
_OBJECT = b"{"
_DIALECTS = {Form.UMS: Dialect.HEADRACE, Form.UMS_DBUS: Dialect.DBUS}


class EntryWriter:
    """Writes one source's changes and marks in the form that a log wants.

    `source_type` is the first part of its namespaces, for marks before the first change.
    """

    def __init__(self, form: EntryForm, source_type: str) -> None:
        self._source_type = source_type
        self._ums = None if form.form is Form.BLOCK else _ums_writer(form)

    def changes(self, change: ChangeBatch | Clear | End, now_ms: int) -> list[Entry]:
        """The entries of changes of one table. DataError when the form cannot have them."""
        self._source_type = change.table.namespace.type
        if self._ums is None:
            return [Entry(change.key(), change.to_block(), now_ms)]
        return [Entry(key, value, now_ms) for key, value in _messages(self._ums, change)]

    def mark(self, mark: Mark, now_ms: int) -> Entry:
        """The entry of a mark."""
        if self._ums is None:
            return Entry(MARK_KEY, mark.to_block(), now_ms)
        return Entry(*self._ums.mark(mark, self._source_type), now_ms)

    def heartbeat(self, heartbeat: Heartbeat, now_ms: int) -> Entry:
        """The entry of a heartbeat."""
        if self._ums is None:
            return Entry(HEARTBEAT_KEY, heartbeat.to_block(), now_ms)
        return Entry(*self._ums.logged_heartbeat(heartbeat, self._source_type), now_ms)


def _messages(ums: UmsWriter, change: ChangeBatch | Clear | End) -> Iterator[tuple[bytes, bytes]]:
    if isinstance(change, Clear):
        yield ums.clear(change)
    elif isinstance(change, End):
        yield ums.end(change)
    else:
        for kind, batch in _by_kind(change):
            yield from ums.rows(batch, kind)


def _ums_writer(form: EntryForm) -> UmsWriter:
    dialect = _DIALECTS[form.form]
    usual = DEFAULT_LIMITS[dialect]
    size_bytes = form.size_bytes or usual.size_bytes
    limits = Limits(form.rows or usual.rows, min(size_bytes, form.most_bytes or size_bytes))
    return UmsWriter(dialect, limits=limits, zone=form.zone, whole=True)


def _by_kind(batch: ChangeBatch) -> Iterator[tuple[Kind, ChangeBatch]]:
    """Rows of a first load apart from changes; all of them, mostly, are one or the other."""
    low, high = batch.id_range
    if low >= 0 or high < 0:
        yield (Kind.INCREMENT if low >= 0 else Kind.INITIAL), batch
        return
    loaded = pc.less(batch.data.column(ID), pa.scalar(0))
    yield Kind.INITIAL, ChangeBatch(batch.table, batch.data.filter(loaded))
    yield Kind.INCREMENT, ChangeBatch(batch.table, batch.data.filter(pc.invert(loaded)))


class EntryReader:
    """Reads entries of every form. What it keeps from one to the next are the schemas it has met; it serves one thread."""

    def __init__(self) -> None:
        self._ums = UmsReader()

    def read(self, entry: Entry) -> ChangeBatch | Clear | End | Mark | Heartbeat | UmsNotice | None:
        """What an entry says, None when it has no rows; CorruptError when it has none of the forms."""
        if not entry.value.startswith(_OBJECT):
            return read_block(entry.value)
        try:
            [*items] = self._ums.read([entry.value])
        except MalformedMessage as error:
            raise CorruptError(
                f"an entry of the log is not UMS at byte {error.at}: {error.reason}",
                fix="check what else writes to this topic; if it was headrace, restore the log from its copy and report this",
            ) from error
        if not items:
            return None
        [item] = items
        return item.batch if isinstance(item, UmsRows) else item

    def block(self, entry: Entry) -> bytes | None:
        """An entry's changes or mark as a block; None when it has neither. CorruptError as of `read`."""
        if not entry.value.startswith(_OBJECT):
            return entry.value
        found = self.read(entry)
        return None if found is None or isinstance(found, UmsNotice) else found.to_block()

    def header(self, entry: Entry) -> dict[str, Any] | None:
        """What an entry is, for people: the header of its block, or what would be the header; None when it has none of the forms."""
        try:
            if not entry.value.startswith(_OBJECT):
                return read_header(entry.value)
            found = self.read(entry)
        except CorruptError:
            return None
        if isinstance(found, UmsNotice):
            return {"kind": str(found.kind), "namespace": str(found.namespace), "id": found.id, "ts": found.ts_us}
        return {"kind": "changes", "rows": 0} if found is None else found.header()


def table_of(key: bytes) -> bytes:
    """The namespace in the key of an entry that is not a mark, without opening the entry."""
    if key.startswith(_KINDS):
        return b".".join(key.split(b".", 8)[1:8])
    return key
