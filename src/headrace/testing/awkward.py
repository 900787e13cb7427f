"""Tables that some store cannot hold, or only just: what `Sink.misfits` says of them is what `prepare` says (testing/sink.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace.ums.schema import Column, Namespace, TableSchema


def _named(table: str, *names: str, key: Sequence[str] | None = None, text: str = "varchar(40)") -> TableSchema:
    """A table of texts."""
    columns = tuple(Column(name, pa.utf8(), text) for name in names)
    return TableSchema(Namespace("mysql", "db1", "shop", table), columns, names[:1] if key is None else tuple(key))


def _of_type(kind: pa.DataType, source_type: str) -> TableSchema:
    columns = Column("id", pa.utf8(), "varchar(40)"), Column("value", kind, source_type)
    return TableSchema(Namespace("mysql", "db1", "shop", "t"), columns, ("id",))


AWKWARD: Mapping[str, TableSchema] = {
    "no key": _named("keyless", "id", "note", key=()),
    "a long name": _named("n" * 64, "id"),
    "a long name of two bytes each": _named("ж" * 64, "id"),
    "a long column": _named("t", "id", "n" * 64),
    "a long column of two bytes each": _named("t", "id", "ж" * 64),
    "columns that differ in case": _named("t", "id", "note", "Note"),
    "a column that headrace needs": _named("t", "id", "_is_active_"),
    "one that looks like it": _named("t", "id", "_Is_Active_"),
    "a column of the server's own": _named("t", "id", "_id", "_source"),
    "a dot in a column": _named("t", "id", "a.b"),
    "the name of a table of the server's own": _named("sqlite_master", "id"),
    "the name of a table that headrace needs": _named("_headrace_columns", "id"),
    "a long key": _named("t", "a", "b", "c", "d", key="abcd", text="varchar(250)"),
    "a type that no source has": _of_type(pa.time64("us"), "time"),
    "texts of any size": _of_type(pa.large_utf8(), "clob"),
    "wide rows": _named("t", "id", *(f"c{n}" for n in range(70)), text="varchar(255)"),
    "many columns": _named("t", "id", *(f"c{n}" for n in range(1700)), text="text"),
}
