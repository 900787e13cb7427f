"""Changes at a steady rate, each a transaction of its own, and how long they were on their way."""

from __future__ import annotations

import time

from tests.servers.binlog_server import BinlogServer

DATABASE = "shop"
TABLE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer_id INT, status VARCHAR(16), amount DECIMAL(12,2), note VARCHAR(100))"
FIRST = "INSERT INTO orders VALUES (0, 1, 'first', 1, '')"
"""The row that is waited for before the others are written."""


def write(server: BinlogServer, committed: dict[int, float], rate: int, total: int) -> None:
    """Inserts rows with the keys 1 to `total`; `committed` gets the moment (`time.time`) at which each COMMIT returned."""
    connection = server.connect(DATABASE)
    began = time.time()
    with connection.cursor() as cursor:
        for key in range(1, total + 1):
            pause_s = began + key / rate - time.time()
            if pause_s > 0:
                time.sleep(pause_s)
            cursor.execute(
                f"INSERT INTO orders VALUES ({key}, {key % 1000}, 'open', {key % 997}.25, 'a note of some length')"
            )
            committed[key] = time.time()
    connection.close()


def quantiles(delays_ms: list[float]) -> tuple[float, ...]:
    """p50, p95, p99 and the largest."""
    ordered = sorted(delays_ms)
    return (*(ordered[int(len(ordered) * share)] for share in (0.50, 0.95, 0.99)), ordered[-1])
