"""Maxwell's JSON: a message per changed row.

::

    {"database": …, "table": …, "pk.id": value}                                    the message's key on Kafka

    {"database": …, "table": …, "type": "insert" | "update" | "delete" | "bootstrap-insert", "ts": seconds,
     "position": "file:offset", "data": {column: value}, "old": {changed column: old value}}

Numbers and decimals are JSON numbers with all digits, JSON columns are JSON, sets are arrays of their labels, bytes are base64, dates and
times are text as MySQL prints them (zero dates too). A deleted row is in `data`. `position` stands only where it is known; Maxwell's
own `xid` and `commit` are left out, as it does without ``output_commit_info``. There is no message for TRUNCATE TABLE.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.foreign.changes import Changes, key_images
from headrace.codec.texts import (
    Described,
    Style,
    Texts,
    all_quoted,
    array_of,
    each,
    joined,
    json_or_null,
    listed,
    numbers,
    quoted,
    quoted_beyond,
    texts,
)
from headrace.ums.change import Clear

_TYPES = {"i": "insert", "u": "update", "d": "delete"}
_LOADED = "bootstrap-insert"
_NOTHING_KNOWN: Any = pa.scalar(', "old": {}', pa.large_utf8())


class MaxwellWriter:
    """Writes Maxwell's JSON."""

    def messages(self, changes: Changes) -> Iterator[tuple[int, str]]:
        """See `ForeignWriter.messages`. An update out of a log, which has no rows before changes, has an empty `old`."""
        after, before = changes.images(STYLE)
        rows, old = after.objects(), _NOTHING_KNOWN
        if before is not None:
            rows = pc.if_else(changes.are("d"), before.objects(), rows)
            old = joined(', "old": ', before.changed(after))
        head = f'{{"database": {quoted(changes.schema)}, "table": {quoted(changes.table)}, "type": "'
        places: tuple[str | Texts, ...] = ()
        if changes.offsets:
            places = (f', "position": {quoted(changes.file)[:-1]}:', array_of(map(str, changes.offsets)), '"')
        messages = joined(
            head, _types(changes), '", "ts": ', changes.time_texts(1_000_000), *places,
            ', "data": ', rows, pc.if_else(changes.are("u"), old, pa.scalar("", pa.large_utf8())), "}",
        )  # fmt: skip
        return zip(changes.ids, listed(messages), strict=True)

    def keys(self, changes: Changes) -> list[str]:
        """See `ForeignWriter.keys`: ``{"database": …, "table": …, "pk.id": 10}``."""
        keyed = replace(
            changes,
            columns=[_Keyed.of(column) for column in changes.columns],
            key=tuple(f"pk.{name}" for name in changes.key),
        )
        head = f'{{"database": {quoted(changes.schema)}, "table": {quoted(changes.table)}, '
        return listed(joined(head, key_images(keyed, STYLE).members(), "}"))

    def clear(self, clear: Clear) -> None:
        """Maxwell has no message for TRUNCATE TABLE."""


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A column under its name in keys."""

    name: str
    source_type: str
    nullable: bool

    @classmethod
    def of(cls, column: Described) -> _Keyed:
        return cls(f"pk.{column.name}", column.source_type, column.nullable)


def _types(changes: Changes) -> Texts:
    return array_of(
        _LOADED if op == "i" and id_ < 0 else _TYPES[op] for id_, op in zip(changes.ids, changes.ops, strict=True)
    )


def _fragments(array: pa.Array[Any], column: Described) -> Texts:
    type_, source_type = array.type, column.source_type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return numbers(array, source_type)
    found = texts(array, source_type)
    if source_type.startswith("set("):
        return json_or_null(each(found, lambda text: json.dumps(_labels(text), ensure_ascii=False)))
    return json_or_null(found) if source_type == "json" else all_quoted(found)


def _labels(text: str) -> list[str]:
    return text.split(",") if text else []


STYLE = Style(_fragments, quoted_beyond)
"""Also that of flat JSON."""
