"""UMS JSON, the form of changes on the wire: the thin Python face of the native codec (rust/src/ums).

::

    ChangeBatch -> UmsWriter.rows -> messages (key, value) -> Kafka -> UmsReader.read -> UmsRows, UmsNotice, Clear

docs/formats/ums.md describes both dialects and their values; docs/formats/ums.schema.json is their JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headrace import _native
from headrace.codec.ums_schema import (
    Dialect,
    Kind,
    NoticeFields,
    RowsSchema,
    clear_message,
    described_table,
    has_dbus_ids,
    notice_message,
    read_notice,
    read_rows_schema,
    rows_head,
    table_description,
)
from headrace.codec.ums_types import is_zone
from headrace.errors import ConfigError, CorruptError, DataError
from headrace.ums.change import HEARTBEAT_KEY, MARK_KEY, Cause, ChangeBatch, Clear, End, Heartbeat, Mark, Statement
from headrace.ums.schema import OP, RAW, TS, Namespace

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall clock, whatever its zone
_MICROSECOND = timedelta(microseconds=1)
_FILE_OFFSETS = 10**12
_MAX_ID = 2**63 - 1
_DAY_NS = 86_400 * 10**9
_NAMESPACE_PARTS = 7
_BEFORE = pa.scalar("b")
_HEARTBEAT = f"{Kind.HEARTBEAT}.".encode()
_SOURCE_HEARTBEAT = "~heartbeat"
"""In place of a table, in the namespace of a source's own heartbeats: marks have that of the source."""


class UmsMessage(NamedTuple):
    """A message for Kafka."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes into one message. A single row that is larger than `size_bytes` still gets a message of its own."""

    rows: int
    size_bytes: int


DEFAULT_LIMITS = {Dialect.HEADRACE: Limits(500, 512 << 10), Dialect.DBUS: Limits(5, 100 << 10)}
"""Those of `dbus` are what the original ships with."""


class UmsWriter:
    """Writes changes as UMS JSON.

    `zone`: the time zone in which the dbus dialect writes instants (the original has its process's); the headrace dialect is in UTC.
    `whole`: the dbus dialect gets members that the original and Wormhole skip, so that headrace reads back all that was written; the
    headrace dialect always is whole.
    """

    def __init__(
        self, dialect: Dialect, *, limits: Limits | None = None, zone: str = "UTC", whole: bool = False
    ) -> None:
        if dialect is Dialect.HEADRACE and zone != "UTC":
            raise ConfigError(
                "the headrace dialect of UMS is in UTC", fix="leave the zone out, or use the dbus dialect"
            )
        _check_zone(zone)
        self._dialect = dialect
        self._limits = limits or DEFAULT_LIMITS[dialect]
        self._zone = zone
        self._whole_in = zone if whole else None
        self._head = lru_cache(maxsize=4096)(rows_head)
        self.rows_beyond = 0
        """Rows written so far with values that their type cannot hold: null in the dbus dialect, which has no `_ums_raw_` field."""

    def rows(self, batch: ChangeBatch, kind: Kind = Kind.INCREMENT) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of the messages of a batch, in its order; whatever can fail has been done when this returns.

        Pairs, and only when they are asked for: all of many small messages at once would cost more memory than their rows.
        DataError when a column or an id cannot go into this dialect.
        """
        head = self._head(batch.table, self._dialect, kind, self._whole_in)
        data = batch.data
        if self._dialect is Dialect.DBUS and len(batch):
            self.rows_beyond += len(batch) - data.column(RAW).null_count
            self._check_ids(batch)
            data = _local(data, self._zone)
        limits = {"max_rows": self._limits.rows, "max_bytes": self._limits.size_bytes}
        values = _native.encode_ums(data, head.text, head.targets, head.beside, **limits)
        if self._dialect is Dialect.HEADRACE:
            return zip(repeat(batch.key()), values, strict=False)
        first_rows = pa.py_buffer(values.first_rows)
        firsts = pa.Int64Array.from_buffers(pa.int64(), first_rows.size // 8, [None, first_rows])
        times: list[Any] = batch.data.column(TS).view(pa.int64()).take(firsts).to_pylist()
        keys = (_dbus_key(kind, batch.table.namespace, ts_us) for ts_us in times)
        return zip(keys, values, strict=True)

    def heartbeat(self, namespace: Namespace, id_: int, ts_us: int) -> UmsMessage:
        """A sign of life on the path of a table's changes; times in microseconds since 1970 UTC."""
        return self._notice(Kind.HEARTBEAT, namespace, id_, ts_us)

    def termination(self, namespace: Namespace, ts_us: int, kind: Kind = Kind.TERMINATION) -> UmsMessage:
        """No more changes of this table version will come (of a batch: `Kind.BATCH_TERMINATION`)."""
        return self._notice(kind, namespace, None, ts_us)

    def end(self, end: End) -> UmsMessage:
        """The termination of a table version; `whole`, with what only headrace wants to know of it."""
        if self._whole_in is None:
            return self.termination(end.table.namespace, end.commit_ts_us)
        tables = {"table": table_description(end.table), "successor": table_description(end.successor)}
        said = {"id": end.id, "commit_ts_us": end.commit_ts_us, **tables, **end.statement.header()}
        return self._notice(Kind.TERMINATION, end.table.namespace, None, end.commit_ts_us, {"end": said})

    def clear(self, clear: Clear) -> UmsMessage:
        """TRUNCATE TABLE, or what else ends rows. The dbus dialect has no message for it: DataError, but `whole` it is a heartbeat."""
        time = _instant(clear.commit_ts_us, "UTC", Dialect.HEADRACE)
        cause = None if self._whole_in is None else {"cause": clear.cause.value, **clear.statement.header()}
        message = clear_message(clear.table, str(clear.id), time, cause)
        if self._dialect is Dialect.HEADRACE:
            return UmsMessage(clear.key(), message)
        if self._whole_in is None:
            raise DataError(
                f"the dbus dialect of UMS has no message for TRUNCATE of {clear.table.namespace}",
                fix="use the headrace dialect, or load the table anew",
            )
        context = {"clear": json.loads(message)}
        return self._notice(Kind.HEARTBEAT, clear.table.namespace, clear.id, clear.commit_ts_us, context)

    def mark(self, mark: Mark, source_type: str) -> UmsMessage:
        """A mark: a heartbeat of the whole source, with what only headrace wants to know in a `context`."""
        context = {"mark": asdict(mark)}
        message = self._notice(
            Kind.HEARTBEAT, source_namespace(source_type, mark.source), mark.id, mark.commit_ts_us, context
        )
        return message if self._dialect is Dialect.DBUS else message._replace(key=MARK_KEY)

    def logged_heartbeat(self, heartbeat: Heartbeat, source_type: str) -> UmsMessage:
        """A heartbeat as it stands on a log: with what headrace wants to know in a `context`."""
        namespace = heartbeat.table or Namespace(source_type, heartbeat.source, "*", _SOURCE_HEARTBEAT, 0, "*", "*")
        said = {
            "source": heartbeat.source,
            "sent_us": heartbeat.sent_us,
            "id": heartbeat.id,
            "of_table": heartbeat.table is not None,
        }
        message = self._notice(Kind.HEARTBEAT, namespace, heartbeat.id, heartbeat.sent_us, {"heartbeat": said})
        return message if self._dialect is Dialect.DBUS else message._replace(key=HEARTBEAT_KEY)

    def _notice(
        self, kind: Kind, namespace: Namespace, id_: int | None, ts_us: int, context: dict[str, Any] | None = None
    ) -> UmsMessage:
        if id_ is not None and id_ > 0 and has_dbus_ids(namespace, self._dialect):
            id_ += id_ // _FILE_OFFSETS * 9 * _FILE_OFFSETS
        text = None if id_ is None else str(id_)
        time = _instant(ts_us, self._zone, self._dialect)
        value = notice_message(self._dialect, kind, namespace, text, time, context=context)
        if self._dialect is Dialect.HEADRACE:
            return UmsMessage(str(namespace).encode(), value)
        return UmsMessage(_dbus_key(kind, namespace, ts_us), value)

    def _check_ids(self, batch: ChangeBatch) -> None:
        newest = batch.id_range[1]
        if (
            has_dbus_ids(batch.table.namespace, self._dialect)
            and newest + newest // _FILE_OFFSETS * 9 * _FILE_OFFSETS > _MAX_ID
        ):
            raise DataError(
                f"{newest} of {batch.table.namespace} is too large an id for the dbus dialect",
                fix="use the headrace dialect: the binlog's file number is above 922,337",
            )


@dataclass(frozen=True, slots=True)
class UmsRows:
    """Changes of one table version out of messages of one kind (`INCREMENT`, `INITIAL` or `BATCH`), in their order."""

    kind: Kind
    batch: ChangeBatch


@dataclass(frozen=True, slots=True)
class UmsNotice:
    """A message without rows. `id` is None where it has none; `ts_us`: microseconds since 1970 UTC, None where it has none."""

    kind: Kind
    namespace: Namespace
    id: int | None
    ts_us: int | None


class MalformedMessage(CorruptError):  # noqa: N818 - read at the place that handles it, this is what it is
    """A message is not UMS. `index`: its place in the list that was read; `at`: the byte where it stops making sense."""

    def __init__(self, reason: str, *, index: int, at: int) -> None:
        super().__init__(
            f"message {index} is not UMS at byte {at}: {reason}",
            fix="check what else writes to this topic; a message that cannot be repaired must be skipped by its offset",
        )
        self.reason = reason
        self.index = index
        self.at = at


class UmsReader:
    """Reads UMS JSON of both dialects; what it keeps from call to call are the schemas that it has met.

    `columns`: parse only these (all when None); a table's key is kept when all its columns are among them. `exact`: types of columns
    by name, in place of what messages say (the original does not say a decimal's scale). `zone`: of the instants in the dbus dialect.
    `commit_ts_us`: where commit times of messages that have none of their own begin; they are `ums_ts_` made monotone.
    """

    def __init__(
        self,
        columns: Collection[str] | None = None,
        *,
        exact: Mapping[str, pa.DataType] | None = None,
        zone: str = "UTC",
        commit_ts_us: int = -(2**63),
    ) -> None:
        _check_zone(zone)
        self._columns = None if columns is None else frozenset(columns)
        self._exact = dict(exact or {})
        self._zone = zone
        kinds = [(kind.value, kind.has_rows) for kind in Kind]
        self._parser = _native.UmsParser(kinds, self._plan, commit_ts_us)

    def read(self, messages: Sequence[bytes]) -> list[UmsRows | UmsNotice | Clear | End | Mark | Heartbeat]:
        """What messages say. Rows of one table version and kind come together, where the first of them stood.

        So rows never come later than a notice that stood behind them. Values that a column's type cannot hold are null and their text is in
        `_ums_raw_`; rows before an update (`b`) are left out. MalformedMessage: nothing of this call was taken (one
        call reads at most 2 GiB of one table). A reader serves one thread.
        """
        messages = messages if isinstance(messages, list) else list(messages)
        try:
            found = self._parser.parse(messages)
        except (ValueError, RecursionError) as error:
            index, at = self._parser.failed_at or (0, 0)
            raise MalformedMessage(str(error), index=index, at=at) from error
        return [
            self._notice(Kind(kind), what, messages[what]) if isinstance(what, int) else self._rows(Kind(kind), *what)
            for kind, what in found
        ]

    def _plan(self, text: bytes) -> tuple[RowsSchema, pa.Schema, Sequence[int], Sequence[str], bool]:
        """The native parser asks what a schema means."""
        schema = read_rows_schema(text, self._columns, self._exact)
        arrow = schema.table.arrow_schema()
        dbus_ids = has_dbus_ids(schema.table.namespace, schema.dialect)
        return schema, arrow, schema.targets, schema.names, dbus_ids

    def _rows(self, kind: Kind, schema: RowsSchema, native: _native.Batch) -> UmsRows:
        data = pa.record_batch(native)
        if schema.dialect is Dialect.DBUS:
            ops = data.column(OP)
            if pc.any(pc.equal(ops, _BEFORE)).as_py():
                data = data.filter(pc.not_equal(ops, _BEFORE))
            data = _from_local(data, schema.zone or self._zone)
        return UmsRows(kind, ChangeBatch(schema.table, data))

    def _notice(self, kind: Kind, index: int, message: bytes) -> UmsNotice | Clear | End | Mark | Heartbeat:
        try:
            return self._read_notice(kind, message)
        except (ValueError, OverflowError, RecursionError) as error:
            raise MalformedMessage(str(error), index=index, at=0) from error

    def _read_notice(self, kind: Kind, message: bytes) -> UmsNotice | Clear | End | Mark | Heartbeat:
        fields = read_notice(message)
        if "mark" in fields.context:
            return _mark(fields.context["mark"])
        if "heartbeat" in fields.context:
            return _heartbeat(fields.context["heartbeat"], fields.table.namespace)
        if "end" in fields.context:
            return _end(fields.context["end"])
        if "clear" in fields.context:
            return self._read_notice(Kind.CLEAR, json.dumps(fields.context["clear"]).encode())
        id_ = _notice_id(fields)
        zone = self._zone if fields.dialect is Dialect.DBUS else "UTC"
        ts_us = None if fields.ts is None else _micros(fields.ts, zone)
        if kind is not Kind.CLEAR:
            return UmsNotice(kind, fields.table.namespace, id_, ts_us)
        if id_ is None or ts_us is None:
            raise ValueError("a clear without id or time")
        cause = Cause(fields.context.get("cause", Cause.TRUNCATED))
        return Clear(fields.table, id_, ts_us, cause, Statement.of(fields.context))


def source_namespace(source_type: str, source: str) -> Namespace:
    """The name of a source as a whole, which its marks go by."""
    return Namespace(source_type, source, "*", "*", 0, "*", "*")


def is_mark(key: bytes) -> bool:
    """Whether a key is that of a mark, in a block or in a message of either dialect."""
    return key == MARK_KEY or (key.startswith(_HEARTBEAT) and key.split(b".", 5)[3:5] == [b"*", b"*"])


def is_heartbeat(key: bytes) -> bool:
    """Whether a key is that of a heartbeat which is not known by the table that it is on the path of."""
    own = _SOURCE_HEARTBEAT.encode()
    return key == HEARTBEAT_KEY or (key.startswith(_HEARTBEAT) and key.split(b".", 5)[4:5] == [own])


def key_namespace(key: bytes | None) -> str | None:
    """The seven-part name in a message's key (of either dialect); None when the key has none, as Wormhole sees it."""
    if key is None:
        return None
    parts = key.decode("utf-8", "replace").split(".")
    first = 1 if parts[0] in {kind.value for kind in Kind} else 0
    named = parts[first : first + _NAMESPACE_PARTS]
    return ".".join(named) if len(named) == _NAMESPACE_PARTS else None


def _mark(said: object) -> Mark:
    match said:
        case {"source": str(source), "position": dict(position), "id": int(id_), "commit_ts_us": int(ts_us)}:
            return Mark(source, position, id_, ts_us)
    raise ValueError("a mark lacks its source, position, id or time")


def _heartbeat(said: object, namespace: Namespace) -> Heartbeat:
    match said:
        case {"source": str(source), "id": int(id_), "sent_us": int(sent_us), "of_table": bool(of_table)}:
            return Heartbeat(source, namespace if of_table else None, id_, sent_us)
    raise ValueError("a heartbeat lacks its source, id or time")


def _end(said: object) -> End:
    match said:
        case {
            "table": dict(table),
            "successor": dict(next_),
            "id": int(id_),
            "commit_ts_us": int(ts_us),
            "sql": str(sql),
            "at": str(at),
        }:
            return End(described_table(table), described_table(next_), id_, ts_us, Statement(sql, at))
    raise ValueError("an end lacks its tables, id, time or statement")


def _dbus_key(kind: Kind, namespace: Namespace, ts_us: int) -> bytes:
    """What Wormhole routes by: kind, namespace, time, and for heartbeats the time and state of the beat."""
    ts_ms = ts_us // 1000
    beat = f"{ts_ms}|ok|" if kind is Kind.HEARTBEAT else ""
    return f"{kind}.{namespace}.{ts_ms}|{beat}{namespace.source}.wh_placeholder".encode()


def _check_zone(zone: str) -> None:
    if not is_zone(zone):
        raise ConfigError(f"there is no time zone '{zone}'", fix="write a name such as Asia/Shanghai or UTC")


def _local(data: pa.RecordBatch, zone: str) -> pa.RecordBatch:
    """Instants as wall clock of the zone (in UTC they are written as they are)."""
    if zone == "UTC":
        return data
    return pa.RecordBatch.from_arrays([_wall_clock(column, zone) for column in data.columns], names=data.schema.names)


def _from_local(data: pa.RecordBatch, zone: str) -> pa.RecordBatch:
    """Instants that were read as if they were in UTC. An hour that came twice is taken as the first."""
    if zone == "UTC":
        return data
    return pa.RecordBatch.from_arrays([_from_wall_clock(column, zone) for column in data.columns], schema=data.schema)


def _wall_clock(column: pa.Array[Any], zone: str) -> pa.Array[Any]:
    if not isinstance(column.type, pa.TimestampType) or not column.type.tz:
        return column
    if column.type.unit == "ns":
        ends = pc.min_max(column.view(pa.int64()))
        first, last = ends["min"].as_py() or 0, ends["max"].as_py() or 0
        if max(-first, last) > 2**63 - _DAY_NS:
            raise DataError(
                f"a time in nanoseconds near {2262 if last > -first else 1677} has no wall clock in {zone}",
                fix="write in UTC, or make the column one of microseconds",
            )
    local: pa.Array[Any] = pc.call_function("local_timestamp", [column.cast(pa.timestamp(column.type.unit, zone))])
    return local


def _from_wall_clock(column: pa.Array[Any], zone: str) -> pa.Array[Any]:
    if not isinstance(column.type, pa.TimestampType) or not column.type.tz:
        return column
    options = pc.AssumeTimezoneOptions(zone, ambiguous="earliest", nonexistent="latest")
    plain = column.cast(pa.timestamp(column.type.unit))
    instants: pa.Array[Any] = pc.call_function("assume_timezone", [plain], options).cast(column.type)
    return instants


def _instant(ts_us: int, zone: str, dialect: Dialect) -> str:
    moment = datetime.fromtimestamp(0, UTC) + ts_us * _MICROSECOND
    short = dialect is Dialect.DBUS and moment.microsecond % 1000 == 0
    wall_clock = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return wall_clock.isoformat(" ", "milliseconds" if short else "microseconds")


def _micros(text: str, zone: str) -> int:
    moment = datetime.fromisoformat(text.replace("/", "-"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return (moment.astimezone(UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def _notice_id(fields: NoticeFields) -> int | None:
    if fields.id is None:
        return None
    id_ = int(fields.id)
    if not has_dbus_ids(fields.table.namespace, fields.dialect) or id_ < 0:
        return id_
    file, offset = divmod(id_, 10 * _FILE_OFFSETS)
    if offset >= _FILE_OFFSETS:
        raise ValueError(f"ums_id_ cannot be {id_}")
    return file * _FILE_OFFSETS + offset
