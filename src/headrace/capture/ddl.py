"""What a MySQL or MariaDB statement does to tables: what they are after it, and what it does to rows without row events.

`ddl_statements` reads it out of a statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.capture.columns import ColumnDefinition, KeyDefinition
from headrace.capture.tokens import Token
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
    place: str = ""
    """Where it stands, ``file:offset``."""

    @classmethod
    def of(cls, item: binlog.Ddl) -> Ddl:
        """As the decoder gives it."""
        place = f"{item.file}:{item.offset}"
        return cls(
            item.schema, item.sql, item.id, item.ts_us, item.started_us, item.time_zone, item.server_charset, place
        )


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

    @classmethod
    def unread(cls, schema: str, table: str, found: Sequence[Token]) -> Change:
        """What tokens that could not be read may do."""
        mentions = frozenset(token.text for token in found if token.kind in ("word", "name"))
        return cls(Effect.UNREAD, schema, table, mentions=mentions)

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
