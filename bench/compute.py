"""How quick row-by-row computing is: ``PYTHONPATH=src python -m bench.compute``.

100,000 rows in batches of 10,000, CPU-seconds and rows per second of `Transform.changes`:

* projection, filter and JSON members, beside DuckDB on the same Arrow batches with the same SELECT and nothing around it (the limit);
* a lookup of 100,000 different keys in PostgreSQL with a cold cache, beside psycopg that sends the same keys as one array each
  (``= ANY``) and fetches the rows (the limit), and again with a warm cache.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from pydantic import TypeAdapter
from tests.servers.postgresql import PostgreSql

from bench.machine import write_results
from headrace.compute.steps import AnyStep, Step
from headrace.compute.transform import Transform
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema

ROWS, BATCH_ROWS = 100_000, 10_000
TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    (
        Column("id", pa.int64(), "bigint"),
        Column("customer", pa.int64(), "bigint"),
        Column("status", pa.utf8(), "varchar(20)"),
        Column("amount", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("note", pa.utf8(), "json"),
    ),
    ("id",),
)
QUERIES = {
    "projection": "SELECT id, amount * 2 AS twice, upper(status) AS status FROM input",
    "filter": "SELECT id, customer, amount FROM input WHERE status <> 'new'",
    "JSON members": "SELECT id, json_extract_string(note, '$.a.b')::INT AS b, json_extract_string(note, '$.c') AS c FROM input",
}


def batches() -> list[ChangeBatch]:
    found = []
    for first in range(0, ROWS, BATCH_ROWS):
        keys = range(first, first + BATCH_ROWS)
        us = pa.array(keys, pa.int64()).view(pa.timestamp("us", "UTC"))
        columns: list[Any] = [
            pa.array(keys, pa.int64()), us, pa.array(["u"] * BATCH_ROWS), us, pa.nulls(BATCH_ROWS, pa.utf8()),
            pa.array(keys, pa.int64()), pa.array([key * 7919 % ROWS for key in keys], pa.int64()),
            pa.array([("new", "paid", "sent")[key % 3] for key in keys]),
            pa.array([Decimal(key) / 100 for key in keys], pa.decimal128(12, 2)),
            pa.array([json.dumps({"a": {"b": key}, "c": "x"}) for key in keys]),
        ]  # fmt: skip
        found.append(ChangeBatch(TABLE, pa.RecordBatch.from_arrays(columns, schema=TABLE.arrow_schema())))
    return found


def measured(work: Callable[[ChangeBatch], object], rows: list[ChangeBatch]) -> tuple[float, float]:
    """Rows per second, and per CPU-second of this process."""
    began, cpu = time.perf_counter(), time.process_time()
    for batch in rows:
        work(batch)
    return ROWS / (time.perf_counter() - began), ROWS / (time.process_time() - cpu)


def transform(*steps: dict[str, Any]) -> Transform:
    made = Transform("bench", [TypeAdapter[Step](AnyStep).validate_python(step) for step in steps])
    made.table(TABLE)
    return made


def bare(query: str) -> Callable[[ChangeBatch], object]:
    connection = duckdb.connect(config={"threads": 1})

    def run(batch: ChangeBatch) -> object:
        connection.register("input", batch.data)
        try:
            return connection.execute(query).fetch_arrow_table()
        finally:
            connection.unregister("input")

    return run


def line(what: str, own: tuple[float, float], limit: tuple[float, float]) -> str:
    return f"| {what} | {limit[0]:,.0f} | {own[0]:,.0f} ({own[0] / limit[0]:.2f}) | {own[1]:,.0f} ({own[1] / limit[1]:.2f}) |"


def looked_up(rows: list[ChangeBatch]) -> list[str]:
    with PostgreSql() as server, server.database() as name:
        server.execute(
            "CREATE TABLE customers (id BIGINT PRIMARY KEY, name TEXT, score NUMERIC(12,2))",
            f"INSERT INTO customers SELECT n, 'customer ' || n, n / 3.0 FROM generate_series(0, {ROWS - 1}) AS n",
            "ANALYZE customers",
            database=name,
        )
        step = {
            "do": "lookup", "from": {"type": "database", "url": server.url(name), "table": "customers"},
            "on": {"customer": "id"}, "take": {"name": "text", "score": "decimal(12,2)"}, "cache_rows": ROWS,
        }  # fmt: skip
        with closing(server.connect(name)) as connection:
            own = transform(step)
            limit = measured(lambda batch: _any(connection, batch), rows)
            cold, warm = measured(own.changes, rows), measured(own.changes, rows)
            own.release()
    return [line("lookup, cold cache", cold, limit), line("lookup, warm cache", warm, limit)]


def _any(connection: psycopg.Connection[tuple[Any, ...]], batch: ChangeBatch) -> list[tuple[Any, ...]]:
    keys = batch.data.column("customer").to_pylist()
    return connection.execute("SELECT id, name, score FROM customers WHERE id = ANY(%s)", [keys]).fetchall()


def main() -> None:
    rows = batches()
    lines = [
        "| | limit, rows/s | headrace, rows/s (of the limit) | rows per CPU-second (of the limit) |",
        "|---|---|---|---|",
    ]
    for what, query in QUERIES.items():
        limit, own = bare(query), transform({"do": "sql", "query": query})
        limit(rows[0])
        own.changes(rows[0])
        lines.append(line(what, measured(own.changes, rows), measured(limit, rows)))
    write_results("compute", [*lines, *looked_up(rows)])


if __name__ == "__main__":
    main()
