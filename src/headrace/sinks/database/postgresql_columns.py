"""Whole tables out of PostgreSQL: ADBC's driver reads COPY's binary form straight into Arrow.

Its types are those that headrace declares. Others come as text, which PostgreSQL makes of everything; an interval as its microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement
from adbc_driver_postgresql import connect

from headrace.ums.values import Array

_NATIVE = (
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "text", "character", "bytea", "date", "timestamp",
)  # fmt: skip


def read_as(column: str, declared: str) -> str:
    """What is selected of a column."""
    if declared.startswith("interval"):
        return f"(extract(epoch from {column}) * 1000000)::bigint"
    return column if declared.startswith(_NATIVE) and not declared.endswith("[]") else f"{column}::text"


def arrow_columns(conninfo: str, sql: str, chunk_rows: int) -> Iterator[Sequence[Array]]:
    """What a query gives, in chunks; a number of any length (numeric) as its text."""
    with connect(conninfo) as database, AdbcConnection(database) as connection, AdbcStatement(connection) as statement:
        statement.set_sql_query(sql)
        answer, _ = statement.execute_query()
        with pa.RecordBatchReader.from_stream(answer) as reader:
            for batch in reader:
                for start in range(0, len(batch), chunk_rows):
                    part = batch.slice(start, chunk_rows)
                    yield [c.storage if isinstance(c, pa.ExtensionArray) else c for c in part.columns]
