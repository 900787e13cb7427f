"""MySQL and MariaDB statements, read for what they do to tables.

One tolerant reader: a statement becomes tokens (strings, comments and quoted names cannot confuse it), and only the clauses that
matter are looked at; the rest is passed over by its first word. A clause that is not known becomes an UNREAD effect, never an error.
A full SQL parser was tried first: sqlglot reads 48 of 108 ALTER TABLE … ADD COLUMN forms that MariaDB accepts (lists in parentheses,
ONLINE and several types are beyond it), so a tolerant reader would be needed beside it anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.capture.columns import (
    ColumnDefinition,
    KeyDefinition,
    begins_no_column,
    default_charset,
    key_of_parts,
    read_column,
    read_key,
)
from headrace.capture.ddl import Change, Ddl, Effect
from headrace.capture.ddl_clauses import read_clause
from headrace.capture.tokens import END, Cursor, Token, UnreadableError, split, tokens

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
    """All that a statement does to tables, its clauses in their order."""
    return read_tokens(tokens(ddl.sql), ddl.schema)


def read_tokens(found: list[Token], schema: str) -> list[Change]:
    """As `read`, of a statement in tokens."""
    cursor = Cursor(found, schema)
    if cursor.accept("SET", "STATEMENT"):
        while cursor.next is not END and not cursor.accept("FOR"):
            cursor.take()
    verb = cursor.take()
    reader = _VERBS.get(verb.text.upper()) if verb.kind == "word" else None
    if reader is None:
        harmless = verb is END or (verb.kind == "word" and verb.text.upper() in _HARMLESS_VERBS)
        return [] if harmless else [Change.unread(schema, "", found)]
    try:
        return reader(cursor)
    except UnreadableError:
        return [Change.unread(schema, "", found)]


def _truncate(cursor: Cursor) -> list[Change]:
    cursor.accept("TABLE")
    return [Change(Effect.TRUNCATE, *cursor.table())]


def _drop(cursor: Cursor) -> list[Change]:
    if cursor.any_of("DATABASE", "SCHEMA"):
        cursor.accept("IF", "EXISTS")
        return [Change(Effect.DROP_SCHEMA, cursor.name())]
    if cursor.accept("INDEX"):
        return _drop_index(cursor)
    if not cursor.any_of("TABLE", "TABLES", "SEQUENCE"):
        return []  # views, users, temporary tables, …
    cursor.accept("IF", "EXISTS")
    changes = [Change(Effect.DROP, *cursor.table())]
    while cursor.mark(","):
        changes.append(Change(Effect.DROP, *cursor.table()))
    return changes


def _create(cursor: Cursor) -> list[Change]:
    replaces = cursor.accept("OR", "REPLACE")
    if cursor.any_of("DATABASE", "SCHEMA"):
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        return [Change(Effect.SCHEMA, cursor.name(), charset=default_charset(cursor), conditional=conditional)]
    unique = cursor.accept("UNIQUE")
    if cursor.accept("INDEX"):
        return _create_index(cursor, unique=unique)
    if cursor.accept("SEQUENCE"):
        return _create_sequence(cursor, replaces=replaces)
    if not cursor.accept("TABLE"):
        return []  # views, users, temporary tables, …
    conditional = cursor.accept("IF", "NOT", "EXISTS")
    schema, table = cursor.table()
    dropped = [Change(Effect.DROP, schema, table)] if replaces else []
    try:
        return [*dropped, *_created(cursor, schema, table, conditional=conditional)]
    except UnreadableError:
        return [*dropped, Change(Effect.CREATE, schema, table, conditional=conditional)]


def _created(cursor: Cursor, schema: str, table: str, *, conditional: bool) -> list[Change]:
    inner = cursor
    if cursor.next.is_mark("(") and cursor.peek(1).is_word("LIKE"):
        inner = Cursor(cursor.group(), cursor.schema)
    if inner.accept("LIKE"):
        names = inner.table()
        return [
            Change(Effect.CREATE_LIKE, schema, table, new_schema=names[0], new_name=names[1], conditional=conditional)
        ]
    columns: list[ColumnDefinition] = []
    keys: list[KeyDefinition | None] = []
    for part in split(cursor.group()):
        item = Cursor(part, schema)
        if begins_no_column(item):
            keys.append(read_key(item))
        else:
            columns.append(read_column(item))
            keys.append(columns[-1].key)
    known = tuple(key for key in keys if key is not None)
    charset = default_charset(cursor)
    created = Change(
        Effect.CREATE, schema, table, columns=tuple(columns), keys=known, charset=charset, conditional=conditional
    )
    versioned = any(
        cursor.tokens[at].is_word("WITH") and Cursor(cursor.tokens[at + 1 :], schema).accept("SYSTEM", "VERSIONING")
        for at in range(len(cursor.tokens))
    )
    if not versioned:
        return [created]
    ends = [Change(Effect.VERSIONED, schema, table, definition=column) for column in columns if column.ends_row]
    return [created, *(ends or [Change(Effect.VERSIONED, schema, table)])]


_SEQUENCE = (
    "(next_not_cached_value BIGINT, minimum_value BIGINT, maximum_value BIGINT, start_value BIGINT, increment BIGINT,\
 cache_size BIGINT UNSIGNED, cycle_option TINYINT UNSIGNED, cycle_count BIGINT)"
)


def _create_sequence(cursor: Cursor, *, replaces: bool) -> list[Change]:
    """MariaDB: a table of one row, which always has the same columns."""
    conditional = cursor.accept("IF", "NOT", "EXISTS")
    schema, table = cursor.table()
    created = _created(Cursor(tokens(_SEQUENCE), schema), schema, table, conditional=conditional)
    return [Change(Effect.DROP, schema, table), *created] if replaces else created


def _create_index(cursor: Cursor, *, unique: bool) -> list[Change]:
    conditional = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    _up_to_table(cursor)
    schema, table = cursor.table()
    key = key_of_parts(name, cursor, unique=unique)
    return [Change(Effect.ADD_KEY, schema, table, keys=(key,), conditional=conditional)]


def _drop_index(cursor: Cursor) -> list[Change]:
    conditional = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    _up_to_table(cursor)
    return [Change(Effect.DROP_KEY, *cursor.table(), name, conditional=conditional)]


def _up_to_table(cursor: Cursor) -> None:
    while not cursor.accept("ON"):
        if cursor.take() is END:
            raise UnreadableError


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
    if cursor.any_of("DATABASE", "SCHEMA"):
        schema = cursor.schema if any(cursor.next.is_word(word) for word in _SCHEMA_OPTIONS) else cursor.name()
        charset = default_charset(cursor)
        return [Change(Effect.SCHEMA, schema, charset=charset)] if charset else []
    if not cursor.accept("TABLE"):
        return []  # VIEW, USER, …
    cursor.accept("IF", "EXISTS")
    schema, table = cursor.table()
    if cursor.accept("WAIT"):
        cursor.take()
    cursor.accept("NOWAIT")
    changes: list[Change] = []
    for part in split(cursor.tokens[cursor.at :]):
        try:
            changes += read_clause(Cursor(part, cursor.schema), schema, table)
        except UnreadableError:
            changes.append(Change.unread(schema, table, part))
    return changes


_SCHEMA_OPTIONS = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "ENCRYPTION", "READ")
_VERBS: dict[str, Callable[[Cursor], list[Change]]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
