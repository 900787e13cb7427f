"""The orders workload: 1,000,000 inserts, 300,000 updates, 50,000 deletes in 10-row transactions, as peers were measured with."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb

DATABASE = "shop"
TABLE = """CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer_id INT, status VARCHAR(16), amount DECIMAL(12,2), note VARCHAR(100),
    created DATETIME(6), updated TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6))"""
_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "river",
    "water",
    "mill",
    "race",
    "stream",
    "gate",
    "sluice",
    "wheel",
    "order",
    "paid",
    "open",
    "late",
]
FAST = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=1G", "--max-binlog-size=1G")


def record_orders(inserts: int, target: Path) -> int:
    """Writes the workload on a fresh MariaDB and moves its binlogs to `target`; returns the number of row changes.

    For each 10 inserted rows 3 are updated and one in two transactions deletes one.
    """
    target.mkdir(parents=True)
    with MariaDb(*FAST) as server:
        changes = write_orders(inserts, server)
        server.execute("FLUSH BINARY LOGS")
        for path in server.binlogs()[:-1]:
            (target / path.name).write_bytes(path.read_bytes())
    return changes


def write_orders(inserts: int, server: BinlogServer) -> int:
    """Writes the workload on a server; returns the number of row changes."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute(TABLE, database=DATABASE)
    half = inserts // 2
    writers = [threading.Thread(target=_write, args=(server, start, half)) for start in (0, half)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    return sum(10 + 3 + number % 2 for number in range(half // 10)) * 2


def _write(server: BinlogServer, start: int, count: int) -> None:
    connection = server.connect(DATABASE, autocommit=False)
    with connection.cursor() as cursor:
        for statements in _transactions(start, count):
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
    connection.close()


def _transactions(start: int, count: int) -> Iterator[list[str]]:
    source = random.Random(start)
    began = datetime(2026, 3, 2, tzinfo=UTC).replace(tzinfo=None)
    for number in range(count // 10):
        first = start + number * 10
        rows = ",".join(
            _row(source, first + offset, began + timedelta(milliseconds=first + offset)) for offset in range(10)
        )
        statements = [
            f"INSERT INTO orders (id, customer_id, status, amount, note, created) VALUES {rows}",
            f"UPDATE orders SET status = 'paid', amount = amount + 1 WHERE id BETWEEN {first + 2} AND {first + 4}",
        ]
        if number % 2:
            statements.append(f"DELETE FROM orders WHERE id = {first + 7}")
        yield statements


def _row(source: random.Random, key: int, created: datetime) -> str:
    note = " ".join(source.choices(_WORDS, k=source.randint(2, 12)))
    amount = source.randint(100, 9_999_999) / 100
    return f"({key},{source.randint(1, 100_000)},'open',{amount},'{note}','{created}')"
