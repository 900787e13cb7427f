"""What a flow file says of a Doris target, and the tables there: how they are called, made, and given more columns.

Records (growing.py) are kept in a table of headrace's own. Doris has no compare-and-set, but it takes a label once: revision n + 1 of a record is
loaded under a label that everybody makes of the record's name and n + 1. Of several writers one is the first, and each reads afterwards which.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from functools import cached_property
from string import Formatter
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import Field, field_validator

from headrace.errors import ConfigError, RetryableError
from headrace.model import Component, Duration
from headrace.on_change import OnChange
from headrace.sinks.doris.cluster import Load
from headrace.sinks.doris.columns import default, type_of
from headrace.sinks.doris.config import ClusterConfig
from headrace.sinks.doris.loads import Loads, json_headers, json_line
from headrace.sinks.doris.sequence import KeySequence
from headrace.sinks.doris.sql import Sql, literal, quoted
from headrace.sinks.growing import Record, Records
from headrace.ums.schema import TableSchema
from headrace.ums.system_columns import USUAL, SystemColumns

OWN = "headrace"
_SYSTEM_TYPES = ("BIGINT NOT NULL", "DATETIME(6) NULL", "TINYINT NULL")
_NAMES = ("type", "source", "schema", "table")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_COLUMN_CHARACTERS = 255
_VISIBLE_S = 60.0


class DorisConfig(Component, ClusterConfig):
    """Delivers into tables of Apache Doris."""

    type: Literal["doris"]
    database: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    """The database of the tables."""
    table: str = "{schema}_{table}"
    """The name of a table; may use {type}, {source}, {schema} and {table}, of which letters, digits and _ are left as they are."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a deleted row stays with `_is_active_` = 0. hard: Doris removes it, and forgets with a compaction that it was there."""
    replication: Annotated[int, Field(ge=1)] | None = None
    """`replication_num` of tables that are made; the cluster's own when left out."""
    buckets: Annotated[int, Field(ge=1)] | None = None
    """Buckets of tables that are made; AUTO when left out."""
    properties: dict[str, str] = Field(default_factory=dict)
    """More properties of tables that are made: ``{compression: zstd}``."""
    commit_interval: Annotated[Duration, Field(ge=0)] = 5.0
    """How long rows are gathered. Doris likes few loads: each one is a version of its table."""
    batch_rows: Annotated[int, Field(ge=1)] = 100_000
    """So many rows are loaded before that."""
    batch_bytes: Annotated[int, Field(ge=1 << 16)] = 64 << 20
    """How much of them one load has at most, about."""
    give_up_after: Annotated[Duration, Field(gt=0)] = 60.0
    """How long a load is tried before the flow begins again at its last position."""
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
    """The tables of a flow, and the one of headrace's own."""

    def __init__(self, config: DorisConfig, sql: Sql, loads: Loads) -> None:
        self._config = config
        self._sql = sql
        self._loads = loads
        self._system = dict(zip(config.system_columns.of_rows, _SYSTEM_TYPES, strict=True))
        self._instance: str | None = None
        """What tells our own table from one of the same name that was dropped."""
        self._revisions: dict[str, int] = {}
        self._hidden: set[str] = set()
        """Tables whose sequence column is hidden: loads must say what it gets."""
        self._made: dict[str, int] = {}
        """Table -> the number of the record that its columns are of."""

    def open(self) -> None:
        """Makes headrace's own table where it is not there."""
        if self._instance is not None:
            return
        self._sql.run(
            f"CREATE TABLE IF NOT EXISTS {quoted(OWN)} (`name` VARCHAR(1000) NOT NULL, `revision` BIGINT NOT NULL, `text` STRING NULL)"
            f" UNIQUE KEY(`name`) COMMENT {literal(f'headrace {uuid4().hex}')}"
            f" DISTRIBUTED BY HASH(`name`) BUCKETS 1 {self._properties('revision', {})}"
        )
        found = self._sql.run(
            "SELECT TABLE_COMMENT FROM information_schema.tables WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (self._config.database, OWN),
        )
        self._instance = str(found[0][0]).removeprefix("headrace ")

    def name(self, table: TableSchema) -> str:
        """What a table is called; ConfigError when Doris does not take it."""
        parts = {name: _part(getattr(table.namespace, name)) for name in _NAMES}
        name = self._config.table.format(**parts)
        if not _NAME.fullmatch(name) or name == OWN:
            raise ConfigError(
                f"the table of {table.namespace.all_versions} would be called '{name}', which Doris does not take",
                fix="write a `table` that begins with a letter and has up to 64 characters",
            )
        return name

    def place(self, table: TableSchema) -> str:
        """The name, as all names are written that are one table to this cluster."""
        name = self.name(table)
        return name.lower() if self._folds_names else name

    @cached_property
    def _folds_names(self) -> bool:
        found = self._sql.run("SHOW VARIABLES LIKE 'lower_case_table_names'")
        return any(value != "0" for _, value in found)

    # --- headrace's own table

    def kept(self, name: str) -> str | None:
        """The text under a name."""
        self.open()
        found = self._sql.run(f"SELECT `revision`, `text` FROM {quoted(OWN)} WHERE `name` = %s", (name,))
        self._revisions[name] = int(found[0][0] or 0) if found else 0
        return found[0][1] if found else None

    def keep(self, name: str, text: str) -> None:
        """Puts a text under a name, whoever else does. Needs a `kept` before."""
        self._revisions[name] += 1
        self._loads.send(OWN, _KEPT, json_line({"name": name, "revision": str(self._revisions[name]), "text": text}))

    def read(self, table: TableSchema) -> Record:
        text = self.kept(self._record_name(table))
        return Record() if text is None else Record.from_json(text)

    def known(self, table: TableSchema) -> Record:
        """The record of a table, where headrace's own table is; nothing is made."""
        return self.read(table) if self._columns(OWN) else Record()

    def refuse_table(self, table: TableSchema) -> None:
        """ConfigError when a table of that name is there that cannot be the target."""
        name = self.name(table)
        if self._columns(name):
            self._must_fit(name)

    def replace(self, table: TableSchema, old: Record, new: Record) -> bool:
        name = self._record_name(table)
        revision, text = self._revisions[name] + 1, new.to_json()
        unique = hashlib.sha256(f"{self._instance}\0{name}\0{revision}".encode()).hexdigest()[:32]
        body = json_line({"name": name, "revision": str(revision), "text": text})
        self._loads.send_as(Load(self._config.database, OWN, f"hr-record-{unique}", _KEPT, body))
        give_up_at = time.monotonic() + _VISIBLE_S
        while (found := self.kept(name)) is None or self._revisions[name] < revision:
            if time.monotonic() > give_up_at:
                raise RetryableError(
                    f"another writer's record of {table.namespace.all_versions} does not become visible",
                    fix="see the frontend's log",
                )
            time.sleep(0.05)
        return found == text

    def grow(self, table: TableSchema, old: Record, new: Record) -> bool:
        return self.replace(table, old, new)  # who writes by it, here or elsewhere, makes the columns before

    def _record_name(self, table: TableSchema) -> str:
        return f"table:{self.place(table)}"

    # --- tables

    def make(self, table: TableSchema, record: Record) -> None:
        """Makes a table, or the columns that it lacks."""
        name = self.name(table)
        if self._made.get(name) == record.number:
            return
        there = self._columns(name)
        if not there:
            self._create(name, record)
            there = self._columns(name)
        self._must_fit(name)
        for place in record.places.values():
            column = column_name(place.name)
            if column.lower() not in there:
                text = default(place.default, place.kind)
                told = "" if text is None else f" DEFAULT {literal(text)}"
                self._add(name, column, f"{type_of(place.kind)} NULL{told}")
        self._made[name] = record.number

    def fill(self, table: TableSchema, record: Record) -> None:
        # New columns have their defaults in old rows by ADD COLUMN; what another column had is written anew.
        self.make(table, record)
        moved = {column_name(fill.name): column_name(fill.source) for fill in record.fills if fill.source is not None}
        if moved:
            self.rewrite(table, record, "TRUE", moved)

    def rewrite(
        self, table: TableSchema, record: Record, where: str, moved: dict[str, str], said: dict[str, str] | None = None
    ) -> None:
        """Loads rows again. `moved`: columns -> those whose values they get where they have none; `said`: columns -> what all get."""
        columns = [*self._system, *(column_name(name) for name in record.fields())]
        name, said = self.name(table), said or {}
        extra = [one for one in said if one not in columns]
        headers = self.headers(name, [*columns, *extra])
        statement = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(name)} WHERE {where}"
        for page in self._sql.pages(statement):
            body = []
            for values in page:
                row = dict(zip(columns, values, strict=True))
                row |= {new: row[old] for new, old in moved.items() if row[new] is None}
                body.append(json_line(row | said))
            self._loads.send(name, headers, b"".join(body))

    def _create(self, name: str, record: Record) -> None:
        keys = [record.places[identity] for identity in record.key]
        rest = [place for identity, place in record.places.items() if identity not in record.key]
        columns = [f"{quoted(column_name(place.name))} {type_of(place.kind)} NOT NULL" for place in keys]
        columns += [f"{quoted(system)} {kind}" for system, kind in self._system.items()]
        columns += [f"{quoted(column_name(place.name))} {type_of(place.kind)} NULL" for place in rest]
        key = ", ".join(quoted(column_name(place.name)) for place in keys)
        self._sql.run(
            f"CREATE TABLE IF NOT EXISTS {quoted(name)} ({', '.join(columns)}) UNIQUE KEY({key})"
            f" DISTRIBUTED BY HASH({key}) BUCKETS {self._config.buckets or 'AUTO'} {self._properties(self._config.system_columns.id, self._config.properties)}"
        )

    def _properties(self, sequence: str, more: dict[str, str]) -> str:
        properties = {
            "enable_unique_key_merge_on_write": "true",
            "light_schema_change": "true",
            **({} if self._config.replication is None else {"replication_num": str(self._config.replication)}),
            **more,
            "function_column.sequence_col": sequence,
        }
        told = ", ".join(f'"{name}" = "{value}"' for name, value in properties.items())
        return f"PROPERTIES ({told})"

    def headers(self, name: str, columns: Sequence[str]) -> dict[str, str]:
        """Of a load for a table that was made or found."""
        return json_headers(columns, self._config.system_columns.id if name in self._hidden else None)

    def _must_fit(self, name: str) -> None:
        sequence = KeySequence.of(str(self._sql.run(f"SHOW CREATE TABLE {quoted(name)}")[0][1]))
        id_, place = self._config.system_columns.id, f"{self._config.database}.{name}"
        if not sequence.is_unique or (sequence.column != id_ and not sequence.holds_ids):
            raise ConfigError(
                f"the table {place} is there, and not one with a unique key and {id_} as its sequence column, or a hidden one that is BIGINT",
                fix="drop it, or give the table another name by `table`",
            )
        if missing := [one for one in self._system if one.lower() not in self._columns(name)]:
            raise ConfigError(
                f"the table {place} is there, and has no column {', '.join(missing)}",
                fix=f"add it ({', '.join(f'{one} {self._system[one]}' for one in missing)}), or give the table another name by `table`",
            )
        if sequence.type is not None:
            self._hidden.add(name)

    def _add(self, name: str, column: str, kind: str) -> None:
        try:
            self._sql.run(f"ALTER TABLE {quoted(name)} ADD COLUMN {quoted(column)} {kind}")
        except Exception:
            if column.lower() not in self._columns(name):  # else another writer has been faster
                raise
        give_up_at = time.monotonic() + _VISIBLE_S
        while column.lower() not in self._columns(name):
            if time.monotonic() > give_up_at:
                raise RetryableError(
                    f"the column {column} of {self._config.database}.{name} is being added",
                    fix="wait until SHOW ALTER TABLE COLUMN says FINISHED",
                )
            time.sleep(0.1)

    def _columns(self, name: str) -> set[str]:
        """Names in small letters; none when there is no such table."""
        found = self._sql.run(
            "SELECT COLUMN_NAME FROM information_schema.columns WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (self._config.database, name),
        )
        return {str(row[0]).lower() for row in found}


_KEPT = json_headers(["name", "revision", "text"])


def column_name(name: str) -> str:
    """The column for a field: letters, digits and _ as they are, all else by number."""
    plain = _part(name)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"


def refuse_columns(table: TableSchema) -> None:
    """ConfigError when two columns would have one name in Doris, which does not tell capitals from small letters."""
    seen: dict[str, str] = {}
    for column in table.columns:
        name = column_name(column.name).lower()
        if name in seen or len(name) > _COLUMN_CHARACTERS:
            raise ConfigError(
                f"the column '{column.name}' of {table.namespace.all_versions} would be called {name} in Doris, "
                + (f"as '{seen[name]}' is" if name in seen else "which is too long"),
                fix=f"rename it with `columns: {{rename: {{'{column.name}': …}}}}`, or leave it out with `drop`",
            )
        seen[name] = column.name


def _part(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == "_") else f"_{ord(sign):x}" for sign in text)
