"""The definitions of a source's tables by position: what completes a log that does not describe its tables.

An entry holds from its id on, up to the next one of its table; an entry of None says that the table is not there or not known. They
come from the statements of the log, from the server (server_definitions.py) and from a dump (dump.py). What a statement makes of a
table depends only on what lies before it, and an entry that is there is not made anew: reading again gives the same answers.

Tables that are not captured are kept as well, for they can be renamed to ones that are (gh-ost and pt-osc do so), until they are dropped.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from headrace.capture.columns import ColumnDefinition
from headrace.capture.ddl import Change, Ddl, Effect
from headrace.capture.ddl_statements import read
from headrace.capture.definition import TableDefinition
from headrace.capture.position import BinlogPosition
from headrace.capture.tokens import UnreadableError
from headrace.codec import binlog
from headrace.codec.binlog import BinlogReader, Decoded, LogFile, decode_file

Name = tuple[str, str]
"""Schema and table."""

_T = TypeVar("_T")
_ALTERING = frozenset(
    [
        Effect.ADD_COLUMN,
        Effect.ADD_KEY,
        Effect.CHARSET,
        Effect.CONVERT,
        Effect.DROP_COLUMN,
        Effect.DROP_KEY,
        Effect.MODIFY_COLUMN,
        Effect.RENAME_COLUMN,
        Effect.RENAME_KEY,
        Effect.UNVERSIONED,
        Effect.VERSIONED,
    ]
)
BEFORE_ALL = -(1 << 63)
"""The id of what held before anything that was ever read."""


class Definitions:
    """What is known of all tables of one source. No I/O."""

    def __init__(self, captured: Callable[[str, str], bool]) -> None:
        self._captured = captured
        self._tables: dict[Name, list[tuple[int, TableDefinition | None]]] = {}
        self._charsets: dict[str, list[tuple[int, str | None]]] = {}
        self.changed = False
        """Something was learned since this was last set to False."""
        self.touched: tuple[Name, ...] = ()
        """The tables that the newest statement touched."""

    def at(self, name: Name, id_: int) -> TableDefinition | None:
        """The definition that holds for rows at a position; None when it is not known."""
        return _at(self._tables.get(name, []), id_)

    def captured_at(self, id_: int) -> Iterator[tuple[Name, TableDefinition]]:
        """The captured tables that are known at a position."""
        for name, entries in self._tables.items():
            found = _at(entries, id_)
            if found is not None and self._captured(*name):
                yield name, found

    def newest(self, name: Name) -> TableDefinition | None:
        entries = self._tables.get(name)
        return entries[-1][1] if entries else None

    def newest_charset(self, schema: str) -> str | None:
        entries = self._charsets.get(schema)
        return entries[-1][1] if entries else None

    def schema_charset(self, schema: str, id_: int) -> str | None:
        """The default of new tables; None when it is not known."""
        return _at(self._charsets.get(schema, []), id_)

    def learn(self, name: Name, from_id: int, definition: TableDefinition) -> None:
        """A definition that was read elsewhere; one that holds before everything may be another one than last time."""
        entries = self._tables.setdefault(name, [])
        if from_id == BEFORE_ALL and entries and entries[0] != (from_id, definition) and entries[0][0] == from_id:
            del entries[0]
        self.changed |= _put(self._tables.setdefault(name, []), from_id, definition)

    def learn_charset(self, schema: str, from_id: int, charset: str | None) -> None:
        self.changed |= _put(self._charsets.setdefault(schema, []), from_id, charset)

    def forget_from(self, id_: int) -> None:
        """From a position on nothing is known of before, for statements were not read. What was learned since stays."""
        for name in self.names():
            self.changed |= _put(self._tables[name], id_, None)
        for entries in self._charsets.values():
            self.changed |= _put(entries, id_, None)

    def statement(self, changes: Sequence[Change], ddl: Ddl) -> None:
        """Takes in what a statement does (ddl.read)."""
        after = _After(self, ddl)
        after.take(changes)
        self.touched = tuple(after.tables)
        for name, definition in after.tables.items():
            if definition != self.at(name, ddl.id - 1):
                self.changed |= _put(self._tables.setdefault(name, []), ddl.id, definition)
            if not self._captured(*name) and self.newest(name) is None:
                self._tables.pop(name, None)
        for schema, charset in after.charsets.items():
            self.changed |= _put(self._charsets.setdefault(schema, []), ddl.id, charset)

    def names(self) -> list[Name]:
        return list(self._tables)

    def encoded(self) -> dict[str, Any]:
        return {
            "tables": [
                {"schema": schema, "table": table, "from": [[id_, one and one.encoded()] for id_, one in entries]}
                for (schema, table), entries in self._tables.items()
            ],
            "charsets": self._charsets,
        }

    def decode(self, content: dict[str, Any]) -> None:
        """The inverse of `encoded`, into this one, which is empty."""
        for table in content["tables"]:
            entries = [(id_, TableDefinition.decoded(one) if one else None) for id_, one in table["from"]]
            self._tables[table["schema"], table["table"]] = entries
        self._charsets = {
            schema: [(id_, charset) for id_, charset in entries] for schema, entries in content["charsets"].items()
        }


class Definer:
    """Tells a decoder what the captured tables are where it stands."""

    def __init__(self, reader: BinlogReader, definitions: Definitions) -> None:
        self._reader = reader
        self._definitions = definitions
        self._told: dict[Name, TableDefinition] = {}

    def at(self, id_: int) -> None:
        """The decoder starts at a position."""
        known = dict(self._definitions.captured_at(id_))
        for name in self._told.keys() | known.keys():
            self._tell(name, known.get(name))

    def behind_statement(self, id_: int) -> None:
        """The decoder stands behind a statement that the definitions have taken in."""
        for name in self._definitions.touched:
            self._tell(name, self._definitions.at(name, id_))

    def take_in(self, decoded: Decoded) -> None:
        """The decoder stands behind what it has handed out; statements in it make definitions anew."""
        for item in decoded.items:
            if isinstance(item, binlog.Ddl):
                statement = Ddl.of(item)
                self._definitions.statement(read(statement), statement)
                self.behind_statement(statement.id)

    def _tell(self, name: Name, definition: TableDefinition | None) -> None:
        if self._told.get(name) == definition:
            return
        if definition is None:
            self._reader.define(*name, None)
            del self._told[name]
        else:
            self._reader.define(*name, definition.for_decoder())
            self._told[name] = definition


def decode_defined(
    reader: BinlogReader,
    definitions: Definitions,
    file: LogFile,
    name: str,
    *,
    start: BinlogPosition | None = None,
    skip_until_us: int | None = None,
) -> Iterator[Decoded]:
    """Decodes a recorded file as `decode_file` does, from its beginning or from `start`, with what is known of its tables, and
    what its statements make of them."""
    definer = Definer(reader, definitions)
    suffix = name.rpartition(".")[2]
    offset, expanded = (start.offset, start.expanded) if start is not None else (0, 0)
    definer.at(BinlogPosition(name, offset, expanded).id if suffix.isdecimal() else BEFORE_ALL)
    for decoded in decode_file(reader, file, name, offset=offset, expanded=expanded, skip_until_us=skip_until_us):
        definer.take_in(decoded)
        yield decoded


def defined(schema: str, table: str, sql: str) -> tuple[TableDefinition | None, tuple[ColumnDefinition, ...]]:
    """What a server's own CREATE TABLE defines: as the decoder needs it (None: it cannot be read), and as it is written."""
    statement = Ddl(schema, sql, 1, 0)
    changes = read(statement)
    found = Definitions(lambda _schema, _table: True)
    found.statement(changes, statement)
    written = [column for change in changes for column in change.columns]
    return found.newest((schema, table)), tuple(written)


def _at(entries: list[tuple[int, _T | None]], id_: int) -> _T | None:
    place = bisect.bisect_right(entries, id_, key=lambda entry: entry[0])
    return entries[place - 1][1] if place else None


def _put(entries: list[tuple[int, _T | None]], id_: int, value: _T | None) -> bool:
    """Adds an entry, or fills an empty one; says whether anything is new."""
    place = bisect.bisect_left(entries, id_, key=lambda entry: entry[0])
    if place < len(entries) and entries[place][0] == id_:
        if entries[place][1] is not None or value is None:
            return False
        entries[place] = (id_, value)
        return True
    entries.insert(place, (id_, value))
    return True


class _After:
    """What one statement makes of the tables that it touches."""

    def __init__(self, before: Definitions, ddl: Ddl) -> None:
        self._before = before
        self._ddl = ddl
        self.tables: dict[Name, TableDefinition | None] = {}
        self.charsets: dict[str, str | None] = {}

    def take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.effect in (Effect.CREATE, Effect.CREATE_LIKE):
                self._create(change)
            elif change.effect is Effect.SCHEMA:
                self._schema(change)
            elif change.effect in (Effect.DROP, Effect.DROP_SCHEMA):
                self._forget(change)
        altering = [change for change in changes if change.effect in _ALTERING]
        if altering:
            self._alter(altering)
        for change in changes:
            if change.effect is Effect.UNREAD:
                self._forget(change)
            elif change.effect is Effect.RENAME:
                old, new = (change.schema, change.table), (change.new_schema, change.new_name)
                definition = self._table(old)
                self.tables[old] = None
                self.tables[new] = definition

    def _table(self, name: Name) -> TableDefinition | None:
        return self.tables[name] if name in self.tables else self._before.at(name, self._ddl.id - 1)

    def _charset(self, schema: str) -> str | None:
        return self._before.schema_charset(schema, self._ddl.id - 1)

    def _create(self, change: Change) -> None:
        name = (change.schema, change.table)
        if change.conditional and self._table(name) is not None:
            return
        if change.effect is Effect.CREATE_LIKE:
            self.tables[name] = self._table((change.new_schema, change.new_name))
            return
        try:
            self.tables[name] = TableDefinition.created(change, self._charset(change.schema))
        except UnreadableError:
            self.tables[name] = None

    def _alter(self, changes: Sequence[Change]) -> None:
        name = (changes[0].schema, changes[0].table)
        definition = self._table(name)
        if definition is None:
            return
        try:
            self.tables[name] = definition.altered(changes, self._charset(name[0]))
        except UnreadableError:
            self.tables[name] = None

    def _schema(self, change: Change) -> None:
        known = self._charset(change.schema)
        if change.conditional and known is not None:
            return
        # Where the schema may have been there before, the server's default is not certain to be its own.
        self.charsets[change.schema] = change.charset or (None if change.conditional else self._ddl.server_charset)

    def _forget(self, change: Change) -> None:
        names = [(change.schema, change.table)] if change.table else {*self._before.names(), *self.tables}
        for name in names:
            if change.touches(*name):
                self.tables[name] = None
        if change.effect is Effect.DROP_SCHEMA:
            self.charsets[change.schema] = None
