"""Records a day of a small web shop in the binary log of a real MariaDB server, with the server's own answers beside it.

    python examples/shop/make.py          needs mariadbd and mariadb-install-db on the PATH, and PyMySQL

Writes, beside this file::

    binlog/binlog.000001 …          the server's binary log of Monday, 2 March 2026, 08:00 to 20:00 UTC
    expected/<table>.jsonl          the server's SELECT of every table at the end, ordered by key
    expected/asof.json              two moments of the day: time (UTC), binlog file and position, and the file with …
    expected/orders-<HHMM>.jsonl    … the server's SELECT of `orders` at that moment

The day is played from a fixed seed, and commit times are set (`SET timestamp`), so a second recording has the same rows at the
same times; only what the server numbers itself (transaction ids) may differ. Values are written as `headrace decode` prints them.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import FIELD_TYPE
from pymysql.converters import encoders

HERE = Path(__file__).parent
OPENING = datetime(2026, 3, 2, 8, tzinfo=UTC)
CLOSING = datetime(2026, 3, 2, 20, tzinfo=UTC)
MOMENTS = (OPENING.replace(hour=9, minute=30), OPENING.replace(hour=14))
KEYS = {
    "customers": "id",
    "products": "sku",
    "orders": "id",
    "order_lines": "order_id, line_no",
    "payments": "id",
}
TRANSACTIONS = 3600

TABLES = (
    """CREATE TABLE customers (
        id INT UNSIGNED NOT NULL PRIMARY KEY,
        email VARCHAR(120) NOT NULL UNIQUE,
        name VARCHAR(80) NOT NULL,
        locale CHAR(5) NOT NULL,
        born DATE NULL,
        note TEXT NULL,
        newsletter TINYINT(1) NOT NULL DEFAULT 0,
        preferences JSON NULL,
        created TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3))""",
    """CREATE TABLE products (
        sku VARCHAR(16) NOT NULL PRIMARY KEY,
        title VARCHAR(60) NOT NULL,
        price DECIMAL(10,2) NOT NULL,
        stock INT NOT NULL,
        weight_kg DOUBLE NULL,
        labels SET('new','sale','eco') NOT NULL DEFAULT '',
        checksum BINARY(4) NOT NULL,
        updated DATETIME(3) NOT NULL)""",
    """CREATE TABLE orders (
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
        customer_id INT UNSIGNED NOT NULL,
        status ENUM('new','paid','shipped','delivered','cancelled') NOT NULL DEFAULT 'new',
        placed DATETIME(3) NOT NULL,
        total DECIMAL(12,2) NOT NULL,
        currency CHAR(3) NOT NULL DEFAULT 'EUR',
        comment TEXT NULL,
        gift TINYINT(1) NOT NULL DEFAULT 0,
        shipped_on DATE NULL,
        updated TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
        KEY (customer_id))""",
    """CREATE TABLE order_lines (
        order_id BIGINT UNSIGNED NOT NULL,
        line_no SMALLINT UNSIGNED NOT NULL,
        sku VARCHAR(16) NOT NULL,
        quantity INT NOT NULL,
        price DECIMAL(10,2) NOT NULL,
        discount DECIMAL(5,2) NULL,
        PRIMARY KEY (order_id, line_no))""",
    """CREATE TABLE payments (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        order_id BIGINT UNSIGNED NOT NULL,
        method ENUM('card','invoice','wallet','支付宝') NOT NULL,
        amount DECIMAL(12,2) NOT NULL,
        paid DATETIME(6) NOT NULL,
        reference BIGINT UNSIGNED NULL,
        response JSON NULL)""",
)
ALTERS = (
    ("09:15", "ALTER TABLE orders ADD COLUMN channel ENUM('web','app','shop') NOT NULL DEFAULT 'web'"),
    ("10:40", "ALTER TABLE customers ADD COLUMN phone VARCHAR(24) NULL AFTER email"),
    ("12:10", "ALTER TABLE products MODIFY stock BIGINT NOT NULL, MODIFY title VARCHAR(120) NOT NULL"),
    ("15:20", "ALTER TABLE order_lines ADD COLUMN tax_rate DECIMAL(4,3) NOT NULL DEFAULT 0.190 AFTER price"),
    ("16:45", "ALTER TABLE products DROP COLUMN weight_kg"),
    ("17:30", "ALTER TABLE payments ADD COLUMN bank VARCHAR(40) NOT NULL DEFAULT 'unknown – 未知'"),
)
PEOPLE = (
    ("Anna Müller", "de_DE"), ("Łukasz Żółty", "pl_PL"), ("李小龙", "zh_CN"), ("王芳", "zh_CN"), ("山田太郎", "ja_JP"),
    ("김민준", "ko_KR"), ("Ольга Петрова", "ru_RU"), ("محمد علي", "ar_EG"), ("Zoë O'Brien", "en_IE"), ("José Peña", "es_ES"),
    ("Nguyễn Văn A", "vi_VN"), ("Élodie Lefèvre", "fr_FR"), ('Bob "the shop" Jones', "en_US"), ("Ayşe Yılmaz", "tr_TR"),
)  # fmt: skip
GOODS = (
    "Teapot", "Kaffeemühle", "绿茶 100g", "抹茶", "Žluťoučký hrnek", "Фарфоровая чашка", "Mug 🍵", "Thé à la menthe", "급수기", "ふきん",
    "Honey 50%", "Tea\\Spoon",
)  # fmt: skip
COMMENTS = (
    None,
    None,
    None,
    None,
    "",
    "Please ring twice",
    "请在下午送货",
    "C'est un cadeau 🎁",
    "línea 1\nlínea 2",
    "tab\there",
)


class Server:
    """A MariaDB server of its own, in a directory that is gone afterwards."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.socket = directory / "socket"
        self.log = directory / "server.log"

    @contextmanager
    def running(self) -> Iterator[pymysql.Connection[Any]]:
        options = ["--no-defaults", f"--datadir={self.data}", "--user=root"]
        install = ["mariadb-install-db", *options, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        with self.log.open("wb") as log:
            process = subprocess.Popen(["mariadbd", *options, *self._settings()], stdout=log, stderr=log)
        try:
            connection = self._connect(process)
            yield connection
            connection.close()
        finally:
            process.terminate()
            process.wait()

    def _settings(self) -> list[str]:
        return [
            f"--socket={self.socket}", "--skip-networking", "--server-id=1", "--character-set-server=utf8mb4",
            "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL",
            "--binlog-checksum=CRC32", "--binlog-annotate-row-events=OFF", "--max-binlog-size=1M",
            "--default-time-zone=+00:00", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
        ]  # fmt: skip

    def _connect(self, process: subprocess.Popen[bytes]) -> pymysql.Connection[Any]:
        while process.poll() is None:
            try:
                # With encoders alone, every value arrives as the server prints it.
                return pymysql.connect(unix_socket=str(self.socket), user="root", charset="utf8mb4", conv=encoders)
            except pymysql.err.OperationalError:
                time.sleep(0.1)
        raise SystemExit(f"mariadbd did not start:\n{self.log.read_text()}")

    def binlogs(self) -> list[Path]:
        return sorted(self.data.glob("binlog.[0-9]*"))


class Shop:
    """The day's business. Each public method that `business` lists is one transaction at `self.now`."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self.cursor = connection.cursor()
        self.random = random.Random(20260302)
        self.now = OPENING
        self.customers: list[int] = []
        self.prices: dict[str, Decimal] = {}
        self.orders: dict[str, list[int]] = {"new": [], "paid": [], "shipped": [], "delivered": [], "cancelled": []}
        self.totals: dict[int, Decimal] = {}
        self.next_customer = 1001
        self.next_order = 10_000_000_001
        self.altered: set[str] = set()

    def business(self) -> tuple[tuple[Callable[[], None], int], ...]:
        """What happens in the shop, with how often."""
        return (
            (self.place, 45), (self.pay, 26), (self.ship, 8), (self.deliver, 4), (self.cancel, 3), (self.register, 5),
            (self.edit_customer, 5), (self.reprice, 1), (self.restock, 2), (self.correct_lines, 2), (self.renumber, 1),
            (self.forget_customer, 1), (self.give_up, 2),
        )  # fmt: skip

    # --- transactions

    def open(self) -> None:
        """Schema and the stock of goods; customers and yesterday's orders come from the old system."""
        self.at(OPENING)
        self.run("CREATE DATABASE shop CHARACTER SET utf8mb4", "USE shop", *TABLES)
        rows = [self._product(number) for number in range(120)]
        with self.transaction():
            self.insert("products (sku, title, price, stock, weight_kg, labels, checksum, updated)", rows)
        for _ in range(4):
            with self.transaction():
                self._register(100)
        for _ in range(18):
            self.now += timedelta(seconds=5)
            with self.transaction():
                self._place(100, self.now - timedelta(hours=14), "delivered")

    def place(self) -> None:
        with self.transaction():
            self._place(1, self.now, "new")

    def pay(self) -> None:
        order = self._take("new")
        if order is None:
            return
        method = self.random.choice(("card", "invoice", "wallet", "支付宝"))
        reference = self.random.choice((None, self.random.randrange(2**64), self.random.randrange(10**9)))
        response = {"ok": True, "code": self.random.randrange(100), "bank": self.random.choice(("中国银行", "Süd"))}
        text = None if method == "invoice" else json.dumps(response, ensure_ascii=False)
        row = (order, method, self.totals[order], self._moment(6), reference, text)
        with self.transaction():
            self.insert("payments (order_id, method, amount, paid, reference, response)", [row])
            self.run("UPDATE orders SET status = 'paid' WHERE id = %s", order)
        self.orders["paid"].append(order)

    def ship(self) -> None:
        self._advance("paid", "shipped", f"shipped_on = '{self.now.date()}'", self.random.randrange(1, 20))

    def deliver(self) -> None:
        self._advance("shipped", "delivered", "comment = CONCAT(COALESCE(comment, ''), ' ✓')", 25)

    def cancel(self) -> None:
        order = self._take("new")
        if order is None:
            return
        with self.transaction():
            self.run("UPDATE orders SET status = 'cancelled', total = 0 WHERE id = %s", order)
            self.run("DELETE FROM order_lines WHERE order_id = %s", order)
        self.orders["cancelled"].append(order)

    def register(self) -> None:
        with self.transaction():
            self._register(1)

    def edit_customer(self) -> None:
        changes = ["newsletter = 1 - newsletter", "note = NULL", "note = ''", "note = CONCAT(name, ' – VIP 贵宾')"]
        changes.append("""preferences = '{"theme": "dark", "尺寸": [1, 2.50, null]}'""")
        if "10:40" in self.altered:
            changes.append(f"phone = '+49 30 {self.random.randrange(10**7):07}'")
        with self.transaction():
            self.run(
                f"UPDATE customers SET {self.random.choice(changes)} WHERE id = %s", self.random.choice(self.customers)
            )

    def reprice(self) -> None:
        """All prices of one kind of goods, in one statement."""
        title = self.random.choice(GOODS)
        with self.transaction():
            self.run(
                "UPDATE products SET price = price * 1.05, labels = 'new,eco', updated = NOW(3) WHERE title LIKE %s",
                title.replace("\\", "\\\\").replace("%", "\\%") + "%",
            )

    def restock(self) -> None:
        with self.transaction():
            self.run(
                "UPDATE products SET stock = stock + 500, updated = NOW(3) ORDER BY stock, sku LIMIT %s",
                self.random.randrange(5, 25),
            )

    def correct_lines(self) -> None:
        """Moves the lines of an order: the primary key of several rows changes in one statement."""
        order = self.random.choice(self.orders["paid"] or [0])
        with self.transaction():
            self.run("UPDATE order_lines SET line_no = line_no + 10 WHERE order_id = %s ORDER BY line_no DESC", order)

    def renumber(self) -> None:
        """Gives an order a new number: its own key and its lines' keys change."""
        old = self._take("shipped")
        if old is None:
            return
        new, self.next_order = self.next_order, self.next_order + 1
        with self.transaction():
            self.run("UPDATE orders SET id = %s WHERE id = %s", new, old)
            self.run("UPDATE order_lines SET order_id = %s WHERE order_id = %s", new, old)
            self.run("UPDATE payments SET order_id = %s WHERE order_id = %s", new, old)
        self.orders["shipped"].append(new)
        self.totals[new] = self.totals.pop(old)

    def forget_customer(self) -> None:
        customer = self.customers.pop(self.random.randrange(len(self.customers)))
        with self.transaction():
            self.run("DELETE FROM customers WHERE id = %s", customer)

    def give_up(self) -> None:
        """A transaction that is rolled back as a whole, or down to a savepoint."""
        self.at(self.now)
        self.run("BEGIN", "UPDATE orders SET total = total + 1 ORDER BY id LIMIT 3")
        if self.random.random() < 0.5:
            self.run("ROLLBACK")
            return
        self.run("SAVEPOINT before_mistake", "DELETE FROM order_lines ORDER BY order_id, line_no LIMIT 50")
        self.run("ROLLBACK TO before_mistake", "COMMIT")

    def archive(self) -> None:
        """In the evening half of yesterday's orders leave the shop, each hundred in one transaction."""
        old = sorted(self.orders["delivered"])[:900]
        for start in range(0, len(old), 100):
            self.now += timedelta(seconds=7)
            some = old[start : start + 100]
            with self.transaction():
                self.run("DELETE FROM order_lines WHERE order_id BETWEEN %s AND %s", some[0], some[-1])
                self.run("DELETE FROM orders WHERE id BETWEEN %s AND %s", some[0], some[-1])
        self.orders["delivered"] = sorted(set(self.orders["delivered"]) - set(old))

    def alter(self, clock: str, statement: str) -> None:
        self.at(self.now)
        self.run(statement)
        self.altered.add(clock)

    # --- parts of transactions

    def _register(self, count: int) -> None:
        rows: list[tuple[object, ...]] = []
        for _ in range(count):
            number = self.next_customer
            self.next_customer += 1
            name, locale = self.random.choice(PEOPLE)
            born = None if self.random.random() < 0.3 else date(1950, 1, 1) + timedelta(self.random.randrange(20000))
            theme = None if self.random.random() < 0.5 else '{"theme": "light"}'
            rows.append((number, f"user{number}@example.org", name, locale, born, None, number % 2, theme))
            self.customers.append(number)
        self.insert("customers (id, email, name, locale, born, note, newsletter, preferences)", rows)

    def _place(self, count: int, placed: datetime, status: str) -> None:
        orders: list[tuple[object, ...]] = []
        lines: list[tuple[object, ...]] = []
        for order in range(self.next_order, self.next_order + count):
            bought = self._lines(order)
            self.totals[order] = sum((line[3] * line[4] for line in bought), Decimal(0))
            comment, gift = self.random.choice(COMMENTS), int(self.random.random() < 0.1)
            text = f"{placed:%Y-%m-%d %H:%M:%S}.{placed.microsecond // 1000:03}"
            orders.append(
                (order, self.random.choice(self.customers), status, text, self.totals[order], "EUR", comment, gift)
            )
            lines += bought
            self.orders[status].append(order)
        self.next_order += count
        columns = "id, customer_id, status, placed, total, currency, comment, gift"
        if "09:15" in self.altered:
            columns += ", channel"
            orders = [(*row, self.random.choice(("web", "app", "shop"))) for row in orders]
        self.insert(f"orders ({columns})", orders)
        self.insert("order_lines (order_id, line_no, sku, quantity, price, discount)", lines)
        self._take_from_stock(lines)

    def _lines(self, order: int) -> list[tuple[int, int, str, int, Decimal, Decimal | None]]:
        bought = self.random.sample(sorted(self.prices), self.random.choice((1, 1, 2, 2, 3, 5)))
        discounts = (None, None, Decimal("0.00"), Decimal("12.50"))
        return [
            (order, number, sku, self.random.randrange(1, 4), self.prices[sku], self.random.choice(discounts))
            for number, sku in enumerate(bought, start=1)
        ]

    def _take_from_stock(self, lines: Sequence[tuple[object, ...]]) -> None:
        if len(lines) < 5:
            self.run(
                "UPDATE products SET stock = stock - %s, updated = NOW(3) WHERE sku = %s", lines[0][3], lines[0][2]
            )

    def _product(self, number: int) -> tuple[object, ...]:
        sku = f"{self.random.choice('ABCDE')}-{number:04}"
        self.prices[sku] = Decimal(self.random.randrange(99, 19999)) / 100
        title = f"{GOODS[number % len(GOODS)]} {number}"
        weight = self.random.choice((None, 0.1, 0.35, 1.0, 2.718281828459045))
        checksum = self.random.randbytes(3) + b"\0"
        return (sku, title, self.prices[sku], 1000, weight, self.random.choice(("", "new", "new,sale", "eco")), checksum, self._moment(3))  # fmt: skip

    def _advance(self, old: str, new: str, change: str, count: int) -> None:
        moved = [order for order in (self._take(old) for _ in range(count)) if order is not None]
        if moved:
            with self.transaction():
                self.run(f"UPDATE orders SET status = '{new}', {change} WHERE id IN %s ORDER BY id", tuple(moved))
            self.orders[new] += moved

    def _take(self, status: str) -> int | None:
        orders = self.orders[status]
        return orders.pop(self.random.randrange(len(orders))) if orders else None

    def _moment(self, digits: int) -> str:
        return f"{self.now:%Y-%m-%d %H:%M:%S.%f}"[: 20 + digits]

    # --- the connection

    def at(self, moment: datetime) -> None:
        self.cursor.execute(f"SET timestamp = {moment.timestamp():.6f}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.at(self.now)
        self.cursor.execute("BEGIN")
        yield
        self.cursor.execute("COMMIT")

    def run(self, *parts: object) -> None:
        """One statement with arguments, or several statements."""
        if len(parts) > 1 and "%s" in str(parts[0]):
            self.cursor.execute(str(parts[0]), parts[1:])
            return
        for statement in parts:
            self.cursor.execute(str(statement))

    def insert(self, target: str, rows: Sequence[tuple[object, ...]]) -> None:
        """All rows in one statement."""
        one = "(" + ", ".join(["%s"] * len(rows[0])) + ")"
        values = [value for row in rows for value in row]
        self.cursor.execute(f"INSERT INTO {target} VALUES {', '.join([one] * len(rows))}", values)


def play(shop: Shop, record: Callable[[datetime], None]) -> None:
    """The whole day; `record` is called at each of MOMENTS, when nothing has happened for a while."""
    actions, weights = zip(*shop.business(), strict=True)
    stops = sorted([(_clock(clock), clock, statement) for clock, statement in ALTERS] + [(m, "", "") for m in MOMENTS])
    shop.open()
    step = (CLOSING - timedelta(minutes=10) - shop.now) / TRANSACTIONS
    for number in range(TRANSACTIONS):
        if stops and shop.now >= stops[0][0] - 2 * step:
            moment, clock, statement = stops.pop(0)
            shop.now = moment + 2 * step
            if clock:
                shop.alter(clock, statement)
            else:
                record(moment)
        shop.random.choices(actions, weights)[0]()
        shop.now = max(shop.now, OPENING + timedelta(minutes=2) + step * number) + step * shop.random.uniform(0.1, 0.9)
    shop.archive()


def _clock(text: str) -> datetime:
    hour, minute = text.split(":")
    return OPENING.replace(hour=int(hour), minute=int(minute))


# --- expected values

NUMBERS = {FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG}


def write_rows(cursor: pymysql.cursors.Cursor, table: str, path: Path) -> int:
    """The server's own rows, in the forms of `headrace decode`: one JSON object per line."""
    cursor.execute(f"SELECT * FROM shop.{table} ORDER BY {KEYS[table]}")
    assert cursor.description is not None
    columns = [(column[0], column[1]) for column in cursor.description]
    rows = cursor.fetchall()
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            values = {name: _value(kind, value) for (name, kind), value in zip(columns, row, strict=True)}
            file.write(json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n")
    return len(rows)


def _value(kind: int, value: str | bytes | None) -> object:
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if kind in NUMBERS:
        return int(value)
    return float(value) if kind in {FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE} else value


def main() -> None:
    expected, binlogs = HERE / "expected", HERE / "binlog"
    for directory in (expected, binlogs):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        server = Server(Path(scratch))
        with server.running() as connection:
            cursor = connection.cursor()
            moments: list[dict[str, object]] = []

            def record(moment: datetime) -> None:
                cursor.execute("SHOW MASTER STATUS")
                status = cursor.fetchone()
                assert status is not None
                name = f"orders-{moment:%H%M}.jsonl"
                rows = write_rows(cursor, "orders", expected / name)
                place = {"binlog": status[0], "position": int(status[1])}
                moments.append({"time": f"{moment:%Y-%m-%dT%H:%M:%SZ}", **place, "table": "orders", "rows": rows, "expected": name})  # fmt: skip

            play(Shop(connection), record)
            (expected / "asof.json").write_text(json.dumps(moments, indent=2) + "\n")
            for table in KEYS:
                write_rows(cursor, table, expected / f"{table}.jsonl")
        for path in server.binlogs():
            shutil.copyfile(path, binlogs / path.name)


if __name__ == "__main__":
    main()
