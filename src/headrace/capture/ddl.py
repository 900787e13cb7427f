"""What a MySQL or MariaDB statement does to tables beyond its row events: columns added, dropped, renamed; rows gone without a trace.

One tolerant reader: a statement becomes tokens (strings, comments and quoted names cannot confuse it), and only the clauses that
matter are looked at; the rest is passed over by its first word. A clause that is not known becomes an UNREAD effect, never an error.
A full SQL parser was tried first: sqlglot reads 48 of 108 ALTER TABLE … ADD COLUMN forms that MariaDB accepts (lists in parentheses,
ONLINE and several types are beyond it), so a tolerant reader would be needed beside it anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.capture.tokens import END, Cursor, Token, UnreadableError, split, tokens


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement of the source's log that changes what tables are, with what its meaning depends on."""

    schema: str
    """The session's default schema."""
    sql: str
    id: int
    """Its place in the order of changes: larger than the `_ums_id_` of every row before it."""
    ts_us: int
    """The time of the change, microseconds since 1970 UTC."""
    started_us: int | None = None
    """When the statement began (what CURRENT_TIMESTAMP is in it), microseconds since 1970 UTC; None when the log does not tell."""
    time_zone: str | None = None
    """The session's: an offset such as ``+02:00`` or a name such as ``Europe/Berlin``; None when the log does not tell."""


class Effect(StrEnum):
    """What happens to a table."""

    ADD_COLUMN = "add column"
    DROP_COLUMN = "drop column"
    RENAME_COLUMN = "rename column"
    TRUNCATE = "truncate"
    DROP = "drop"
    DROP_SCHEMA = "drop schema"
    RENAME = "rename"
    REPLACE_ROWS = "replace rows"
    """Partitions or tablespaces dropped, truncated, exchanged: rows go or come without row events."""
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as ADD COLUMN defines it."""

    name: str
    type: str
    """The type's name in upper case, without arguments."""
    arguments: tuple[str, ...] = ()
    charset: str | None = None
    nullable: bool = True
    default: tuple[Token, ...] | None = None
    """The tokens of DEFAULT; None without DEFAULT."""
    computed: bool = False
    """AUTO_INCREMENT or GENERATED: the server gives each row its own value."""


@dataclass(frozen=True, slots=True)
class Change:
    """One effect on one table. `table` is empty for DROP_SCHEMA, and for UNREAD when it is not known."""

    effect: Effect
    schema: str
    table: str = ""
    column: str = ""
    new_schema: str = ""
    new_name: str = ""
    """The new name of a renamed column or table."""
    definition: ColumnDefinition | None = None
    if_not_exists: bool = False
    mentions: frozenset[str] = field(default=frozenset())
    """UNREAD: all words and names of the statement."""


# --- statements

_HARMLESS_VERBS = frozenset(
    [
        "ANALYZE",
        "BEGIN",
        "CHECK",
        "CHECKSUM",
        "COMMIT",
        "CREATE",
        "DELETE",
        "EXPLAIN",
        "FLUSH",
        "GRANT",
        "INSERT",
        "INSTALL",
        "KILL",
        "LOCK",
        "OPTIMIZE",
        "PURGE",
        "RELEASE",
        "REPAIR",
        "REPLACE",
        "RESET",
        "REVOKE",
        "ROLLBACK",
        "SAVEPOINT",
        "SET",
        "START",
        "UNINSTALL",
        "UNLOCK",
        "UPDATE",
        "USE",
        "XA",
    ]
)


def read(ddl: Ddl) -> list[Change]:
    """All that a statement does to tables without row events, in the order in which it takes effect."""
    found = tokens(ddl.sql)
    cursor = Cursor(found, ddl.schema)
    if cursor.accept("SET", "STATEMENT"):
        while cursor.next is not END and not cursor.accept("FOR"):
            cursor.take()
    verb = cursor.take()
    reader = _VERBS.get(verb.text.upper()) if verb.kind == "word" else None
    if reader is None:
        harmless = verb is END or (verb.kind == "word" and verb.text.upper() in _HARMLESS_VERBS)
        return [] if harmless else [_unread(ddl.schema, "", found)]
    try:
        return reader(cursor)
    except UnreadableError:
        return [_unread(ddl.schema, "", found)]


def _unread(schema: str, table: str, found: list[Token]) -> Change:
    mentions = frozenset(token.text for token in found if token.kind in ("word", "name"))
    return Change(Effect.UNREAD, schema, table, mentions=mentions)


def _truncate(cursor: Cursor) -> list[Change]:
    cursor.accept("TABLE")
    return [Change(Effect.TRUNCATE, *cursor.table())]


def _drop(cursor: Cursor) -> list[Change]:
    if cursor.any_of("DATABASE", "SCHEMA"):
        cursor.accept("IF", "EXISTS")
        return [Change(Effect.DROP_SCHEMA, cursor.name())]
    if not cursor.any_of("TABLE", "TABLES"):
        return []  # views, indexes, users, temporary tables, …
    cursor.accept("IF", "EXISTS")
    changes = [Change(Effect.DROP, *cursor.table())]
    while cursor.mark(","):
        changes.append(Change(Effect.DROP, *cursor.table()))
    return changes


def _create(cursor: Cursor) -> list[Change]:
    if not cursor.accept("OR", "REPLACE", "TABLE"):
        return []
    cursor.accept("IF", "NOT", "EXISTS")
    return [Change(Effect.DROP, *cursor.table())]


def _rename(cursor: Cursor) -> list[Change]:
    if not cursor.any_of("TABLE", "TABLES"):
        return []
    cursor.accept("IF", "EXISTS")
    changes = []
    for part in split(cursor.tokens[cursor.at :]):
        pair = Cursor(part, cursor.schema)
        schema, table = pair.table()
        while not pair.accept("TO"):
            if pair.take() is END:
                raise UnreadableError
        new_schema, new_name = pair.table()
        changes.append(Change(Effect.RENAME, schema, table, new_schema=new_schema, new_name=new_name))
    return changes


def _alter(cursor: Cursor) -> list[Change]:
    while cursor.any_of("ONLINE", "OFFLINE", "IGNORE"):
        pass
    if not cursor.accept("TABLE"):
        return []  # ALTER DATABASE, VIEW, USER, …
    cursor.accept("IF", "EXISTS")
    schema, table = cursor.table()
    if cursor.accept("WAIT"):
        cursor.take()
    cursor.accept("NOWAIT")
    changes: list[Change] = []
    for part in split(cursor.tokens[cursor.at :]):
        try:
            changes += _clause(Cursor(part, cursor.schema), schema, table)
        except UnreadableError:
            changes.append(_unread(schema, table, part))
    # Within one statement the server drops and renames what was there before it adds.
    order = {Effect.DROP_COLUMN: 0, Effect.RENAME_COLUMN: 1, Effect.ADD_COLUMN: 2}
    return sorted(changes, key=lambda change: order.get(change.effect, 3))


_VERBS: dict[str, Callable[[Cursor], list[Change]]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}

# --- clauses of ALTER TABLE

_HARMLESS_CLAUSES = frozenset(
    [
        "ALGORITHM",
        "ALTER",
        "ANALYZE",
        "AUTOEXTEND_SIZE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHARACTER",
        "CHARSET",
        "CHECK",
        "CHECKSUM",
        "COALESCE",
        "COLLATE",
        "COMMENT",
        "CONNECTION",
        "DATA",
        "DEFAULT",
        "DELAY_KEY_WRITE",
        "DISABLE",
        "ENABLE",
        "ENCRYPTION",
        "ENGINE",
        "FORCE",
        "INDEX",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "LOCK",
        "MAX_ROWS",
        "MIN_ROWS",
        "MODIFY",
        "OPTIMIZE",
        "ORDER",
        "PACK_KEYS",
        "PARTITION",
        "PASSWORD",
        "REBUILD",
        "REMOVE",
        "REORGANIZE",
        "REPAIR",
        "ROW_FORMAT",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "TABLESPACE",
        "TYPE",
        "UNION",
        "WITH",
        "WITHOUT",
    ]
)
_NOT_A_COLUMN = ("CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "PRIMARY", "SPATIAL", "UNIQUE", "CHECK")


def _clause(cursor: Cursor, schema: str, table: str) -> list[Change]:
    verb = cursor.take()
    word = verb.text.upper() if verb.kind == "word" else ""
    reader = _CLAUSES.get(word)
    if reader is not None:
        return reader(cursor, schema, table)
    # An option that is not known is of the form NAME = VALUE.
    if verb is END or word in _HARMLESS_CLAUSES or (word and cursor.next.is_mark("=")):
        return []
    raise UnreadableError


def _add(cursor: Cursor, schema: str, table: str) -> list[Change]:
    explicit = cursor.accept("COLUMN")
    if not explicit and (
        cursor.any_of(*_NOT_A_COLUMN)
        or cursor.accept("PERIOD", "FOR")
        or cursor.accept("SYSTEM", "VERSIONING")
        or (cursor.next.is_word("PARTITION") and (cursor.peek(1).is_mark("(") or cursor.peek(1).kind == "word"))
    ):
        return []
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    parts = split(cursor.group()) if cursor.next.is_mark("(") else [cursor.tokens[cursor.at :]]
    return [
        Change(Effect.ADD_COLUMN, schema, table, found.name, definition=found, if_not_exists=if_not_exists)
        for part in parts
        if not any(part and part[0].is_word(word) for word in _NOT_A_COLUMN)
        for found in (_definition(Cursor(part, schema)),)
    ]


def _drop_clause(cursor: Cursor, schema: str, table: str) -> list[Change]:
    explicit = cursor.accept("COLUMN")
    if not explicit:
        if cursor.next.is_word("PARTITION") and cursor.peek(1) is not END:
            return [Change(Effect.REPLACE_ROWS, schema, table)]
        if cursor.any_of(*_NOT_A_COLUMN) or cursor.accept("PERIOD", "FOR") or cursor.accept("SYSTEM", "VERSIONING"):
            return []
    cursor.accept("IF", "EXISTS")
    return [Change(Effect.DROP_COLUMN, schema, table, cursor.name())]


def _change(cursor: Cursor, schema: str, table: str) -> list[Change]:
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    return _renamed_column(schema, table, cursor.name(), cursor.name())


def _rename_clause(cursor: Cursor, schema: str, table: str) -> list[Change]:
    if cursor.any_of("INDEX", "KEY"):
        return []
    if cursor.accept("COLUMN"):
        cursor.accept("IF", "EXISTS")
        old = cursor.name()
        cursor.accept("TO")
        return _renamed_column(schema, table, old, cursor.name())
    if not cursor.any_of("TO", "AS"):
        cursor.mark("=")
    new_schema, new_name = cursor.table()
    return [Change(Effect.RENAME, schema, table, new_schema=new_schema, new_name=new_name)]


def _renamed_column(schema: str, table: str, old: str, new: str) -> list[Change]:
    return [] if old == new else [Change(Effect.RENAME_COLUMN, schema, table, old, new_name=new)]


def _convert(cursor: Cursor, schema: str, table: str) -> list[Change]:
    return [] if cursor.accept("TO") else _replace_rows(cursor, schema, table)


def _replace_rows(_: Cursor, schema: str, table: str) -> list[Change]:
    return [Change(Effect.REPLACE_ROWS, schema, table)]


_CLAUSES: dict[str, Callable[[Cursor, str, str], list[Change]]] = {
    "ADD": _add,
    "CHANGE": _change,
    "CONVERT": _convert,
    "DISCARD": _replace_rows,
    "DROP": _drop_clause,
    "EXCHANGE": _replace_rows,
    "IMPORT": _replace_rows,
    "RENAME": _rename_clause,
    "TRUNCATE": _replace_rows,
}

# --- a column's definition


def _definition(cursor: Cursor) -> ColumnDefinition:
    name = cursor.name()
    type_ = _type_name(cursor)
    arguments = (
        tuple(token.text for token in cursor.group() if not token.is_mark(",")) if cursor.next.is_mark("(") else ()
    )
    charset, nullable, computed = None, type_ != "SERIAL", type_ == "SERIAL"
    default: tuple[Token, ...] | None = None
    while cursor.next is not END:
        if cursor.next.is_mark("("):
            cursor.group()
        elif cursor.accept("NOT", "NULL") or cursor.accept("PRIMARY", "KEY"):
            nullable = False
        elif cursor.accept("SET", "DEFAULT"):  # of REFERENCES … ON DELETE
            pass
        elif cursor.accept("DEFAULT"):
            default = _default(cursor)
        elif cursor.accept("CHARACTER", "SET") or cursor.accept("CHAR", "SET") or cursor.accept("CHARSET"):
            charset = cursor.name().lower()
        elif cursor.any_of("AUTO_INCREMENT", "GENERATED", "AS"):
            computed = True
        elif cursor.any_of("COLLATE", "COMMENT", "AFTER"):
            cursor.take()
        else:
            cursor.take()
    return ColumnDefinition(name, type_, arguments, charset, nullable, default, computed)


def _type_name(cursor: Cursor) -> str:
    cursor.accept("NATIONAL")
    name = cursor.name().upper()
    if name == "LONG":
        cursor.any_of("VARCHAR", "CHAR")
        return "MEDIUMBLOB" if cursor.accept("VARBINARY") else "MEDIUMTEXT"
    if name in ("CHAR", "CHARACTER", "NCHAR"):
        return "VARCHAR" if cursor.accept("VARYING") else "CHAR"
    cursor.accept("PRECISION")
    return name


def _default(cursor: Cursor) -> tuple[Token, ...]:
    """The tokens of a default: a literal with its sign or introducer, a function with its arguments, or a group in parentheses."""
    start = cursor.at
    while cursor.next.is_mark("-") or cursor.next.is_mark("+"):
        cursor.take()
    if cursor.next.is_mark("("):
        cursor.group()
        return tuple(cursor.tokens[start : cursor.at])
    first = cursor.take()
    if first.kind == "word" and cursor.next.is_mark("("):
        cursor.group()
    elif first.kind == "word" and cursor.next.kind in ("hex", "bits"):
        cursor.take()
    while first.kind in ("word", "string") and cursor.next.kind == "string":
        cursor.take()
    return tuple(cursor.tokens[start : cursor.at])
