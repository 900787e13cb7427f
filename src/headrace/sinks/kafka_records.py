"""What the records of the Kafka sink hold: changes in the formats of others, with their keys."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from headrace.codec.entries import EntryWriter
from headrace.codec.foreign import WRITERS
from headrace.codec.foreign.changes import ForeignWriter, of_batch
from headrace.codec.foreign.flat import FlatWriter
from headrace.errors import DataError
from headrace.log.base import EntryForm, Form
from headrace.sinks.base import refuse_names, refuse_types
from headrace.sinks.kafka_avro import AvroWriter, refuse_same_names
from headrace.sinks.kafka_registry import Registry
from headrace.ums.change import DELETE, ChangeBatch, Clear
from headrace.ums.schema import TableSchema
from headrace.ums.system_columns import USUAL, SystemColumns

_OVERHEAD_BYTES = 2048
"""What a record and its batch have besides the value, and a key of usual length."""


class Format(StrEnum):
    """The formats, by their names in flow files."""

    UMS = "ums"
    UMS_DBUS = "ums-dbus"
    DEBEZIUM = "debezium"
    DEBEZIUM_SCHEMA = "debezium-schema"
    CANAL = "canal"
    MAXWELL = "maxwell"
    JSON = "json"
    AVRO = "avro"

    @property
    def has_tombstones(self) -> bool:
        """Whether its readers bear records without value."""
        return self not in (Format.UMS, Format.UMS_DBUS, Format.CANAL)


class Record(NamedTuple):
    """A record to be written; no key where the table has none, no value in a tombstone. Its time is that of writing: brokers drop
    records by their times, and rows may be older than what is kept."""

    key: bytes | None
    value: bytes | None


class Records:
    """Makes records of changes."""

    def __init__(
        self,
        form: Format,
        zone: str,
        most_bytes: int,
        *,
        tombstones: bool,
        registry: Registry | None = None,
        system: SystemColumns = USUAL,
    ) -> None:
        self._form = form
        self._system = system
        self._tombstones = tombstones
        self._ums: EntryWriter | None = None
        if form in (Format.UMS, Format.UMS_DBUS):
            ums = EntryForm(Form(form.value), zone=zone, most_bytes=most_bytes - _OVERHEAD_BYTES)
            self._ums = EntryWriter(ums, source_type="")
        self._avro = None if registry is None else AvroWriter(registry, system)
        self._is_flat = form is Format.JSON

    def check(self, table: TableSchema) -> None:
        """ConfigError when the format cannot have such a table."""
        refuse_types(table)
        if self._is_flat or self._avro is not None:
            refuse_names(table, self._system.of_rows)
        if self._avro is not None:
            refuse_same_names(table)

    def prepare(self, table: TableSchema, topic: str) -> None:
        """Registers the schemas of a table where the format has some."""
        if self._avro is not None:
            self._avro.prepare(table, topic)

    def rehearse(self, table: TableSchema, topic: str) -> None:
        """Raises what `prepare` would, as far as a registry tells before."""
        if self._avro is not None:
            self._avro.rehearse(table, topic)

    def of(self, batch: ChangeBatch) -> Iterator[Record]:
        """The records of changes, in their order. DataError when the format cannot have a value."""
        if not len(batch):
            return
        if self._ums is not None:
            for entry in self._ums.changes(batch, 0):
                yield Record(entry.key, entry.value)
            return
        try:
            yield from self._by_schema(self._avro, batch) if self._avro else self._foreign(self._writer(), batch)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"{batch.table.namespace}: a value cannot be written as {self._form}: {error}",
                fix="use `format: ums`, which holds every value, or drop the column",
            ) from error

    def of_clear(self, clear: Clear) -> Iterator[Record]:
        """The record of TRUNCATE TABLE, or what else ends rows; DataError when the format has none."""
        if self._ums is not None:
            for entry in self._ums.changes(clear, 0):
                yield Record(entry.key, entry.value)
            return
        message = None if self._avro is not None else self._writer().clear(clear)
        if message is None:
            raise DataError(
                f"`format: {self._form}` has no message for the end of all rows of {clear.table.namespace.all_versions}"
                f" ({clear.cause}; {clear.statement})",
                fix="use another format, or let the flow pass over it: `on_change: {truncated: ignore, table_dropped: ignore}`",
            )
        yield Record(_table_key(clear.table), message.encode())

    def _writer(self) -> ForeignWriter:
        return FlatWriter(self._system) if self._is_flat else WRITERS[self._form]

    def _by_schema(self, writer: AvroWriter, batch: ChangeBatch) -> Iterator[Record]:
        for key, value, deleted in writer.records(batch):
            ends = self._tombstones and deleted and key is not None
            yield Record(key, None if ends else value)

    def _foreign(self, writer: ForeignWriter, batch: ChangeBatch) -> Iterator[Record]:
        changes = of_batch(batch)
        keys: list[bytes | None] = [None] * len(batch)
        if batch.table.key:
            keys = [key.encode() for key in writer.keys(changes)]
        messages = writer.messages(changes)
        for key, (_, message), op in zip(keys, messages, changes.ops, strict=True):
            ends = self._tombstones and op == DELETE and key is not None
            if not (ends and self._is_flat):
                yield Record(key, message.encode())
            if ends:
                yield Record(key, None)


def _table_key(table: TableSchema) -> bytes:
    """Of what concerns all rows."""
    return str(table.namespace).encode()
