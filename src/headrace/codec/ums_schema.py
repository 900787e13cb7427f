"""The parts of UMS messages that are the same for all messages of a table version: `protocol` and `schema`.

::

    {"protocol": {"type": kind, "version": …},
     "schema": {"namespace": …, "fields": [{"name", "type", "nullable", "encoded"}, …], …},
     "payload": [                                        <- a head ends here; rows follow (rust/src/ums)

Two dialects: `headrace` names system fields ``_ums_id_``, … and describes columns exactly (`source_type`, `exact`,
`initial_default`, and the table's `key`); `dbus` is what the original DBus writes and Wormhole reads. docs/formats/ums.md has both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from headrace.codec import ums_types as types
from headrace.errors import ConfigError, DataError
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, SYSTEM_FIELDS, TS, Column, Namespace, TableSchema


class Dialect(StrEnum):
    """Which names and which forms of values a message has."""

    HEADRACE = "headrace"
    DBUS = "dbus"


class Kind(StrEnum):
    """What a message is; the values are `protocol.type` on the wire. `CLEAR` (TRUNCATE TABLE) is headrace's own."""

    INCREMENT = "data_increment_data"
    INITIAL = "data_initial_data"
    BATCH = "data_batch_data"
    HEARTBEAT = "data_increment_heartbeat"
    TERMINATION = "data_increment_termination"
    BATCH_TERMINATION = "data_batch_termination"
    CLEAR = "data_increment_clear"

    @property
    def has_rows(self) -> bool:
        return self in (Kind.INCREMENT, Kind.INITIAL, Kind.BATCH)


_VERSIONS = {Dialect.HEADRACE: "2.0", Dialect.DBUS: "1.3"}
_SYSTEM_TYPES = {ID: types.LONG, TS: types.DATETIME, OP: types.STRING, COMMIT_TS: types.DATETIME, RAW: types.STRING}
_DBUS_UID = "ums_uid_"
_DBUS_NAMES = {ID: "ums_id_", TS: "ums_ts_", OP: "ums_op_"}
"""Our names and those of the original."""

LONGEST_NAME = 1000
"""Names are repeated in `_ums_raw_`, so a long one would let a small message grow large."""

Field = dict[str, Any]
Target = tuple[int, str, int]
"""Column of the batch, form of its values, digits of a second: what the native writer wants to know of a field."""


def has_dbus_ids(namespace: Namespace, dialect: Dialect) -> bool:
    """Whether `_ums_id_` is a position in a binlog, which the original writes with 13 digits of offset."""
    return dialect is Dialect.DBUS and namespace.type == "mysql"


@dataclass(frozen=True, slots=True)
class RowsHead:
    """What messages of a table's rows begin with, and what the native writer puts into their tuples and, by name, beside them."""

    text: bytes
    targets: list[Target]
    beside: list[tuple[str, Target]]


def rows_head(table: TableSchema, dialect: Dialect, kind: Kind, whole_in: str | None) -> RowsHead:
    """The head of a table's messages. DataError when a column's type or name cannot go into a message of this dialect.

    `whole_in`: a time zone, in which the dbus dialect is written with members that the original skips and that leave nothing out.
    """
    if dialect is Dialect.DBUS:
        _refuse_dbus_names(table)
        system = [_field(_DBUS_NAMES.get(name, name), type_, False) for name, type_ in _dbus_system_fields()]
        id_form = "dbus_id" if has_dbus_ids(table.namespace, dialect) else "quoted"
        targets = [(0, id_form, 0), (1, "bare", 3), (2, "bare", 0), (0, "quoted", 0)]
    else:
        system = [_field(field.name, _SYSTEM_TYPES[field.name], field.nullable) for field in SYSTEM_FIELDS]
        targets = [(0, "quoted", 0), (1, "bare", 6), (2, "bare", 0), (3, "bare", 6), (4, "bare", 0)]
    for number, column in enumerate(table.columns, len(SYSTEM_FIELDS)):
        name = types.ums_type(column.type, column.source_type)
        quoted = name not in (types.INT, types.BOOLEAN) or (name == types.BOOLEAN and dialect is Dialect.DBUS)
        digits = types.fraction_digits(column.type, column.source_type)
        if dialect is Dialect.DBUS:
            digits = min(6, -(-digits // 3) * 3)  # Wormhole reads three or six
        targets.append((number, "quoted" if quoted else "bare", digits))
    schema = _schema(table.namespace, dialect, [*system, *_columns(table, dialect)])
    beside: list[tuple[str, Target]] = []
    if dialect is Dialect.HEADRACE:
        schema["key"] = list(table.key)
    elif whole_in is not None:
        schema |= {"columns": list(_columns(table, Dialect.HEADRACE)), "key": list(table.key), "zone": whole_in}
        beside = [(COMMIT_TS, (3, "bare", 6)), (RAW, (4, "bare", 0))]
    return RowsHead(_head(dialect, kind, schema), targets, beside)


def notice_message(
    dialect: Dialect, kind: Kind, namespace: Namespace, id_text: str | None, ts_text: str, *, context: Field | None
) -> bytes:
    """A message without rows: heartbeats carry an id and a time, terminations a time.

    `context`: what headrace says besides, in a member that all others skip.
    """
    return _notice(dialect, kind, _schema(namespace, dialect, []), id_text, ts_text, context=context)


def clear_message(table: TableSchema, id_text: str, ts_text: str, context: Field | None) -> bytes:
    """What ends rows without row events, in the headrace dialect, with the table's columns beside the fields of its tuple."""
    schema = _schema(table.namespace, Dialect.HEADRACE, [])
    schema |= {"columns": list(_columns(table, Dialect.HEADRACE)), "key": list(table.key)}
    return _notice(Dialect.HEADRACE, Kind.CLEAR, schema, id_text, ts_text, context=context)


def _notice(
    dialect: Dialect, kind: Kind, schema: Field, id_text: str | None, ts_text: str, *, context: Field | None
) -> bytes:
    values = {TS: ts_text} if id_text is None else {ID: id_text, TS: ts_text}
    names = _DBUS_NAMES if dialect is Dialect.DBUS else {}
    schema["fields"] = [_field(names.get(name, name), _SYSTEM_TYPES[name], False) for name in values]
    return _head(dialect, kind, schema, context) + _json({"tuple": list(values.values())}) + b"]}"


def _dbus_system_fields() -> Iterator[tuple[str, str]]:
    yield from ((name, _SYSTEM_TYPES[name]) for name in _DBUS_NAMES)
    yield _DBUS_UID, types.STRING


def _refuse_dbus_names(table: TableSchema) -> None:
    reserved = {*_DBUS_NAMES.values(), _DBUS_UID}
    for column in table.columns:
        if column.name.lower() in reserved:
            raise DataError(
                f"{table.namespace} has a column {column.name}, which in the dbus dialect is a system field",
                fix="leave the column out of the flow, or use the headrace dialect",
            )


def table_description(table: TableSchema) -> Field:
    """All that is to be known of a table; `described_table` reads it."""
    columns = list(_columns(table, Dialect.HEADRACE))
    return {"namespace": str(table.namespace), "columns": columns, "key": list(table.key)}


def described_table(described: Mapping[str, Any]) -> TableSchema:
    """The inverse of `table_description`; ValueError says what is wrong with it."""
    columns = tuple(_column(field, None) for field in _fields(described, "columns"))
    return TableSchema(_namespace(described), columns, tuple(_texts(described.get("key", []), "key")))


def _columns(table: TableSchema, dialect: Dialect) -> Iterator[Field]:
    for column in table.columns:
        name = types.ums_type(column.type, column.source_type)
        if dialect is Dialect.DBUS:
            yield _field(column.name, name, True)
            continue
        field = _field(column.name, name, column.nullable)
        field |= {"source_type": column.source_type, "exact": types.exact_name(column.type)}
        if column.initial_default is not None:
            field["initial_default"] = column.initial_default
        if column.born_as:
            field["born_as"] = column.born_as
        yield field


def _field(name: str, type_: str, nullable: bool) -> Field:
    return {"name": name, "type": type_, "nullable": nullable, "encoded": False}


def _schema(namespace: Namespace, dialect: Dialect, fields: list[Field]) -> Field:
    return {"namespace": str(namespace), "fields": fields} | ({"batchId": 0} if dialect is Dialect.DBUS else {})


def _head(dialect: Dialect, kind: Kind, schema: Field, context: Field | None = None) -> bytes:
    protocol: Field = {"type": kind.value, "version": _VERSIONS[dialect]}
    if context is not None:
        protocol["context"] = context
    return _json({"protocol": protocol, "schema": schema})[:-1] + b',"payload":['


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class RowsSchema:
    """What a schema says about tuples: the table with the wanted columns, and the column that each field goes to (-1: nowhere)."""

    table: TableSchema
    dialect: Dialect
    targets: tuple[int, ...]
    names: tuple[str, ...]
    zone: str | None
    """The time zone of its instants, where the message says it."""


def read_rows_schema(text: bytes, columns: Collection[str] | None, exact: Mapping[str, pa.DataType]) -> RowsSchema:
    """Reads the `schema` of messages with rows; ValueError says what is wrong with it.

    `columns`: only these (all when None). `exact`: types of columns, in place of what the message says.
    """
    schema = _object(json.loads(text), "schema")
    namespace = _namespace(schema)
    fields = list(_fields(schema, "fields"))
    names = [field["name"] for field in fields]
    dialect = _dialect(names)
    described = {field["name"]: field for field in _fields(schema, "columns")} if "columns" in schema else {}
    system = [field.name for field in SYSTEM_FIELDS]
    targets: list[int] = []
    wanted: list[Column] = []
    for field in fields:
        name = _our_name(field["name"], dialect)
        if name in system:
            targets.append(system.index(name))
        elif name.lower() == _DBUS_UID or (columns is not None and name not in columns):
            targets.append(-1)
        else:
            targets.append(len(system) + len(wanted))
            wanted.append(_column(described.get(name, field), exact.get(name)))
    for name in (ID, TS, OP):
        if targets.count(system.index(name)) != 1:
            raise ValueError(f"not one field {name} but {targets.count(system.index(name))}")
    key = tuple(_texts(schema.get("key", []), "key"))
    known = {column.name for column in wanted}
    table = TableSchema(namespace, tuple(wanted), key if known.issuperset(key) else ())
    return RowsSchema(table, dialect, tuple(targets), tuple(names), _zone(schema))


@dataclass(frozen=True, slots=True)
class NoticeFields:
    """The values of a message without rows, as text; `id` is None where it has none. `columns` and `key` are a clear's.

    `context`: what headrace said besides; empty in messages of others.
    """

    namespace: Namespace
    dialect: Dialect
    id: str | None
    ts: str | None
    table: TableSchema
    context: Field


def read_notice(message: bytes) -> NoticeFields:
    """Reads a message of a kind without rows; ValueError says what is wrong with it."""
    parsed = _object(json.loads(message), "message")
    schema = _object(parsed.get("schema"), "schema")
    fields = list(_fields(schema, "fields"))
    values: dict[str, Any] = {}
    payload = parsed.get("payload") or []
    if payload:
        row = _object(_list(payload, "payload")[0], "row")
        values = dict(zip((field["name"].lower() for field in fields), _list(row.get("tuple"), "tuple"), strict=False))
    dialect = Dialect.HEADRACE if {ID, TS} & values.keys() else Dialect.DBUS
    names = _DBUS_NAMES if dialect is Dialect.DBUS else {ID: ID, TS: TS}
    id_, ts = values.get(names[ID]), values.get(names[TS])
    columns = tuple(_column(field, None) for field in _fields(schema, "columns")) if "columns" in schema else ()
    namespace = _namespace(schema)
    table = TableSchema(namespace, columns, tuple(_texts(schema.get("key", []), "key")))
    context = _object(_object(parsed.get("protocol"), "protocol").get("context", {}), "context")
    return NoticeFields(namespace, dialect, _text_or_none(id_), _text_or_none(ts), table, context)


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _dialect(names: Iterable[str]) -> Dialect:
    lower = {name.lower() for name in names}
    if ID in lower:
        return Dialect.HEADRACE
    if _DBUS_NAMES[ID] in lower:
        return Dialect.DBUS
    raise ValueError(f"the schema has neither a field {ID} nor {_DBUS_NAMES[ID]}")


def _our_name(name: str, dialect: Dialect) -> str:
    if dialect is Dialect.DBUS:
        return next((ours for ours, wire in _DBUS_NAMES.items() if wire == name.lower()), name)
    return name


def _namespace(schema: Mapping[str, Any]) -> Namespace:
    text = schema.get("namespace")
    if not isinstance(text, str):
        raise ValueError("schema has no namespace")  # noqa: TRY004 - the message is at fault, not the program
    parts = text.split(".")
    if len(parts) == 7 and parts[4] == "*":  # Wormhole's users write it where a table has no versions
        parts[4] = "0"
    try:
        return Namespace.parse(".".join(parts))
    except ConfigError as error:
        raise ValueError(error.message) from error


def _zone(schema: Mapping[str, Any]) -> str | None:
    zone = schema.get("zone")
    if zone is None:
        return None
    if not isinstance(zone, str) or not types.is_zone(zone):
        raise ValueError(f"there is no time zone {zone!r:.64}")
    return zone


def _fields(schema: Mapping[str, Any], member: str) -> Iterator[Field]:
    seen: set[str] = set()
    for field in _list(schema.get(member), member):
        name = _object(field, "field").get("name")
        if not isinstance(name, str) or not name or "\0" in name or len(name) > LONGEST_NAME:
            raise ValueError(f"a field of {member} has no name, or one of more than {LONGEST_NAME} characters")
        if name in seen:
            raise ValueError(f"two fields of {member} are named {name[:40]}")
        seen.add(name)
        yield field


def _column(field: Field, exact: pa.DataType | None) -> Column:
    name, type_ = field["name"], field.get("type")
    if not isinstance(type_, str):
        raise ValueError(f"field {name[:40]} has no type")  # noqa: TRY004
    named = field.get("exact")
    if exact is None:
        exact = types.exact_type(named) if isinstance(named, str) else types.default_type(type_.lower())
    source_type, default = field.get("source_type", type_), field.get("initial_default")
    born_as = field.get("born_as", "")
    if (
        not isinstance(source_type, str)
        or not (default is None or isinstance(default, str))
        or not isinstance(born_as, str)
    ):
        raise ValueError(f"source_type, initial_default and born_as of field {name[:40]} must be text")
    return Column(name, exact, source_type, field.get("nullable") is not False, default, born_as)


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")  # noqa: TRY004
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is no array")  # noqa: TRY004
    return value


def _texts(value: object, what: str) -> Sequence[str]:
    texts = _list(value, what)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{what} is no array of names")
    return texts
