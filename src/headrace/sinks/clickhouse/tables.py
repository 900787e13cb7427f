"""The tables of a ClickHouse target: how they are made and given more columns, and where their records are kept.

ClickHouse has no transactions and no row that is replaced by compare-and-set, but a table is made once: of two CREATE TABLE of one name the
second one fails. So a record (growing.py) is the comment of a table without columns of its own::

    headrace_record.orders.7    ENGINE = Null, COMMENT '{"number": 3, …}'     the seventh record of the table orders

The record is that of the largest number. Who replaces number 7 makes number 8, and has lost when it is there. Smaller ones are dropped
behind that; so somebody who has slept long may make a number again that was dropped. He finds then that a larger one is there, as
everybody else does, who takes the largest: the largest is never dropped, and there is always one.

The columns of a record are added behind it, by whoever reads it before he writes by it. Two of them add the same, and ADD COLUMN IF
NOT EXISTS is the same twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Annotated, Any, Literal
from urllib.parse import quote

import pyarrow as pa
from clickhouse_connect.driver.exceptions import DatabaseError
from pydantic import Field, field_validator

from headrace.errors import ConfigError
from headrace.model import Component, Duration
from headrace.on_change import OnChange
from headrace.sinks.clickhouse.columns import TIME, converted, declared, literal, quoted_text
from headrace.sinks.clickhouse.server import Server, ServerConfig
from headrace.sinks.growing import Record, Records
from headrace.ums.schema import TableSchema
from headrace.ums.system_columns import USUAL, SystemColumns

POSITIONS = "headrace_positions"
_RECORD = "headrace_record"
_LONGEST_FILE = 200
"""Bytes of a name as ClickHouse writes it in the names of files, which have 255 and more in them."""
_TABLE_ALREADY_EXISTS = 57
_SAFE = "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
"""Rows are on the disk before the position that speaks of them is."""
_NAMES = {"type", "source", "schema", "table"}


class ClickHouseConfig(Component, ServerConfig):
    """Delivers into tables of a ClickHouse database."""

    type: Literal["clickhouse"]
    table: str = "{table}"
    """Name of the target table. May use {type}, {source}, {schema}, {table}."""
    delete: Literal["soft"] = "soft"
    """A deleted row stays with `_is_active_` = 0: ClickHouse removes no row in a way that an older change respects."""
    commit_interval: Annotated[Duration, Field(ge=0)] = 1.0
    """How long changes are gathered. Each commit makes a part of the table, which ClickHouse merges later."""
    batch_rows: Annotated[int, Field(ge=1)] = 200_000
    """How many rows are gathered at most before they are sent."""
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
        if names - _NAMES or not table:
            raise ValueError(f"'{table}' may use {{type}}, {{source}}, {{schema}} and {{table}}")
        return table


class Tables(Records):
    """The tables of a flow, and their records."""

    def __init__(self, config: ClickHouseConfig, server: Server) -> None:
        self._config = config
        self._server = server
        self._system = dict(zip(config.system_columns.of_rows, ("Int64", TIME, "Int8"), strict=True))
        self._numbers: dict[str, int] = {}
        """Name of a table -> the number of its record that was read."""

    def name(self, table: TableSchema) -> str:
        """The name of a target table; ConfigError when ClickHouse cannot have it."""
        space = table.namespace
        name = self._config.table.format(type=space.type, source=space.source, schema=space.schema, table=space.table)
        if not name or "\0" in name or len(quote(name, safe="")) > _LONGEST_FILE or name.startswith("headrace_"):
            raise ConfigError(
                f"ClickHouse cannot have the table name {name!r}: names have 1 to {_LONGEST_FILE} letters and digits, others count"
                " three for each byte, and do not begin with headrace_",
                fix="map the table to another name with `table`",
            )
        return name

    def ensure(self, table: TableSchema, record: Record) -> None:
        """Makes the table, or those columns of a record that it has not."""
        name, wanted = self.name(table), self._wanted(record)
        there = self.refuse_columns(table, record)
        if not there:
            self._create(name, wanted, [record.places[identity].name for identity in record.key])
            return
        added = {fill.name: record.places[fill.identity] for fill in record.fills if fill.source is None}
        for field, kind in wanted.items():
            if field not in there:
                default = f" DEFAULT {literal(added[field].default, added[field].kind)}" if field in added else ""
                self._server.run(f"ALTER TABLE {quoted(name)} ADD COLUMN IF NOT EXISTS {quoted(field)} {kind}{default}")

    def refuse_columns(self, table: TableSchema, record: Record) -> Mapping[str, str]:
        """Column -> type of the table as it is; ConfigError when it does not take the fields of a record."""
        name = self.name(table)
        there = self._columns_of(name)
        for field, kind in self._wanted(record).items():
            if there.get(field, kind) != kind:
                raise ConfigError(
                    f"the table {name} has a column '{field}' of type {there[field]}, which is to be {kind}",
                    fix="drop the column, or give the table another name by `table`",
                )
        return there

    def _wanted(self, record: Record) -> dict[str, str]:
        """Column -> type."""
        key = {record.places[identity].name for identity in record.key}
        return {field: declared(kind, in_key=field in key) for field, kind in record.fields().items()} | self._system

    def make_positions(self) -> None:
        """Makes the table of positions, where it is not there."""
        self._server.run(
            f"CREATE TABLE IF NOT EXISTS {POSITIONS} (flow String, topic String, part Int64, next_offset Int64,"
            " mark_id Int64, commit_ts_us Int64) ENGINE = ReplacingMergeTree(next_offset)"
            f" ORDER BY (flow, topic, part) {_SAFE}"
        )

    # --- records

    def read(self, table: TableSchema) -> Record:
        name = self.name(table)
        found = self._records_of(name)
        self._numbers[name] = max(found, default=0)
        return Record.from_json(found[self._numbers[name]]) if found else Record()

    def replace(self, table: TableSchema, old: Record, new: Record) -> bool:
        name = self.name(table)
        number = self._numbers[name] + 1
        try:
            self._server.run(
                f"CREATE TABLE {_record(name, number)} (nothing UInt8) ENGINE = Null COMMENT {quoted_text(new.to_json())}"
            )
        except DatabaseError as error:
            if error.code != _TABLE_ALREADY_EXISTS:
                raise
            return False
        there = self._records_of(name)
        for older in sorted(one for one in there if one < max(there)):
            self._server.run(f"DROP TABLE IF EXISTS {_record(name, older)}")
        return max(there) == number

    def grow(self, table: TableSchema, old: Record, new: Record) -> bool:
        if not self.replace(table, old, new):
            return False
        self.ensure(table, new)
        return True

    def fill(self, table: TableSchema, record: Record) -> None:
        """Defaults stand in the table's definition, for rows that have no such column; values that go over into a new column are changed in
        all parts that there are. Rows that were written by this record have nothing in the old one."""
        self.ensure(table, record)
        fields = record.fields()
        for fill in record.fills:
            if fill.source is not None:
                new, old = quoted(fill.name), quoted(fill.source)
                value = converted(old, fields[fill.source], record.places[fill.identity].kind)
                self._server.run(
                    f"ALTER TABLE {quoted(self.name(table))} UPDATE {new} = {value} WHERE isNull({new}) AND isNotNull({old})"
                )

    def _records_of(self, name: str) -> dict[int, str]:
        """Number -> record, of all that are there."""
        beginning = f"{_RECORD}.{name}."
        found = self._server.select(
            "SELECT name, comment FROM system.tables WHERE database = currentDatabase() AND engine = 'Null'"
            f" AND startsWith(name, {quoted_text(beginning)})"
        )
        ends = [(one.removeprefix(beginning), text) for one, text in _rows(found)]
        return {int(end): text for end, text in ends if end.isdecimal()}

    # --- the schema

    def _create(self, name: str, wanted: dict[str, str], key: list[str]) -> None:
        columns = ", ".join(f"{quoted(field)} {kind}" for field, kind in wanted.items())
        self._server.run(
            f"CREATE TABLE IF NOT EXISTS {quoted(name)} ({columns}) ENGINE = ReplacingMergeTree({quoted(self._config.system_columns.id)})"
            f" ORDER BY ({', '.join(map(quoted, key))}) {_SAFE}"
        )

    def _columns_of(self, name: str) -> dict[str, str]:
        """Column -> type; nothing when there is no such table. ConfigError when the table does not keep the newest change of a key."""
        there = _rows(
            self._server.select(
                "SELECT engine_full FROM system.tables"
                f" WHERE database = currentDatabase() AND name = {quoted_text(name)}"
            )
        )
        id_ = self._config.system_columns.id
        if there and ("Replacing" not in there[0][0] or id_ not in there[0][0].partition("ORDER BY")[0]):
            raise ConfigError(
                f"the table {name} is there with the engine {there[0][0].split(' ')[0]}, which does not keep the newest change of a key",
                fix=f"drop it, make it with ENGINE = ReplacingMergeTree({id_}), or give the table another name by `table`",
            )
        columns = "SELECT name, type FROM system.columns WHERE database = currentDatabase()"
        return dict(_rows(self._server.select(f"{columns} AND table = {quoted_text(name)}")))


def quoted(name: str) -> str:
    """A name as SQL."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _record(name: str, number: int) -> str:
    return quoted(f"{_RECORD}.{name}.{number}")


def _rows(found: pa.Table) -> list[Any]:
    return [tuple(row.values()) for row in found.to_pylist()]
