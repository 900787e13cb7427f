"""Rows that are selected from a live table are those of its log, byte for byte, and the table is described as the log describes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from unittest.mock import patch

import pyarrow as pa
import pytest

from headrace.capture.connection import Address, Connection
from headrace.capture.definitions import Definitions, decode_defined
from headrace.capture.gather import described_table
from headrace.capture.select import described, select
from headrace.codec.binlog import BinlogReader, Rows
from headrace.ums.schema import RAW, TableSchema
from tests.oracle.every_type import statements, tables_of
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql

SOURCE = "src"
LONG_AGO_WEST = "EST5EDT,M3.2.0,M11.1.0"
"""A zone with summer time that needs no database of zones."""
SESSIONS = {
    "SYSTEM": "PAD_CHAR_TO_FULL_LENGTH",
    "+05:30": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE,NO_ZERO_IN_DATE,STRICT_ALL_TABLES",
    "-09:00": "TRADITIONAL",
}
"""Time zone -> what else every session begins with."""
TABLES = ["integers", "numbers", "dates", "texts", "binaries", "labels", "geometries", "own", "mixed"]


@pytest.fixture(scope="module", params=[MariaDb, MySql])
def server(request: pytest.FixtureRequest) -> Iterator[BinlogServer]:
    with patch.dict(os.environ, TZ=LONG_AGO_WEST), request.param("--sync-binlog=0") as server:
        yield server


@contextmanager
def connected(server: BinlogServer) -> Iterator[Connection]:
    connection = Connection(Address(server.host, server.port, server.user, server.password))
    connection.connect()
    try:
        yield connection
    finally:
        connection.close()


def logged(server: BinlogServer, database: str) -> dict[str, tuple[TableSchema, pa.Table]]:
    """What the newest log says of each table and of the rows that were inserted into it."""
    reader, definitions = BinlogReader([f"{database}.*"]), Definitions(lambda _schema, _table: True)
    found: dict[str, tuple[TableSchema, list[pa.RecordBatch]]] = {}
    path = server.binlogs()[-1]
    with path.open("rb") as file:
        for decoded in decode_defined(reader, definitions, file, path.name):
            for rows in decoded.items:
                if isinstance(rows, Rows):
                    table = described_table(SOURCE, rows.table, rows.data.schema)
                    found.setdefault(rows.table.table, (table, []))[1].append(rows.data)
    return {
        name: (table, pa.Table.from_batches(batches).select([*(column.name for column in table.columns), RAW]))
        for name, (table, batches) in found.items()
    }


def selected(connection: Connection, table: TableSchema, *, batch_rows: int = 5) -> pa.Table:
    batches = list(select(connection, table, order_by=table.key, batch_rows=batch_rows, batch_bytes=1 << 20))
    assert all(len(batch) <= batch_rows for batch in batches)
    return pa.Table.from_batches(batches)


def assert_same(have: pa.Table, wanted: pa.Table) -> None:
    assert have.schema == wanted.schema
    for name in wanted.column_names:
        left, right = have[name].combine_chunks(), wanted[name].combine_chunks()
        # Bits: NaN and the sign of zero count too.
        if pa.types.is_floating(left.type):
            left, right = (
                array.view(pa.int64() if array.type.bit_width == 64 else pa.int32()) for array in (left, right)
            )
        if not left.equals(right):
            pairs = [(one, other) for one, other in zip(left, right, strict=True) if one != other]
            pytest.fail(f"{name} ({left.type}): {pairs[:3]}")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.demand(8)
def test_rows_and_description_are_the_log_s(server: BinlogServer, table: str) -> None:
    with server.database() as database, closing(server.connect(database)) as writer:
        server.execute("FLUSH BINARY LOGS")
        with writer.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+02:00'")
            for statement in statements(table, tables_of(server)[table])[:2]:
                cursor.execute(statement)
        described_by_log, rows = logged(server, database)[table]
        assert rows.num_rows > 5
        for zone, mode in SESSIONS.items():
            server.execute(f"SET GLOBAL time_zone = '{zone}'", f"SET GLOBAL sql_mode = '{mode}'")
            with connected(server) as connection:
                found = described(connection, SOURCE, database, table)
                assert found is not None
                assert found == described_by_log
                assert_same(selected(connection, found), rows)
