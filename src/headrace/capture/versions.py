"""The versions of a table by position, and what its columns are known by in all of them: pure, without I/O.

How they are kept::

    {"format": 1,
     "tables": [{"schema": "shop", "table": "orders",
                 "versions": [{"from_id": …, "described_id": …, "told_id": …, "arrow": base64 of the version's Arrow schema}, …],
                 "alters": [{"id": …, "dropped": […], "renamed": [[old, new], …], "added": [[name, default or null], …],
                             "sql": …, "place": …}, …],
                 "presence": [[id, is there], …], "replaced_at": …, "left_out": …}],
     "definitions": …}

    described_id   the position at which the version was first seen as `arrow` describes it
    told_id        the first row in the source's log, or where the log ended when it was learned without one; null when nobody was told
                   of it yet (a table that was loaded may have rows nevertheless)
    presence       where the table was created, dropped or renamed
    replaced_at    the newest statement that put another table, rows and all, under the name; null when there was none
    left_out       whether `tables` did not name it when capture last began
    definitions    what tables are where the log does not describe them (definitions.py)
"""

from __future__ import annotations

import base64
import bisect
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.ums.change import Statement
from headrace.ums.schema import Column, TableSchema

Columns = dict[str, tuple[str | None, str | None]]
"""Folded name -> (identity, None when it is new; initial default)."""


@dataclass(frozen=True, slots=True)
class Version:
    """A shape, from the position on at which it was first seen."""

    from_id: int
    described_id: int
    schema: TableSchema
    told_id: int | None = None


@dataclass(frozen=True, slots=True)
class Alter:
    """What one ALTER did to columns, all at once. Names are folded: the server does not tell A from a."""

    id: int
    dropped: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str | None], ...]
    statement: Statement

    def after(self, columns: Columns) -> Columns:
        """What is known of each column after it."""
        names = dict(self.renamed)
        kept = {names.get(name, name): known for name, known in columns.items() if name not in self.dropped}
        return {**kept, **{name: (None, default) for name, default in self.added}}


@dataclass(slots=True)
class Table:
    """All that is kept of one table."""

    versions: list[Version] = field(default_factory=list)
    alters: list[Alter] = field(default_factory=list)
    presence: list[tuple[int, bool]] = field(default_factory=list)
    replaced_at: int | None = None
    is_left_out: bool = False
    """It was not captured when capture last began."""

    def at(self, id_: int) -> Version | None:
        """The version at a position; before the first one, the first."""
        return self.versions[self.place(id_)] if self.versions else None

    def is_seen(self, id_: int) -> bool:
        """Whether the log, or the source, has told of the table before a position. A version that is known from an earlier reading, which went
        further, does not count."""
        return bool(self.versions) and self.versions[0].from_id <= id_

    def place(self, id_: int) -> int:
        """Which version that is."""
        return max(bisect.bisect_right(self.versions, id_, key=lambda version: version.from_id), 1) - 1

    def altered(self, id_: int) -> list[Alter]:
        """The statements between the version that holds at a position and the position."""
        version = self.at(id_)
        return [alter for alter in self.alters if version is not None and version.from_id < alter.id < id_]

    def columns_at(self, id_: int) -> Columns:
        """The columns that the table has just before a position, as far as statements tell."""
        version = self.at(id_)
        if version is None:
            return {}
        columns: Columns = {c.name.casefold(): (c.identity, c.initial_default) for c in version.schema.columns}
        for alter in self.altered(id_):
            columns = alter.after(columns)
        return columns

    def takes(self, id_: int, *, needs_version: bool = True) -> bool:
        """Whether a statement is new: behind the start of the newest version, and not taken in before."""
        newest = self.versions[-1].from_id if self.versions else id_ if needs_version else id_ - 1
        return newest < id_ and not any(alter.id >= id_ for alter in self.alters[-1:])

    def is_there(self, id_: int) -> bool:
        """Whether the table is there just before a position, as far as statements tell."""
        place = bisect.bisect_left(self.presence, id_, key=lambda entry: entry[0])
        return self.presence[place - 1][1] if place else self.is_seen(id_)

    def set_presence(self, id_: int, *, is_there: bool) -> bool:
        """From a position on; False when that is known. One statement may take a table away and put another in its place."""
        if (id_, is_there) in self.presence[-1:] or any(known > id_ for known, _ in self.presence[-1:]):
            return False
        if self.presence and self.presence[-1][0] == id_:
            del self.presence[-1]
        self.presence.append((id_, is_there))
        return True

    def set_replaced(self, id_: int) -> bool:
        """By a statement; False when that is known."""
        if self.replaced_at is not None and self.replaced_at >= id_:
            return False
        self.replaced_at = id_
        return True

    def identified(self, described: TableSchema, version: int, id_: int) -> TableSchema:
        """`described` as that version, its columns known by what they were in the versions before."""
        known = self.columns_at(id_)
        taken: set[str] = set()
        if any(known.get(column.name.casefold(), (None,))[0] is None for column in described.columns):
            before = [
                one.schema for one in self.versions if one.schema.namespace.version <= version and one.from_id < id_
            ]
            taken = {column.identity.casefold() for schema in before for column in schema.columns}
        return replace(
            described.with_version(version),
            columns=tuple(_identified(column, known, taken, id_) for column in described.columns),
        )


def _identified(column: Column, known: Columns, taken: set[str], id_: int) -> Column:
    identity, default = known.get(column.name.casefold(), (None, None))
    if identity is None:
        identity = f"{column.name}@{id_}" if column.name.casefold() in taken else column.name
    return replace(column, initial_default=default, born_as="" if identity == column.name else identity)


def encoded(tables: dict[tuple[str, str], Table]) -> dict[str, Any]:
    """As JSON."""

    def version(one: Version) -> dict[str, Any]:
        arrow = base64.b64encode(one.schema.arrow_schema().serialize().to_pybytes()).decode()
        ids = {"from_id": one.from_id, "described_id": one.described_id, "told_id": one.told_id}
        return {**ids, "arrow": arrow}

    def alter(one: Alter) -> dict[str, Any]:
        statement = {"sql": one.statement.sql, "place": one.statement.place}
        return {"id": one.id, "dropped": one.dropped, "renamed": one.renamed, "added": one.added, **statement}

    def table(schema: str, name: str, known: Table) -> dict[str, Any]:
        versions, alters = [version(one) for one in known.versions], [alter(one) for one in known.alters]
        return {
            "schema": schema,
            "table": name,
            "versions": versions,
            "alters": alters,
            "presence": known.presence,
            "replaced_at": known.replaced_at,
            "left_out": known.is_left_out,
        }

    return {"format": 1, "tables": [table(schema, name, known) for (schema, name), known in tables.items()]}


def decoded(content: dict[str, Any]) -> dict[tuple[str, str], Table]:
    """The inverse of `encoded`; errors of many kinds when it is not that."""
    if content["format"] != 1:
        raise ValueError(f"format {content['format']} is not known")
    tables = {}
    for found in content["tables"]:
        versions = [
            Version(
                one["from_id"],
                one["described_id"],
                TableSchema.from_arrow(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one["arrow"])))),
                one["told_id"],
            )
            for one in found["versions"]
        ]
        alters = [
            Alter(
                one["id"],
                tuple(one["dropped"]),
                tuple((old, new) for old, new in one["renamed"]),
                tuple((name, default) for name, default in one["added"]),
                Statement(one["sql"], one["place"]),
            )
            for one in found["alters"]
        ]
        presence = [(id_, is_there) for id_, is_there in found["presence"]]
        known = Table(versions, alters, presence, found["replaced_at"], found["left_out"])
        tables[found["schema"], found["table"]] = known
    return tables
