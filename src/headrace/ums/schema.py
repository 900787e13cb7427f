"""Namespaces and table schemas: the name and the shape of what travels.

A namespace has seven parts, ``type.datasource.schema.table.version.dbshard.tableshard``, and names any table version of a
company uniquely. A part that itself contains a dot or a percent sign is percent-encoded, so that seven parts always stay seven.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Self

import pyarrow as pa

from headrace.errors import ConfigError, CorruptError

_PARTS = ("type", "source", "schema", "table", "version", "dbshard", "tableshard")

ID = "_ums_id_"
TS = "_ums_ts_"
OP = "_ums_op_"
COMMIT_TS = "_ums_commit_ts_"
RAW = "_ums_raw_"
ACTIVE = "_is_active_"
"""In targets: 0 in a row that was deleted."""

SYSTEM_FIELDS: tuple[pa.Field[Any], ...] = (
    pa.field(ID, pa.int64(), nullable=False),
    pa.field(TS, pa.timestamp("us", "UTC"), nullable=False),
    pa.field(OP, pa.utf8(), nullable=False),
    pa.field(COMMIT_TS, pa.timestamp("us", "UTC"), nullable=False),
    pa.field(RAW, pa.utf8(), nullable=True),
)
"""The columns that come first in every batch.

`_ums_id_`: order of changes, larger is newer. `_ums_ts_`: when the change was made at the source (can go backwards).
`_ums_op_`: i, u or d. `_ums_commit_ts_`: the source's commit time made monotone, so that it never goes back as `_ums_id_` grows.
`_ums_raw_`: null, or a JSON object column -> text of values that the column's type cannot hold (zero dates and the like), which
are null in their column.
"""

_METADATA_KEY = b"headrace"


@dataclass(frozen=True, slots=True)
class Namespace:
    """``type.datasource.schema.table.version.dbshard.tableshard``, for instance ``mysql.db1.shop.orders.0.0.0``."""

    type: str
    source: str
    schema: str
    table: str
    version: int = 0
    dbshard: str = "0"
    tableshard: str = "0"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the seven-part form; ConfigError when it has not seven parts or its version is not a number."""
        parts = [_unquote(part) for part in text.split(".")]
        if len(parts) != len(_PARTS) or not parts[4].isdecimal():
            raise ConfigError(
                f"'{text}' is not a namespace",
                fix="write seven parts, type.datasource.schema.table.version.dbshard.tableshard, the version a number",
            )
        return cls(parts[0], parts[1], parts[2], parts[3], int(parts[4]), parts[5], parts[6])

    def __str__(self) -> str:
        parts = (self.type, self.source, self.schema, self.table, str(self.version), self.dbshard, self.tableshard)
        return ".".join(_quote(part) for part in parts)

    @property
    def all_versions(self) -> str:
        """The name without version and shards: what all versions of this table share, for instance ``mysql.db1.shop.orders``."""
        return ".".join(_quote(part) for part in (self.type, self.source, self.schema, self.table))

    def matches(self, pattern: str) -> bool:
        """True when each part matches the pattern's (``*`` and ``?`` as in a shell); parts that the pattern leaves out match."""
        return _matches(str(self), pattern)


@lru_cache(maxsize=65536)
def _matches(text: str, pattern: str) -> bool:
    patterns = pattern.split(".")
    parts = text.split(".")
    return len(patterns) <= len(parts) and all(
        fnmatchcase(part, wanted) for part, wanted in zip(parts, patterns, strict=False)
    )


def _quote(part: str) -> str:
    return part.replace("%", "%25").replace(".", "%2E")


def _unquote(part: str) -> str:
    return part.replace("%2E", ".").replace("%25", "%")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one table version.

    `type` is what its values are inside headrace; `source_type` is the source's own name for it (``bigint unsigned``).
    `initial_default` is the value, as text (binary in base64), that rows written before the column existed have at the source
    (ADD COLUMN … DEFAULT changes old rows without a row event); None where they have NULL.
    `born_as` is what the column is known by through all versions of its table, where that is not its name: a renamed column is known
    by its first name, a new one that takes the name of an earlier one by ``name@id``.
    """

    name: str
    type: pa.DataType
    source_type: str
    nullable: bool = True
    initial_default: str | None = None
    born_as: str = ""

    @property
    def identity(self) -> str:
        """The same in two versions of a table exactly when they have the same column, whatever its name."""
        return self.born_as or self.name


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of one table: namespace, columns in the source's order, names of the key columns (empty: no key)."""

    namespace: Namespace
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # Few schemas share a namespace, and hashing a hundred columns for each record would cost more than the record.
        return hash(self.namespace)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def key_identities(self) -> tuple[str, ...]:
        """The columns of the key, whatever they are called."""
        return tuple(self.column(name).identity for name in self.key)

    def same_shape(self, other: TableSchema) -> bool:
        """True when rows of one fit the other unchanged: same columns by identity, name, order and type, and the same key."""
        return self.key == other.key and [(c.name, c.type, c.identity) for c in self.columns] == [
            (c.name, c.type, c.identity) for c in other.columns
        ]

    def fits(self, newer: TableSchema) -> bool:
        """True when a newer version has all columns of this one, under their names, in types that hold each value as it is."""
        columns = {column.identity: column for column in newer.columns}
        return self.key == newer.key and all(
            (same := columns.get(column.identity)) is not None
            and same.name == column.name
            and _holds(same.type, column.type)
            for column in self.columns
        )

    def with_version(self, version: int) -> TableSchema:
        return replace(self, namespace=replace(self.namespace, version=version))

    def arrow_schema(self) -> pa.Schema:
        """The schema of this table's batches: system columns first, self-describing through its metadata."""
        fields = [*SYSTEM_FIELDS, *(pa.field(c.name, c.type, nullable=True) for c in self.columns)]
        return pa.schema(fields, metadata={_METADATA_KEY: self._description()})

    def _description(self) -> bytes:
        description = {
            "namespace": str(self.namespace),
            "key": list(self.key),
            "columns": {
                c.name: {"type": c.source_type, "nullable": c.nullable, "initial_default": c.initial_default}
                | ({"born_as": c.born_as} if c.born_as else {})
                for c in self.columns
            },
        }
        return json.dumps(description, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> TableSchema:
        """The inverse of `arrow_schema`; CorruptError when the schema did not come from it."""
        described = (schema.metadata or {}).get(_METADATA_KEY)
        names = schema.names[: len(SYSTEM_FIELDS)]
        if described is None or names != [field.name for field in SYSTEM_FIELDS]:
            raise CorruptError(
                "a record batch does not describe a headrace table",
                fix="read it with the headrace version that wrote it, or check that the file is a headrace file",
            )
        types = tuple((field.name, field.type) for field in list(schema)[len(SYSTEM_FIELDS) :])
        return _from_description(described, types)


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """True for the same type and for a wider number of the same kind; the source's lengths of text are no part of the type."""
    if wide == narrow:
        return True
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    if pa.types.is_integer(wide) and pa.types.is_integer(narrow):
        keeps_sign = pa.types.is_signed_integer(wide) or not pa.types.is_signed_integer(narrow)
        return keeps_sign and int(wide.bit_width) > int(narrow.bit_width)
    both_float: bool = pa.types.is_floating(wide) and pa.types.is_floating(narrow)
    return both_float and int(wide.bit_width) > int(narrow.bit_width)


@lru_cache(maxsize=4096)
def _from_description(described: bytes, types: tuple[tuple[str, pa.DataType], ...]) -> TableSchema:
    description: dict[str, Any] = json.loads(described)
    columns = tuple(
        Column(name, type_, info["type"], info["nullable"], info["initial_default"], info.get("born_as", ""))
        for name, type_ in types
        for info in (description["columns"][name],)
    )
    return TableSchema(Namespace.parse(description["namespace"]), columns, tuple(description["key"]))
