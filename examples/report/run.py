"""A report over three systems, live: ``make report``, or ``python -m examples.report.run DIRECTORY [--changes N] [--stay]`` where the servers are installed.

Starts two MySQL servers (a shop, a catalogue), a MariaDB server (the bank) and a PostgreSQL server (the report), runs flow.yaml between them, serves the
page, and changes rows in all three systems: orders come, are paid, corrected, cancelled and deleted, payments go back, stores and products move. Each time that
it stops for a moment, and at the end, the report is held against the three databases' own answers. Exit code 1 when it is not the same.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from examples.live import begun, ended, quantiles, running, said, until
from examples.report.page import Line, report, serving, until_ctrl_c
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

TABLES = {
    "shop": [
        """CREATE TABLE orders (id INT PRIMARY KEY, store_id INT NOT NULL, product_id INT NOT NULL, amount DECIMAL(10, 2) NOT NULL,
            status VARCHAR(10) NOT NULL)"""
    ],
    "bank": ["CREATE TABLE payments (id INT PRIMARY KEY, order_id INT NOT NULL, amount DECIMAL(10, 2) NOT NULL)"],
    "catalogue": [
        "CREATE TABLE stores (id INT PRIMARY KEY, region VARCHAR(10) NOT NULL)",
        "CREATE TABLE products (id INT PRIMARY KEY, category VARCHAR(10) NOT NULL)",
    ],
}
"""Of each system."""
UTC = "--default-time-zone=+00:00"
REGIONS, CATEGORIES = ("north", "east", "south", "west"), ("garden", "kitchen", "tools")
STORES, PRODUCTS, FIRST_ORDERS = 12, 30, 200
BETWEEN_LOOKS = 25
"""So many changes are made until it is looked whether the report has them."""
PAUSE_S = 0.03
LOOK_EVERY_S = 0.02


class Business:
    """Three systems, and what happens in them. Each change is committed when its method returns."""

    def __init__(self, servers: dict[str, BinlogServer], stack: ExitStack, seed: int) -> None:
        self._to = {name: stack.enter_context(closing(server.connect(name))) for name, server in servers.items()}
        self._draw = random.Random(seed)
        self._orders: dict[int, Decimal] = {}
        """Those that can be changed, with what is not paid yet."""
        self._payments: dict[int, tuple[int, Decimal]] = {}
        self._newest = 0
        self._kinds: dict[Callable[[], None], int] = {
            self.order: 40,
            self.pay: 35,
            self.correct: 8,
            self.cancel: 6,
            self.delete: 4,
            self.pay_back: 4,
            self.move_store: 2,
            self.move_product: 1,
        }
        """With how often they happen, in hundredths."""

    def begin(self) -> None:
        """What there is before headrace comes."""
        for id_ in range(1, STORES + 1):
            self._do("catalogue", "INSERT INTO stores VALUES (%s, %s)", id_, REGIONS[id_ % len(REGIONS)])
        for id_ in range(1, PRODUCTS + 1):
            self._do("catalogue", "INSERT INTO products VALUES (%s, %s)", id_, CATEGORIES[id_ % len(CATEGORIES)])
        for number in range(FIRST_ORDERS):
            self.order()
            if number % 2:
                self.pay()

    def changes(self) -> Iterator[Callable[[], None]]:
        """What happens next, without an end; everything once at first."""
        kinds = list(self._kinds)
        yield from kinds
        while True:
            yield self._draw.choices(kinds, [*self._kinds.values()])[0]

    def order(self) -> None:
        self._newest += 1
        amount = self._orders[self._newest] = Decimal(self._draw.randrange(500, 50_000)) / 100
        store, product = self._draw.randrange(STORES) + 1, self._draw.randrange(PRODUCTS) + 1
        self._do("shop", "INSERT INTO orders VALUES (%s, %s, %s, %s, 'placed')", self._newest, store, product, amount)

    def pay(self) -> None:
        """Somebody pays an order, in one or two parts."""
        if not (owed := [(id_, open_) for id_, open_ in self._orders.items() if open_ > 0]):
            return
        order, open_ = self._draw.choice(owed)
        amount = self._draw.choice([open_, max(Decimal("0.01"), round(open_ / 2, 2))])
        self._newest += 1
        self._orders[order] -= amount
        self._payments[self._newest] = (order, amount)
        self._do("bank", "INSERT INTO payments VALUES (%s, %s, %s)", self._newest, order, amount)

    def correct(self) -> None:
        """An order is about more than was written."""
        more = Decimal(self._draw.randrange(1, 2000)) / 100
        order = self._draw.choice([*self._orders])
        self._orders[order] += more
        self._do("shop", "UPDATE orders SET amount = amount + %s WHERE id = %s", more, order)

    def cancel(self) -> None:
        self._do("shop", "UPDATE orders SET status = 'cancelled' WHERE id = %s", self._taken())

    def delete(self) -> None:
        self._do("shop", "DELETE FROM orders WHERE id = %s", self._taken())

    def pay_back(self) -> None:
        """The bank deletes a payment, of whatever order."""
        payment = self._draw.choice([*self._payments])
        order, amount = self._payments.pop(payment)
        if order in self._orders:
            self._orders[order] += amount
        self._do("bank", "DELETE FROM payments WHERE id = %s", payment)

    def move_store(self) -> None:
        """With all of its orders."""
        region, store = self._draw.choice(REGIONS), self._draw.randrange(STORES) + 1
        self._do("catalogue", "UPDATE stores SET region = %s WHERE id = %s", region, store)

    def move_product(self) -> None:
        category, product = self._draw.choice(CATEGORIES), self._draw.randrange(PRODUCTS) + 1
        self._do("catalogue", "UPDATE products SET category = %s WHERE id = %s", category, product)

    def _taken(self) -> int:
        order = self._draw.choice([*self._orders])
        del self._orders[order]
        return order

    def report(self) -> list[Line]:
        """What the report is to be by what the three databases answer now. No database has all of it, so the answers are put together here."""
        regions = dict(self._ask("catalogue", "SELECT id, region FROM stores"))
        categories = dict(self._ask("catalogue", "SELECT id, category FROM products"))
        paid = dict(self._ask("bank", "SELECT order_id, sum(amount) FROM payments GROUP BY order_id"))
        orders = self._ask("shop", "SELECT id, store_id, product_id, amount FROM orders WHERE status <> 'cancelled'")
        groups: defaultdict[tuple[str, str], list[tuple[Decimal, Decimal]]] = defaultdict(list)
        for id_, store, product, amount in orders:
            groups[regions[store], categories[product]].append((amount, paid.get(id_, Decimal(0))))
        return [
            Line(
                *key,
                len(rows),
                sum((amount for amount, _ in rows), Decimal(0)),
                sum((part for _, part in rows), Decimal(0)),
            )
            for key, rows in sorted(groups.items())
        ]

    def _do(self, system: str, statement: str, *values: object) -> None:
        with self._to[system].cursor() as cursor:
            cursor.execute(statement, values)

    def _ask(self, system: str, statement: str) -> list[tuple[Any, ...]]:
        with self._to[system].cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def play(business: Business, url: str, process: subprocess.Popen[bytes], count: int) -> bool:
    """Lets things happen, and tells how the report followed; whether it was right each time that it was looked at."""

    def is_right() -> bool:
        wanted = business.report()
        return until(lambda: report(url) == wanted, process, every_s=LOOK_EVERY_S)

    if not is_right():
        return False
    said(f"The report has the {FIRST_ORDERS} orders that were there. Others come, and are paid, changed and deleted:")
    taken = []
    for number, change in zip(range(1, count + 1), business.changes(), strict=False):
        time.sleep(PAUSE_S)
        change()
        if number % BETWEEN_LOOKS == 0 or number == count:
            since = time.monotonic()
            if not is_right():
                return False
            taken.append(time.monotonic() - since)
    tell(report(url))
    said(
        f"{count} changes; {len(taken)} times the report was held against the three databases, "
        f"and had all of them so long after the last commit: {quantiles(taken)}"
    )
    return True


def tell(lines: list[Line]) -> None:
    said(f"{'region':8}{'category':10}{'orders':>8}{'amount':>12}{'paid':>12}")
    for line in lines:
        said(f"{line.region:8}{line.category:10}{line.orders:8}{line.amount:12}{line.paid:12}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.report.run")
    parser.add_argument("directory", type=Path, nargs="?", default=Path("headrace-demo/report"))
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--stay", action="store_true", help="keep servers, flow and page until Ctrl-C")
    options = parser.parse_args()
    flow = begun(options.directory, __file__)
    with ExitStack() as stack:
        systems: dict[str, BinlogServer] = {"shop": MySql(UTC), "bank": MariaDb(UTC), "catalogue": MySql(UTC)}
        environment = dict(os.environ)
        for name, system in systems.items():
            stack.enter_context(system)
            system.execute(f"CREATE DATABASE {name}", f"USE {name}", *TABLES[name])
            settings = {"HOST": system.host, "PORT": str(system.port), "USER": system.user, "PASSWORD": system.password}
            environment |= {f"{name.upper()}_{setting}": value for setting, value in settings.items()}
        url = environment["REPORT_URL"] = stack.enter_context(PostgreSql()).url("postgres")
        business = Business(systems, stack, seed=7)
        business.begin()
        address = stack.enter_context(serving(url))
        process = stack.enter_context(running(flow, environment))
        said(f"The page: {address}")
        if not play(business, url, process, options.changes):
            said(f"the report does not have what it should; see {flow.with_name('run.log')}")
            return 1
        said("The report has exactly what the three databases say.")
        if options.stay:
            said("All of it stays until Ctrl-C. Change something:")
            for name, system in systems.items():
                place = f"--host {system.host} --port {system.port}"
                said(f"  mariadb {place} --user {system.user} --password='{system.password}' {name}")
            until_ctrl_c()
    return 0


if __name__ == "__main__":
    ended(main)
