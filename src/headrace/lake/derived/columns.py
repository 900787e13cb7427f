"""The columns of a derived table, and how rows of any version of its source fill them.

A derived table knows each of its columns by identity (docs/decisions/0012), in the metadata of its fields::

    headrace.identity   what the column is known by in all versions
    headrace.since      rows of older versions do not fill it (a column that `lenient` has put beside a renamed one)
    headrace.until      rows of this version and newer ones do not fill it (dropped, or renamed, and kept)
    headrace.key        the column's place in the key

`Columns.followed` takes one version after the other, so what a policy has decided once stays so, whatever the lake still has of old versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, DataError
from headrace.lake.reshape import initial_value
from headrace.on_change import OnChange, Policy
from headrace.ums.schema import Column, TableSchema
from headrace.ums.values import cast_or_null

_IDENTITY, _SINCE, _UNTIL, _KEY = b"headrace.identity", b"headrace.since", b"headrace.until", b"headrace.key"
_ALWAYS, _NEVER = 0, 1 << 62
Arrays = dict[str, "pa.ChunkedArray[Any] | pa.Array[Any]"]


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """A column of a derived table."""

    name: str
    type: pa.DataType
    """As it is stored (`stored_type`)."""
    identity: str
    since: int = _ALWAYS
    until: int = _NEVER

    def is_filled_by(self, version: int) -> bool:
        return self.since <= version < self.until


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a derived table behind a version of its source; `key` names some of them."""

    columns: tuple[DerivedColumn, ...]
    key: tuple[str, ...]
    version: int

    @classmethod
    def first(cls, table: TableSchema) -> Self:
        """Those of the first version that is known."""
        columns = tuple(DerivedColumn(c.name, stored_type(c.type), c.identity) for c in table.columns)
        return cls(columns, table.key, table.namespace.version)

    @classmethod
    def from_arrow(cls, schema: pa.Schema, version: int) -> Self:
        """Those of a table that is there; other fields than these are none of ours."""
        columns, places = [], {}
        for field in schema:
            told = field.metadata or {}
            if _IDENTITY in told:
                since, until = int(told.get(_SINCE, _ALWAYS)), int(told.get(_UNTIL, _NEVER))
                columns.append(DerivedColumn(field.name, field.type, told[_IDENTITY].decode(), since, until))
            if _KEY in told:
                places[int(told[_KEY])] = field.name
        return cls(tuple(columns), tuple(places[place] for place in sorted(places)), version)

    def to_arrow(self) -> pa.Schema:
        return pa.schema([self._field(column) for column in self.columns])

    def _field(self, column: DerivedColumn) -> pa.Field[Any]:
        told: dict[bytes | str, bytes | str] = {_IDENTITY: column.identity.encode()}
        if column.since != _ALWAYS:
            told[_SINCE] = str(column.since)
        if column.until != _NEVER:
            told[_UNTIL] = str(column.until)
        if column.name in self.key:
            told[_KEY] = str(self.key.index(column.name))
        return pa.field(column.name, column.type, metadata=told)

    @property
    def key_identities(self) -> tuple[str, ...]:
        by_name = {column.name: column.identity for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    def followed(self, table: TableSchema, on_change: OnChange) -> Columns:
        """What these are in a newer version, by policy; the key stays (`key_identities` says whether it should not)."""
        version = table.namespace.version
        there = {column.identity: column for column in table.columns}
        followed: list[DerivedColumn] = []
        for column in self.columns:
            now = there.get(column.identity) if column.until == _NEVER else None
            followed += self._followed(column, now, on_change, version)
        known = {column.identity for column in self.columns}
        new = [column for column in table.columns if column.identity not in known]
        if on_change.added is Policy.IGNORE:
            new = [column for column in new if column.name in table.key]  # without its key there is no table
        followed += [DerivedColumn(c.name, stored_type(c.type), c.identity) for c in new]
        places = {identity: place for place, identity in enumerate(self.key_identities)}
        key = {places[c.identity]: c.name for c in followed if c.identity in places and c.until == _NEVER}
        return Columns(_apart(followed, version), tuple(key[place] for place in sorted(key)), version)

    def _followed(
        self, column: DerivedColumn, now: Column | None, on_change: OnChange, version: int
    ) -> list[DerivedColumn]:
        if column.until != _NEVER:
            return [column]
        if now is None:
            gone = on_change.dropped is Policy.EVOLVE
            return [] if gone else [replace(column, until=version)]
        type_ = stored_type(now.type)
        if on_change.retyped is not Policy.IGNORE or column.name in self.key:
            column = replace(column, type=wide_enough(column.type, type_))
        if now.name == column.name or on_change.renamed is Policy.IGNORE:
            return [column]
        if on_change.renamed is Policy.LENIENT and column.name not in self.key:
            return [replace(column, until=version), DerivedColumn(now.name, type_, now.identity, since=version)]
        return [replace(column, name=now.name)]

    def rows(self, stored: pa.Table, table: TableSchema, newest: Mapping[str, tuple[Column, TableSchema]]) -> Arrays:
        """These columns of rows of a version; `newest` has the newest known shape of each identity, for its initial default."""
        there = {column.identity: column.name for column in table.columns}
        version, found = table.namespace.version, Arrays()
        for column in self.columns:
            name = there.get(column.identity) if column.is_filled_by(version) else None
            if name is not None:
                found[column.name] = self._cast(stored.column(name), column, table)
            else:
                found[column.name] = _repeated(self._initial(column, version, newest), stored.num_rows)
        return found

    def of_older(self, rows: pa.Table, older: Columns, newest: Mapping[str, tuple[Column, TableSchema]]) -> pa.Table:
        """Rows of this table as it was before, in these columns; other columns stay as they are."""
        before = {(column.identity, column.since): column for column in older.columns}
        found = Arrays()
        for column in self.columns:
            was = before.get((column.identity, column.since))
            if was is None:
                found[column.name] = _repeated(self._initial(column, older.version, newest), rows.num_rows)
            else:
                found[column.name] = rows.column(was.name).cast(column.type)
        own = {column.name for column in older.columns}
        others = {name: rows.column(name) for name in rows.column_names if name not in own}
        return pa.table({**found, **others})

    def _initial(
        self, column: DerivedColumn, version: int, newest: Mapping[str, tuple[Column, TableSchema]]
    ) -> pa.Scalar[Any]:
        if not column.is_filled_by(version) or column.identity not in newest:
            return pa.scalar(None, column.type)
        return initial_value(*newest[column.identity]).cast(column.type)

    def _cast(
        self, values: pa.ChunkedArray[Any], column: DerivedColumn, table: TableSchema
    ) -> pa.ChunkedArray[Any] | pa.Array[Any]:
        if values.type == column.type:
            return values
        # Values fail to fit only where the policy keeps a type that is too narrow.
        chunks = [cast_or_null(chunk, column.type) for chunk in _as_stored(values).chunks]
        fitting: pa.ChunkedArray[Any] = pa.chunked_array(chunks, column.type)  # type: ignore[call-overload]
        if column.name in self.key and fitting.null_count > values.null_count:
            raise DataError(
                f"key column '{column.name}' of {table.namespace} has values that {column.type} cannot hold",
                fix="remove the derived table's directory: it is made anew with the key as it is now",
            )
        return fitting


def _repeated(value: Any, rows: int) -> pa.Array[Any]:
    values: pa.Array[Any] = pa.repeat(value, rows)
    return values


def _as_stored(values: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return values.cast(stored_type(values.type))


def _apart(columns: list[DerivedColumn], version: int) -> tuple[DerivedColumn, ...]:
    """Columns that are kept give up their names to columns that the source has now."""
    taken = {column.name for column in columns if column.until == _NEVER}
    return tuple(
        replace(column, name=f"{column.name}_v{version - 1}")
        if column.until != _NEVER and column.name in taken
        else column
        for column in columns
    )


def newest_shapes(versions: Mapping[int, TableSchema]) -> dict[str, tuple[Column, TableSchema]]:
    """Of each identity the newest column that has it."""
    return {column.identity: (column, table) for _, table in sorted(versions.items()) for column in table.columns}


def must_have_key(table: TableSchema) -> None:
    """ConfigError for a table whose rows cannot be told apart."""
    if not table.key:
        raise ConfigError(
            f"{table.namespace.all_versions} has no key, and a derived table tells rows apart by it",
            fix="name its key in the flow (`key: {shop.visits: [day, page]}`), or leave the table out of `derive` (`tables`)",
        )


_STORED: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.large_utf8(): pa.utf8(),
    pa.large_binary(): pa.binary(),
    pa.duration("us"): pa.int64(),
}
"""Delta has no unsigned numbers, durations and large texts; a duration is its microseconds, as it is in the lake's files."""


def stored_type(type_: pa.DataType) -> pa.DataType:
    """What a column of a derived table is stored as."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    if pa.types.is_decimal256(type_):
        return pa.utf8()
    return _STORED.get(type_, type_)


def wide_enough(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The narrowest stored type that holds the values of both; text where numbers, times and the like meet."""
    if one == other:
        return one
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return max(one, other, key=lambda type_: type_.bit_width)
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return pa.float64()
    exact = [_digits(type_) for type_ in (one, other)]
    if None not in exact:
        whole, scale = (max(each[place] for each in exact if each) for place in (0, 1))
        return pa.decimal128(whole + scale, scale) if whole + scale <= 38 else pa.utf8()
    if pa.types.is_binary(one) or pa.types.is_binary(other):
        return pa.binary()
    return pa.utf8()


def _digits(type_: pa.DataType) -> tuple[int, int] | None:
    """Digits before and behind the point of an exact number."""
    if pa.types.is_decimal128(type_):
        return type_.precision - type_.scale, type_.scale
    if pa.types.is_integer(type_):
        return {8: 3, 16: 5, 32: 10, 64: 19}[type_.bit_width], 0
    return None


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a piece that was written before columns were added at the end: those are null."""
    missing = [field for field in schema if field.name not in rows.column_names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def certain(mask: pa.Array[Any]) -> pa.BooleanArray:
    """False where it is not known."""
    known: Any = mask.fill_null(False)
    return cast("pa.BooleanArray", known)


def true_count(mask: pa.ChunkedArray[Any] | pa.Array[Any]) -> int:
    """How many are true."""
    counted = pc.sum(mask.cast(pa.int64())).as_py()
    return int(counted or 0)
