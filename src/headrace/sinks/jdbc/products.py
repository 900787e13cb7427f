"""What databases write otherwise than the standard, by the name that their driver gives (DatabaseMetaData.getDatabaseProductName).

A database that is not here, H2 for one, gets the standard's words, or what most have where there is none. Those of SQL Server and Oracle are out of
their manuals: no server of theirs could be had, so their statements are compared with what is wanted and read by a parser of their dialects
(tests/unit/test_jdbc_products.py), and have not been run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.sinks.jdbc.codes import (
    BIGINT,
    BIT,
    BLOB,
    CLOB,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    REAL,
    SMALLINT,
    TIMESTAMP,
    VARBINARY,
    VARCHAR,
)

_NVARCHAR = -9


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A type that the database has."""

    name: str
    size: int
    takes_size: bool
    scale: int


def _as_told(name: str, code: int, size: int) -> tuple[str, int]:
    return name, code


@dataclass(frozen=True, slots=True)
class Product:
    """SQL of one product. In braces: {table}, {name} of a column, {old} and {new} of them, {type}, {index}, {definition} of a column, all as SQL;
    {of_table}, {of_old}, {of_new}, {of_name} are the same as the inside of a text."""

    share_lock: str = " FOR UPDATE"
    """What makes a SELECT hold the rows that it finds until the commit. Where only one can hold them, writers of a table take turns."""
    lock_hint: str = ""
    """The same where it stands behind the table's name."""
    add_column: str = "ALTER TABLE {table} ADD COLUMN {definition}"
    drop_column: str = "ALTER TABLE {table} DROP COLUMN {name}"
    rename_column: str = "ALTER TABLE {table} RENAME COLUMN {old} TO {new}"
    set_type: str = "ALTER TABLE {table} ALTER COLUMN {name} SET DATA TYPE {type}"
    set_null: str = "ALTER TABLE {table} ALTER COLUMN {name} DROP NOT NULL"
    set_not_null: str = "ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL"
    drop_key: str = "ALTER TABLE {table} DROP PRIMARY KEY"
    drop_index: str = "DROP INDEX {index}"
    as_text: str = "{value}"
    """A number, where text is wanted."""
    octets: str = "X'{text}'"
    date: str = "{{d '{text}'}}"
    timestamp: str = "{{ts '{text}'}}"
    releases_savepoints: bool = True
    empty_is_null: bool = False
    """Texts and bytes of no length are NULL."""
    types: tuple[tuple[int, TypeInfo], ...] = ()
    """The types to be taken, where the driver's own list (getTypeInfo) would lead to others."""
    stored_as: Callable[[str, int, int], tuple[str, int]] = _as_told
    """Of a stored column's type by name, code and size as the driver tells them: what it is among `types`."""


def _sql_server_type(name: str, code: int, size: int) -> tuple[str, int]:
    if name in ("nvarchar", "varbinary") and size > 8000:
        return f"{name}(max)", CLOB if name == "nvarchar" else BLOB
    return name, VARCHAR if code == _NVARCHAR else code


def _oracle_type(name: str, code: int, size: int) -> tuple[str, int]:
    own = {"DATE": DATE, "NUMBER": DECIMAL, "NVARCHAR2": VARCHAR, "NCLOB": CLOB, "RAW": VARBINARY}
    own |= {"BINARY_FLOAT": REAL, "BINARY_DOUBLE": DOUBLE}
    return (
        ("TIMESTAMP", TIMESTAMP)
        if name.startswith("TIMESTAMP(") and name.endswith(")")
        else (name, own.get(name, code))
    )


_PRODUCTS = {
    "Apache Derby": Product(
        share_lock=" WITH RS",
        rename_column="RENAME COLUMN {table}.{old} TO {new}",
        as_text="TRIM(CAST({value} AS CHAR(254)))",
    ),
    "Microsoft SQL Server": Product(
        share_lock="",
        lock_hint=" WITH (REPEATABLEREAD, ROWLOCK)",
        add_column="ALTER TABLE {table} ADD {definition}",
        # A DEFAULT is a constraint there, without which the column cannot be dropped.
        drop_column="DECLARE @default nvarchar(max) = (SELECT N'ALTER TABLE {of_table} DROP CONSTRAINT ' + QUOTENAME(name) FROM sys.default_constraints "
        "WHERE parent_object_id = OBJECT_ID(N'{of_table}') AND COL_NAME(parent_object_id, parent_column_id) = N'{of_name}'); "
        "EXEC (@default); ALTER TABLE {table} DROP COLUMN {name}",
        rename_column="EXEC sp_rename N'{of_table}.{of_old}', N'{of_new}', N'COLUMN'",
        set_type="ALTER TABLE {table} ALTER COLUMN {name} {type} NOT NULL",
        set_null="ALTER TABLE {table} ALTER COLUMN {name} {type} NULL",
        set_not_null="ALTER TABLE {table} ALTER COLUMN {name} {type} NOT NULL",
        drop_key="DECLARE @key nvarchar(max) = (SELECT N'ALTER TABLE {of_table} DROP CONSTRAINT ' + QUOTENAME(name) FROM sys.key_constraints "
        "WHERE type = 'PK' AND parent_object_id = OBJECT_ID(N'{of_table}')); EXEC (@key)",
        drop_index="DROP INDEX {index} ON {table}",
        as_text="CAST({value} AS nvarchar(50))",
        octets="0x{text}",
        date="'{text}'",
        timestamp="'{text}'",
        releases_savepoints=False,
        types=(
            (BIT, TypeInfo("bit", 1, False, 0)),
            (SMALLINT, TypeInfo("smallint", 5, False, 0)),
            (INTEGER, TypeInfo("int", 10, False, 0)),
            (BIGINT, TypeInfo("bigint", 19, False, 0)),
            (DECIMAL, TypeInfo("decimal", 38, True, 38)),
            (REAL, TypeInfo("real", 7, False, 0)),
            (DOUBLE, TypeInfo("float", 15, False, 0)),
            (VARCHAR, TypeInfo("nvarchar", 4000, True, 0)),  # varchar is of one code page
            (CLOB, TypeInfo("nvarchar(max)", 2**30, False, 0)),
            (VARBINARY, TypeInfo("varbinary", 8000, True, 0)),
            (BLOB, TypeInfo("varbinary(max)", 2**31, False, 0)),
            (DATE, TypeInfo("date", 10, False, 0)),
            (TIMESTAMP, TypeInfo("datetime2", 27, True, 7)),
        ),
        stored_as=_sql_server_type,
    ),
    "Oracle": Product(
        add_column="ALTER TABLE {table} ADD ({definition})",
        set_type="ALTER TABLE {table} MODIFY ({name} {type})",
        set_null="ALTER TABLE {table} MODIFY ({name} NULL)",
        set_not_null="ALTER TABLE {table} MODIFY ({name} NOT NULL)",
        as_text="TO_CHAR({value})",
        octets="HEXTORAW('{text}')",
        date="DATE '{text}'",
        timestamp="TIMESTAMP '{text}'",
        releases_savepoints=False,
        empty_is_null=True,
        types=(
            (DECIMAL, TypeInfo("NUMBER", 38, True, 127)),
            (REAL, TypeInfo("BINARY_FLOAT", 7, False, 0)),
            (DOUBLE, TypeInfo("BINARY_DOUBLE", 15, False, 0)),
            (
                VARCHAR,
                TypeInfo("NVARCHAR2", 2000, True, 0),
            ),  # VARCHAR2 counts bytes, unless the database is set otherwise
            (CLOB, TypeInfo("NCLOB", 2**31, False, 0)),
            (VARBINARY, TypeInfo("RAW", 2000, True, 0)),
            (BLOB, TypeInfo("BLOB", 2**31, False, 0)),
            (DATE, TypeInfo("DATE", 10, False, 0)),
            (TIMESTAMP, TypeInfo("TIMESTAMP", 29, True, 9)),
        ),
        stored_as=_oracle_type,
    ),
}


def product(name: str) -> Product:
    return _PRODUCTS.get(name, Product())
