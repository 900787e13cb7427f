"""What a MySQL or MariaDB statement does to tables beyond its row events: columns added, dropped, renamed; rows gone without a trace.

One tolerant reader: a statement becomes tokens (strings, comments and quoted names cannot confuse it), and only the clauses that
matter are looked at; the rest is passed over by its first word. A clause that is not known becomes an UNREAD effect, never an error.
A full SQL parser was tried first: sqlglot reads 48 of 108 ALTER TABLE … ADD COLUMN forms that MariaDB accepts (lists in parentheses,
ONLINE and several types are beyond it), so a tolerant reader would be needed beside it anyway.

Comments for a server (``/*!40000 … */``, ``/*M!100100 … */``) are read as if the server had executed them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement of the source's log that changes what tables are, with what its meaning depends on."""

    schema: str
    """The session's default schema."""
    sql: str
    id: int
    """Its place in the order of changes: larger than the `_ums_id_` of every row before it."""
    ts_us: int
    """The statement's time (what CURRENT_TIMESTAMP is), microseconds since 1970 UTC."""
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
class Token:
    """`kind`: word, name (quoted), string, number, hex, bits, mark or end. `text`: unquoted and unescaped."""

    kind: str
    text: str

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.upper() == word

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark


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


class _UnreadableError(Exception):
    """The statement is not of a form that this module knows."""


# --- tokens

_TOKEN = re.compile(
    r"(?P<skip>\s+|/\*M?!\d*|\*/|/\*.*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*)"
    r"|(?P<hex>[xX]'[0-9A-Fa-f]*'|0x[0-9A-Fa-f]+\b)"
    r"|(?P<bits>[bB]'[01]*'|0b[01]+\b)"
    r"""|(?P<string>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")"""
    r"|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$]))"
    r"|(?P<word>[\w$@]+)"
    r"|(?P<mark>.)",
    re.DOTALL,
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_END = Token("end", "")


def tokens(sql: str) -> list[Token]:
    """The statement's tokens, comments and white space left out."""
    found = []
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup or "mark", match[0]
        if kind in ("name", "string"):
            text = _unquoted(text, escapes=kind == "string")
        elif kind in ("hex", "bits"):
            text = text[2:].rstrip("'")
        if kind != "skip":
            found.append(Token(kind, text))
    return found


def _unquoted(text: str, *, escapes: bool) -> str:
    quote, inner = text[0], text[1:-1]
    pattern = re.escape(quote * 2) + (r"|\\(.)" if escapes else "")

    def plain(match: re.Match[str]) -> str:
        return quote if match[0] == quote * 2 else _ESCAPED.get(match[1], match[1])

    return re.sub(pattern, plain, inner, flags=re.DOTALL)


class _Cursor:
    """A place in a list of tokens."""

    def __init__(self, found: list[Token], schema: str) -> None:
        self.tokens = found
        self.schema = schema
        self.at = 0

    @property
    def next(self) -> Token:
        return self.peek(0)

    def peek(self, ahead: int) -> Token:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else _END

    def take(self) -> Token:
        token = self.next
        self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Moves on over these keywords when they all come next."""
        if all(self.peek(ahead).is_word(word) for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def any_of(self, *words: str) -> bool:
        """Moves on over one keyword when it is one of these."""
        return any(self.accept(word) for word in words)

    def mark(self, mark: str) -> bool:
        if self.next.is_mark(mark):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        token = self.take()
        if token.kind not in ("word", "name", "string"):  # with ANSI_QUOTES "x" is a name
            raise _UnreadableError
        return token.text

    def table(self) -> tuple[str, str]:
        """A table's name with its schema."""
        first = self.name()
        return (first, self.name()) if self.mark(".") else (self.schema, first)

    def group(self) -> list[Token]:
        """What stands in the parentheses that open here."""
        if not self.mark("("):
            raise _UnreadableError
        start, depth = self.at, 1
        while depth:
            token = self.take()
            if token is _END:
                raise _UnreadableError
            depth += token.is_mark("(") - token.is_mark(")")
        return self.tokens[start : self.at - 1]


def _split(found: list[Token]) -> list[list[Token]]:
    """Parts between the commas that stand outside parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += token.is_mark("(") - token.is_mark(")")
        if depth == 0 and token.is_mark(","):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


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
    cursor = _Cursor(found, ddl.schema)
    if cursor.accept("SET", "STATEMENT"):
        while cursor.next is not _END and not cursor.accept("FOR"):
            cursor.take()
    verb = cursor.take()
    reader = _VERBS.get(verb.text.upper()) if verb.kind == "word" else None
    if reader is None:
        harmless = verb is _END or (verb.kind == "word" and verb.text.upper() in _HARMLESS_VERBS)
        return [] if harmless else [_unread(ddl.schema, "", found)]
    try:
        return reader(cursor)
    except _UnreadableError:
        return [_unread(ddl.schema, "", found)]


def _unread(schema: str, table: str, found: list[Token]) -> Change:
    mentions = frozenset(token.text for token in found if token.kind in ("word", "name"))
    return Change(Effect.UNREAD, schema, table, mentions=mentions)


def _truncate(cursor: _Cursor) -> list[Change]:
    cursor.accept("TABLE")
    return [Change(Effect.TRUNCATE, *cursor.table())]


def _drop(cursor: _Cursor) -> list[Change]:
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


def _create(cursor: _Cursor) -> list[Change]:
    if not cursor.accept("OR", "REPLACE", "TABLE"):
        return []
    cursor.accept("IF", "NOT", "EXISTS")
    return [Change(Effect.DROP, *cursor.table())]


def _rename(cursor: _Cursor) -> list[Change]:
    if not cursor.any_of("TABLE", "TABLES"):
        return []
    cursor.accept("IF", "EXISTS")
    changes = []
    for part in _split(cursor.tokens[cursor.at :]):
        pair = _Cursor(part, cursor.schema)
        schema, table = pair.table()
        while not pair.accept("TO"):
            if pair.take() is _END:
                raise _UnreadableError
        new_schema, new_name = pair.table()
        changes.append(Change(Effect.RENAME, schema, table, new_schema=new_schema, new_name=new_name))
    return changes


def _alter(cursor: _Cursor) -> list[Change]:
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
    for part in _split(cursor.tokens[cursor.at :]):
        try:
            changes += _clause(_Cursor(part, cursor.schema), schema, table)
        except _UnreadableError:
            changes.append(_unread(schema, table, part))
    # Within one statement the server drops and renames what was there before it adds.
    order = {Effect.DROP_COLUMN: 0, Effect.RENAME_COLUMN: 1, Effect.ADD_COLUMN: 2}
    return sorted(changes, key=lambda change: order.get(change.effect, 3))


_VERBS: dict[str, Callable[[_Cursor], list[Change]]] = {
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


def _clause(cursor: _Cursor, schema: str, table: str) -> list[Change]:
    verb = cursor.take()
    word = verb.text.upper() if verb.kind == "word" else ""
    reader = _CLAUSES.get(word)
    if reader is not None:
        return reader(cursor, schema, table)
    # An option that is not known is of the form NAME = VALUE.
    if verb is _END or word in _HARMLESS_CLAUSES or (word and cursor.next.is_mark("=")):
        return []
    raise _UnreadableError


def _add(cursor: _Cursor, schema: str, table: str) -> list[Change]:
    explicit = cursor.accept("COLUMN")
    if not explicit and (
        cursor.any_of(*_NOT_A_COLUMN)
        or cursor.accept("PERIOD", "FOR")
        or cursor.accept("SYSTEM", "VERSIONING")
        or (cursor.next.is_word("PARTITION") and (cursor.peek(1).is_mark("(") or cursor.peek(1).kind == "word"))
    ):
        return []
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    parts = _split(cursor.group()) if cursor.next.is_mark("(") else [cursor.tokens[cursor.at :]]
    return [
        Change(Effect.ADD_COLUMN, schema, table, found.name, definition=found, if_not_exists=if_not_exists)
        for part in parts
        if not any(part and part[0].is_word(word) for word in _NOT_A_COLUMN)
        for found in (_definition(_Cursor(part, schema)),)
    ]


def _drop_clause(cursor: _Cursor, schema: str, table: str) -> list[Change]:
    explicit = cursor.accept("COLUMN")
    if not explicit:
        if cursor.next.is_word("PARTITION") and cursor.peek(1) is not _END:
            return [Change(Effect.REPLACE_ROWS, schema, table)]
        if cursor.any_of(*_NOT_A_COLUMN) or cursor.accept("PERIOD", "FOR") or cursor.accept("SYSTEM", "VERSIONING"):
            return []
    cursor.accept("IF", "EXISTS")
    return [Change(Effect.DROP_COLUMN, schema, table, cursor.name())]


def _change(cursor: _Cursor, schema: str, table: str) -> list[Change]:
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    return _renamed_column(schema, table, cursor.name(), cursor.name())


def _rename_clause(cursor: _Cursor, schema: str, table: str) -> list[Change]:
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


def _convert(cursor: _Cursor, schema: str, table: str) -> list[Change]:
    return [] if cursor.accept("TO") else _replace_rows(cursor, schema, table)


def _replace_rows(_: _Cursor, schema: str, table: str) -> list[Change]:
    return [Change(Effect.REPLACE_ROWS, schema, table)]


_CLAUSES: dict[str, Callable[[_Cursor, str, str], list[Change]]] = {
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


def _definition(cursor: _Cursor) -> ColumnDefinition:
    name = cursor.name()
    type_ = _type_name(cursor)
    arguments = (
        tuple(token.text for token in cursor.group() if not token.is_mark(",")) if cursor.next.is_mark("(") else ()
    )
    charset, nullable, computed = None, type_ != "SERIAL", type_ == "SERIAL"
    default: tuple[Token, ...] | None = None
    while cursor.next is not _END:
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


def _type_name(cursor: _Cursor) -> str:
    cursor.accept("NATIONAL")
    name = cursor.name().upper()
    if name == "LONG":
        cursor.any_of("VARCHAR", "CHAR")
        return "MEDIUMBLOB" if cursor.accept("VARBINARY") else "MEDIUMTEXT"
    if name in ("CHAR", "CHARACTER", "NCHAR"):
        return "VARCHAR" if cursor.accept("VARYING") else "CHAR"
    cursor.accept("PRECISION")
    return name


def _default(cursor: _Cursor) -> tuple[Token, ...]:
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
