"""canal's JSON ("flat message"), here a message per changed row.

::

    {"id": …, "database": …, "table": …, "pkNames": [names] or null, "isDdl": false, "type": "INSERT" | "UPDATE" | "DELETE",
     "es": ms, "ts": ms, "sql": "", "sqlType": {column: number of java.sql.Types}, "mysqlType": {column: type},
     "data": [{column: text}], "old": [{changed column: old text}] or null}

All values are text as MySQL prints them (zero dates too), or null; bytes are characters of ISO 8859-1. A deleted row is in `data`.
`es` is when the change was made, and so here is `ts`, which with canal is when it was read; `id` is the change's `_ums_id_`, which with
canal is a counter. TIMESTAMP is in UTC, where canal has the zone of its process. TRUNCATE TABLE is a message with `isDdl`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.foreign.changes import Changes, key_images
from headrace.codec.texts import (
    NULL,
    Described,
    Style,
    Texts,
    all_quoted,
    array_of,
    each,
    joined,
    json_or_null,
    listed,
    quoted,
    quoted_beyond,
    texts,
)
from headrace.ums.change import Clear

_TYPES = {"i": "INSERT", "u": "UPDATE", "d": "DELETE"}
_SQL_TYPES = {
    "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 7, "double": 8, "decimal": 3, "bit": -7,
    "year": 12, "date": 91, "time": 92, "datetime": 93, "timestamp": 93, "char": 1, "varchar": 12, "enum": 4, "set": -7,
    "binary": -2, "varbinary": -3, "tinytext": 2005, "text": 2005, "mediumtext": 2005, "longtext": 2005, "json": 12,
}  # fmt: skip
_BLOB = 2004
"""Numbers of java.sql.Types by the type's name; all that is not in the table is a BLOB to canal."""
_WIDER = {-6: 5, 5: 4, 4: -5, -5: 3}
"""What an unsigned integer needs for all its values."""
_NO_TEXT = pa.scalar(NULL, pa.large_utf8())
_NOTHING_KNOWN: Any = pa.scalar("[{}]", pa.large_utf8())


class CanalWriter:
    """Writes canal's JSON."""

    def messages(self, changes: Changes) -> Iterator[tuple[int, str]]:
        """See `ForeignWriter.messages`. An update out of a log, which has no rows before changes, has an empty `old`."""
        after, before = changes.images(_STYLE)
        rows, old = after.objects(), _NOTHING_KNOWN
        if before is not None:
            rows = pc.if_else(changes.are("d"), before.objects(), rows)
            old = joined("[", before.changed(after), "]")
        place = f'"database": {quoted(changes.schema)}, "table": {quoted(changes.table)}'
        key = json.dumps(list(changes.key) or None, ensure_ascii=False)
        types = _types(changes.columns)
        time_ms = changes.time_texts(1000)
        messages = joined(
            '{"id": ', changes.id_texts(), f', {place}, "pkNames": {key}, "isDdl": false, "type": "', array_of(map(_TYPES.get, changes.ops)),
            '", "es": ', time_ms, ', "ts": ', time_ms, f', "sql": "", {types}, "data": [', rows,
            '], "old": ', pc.if_else(changes.are("u"), old, _NO_TEXT), "}",
        )  # fmt: skip
        return zip(changes.ids, listed(messages), strict=True)

    def keys(self, changes: Changes) -> list[str]:
        """See `ForeignWriter.keys`: an object of the key's columns, where canal has none."""
        return listed(key_images(changes, _STYLE).objects())

    def clear(self, clear: Clear) -> str:
        """See `ForeignWriter.clear`."""
        namespace, time_ms = clear.table.namespace, clear.commit_ts_us // 1000
        message = {
            "id": clear.id, "database": namespace.schema, "table": namespace.table, "pkNames": None, "isDdl": True, "type": "TRUNCATE",
            "es": time_ms, "ts": time_ms, "sql": f"TRUNCATE TABLE `{namespace.table.replace('`', '``')}`", "sqlType": None,
            "mysqlType": None, "data": None, "old": None,
        }  # fmt: skip
        return json.dumps(message, ensure_ascii=False)


def sql_type(source_type: str) -> int:
    """The number of java.sql.Types by which canal tells a column's type."""
    name = source_type.partition("(")[0].partition(" ")[0]
    number = _SQL_TYPES.get(name, _BLOB)
    return _WIDER.get(number, number) if source_type.endswith("int unsigned") else number


def _types(columns: Sequence[Described]) -> str:
    numbers = {column.name: sql_type(column.source_type) for column in columns}
    names = {column.name: column.source_type for column in columns}
    return f'"sqlType": {json.dumps(numbers, ensure_ascii=False)}, "mysqlType": {json.dumps(names, ensure_ascii=False)}'


def _fragments(array: pa.Array[Any], column: Described) -> Texts:
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return json_or_null(each(array, lambda value: json.dumps(value.decode("latin-1"))))
    return all_quoted(texts(array, column.source_type))


_STYLE = Style(_fragments, quoted_beyond)
