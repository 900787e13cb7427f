"""Which version of a table a row belongs to: schemas by position, kept in a small file of their own.

A table's versions are an ordered list of (from_id, shape). A row at `_ums_id_` X belongs to the newest version whose from_id is not
above X. A shape that differs from it starts the next version at X; a change that leaves the shape alone (lengths, nullability, labels)
only renews the description. ALTERs that touch columns are kept with their ids, because what ADD COLUMN … DEFAULT did to old rows
(`Column.initial_default`) is known from the statement alone.

The file::

    {"format": 1,
     "tables": [{"schema": "shop", "table": "orders",
                 "versions": [{"from_id": …, "described_id": …, "arrow": base64 of the version's Arrow schema}, …],
                 "alters": [{"id": …, "dropped": […], "renamed": [[old, new], …], "added": [[name, default or null], …]}, …]}],
     "definitions": …}

    described_id   the position at which the version was first seen as `arrow` describes it
    definitions    what tables are where the log does not describe them (definitions.py)

Crash story: the file is replaced atomically (files.py), and `save` is called before what was learned is relied on: before the first
block of a new version and before any mark behind a statement. So the file is never behind the log. It may be ahead of it: capture then
reads the same part of the source again, and every answer is the same, because an answer depends only on what lies before the asked
position: a version starts at the position where it was first seen, and a statement already known is not taken twice.
"""

from __future__ import annotations

import base64
import bisect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.capture.ddl import Change, Ddl, Effect, read
from headrace.capture.defaults import UnknownDefaultError, initial_default
from headrace.capture.definitions import Definitions
from headrace.errors import CorruptError, SourceError, storage_error
from headrace.files import replace_file
from headrace.ums.schema import TableSchema


class NoticeKind(StrEnum):
    """What a statement did to a captured table that row events do not tell."""

    TRUNCATED = "truncated"
    DROPPED = "dropped"
    """Dropped, or replaced by CREATE OR REPLACE."""
    RENAMED = "renamed"
    """The table has another name now, or another table has its name."""
    ROWS_REPLACED = "rows replaced"
    """Partitions or tablespaces were dropped, truncated or exchanged."""
    COLUMN_RENAMED = "column renamed"
    """Old rows have the column's values under its old name."""
    COLUMN_REPLACED = "column replaced"
    """One statement dropped a column and added another of the same name: old rows have the new one's default."""
    COLUMN_FILLED = "column filled"
    """Old rows got values in a new column that the statement does not tell (expressions, AUTO_INCREMENT, generated columns)."""
    NOT_READ = "not read"
    """The statement has a form that is not known, and names the table."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the caller must decide on, at the statement's id. Given again when the statement is read again."""

    kind: NoticeKind
    schema: str
    table: str
    ddl: Ddl
    column: str = ""
    new_schema: str = ""
    new_name: str = ""


@dataclass(frozen=True, slots=True)
class _Version:
    from_id: int
    described_id: int
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class _Alter:
    """What one ALTER did to columns, all at once. Names are folded: the server does not tell A from a."""

    id: int
    dropped: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str | None], ...]

    def after(self, defaults: dict[str, str | None]) -> dict[str, str | None]:
        """Initial defaults per column after it."""
        names = dict(self.renamed)
        kept = {names.get(name, name): value for name, value in defaults.items() if name not in self.dropped}
        return {**kept, **dict(self.added)}


@dataclass(slots=True)
class _Table:
    versions: list[_Version] = field(default_factory=list)
    alters: list[_Alter] = field(default_factory=list)

    def at(self, id_: int) -> _Version | None:
        """The version at a position; before the first one, the first."""
        if not self.versions:
            return None
        return self.versions[max(bisect.bisect_right(self.versions, id_, key=lambda version: version.from_id), 1) - 1]

    def defaults_at(self, id_: int) -> dict[str, str | None]:
        """Initial defaults of the columns that the table has just before a position, as far as statements tell."""
        version = self.at(id_)
        if version is None:
            return {}
        defaults = {column.name.casefold(): column.initial_default for column in version.schema.columns}
        for alter in self.alters:
            if version.from_id < alter.id < id_:
                defaults = alter.after(defaults)
        return defaults


class History:
    """The schema history of one source. No I/O except in `load` and `save`."""

    def __init__(self, path: Path, captured: Callable[[str, str], bool]) -> None:
        """`captured(schema, table)` says whether a table is captured: only for those are there notices."""
        self._path = path
        self._captured = captured
        self._tables: dict[tuple[str, str], _Table] = {}
        self._changed = False
        self.definitions = Definitions(captured)

    @classmethod
    def load(cls, path: Path, captured: Callable[[str, str], bool]) -> History:
        """The history in a file; an empty one when there is no file."""
        history = cls(path, captured)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return history
        except OSError as error:
            raise storage_error("read", path, error) from error
        try:
            decoded = json.loads(content)
            history._tables = _decoded(decoded)
            history.definitions.decode(decoded["definitions"])
        except (ValueError, KeyError, TypeError, pa.ArrowException, CorruptError) as error:
            raise CorruptError(
                f"the schema history {path} is damaged: {error}",
                fix="restore it from its copy, or remove it and load the tables again under a new source name",
            ) from error
        return history

    def save(self) -> None:
        """Writes what was learned since the last call, durably; does nothing when that is nothing."""
        if self._changed or self.definitions.changed:
            content = {**_encoded(self._tables), "definitions": self.definitions.encoded()}
            replace_file(self._path, json.dumps(content, ensure_ascii=False, indent=1).encode())
            self._changed = self.definitions.changed = False

    def table(self, described: TableSchema, id_: int) -> TableSchema:
        """`described` (version ignored) as seen at position `id_`, with its version and initial defaults.

        First-load rows (negative ids) are asked for with the log position noted before they were read.
        """
        key = (described.namespace.schema, described.namespace.table)
        known = self._tables.setdefault(key, _Table())
        version = known.at(id_)
        if version is None or not version.schema.same_shape(described):
            return self._next_version(known, described, id_).schema
        numbered = _numbered(described, version.schema.namespace.version, _defaults(version.schema))
        if id_ > version.described_id and numbered != version.schema:
            renewed = replace(version, described_id=id_, schema=numbered)
            known.versions[known.versions.index(version)] = renewed
            self._changed = True
        return numbered

    def at(self, schema: str, table: str, id_: int) -> TableSchema | None:
        """The version of a table that holds at a position; None when the table was never seen."""
        known = self._tables.get((schema, table))
        version = known.at(id_) if known else None
        return version.schema if version else None

    def tables(self) -> list[TableSchema]:
        """The newest version of every table seen."""
        return [known.versions[-1].schema for known in self._tables.values()]

    def statement(self, ddl: Ddl) -> list[Notice]:
        """Takes in a statement of the log; what it did to captured tables without row events."""
        changes = read(ddl)
        self.definitions.statement(changes, ddl)
        notices = [notice for change in changes for notice in self._notices(change, ddl)]
        touching = [change for change in changes if change.effect in _OF_COLUMNS]
        if touching:
            notices += self._alter(touching, ddl)
        return notices

    def _next_version(self, known: _Table, described: TableSchema, id_: int) -> _Version:
        if known.versions and id_ <= known.versions[-1].from_id:
            raise SourceError(
                f"the schema history {self._path} does not fit the source's log: {described.namespace.all_versions} at position"
                f" {id_} is not as it was when this position was read before",
                fix="check that the state directory belongs to this source; if the source was rebuilt, capture it under a new name",
            )
        number = known.versions[-1].schema.namespace.version + 1 if known.versions else 0
        version = _Version(id_, id_, _numbered(described, number, known.defaults_at(id_)))
        known.versions.append(version)
        self._changed = True
        return version

    def _alter(self, changes: list[Change], ddl: Ddl) -> Iterable[Notice]:
        """Keeps what one ALTER does to columns. A table without a version has no older rows: nothing to keep."""
        schema, table = changes[0].schema, changes[0].table
        known = self._tables.get((schema, table), _Table())
        present = known.defaults_at(ddl.id)
        added: list[tuple[str, str | None]] = []
        dropped = tuple(c.column.casefold() for c in changes if c.effect is Effect.DROP_COLUMN)
        renamed = tuple(
            (c.column.casefold(), c.new_name.casefold()) for c in changes if c.effect is Effect.RENAME_COLUMN
        )
        notices = []
        for change in changes:
            name = change.column.casefold()
            if change.definition is None or (change.conditional and name in present and name not in dropped):
                continue
            try:
                added.append((name, initial_default(change.definition, ddl)))
            except UnknownDefaultError:
                added.append((name, None))
                notices.append(Notice(NoticeKind.COLUMN_FILLED, schema, table, ddl, column=change.column))
            if name in dropped:
                notices.append(Notice(NoticeKind.COLUMN_REPLACED, schema, table, ddl, column=change.column))
        newest = max((version.from_id for version in known.versions), default=ddl.id)
        if newest < ddl.id and (not known.alters or known.alters[-1].id < ddl.id):
            known.alters.append(_Alter(ddl.id, dropped, renamed, tuple(added)))
            self._changed = True
        return notices if self._captured(schema, table) else []

    def _notices(self, change: Change, ddl: Ddl) -> Iterable[Notice]:
        if change.effect is Effect.UNREAD:
            return self._unread(change, ddl)
        if change.effect is Effect.DROP_SCHEMA:
            tables = [table for schema, table in self._tables if schema == change.schema]
            return [Notice(NoticeKind.DROPPED, change.schema, table, ddl) for table in tables]
        kind = _KINDS.get(change.effect)
        if kind is None or not (
            self._captured(change.schema, change.table)
            or (change.effect is Effect.RENAME and self._captured(change.new_schema, change.new_name))
        ):
            return []
        names = (change.column, change.new_schema, change.new_name)
        return [Notice(kind, change.schema, change.table, ddl, *names)]

    def _unread(self, change: Change, ddl: Ddl) -> list[Notice]:
        """Of a statement that cannot be read, the tables that it names, among those seen."""
        if change.table:
            seen = [(change.schema, change.table)] if self._captured(change.schema, change.table) else []
        else:
            within = change.mentions | {change.schema}
            seen = [key for key in self._tables if key[0] in within and key[1] in change.mentions]
        return [Notice(NoticeKind.NOT_READ, schema, table, ddl) for schema, table in seen]


_OF_COLUMNS = (Effect.DROP_COLUMN, Effect.RENAME_COLUMN, Effect.ADD_COLUMN)
_KINDS = {
    Effect.TRUNCATE: NoticeKind.TRUNCATED,
    Effect.DROP: NoticeKind.DROPPED,
    Effect.RENAME: NoticeKind.RENAMED,
    Effect.REPLACE_ROWS: NoticeKind.ROWS_REPLACED,
    Effect.RENAME_COLUMN: NoticeKind.COLUMN_RENAMED,
}


def _defaults(schema: TableSchema) -> dict[str, str | None]:
    return {column.name.casefold(): column.initial_default for column in schema.columns}


def _numbered(described: TableSchema, version: int, defaults: dict[str, str | None]) -> TableSchema:
    columns = tuple(
        replace(column, initial_default=defaults.get(column.name.casefold())) for column in described.columns
    )
    return replace(described.with_version(version), columns=columns)


# --- the file


def _encoded(tables: dict[tuple[str, str], _Table]) -> dict[str, Any]:
    def version(one: _Version) -> dict[str, Any]:
        arrow = base64.b64encode(one.schema.arrow_schema().serialize().to_pybytes()).decode()
        return {"from_id": one.from_id, "described_id": one.described_id, "arrow": arrow}

    def alter(one: _Alter) -> dict[str, Any]:
        return {"id": one.id, "dropped": one.dropped, "renamed": one.renamed, "added": one.added}

    def table(schema: str, name: str, known: _Table) -> dict[str, Any]:
        versions, alters = [version(one) for one in known.versions], [alter(one) for one in known.alters]
        return {"schema": schema, "table": name, "versions": versions, "alters": alters}

    return {"format": 1, "tables": [table(schema, name, known) for (schema, name), known in tables.items()]}


def _decoded(content: dict[str, Any]) -> dict[tuple[str, str], _Table]:
    if content["format"] != 1:
        raise ValueError(f"format {content['format']} is not known")
    tables = {}
    for found in content["tables"]:
        versions = [
            _Version(
                one["from_id"],
                one["described_id"],
                TableSchema.from_arrow(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one["arrow"])))),
            )
            for one in found["versions"]
        ]
        alters = [
            _Alter(
                one["id"],
                tuple(one["dropped"]),
                tuple((old, new) for old, new in one["renamed"]),
                tuple((name, default) for name, default in one["added"]),
            )
            for one in found["alters"]
        ]
        tables[found["schema"], found["table"]] = _Table(versions, alters)
    return tables
