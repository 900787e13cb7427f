"""How rows stand in OpenSearch and Elasticsearch: field types, ids and documents. Pure; whole columns at a time.

::

    _id       10                       the key's values as text, joined by ``:`` (in them % and : as %25 and %3A); of more than 512 bytes: ``#`` and
                                       their SHA-256; of one empty value: ``%``
    _version  10000000005              `_ums_id_` + 10^10: the server takes no negative ones, which rows of a first load have
    _source   {"_ums_id_":5,"_ums_ts_":"2026-03-02T12:00:00.000000Z","_is_active_":1,"_ums_raw_":null,"id":10,"note":"…","amount":"0.50"}

| column | field | in `_source` |
|---|---|---|
| integers | long; unsigned of 64 bits: unsigned_long, or keyword where the server has none | number |
| float, double | double | number |
| decimal | double | text: readers of JSON take numbers for doubles, which lose digits |
| boolean | boolean | true, false |
| date, datetime, timestamp | date | ``2024-02-29``, ``2024-02-29T23:59:59.000001``, with ``Z`` when the column is in UTC |
| time | keyword | ``-838:59:59.000000`` |
| text, clob (of any size) | text | text |
| all other text | keyword, up to 8191 characters of it | text |
| binary | binary | base64 |

`_source` has every value exactly; what is searched is coarser for decimals of more than 15 digits and for parts of a millisecond. A value that
its column's type cannot hold (a zero date) is null, and stands as text in `_ums_raw_`, which is not searched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sinks.growing import Fill, Place, Record
from headrace.ums.change import ChangeBatch, is_delete
from headrace.ums.schema import ID, RAW, TS, Column
from headrace.ums.system_columns import SystemColumns
from headrace.ums.values import Array, from_values, is_bytes, is_text, join, to_text

SHIFT = 10**10
_ID_BYTES = 512
_LONG_TEXT = ("tinytext", "text", "mediumtext", "longtext", "clob")
_NUMBERS = ("long", "unsigned_long", "double")
_TEXTS = ("keyword", "text")
_quoted: Callable[[str], str] = json.encoder.encode_basestring


def system_fields(names: SystemColumns) -> dict[str, dict[str, object]]:
    """The fields that every document has beside its columns."""
    return {
        names.id: {"type": "long"},
        names.ts: {"type": "date"},
        names.active: {"type": "byte"},
        names.raw: {"type": "object", "enabled": False},
    }


def kind_of(column: Column, held: str | None, *, unsigned_long: bool) -> str | None:
    """The field type of a column, which also holds what a field of the type `held` has; None when there is none."""
    kind = _kind(column, unsigned_long)
    if held in (None, kind):
        return kind
    if "binary" in (held, kind):
        return None
    if held in _TEXTS:
        return held
    return "double" if held in _NUMBERS and kind in _NUMBERS else "keyword"


def _kind(column: Column, unsigned_long: bool) -> str:
    kind = column.type
    if pa.types.is_uint64(kind):
        return "unsigned_long" if unsigned_long else "keyword"
    if is_text(kind):
        return "text" if column.source_type.casefold().startswith(_LONG_TEXT) else "keyword"
    return next(name for matches, name in _KINDS if matches(kind))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "long"),
    (pa.types.is_floating, "double"),
    (pa.types.is_decimal, "double"),
    (is_bytes, "binary"),
    (pa.types.is_date32, "date"),
    (pa.types.is_timestamp, "date"),
    (pa.types.is_duration, "keyword"),
)


_FAMILIES = (
    ("long", "unsigned_long", "integer", "short", "byte", "double", "float", "half_float", "scaled_float"),
    ("keyword", "text", "wildcard", "match_only_text", "search_as_you_type"),
    ("date", "date_nanos"),
)
"""Types that take each other's values, but for those out of range; what is text takes all but objects."""


def mapping_of(kind: str) -> dict[str, object]:
    """What a mapping says of a field."""
    # Lucene takes terms of 32766 bytes; a character has up to four.
    return {"type": kind, "ignore_above": 8191} if kind == "keyword" else {"type": kind}


def takes(there: str, kind: str) -> bool:
    """Whether a field that somebody has made takes what one of type `kind` holds."""
    for family in _FAMILIES:
        if there in family:
            return kind in family or "text" in family
    return there == kind


def ids(batch: ChangeBatch) -> list[str]:
    """The `_id` of each row."""
    columns = [to_text(batch.data.column(name)).to_pylist() for name in batch.table.key]
    return [_id(values) for values in zip(*columns, strict=True)]


def _id(values: Iterable[str]) -> str:
    return short_id(":".join(value.replace("%", "%25").replace(":", "%3A") for value in values) or "%")


def short_id(text: str) -> str:
    """The text when the server takes it as an `_id`, else its hash."""
    encoded = text.encode()
    return text if len(encoded) <= _ID_BYTES else f"#{hashlib.sha256(encoded).hexdigest()}"


def versions(batch: ChangeBatch) -> Array:
    """The `_version` of each row, as text."""
    shifted: Array = pc.add(batch.data.column(ID), pa.scalar(SHIFT))
    return shifted.cast(pa.utf8())


def documents(batch: ChangeBatch, record: Record, names: SystemColumns) -> Array:
    """The `_source` of each row."""
    data = batch.data
    active: Array = pc.if_else(is_delete(data), pa.scalar("0"), pa.scalar("1"))
    parts: list[Array | str] = [
        f'{{"{names.id}":',
        data.column(ID).cast(pa.utf8()),
        f',"{names.ts}":',
        _json(data.column(TS), "date"),
    ]
    parts += [f',"{names.active}":', active, f',"{names.raw}":', _or_null(data.column(RAW))]
    for column, place in record.placed(batch.table):
        parts += [f",{_quoted(place.name)}:", _json(data.column(column.name), place.kind)]
    later = [
        f",{_quoted(place.name)}:{json.dumps(default(place, record.types[identity]))}"
        for identity, place in record.later(batch.table).items()
    ]
    return join(*parts, "".join([*later, "}"]))


def _json(column: Array, kind: str) -> Array:
    """Values as JSON, null as ``null``."""
    is_number = pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
    if is_number and kind not in _TEXTS:
        return _or_null(column.cast(pa.utf8()))
    if _is_finite(column) and kind not in _TEXTS:
        return _or_null(to_text(column))
    if is_bytes(column.type):
        texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    elif pa.types.is_timestamp(column.type):
        texts = _iso(to_text(column), "" if column.type.tz is None else "Z").to_pylist()
    else:
        texts = to_text(column).to_pylist()
    return pa.array(["null" if text is None else _quoted(text) for text in texts], pa.utf8())


def _is_finite(column: Array) -> bool:
    """Whether these are floats that JSON has numbers for."""
    if not pa.types.is_floating(column.type):
        return False
    finite: Array = pc.call_function("is_finite", [column])
    return pc.all(finite).as_py() is not False


def _or_null(texts: Array) -> Array:
    found: Array = pc.call_function("coalesce", [texts, pa.scalar("null")])
    return found


def _iso(texts: Array, zone: str) -> Array:
    return join(pc.replace_substring(texts, " ", "T"), zone)


def default(place: Place, kind: str) -> object:
    """What a field has in rows from before its column, which is of the Arrow type `kind`."""
    text = place.default
    if text is None or place.kind in _TEXTS:
        return text
    if place.kind == "boolean":
        return text == "true"
    if place.kind == "binary":
        return base64.b64encode(bytes.fromhex(text)).decode()
    if place.kind == "date":
        return text.replace(" ", "T") + ("Z" if "tz=" in kind else "")
    if place.kind == "double":
        return text if kind.startswith("decimal") else float(text)
    return int(text)


def filled(document: dict[str, Any], record: Record) -> bool:
    """Gives a document the fields that the record's fills name; False when it has them."""
    missing = [fill for fill in record.fills if fill.name not in document]
    for fill in missing:
        document[fill.name] = _value_for(document, fill, record)
    return bool(missing)


def _value_for(document: dict[str, Any], fill: Fill, record: Record) -> object:
    place = record.places[fill.identity]
    if fill.source is None:
        return default(place, record.types.get(fill.identity, ""))
    value = document.pop(fill.source, None)
    if value is None or isinstance(value, str) or place.kind not in _TEXTS:
        return value
    return json.dumps(value)


def column_of(found: Sequence[Mapping[str, Any]], column: Column, place: Place | None) -> Array:
    """A column of documents; ValueError when a value is not of its type."""
    values = [None if place is None else document.get(place.name) for document in found]
    if is_bytes(column.type):
        values = [None if value is None else base64.b64decode(value) for value in values]
    elif pa.types.is_timestamp(column.type):
        values = [None if value is None else value.replace("T", " ") for value in values]
    elif is_text(column.type):
        values = [json.dumps(value) if isinstance(value, bool) else value for value in values]
    return from_values(values, column.type)
