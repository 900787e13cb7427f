"""A small live shop for flow tests: tables of many types, random transactions, and the source's own view of them."""

from __future__ import annotations

import random
import threading
from contextlib import AbstractContextManager
from typing import Any

import pymysql

from tests.beside import beside

TABLES = {
    "customers": """CREATE TABLE customers (
        id INT UNSIGNED PRIMARY KEY, name VARCHAR(40) NOT NULL, born DATE, vip TINYINT(1) NOT NULL DEFAULT 0,
        balance DECIMAL(12,2), note TEXT)""",
    "orders": """CREATE TABLE orders (
        id BIGINT PRIMARY KEY, customer_id INT UNSIGNED, status ENUM('open','paid','sent') NOT NULL,
        placed DATETIME(3) NOT NULL, paid TIMESTAMP NULL)""",
    "order_lines": """CREATE TABLE order_lines (
        order_id BIGINT, line SMALLINT, product CHAR(8), quantity INT, price DECIMAL(10,4), PRIMARY KEY (order_id, line))""",
}
NAMES = ["Ada", "Ødegård", "李雷", "O'Brien", "zażółć", "😀", "", 'quote " and \\']


class Shop:
    """Writes random transactions through one connection: inserts, updates, deletes, changed keys, several tables at once."""

    def __init__(self, connection: pymysql.Connection[Any], seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self._next_order = 1

    def create(self) -> None:
        for statement in TABLES.values():
            self._execute(statement)

    def transact(self, count: int) -> None:
        for _ in range(count):
            for _ in range(self._random.randint(1, 4)):
                self._random.choice(
                    [self._order, self._order, self._customer, self._update, self._move, self._delete]
                )()
            if self._random.random() < 0.05:
                self._connection.rollback()
            else:
                self._connection.commit()

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return list(cursor.fetchall())

    def _customer(self) -> None:
        pick = self._random
        self._execute(
            "REPLACE INTO customers (id, name, born, vip, balance, note) VALUES (%s, %s, %s, %s, %s, %s)",
            (
                pick.randint(1, 200),
                pick.choice(NAMES),
                f"19{pick.randint(10, 99)}-0{pick.randint(1, 9)}-1{pick.randint(0, 9)}",
                pick.randint(0, 1),
                pick.choice([None, f"{pick.randint(-9999, 9999)}.{pick.randint(0, 99):02d}"]),
                pick.choice([None, "", "x" * pick.randint(1, 3000)]),
            ),
        )

    def _order(self) -> None:
        pick = self._random
        key = self._next_order
        self._next_order += 1
        self._execute(
            "INSERT INTO orders VALUES (%s, %s, 'open', %s, NULL)",
            (key, pick.randint(1, 200), f"2026-03-0{pick.randint(1, 9)} 10:11:12.{pick.randint(0, 999):03d}"),
        )
        lines = ",".join(
            f"({key},{line},'p{pick.randint(1, 99)}',{pick.randint(1, 9)},{pick.randint(1, 99999)}.5)"
            for line in range(pick.randint(1, 6))
        )
        self._execute(f"INSERT INTO order_lines VALUES {lines}")

    def _update(self) -> None:
        key = self._random.randint(1, max(1, self._next_order))
        self._execute("UPDATE orders SET status = 'paid', paid = NOW() WHERE id BETWEEN %s AND %s", (key, key + 3))
        self._execute("UPDATE order_lines SET quantity = quantity + 1 WHERE order_id = %s", (key,))

    def _move(self) -> None:
        key = self._random.randint(1, max(1, self._next_order))
        self._execute(
            "UPDATE order_lines SET line = line + 100 WHERE order_id = %s AND line < 3 ORDER BY line DESC", (key,)
        )

    def _delete(self) -> None:
        key = self._random.randint(1, max(1, self._next_order))
        self._execute("DELETE FROM orders WHERE id = %s", (key,))
        self._execute("DELETE FROM order_lines WHERE order_id = %s", (key,))

    def _execute(self, statement: str, arguments: tuple[object, ...] | None = None) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, arguments)


def traffic(shop: Shop, *, transactions: int, pause_s: float) -> AbstractContextManager[None]:
    """So many transactions of the shop behind each pause, until the block is left."""

    def work(over: threading.Event) -> None:
        while not over.wait(pause_s):
            shop.transact(transactions)

    return beside(work)
