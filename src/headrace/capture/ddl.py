"""What a MySQL or MariaDB statement does to tables: what they are after it, and what it does to rows without row events.

One tolerant reader: a statement becomes tokens (strings, comments and quoted names cannot confuse it), and only the clauses that
matter are looked at; the rest is passed over by its first word. A clause that is not known becomes an UNREAD effect, never an error.
A full SQL parser was tried first: sqlglot reads 48 of 108 ALTER TABLE … ADD COLUMN forms that MariaDB accepts (lists in parentheses,
ONLINE and several types are beyond it), so a tolerant reader would be needed beside it anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.capture.columns import (
    PRIMARY,
    ColumnDefinition,
    KeyDefinition,
    begins_no_column,
    charset_of_collation,
    key_of_parts,
    read_charset,
    read_column,
    read_key,
)
from headrace.capture.tokens import END, Cursor, Token, UnreadableError, split, tokens
from headrace.codec import binlog


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
    server_charset: str | None = None
    """What a schema created without a character set gets; None when the log does not tell."""

    @classmethod
    def of(cls, item: binlog.Ddl) -> Ddl:
        """As the decoder gives it."""
        return cls(item.schema, item.sql, item.id, item.ts_us, item.started_us, item.time_zone, item.server_charset)


class Effect(StrEnum):
    """What happens to a table."""

    CREATE = "create"
    CREATE_LIKE = "create like"
    """`new_schema` and `new_name`: the table that is copied."""
    ADD_COLUMN = "add column"
    MODIFY_COLUMN = "modify column"
    """Its definition is a new one; `column` is the name before, the definition has the name after."""
    DROP_COLUMN = "drop column"
    RENAME_COLUMN = "rename column"
    ADD_KEY = "add key"
    DROP_KEY = "drop key"
    """`column`: the key's name."""
    RENAME_KEY = "rename key"
    CHARSET = "character set"
    """The table's default becomes `charset`."""
    CONVERT = "convert"
    """All character columns, and the default, become `charset`."""
    VERSIONED = "versioned"
    """The server adds columns of its own for the rows' lifetimes."""
    UNVERSIONED = "unversioned"
    SCHEMA = "schema"
    """A schema is created, or its default character set changes; None: the server's."""
    TRUNCATE = "truncate"
    DROP = "drop"
    DROP_SCHEMA = "drop schema"
    RENAME = "rename"
    REPLACE_ROWS = "replace rows"
    """Partitions or tablespaces dropped, truncated, exchanged: rows go or come without row events."""
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Change:
    """One effect on one table. `table` is empty for SCHEMA and DROP_SCHEMA, and for UNREAD when it is not known."""

    effect: Effect
    schema: str
    table: str = ""
    column: str = ""
    new_schema: str = ""
    new_name: str = ""
    """The new name of a renamed column, key or table."""
    definition: ColumnDefinition | None = None
    columns: tuple[ColumnDefinition, ...] = ()
    """CREATE: all columns; none when they cannot be read."""
    keys: tuple[KeyDefinition, ...] = ()
    """CREATE: all keys; ADD_KEY: the key."""
    charset: str | None = None
    conditional: bool = False
    """IF EXISTS or IF NOT EXISTS stands there."""
    mentions: frozenset[str] = field(default=frozenset())
    """UNREAD: all words and names of the statement."""

    def touches(self, schema: str, table: str) -> bool:
        """Whether a table may be another one after it."""
        if self.effect is Effect.UNREAD and not self.table:
            return table in self.mentions and schema in self.mentions | {self.schema}
        if self.effect is Effect.DROP_SCHEMA:
            return schema == self.schema
        names = [(self.schema, self.table)]
        if self.effect is Effect.RENAME:
            names.append((self.new_schema, self.new_name))
        return (schema, table) in names


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
        return [] if harmless else [_unread(schema, "", found)]
    try:
        return reader(cursor)
    except UnreadableError:
        return [_unread(schema, "", found)]


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
        return [Change(Effect.SCHEMA, cursor.name(), charset=_charset_option(cursor), conditional=conditional)]
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
    charset = _charset_option(cursor)
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


def _charset_option(cursor: Cursor) -> str | None:
    """The default character set among the options that fill the rest, up to partitions or a query."""
    charset = collation_charset = None
    while cursor.next is not END and not cursor.any_of("PARTITION", "SELECT", "AS"):
        found = read_charset(cursor)
        if found is not None:
            charset = found
        elif cursor.accept("COLLATE"):
            cursor.mark("=")
            collation_charset = charset_of_collation(cursor.name())
        else:
            cursor.accept("COMMENT")
            cursor.take()
    return charset or collation_charset


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
        charset = _charset_option(cursor)
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
            changes += _clause(Cursor(part, cursor.schema), schema, table)
        except UnreadableError:
            changes.append(_unread(schema, table, part))
    return changes


_SCHEMA_OPTIONS = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "ENCRYPTION", "READ")
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


def _clause(cursor: Cursor, schema: str, table: str) -> list[Change]:
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
    charset = _charset_option(cursor)
    return [Change(Effect.CONVERT, schema, table, charset=charset)]


def _options(cursor: Cursor, schema: str, table: str) -> list[Change]:
    """Table options, which follow each other without commas: of them only the character set matters."""
    cursor.at -= 1
    charset = _charset_option(cursor)
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
