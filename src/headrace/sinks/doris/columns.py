"""How columns stand in Doris: types, and values on their way there and back. Pure; whole columns at a time.

| column | type in Doris |
|---|---|
| integers | BIGINT; unsigned of 64 bits: LARGEINT |
| float, double | DOUBLE |
| decimal of up to 38 digits | DECIMAL(p, s) |
| boolean | BOOLEAN |
| date | DATE |
| datetime, timestamp (in UTC) | DATETIME(6) |
| text; decimal of more digits; time: ``-838:59:59.000000`` | STRING |
| binary | STRING, in base64 |

What Doris does not take for a column of a key (STRING, DOUBLE) is VARCHAR(65533) there. Types are the widest of their kind, because the type of
a column that holds rows never changes here (growing.py). Rows are sent as lines of JSON in which every value is text, which Doris
reads by the column's type: so no number loses digits on the way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.ums.schema import Column
from headrace.ums.values import Array, from_values, is_bytes, is_text, join, to_text

_DIGITS = 38
_TYPES = {
    "text": "STRING",
    "binary": "STRING",
    "key text": "VARCHAR(65533)",
    "key binary": "VARCHAR(65533)",
}
_BINARY = ("binary", "key binary")
_WHOLE = ("bigint", "largeint")
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_quoted: Callable[[str], str] = json.encoder.encode_basestring


def kind_of(column: Column, held: str | None, keys: Collection[str]) -> str | None:
    """The kind of a column, which also holds what one of the kind `held` has; None when there is none. `keys`: identities."""
    kind = _kind(column)
    if column.identity in keys and kind in ("text", "binary", "double"):
        kind = "key binary" if kind == "binary" else "key text"
    if held in (None, kind):
        return kind
    if kind in _BINARY or held in _BINARY:
        return None
    assert held is not None
    return _wider(held, kind)


def _kind(column: Column) -> str:
    kind = column.type
    if isinstance(kind, (pa.Decimal128Type, pa.Decimal256Type)):
        return f"decimal({kind.precision},{kind.scale})" if kind.precision <= _DIGITS else "text"
    return next(name for matches, name in _KINDS if matches(kind))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_uint64, "largeint"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double"),
    (is_bytes, "binary"),
    (pa.types.is_date32, "date"),
    (pa.types.is_timestamp, "datetime(6)"),
    (pa.types.is_duration, "text"),
    (is_text, "text"),
)


def _wider(held: str, kind: str) -> str:
    if {held, kind} == set(_WHOLE):
        return "largeint"
    sizes = [_digits(one) for one in (held, kind)]
    if all(sizes):
        before, behind = (max(size[n] for size in sizes if size) for n in (0, 1))
        return f"decimal({before + behind},{behind})" if before + behind <= _DIGITS else "text"
    return "text"


def _digits(kind: str) -> tuple[int, int] | None:
    """Before the point and behind it; None of what is no exact number."""
    if kind in _WHOLE:
        return (19 if kind == "bigint" else 39), 0
    if not kind.startswith("decimal("):
        return None
    precision, scale = map(int, kind[len("decimal(") : -1].split(","))
    return precision - scale, scale


def type_of(kind: str) -> str:
    """What a statement calls the kind."""
    return _TYPES.get(kind, kind.upper())


def cells(column: Array, kind: str) -> Array:
    """Values as JSON has them in a line."""
    if kind in _BINARY:
        encoded = [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in column.to_pylist()]
        texts: Array = pa.array(encoded, pa.utf8())
    elif is_text(column.type):
        texts = quoted(column)
    else:
        texts = join('"', to_text(column), '"')
    found: Array = pc.call_function("coalesce", [texts, pa.scalar("null")])
    return found


def quoted(column: Array) -> Array:
    """Texts as JSON has them."""
    texts = column.cast(pa.utf8())
    if _has(texts, r'["\\\x00-\x1f]'):
        for sign, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, sign, escaped)
        if _has(texts, r"[\x00-\x1f]"):
            return pa.array([None if text is None else _quoted(text) for text in column.to_pylist()], pa.utf8())
    return join('"', texts, '"')


def _has(texts: Array, pattern: str) -> bool:
    return pc.any(pc.match_substring_regex(texts, pattern)).as_py() is True


def cell(text: str | None) -> str:
    """One value that is text already."""
    return "null" if text is None else _quoted(text)


def lines(parts: Sequence[tuple[str, Array | str]]) -> bytes:
    """Rows as lines of JSON, of names and their cells: columns, or one for all rows."""
    inputs: list[Array | str] = []
    for number, (name, values) in enumerate(parts):
        inputs += ["," if number else "{", f"{_quoted(name)}:", values]
    joined = join(*inputs, "}\n")
    assert joined.null_count == 0, "a cell of a line is null"
    # Texts lie one behind the other: this is the body, without a Python object for each line.
    _, ends, data = joined.buffers()
    if not len(joined) or data is None:
        return b""
    offsets = pa.Array.from_buffers(pa.int32(), len(joined) + 1, [None, ends], offset=joined.offset)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return data.slice(first, last - first).to_pybytes()


def default(text: str | None, kind: str) -> str | None:
    """A default (ums.values.to_text) as a value of the kind is written."""
    return base64.b64encode(bytes.fromhex(text)).decode() if text is not None and kind in _BINARY else text


def column_of(found: Sequence[str | None], column: Column, kind: str) -> Array:
    """A column of what was selected, which is text; ValueError when a value is not of its type."""
    if kind in _BINARY:
        return from_values([None if text is None else base64.b64decode(text) for text in found], column.type)
    return from_values(list(found), column.type)
