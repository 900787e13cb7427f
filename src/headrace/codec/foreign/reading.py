"""Messages of others into changed rows: what each message says of its table and its rows, in values that the UMS codec takes.

A message says the types of its columns (Debezium with the envelope, canal) or leaves them to be inferred from its values (`columns` is
None). Types are then the narrowest that hold what has been seen: `widened`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headrace.codec.foreign.envelope import Envelope
from headrace.codec.foreign.mysql_types import mysql_type
from headrace.ums.change import DELETE, INSERT, UPDATE
from headrace.ums.schema import Column

CLEAR = "t"
Json = Any


class NotThisFormatError(ValueError):
    """A message is not of the format that it is read as."""


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """A changed row. `op`: i, u, d, or `CLEAR` for a table that was emptied (no values). `ts_us`: when it was changed, µs since 1970 UTC."""

    schema: str
    table: str
    columns: tuple[Column, ...] | None
    key: tuple[str, ...]
    op: str
    ts_us: int
    values: Mapping[str, Json]


class Number(str):
    """A number with a point or an exponent as it stood in a message: all its digits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """A message as it stands on a topic. `value` is None in a tombstone; `time_ms`: when it was written, ms since 1970 UTC."""

    topic: str
    key: bytes | None
    value: bytes | None
    time_ms: int


Read = Callable[[ForeignMessage], Iterator[ForeignRow]]
"""A message -> its rows in order; ValueError when it has not this format."""


def read_debezium(message: ForeignMessage) -> Iterator[ForeignRow]:
    """A row of Debezium's JSON, with the envelope or without."""
    if message.value is None:  # a tombstone: the row is gone already
        return
    envelope, payload = _opened(message.value)
    op = _DEBEZIUM_OPS.get(str(payload.get("op")))
    if op is None:
        raise NotThisFormatError(f"there is no op '{payload.get('op')}'")
    source = _object(payload.get("source"))
    row = _object(payload.get("before" if op == DELETE else "after") or {})
    columns = None if envelope is None else envelope.columns
    place, ts_us = (_text(source, "db"), _text(source, "table")), _time_us(source, "ts_ms", 1000)
    yield ForeignRow(
        *place, columns, _debezium_key(message.key), op, ts_us, row if envelope is None else envelope.values(row)
    )


def read_canal(message: ForeignMessage) -> Iterator[ForeignRow]:
    """The rows of a message of canal; DDL but TRUNCATE TABLE has none."""
    found = _object(_parsed(message.value or b""))
    place = (_text(found, "database"), _text(found, "table"))
    op, ts_us = _CANAL_OPS.get(_text(found, "type")), _time_us(found, "es", 1000)
    if found.get("isDdl") or op is None:
        if found.get("type") == "TRUNCATE":
            yield ForeignRow(*place, None, (), CLEAR, ts_us, {})
        return
    types, key = _object(found.get("mysqlType") or {}), _texts(found.get("pkNames"), "pkNames")
    columns = tuple(Column(name, *mysql_type(_text(types, name))) for name in types)
    binary = [column.name for column in columns if pa.types.is_binary(column.type)]
    rows = found.get("data")
    if not isinstance(rows, list):
        raise NotThisFormatError("it has no data")
    for row in rows:
        values = dict(_object(row))
        values |= {name: _as_base64(values.get(name)) for name in binary}
        yield ForeignRow(*place, columns or None, key, op, ts_us, values)


def read_maxwell(message: ForeignMessage) -> Iterator[ForeignRow]:
    """A row of Maxwell's JSON; statements and the beginning and end of a first load have none."""
    if message.value is None:  # written where compaction is to see deletes
        return
    found = _object(_parsed(message.value))
    type_ = _text(found, "type")
    if type_ in _MAXWELL_OPS:
        place = (_text(found, "database"), _text(found, "table"))
        key, ts_us = _maxwell_key(message.key, found), _time_us(found, "ts", 1_000_000)
        yield ForeignRow(*place, None, key, _MAXWELL_OPS[type_], ts_us, _object(found.get("data")))


def read_json(message: ForeignMessage) -> Iterator[ForeignRow]:
    """A row as a JSON object, of the table that the topic is named after: ``schema.table``, else ``topic.NAME``.

    The members of the message's key, when that is an object, are the row's key. A tombstone deletes the row of its key.
    """
    schema, _, table = message.topic.rpartition(".")
    key = _keyed(message.key)
    if message.value is None and not key:
        raise NotThisFormatError("it deletes a row, and its key does not say which")
    values = key if message.value is None else key | _object(_parsed(message.value))
    op = DELETE if message.value is None else UPDATE
    yield ForeignRow(schema or "topic", table, None, tuple(key), op, message.time_ms * 1000, values)


READERS: dict[str, Read] = {
    "debezium": read_debezium,
    "canal": read_canal,
    "maxwell": read_maxwell,
    "json": read_json,
}


def widened(columns: Mapping[str, Column], values: Mapping[str, Json]) -> dict[str, Column]:
    """Columns as they must be to hold these values too; a column that has been null so far is none yet.

    A column whose type a message has told stays as it is.
    """
    found = dict(columns)
    for name, value in values.items():
        if value is None:
            continue
        wanted, known = _rank(value), found.get(name)
        if known is not None and known.source_type not in _SOURCE_TYPES:
            continue
        rank = wanted if known is None else _SOURCE_TYPES.index(known.source_type)
        widest = max(rank, wanted)
        if min(rank, wanted) == _BOOLEAN < widest:
            widest = _TEXT  # true is no number
        if known is None or widest != rank:
            found[name] = Column(name, _INFERRED[widest], _SOURCE_TYPES[widest])
    return found


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FIRST_DAY_US, _END_OF_TIME_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Years 1 to 9999."""
_DEBEZIUM_OPS = {"c": INSERT, "r": INSERT, "u": UPDATE, "d": DELETE, "t": CLEAR}
_CANAL_OPS = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
_MAXWELL_OPS = {"insert": INSERT, "bootstrap-insert": INSERT, "update": UPDATE, "delete": DELETE}
_INFERRED = (pa.bool_(), pa.int64(), pa.float64(), pa.utf8())
_SOURCE_TYPES = ("boolean", "bigint", "double", "text")
_BOOLEAN, _TEXT = 0, 3
"""What is inferred from values, from narrow to wide."""


def _opened(value: bytes) -> tuple[Envelope | None, dict[str, Json]]:
    """The envelope and the payload. All messages of a table version have the same envelope, so it is read once."""
    head, found, rest = value.partition(b'"payload":')
    if found and head.startswith(b'{"schema":'):
        try:
            return _envelope(head), _object(_parsed(rest.rstrip().removesuffix(b"}")))
        except NotThisFormatError:
            pass  # the word stands in the schema itself
    message = _object(_parsed(value))
    if "op" in message or "payload" not in message:
        return None, message
    schema = message.get("schema")
    return None if schema is None else Envelope(_object(schema)), _object(message["payload"])


@lru_cache(maxsize=1024)
def _envelope(head: bytes) -> Envelope | None:
    schema = _parsed(head.rstrip().removesuffix(b",") + b"}")["schema"]
    return None if schema is None else Envelope(_object(schema))


def _rank(value: Json) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return 1 if -(2**63) <= value < 2**63 else 3
    return 2 if isinstance(value, Number) else 3


def _parsed(text: bytes) -> Json:
    try:
        found = json.loads(text, parse_float=Number)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()  # half of a character is none
    except (ValueError, RecursionError) as error:
        raise NotThisFormatError(f"it is no JSON: {error}") from error
    return found


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise NotThisFormatError("it is no object, or lacks one")
    return value


def _text(message: Mapping[str, Json], member: str) -> str:
    value = message.get(member)
    if not isinstance(value, str):
        raise NotThisFormatError(f"it has no {member}")
    return value


def _time_us(message: Mapping[str, Json], member: str, unit_us: int) -> int:
    value = message.get(member)
    if type(value) is not int or not _FIRST_DAY_US <= value * unit_us < _END_OF_TIME_US:
        raise NotThisFormatError(f"it has no time in {member}")
    return value * unit_us


def _texts(value: Json, member: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise NotThisFormatError(f"{member} is no list of names")
    return tuple(value)


def _keyed(key: bytes | None) -> dict[str, Json]:
    """The key of a message when it is an object; else it says nothing of columns."""
    try:
        found = _parsed(key) if key else None
    except NotThisFormatError:
        return {}
    return found if isinstance(found, dict) else {}


def _debezium_key(key: bytes | None) -> tuple[str, ...]:
    """The names in the key of a message, which are those of the table's key."""
    found = _keyed(key)
    if "payload" in found and "schema" in found:
        found = found["payload"] if isinstance(found["payload"], dict) else {}
    return tuple(found)


def _maxwell_key(key: bytes | None, message: Mapping[str, Json]) -> tuple[str, ...]:
    """Said by the message (``output_primary_key_columns``), or by the members ``pk.…`` of its key."""
    named = _texts(message.get("primary_key_columns"), "primary_key_columns")
    return named or tuple(name.removeprefix("pk.") for name in _keyed(key) if name.startswith("pk."))


def _as_base64(value: Json) -> Json:
    """Bytes that stand as characters of ISO 8859-1."""
    return b64encode(value.encode("latin-1")).decode() if isinstance(value, str) else value
