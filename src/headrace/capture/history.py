"""Which version of a table a row belongs to: schemas by position, kept in a small file of their own.

A table's versions are an ordered list of (from_id, shape). A row at `_ums_id_` X belongs to the newest version whose from_id is not
above X. A shape that differs from it starts the next version at X; a change that leaves the shape alone (lengths, nullability, labels)
only renews the description. ALTERs that touch columns are kept with their ids, because what ADD COLUMN … DEFAULT did to old rows
(`Column.initial_default`), and which column is an old one under a new name (`Column.born_as`), is known from the statement alone.
What gh-ost and pt-online-schema-change alter in their helper tables (online_ddl.py) is kept with those, until one becomes the table.

Crash story: the file is replaced atomically (files.py), and `save` is called before what was learned is relied on: before the first
block of a new version and before any mark behind a statement. So the file is never behind the log. It may be ahead of it: capture then
reads the same part of the source again, and every answer is the same, because an answer depends only on what lies before the asked
position: a version starts at the position where it was first seen, and a statement already known is not taken twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from headrace.capture import versions
from headrace.capture.ddl import Change, Ddl, Effect
from headrace.capture.ddl_statements import read
from headrace.capture.defaults import UnknownDefaultError, initial_default
from headrace.capture.definitions import Definitions, Name
from headrace.capture.online_ddl import swapped_in
from headrace.capture.tokens import without_literals
from headrace.capture.versions import Alter, Table, Version
from headrace.errors import CorruptError, SourceError, storage_error
from headrace.files import replace_file
from headrace.ums.change import Statement
from headrace.ums.schema import TableSchema


class NoticeKind(StrEnum):
    """What a statement did to a captured table that row events do not tell."""

    TRUNCATED = "truncated"
    DROPPED = "dropped"
    """Dropped, or replaced by CREATE OR REPLACE."""
    RENAMED = "renamed"
    """The table has another name now, or another table has its name."""
    CREATED = "created"
    """A new table has the name of one that was there before."""
    ROWS_REPLACED = "rows replaced"
    """Partitions or tablespaces were dropped, truncated or exchanged."""
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


def _helps_nobody(_schema: str, _table: str) -> str:
    return ""


class History:
    """The schema history of one source. No I/O except in `load` and `save`."""

    def __init__(
        self,
        path: Path,
        captured: Callable[[str, str], bool],
        helped: Callable[[str, str], str] = _helps_nobody,
    ) -> None:
        """`captured(schema, table)` says whether a table is captured: only for those are there notices.

        `helped(schema, table)` names the captured table that an online ALTER changes by way of this one; empty: it is no such helper.
        """
        self._path = path
        self._names_captured = captured
        self._helped = helped
        self._tables: dict[tuple[str, str], Table] = {}
        self._changed = False
        self.definitions = Definitions(captured)

    @classmethod
    def load(
        cls,
        path: Path,
        captured: Callable[[str, str], bool],
        helped: Callable[[str, str], str] = _helps_nobody,
    ) -> History:
        """The history in a file; an empty one when there is no file."""
        history = cls(path, captured, helped)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return history
        except OSError as error:
            raise storage_error("read", path, error) from error
        try:
            kept = json.loads(content)
            history._tables = versions.decoded(kept)
            history.definitions.decode(kept["definitions"])
        except (ValueError, KeyError, TypeError, pa.ArrowException, CorruptError) as error:
            raise CorruptError(
                f"the schema history {path} is damaged: {error}",
                fix="restore it from its copy, or remove it and load the tables again under a new source name",
            ) from error
        return history

    def _captured(self, schema: str, table: str) -> bool:
        return self._names_captured(schema, table) and not self._helped(schema, table)

    def save(self) -> None:
        """Writes what was learned since the last call, durably; does nothing when that is nothing."""
        if self._changed or self.definitions.changed:
            content = {**versions.encoded(self._tables), "definitions": self.definitions.encoded()}
            replace_file(self._path, json.dumps(content, ensure_ascii=False).encode())
            self._changed = self.definitions.changed = False

    def table(self, described: TableSchema, id_: int) -> TableSchema:
        """`described` (version ignored) as seen at position `id_`, with its version and initial defaults.

        First-load rows (negative ids) are asked for with the log position noted before they were read.
        """
        key = (described.namespace.schema, described.namespace.table)
        known = self._tables.setdefault(key, Table())
        version = known.at(id_)
        if version is None:
            return self._next_version(known, described, id_).schema
        numbered = known.identified(described, version.schema.namespace.version, id_)
        if not version.schema.same_shape(numbered):
            return self._next_version(known, described, id_).schema
        if id_ > version.described_id and numbered != version.schema:
            renewed = replace(version, described_id=id_, schema=numbered)
            known.versions[known.versions.index(version)] = renewed
            self._changed = True
        return numbered

    def before(self, schema: str, table: str, id_: int) -> TableSchema | None:
        """The version of a table that holds just before a statement; None when the table was not seen before it."""
        known = self._seen((schema, table), id_)
        version = known.at(id_) if known else None
        return version.schema if version else None

    def like(self, described: TableSchema) -> TableSchema | None:
        """The newest version of a table that is as described (version ignored) behind all statements; None when there is none."""
        known = self._tables.get((described.namespace.schema, described.namespace.table), Table())
        now = known.identified(described, len(known.versions), _BEHIND_ALL)
        schemas = (version.schema for version in reversed(known.versions))
        return next((schema for schema in schemas if schema.same_shape(now)), None)

    def expected(self, described: TableSchema) -> TableSchema:
        """The version of a table that is as described: one that is known, or the next one."""
        known = self._tables.get((described.namespace.schema, described.namespace.table), Table())
        return self.like(described) or known.identified(described, len(known.versions), _BEHIND_ALL)

    def has_past(self, schema: str, table: str) -> bool:
        """Whether the log tells of a table of this name that it was created, dropped or renamed."""
        known = self._tables.get((schema, table))
        return known is not None and bool(known.presence)

    def replaced_at(self, schema: str, table: str) -> int | None:
        """The id of the newest statement that put another table, rows and all, under this name; None when there was none."""
        known = self._tables.get((schema, table))
        return known.replaced_at if known else None

    def learn(self, described: TableSchema, id_: int) -> TableSchema | None:
        """A table as it is at the source when the log has been read up to `id_`, and no statement before that touches it any more: a
        version when it never was so before, which is returned."""
        known = self._tables.get((described.namespace.schema, described.namespace.table))
        newest = known.versions[-1].from_id if known and known.versions else None
        if self.like(described) is None and (newest is None or newest < id_):
            return self.table(described, id_)
        return None

    def ended_by(self, table: TableSchema, id_: int) -> tuple[TableSchema, Statement] | None:
        """The version that was told before, and the newest statement that changed it, when `id_` is the first of a row of `table`
        in the source's log, or the version is told without one; else None. Versions in between that have no rows there are passed
        over: nobody was told of them.

        When none was told, it is the first one: rows of a load may have had it.
        """
        known = self._tables[table.namespace.schema, table.namespace.table]
        place = known.place(id_)
        version, older = known.versions[place], known.versions[:place]
        told = [one for one in older if one.told_id is not None]
        before = next(iter(told[-1:] or older), None)
        if version.told_id is None:
            known.versions[place] = version = replace(version, told_id=id_)
            self._changed = True
        if version.told_id != id_ or before is None:
            return None
        alters = [alter for alter in known.alters if before.from_id < alter.id < version.from_id]
        return before.schema, alters[-1].statement if alters else Statement()

    def forget_told(self, id_: int) -> None:
        """Capture goes on at a position: what was told behind it is not on the log."""
        for known in self._tables.values():
            for place, version in enumerate(known.versions):
                if version.told_id is not None and version.told_id > id_ + 1:
                    known.versions[place] = replace(version, told_id=None)
                    self._changed = True

    def returned(self, is_captured: Callable[[str, str], bool]) -> list[Name]:
        """The tables that are captured now and were not when this was asked before: what changed meanwhile was not read."""
        returned = []
        for name, known in self._tables.items():
            if known.versions and known.is_left_out == is_captured(*name):
                self._changed = True
                known.is_left_out = not known.is_left_out
                returned += [] if known.is_left_out else [name]
        return returned

    def tables(self) -> list[TableSchema]:
        """The newest version of every table seen."""
        return [known.versions[-1].schema for known in self._tables.values() if known.versions]

    def statement(self, ddl: Ddl) -> list[Notice]:
        """Takes in a statement of the log; what it did to captured tables without row events."""
        changes = read(ddl)
        self.definitions.statement(changes, ddl)
        swapped = swapped_in(changes)
        notices: list[Notice] = []
        for change in changes:
            name, new_name = (change.schema, change.table), (change.new_schema, change.new_name)
            if change.effect is Effect.RENAME and swapped.get(new_name) == name and self._helped(*name):
                self._swap(name, new_name, ddl)
            elif change.effect is not Effect.RENAME or not (name in swapped and self._helped(*swapped[name])):
                notices += self._notices(change, ddl)
                notices += self._presence(change, ddl)
        touching = [change for change in changes if change.effect in _OF_COLUMNS]
        if touching:
            notices += self._alter(touching, ddl)
        return notices

    def _swap(self, helper: Name, name: Name, ddl: Ddl) -> None:
        """A helper becomes the table that it helps: all that was altered in it is altered now."""
        known, done = self._seen(name, ddl.id) or Table(), self._tables.pop(helper, Table())
        if known.takes(ddl.id):
            known.alters += [replace(alter, id=ddl.id) for alter in done.alters]
        if not known.is_there(ddl.id):
            # In two steps: between them there was no table to be read.
            known.set_replaced(ddl.id)
        known.set_presence(ddl.id, is_there=True)
        self._changed = True

    def _presence(self, change: Change, ddl: Ddl) -> Iterable[Notice]:
        """Tables that come and go. A new one under an old name has nothing of what the old one had."""
        gone = {Effect.DROP: (change.schema, change.table), Effect.RENAME: (change.schema, change.table)}
        come = {
            Effect.CREATE: (change.schema, change.table),
            Effect.CREATE_LIKE: (change.schema, change.table),
            Effect.RENAME: (change.new_schema, change.new_name),
        }
        if change.effect in gone:
            self._set_presence(gone[change.effect], ddl.id, is_there=False)
        if change.effect is Effect.DROP_SCHEMA:
            for name in [name for name in self._tables if name[0] == change.schema]:
                self._set_presence(name, ddl.id, is_there=False)
        if change.effect not in come:
            return []
        name = come[change.effect]
        known = self._seen(name, ddl.id)
        if self._helped(*name):
            # A helper that is made anew has nothing of an attempt before.
            self._tables[name] = Table()
            self._changed = True
            return []
        if known is None or (change.conditional and known.is_there(ddl.id)):
            return []
        self._set_presence(name, ddl.id, is_there=True)
        if change.effect is Effect.RENAME:
            self._changed |= known.set_replaced(ddl.id)
        return [Notice(NoticeKind.CREATED, *name, ddl)] if self._captured(*name) else []

    def _set_presence(self, name: Name, id_: int, *, is_there: bool) -> None:
        if self._helped(*name):
            self._changed |= self._tables.pop(name, None) is not None
        elif (known := self._seen(name, id_)) is not None:
            self._changed |= known.set_presence(id_, is_there=is_there)

    def _seen(self, name: Name, id_: int) -> Table | None:
        """What is kept of a table that was seen before a position."""
        known = self._tables.get(name)
        return known if known is not None and known.is_seen(id_) else None

    def _next_version(self, known: Table, described: TableSchema, id_: int) -> Version:
        if known.versions and id_ <= known.versions[-1].from_id:
            raise SourceError(
                f"the schema history {self._path} does not fit the source's log: {described.namespace.all_versions} at position"
                f" {id_} is not as it was when this position was read before",
                fix="check that the state directory belongs to this source; if the source was rebuilt, capture it under a new name",
            )
        number = known.versions[-1].schema.namespace.version + 1 if known.versions else 0
        version = Version(id_, id_, known.identified(described, number, id_))
        known.versions.append(version)
        self._changed = True
        return version

    def _alter(self, changes: list[Change], ddl: Ddl) -> Iterable[Notice]:
        """Keeps what one ALTER does to columns. A table without a version has no older rows: nothing to keep, but of helpers."""
        schema, table = changes[0].schema, changes[0].table
        helped = self._helped(schema, table)
        known = (
            self._tables.setdefault((schema, table), Table()) if helped else self._tables.get((schema, table), Table())
        )
        present = (self._seen((schema, helped or table), ddl.id) or Table()).columns_at(ddl.id)
        for alter in known.alters if helped else ():
            present = alter.after(present)
        dropped = tuple(c.column.casefold() for c in changes if c.effect is Effect.DROP_COLUMN)
        renamed = tuple(
            (c.column.casefold(), c.new_name.casefold()) for c in changes if c.effect is Effect.RENAME_COLUMN
        )
        added, unknown = _added(changes, present.keys() - set(dropped), ddl)
        if known.takes(ddl.id, needs_version=not helped):
            # It goes to the log, where a default that is masked must not stand in clear.
            statement = Statement(without_literals(ddl.sql)[:_SQL_LENGTH], ddl.place)
            known.alters.append(Alter(ddl.id, dropped, renamed, added, statement))
            self._changed = True
        filled = [Notice(NoticeKind.COLUMN_FILLED, schema, helped or table, ddl, column=name) for name in unknown]
        return filled if self._captured(schema, helped or table) else []

    def _notices(self, change: Change, ddl: Ddl) -> Iterable[Notice]:
        if change.effect is Effect.UNREAD:
            return self._unread(change, ddl)
        if change.effect is Effect.DROP_SCHEMA:
            there = [name for name in self._tables if name[0] == change.schema and self._seen(name, ddl.id)]
            return [Notice(NoticeKind.DROPPED, *name, ddl) for name in there if not self._helped(*name)]
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
            named = [name for name in self._tables if name[0] in within and name[1] in change.mentions]
            seen = [name for name in named if self._seen(name, ddl.id)]
        return [Notice(NoticeKind.NOT_READ, schema, table, ddl) for schema, table in seen]


def _added(
    changes: Iterable[Change], present: Collection[str], ddl: Ddl
) -> tuple[tuple[tuple[str, str | None], ...], list[str]]:
    """The columns that an ALTER adds, each with its initial default; and those whose values in old rows only the source knows."""
    added: list[tuple[str, str | None]] = []
    unknown = []
    for change in changes:
        name = change.column.casefold()
        if change.effect is not Effect.ADD_COLUMN or (change.conditional and name in present):
            continue
        assert change.definition is not None
        try:
            added.append((name, initial_default(change.definition, ddl)))
        except UnknownDefaultError:
            added.append((name, None))
            unknown.append(change.column)
    return tuple(added), unknown


_OF_COLUMNS = (
    Effect.ADD_COLUMN,
    Effect.ADD_KEY,
    Effect.CREATE,
    Effect.CREATE_LIKE,
    Effect.DROP_COLUMN,
    Effect.DROP_KEY,
    Effect.MODIFY_COLUMN,
    Effect.RENAME_COLUMN,
)
"""What can make a new version of a table."""
_SQL_LENGTH = 500
_BEHIND_ALL = 1 << 62
_KINDS = {
    Effect.TRUNCATE: NoticeKind.TRUNCATED,
    Effect.DROP: NoticeKind.DROPPED,
    Effect.RENAME: NoticeKind.RENAMED,
    Effect.REPLACE_ROWS: NoticeKind.ROWS_REPLACED,
}
