"""What a flow file says of a Cassandra target, and the tables there: how they are called, made, and given more columns."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from string import Formatter
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import Field, field_validator

from headrace.errors import ConfigError, RetryableError
from headrace.model import Component, Duration
from headrace.on_change import OnChange
from headrace.sinks.cassandra.columns import converted, default, selected
from headrace.sinks.cassandra.session import CassandraSession, SessionConfig
from headrace.sinks.growing import Record, Records
from headrace.ums.schema import TableSchema
from headrace.ums.system_columns import USUAL, SystemColumns

SHIFT = 1 << 62
PAGE = 2000
_NAMES = ("type", "source", "schema", "table")
_NAME_LENGTH = 48
_LOCK, _LOCK_S = "lock", 60
RECORDS, POSITIONS = "headrace_records", "headrace_positions"
_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,47}$"


class CassandraConfig(Component, SessionConfig):
    """Delivers into tables of a Cassandra keyspace."""

    type: Literal["cassandra"]
    keyspace: Annotated[str, Field(pattern=_NAME)]
    """The keyspace of the tables."""
    replication: dict[str, int] | None = None
    """Data center -> copies, ``{dc1: 3}``: the keyspace is made with it when it is not there; it must be there when left out."""
    table: str = "{schema}_{table}"
    """The name of a table; may use {type}, {source}, {schema} and {table}, of which small letters, digits and _ are left as they are."""
    partition: dict[str, list[str]] = Field(default_factory=dict)
    """Key columns by which rows lie together, where that is not the whole key: ``{shop.items: [order_id]}``."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a deleted row stays with `_is_active_` = 0. hard: Cassandra removes it."""
    tombstones: Annotated[Duration, Field(ge=0)] = 10 * 86400.0
    """`gc_grace_seconds` of tables that are made: a hard delete counts so long against older changes."""
    system_columns: SystemColumns = USUAL
    """What the columns beside those of the source are called; set by the flow's `system_columns`."""
    on_change: OnChange = OnChange()
    """What becomes of columns when they change at the source; set by the flow's `on_change`."""

    @field_validator("table")
    @classmethod
    def _is_pattern(cls, table: str) -> str:
        try:
            names = {name for _, name, _, _ in Formatter().parse(table) if name is not None}
        except ValueError:
            names = {""}
        if names - set(_NAMES):
            raise ValueError(f"'{table}' may use {{type}}, {{source}}, {{schema}} and {{table}}")
        return table


class Tables(Records):
    """The tables of a flow, and those of headrace's own."""

    def __init__(self, config: CassandraConfig, session: CassandraSession) -> None:
        self._config = config
        self._session = session
        self._is_open = False
        self._system = dict(zip(config.system_columns.of_rows, ("bigint", "timestamp", "tinyint"), strict=True))
        self._texts: dict[str, str] = {}
        """Name of a table -> its record as it was read."""

    def open(self) -> None:
        """Makes keyspace and headrace's own tables, where they are not there."""
        if self._is_open:
            return
        if not self._has_keyspace():
            self.must_have_keyspace()
            copies = "".join(
                f", '{name.replace(chr(39), chr(39) * 2)}': {count}"
                for name, count in (self._config.replication or {}).items()
            )
            self._session.run(
                f"CREATE KEYSPACE IF NOT EXISTS {quoted(self._config.keyspace)}"
                f" WITH replication = {{'class': 'NetworkTopologyStrategy'{copies}}}"
            )
        self._session.use_keyspace()
        there = self._columns_of(RECORDS), self._columns_of(POSITIONS)
        for name, columns in zip((RECORDS, POSITIONS), there, strict=True):
            if not columns:
                self._session.run(f"CREATE TABLE IF NOT EXISTS {name} (name text PRIMARY KEY, text text)")
        self._is_open = True

    def must_have_keyspace(self) -> None:
        """ConfigError when the keyspace is not there and is not to be made."""
        if not self._has_keyspace() and self._config.replication is None:
            raise ConfigError(
                f"there is no keyspace '{self._config.keyspace}'",
                fix="create it, or say how many copies it is to have, `replication: {DATA_CENTER: 3}`",
            )

    def name(self, table: TableSchema) -> str:
        """What statements call the table."""
        return quoted(self._name(table))

    def refuse_partition(self, table: TableSchema) -> None:
        """ConfigError when `partition` names what is not in the key."""
        for name in self._partition(table):
            if name not in table.key:
                raise ConfigError(
                    f"`partition` names the column '{name}', and the key of {table.namespace.all_versions} is"
                    f" ({', '.join(table.key)})",
                    fix="name columns of the key",
                )

    # --- records

    def read(self, table: TableSchema) -> Record:
        name = self._name(table)
        found = self._session.run(f"SELECT text FROM {RECORDS} WHERE name = ?", (name,))
        if not found:
            self._texts.pop(name, None)
            return Record()
        self._texts[name] = found[0].text
        return Record.from_json(found[0].text)

    def replace(self, table: TableSchema, old: Record, new: Record) -> bool:
        name, text = self._name(table), new.to_json()
        if name in self._texts:
            done = self._session.run(
                f"UPDATE {RECORDS} SET text = ? WHERE name = ? IF text = ?", (text, name, self._texts[name])
            )
        else:
            done = self._session.run(f"INSERT INTO {RECORDS} (name, text) VALUES (?, ?) IF NOT EXISTS", (name, text))
        return bool(done[0][0])

    def grow(self, table: TableSchema, old: Record, new: Record) -> bool:
        # What others have planned meanwhile may have columns of the same names.
        with self._lock():
            if self.read(table) != old:
                return False
            self._add_columns(table, new)
            return self.replace(table, old, new)

    def _add_columns(self, table: TableSchema, record: Record) -> None:
        there = self.refuse_columns(table, record)
        if not there:
            self._create(table, record)
            return
        for name, kind in (record.fields() | self._system).items():
            if name not in there:
                self._session.run(f"ALTER TABLE {self.name(table)} ADD {quoted(name)} {kind}")

    def known(self, table: TableSchema) -> Record:
        """The record of a table, where headrace's own tables are; nothing is made."""
        if not self._columns_of(RECORDS):
            return Record()
        self._session.use_keyspace()
        return self.read(table)

    def refuse_columns(self, table: TableSchema, record: Record) -> Mapping[str, str]:
        """Column -> type of the table as it is; ConfigError when it does not take the fields of a record."""
        there = self._columns_of(self._name(table))
        key = {record.places[identity].name for identity in record.key}
        for name, kind in (record.fields() | self._system).items():
            if there and there.get(name, kind) != kind:
                raise ConfigError(
                    f"the table {self.name(table)} has a column {quoted(name)} of type {there[name]}, which is to be {kind}",
                    fix="drop it, or give the table another name by `table`",
                )
        if there and (found := self._key_of(self._name(table))) != key:
            raise ConfigError(
                f"the key of the table {self.name(table)} is ({', '.join(sorted(found))}), and rows are to be kept by ({', '.join(sorted(key))})",
                fix="drop it, or give the table another name by `table`",
            )
        return there

    def fill(self, table: TableSchema, record: Record) -> None:
        key = [record.places[identity] for identity in record.key]
        sources = [(fill.source, record.fields()[fill.source]) for fill in record.fills if fill.source is not None]
        columns = [
            quoted(self._config.system_columns.id),
            *(selected(quoted(p.name), p.kind) for p in key),
            *(selected(quoted(n), k) for n, k in sources),
        ]
        insert = insert_into(self.name(table), [*(place.name for place in key), *(fill.name for fill in record.fills)])
        constants = {
            fill.name: default(
                record.places[fill.identity].default,
                record.places[fill.identity].kind,
                record.types.get(fill.identity, ""),
            )
            for fill in record.fills
            if fill.source is None
        }
        for page in self._session.pages(f"SELECT {', '.join(columns)} FROM {self.name(table)}", PAGE):
            rows = []
            for row in page:
                held = dict(zip((name for name, _ in sources), row[1 + len(key) :], strict=True))
                keys = [
                    converted(value, place.kind, place.kind)
                    for place, value in zip(key, row[1 : 1 + len(key)], strict=True)
                ]
                values = [
                    constants[fill.name] if fill.source is None
                    else converted(held[fill.source], record.fields()[fill.source], record.places[fill.identity].kind)
                    for fill in record.fills
                ]  # fmt: skip
                rows.append([*keys, *values, row[0] + SHIFT])
            self._session.write(insert, rows)

    # --- the schema

    def _create(self, table: TableSchema, record: Record) -> None:
        key = [record.places[identity].name for identity in record.key]
        named = [record.places[table.column(name).identity].name for name in self._partition(table)]
        first, rest = named or key, [name for name in key if named and name not in named]
        columns = [f"{quoted(name)} {kind}" for name, kind in (record.fields() | self._system).items()]
        parts = [f"({', '.join(map(quoted, first))})", *map(quoted, rest)]
        self._session.run(
            f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({', '.join(columns)}, PRIMARY KEY ({', '.join(parts)}))"
            f" WITH gc_grace_seconds = {round(self._config.tombstones)}"
        )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One at a time: a cluster whose tables are changed through two nodes at once may end with two of a name."""
        holder, give_up_at = uuid4().hex, time.monotonic() + 2 * _LOCK_S
        take = f"INSERT INTO {RECORDS} (name, text) VALUES (?, ?) IF NOT EXISTS USING TTL {_LOCK_S}"
        while not self._session.run(take, (_LOCK, holder))[0][0]:
            if time.monotonic() > give_up_at:
                raise RetryableError("others are changing tables of the keyspace", fix="wait until that is done")
            time.sleep(0.1)
        try:
            yield
        finally:
            self._session.run(f"DELETE FROM {RECORDS} WHERE name = ? IF text = ?", (_LOCK, holder))

    def _has_keyspace(self) -> bool:
        statement = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?"
        return bool(self._session.run(statement, (self._config.keyspace,)))

    def _columns_of(self, table: str) -> dict[str, str]:
        """Column -> type; nothing when there is no such table."""
        statement = "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
        return {row.column_name: row.type for row in self._session.run(statement, (self._config.keyspace, table))}

    def _key_of(self, table: str) -> set[str]:
        statement = "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
        rows = self._session.run(statement, (self._config.keyspace, table))
        return {row.column_name for row in rows if row.kind in ("partition_key", "clustering")}

    def _partition(self, table: TableSchema) -> list[str]:
        return self._config.partition.get(f"{table.namespace.schema}.{table.namespace.table}", [])

    def _name(self, table: TableSchema) -> str:
        names = {name: _part(getattr(table.namespace, name)) for name in _NAMES}
        name = self._config.table.format(**names)
        if not 0 < len(name) <= _NAME_LENGTH or name in (RECORDS, POSITIONS):
            raise ConfigError(
                f"the table of {table.namespace.all_versions} would be called '{name}', and names have up to {_NAME_LENGTH} characters",
                fix="write a `table` for it that is a name",
            )
        return name


def insert_into(table: str, names: Iterable[str]) -> str:
    names = list(names)
    columns, marks = ", ".join(map(quoted, names)), ", ".join("?" * len(names))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks}) USING TIMESTAMP ?"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _part(text: str) -> str:
    """A name as a part of a table's name, which has letters, digits and _ only."""
    return "".join(
        sign if sign.isascii() and (sign.isalnum() or sign == "_") else f"_{ord(sign):x}" for sign in text.casefold()
    )
