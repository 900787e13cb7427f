"""The envelope of Debezium's messages: what its fields mean, and their values in the forms that the UMS codec takes."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.codec.foreign.mysql_types import decimal_type
from headrace.codec.texts import duration, moment
from headrace.ums.schema import Column

Json = dict[str, Any]
_LARGEST_DECIMAL = 76
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class _Field:
    """A column, and what turns its values into what the UMS codec takes (None: nothing has to)."""

    column: Column
    value: Callable[[Any], Any] | None


class Envelope:
    """What the schema of messages says of a table's rows; ValueError when it describes none."""

    def __init__(self, schema: Json) -> None:
        self._fields = tuple(_read_field(field) for field in _row_fields(schema))
        self.columns = tuple(field.column for field in self._fields)

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row's values; ValueError when one is not what the envelope says."""
        values = dict(row)
        for field in self._fields:
            value = values.get(field.column.name)
            if field.value is not None and value is not None:
                try:
                    values[field.column.name] = field.value(value)
                except (TypeError, AttributeError, KeyError, OverflowError, struct.error) as error:
                    raise ValueError(f"{field.column.name} cannot be {value!r:.40}") from error
        return values


def _row_fields(schema: Json) -> list[Json]:
    for part in _objects(schema.get("fields")):
        if part.get("field") in ("after", "before"):
            return _objects(part.get("fields"))
    raise ValueError("its schema has neither before nor after")


def _objects(value: object) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("its schema has no list of fields")
    return value


def _read_field(field: Json) -> _Field:
    name, literal, meaning = field.get("field"), field.get("type"), field.get("name") or ""
    if not isinstance(name, str) or not isinstance(literal, str) or not isinstance(meaning, str):
        raise ValueError("its schema has a field without name or type")  # noqa: TRY004 - the message is at fault
    parameters = field.get("parameters")
    if meaning == "org.apache.kafka.connect.data.Decimal":
        kind, source_type, value = _decimal(
            _number(parameters, "connect.decimal.precision", 38), _number(parameters, "scale", 0)
        )
    elif meaning == "io.debezium.data.Bits":
        kind, source_type, value = pa.uint64(), f"bit({_number(parameters, 'length', 64)})", _bits
    else:
        kind, source_type, value = _MEANINGS.get(meaning) or _LITERALS.get(literal) or _AS_JSON
    return _Field(Column(name, kind, source_type, field.get("optional") is not False), value)


def _number(parameters: object, name: str, usual: int) -> int:
    """A parameter of a type, which Kafka Connect writes as text."""
    text = parameters.get(name, usual) if isinstance(parameters, dict) else usual
    if not isinstance(text, (str, int)):
        raise ValueError(f"its schema has no number in {name}")  # noqa: TRY004
    return int(text)


_Meaning = tuple[pa.DataType, str, Callable[[Any], Any] | None]


def _decimal(precision: int, scale: int) -> _Meaning:
    precision = min(precision, _LARGEST_DECIMAL)

    def value(text: str) -> str:
        unscaled = int.from_bytes(b64decode(text), "big", signed=True)
        sign, digits = (1 if unscaled < 0 else 0), tuple(map(int, str(abs(unscaled))))
        return f"{Decimal((sign, digits, -scale)):f}"

    return decimal_type(precision, scale), f"decimal({precision},{scale})", value


def _bits(text: str) -> int:
    return int.from_bytes(b64decode(text), "little")


def _day(days: int) -> str:
    return (_EPOCH + timedelta(days)).isoformat()


def _instant(text: str) -> str:
    at = datetime.fromisoformat(text).astimezone(UTC)
    return at.replace(tzinfo=None).isoformat(" ", "microseconds")


def _geometry(value: Json) -> str:
    """As MySQL keeps it: four bytes of the reference system, then the well-known binary form."""
    return b64encode(struct.pack("<I", value.get("srid") or 0) + b64decode(value["wkb"])).decode()


_AS_JSON: _Meaning = (pa.utf8(), "json", lambda value: json.dumps(value, ensure_ascii=False))
_DATE: _Meaning = (pa.date32(), "date", _day)
_MILLIS: _Meaning = (pa.timestamp("us"), "datetime(3)", lambda value: moment(value * 1000, 6))
_TIME_MS: _Meaning = (pa.duration("us"), "time(3)", lambda value: duration(value * 1000, 6))
_GEOMETRY: _Meaning = (pa.binary(), "geometry", _geometry)
_MEANINGS: dict[str, _Meaning] = {
    "io.debezium.time.Date": _DATE,
    "org.apache.kafka.connect.data.Date": _DATE,
    "io.debezium.time.Timestamp": _MILLIS,
    "org.apache.kafka.connect.data.Timestamp": _MILLIS,
    "io.debezium.time.MicroTimestamp": (pa.timestamp("us"), "datetime(6)", lambda value: moment(value, 6)),
    "io.debezium.time.NanoTimestamp": (pa.timestamp("us"), "datetime(6)", lambda value: moment(value // 1000, 6)),
    "io.debezium.time.ZonedTimestamp": (pa.timestamp("us", "UTC"), "timestamp(6)", _instant),
    "io.debezium.time.MicroTime": (pa.duration("us"), "time(6)", lambda value: duration(value, 6)),
    "io.debezium.time.Time": _TIME_MS,
    "org.apache.kafka.connect.data.Time": _TIME_MS,
    "io.debezium.time.Year": (pa.uint16(), "year", None),
    "io.debezium.data.Json": (pa.utf8(), "json", None),
    "io.debezium.data.geometry.Geometry": _GEOMETRY,
    "io.debezium.data.geometry.Point": _GEOMETRY,
}
_LITERALS: dict[str, _Meaning] = {
    "boolean": (pa.bool_(), "boolean", None),
    "int8": (pa.int8(), "tinyint", None),
    "int16": (pa.int16(), "smallint", None),
    "int32": (pa.int32(), "int", None),
    "int64": (pa.int64(), "bigint", None),
    "float": (pa.float32(), "float", None),
    "double": (pa.float64(), "double", None),
    "string": (pa.utf8(), "varchar", None),
    "bytes": (pa.binary(), "varbinary", None),
}
"""By meaning, else by literal type; all others (arrays, maps, structures) are the text of their JSON."""
