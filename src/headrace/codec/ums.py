"""UMS JSON, the form of changes on the wire: the thin Python face of the native codec (rust/src/ums).

::

    ChangeBatch -> UmsWriter.rows -> messages (key, value) -> Kafka -> UmsReader.read -> UmsRows, UmsNotice, Clear

docs/formats/ums.md describes both dialects and their values; docs/formats/ums.schema.json is their JSON Schema.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
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
    has_dbus_ids,
    notice_message,
    read_notice,
    read_rows_schema,
    rows_head,
)
from headrace.errors import ConfigError, CorruptError, DataError
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import OP, RAW, TS, Namespace

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall clock, whatever its zone
_MICROSECOND = timedelta(microseconds=1)
_FILE_OFFSETS = 10**12
_MAX_ID = 2**63 - 1
_DAY_NS = 86_400 * 10**9
_NAMESPACE_PARTS = 7
_BEFORE = pa.scalar("b")


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
    """

    def __init__(self, dialect: Dialect, *, limits: Limits | None = None, zone: str = "UTC") -> None:
        if dialect is Dialect.HEADRACE and zone != "UTC":
            raise ConfigError(
                "the headrace dialect of UMS is in UTC", fix="leave the zone out, or use the dbus dialect"
            )
        _check_zone(zone)
        self._dialect = dialect
        self._limits = limits or DEFAULT_LIMITS[dialect]
        self._zone = zone
        self._head = lru_cache(maxsize=4096)(rows_head)
        self.rows_beyond = 0
        """Rows written so far with values that their type cannot hold: null in the dbus dialect, which has no `_ums_raw_`."""

    def rows(self, batch: ChangeBatch, kind: Kind = Kind.INCREMENT) -> list[UmsMessage]:
        """The messages of a batch, in its order. DataError when a column or an id cannot go into this dialect."""
        head, targets = self._head(batch.table, self._dialect, kind)
        data = batch.data
        if self._dialect is Dialect.DBUS and len(batch):
            self.rows_beyond += len(batch) - data.column(RAW).null_count
            self._check_ids(batch)
            data = _local(data, self._zone)
        cut = _native.encode_ums(data, head, targets, max_rows=self._limits.rows, max_bytes=self._limits.size_bytes)
        if self._dialect is Dialect.HEADRACE:
            key = batch.key()
            return [UmsMessage(key, value) for value, _ in cut]
        firsts = pa.array([row for _, row in cut], pa.int64())
        times: list[Any] = batch.data.column(TS).view(pa.int64()).take(firsts).to_pylist()
        namespace = batch.table.namespace
        return [
            UmsMessage(_dbus_key(kind, namespace, ts_us), value) for (value, _), ts_us in zip(cut, times, strict=True)
        ]

    def heartbeat(self, namespace: Namespace, id_: int, ts_us: int) -> UmsMessage:
        """A sign of life on the path of a table's changes; times in microseconds since 1970 UTC."""
        return self._notice(Kind.HEARTBEAT, namespace, id_, ts_us)

    def termination(self, namespace: Namespace, ts_us: int, kind: Kind = Kind.TERMINATION) -> UmsMessage:
        """No more changes of this table version will come (of a batch: `Kind.BATCH_TERMINATION`)."""
        return self._notice(kind, namespace, None, ts_us)

    def clear(self, clear: Clear) -> UmsMessage:
        """TRUNCATE TABLE. DataError in the dbus dialect, which has no message for it."""
        if self._dialect is Dialect.DBUS:
            raise DataError(
                f"the dbus dialect of UMS has no message for TRUNCATE of {clear.table.namespace}",
                fix="use the headrace dialect, or load the table anew",
            )
        return UmsMessage(
            clear.key(), clear_message(clear.table, str(clear.id), _instant(clear.commit_ts_us, "UTC", self._dialect))
        )

    def _notice(self, kind: Kind, namespace: Namespace, id_: int | None, ts_us: int) -> UmsMessage:
        if id_ is not None and id_ > 0 and has_dbus_ids(namespace, self._dialect):
            id_ += id_ // _FILE_OFFSETS * 9 * _FILE_OFFSETS
        text = None if id_ is None else str(id_)
        value = notice_message(self._dialect, kind, namespace, text, _instant(ts_us, self._zone, self._dialect))
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

    def read(self, messages: Sequence[bytes]) -> list[UmsRows | UmsNotice | Clear]:
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
            data = _from_local(data, self._zone)
        return UmsRows(kind, ChangeBatch(schema.table, data))

    def _notice(self, kind: Kind, index: int, message: bytes) -> UmsNotice | Clear:
        try:
            fields = read_notice(message)
            id_ = _notice_id(fields)
            zone = self._zone if fields.dialect is Dialect.DBUS else "UTC"
            ts_us = None if fields.ts is None else _micros(fields.ts, zone)
        except (ValueError, OverflowError, RecursionError) as error:
            raise MalformedMessage(str(error), index=index, at=0) from error
        if kind is not Kind.CLEAR:
            return UmsNotice(kind, fields.table.namespace, id_, ts_us)
        if id_ is None or ts_us is None:
            raise MalformedMessage("a clear without id or time", index=index, at=0)
        return Clear(fields.table, id_, ts_us)


def key_namespace(key: bytes | None) -> str | None:
    """The seven-part name in a message's key (of either dialect); None when the key has none, as Wormhole sees it."""
    if key is None:
        return None
    parts = key.decode("utf-8", "replace").split(".")
    first = 1 if parts[0] in {kind.value for kind in Kind} else 0
    named = parts[first : first + _NAMESPACE_PARTS]
    return ".".join(named) if len(named) == _NAMESPACE_PARTS else None


def _dbus_key(kind: Kind, namespace: Namespace, ts_us: int) -> bytes:
    """What Wormhole routes by: kind, namespace, time, and for heartbeats the time and state of the beat."""
    ts_ms = ts_us // 1000
    beat = f"{ts_ms}|ok|" if kind is Kind.HEARTBEAT else ""
    return f"{kind}.{namespace}.{ts_ms}|{beat}{namespace.source}.wh_placeholder".encode()


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"there is no time zone '{zone}'", fix="write a name such as Asia/Shanghai or UTC") from error


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
