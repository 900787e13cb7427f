"""Avro for the Kafka sink: Confluent's wire format, with schemas on a registry.

::

    00  00 00 00 07   02 01 ...     magic byte, number of the schema on the registry (big endian), the record in Avro's binary encoding

The value is the row as it is after its change, then `_ums_id_` (long), `_ums_ts_` (timestamp-micros) and `_is_active_` (int: 0 in a deleted
row, as it was); the key is a record of the key's columns. Subjects are ``<topic>-value`` and ``<topic>-key``.

| column | Avro |
|---|---|
| boolean, float, double, text, binary | boolean, float, double, string, bytes |
| integers of up to 32 bits, unsigned of up to 16 | int |
| unsigned of 32 bits, integers of 64 | long |
| decimal; unsigned of 64 bits | bytes, decimal |
| date | int, date |
| datetime | long, local-timestamp-micros |
| timestamp | long, timestamp-micros |
| time | string: ``-838:59:59.000000`` |

Columns that are not in the key are a union with null. One that was added with a default has it in the schema, so that a reader of the new schema
sees in older records what the source's older rows have; others have null. So a schema with more or fewer such columns reads the records of
the one before. Names that Avro cannot have are written with the numbers of their signs: ``Größe`` is ``Gr_f6__df_e``.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa

from headrace.errors import ConfigError
from headrace.sinks.kafka_registry import Registry
from headrace.ums.change import ChangeBatch, is_delete, user_columns
from headrace.ums.schema import ID, TS, Column, TableSchema
from headrace.ums.system_columns import SystemColumns
from headrace.ums.values import Array, from_text, is_bytes, is_text, micros, to_text

Json = dict[str, Any]
_MAGIC = b"\0"
_UNFIT = re.compile(r"[^A-Za-z0-9_]")
_UNSIGNED64 = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
_SYSTEM_TYPES: tuple[str | Json, ...] = ("long", {"type": "long", "logicalType": "timestamp-micros"}, "int")
"""Those of the id, the time, and whether the row is there."""


@dataclass(frozen=True)
class _Form:
    """A record's schema, as fastavro writes by it, and what its records begin with."""

    parsed: fastavro.types.Schema
    head: bytes

    def bytes_of(self, row: Json) -> bytes:
        content = io.BytesIO()
        content.write(self.head)
        fastavro.schemaless_writer(content, self.parsed, row)
        return content.getvalue()


class AvroWriter:
    """Writes changes of tables as Avro, by schemas that it registers."""

    def __init__(self, registry: Registry, system: SystemColumns) -> None:
        self._registry = registry
        self._system = system.of_rows
        self._forms: dict[TableSchema, tuple[_Form, _Form | None]] = {}

    def prepare(self, table: TableSchema, topic: str) -> None:
        """Registers the schemas of a version. Same errors as `Registry.number`."""
        value, *key = (self._form(schema, subject) for subject, schema in self._schemas(table, topic))
        self._forms[table] = value, next(iter(key), None)

    def rehearse(self, table: TableSchema, topic: str) -> None:
        """Raises what `prepare` would, and registers nothing."""
        for subject, schema in self._schemas(table, topic):
            self._registry.rehearse(subject, _text(schema))

    def _schemas(self, table: TableSchema, topic: str) -> Iterator[tuple[str, Json]]:
        """Subject and schema of the value, then of the key where the table has one."""
        system = [{"name": name, "type": kind} for name, kind in zip(self._system, _SYSTEM_TYPES, strict=True)]
        yield (
            f"{topic}-value",
            {**_named(table, "Value"), "fields": [*(_field(c, table) for c in table.columns), *system]},
        )
        if table.key:
            yield (
                f"{topic}-key",
                {**_named(table, "Key"), "fields": [_field(table.column(name), table) for name in table.key]},
            )

    def records(self, batch: ChangeBatch) -> Iterator[tuple[bytes | None, bytes, bool]]:
        """Of each change the key, where its table has one, the value, and whether it is a delete."""
        table, data = batch.table, batch.data
        value_form, key_form = self._forms[table]
        names = [_name(column.name) for column in table.columns]
        deletes: list[Any] = is_delete(data).to_pylist()
        columns: list[Sequence[Any]] = [_values(data.column(name)) for name in user_columns(data)]
        system = data.column(ID).to_pylist(), _values(data.column(TS)), [int(not deleted) for deleted in deletes]
        fields = [*names, *self._system]
        for row, deleted in zip(zip(*columns, *system, strict=True), deletes, strict=True):
            record = dict(zip(fields, row, strict=True))
            key = None if key_form is None else key_form.bytes_of(record)
            yield key, value_form.bytes_of(record), deleted

    def _form(self, schema: Json, subject: str) -> _Form:
        number = self._registry.number(subject, _text(schema))
        return _Form(fastavro.parse_schema(schema), _MAGIC + number.to_bytes(4, "big"))


def refuse_same_names(table: TableSchema) -> None:
    """ConfigError when two columns would have one name in Avro."""
    names = [_name(column.name) for column in table.columns]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"two columns of {table.namespace.all_versions} have the same name in Avro",
            fix="rename one with `columns: {rename: {…: …}}`",
        )


def _text(schema: Json) -> str:
    return json.dumps(schema, ensure_ascii=False)


def _named(table: TableSchema, kind: str) -> Json:
    space = table.namespace
    namespace = ".".join(_name(part) for part in (space.source, space.schema, space.table))
    return {"type": "record", "name": kind, "namespace": namespace}


def _name(name: str) -> str:
    """A name as Avro can have it."""
    fit = _UNFIT.sub(lambda sign: f"_{ord(sign[0]):x}_", name)
    return fit if fit and not fit[0].isdigit() else f"_{fit}"


def _field(column: Column, table: TableSchema) -> Json:
    name, kind = _name(column.name), _type(column.type)
    if column.name in table.key:
        return {"name": name, "type": kind}
    value = None if column.initial_default is None else from_text(column.initial_default, column.type)
    if value is None:
        return {"name": name, "type": ["null", kind], "default": None}
    return {"name": name, "type": [kind, "null"], "default": _default(_values(value)[0], kind)}


def _default(value: Any, kind: str | Json) -> Any:
    """A value as a default in a schema: bytes are text of the signs 0 to 255."""
    if isinstance(value, Decimal) and isinstance(kind, dict):
        unscaled = int(value.scaleb(kind["scale"]))
        value = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    return value.decode("latin-1") if isinstance(value, bytes) else value


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str | Json], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_uint64, _UNSIGNED64),
    (lambda kind: pa.types.is_int64(kind) or pa.types.is_uint32(kind), "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_floating, "double"),
    (is_text, "string"),
    (is_bytes, "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
    (pa.types.is_duration, "string"),
)


def _type(kind: pa.DataType) -> str | Json:
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "local-timestamp-micros" if kind.tz is None else "timestamp-micros"}
    return next(name for matches, name in _TYPES if matches(kind))


def _values(column: Array) -> Sequence[Any]:
    """Values as fastavro takes them: dates and times as the numbers that they are in Avro, since Python's end at year 9999."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return micros(column).to_pylist()
    if pa.types.is_date32(kind):
        return column.view(pa.int32()).to_pylist()
    if pa.types.is_duration(kind):
        return to_text(column).to_pylist()
    if pa.types.is_uint64(kind):
        return [None if value is None else Decimal(value) for value in column.to_pylist()]
    return column.to_pylist()
