"""Definitions of tables out of a live server, at a known position of its log, without a lock and without a write.

::

    position "before" · SHOW CREATE TABLE of each table · position "after" · all DDL between the start and "after", out of the log

A table that no statement between "before" and "after" touches was the same all that time, so what was read is what it was; the others
are read again. It was the same, too, since the newest statement before that touches it (or since the start, when there is none): from
there on the definition holds. What a table was before that statement cannot be told by the server; the log may, by a CREATE TABLE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.capture.ddl import Change, Ddl, Effect
from headrace.capture.ddl_statements import read
from headrace.capture.definition import TableDefinition
from headrace.capture.definitions import Definitions, Name, defined
from headrace.capture.position import BinlogPosition
from headrace.capture.replica import Replica
from headrace.codec import binlog
from headrace.codec.binlog import BinlogReader
from headrace.errors import RetryableError

_ROUNDS = 10
_WAIT_S = 1.0
_MARKED_NOWHERE = frozenset(["uuid", "inet4", "inet6"])


def learn_from_server(
    connect: Callable[[], Replica],
    definitions: Definitions,
    captured: Callable[[str, str], bool],
    start: BinlogPosition,
) -> BinlogPosition:
    """Learns the captured tables that are not known yet, as they are from `start` on as far as that can be told.

    Returns the position up to which all statements are taken in: from there on all that was learned holds. `connect` opens a connection of its own, which is closed here. RetryableError when tables change all the time.
    """
    asked = connect()
    try:
        missing = [name for name in asked.tables() if captured(*name) and definitions.newest(name) is None]
        schemas = [schema for schema, _ in asked.schema_charsets() if definitions.newest_charset(schema) is None]
        statements = _Statements(connect)
        for _ in range(_ROUNDS):
            if not missing and not schemas:
                return statements.taken_in(definitions) or start
            before = replace(asked.last_position(), renumbered=start.renumbered)
            found = {name: definition for name in missing if (definition := _definition(asked, name))}
            charsets = {schema: charset for schema, charset in asked.schema_charsets() if schema in schemas}
            after = asked.last_position()
            since = start if _needs_the_past(asked, found) else max(start, before, key=lambda place: place.order)
            statements.read(since, after)
            for name, definition in found.items():
                newest = statements.newest(name)
                if newest is None or newest.place < before.order:
                    definitions.learn(name, newest.id if newest else since.id, definition)
            for schema, charset in charsets.items():
                newest = statements.newest_of_schema(schema)
                if newest is None or newest.place < before.order:
                    definitions.learn_charset(schema, newest.id if newest else since.id, charset)
            missing = [name for name in found if definitions.newest(name) is None]
            schemas = [schema for schema in charsets if definitions.newest_charset(schema) is None]
    finally:
        asked.close()
    raise RetryableError(
        f"the definition of {'.'.join([*missing, *((schema,) for schema in schemas)][0])} changed each time it was read",
        fix="let the statements that change it come to their end",
        retry_after_s=1.0,
    )


def _definition(asked: Replica, name: Name) -> TableDefinition | None:
    sql = asked.create_statement(*name)
    return None if sql is None else defined(*name, sql)[0]


def _needs_the_past(asked: Replica, found: dict[Name, TableDefinition]) -> bool:
    """Whether rows before now are to be completed, so that it must be known since when tables are as they are."""
    marked_nowhere = any(column.kind in _MARKED_NOWHERE for one in found.values() for column in one.columns)
    return marked_nowhere or not asked.describes_tables()


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement and what it does. Ids count what decompression adds, positions that a server tells do not: places are compared."""

    place: tuple[int, int]
    ddl: Ddl
    changes: list[Change]

    @property
    def id(self) -> int:
        return self.ddl.id


class _Statements:
    """The DDL in a part of the log that grows at its end."""

    def __init__(self, connect: Callable[[], Replica]) -> None:
        self._connect = connect
        self._read_to: BinlogPosition | None = None
        self._found: list[_Statement] = []

    def newest(self, name: Name) -> _Statement | None:
        """The newest statement that touches a table."""
        return self._newest(lambda change: change.touches(*name))

    def newest_of_schema(self, schema: str) -> _Statement | None:
        """The newest statement that sets a schema's character set."""
        of_schemas = (Effect.SCHEMA, Effect.DROP_SCHEMA)
        return self._newest(lambda change: change.effect in of_schemas and change.schema == schema)

    def _newest(self, wanted: Callable[[Change], bool]) -> _Statement | None:
        return next((found for found in reversed(self._found) if any(map(wanted, found.changes))), None)

    def taken_in(self, definitions: Definitions) -> BinlogPosition | None:
        """Makes of the definitions what the statements make of them; returns where the part ends."""
        for found in self._found:
            definitions.statement(found.changes, found.ddl)
        return self._read_to

    def read(self, start: BinlogPosition, end: BinlogPosition) -> None:
        """Reads on from where the last call ended, or from `start`, to `end`."""
        place = self._read_to = self._read_to or start
        if place.order >= end.order:
            return
        replica = self._connect()
        try:
            reader = BinlogReader([], network=True)
            reader.start(
                place.file, place.offset, expanded=place.expanded, gtids=place.gtids, renumbered=place.renumbered
            )
            # By place: asked by GTIDs, the server would not send what is known.
            replica.start_dump(replace(place, gtids=""))
            while place.order < end.order:
                replica.consumed(reader.feed(replica.read(_WAIT_S)))
                decoded = reader.take()
                for item in decoded.items:
                    if isinstance(item, binlog.Ddl):
                        at = BinlogPosition(item.file, item.offset).order
                        ddl = Ddl.of(item)
                        self._found.append(_Statement(at, ddl, read(ddl)))
                if decoded.boundary is not None:
                    boundary = decoded.boundary
                    place = replace(
                        place,
                        file=boundary.file,
                        offset=boundary.offset,
                        expanded=boundary.expanded,
                        gtids=boundary.gtids,
                    )
        finally:
            replica.close()
        self._read_to = place
