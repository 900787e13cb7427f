"""Columns and keys as CREATE TABLE and ALTER TABLE define them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.capture.tokens import END, Cursor, Token, split
from headrace.codec.binlog import DefinedColumn

PRIMARY = "PRIMARY"


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as a statement defines it."""

    name: str
    type: str
    """The type's name in upper case, without arguments."""
    arguments: tuple[str, ...] = ()
    unsigned: bool = False
    charset: str | None = None
    """None: the statement does not say it, the table's holds."""
    nullable: bool = True
    default: tuple[Token, ...] | None = None
    """The tokens of DEFAULT; None without DEFAULT."""
    computed: bool = False
    """AUTO_INCREMENT or GENERATED: the server gives each row its own value."""
    key: KeyDefinition | None = None
    """The key that the column's own PRIMARY KEY or UNIQUE makes."""
    after: str | None = None
    """The column behind which it is put; empty: FIRST; None: the statement does not say it."""
    ends_row: bool = False
    """GENERATED ALWAYS AS ROW END."""
    compressed: bool = False
    """MariaDB's COMPRESSED."""

    def defined(self, charset: str | None) -> DefinedColumn:
        """As the decoder needs it, in a table of this character set."""
        type_ = _SYNONYMS.get(self.type, self.type)
        labels = tuple(label.rstrip(" ") for label in self.arguments) if type_ in ("ENUM", "SET") else ()
        return DefinedColumn(self.name, type_.lower(), self.unsigned, self._charset(type_, charset), labels)

    def _charset(self, type_: str, default: str | None) -> str | None:
        if type_ in _TEXTS:
            return self.charset or default
        if type_ == "JSON":
            return "utf8mb4"
        return "binary" if type_.endswith(("BINARY", "BLOB")) else None


@dataclass(frozen=True, slots=True)
class KeyDefinition:
    """A key of any kind. `name` is empty where the server has to make one."""

    name: str
    columns: tuple[str, ...]
    tells_rows_apart: bool
    """The primary key, or UNIQUE over whole columns."""


_SYNONYMS = {
    **dict.fromkeys(["BOOL", "BOOLEAN", "INT1"], "TINYINT"),
    "INT2": "SMALLINT",
    **dict.fromkeys(["INT3", "MIDDLEINT"], "MEDIUMINT"),
    **dict.fromkeys(["INTEGER", "INT4"], "INT"),
    **dict.fromkeys(["INT8", "SERIAL"], "BIGINT"),
    "FLOAT4": "FLOAT",
    **dict.fromkeys(["REAL", "FLOAT8"], "DOUBLE"),
    **dict.fromkeys(["DEC", "NUMERIC", "FIXED"], "DECIMAL"),
    "VARCHARACTER": "VARCHAR",
    "GEOMCOLLECTION": "GEOMETRYCOLLECTION",
}
_TEXTS = frozenset(["CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"])
_NATIONAL = {"NCHAR": "CHAR", "NVARCHAR": "VARCHAR"}
_ATTRIBUTE_CHARSETS = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": "binary"}


def charset_of_collation(collation: str) -> str | None:
    """The character set whose name a collation begins with; None for one of several sets (MariaDB's ``uca1400_ai_ci``)."""
    name = collation.lower().partition("_")[0]
    return None if name in ("uca1400", "default") else name


def read_column(cursor: Cursor) -> ColumnDefinition:
    """The column whose definition fills the rest."""
    name = cursor.name()
    type_, charset = _type(cursor)
    arguments = tuple(_argument(token) for token in cursor.group() if not token.is_mark(",")) if _opens(cursor) else ()
    found = _Attributes(serial=type_ == "SERIAL", charset=charset)
    while cursor.next is not END:
        found.read(cursor)
    return ColumnDefinition(
        name,
        type_,
        arguments,
        found.unsigned,
        found.charset or found.collation_charset,
        found.nullable,
        found.default,
        found.computed,
        KeyDefinition(found.key, (name,), tells_rows_apart=True) if found.key is not None else None,
        found.after,
        found.ends_row,
        found.compressed,
    )


def _opens(cursor: Cursor) -> bool:
    return cursor.next.is_mark("(")


def _argument(token: Token) -> str:
    return bytes.fromhex(token.text).decode(errors="replace") if token.kind == "hex" else token.text


def _type(cursor: Cursor) -> tuple[str, str | None]:
    """A type's name, and the character set that its name implies."""
    charset = "utf8mb3" if cursor.accept("NATIONAL") else None
    name = cursor.name().upper()
    if name == "LONG":
        cursor.any_of("VARCHAR", "CHAR", "VARCHARACTER")
        return ("MEDIUMBLOB" if cursor.accept("VARBINARY") else "MEDIUMTEXT"), charset
    if name in _NATIONAL:
        name, charset = _NATIONAL[name], "utf8mb3"
    if name in ("CHAR", "CHARACTER"):
        name = "VARCHAR" if cursor.any_of("VARYING", "VARCHAR", "VARCHARACTER") else "CHAR"
    cursor.accept("PRECISION")
    return name, charset


class _Attributes:
    """What stands behind a column's type, one attribute after the other."""

    def __init__(self, *, serial: bool, charset: str | None) -> None:
        self.unsigned = self.computed = serial
        self.nullable = not serial
        self.charset = charset
        self.collation_charset: str | None = None
        self.default: tuple[Token, ...] | None = None
        self.key: str | None = "" if serial else None
        self.after: str | None = None
        self.ends_row = self.compressed = False

    def read(self, cursor: Cursor) -> None:
        if _opens(cursor):
            cursor.group()
        elif cursor.accept("NOT", "NULL"):
            self.nullable = False
        elif cursor.accept("SET", "DEFAULT"):  # of REFERENCES … ON DELETE
            pass
        elif cursor.accept("DEFAULT"):
            self.default = _default(cursor)
        elif cursor.any_of("UNSIGNED", "ZEROFILL"):
            self.unsigned = True
        elif cursor.accept("COMPRESSED"):
            self.compressed = True
        elif cursor.any_of("AUTO_INCREMENT", "GENERATED", "AS"):
            self.computed = True
            if cursor.accept("ROW", "END"):
                self.nullable, self.ends_row = False, True
            elif cursor.accept("ROW", "START"):
                self.nullable = False
        elif not self._key(cursor) and not self._place(cursor) and not self._charset(cursor):
            cursor.accept("COMMENT")
            cursor.take()

    def _key(self, cursor: Cursor) -> bool:
        if cursor.any_of("PRIMARY", "KEY"):
            cursor.accept("KEY")
            self.nullable, self.key = False, PRIMARY
        elif cursor.accept("UNIQUE"):
            cursor.accept("KEY")
            self.key = self.key or ""
        elif cursor.accept("SERIAL", "DEFAULT", "VALUE"):
            self.nullable, self.computed, self.key = False, True, self.key or ""
        else:
            return False
        return True

    def _place(self, cursor: Cursor) -> bool:
        if cursor.accept("FIRST"):
            self.after = ""
        elif cursor.accept("AFTER"):
            self.after = cursor.name()
        else:
            return False
        return True

    def _charset(self, cursor: Cursor) -> bool:
        word = cursor.next.text.upper() if cursor.next.kind == "word" else ""
        charset = read_charset(cursor)
        if charset is not None:
            self.charset = charset
        elif cursor.accept("COLLATE"):
            cursor.mark("=")
            self.collation_charset = charset_of_collation(cursor.name())
        elif word in _ATTRIBUTE_CHARSETS:
            cursor.take()
            self.charset = _ATTRIBUTE_CHARSETS[word]
        else:
            return False
        return True


def read_charset(cursor: Cursor) -> str | None:
    """The name in CHARACTER SET [=] NAME; None, and nothing read, when something else comes."""
    if not (cursor.accept("CHARACTER", "SET") or cursor.accept("CHAR", "SET") or cursor.accept("CHARSET")):
        return None
    cursor.mark("=")
    name = cursor.name().lower()
    return None if name == "default" else name


def default_charset(cursor: Cursor) -> str | None:
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


def _default(cursor: Cursor) -> tuple[Token, ...]:
    """The tokens of a default: a literal with its sign or introducer, a function with its arguments, or a group in parentheses."""
    start = cursor.at
    while cursor.next.is_mark("-") or cursor.next.is_mark("+"):
        cursor.take()
    if _opens(cursor):
        cursor.group()
        return tuple(cursor.tokens[start : cursor.at])
    first = cursor.take()
    if first.kind == "word" and _opens(cursor):
        cursor.group()
    elif first.kind == "word" and cursor.next.kind in ("hex", "bits"):
        cursor.take()
    while first.kind in ("word", "string") and cursor.next.kind == "string":
        cursor.take()
    return tuple(cursor.tokens[start : cursor.at])


# --- keys

_KEY_WORDS = ("CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "PRIMARY", "SPATIAL", "UNIQUE", "CHECK")
_INDEX = ("INDEX", "KEY")


def begins_no_column(cursor: Cursor) -> bool:
    """Whether a key, a constraint or a period comes next in a list of columns and keys."""
    if cursor.next.is_word("PERIOD"):
        return cursor.peek(1).is_word("FOR")
    return any(cursor.next.is_word(word) for word in _KEY_WORDS)


def read_key(cursor: Cursor) -> KeyDefinition | None:
    """The key whose definition fills the rest; None for foreign keys, checks and periods."""
    name = ""
    if cursor.accept("CONSTRAINT") and not any(cursor.next.is_word(word) for word in _KEY_WORDS):
        name = cursor.name()
    if cursor.any_of("FOREIGN", "CHECK", "PERIOD"):
        return None
    primary = cursor.accept("PRIMARY")
    unique = not primary and cursor.accept("UNIQUE")
    cursor.any_of("FULLTEXT", "SPATIAL")
    cursor.any_of(*_INDEX)
    cursor.accept("IF", "NOT", "EXISTS")
    if not _opens(cursor) and not (cursor.next.is_word("USING") or cursor.next.is_word("TYPE")):
        name = cursor.name()
    if cursor.any_of("USING", "TYPE"):
        cursor.take()
    return key_of_parts(PRIMARY if primary else name, cursor, unique=unique)


def key_of_parts(name: str, cursor: Cursor, *, unique: bool) -> KeyDefinition:
    """A key over the columns in the parentheses that open here."""
    columns, whole = [], True
    for part in split(cursor.group()):
        inner = Cursor(part, cursor.schema)
        if _opens(inner):
            whole = False
            continue
        columns.append(inner.name())
        whole = whole and not _opens(inner)
    return KeyDefinition(name, tuple(columns), name == PRIMARY or (unique and whole))
