"""Debezium's JSON for MySQL: a message per changed row, with or without the envelope that describes it.

::

    {"before": row or null, "after": row or null, "source": {…}, "op": "c" | "u" | "d" | "r" | "t", "ts_ms": ms}
    {"schema": {"type": "struct", …}, "payload": what stands above}                                    with the envelope

    op   c insert, u update, d delete, r row of a first load, t TRUNCATE TABLE (without `before` and `after`)

Values are those of its default settings (`_Kind`): decimals as base64 of their unscaled value, days and microseconds since 1970 for dates and
times, `2018-06-20T13:37:03Z` for TIMESTAMP. BIGINT UNSIGNED is a whole number with all its digits, where Debezium's goes below zero
behind 2^63. A date that is none is null, or 1970 where the column cannot be null. An update that changes the key is `d` of the old row and
`c` of the new one. `ts_ms` is when the change was made, also where Debezium has when it was read. Out of a log, which has no rows before
changes, `before` is null in updates.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.codec.foreign.changes import Changes, key_images
from headrace.codec.texts import (
    NULL,
    Described,
    Images,
    Style,
    Texts,
    all_quoted,
    array_of,
    base64,
    each,
    joined,
    json_or_null,
    listed,
    moments,
    numbers,
    quoted,
    texts,
    whole_units,
)
from headrace.codec.ums_types import fraction_digits
from headrace.ums.change import Clear

Json = dict[str, Any]
_NAME = re.compile(r"[a-z]+")
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_ARGUMENTS = re.compile(r"\((\d+)(?:,(\d+))?\)")
_SOURCE = (
    ("version", "string", False), ("connector", "string", False), ("name", "string", False), ("ts_ms", "int64", False),
    ("snapshot", "string", True), ("db", "string", False), ("sequence", "string", True), ("table", "string", True),
    ("server_id", "int64", False), ("gtid", "string", True), ("file", "string", False), ("pos", "int64", False),
    ("row", "int32", False), ("thread", "int64", True), ("query", "string", True),
)  # fmt: skip
"""Members of `source`, their types and whether they are optional."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a type of MySQL travels: the literal type and the meaning of its values, and how a column becomes JSON."""

    literal: str
    meaning: str | None
    fragments: Callable[[pa.Array[Any], str], Texts]
    zero: str = NULL
    """What stands for a date that is none in a column that cannot be null."""


class DebeziumWriter:
    """Writes Debezium's JSON; `envelope`: with the schema of each message."""

    def __init__(self, *, envelope: bool) -> None:
        self._envelope = envelope

    def messages(self, changes: Changes) -> Iterator[tuple[int, str]]:
        """See `ForeignWriter.messages`."""
        after, before = changes.images(_STYLE)
        rows = after.objects()
        olds = rows if before is None else before.objects()
        steps = _steps(changes, before, after)
        head, tail = self._around(changes.source, changes.schema, changes.table, changes.columns)
        at = pa.array([step.row for step in steps], pa.int64())
        messages = joined(
            f'{head}{{"before": ', _those(olds, [step.row if step.has_old else None for step in steps]),
            ', "after": ', _those(rows, [step.row if step.has_new else None for step in steps]),
            ', "source": ', _sources(changes).take(at), ', "op": "', array_of(step.letter for step in steps),
            '", "ts_ms": ', changes.time_texts(1000).take(at), f"}}{tail}",
        )  # fmt: skip
        return zip([changes.ids[step.row] for step in steps], listed(messages), strict=True)

    def keys(self, changes: Changes) -> list[str]:
        """See `ForeignWriter.keys`: an object of the key's columns."""
        found = listed(key_images(changes, _STYLE).objects())
        if not self._envelope:
            return found
        fields = [_field(column) for name in changes.key for column in changes.columns if column.name == name]
        name = f"{changes.source}.{changes.schema}.{changes.table}.Key"
        described = {"type": "struct", "fields": fields, "optional": False, "name": name}
        return [f'{{"schema": {json.dumps(described, ensure_ascii=False)}, "payload": {key}}}' for key in found]

    def clear(self, clear: Clear) -> str:
        """See `ForeignWriter.clear`."""
        place, time_ms = clear.table.namespace, clear.commit_ts_us // 1000
        head, tail = self._around(place.source, place.schema, place.table, clear.table.columns)
        source = _source_members(place.source, place.schema, place.table, time_ms, clear.id)
        payload = {"source": source, "op": "t", "ts_ms": time_ms}
        return f"{head}{json.dumps(payload, ensure_ascii=False)}{tail}"

    def _around(self, source: str, schema: str, table: str, columns: Sequence[Described]) -> tuple[str, str]:
        """What stands before and behind the payload."""
        if not self._envelope:
            return "", ""
        described = envelope(f"{source}.{schema}.{table}", columns)
        return f'{{"schema": {json.dumps(described, ensure_ascii=False)}, "payload": ', "}"


def envelope(name: str, columns: Sequence[Described]) -> Json:
    """The schema of a table's messages. `name`: source, schema and table with dots between."""
    row = [_field(column) for column in columns]
    rows = [_struct(row, f"{name}.Value", field, optional=True) for field in ("before", "after")]
    members = [{"type": type_, "optional": optional, "field": member} for member, type_, optional in _SOURCE]
    source = _struct(members, "io.debezium.connector.mysql.Source", "source", optional=False)
    op: Json = {"type": "string", "optional": False, "field": "op"}
    ts_ms: Json = {"type": "int64", "optional": True, "field": "ts_ms"}
    fields = [*rows, source, op, ts_ms]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Envelope", "version": 1}


def _struct(fields: list[Json], name: str, field: str, *, optional: bool) -> Json:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, "field": field}


def _field(column: Described) -> Json:
    kind = _kind(column.source_type)
    field: Json = {"type": kind.literal, "optional": column.nullable}
    if kind.literal == "struct":
        field["fields"] = _GEOMETRY
    if kind.meaning is not None:
        field |= {"name": kind.meaning, "version": 1}
    if parameters := _parameters(column.source_type):
        field["parameters"] = parameters
    return field | {"field": column.name}


def _parameters(source_type: str) -> dict[str, str]:
    """What a type's meaning needs besides its name."""
    name, arguments = source_type.partition("(")[0], _ARGUMENTS.search(source_type)
    if name in ("enum", "set"):
        labels = (label.replace("''", "'") for label in _LABEL.findall(source_type))
        return {"allowed": ",".join(labels)}
    if name == "decimal" and arguments:
        return {"scale": arguments[2], "connect.decimal.precision": arguments[1]}
    if name == "bit" and arguments and arguments[1] != "1":
        return {"length": arguments[1]}
    return {}


class _Step(NamedTuple):
    """A message of the change of a row."""

    row: int
    letter: str
    has_old: bool
    has_new: bool


def _steps(changes: Changes, before: Images | None, after: Images) -> list[_Step]:
    moved = [False] * len(changes.ids) if before is None else before.differs(after, changes.key)
    steps = []
    for row, (id_, op) in enumerate(zip(changes.ids, changes.ops, strict=True)):
        if op == "i":
            steps.append(_Step(row, "r" if id_ < 0 else "c", has_old=False, has_new=True))
        elif op == "u" and not moved[row]:
            steps.append(_Step(row, "u", has_old=before is not None, has_new=True))
        else:
            steps.append(_Step(row, "d", has_old=True, has_new=False))
            if op == "u":
                steps.append(_Step(row, "c", has_old=False, has_new=True))
    return steps


def _those(texts: Texts, rows: Sequence[int | None]) -> Texts:
    return json_or_null(texts.take(pa.array(rows, pa.int64())))


def _sources(changes: Changes) -> Texts:
    """`source` of each change; `row` counts those of one event."""
    fixed = _source_members(changes.source, changes.schema, changes.table, 0, 0)
    varying = {
        "ts_ms": changes.time_texts(1000),
        "snapshot": array_of('"true"' if id_ < 0 else '"false"' for id_ in changes.ids),
        "sequence": joined('"', changes.id_texts(), '"'),
    }
    if changes.offsets:
        fixed["file"] = changes.file
        varying["pos"] = array_of(map(str, changes.offsets))
        varying["row"] = array_of(
            str(number) for _, event in groupby(changes.offsets) for number, _ in enumerate(event)
        )
    parts: list[str | Texts] = []
    for name, value in fixed.items():
        text = varying[name] if name in varying else json.dumps(value, ensure_ascii=False)
        parts += [f', "{name}": ' if parts else f'"{name}": ', text]
    return joined("{", *parts, "}")


def _source_members(source: str, schema: str, table: str, time_ms: int, id_: int) -> Json:
    """`source` as far as headrace knows it; `sequence` has the change's `_ums_id_`, `file` is empty where it is not known."""
    return {
        "version": "headrace", "connector": "mysql", "name": source, "ts_ms": time_ms, "snapshot": "true" if id_ < 0 else "false",
        "db": schema, "sequence": str(id_), "table": table, "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": None,
        "query": None,
    }  # fmt: skip


def _beyond(column: Described, text: str) -> str:
    kind = _kind(column.source_type)
    if kind.literal == "string" and kind.meaning != _ZONED:
        return quoted(text)
    return NULL if column.nullable else kind.zero


def _fragments(array: pa.Array[Any], column: Described) -> Texts:
    return _kind(column.source_type).fragments(array, column.source_type)


_STYLE = Style(_fragments, _beyond)


@lru_cache(maxsize=4096)
def _kind(source_type: str) -> _Kind:
    found = _NAME.match(source_type)
    name = found[0] if found else ""
    if source_type == "bit(1)":
        return _BOOLEAN
    if source_type.endswith(" unsigned") and name in _UNSIGNED:
        return _UNSIGNED[name]
    kind = _KINDS.get(name, _TEXT)
    return _MICROS if kind is _MILLIS and fraction_digits(pa.timestamp("us"), source_type) > 3 else kind


def _quoted(array: pa.Array[Any], source_type: str) -> Texts:
    return all_quoted(texts(array, source_type))


def _units(array: pa.Array[Any], per_unit: int) -> Texts:
    return numbers(whole_units(array.cast(pa.int64()), per_unit), "")


def _days(array: pa.Array[Any], _source_type: str) -> Texts:
    return numbers(array.cast(pa.int32()), "")


def _zoned(array: pa.Array[Any], source_type: str) -> Texts:
    digits = fraction_digits(array.type, source_type)
    return json_or_null(joined('"', moments(array.cast(pa.int64()), digits, "T"), 'Z"'))


def _unscaled(array: pa.Array[Any], _source_type: str) -> Texts:
    return json_or_null(each(array.view(pa.binary(array.type.byte_width)), _two_complement))


def _two_complement(little_endian: bytes) -> str:
    whole = int.from_bytes(little_endian, "little", signed=True)
    return _bytes(whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True))


def _bits(array: pa.Array[Any], source_type: str) -> Texts:
    width = (int(source_type.removeprefix("bit(").removesuffix(")")) + 7) // 8
    return json_or_null(each(array, lambda value: _bytes(value.to_bytes(width, "little"))))


def _boolean(array: pa.Array[Any], _source_type: str) -> Texts:
    return json_or_null(array.cast(pa.bool_()).cast(pa.large_utf8()))


def _geometry(array: pa.Array[Any], _source_type: str) -> Texts:
    return json_or_null(each(array, _shape))


def _shape(value: bytes) -> str:
    """MySQL keeps four bytes of the reference system, then the well-known binary form."""
    (srid,) = struct.unpack_from("<I", value) if len(value) >= 4 else (0,)
    return f'{{"wkb": {_bytes(value[4:])}, "srid": {srid or NULL}}}'


def _bytes(value: bytes) -> str:
    return f'"{base64(value)}"'


_ZONED = "io.debezium.time.ZonedTimestamp"
_GEOMETRY: list[Json] = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_UNSIGNED = {"smallint": _Kind("int32", None, numbers), "int": _Kind("int64", None, numbers)}
"""Types that are wider without a sign."""
_TEXT = _Kind("string", None, _quoted)
_BYTES = _Kind("bytes", None, _quoted)
_SHAPE = _Kind("struct", "io.debezium.data.geometry.Geometry", _geometry)
_BOOLEAN = _Kind("boolean", None, _boolean)
_MILLIS = _Kind("int64", "io.debezium.time.Timestamp", lambda array, _: _units(array, 1000), "0")
_MICROS = _Kind("int64", "io.debezium.time.MicroTimestamp", lambda array, _: _units(array, 1), "0")
_KINDS: dict[str, _Kind] = {
    "tinyint": _Kind("int16", None, numbers),
    "smallint": _Kind("int16", None, numbers),
    "mediumint": _Kind("int32", None, numbers),
    "int": _Kind("int32", None, numbers),
    "bigint": _Kind("int64", None, numbers),
    "float": _Kind("float", None, numbers),
    "double": _Kind("double", None, numbers),
    "decimal": _Kind("bytes", "org.apache.kafka.connect.data.Decimal", _unscaled),
    "bit": _Kind("bytes", "io.debezium.data.Bits", _bits),
    "year": _Kind("int32", "io.debezium.time.Year", numbers),
    "date": _Kind("int32", "io.debezium.time.Date", _days, "0"),
    "time": _Kind("int64", "io.debezium.time.MicroTime", lambda array, _: _units(array, 1)),
    "datetime": _MILLIS,
    "timestamp": _Kind("string", _ZONED, _zoned, '"1970-01-01T00:00:00Z"'),
    "json": _Kind("string", "io.debezium.data.Json", _quoted),
    "enum": _Kind("string", "io.debezium.data.Enum", _quoted),
    "set": _Kind("string", "io.debezium.data.EnumSet", _quoted),
    **dict.fromkeys(["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"], _BYTES),
    **dict.fromkeys(["geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"], _SHAPE),
    **dict.fromkeys(["multipolygon", "geometrycollection"], _SHAPE),
}
"""By the name of the type at the source; all others are text."""
