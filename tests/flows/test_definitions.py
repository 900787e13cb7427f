"""A server that writes no names into its log: with DDL from the log, what is decoded equals what full metadata gives."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.capture.definitions import Definitions, decode_defined
from headrace.codec.binlog import BinlogReader, Rows
from tests.servers.mariadb import MariaDb

_NAMES = ["a", "b", "c", "Dd", "e f", "g"]
_TABLES = ["t1", "t2", "t3"]
_TYPES = [
    "INT",
    "INTEGER UNSIGNED",
    "BIGINT UNSIGNED ZEROFILL",
    "BOOL",
    "TINYINT(3) UNSIGNED",
    "DEC(12,3) UNSIGNED",
    "NUMERIC(40,2)",
    "DOUBLE PRECISION",
    "FLOAT(30)",
    "REAL UNSIGNED",
    "BIT(11)",
    "YEAR",
    "DATE",
    "TIME(3)",
    "DATETIME(6)",
    "TIMESTAMP(2) NULL",
    "CHAR(5)",
    "CHAR(5) BINARY",
    "CHARACTER VARYING(20) CHARACTER SET latin1",
    "VARCHAR(300) COLLATE gbk_chinese_ci",
    "NVARCHAR(9)",
    "NATIONAL CHAR VARYING(9)",
    "CHAR(4) BYTE",
    "LONG VARCHAR",
    "TEXT(10) CHARSET ucs2",
    "LONGTEXT",
    "TINYTEXT ASCII",
    "MEDIUMBLOB",
    "VARBINARY(7)",
    "BINARY(16)",
    "ENUM('x','it''s','e ') CHARACTER SET latin1",
    "SET('p','q','r')",
    "JSON",
    "POINT",
    "UUID",
    "INET4",
    "INET6",
    "VARCHAR(100) COMPRESSED",
    "INT UNSIGNED GENERATED ALWAYS AS (1 + 1) STORED",
    "INT AS (3) VIRTUAL",
    "SMALLINT NOT NULL DEFAULT 7 COMMENT 'first, after b (unsigned)'",
    "VARCHAR(9) NOT NULL DEFAULT 'unsigned'",
    "INT UNIQUE",
    "BIGINT INVISIBLE DEFAULT 5",
    "INT CHECK (1 > 0) REFERENCES other (id) ON DELETE SET NULL",
]
_CHARSETS = ["utf8mb4", "latin1", "gbk", "cp1251"]
_VALUES: dict[str, list[Any]] = {
    "year": [1901, 2024],
    "date": ["2024-02-29"],
    "time": ["-11:22:33.5"],
    "datetime": ["2024-02-29 01:02:03.4"],
    "timestamp": ["2024-02-29 01:02:03"],
    "enum": ["it's", "x"],
    "set": ["p,r", ""],
    "longtext": ['{"a": "b"}', '"x"'],
    "uuid": ["ad9468eb-e542-11f1-9d9c-02fc00000100", "00000000-0000-0000-0000-000000000000"],
    "inet4": ["10.0.0.0", "1.2.3.4"],
    "inet6": ["::", "fe80::1:0", "1:0:2:3:4:5:6:7", "::ffff:1.2.3.4"],
    "binary": ["ab", ""],
    **{kind: ["ab", "", "xyz"] for kind in ("char", "varchar", "text", "tinytext", "mediumtext")},
}


class Workload:
    """Statements that a server may refuse, and rows after each one."""

    def __init__(self, connection: pymysql.Connection[Any], schema: str, seed: int) -> None:
        self.connection = connection
        self.schema = schema
        self.random = random.Random(seed)
        self.id = 0

    def run(self, steps: int) -> None:
        self.execute("SET timestamp = 1772445600.123456")
        self.create("t1")
        for _ in range(steps):
            step = self.random.choice([self.alter, self.alter, self.alter, self.tables])
            step()
            for table in _TABLES:
                self.insert(table)

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return tuple(cursor.fetchall())

    def attempt(self, sql: str) -> None:
        with suppress(pymysql.MySQLError):
            self.execute(sql)

    def column(self) -> str:
        return f"`{self.random.choice(_NAMES)}`"

    def place(self) -> str:
        return self.random.choice(["", "", "", " FIRST", f" AFTER {self.column()}"])

    def create(self, table: str) -> None:
        columns = [f"`{name}` {self.random.choice(_TYPES)}" for name in self.random.sample(_NAMES, 4)]
        key = self.random.choice(["", ", UNIQUE (id)", f", KEY named ({columns[0].split(' ')[0]}), PRIMARY KEY (id)"])
        option = self.random.choice(["", " CHARSET=latin1", " COLLATE 'cp1251_general_ci' COMMENT 'charset=gbk'"])
        versions = self.random.choice(["", "", "", " WITH SYSTEM VERSIONING"])
        replace = self.random.choice(["CREATE TABLE", "CREATE TABLE IF NOT EXISTS", "CREATE OR REPLACE TABLE"])
        self.attempt(f"{replace} {table} (id BIGINT NOT NULL, {', '.join(columns)}{key}){option}{versions}")

    def tables(self) -> None:
        table, other = self.random.sample(_TABLES, 2)
        kind = self.random.choice(["create", "create", "like", "drop", "rename", "swap", "move"])
        if kind == "create":
            self.create(table)
        elif kind == "like":
            self.attempt(f"CREATE TABLE `{table}` LIKE {self.schema}.{other}")
        elif kind == "drop":
            self.attempt(f"DROP TABLE IF EXISTS {table}")
        elif kind == "rename":
            self.attempt(f"ALTER TABLE {table} RENAME {other}, ADD COLUMN {self.column()} INT FIRST")
        elif kind == "move":
            self.attempt(f"RENAME TABLE {table} TO {other}")
        else:
            self.attempt(f"RENAME TABLE {table} TO x, {other} TO {table}, x TO {other}")

    def alter(self) -> None:
        clauses = ", ".join(self.clause() for _ in range(self.random.choice([1, 1, 2, 3])))
        table = self.random.choice([*_TABLES, f"{self.schema}.`t1`"])
        self.attempt(f"ALTER TABLE {table} {clauses}")

    def clause(self) -> str:
        column, type_, place = self.column(), self.random.choice(_TYPES), self.place()
        charset = self.random.choice(_CHARSETS)
        return self.random.choice(
            [
                f"ADD COLUMN {column} {type_}{place}",
                f"ADD IF NOT EXISTS {column} {type_}",
                f"ADD ({column} {type_}, {self.column()} DATE)",
                f"DROP {column}",
                f"DROP COLUMN IF EXISTS {column}",
                f"MODIFY {column} {type_}{place}",
                f"CHANGE COLUMN {column} {self.column()} {type_}{place}",
                f"RENAME COLUMN {column} TO {self.column()}",
                f"CONVERT TO CHARACTER SET {charset}",
                f"DEFAULT CHARSET {charset}",
                f"ENGINE=InnoDB CHARACTER SET = {charset}",
                "DROP PRIMARY KEY",
                "DROP INDEX named",
                "ADD PRIMARY KEY (id)",
                "ADD UNIQUE named (id)",
                "RENAME INDEX named TO id_2",
                "DROP SYSTEM VERSIONING",
            ]
        )

    def insert(self, table: str) -> None:
        columns = self.execute(
            "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
            " AND IS_GENERATED = 'NEVER' ORDER BY COLUMN_NAME",
            (self.schema, table),
        )
        if not columns:
            return
        self.id += 1
        values = [self.id if name == "id" else self.value(kind) for name, kind in columns]
        names = ", ".join(f"`{name}`" for name, _ in columns)
        marks = ", ".join("ST_GeomFromText('POINT(1 2)')" if kind == "point" else "%s" for _, kind in columns)
        given = tuple(value for value, (_, kind) in zip(values, columns, strict=True) if kind != "point")
        with suppress(pymysql.MySQLError):
            self.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", given)

    def value(self, kind: str) -> Any:
        return self.random.choice([None, *_VALUES.get(kind, [self.random.randrange(100)])])


def decoded(paths: list[Path], schema: str) -> list[tuple[Any, ...]]:
    """Every row: table, columns with their types, key, values."""
    found: list[tuple[Any, ...]] = []
    definitions = Definitions(lambda _schema, _table: True)
    for path in paths:
        reader = BinlogReader([f"{schema}.*"])
        with path.open("rb") as file:
            for part in decode_defined(reader, definitions, file, path.name):
                rows: list[tuple[Any, ...]] = []
                for item in part.items:
                    if isinstance(item, Rows):
                        table = item.table
                        columns = tuple((column.name, column.source_type) for column in table.columns)
                        values = zip(*(column.to_pylist() for column in item.data.columns), strict=True)
                        rows += [(row[0], table.table, columns, table.key, *row[4:]) for row in values]
                found += [row[1:] for row in sorted(rows, key=lambda row: row[0])]
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with MariaDb() as running:
        yield running


SEEDS = int(os.environ.get("HEADRACE_HISTORIES", "60")) // 10


@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL"])
def test_random_ddl_decodes_as_with_full_metadata(server: MariaDb, metadata: str) -> None:
    rows = 0
    for seed in range(SEEDS):
        logs = []
        for mode in ("FULL", metadata):
            schema = f"random_{mode.lower()}"
            server.execute(
                "SET time_zone = '+00:00'",
                f"SET GLOBAL binlog_row_metadata = '{mode}'",
                "FLUSH BINARY LOGS",
                f"CREATE DATABASE {schema} CHARACTER SET {_CHARSETS[seed % 4]}",
            )
            first = server.binlogs()[-1]
            connection = server.connect(schema)
            Workload(connection, schema, seed).run(40)
            connection.close()
            server.execute("FLUSH BINARY LOGS", f"DROP DATABASE {schema}")
            logs.append(decoded([first], schema))
        full, minimal = logs
        rows += len(full)
        for expected, got in zip(full, minimal, strict=True):
            assert got == expected, f"seed {seed} of {metadata}"
    assert rows > 20 * SEEDS
