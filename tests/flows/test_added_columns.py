"""What old rows have in a column that ALTER TABLE adds: the history's answer against a real server's SELECT.

The server changes those rows without row events, so the answer can only come from the statement. It may be "not known", and then
there must be a notice; it may never be wrong.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import FIELD_TYPE
from pymysql.converters import encoders

from headrace.capture.ddl import Ddl
from headrace.capture.history import History, NoticeKind
from headrace.codec.binlog import BinlogReader, Rows, decode_file
from headrace.ums.schema import ID, Column, Namespace, TableSchema
from headrace.ums.values import from_text
from tests.servers.mariadb import MariaDb

TIME_S, TIME_US = 1772445600, 123456
KNOWN = (
    "INT", "INT NOT NULL", "INT DEFAULT NULL", "INT DEFAULT -5", "INT DEFAULT '7'", "INT NOT NULL DEFAULT +12 COMMENT 'DEFAULT 9'",
    "INT DEFAULT 0x10", "INT DEFAULT b'101'", "INT DEFAULT 1.5", "BIGINT UNSIGNED DEFAULT 18446744073709551615", "INT(5) ZEROFILL DEFAULT 42",
    "TINYINT(1) DEFAULT TRUE", "BOOLEAN NOT NULL DEFAULT FALSE", "BOOL NOT NULL", "INT DEFAULT (7)", "INT DEFAULT (-(7))",
    "DECIMAL(10,3) DEFAULT 1.5", "DECIMAL(10,2) UNSIGNED NOT NULL", "DECIMAL(5,1) DEFAULT 2.25", "NUMERIC DEFAULT '3'", "DECIMAL(30,10) DEFAULT -0.0000000001",
    "DECIMAL(65,30) DEFAULT 12345678901234567890123456789012345.123456789012345678901234567891",
    "DOUBLE DEFAULT 1e3", "DOUBLE PRECISION DEFAULT -0.1", "FLOAT DEFAULT 0.1", "REAL NOT NULL", "FLOAT(7,2) DEFAULT 1.239",
    "BIT(3) DEFAULT b'101'", "BIT(12) NOT NULL DEFAULT 0b101100000001", "BIT(8) NOT NULL", "BIT(16) DEFAULT 258", "BIT(8) DEFAULT 'a'",
    "YEAR DEFAULT 2024", "YEAR DEFAULT '24'", "YEAR NOT NULL", "YEAR DEFAULT '0'", "YEAR DEFAULT 99",
    "VARCHAR(20) DEFAULT 'it''s'", r"VARCHAR(20) DEFAULT 'a\'b\\c\n\%'", 'VARCHAR(20) DEFAULT "say ""hi"", it\'s"', "VARCHAR(20) NOT NULL", "VARCHAR(20) DEFAULT ''",
    "VARCHAR(40) DEFAULT 'Grüße 你好 😀'", "VARCHAR(20) DEFAULT 5", "VARCHAR(20) DEFAULT 1.50", "VARCHAR(20) DEFAULT .5", "VARCHAR(20) DEFAULT -007",
    "VARCHAR(20) DEFAULT 'a' 'b'", "VARCHAR(20) DEFAULT x'4142'", "VARCHAR(20) CHARACTER SET utf8mb4 DEFAULT 0xE4BDA0", "VARCHAR(9) DEFAULT TRUE",
    "CHAR(5) DEFAULT 'ab  '", "VARCHAR(5) DEFAULT 'ab  '", "CHAR(3) NOT NULL", "NATIONAL VARCHAR(9) DEFAULT N'x'", "CHARACTER VARYING(9) DEFAULT _utf8mb4'é'",
    "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german1_ci DEFAULT 'ß'", "TEXT NOT NULL", "TEXT DEFAULT 'long; /* text */ -- # '", "LONGTEXT DEFAULT ('x')",
    "JSON DEFAULT '{\"a\": [1, \"ü\"]}'", "VARCHAR(20) DEFAULT 'a,b)' INVISIBLE", "TEXT COMPRESSED DEFAULT 'c'",
    "BINARY(4) DEFAULT 'ab'", "BINARY(4) NOT NULL", "VARBINARY(9) DEFAULT x'00FF41'", "BLOB DEFAULT 'x'", "VARBINARY(4) NOT NULL", "BINARY DEFAULT 0x41",
    "VARBINARY(9) DEFAULT 12",
    "DATE DEFAULT '2024-02-29'", "DATE DEFAULT '24-1-5'", "DATE DEFAULT 20240229", "DATE DEFAULT DATE'2024-02-29'", "DATE NOT NULL", "DATE DEFAULT '2024/02/29'",
    "DATE DEFAULT '0000-00-00'", "DATE DEFAULT CURRENT_TIMESTAMP", "DATE DEFAULT (CURRENT_DATE)", "DATE DEFAULT CURDATE()",
    "DATETIME DEFAULT '2024-02-29 23:59:59'", "DATETIME(3) DEFAULT '2024-02-29T01:02:03.4'", "DATETIME(6) NOT NULL", "DATETIME DEFAULT 20240229010203",
    "DATETIME DEFAULT '2024-02-29'", "DATETIME(2) DEFAULT TIMESTAMP'2024-02-29 01:02:03.45'", "DATETIME DEFAULT CURRENT_TIMESTAMP", "DATETIME(6) DEFAULT NOW(6)",
    "DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)", "DATETIME DEFAULT CURRENT_TIMESTAMP()", "DATETIME(6) DEFAULT LOCALTIMESTAMP(6)",
    "TIMESTAMP NULL", "TIMESTAMP NOT NULL", "TIMESTAMP DEFAULT '2024-02-29 23:59:59'", "TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)", "TIMESTAMP NOT NULL DEFAULT 0",
    "TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP",
    "TIME DEFAULT '10:11:12'", "TIME(2) DEFAULT '-1 02:03:04.5'", "TIME NOT NULL", "TIME DEFAULT '838:59:59'", "TIME DEFAULT 101112", "TIME DEFAULT '12:30'", "TIME DEFAULT '15'",
    "ENUM('a','b') NOT NULL", "ENUM('a','b') DEFAULT 'B'", "ENUM('it''s','ü,ö') DEFAULT 'ü,ö'", "ENUM('a','b')", "ENUM('1','0') DEFAULT '0'",
    "SET('x','y','z') DEFAULT 'z,x'", "SET('x','y') NOT NULL", "SET('x','y') DEFAULT ''",
    "UUID DEFAULT '123E4567-E89B-12D3-A456-426655440000'", "UUID NOT NULL", "INET6 DEFAULT '2001:DB8::0:1'", "INET6 DEFAULT '::ffff:1.2.3.4'", "INET4 DEFAULT '1.2.3.4'",
    "INET6 NOT NULL",
    "INT DEFAULT 3 CHECK (1 > 0)", "INT UNIQUE", "INT /* DEFAULT 4 */ DEFAULT 5", "INT /*!40000 DEFAULT 6 */", "INT /*M!100100 DEFAULT 7 */", "INT DEFAULT 8 -- 9\n",
    "VARCHAR(10) DEFAULT NULL", "INT INVISIBLE DEFAULT 4", "MEDIUMINT SIGNED DEFAULT -8388608",
)  # fmt: skip
UNKNOWN = (
    "INT DEFAULT (1 + 2)", "VARCHAR(40) DEFAULT (CONCAT('a', 'b'))", "UUID DEFAULT UUID()", "DOUBLE DEFAULT (RAND())", "INT AS (id + 1) VIRTUAL",
    "INT GENERATED ALWAYS AS (id * 2) STORED", "INT NOT NULL AUTO_INCREMENT UNIQUE", "BIGINT DEFAULT (id)", "VARCHAR(40) DEFAULT USER()", "DATETIME DEFAULT '2024-02-29 01:02:03.6'",
    "TIME DEFAULT CURRENT_TIME", "INT DEFAULT (LENGTH('abc'))",
)  # fmt: skip


def connect(server: MariaDb, database: str) -> pymysql.Connection[Any]:
    """A connection on which values arrive as the server prints them."""
    connection = server.connect(database, conv=encoders)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute("SET time_zone = '+02:00'")
        cursor.execute(f"SET timestamp = {TIME_S}.{TIME_US}")
    return connection


def old_row(connection: pymysql.Connection[Any], columns: list[str]) -> dict[str, str | None]:
    """The first row as the server shows it, TIMESTAMP in UTC and bytes in base64."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {', '.join(f'`{name}`' for name in columns)} FROM t WHERE id = 1")
        (row,) = cursor.fetchall()
        kinds = {column[0]: column[1] for column in cursor.description or ()}
    return {name: _text(kinds[name], value) for name, value in zip(columns, row, strict=True)}


def _text(kind: int, value: str | bytes | None) -> str | None:
    if not isinstance(value, bytes):
        return None if value is None else str(int(value)) if kind in (FIELD_TYPE.LONG, FIELD_TYPE.YEAR) else value
    return str(int.from_bytes(value, "big")) if kind == FIELD_TYPE.BIT else base64.b64encode(value).decode()


def recorded(server: MariaDb, database: str, history: History) -> tuple[TableSchema, list[str]]:
    """The newest version of `t`, and the columns of which there was a notice that only the server knows their values."""
    reader = BinlogReader([f"{database}.*"])
    table, filled = None, []
    for path in server.binlogs():
        with path.open("rb") as file:
            items = [item for decoded in decode_file(reader, file, path.name) for item in decoded.items]
        for item in items:
            if isinstance(item, Rows):
                types = item.data.schema
                columns = [
                    Column(c.name, types.field(c.name).type, c.source_type, c.nullable) for c in item.table.columns
                ]
                described = TableSchema(Namespace("mysql", "db", database, "t"), tuple(columns), item.table.key)
                table = history.table(described, item.data.column(ID)[0].as_py())
            elif item.schema == database:
                ddl = Ddl(item.schema, item.sql, item.id, item.ts_us, item.started_us, item.time_zone)
                notices = history.statement(ddl)
                assert {notice.kind for notice in notices} <= {NoticeKind.COLUMN_FILLED}, notices
                filled += [notice.column for notice in notices]
    assert table is not None
    return table, filled


def alters(forms: list[str], pick: random.Random) -> list[str]:
    """ALTER statements that add a column `c<number>` of each form, one or several at once, in all the ways to write it."""
    statements = []
    at = 0
    while at < len(forms):
        some = forms[at : at + pick.choice((1, 1, 2, 3))]
        names = [f"c{number}" for number in range(at, at + len(some))]
        at += len(some)
        # A trailing comment ends a line: only what stands alone may follow it.
        parts = [f"{name} {form}" for name, form in zip(names, some, strict=True)]
        if len(parts) > 1 and pick.random() < 0.3:
            clauses = "ADD COLUMN (" + ", ".join(parts) + ")"
        else:
            clauses = ", ".join(
                pick.choice(("ADD ", "ADD COLUMN ", "add column if not exists ")) + part for part in parts
            )
            clauses += pick.choice(("", "", " FIRST", " AFTER id", " AFTER `v`")) if "--" not in clauses else ""
        statements.append(
            f"{pick.choice(('ALTER', 'ALTER ONLINE', 'alter ignore'))} TABLE {pick.choice(('t', '`t`'))} {clauses}"
        )
    return statements


def alter_all(connection: pymysql.Connection[Any], statements: list[str], pick: random.Random) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        cursor.execute("INSERT INTO t VALUES (1, 1)")
        for number, statement in enumerate(statements, start=2):
            try:
                cursor.execute(statement)
            except pymysql.MySQLError:
                # ONLINE is refused where the table must be copied.
                cursor.execute(statement.replace("ONLINE ", ""))
            if pick.random() < 0.5:
                cursor.execute("INSERT INTO t (id) VALUES (%s)", (number,))
        cursor.execute("INSERT INTO t (id) VALUES (100000)")


@pytest.mark.parametrize("seed", range(2))
def test_old_rows_have_what_the_history_says(mariadb: MariaDb, tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    forms = pick.sample(KNOWN, len(KNOWN))
    with mariadb.database() as database:
        connection = connect(mariadb, database)
        alter_all(connection, alters(forms, pick), pick)
        table, filled = recorded(
            mariadb, database, History(tmp_path / "schemas.json", lambda schema, _: schema == database)
        )
        expected = old_row(connection, [f"c{number}" for number in range(len(forms))])
        connection.close()
    assert not [form for number, form in enumerate(forms) if f"c{number}" in filled]
    answers = {column.name: column for column in table.columns}
    wrong = [
        (form, answers[f"c{number}"].initial_default, expected[f"c{number}"])
        for number, form in enumerate(forms)
        if not same(answers[f"c{number}"], expected[f"c{number}"])
    ]
    assert not wrong


def same(column: Column, expected: str | None) -> bool:
    if column.initial_default is None or expected is None or column.initial_default == expected:
        return column.initial_default == expected
    # A double has more than one text; year, zerofill and zero dates have one.
    return column.source_type.startswith(("float", "double")) and from_text(
        column.initial_default, column.type
    ) == from_text(expected, column.type)


def test_what_cannot_be_known_is_noticed(mariadb: MariaDb, tmp_path: Path) -> None:
    pick = random.Random(1)
    with mariadb.database() as database:
        connection = connect(mariadb, database)
        statements = [f"ALTER TABLE t ADD COLUMN c{number} {form}" for number, form in enumerate(UNKNOWN)]
        alter_all(connection, statements, pick)
        connection.close()
        table, filled = recorded(
            mariadb, database, History(tmp_path / "schemas.json", lambda schema, _: schema == database)
        )
    assert sorted(filled) == sorted(f"c{number}" for number in range(len(UNKNOWN)))
    assert all(column.initial_default is None for column in table.columns)
