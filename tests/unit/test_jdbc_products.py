"""SQL for databases of which no server can be had: as it is wanted, and read by a parser of their dialects."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from headrace.sinks.database.dialect import Address, Destination, StoredColumn, StoredTable, Target
from headrace.sinks.database.stored import create_table
from headrace.sinks.jdbc.dialect import Facts, Jdbc
from headrace.sinks.jdbc.products import product
from headrace.sinks.jdbc.rows import Upsert
from headrace.sinks.jdbc.types import Types
from headrace.ums.schema import Column

SQL_SERVER, ORACLE = "Microsoft SQL Server", "Oracle"
PARSERS = {SQL_SERVER: "tsql", ORACLE: "oracle"}
TARGET = Target(
    "it's",
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("code", pa.utf8(), "varchar(20)", nullable=False),
        Column("on", pa.bool_(), "tinyint(1)"),
        Column("small", pa.int16(), "smallint", initial_default="7"),
        Column("large", pa.uint64(), "bigint unsigned"),
        Column("price", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("share", pa.float64(), "double"),
        Column("note", pa.utf8(), "text"),
        Column("raw", pa.binary(), "varbinary(16)", initial_default="AP8="),
        Column("file", pa.binary(), "blob"),
        Column("day", pa.date32(), "date", initial_default="2024-02-29"),
        Column("at", pa.timestamp("us"), "datetime(6)", initial_default="2024-02-29 23:59:59.000001"),
        Column("long", pa.duration("us"), "time(6)"),
    ),
    ("id", "code"),
)
TABLES = {
    SQL_SERVER: (
        'CREATE TABLE "dbo"."it\'s" ("id" bigint NOT NULL, "code" nvarchar(20) NOT NULL, "on" bit, "small" smallint DEFAULT 7, '
        '"large" decimal(20,0), "price" decimal(12,2), "share" float, "note" nvarchar(max), "raw" varbinary(16) DEFAULT 0x00ff, '
        '"file" varbinary(max), "day" date DEFAULT \'2024-02-29\', "at" datetime2(6) DEFAULT \'2024-02-29 23:59:59.000001\', '
        '"long" nvarchar(20), "_ums_id_" bigint NOT NULL, "_ums_ts_" datetime2(6) NOT NULL, "_is_active_" smallint NOT NULL, '
        'PRIMARY KEY ("id", "code"))'
    ),
    ORACLE: (
        'CREATE TABLE "dbo"."it\'s" ("id" NUMBER(19,0) NOT NULL, "code" NVARCHAR2(20) NOT NULL, "on" NUMBER(1,0), '
        '"small" NUMBER(5,0) DEFAULT 7, "large" NUMBER(20,0), "price" NUMBER(12,2), "share" BINARY_DOUBLE, "note" NCLOB, '
        '"raw" RAW(16) DEFAULT HEXTORAW(\'00ff\'), "file" BLOB, "day" DATE DEFAULT DATE \'2024-02-29\', '
        '"at" TIMESTAMP(6) DEFAULT TIMESTAMP \'2024-02-29 23:59:59.000001\', "long" NVARCHAR2(20), "_ums_id_" NUMBER(19,0) NOT NULL, '
        '"_ums_ts_" TIMESTAMP(6) NOT NULL, "_is_active_" NUMBER(5,0) NOT NULL, PRIMARY KEY ("id", "code"))'
    ),
}
ADDED = {
    SQL_SERVER: 'ALTER TABLE "dbo"."it\'s" ADD "more" int',
    ORACLE: 'ALTER TABLE "dbo"."it\'s" ADD ("more" NUMBER(10,0))',
}
RENAMED = {
    SQL_SERVER: "EXEC sp_rename N'\"dbo\".\"it''s\".\"o''ld\"', N'n''ew', N'COLUMN'",
    ORACLE: 'ALTER TABLE "dbo"."it\'s" RENAME COLUMN "o\'ld" TO "n\'ew"',
}
RETYPED_KEY = {
    SQL_SERVER: 'ALTER TABLE "dbo"."it\'s" ALTER COLUMN "id" decimal(20,0) NOT NULL',
    ORACLE: 'ALTER TABLE "dbo"."it\'s" MODIFY ("id" NUMBER(20,0))',
}


def dialect_of(name: str) -> Jdbc:
    """The dialect of a product, as it is when its server has been asked."""
    found = product(name)
    dialect = Jdbc("jdbc:none", [], {}, Address("jdbc", "", 0, "", "", "none", {}), "dbo")
    dialect._known = Facts(found, Types(found.types), '"', "", True, 128, 128, None, "dbo")
    return dialect


def parsed(statement: str, name: str) -> list[exp.Expression]:
    """What the parser of a dialect reads; it raises where it does not understand."""
    found = sqlglot.parse(statement, dialect=PARSERS[name])
    return [each for each in found if each is not None]


@pytest.mark.parametrize("name", PARSERS)
def test_tables_and_their_changes(name: str) -> None:
    dialect = dialect_of(name)
    created = create_table(dialect, TARGET)
    assert created == TABLES[name]
    [table] = parsed(created, name)
    assert isinstance(table, exp.Create)
    assert len(list(table.find_all(exp.ColumnDef))) == len(TARGET.columns) + 3

    more = dialect.declare(Column("more", pa.int32(), "int"), in_key=False)
    assert dialect.add_column(TARGET, f'"more" {more}') == ADDED[name]
    assert dialect.rename_column(TARGET, "o'ld", "n'ew") == RENAMED[name]
    wider = StoredColumn(
        "id", dialect.declare(Column("id", pa.uint64(), "bigint unsigned"), in_key=True), nullable=False
    )
    assert dialect.change_column(TARGET, wider) == [RETYPED_KEY[name]]
    assert parsed(ADDED[name], name)
    assert parsed(RETYPED_KEY[name], name)


@pytest.mark.parametrize("name", PARSERS)
def test_a_column_is_dropped_with_its_default(name: str) -> None:
    dropped = dialect_of(name).drop_column(TARGET, "on")
    assert dropped.endswith('ALTER TABLE "dbo"."it\'s" DROP COLUMN "on"')
    if name == SQL_SERVER:
        assert "OBJECT_ID(N'\"dbo\".\"it''s\"') AND COL_NAME(parent_object_id, parent_column_id) = N'on'" in dropped
    assert parsed(dropped, name)


@pytest.mark.parametrize("name", PARSERS)
def test_rows(name: str) -> None:
    dialect = dialect_of(name)
    stored = StoredTable(
        tuple(
            StoredColumn(c.name, dialect.declare(c, in_key=c.name in TARGET.key), nullable=True)
            for c in (*TARGET.columns, *TARGET.system_columns)
        ),
        TARGET.key,
    )
    to = Destination(TARGET, stored, tuple(range(len(TARGET.columns))))
    kinds = [dialect._known.types.binding(to.declared(one)) for one in to.names] if dialect._known else []
    upsert = Upsert(to, dialect.table(TARGET), dialect.quote, kinds, releases_savepoints=False)
    look, insert, update = upsert._select(2), upsert._insert_sql(), upsert._update_sql()
    assert look == " UNION ALL ".join(
        f'SELECT {n}, "_ums_id_", "code" FROM "dbo"."it\'s" WHERE "id" = ? AND "code" = ?' for n in range(2)
    )
    kinds_read = [type(parsed(statement, name)[0]) for statement in (look, insert, update)]
    assert kinds_read == [exp.Union, exp.Insert, exp.Update]


@pytest.mark.parametrize("name", PARSERS)
def test_a_row_is_held_in_the_words_of_the_product(name: str) -> None:
    dialect = dialect_of(name)
    held = f'SELECT 1 FROM {dialect.table(TARGET)}{dialect.lock_hint} WHERE "id" = ?{dialect.share_lock}'
    [select] = parsed(held, name)
    assert isinstance(select, exp.Select)
    assert bool(select.args.get("locks")) == (name == ORACLE)
    assert bool(list(select.find_all(exp.WithTableHint))) == (name == SQL_SERVER)


@pytest.mark.parametrize(
    ("name", "told", "stored"),
    [
        (SQL_SERVER, ("nvarchar", -9, 20), "nvarchar(20)"),
        (SQL_SERVER, ("nvarchar", -9, 2147483647), "nvarchar(max)"),
        (SQL_SERVER, ("varbinary", -3, 2147483647), "varbinary(max)"),
        (SQL_SERVER, ("datetime2", 93, 26), "datetime2(6)"),
        (ORACLE, ("NUMBER", 3, 19), "NUMBER(19,6)"),
        (ORACLE, ("DATE", 93, 7), "DATE"),
        (ORACLE, ("TIMESTAMP(6)", 93, 11), "TIMESTAMP(6)"),
        (ORACLE, ("NVARCHAR2", -9, 20), "NVARCHAR2(20)"),
        (ORACLE, ("BINARY_DOUBLE", 101, 8), "BINARY_DOUBLE"),
    ],
)
def test_a_stored_type_is_the_one_that_was_declared(name: str, told: tuple[str, int, int], stored: str) -> None:
    found = product(name)
    types = Types(found.types)
    assert types.spelled(*found.stored_as(*told), told[2], 6) == stored
    assert types.holds(stored) is not None


def test_who_delivers_to_oracle_is_told_of_empty_texts() -> None:
    [others, key] = dialect_of(ORACLE).advice([TARGET])
    assert others.message == (
        "an empty text becomes NULL there, and `headrace verify` tells such rows as different: it's.note, it's.raw, it's.file"
    )
    assert (
        key.message
        == "an empty text is NULL there, and these are in keys: a row with such a value is refused: it's.code"
    )
    assert not others.stops
    assert not key.stops
    assert not list(dialect_of(SQL_SERVER).advice([TARGET]))
