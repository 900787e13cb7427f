"""The tables that messages of others have told of, in all their versions, kept in a small file of their own.

The file::

    {"format": 1, "tables": [a list per table, its versions in their order:
                             [{"first_id": …|null, "arrow": base64 of the version's Arrow schema}, …], …]}

Partitions and topics come in any order, so shapes of a table may come in turn. A shape is a version once, and stays that version. An old
shape that comes again says nothing new: whether it was late, or the table is as it was, no message tells.

Crash story: the file is replaced atomically (files.py), before the first change of a new version is handed out. So it is never behind the
log. It may be ahead of it: messages are then read again under a version that already knows what comes later, which holds them as well.
A version whose first row (`first_id`) lies behind the newest mark is not on the log, nor is the end of the one before: its first row is
met again, under an id that may be another, and the end with it (`go_on_behind`).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.codec.foreign.reading import ForeignRow, widened
from headrace.codec.ums_schema import LONGEST_NAME
from headrace.errors import CorruptError, storage_error
from headrace.files import make_directories, replace_file
from headrace.ums.schema import SYSTEM_FIELDS, Column, Namespace, TableSchema


@dataclass(slots=True)
class _Version:
    """A version of a table, and the `_ums_id_` of its first row; None when no row of it has come."""

    schema: TableSchema
    first_id: int | None = None


class SeenTables:
    """The versions of every table of one source. No I/O except in `load` and `save`."""

    def __init__(self, path: Path, source_type: str, source: str) -> None:
        self._path = path
        self._source = (source_type, source)
        self._tables: dict[tuple[str, str], list[_Version]] = {}
        self._changed = False

    def load(self) -> None:
        """Reads the file, if there is one; CorruptError when it is damaged."""
        try:
            content = json.loads(self._path.read_bytes())
            tables = [[_decoded(version) for version in versions] for versions in content["tables"]]
            places = [versions[-1].schema.namespace for versions in tables]
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("read", self._path, error) from error
        except (ValueError, LookupError, TypeError, pa.ArrowInvalid) as error:
            raise CorruptError(f"{self._path} is damaged: {error}", fix="bring it back from a copy") from error
        self._tables = {(place.schema, place.table): found for place, found in zip(places, tables, strict=True)}

    def save(self) -> None:
        """Writes the file when something is new."""
        if self._changed:
            tables = [[_encoded(version) for version in versions] for versions in self._tables.values()]
            content = {"format": 1, "tables": tables}
            make_directories(self._path.parent)
            replace_file(self._path, json.dumps(content).encode())
            self._changed = False

    def go_on_behind(self, id_: int) -> None:
        """Rows behind `id_`, the newest mark's, come again: none of them has been the first of its version."""
        for version in (version for versions in self._tables.values() for version in versions):
            if version.first_id is not None and version.first_id > id_:
                version.first_id = None
                self._changed = True

    def tables(self) -> list[TableSchema]:
        """All that are known, each in its newest version."""
        return [versions[-1].schema for versions in self._tables.values()]

    def known(self, schema: str, table: str) -> TableSchema | None:
        """A table's newest version."""
        versions = self._tables.get((schema, table))
        return versions[-1].schema if versions else None

    def ended_by(self, table: TableSchema, id_: int) -> TableSchema | None:
        """The version before that of `table`, when the row `id_` is the first of it that has come; else None."""
        space = table.namespace
        versions = self._tables[space.schema, space.table]
        version = versions[space.version]
        if version.first_id is not None:
            return None
        version.first_id = id_
        self._changed = True
        earlier = (one.schema for one in reversed(versions[: space.version]) if one.first_id is not None)
        return next(earlier, None)

    def version_of(self, row: ForeignRow) -> TableSchema:
        """The version of its table that a row belongs to: the newest, or a new one when the row says so."""
        return self.version_with(row.schema, row.table, self._columns(self.known(row.schema, row.table), row), row.key)

    def version_with(self, schema: str, table: str, columns: tuple[Column, ...], key: tuple[str, ...]) -> TableSchema:
        """The version of a table that has these columns, a new one when none has. An empty key leaves it as it is.

        ValueError when there cannot be such columns.
        """
        known = self.known(schema, table)
        if known is not None and not key:
            key = known.key
        if not {column.name for column in columns}.issuperset(key):
            key = ()
        if known is not None and known.key == key and known.columns == columns:
            return known
        found = TableSchema(Namespace(*self._source, schema, table), columns, key)
        versions = self._tables.get((schema, table), [])
        for version in reversed(versions):
            if version.schema.same_shape(found):
                return version.schema
        _check(found)
        found = found.with_version(len(versions))
        self._tables[schema, table] = [*versions, _Version(found)]
        self._changed = True
        return found

    @staticmethod
    def _columns(known: TableSchema | None, row: ForeignRow) -> tuple[Column, ...]:
        if row.columns is not None:
            return row.columns
        return tuple(widened({column.name: column for column in known.columns} if known else {}, row.values).values())


def _encoded(version: _Version) -> dict[str, Any]:
    arrow = version.schema.arrow_schema().serialize().to_pybytes()
    return {"first_id": version.first_id, "arrow": base64.b64encode(arrow).decode()}


def _decoded(version: dict[str, Any]) -> _Version:
    arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(version["arrow"])))
    return _Version(TableSchema.from_arrow(arrow), version["first_id"])


def _check(table: TableSchema) -> None:
    names = [column.name for column in table.columns]
    reserved = {field.name for field in SYSTEM_FIELDS}.intersection(names)
    if reserved:
        raise ValueError(f"{table.namespace.all_versions} has a column {min(reserved)}, a name that headrace needs")
    if len(set(names)) < len(names):
        raise ValueError(f"{table.namespace.all_versions} has two columns of one name")
    if not all(0 < len(name) <= LONGEST_NAME and "\0" not in name for name in names):
        raise ValueError(f"{table.namespace.all_versions} has a column without a name, or with one that is too long")
