"""The clauses of ALTER TABLE, read for what they do to the table: each by its first word (ddl_statements.py)."""

from __future__ import annotations

from collections.abc import Callable

from headrace.capture.columns import PRIMARY, ColumnDefinition, begins_no_column, default_charset, read_column, read_key
from headrace.capture.ddl import Change, Effect
from headrace.capture.tokens import END, Cursor, UnreadableError, split

_HARMLESS_CLAUSES = frozenset(
    [
        "ALGORITHM",
        "ALTER",
        "ANALYZE",
        "AUTOEXTEND_SIZE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHECK",
        "CHECKSUM",
        "COALESCE",
        "COMMENT",
        "CONNECTION",
        "DATA",
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


def read_clause(cursor: Cursor, schema: str, table: str) -> list[Change]:
    """What one clause does to the table; UnreadableError when it is not known."""
    verb = cursor.take()
    word = verb.text.upper() if verb.kind == "word" else ""
    reader = _CLAUSES.get(word)
    if reader is not None:
        return reader(cursor, schema, table)
    if word and cursor.next.is_mark("="):
        return _options(cursor, schema, table)
    if verb is END or word in _HARMLESS_CLAUSES:
        return []
    raise UnreadableError


def _add(cursor: Cursor, schema: str, table: str) -> list[Change]:
    explicit = cursor.accept("COLUMN")
    if not explicit:
        if begins_no_column(cursor):
            return _added_key(cursor, schema, table)
        if cursor.accept("SYSTEM", "VERSIONING"):
            return [Change(Effect.VERSIONED, schema, table)]
        if cursor.next.is_word("PARTITION") and (cursor.peek(1).is_mark("(") or cursor.peek(1).kind == "word"):
            return []
    conditional = cursor.accept("IF", "NOT", "EXISTS")
    parts = split(cursor.group()) if cursor.next.is_mark("(") else [cursor.tokens[cursor.at :]]
    changes = []
    for part in parts:
        item = Cursor(part, schema)
        if begins_no_column(item):
            changes += _added_key(item, schema, table)
            continue
        found = read_column(item)
        changes.append(Change(Effect.ADD_COLUMN, schema, table, found.name, definition=found, conditional=conditional))
        changes += _key_of(found, schema, table)
    return changes


def _added_key(cursor: Cursor, schema: str, table: str) -> list[Change]:
    key = read_key(cursor)
    return [] if key is None else [Change(Effect.ADD_KEY, schema, table, keys=(key,))]


def _key_of(column: ColumnDefinition, schema: str, table: str) -> list[Change]:
    return [Change(Effect.ADD_KEY, schema, table, keys=(column.key,))] if column.key else []


def _drop_clause(cursor: Cursor, schema: str, table: str) -> list[Change]:
    explicit = cursor.accept("COLUMN")
    if not explicit:
        if cursor.next.is_word("PARTITION") and cursor.peek(1) is not END:
            return [Change(Effect.REPLACE_ROWS, schema, table)]
        if cursor.accept("SYSTEM", "VERSIONING"):
            return [Change(Effect.UNVERSIONED, schema, table)]
        if cursor.accept("PRIMARY"):
            return [Change(Effect.DROP_KEY, schema, table, PRIMARY)]
        if cursor.any_of("INDEX", "KEY", "CONSTRAINT"):
            cursor.accept("IF", "EXISTS")
            return [Change(Effect.DROP_KEY, schema, table, cursor.name(), conditional=True)]
        if begins_no_column(cursor):
            return []
    conditional = cursor.accept("IF", "EXISTS")
    return [Change(Effect.DROP_COLUMN, schema, table, cursor.name(), conditional=conditional)]


def _change(cursor: Cursor, schema: str, table: str) -> list[Change]:
    cursor.accept("COLUMN")
    conditional = cursor.accept("IF", "EXISTS")
    old = cursor.name()
    renamed = _renamed_column(schema, table, old, cursor.next.text)
    return renamed + _modified(cursor, schema, table, old, conditional=conditional)


def _modify(cursor: Cursor, schema: str, table: str) -> list[Change]:
    cursor.accept("COLUMN")
    conditional = cursor.accept("IF", "EXISTS")
    return _modified(cursor, schema, table, cursor.next.text, conditional=conditional)


def _modified(cursor: Cursor, schema: str, table: str, old: str, *, conditional: bool) -> list[Change]:
    found = read_column(cursor)
    modified = Change(Effect.MODIFY_COLUMN, schema, table, old, definition=found, conditional=conditional)
    return [modified, *_key_of(found, schema, table)]


def _rename_clause(cursor: Cursor, schema: str, table: str) -> list[Change]:
    if cursor.any_of("INDEX", "KEY"):
        cursor.accept("IF", "EXISTS")
        old = cursor.name()
        cursor.accept("TO")
        return [Change(Effect.RENAME_KEY, schema, table, old, new_name=cursor.name())]
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
    if not cursor.accept("TO"):
        return _replace_rows(cursor, schema, table)
    charset = default_charset(cursor)
    return [Change(Effect.CONVERT, schema, table, charset=charset)]


def _options(cursor: Cursor, schema: str, table: str) -> list[Change]:
    """Table options, which follow each other without commas: of them only the character set matters."""
    cursor.at -= 1
    charset = default_charset(cursor)
    return [Change(Effect.CHARSET, schema, table, charset=charset)] if charset else []


def _replace_rows(_: Cursor, schema: str, table: str) -> list[Change]:
    return [Change(Effect.REPLACE_ROWS, schema, table)]


_CLAUSES: dict[str, Callable[[Cursor, str, str], list[Change]]] = {
    "ADD": _add,
    "CHANGE": _change,
    **dict.fromkeys(["CHARACTER", "CHARSET", "COLLATE", "DEFAULT"], _options),
    "CONVERT": _convert,
    "DISCARD": _replace_rows,
    "DROP": _drop_clause,
    "EXCHANGE": _replace_rows,
    "IMPORT": _replace_rows,
    "MODIFY": _modify,
    "RENAME": _rename_clause,
    "TRUNCATE": _replace_rows,
}
