"""Any database with a JDBC driver: what differs between databases is asked of the driver (DatabaseMetaData), the rest stands in products.py.

Columns change in the way that every database can: a new one takes the values and the name. Only types of key columns are changed in
place, by the standard's ALTER COLUMN … SET DATA TYPE, which not every database does for every type. Many databases end a transaction with
each change of a table, so who changes one holds a row of ``_headrace_locks`` by a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jpype
import pyarrow as pa

from headrace.errors import ConfigError, Finding, HeadraceError
from headrace.sinks.database.dialect import (
    PARAMETER,
    Address,
    Destination,
    Dialect,
    Row,
    StoredColumn,
    StoredTable,
    StoredType,
    Target,
)
from headrace.sinks.database.stored import create_table, definition_of
from headrace.sinks.jdbc.connection import Bound, Connection, rows_of, sorted_error
from headrace.sinks.jdbc.products import Product, product
from headrace.sinks.jdbc.rows import Upsert
from headrace.sinks.jdbc.types import Types, literal, texts
from headrace.ums.schema import ID, Column
from headrace.ums.values import Array

_NAMED = 5
"""So many columns a finding names."""
_LOCKS = Target("_headrace_locks", (Column("table_name", pa.utf8(), "varchar(200)"),), ("table_name",))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a database says of itself."""

    product: Product
    types: Types
    quote: str
    escape: str
    """Stands before ``_`` and ``%`` in patterns of names; empty where nothing does."""
    is_exact: bool
    """Names that differ by case are two."""
    longest_table: int
    longest_column: int
    catalog: str | None
    schema: str | None

    @classmethod
    def of(cls, connection: Connection) -> Facts:
        metadata = connection.java.getMetaData()
        name, quote = str(metadata.getDatabaseProductName()), str(metadata.getIdentifierQuoteString()).strip()
        if not quote or not metadata.supportsSavepoints():
            raise ConfigError(
                f"{name} has no {'savepoints' if quote else 'quoted names'}, which a target needs",
                fix="use another database, or a driver or a mode of it that has them",
            )
        return cls(
            found := product(name),
            Types.of(metadata, found),
            quote,
            str(metadata.getSearchStringEscape() or ""),
            bool(metadata.supportsMixedCaseQuotedIdentifiers()),
            int(metadata.getMaxTableNameLength()),
            int(metadata.getMaxColumnNameLength()),
            _text(connection.java.getCatalog()),
            _text(connection.java.getSchema()),
        )


class Jdbc(Dialect):
    """One database, by its driver."""

    driver_errors = (jpype.JException,)

    def __init__(
        self, url: str, jars: Sequence[Path], properties: Mapping[str, str], address: Address, schema: str | None
    ) -> None:
        super().__init__(address, schema)
        self._url = url
        self._jars = jars
        self._properties = properties
        self._connection: Connection | None = None
        self._known: Facts | None = None
        self._upserts: dict[Destination, Upsert] = {}

    # --- connection

    def open(self) -> None:
        if self._connection is None:
            self._connection = Connection(self._url, self._jars, self._properties)

    @property
    def _open(self) -> Connection:
        self.open()
        assert self._connection is not None
        return self._connection

    @property
    def _facts(self) -> Facts:
        if self._known is None:
            self._known = Facts.of(self._open)
            self.schema = self.schema or self._known.schema
        return self._known

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def commit(self) -> None:
        self._open.java.commit()

    def rollback(self) -> None:
        if self._connection is not None:
            self._connection.java.rollback()

    def run(self, sql: str, rows: Sequence[Row] | None = None) -> list[Row]:
        return self._open.run(sql) if rows is None else self._open.run_with(sql.replace(PARAMETER, "?"), rows)

    # --- names, types, shape

    @property
    def share_lock(self) -> str:
        return self._facts.product.share_lock

    @property
    def lock_hint(self) -> str:
        return self._facts.product.lock_hint

    def quote(self, name: str) -> str:
        quote = self._facts.quote
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def check_name(self, name: str) -> None:
        longest = min(length or 1000 for length in (self._facts.longest_table, self._facts.longest_column))
        if not name or "\0" in name or len(name) > longest:
            raise ConfigError(
                f"the target database cannot have the name {name!r}: names have 1 to {longest} characters",
                fix="map the table to another name with `table`, or drop the column with `columns: {drop: [...]}`",
            )

    def fold(self, name: str) -> str:
        return name if self._facts.is_exact else name.lower()

    def table(self, target: Target) -> str:
        assert self._facts is not None  # knows the schema
        return super().table(target)

    def declare(self, column: Column, *, in_key: bool) -> str:
        return self._facts.types.declare(column, in_key=in_key)

    def holds(self, declared: str) -> StoredType | None:
        return self._facts.types.holds(declared)

    def default(self, value: Array, declared: str) -> str:
        return literal(value, self._facts.types.code(declared), self._facts.product)

    def describe(self, target: Target) -> StoredTable | None:
        metadata, facts = self._open.java.getMetaData(), self._facts
        names = [self._pattern(name) for name in (self.schema, target.name)]
        found, columns = metadata.getColumns(facts.catalog, *names, None), []
        while found.next():
            # In the order of the columns of the result: some drivers can be read in that order only.
            schema, table, name = (_text(found.getString(at)) for at in (2, 3, 4))
            code, declared, size = int(found.getInt(5)), str(found.getString(6)), int(found.getInt(7))
            scale, nullable, default = int(found.getInt(9)), found.getInt(11) != 0, _text(found.getString(13))
            if (table, schema or self.schema) == (target.name, self.schema) and name is not None:
                spelled = facts.types.spelled(*facts.product.stored_as(declared, code, size), size, scale)
                columns.append(StoredColumn(name, spelled, nullable, None if default == "NULL" else default))
        found.close()
        if not columns:
            return None
        found, key = metadata.getPrimaryKeys(facts.catalog, self.schema, target.name), []
        while found.next():
            name, place = str(found.getString(4)), int(found.getInt(5))
            key.append((place, name))
        found.close()
        return StoredTable(tuple(columns), tuple(name for _, name in sorted(key)))

    def advice(self, targets: Sequence[Target]) -> Iterator[Finding]:
        if self._facts.product.empty_is_null:
            yield from _empty_becomes_null(targets)

    def rehearse(self, target: Target, statement: str) -> None:
        metadata = self._open.java.getMetaData()
        if not metadata.dataDefinitionCausesTransactionCommit() and not metadata.dataDefinitionIgnoredInTransactions():
            self.run(statement)

    def _pattern(self, name: str | None) -> str | None:
        escape = self._facts.escape
        if name is None or not escape:
            return name
        return "".join(f"{escape}{letter}" if letter in (escape, "_", "%") else letter for letter in name)

    def add_column(self, target: Target, definition: str) -> str:
        return self._facts.product.add_column.format(table=self.table(target), definition=definition)

    def drop_column(self, target: Target, name: str) -> str:
        named = {"name": self.quote(name), "of_name": _of_text(name)}
        return self._facts.product.drop_column.format(**self._named(target), **named)

    def rename_column(self, target: Target, old: str, new: str) -> str:
        names = {
            "old": self.quote(old),
            "new": self.quote(new),
            "of_old": _of_text(self.quote(old)),
            "of_new": _of_text(new),
        }
        return self._facts.product.rename_column.format(**self._named(target), **names)

    def _named(self, target: Target) -> dict[str, str]:
        table = self.table(target)
        return {"table": table, "of_table": _of_text(table)}

    def _altered(self, words: str, target: Target, column: StoredColumn) -> str:
        return words.format(table=self.table(target), name=self.quote(column.name), type=column.declared)

    def change_column(self, target: Target, column: StoredColumn) -> list[str]:
        if self.fold(column.name) in map(self.fold, target.key):
            return [self._altered(self._facts.product.set_type, target, column)]
        stored = self.describe(target)
        assert stored is not None
        there = next((c for c in stored.columns if self.fold(c.name) == self.fold(column.name)), None)
        return self._replaced(target, column, there)

    def _replaced(self, target: Target, column: StoredColumn, there: StoredColumn | None) -> list[str]:
        table, new = self.table(target), f"_headrace_{column.name}"
        value = self.quote(column.name)
        if there is not None and self._is_number(there.declared) and not self._is_number(column.declared):
            value = self._facts.product.as_text.format(value=value)
        changed = StoredColumn(new, column.declared, nullable=True, default=column.default)
        return [
            self.add_column(target, definition_of(self, changed)),
            f"UPDATE {table} SET {self.quote(new)} = {value}",
            self.drop_column(target, column.name),
            self.rename_column(target, new, column.name),
        ]

    def _is_number(self, declared: str) -> bool:
        held = self.holds(declared)
        return held is not None and (pa.types.is_integer(held.type) or pa.types.is_decimal(held.type))

    def keep_newest(self, target: Target, old_key: Sequence[str]) -> None:
        """Not every database has window functions, or compares rows of columns; an index makes this one quick."""
        table, quote = self.table(target), self.quote
        name = f"_headrace_{target.name}"
        index = self.table(Target(name, (), ()))
        drop = self._facts.product.drop_index.format(index=index, table=table)
        if name in self._indices(target):  # a change that was broken off
            self.run(drop)
        self.run(f"CREATE INDEX {index} ON {table} ({', '.join(map(quote, target.key))})")
        same = " AND ".join(f"newer.{quote(name)} = {table}.{quote(name)}" for name in target.key)
        newer = "1 = 0"
        for column in reversed([target.system.active, target.system.id, *old_key]):
            one, other = f"newer.{quote(column)}", f"{table}.{quote(column)}"
            newer = f"({one} > {other} OR ({one} = {other} AND {newer}))"
        self.run(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {table} newer WHERE {same} AND {newer})")
        self.run(drop)

    def _indices(self, target: Target) -> set[str]:
        metadata, facts = self._open.java.getMetaData(), self._facts
        found, names = metadata.getIndexInfo(facts.catalog, self.schema, target.name, False, True), set()
        while found.next():
            names.add(str(found.getString(6)))
        found.close()
        return names

    def change_key(self, target: Target, columns: Sequence[StoredColumn]) -> None:
        stored = self.describe(target)
        assert stored is not None
        product, there = self._facts.product, {column.name: column for column in stored.columns}
        if stored.key:
            self.run(product.drop_key.format(**self._named(target)))
        for column in columns:
            if column.declared != there[column.name].declared:
                for statement in self._replaced(target, column, there[column.name]):
                    self.run(statement)
            self.run(self._altered(product.set_null if column.nullable else product.set_not_null, target, column))
        self.run(f"ALTER TABLE {self.table(target)} ADD PRIMARY KEY ({', '.join(map(self.quote, target.key))})")

    @contextmanager
    def shaping(self, target: Target) -> Iterator[None]:
        self.commit()
        keeper = Jdbc(self._url, self._jars, self._properties, self.address, self.schema)
        try:
            keeper.lock(target.name)
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise
        finally:
            keeper.close()

    def lock(self, table: str) -> None:
        """Waits until nobody else changes the table, and keeps others from it until this connection is closed."""
        if self.describe(_LOCKS) is None:
            try:
                self.run(create_table(self, _LOCKS))
            except jpype.JException:
                self.rollback()
                if self.describe(_LOCKS) is None:
                    raise  # not because somebody else has made it
        epoch = pa.array([0], pa.timestamp("us", "UTC"))
        row: list[Array] = [pa.array([table]), pa.array([0], pa.int64()), epoch, pa.array([1], pa.int16())]
        stored = self.describe(_LOCKS)
        assert stored is not None
        self.upsert(Destination(_LOCKS, stored), row)
        self.commit()
        number = self.quote(ID)
        where = f"{self.quote('table_name')} = {PARAMETER}"
        self.run(f"UPDATE {self.table(_LOCKS)} SET {number} = {number} + 1 WHERE {where}", [(table,)])

    # --- rows

    def upsert(self, to: Destination, columns: Sequence[Array]) -> None:
        declared = [to.declared(name) for name in to.names]
        if to not in self._upserts:
            kinds = [self._facts.types.binding(kind) for kind in declared]
            self._upserts[to] = Upsert(
                to, self.table(to.target), self.quote, kinds, self._facts.product.releases_savepoints
            )
        values = [texts(c, self._facts.types.code(kind)) for c, kind in zip(columns, declared, strict=True)]
        self._upserts[to].store(self._open, values)

    def parameters(self, column: Array) -> list[Any]:
        declared = self.declare(Column("", column.type, ""), in_key=True)
        kind = self._facts.types.binding(declared)
        return [Bound(text, kind) for text in texts(column, kind.code)]

    def select(self, to: Destination, where: str, chunk_rows: int) -> Iterator[list[Row]]:
        names = ", ".join(self.quote(column.name) for column in to.target.columns)
        statement = self._open.java.createStatement()
        try:
            statement.setFetchSize(chunk_rows)
            results = statement.executeQuery(f"SELECT {names} FROM {self.table(to.target)} WHERE {where}")
            rows = None
            while rows is None or len(rows) == chunk_rows:
                if rows := rows_of(results, chunk_rows):
                    yield rows
        finally:
            statement.close()

    def translate(self, error: Exception) -> HeadraceError:
        assert isinstance(error, jpype.JException)
        answers = self._connection is None or self._connection.answers()
        return sorted_error(error, str(self.address), answers=answers)


def _empty_becomes_null(targets: Sequence[Target]) -> Iterator[Finding]:
    """What becomes of values of no length in a database to which they are NULL."""
    found = [(target, column) for target in targets for column in target.columns if _can_be_empty(column.type)]
    for in_key, becomes in (
        (False, "becomes NULL there, and `headrace verify` tells such rows as different"),
        (True, "is NULL there, and these are in keys: a row with such a value is refused"),
    ):
        names = [f"{target.name}.{column.name}" for target, column in found if (column.name in target.key) == in_key]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            yield Finding(
                f"an empty text {becomes}: {', '.join(names[:_NAMED])}{more}",
                "set such rows aside (`set_aside`)" if in_key else "let who reads the table take NULL for empty",
                stops=False,
            )


def _can_be_empty(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _of_text(name: str) -> str:
    """As it stands between the quotes of a text."""
    return name.replace("'", "''")


def _text(found: object) -> str | None:
    return None if found is None else str(found)
