"""How quick the database sink is, per dialect, against the bare driver: ``PYTHONPATH=src python -m bench.database_sink``.

Rows per second of write + commit, 100,000 rows in batches of 5,000: first all inserted, then half-stale updates (every second
row is older than the stored one). The limit, in the same run on the same server: the driver's quickest bulk statement
(COPY, executemany) into a table without the rule of idempotence, values already converted. Then the time from write to the end
of commit for transactions of 1 and 10 rows.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.servers.mariadb import MariaDb
from tests.servers.postgresql import PostgreSql

from bench.machine import write_results
from headrace.sinks.base import Position
from headrace.sinks.database import DatabaseSink
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema

ROWS = 100_000
BATCH_ROWS = 5_000
COMMITS = 1_000

TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    (
        Column("id", pa.int64(), "bigint"),
        Column("customer", pa.int32(), "int"),
        Column("status", pa.utf8(), "varchar(20)"),
        Column("amount", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("created", pa.timestamp("us"), "datetime(6)"),
        Column("note", pa.utf8(), "varchar(100)"),
    ),
    ("id",),
)
_DDL = (
    "id BIGINT PRIMARY KEY, customer INTEGER, status VARCHAR(20), amount DECIMAL(12,2), created {}, note VARCHAR(100)"
)
_COLUMNS = 6


def batches(rows: int, batch_rows: int, first_id: int, stale: bool = False) -> list[ChangeBatch]:
    """Batches of changes of the keys 0, 1, 2, …; with `stale` every second change is older than all others."""
    made = []
    for start in range(0, rows, batch_rows):
        keys = range(start, min(start + batch_rows, rows))
        ids = [(key - 10 * ROWS if stale and key % 2 else first_id + key) for key in keys]
        us = pa.array([1_700_000_000_000_000 + key for key in keys], pa.int64())
        utc = us.view(pa.timestamp("us", "UTC"))
        arrays: list[Any] = [
            pa.array(ids, pa.int64()),
            utc,
            pa.array(["u" if stale else "i"] * len(keys)),
            utc,
            pa.nulls(len(keys), pa.utf8()),
            pa.array(keys, pa.int64()),
            pa.array([key % 1000 for key in keys], pa.int32()),
            pa.array([("new", "paid", "sent")[key % 3] for key in keys]),
            pa.array([Decimal(key) / 100 for key in keys]).cast(pa.decimal128(12, 2)),
            us.view(pa.timestamp("us")),
            pa.array([f"note of order {key}, it's here" if key % 4 else None for key in keys]),
        ]
        made.append(ChangeBatch(TABLE, pa.RecordBatch.from_arrays(arrays, schema=TABLE.arrow_schema())))
    return made


def rows_per_s(sink: DatabaseSink, work: Sequence[ChangeBatch]) -> float:
    started_at = time.perf_counter()
    for number, batch in enumerate(work):
        sink.write(batch)
        sink.commit(Position("topic", 0, number, number, 0))
    return sum(map(len, work)) / (time.perf_counter() - started_at)


def commit_ms(sink: DatabaseSink, rows: int, first_id: int) -> list[float]:
    """The time of each of many small transactions, in milliseconds."""
    taken = []
    for number, batch in enumerate(batches(COMMITS * rows, rows, first_id)):
        started_at = time.perf_counter()
        sink.write(batch)
        sink.commit(Position("topic", 0, number, number, 0))
        taken.append((time.perf_counter() - started_at) * 1000)
    return taken


@contextmanager
def sqlite(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    def limit() -> float:
        with closing(sqlite3.connect(folder / "limit.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"CREATE TABLE bare ({_DDL.format('TEXT')})")
            parts = _plain_rows()
            started_at = time.perf_counter()
            for part in parts:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(f"INSERT INTO bare VALUES ({', '.join('?' * _COLUMNS)})", part)
                connection.execute("COMMIT")
            return ROWS / (time.perf_counter() - started_at)

    yield f"sqlite:///{folder / 'mart.db'}", limit


@contextmanager
def postgresql(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    with PostgreSql() as server, server.database() as name:

        def limit() -> float:
            with server.connect(name) as connection:
                connection.execute(f"CREATE TABLE bare ({_DDL.format('TIMESTAMP')})".encode())
                connection.autocommit = False
                parts = [
                    "".join("\t".join("\\N" if v is None else str(v) for v in row) + "\n" for row in part)
                    for part in _plain_rows()
                ]
                started_at = time.perf_counter()
                for part in parts:
                    with connection.cursor().copy("COPY bare FROM STDIN") as copy:
                        copy.write(part)
                    connection.commit()
                return ROWS / (time.perf_counter() - started_at)

        yield server.url(name), limit


@contextmanager
def mariadb(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    with MariaDb() as server, server.database() as name:

        def limit() -> float:
            with closing(server.connect(name, autocommit=False)) as connection, connection.cursor() as cursor:
                cursor.execute(f"CREATE TABLE bare ({_DDL.format('DATETIME(6)')})")
                parts = _plain_rows()
                started_at = time.perf_counter()
                for part in parts:
                    cursor.executemany(f"INSERT INTO bare VALUES ({', '.join(['%s'] * _COLUMNS)})", part)
                    connection.commit()
                return ROWS / (time.perf_counter() - started_at)

        yield server.url(name), limit


def _plain_rows() -> list[list[tuple[Any, ...]]]:
    parts = []
    for batch in batches(ROWS, BATCH_ROWS, 1):
        columns = [batch.data.column(column.name) for column in TABLE.columns]
        values = [(pc.cast(c, pa.utf8()) if not pa.types.is_integer(c.type) else c).to_pylist() for c in columns]
        parts.append(list(zip(*values, strict=True)))
    return parts


def measure(store: Callable[[Path], Any]) -> str:
    with tempfile.TemporaryDirectory() as folder, store(Path(folder)) as (url, limit):
        config = DatabaseSink.Config.model_validate({"type": "database", "url": url})
        with closing(DatabaseSink(config, "bench")) as sink:
            sink.prepare(TABLE)
            inserts = rows_per_s(sink, batches(ROWS, BATCH_ROWS, 1))
            updates = rows_per_s(sink, batches(ROWS, BATCH_ROWS, 2 * ROWS, stale=True))
            one, ten = commit_ms(sink, 1, 10 * ROWS), commit_ms(sink, 10, 20 * ROWS)
        bare = limit()
    return (
        f"| {store.__name__} | {bare:,.0f} | {inserts:,.0f} ({inserts / bare:.2f}) | {updates:,.0f} ({updates / bare:.2f}) "
        f"| {_quantiles(one)} | {_quantiles(ten)} |"
    )


def _quantiles(taken_ms: list[float]) -> str:
    cuts = statistics.quantiles(taken_ms, n=100)
    return f"{cuts[49]:.2f} / {cuts[98]:.2f}"


def main() -> None:
    stores = {store.__name__: store for store in (sqlite, postgresql, mariadb)}
    head = "| store | bare driver, rows/s | insert, rows/s (of bare) | half-stale update | 1 row, ms p50/p99 | 10 rows, ms p50/p99 |"
    lines = [measure(stores[name]) for name in sys.argv[1:] or stores]
    write_results("database_sink", [head, "|---|---|---|---|---|---|", *lines])


if __name__ == "__main__":
    main()
