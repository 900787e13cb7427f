"""A random history of random tables at a live server: two clients, transactions, rolled back ones, DDL in between."""

from __future__ import annotations

import random
from typing import Any

import pymysql

from tests.oracle.every_type import tables_of
from tests.servers.binlog_server import BinlogServer
from tests.servers.mysql import MySql

_IMAGES = ("FULL", "FULL", "MINIMAL", "NOBLOB")
_JSON_PATHS = ("$.a", "$.b.c", "$[0]", "$[1].x", "$.list[2]", '$."水"')
_JSON_VALUES = (
    "1",
    "-2.5",
    "NULL",
    "'text 😀'",
    "JSON_ARRAY(1, 2)",
    "JSON_OBJECT('x', REPEAT('y', 300))",
    "CAST(CURRENT_DATE AS JSON)",
)


class RandomHistory:
    """Writes through two connections. Every row has an `id` that only one of them uses, so that they never wait for each other.

    A column `touched` is counted up in every row behind each ALTER: the log has no rows for what ALTER does to them.
    """

    def __init__(self, server: BinlogServer, database: str, seed: int) -> None:
        self._pick = random.Random(seed)
        self._mysql = isinstance(server, MySql)
        columns = {kind: values for table in tables_of(server).values() for kind, values in table.items()}
        self._types = list(columns.items())
        self._connections = [server.connect(database, autocommit=False) for _ in range(2)]
        self._tables: dict[str, dict[str, tuple[str, list[str]]]] = {}
        self._names = 0
        self.failed = 0
        for connection in self._connections:
            image = self._pick.choice(_IMAGES)
            self._execute(connection, "SET sql_mode = 'ALLOW_INVALID_DATES', innodb_lock_wait_timeout = 1")
            self._execute(connection, f"SET binlog_row_image = '{image}'")
            # Without the whole row before it, a part of a document says nothing about the whole.
            if self._mysql and image == "FULL" and self._pick.random() < 0.7:
                self._execute(connection, "SET binlog_row_value_options = 'PARTIAL_JSON'")

    def run(self, steps: int) -> None:
        for _ in range(3):
            self._create()
        for _ in range(steps):
            if self._pick.random() < 0.12:
                self._commit()
                self._pick.choice(
                    [self._create, self._alter, self._alter, self._alter, self._rename, self._truncate, self._drop]
                )()
            else:
                self._change()
        self._commit()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _commit(self) -> None:
        for connection in self._connections:
            connection.commit()

    def _change(self) -> None:
        side = self._pick.randrange(2)
        connection = self._connections[side]
        for _ in range(self._pick.randint(1, 4)):
            table = self._pick.choice(list(self._tables))
            self._try(
                connection, self._pick.choice([self._insert, self._insert, self._update, self._delete])(table, side)
            )
        end = self._pick.random()
        if end < 0.6:
            connection.commit()
        elif end < 0.7:
            connection.rollback()
        elif end < 0.8:
            self._try(connection, "SAVEPOINT a")
            self._try(connection, self._insert(self._pick.choice(list(self._tables)), side))
            self._try(connection, "ROLLBACK TO SAVEPOINT a")

    def _insert(self, table: str, side: int) -> str:
        columns = self._tables[table]
        rows = [
            f"({2 * self._pick.randrange(60) + side}, 0{''.join(', ' + self._pick.choice(values) for _, values in columns.values())})"
            for _ in range(self._pick.choice((1, 1, 3, 20)))
        ]
        verb = self._pick.choice(("INSERT IGNORE", "REPLACE"))
        return f"{verb} INTO {table} (id, touched{''.join(', ' + name for name in columns)}) VALUES {', '.join(rows)}"

    def _update(self, table: str, side: int) -> str:
        columns = self._tables[table]
        some = self._pick.sample(list(columns), min(len(columns), self._pick.randint(0, 3)))
        sets = [f"{name} = {self._new_value(name, *columns[name])}" for name in some]
        if self._pick.random() < 0.1:
            sets.append("id = id + 200")
        return f"UPDATE {table} SET {', '.join(['touched = touched + 1', *sets])} WHERE {self._where(side)}"

    def _new_value(self, name: str, kind: str, values: list[str]) -> str:
        if not (self._mysql and kind == "JSON") or self._pick.random() < 0.3:
            return self._pick.choice(values)
        path = self._pick.choice(_JSON_PATHS)
        function = self._pick.choice(("JSON_SET", "JSON_REPLACE", "JSON_REMOVE"))
        return (
            f"JSON_REMOVE({name}, '{path}')"
            if function == "JSON_REMOVE"
            else f"{function}({name}, '{path}', {self._pick.choice(_JSON_VALUES)})"
        )

    def _delete(self, table: str, side: int) -> str:
        return f"DELETE FROM {table} WHERE {self._where(side)}"

    def _where(self, side: int) -> str:
        first = self._pick.randrange(120)
        return f"id % 2 = {side} AND id BETWEEN {first} AND {first + self._pick.choice((0, 5, 30))}"

    def _create(self) -> None:
        name = self._name("t")
        columns = {self._name("c"): self._pick.choice(self._types) for _ in range(self._pick.randint(1, 8))}
        defined = "".join(f", {column} {kind}" for column, (kind, _) in columns.items())
        if self._ddl(f"CREATE TABLE {name} (id INT PRIMARY KEY, touched BIGINT NOT NULL{defined})"):
            self._tables[name] = columns

    def _alter(self) -> None:
        table = self._pick.choice(list(self._tables))
        columns = self._tables[table]
        name, (kind, values) = self._name("c"), self._pick.choice(self._types)
        old = self._pick.choice(list(columns))
        place = self._pick.choice(("", " FIRST", " AFTER id"))
        changed, statement = self._pick.choice([
            ({**columns, name: (kind, values)}, f"ADD COLUMN {name} {kind}{place}"),
            ({key: column for key, column in columns.items() if key != old}, f"DROP COLUMN {old}"),
            ({**columns, old: (kind, values)}, f"MODIFY {old} {kind}{place}"),
            ({key: column for key, column in columns.items() if key != old} | {name: columns[old]}, f"CHANGE {old} {name} {columns[old][0]}"),
        ])  # fmt: skip
        if len(changed) and self._ddl(f"ALTER TABLE {table} {statement}"):
            self._tables[table] = changed
            # All columns, also where a session writes only those that change.
            writer = self._connections[0]
            self._execute(writer, "SET @image = @@binlog_row_image, SESSION binlog_row_image = 'FULL'")
            self._execute(writer, f"UPDATE {table} SET touched = touched + 1")
            writer.commit()
            self._execute(writer, "SET SESSION binlog_row_image = @image")

    def _rename(self) -> None:
        old, new = self._pick.choice(list(self._tables)), self._name("t")
        if self._ddl(f"RENAME TABLE {old} TO {new}"):
            self._tables[new] = self._tables.pop(old)

    def _truncate(self) -> None:
        self._ddl(f"TRUNCATE TABLE {self._pick.choice(list(self._tables))}")

    def _drop(self) -> None:
        table = self._pick.choice(list(self._tables))
        if len(self._tables) > 2 and self._ddl(f"DROP TABLE {table}"):
            del self._tables[table]

    def _ddl(self, statement: str) -> bool:
        """False when the server refuses it, as it does with some changes of type."""
        failed = self.failed
        self._try(self._connections[0], statement)
        return self.failed == failed

    def _try(self, connection: pymysql.Connection[Any], statement: str) -> None:
        try:
            self._execute(connection, statement)
        except pymysql.MySQLError:
            self.failed += 1

    @staticmethod
    def _execute(connection: pymysql.Connection[Any], statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"
