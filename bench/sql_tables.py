"""How quick computed tables are: ``PYTHONPATH=src python -m bench.sql_tables``.

1,000,000 orders of 50,000 customers in the state. CPU time of this process for a round: taking changes in, answering, telling the difference, committing; the shortest of
five, for rounds of 1, 1,000 and 50,000 changes. Beside it DuckDB, one thread, that answers the same SQL over the same rows in memory as a whole, with nothing around it.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
from tests.sql_tables import CUSTOMERS, ORDERS, Computed, Writer

from bench.machine import write_results
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import SYSTEM_FIELDS, TableSchema

ROWS, CUSTOMERS_THERE, ROUNDS = 1_000_000, 50_000, 5
QUESTIONS = {
    "sum per customer": (
        "SELECT customer, count(*) AS n, sum(amount) AS amount FROM orders GROUP BY customer",
        ["customer"],
    ),
    "orders with their customers": (
        "SELECT o.id, o.amount, c.region FROM orders o LEFT JOIN customers c ON o.customer = c.id",
        ["id"],
    ),
    "sum per region": (
        "SELECT c.region, sum(o.amount) AS amount FROM orders o JOIN customers c ON o.customer = c.id GROUP BY ALL",
        ["region"],
    ),
}


def changes(of: TableSchema, first: int, count: int, id_: int) -> ChangeBatch:
    """Rows of keys from one on."""
    keys = pa.array(range(first, first + count), pa.int64())
    ids = pa.array(range(id_, id_ + count), pa.int64())
    us = ids.view(pa.timestamp("us", "UTC"))
    system = [ids, us, pa.repeat("u", count), us, pa.nulls(count, pa.utf8())]
    if of is CUSTOMERS:
        values = [keys, pa.array([f"region {key % 40}" for key in range(first, first + count)])]
    else:
        numbers = [(key * 7919 + id_) % 100_000 for key in range(first, first + count)]
        values = [
            keys, pa.array([number % CUSTOMERS_THERE for number in numbers], pa.int64()), pa.repeat("paid", count),
            pa.array(numbers, pa.int64()).cast(pa.decimal128(38, 2)).cast(pa.decimal128(12, 2)), ids.view(pa.timestamp("us")),
        ]  # fmt: skip
    assert len(system) == len(SYSTEM_FIELDS)
    return ChangeBatch(of, pa.RecordBatch.from_arrays([*system, *values], schema=of.arrow_schema()))


def measured(question: str) -> list[str]:
    """A line of the table for each size of a round."""
    sql, key = QUESTIONS[question]
    with tempfile.TemporaryDirectory() as directory:
        writer, computed = Writer(Path(directory)), Computed(Path(directory), sql, key)
        writer.transact(changes(CUSTOMERS, 0, CUSTOMERS_THERE, writer.id + 1))
        writer.id += CUSTOMERS_THERE
        for first in range(0, ROWS, 50_000):
            writer.transact(changes(ORDERS, first, 50_000, writer.id + 1))
            writer.id += 50_000
        began = time.process_time()
        computed.run()
        backlog_s = time.process_time() - began
        source = computed.source()
        lines = [f"| {question}: the backlog of {ROWS:,} rows | {ROWS / backlog_s:,.0f} rows/CPU-s | |"]
        with closing(source), computed.rounds(source) as advance:
            for size in (1, 1_000, 50_000):
                spent = []
                for _ in range(ROUNDS):
                    writer.transact(changes(ORDERS, size * 3, size, writer.id + 1))
                    writer.id += size
                    began = time.process_time()
                    told = advance()
                    spent.append(time.process_time() - began)
                lines.append(f"| {question}: {size:,} changes | {min(spent) * 1000:,.0f} ms | {told:,} |")
        return [*lines, f"| {question}: DuckDB, the whole answer | {whole_ms(sql):,.0f} ms | |"]


def whole_ms(sql: str) -> float:
    """What DuckDB needs to answer over the same rows."""
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        for table, count in ((ORDERS, ROWS), (CUSTOMERS, CUSTOMERS_THERE)):
            connection.register("rows", pa.Table.from_batches([changes(table, 0, count, 1).data]))
            connection.execute(f"CREATE TABLE {table.namespace.table} AS FROM rows")
        spent = []
        for _ in range(ROUNDS):
            began = time.process_time()
            connection.execute(f"CREATE OR REPLACE TABLE answer AS {sql}")
            spent.append(time.process_time() - began)
        return min(spent) * 1000


def main() -> None:
    lines = ["| | CPU | told |", "|---|---|---|"]
    for question in QUESTIONS:
        lines += measured(question)
    write_results("sql_tables", lines)


if __name__ == "__main__":
    main()
