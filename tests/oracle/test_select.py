"""Selecting rows from live servers: what is asked for is what comes, and each thing that can go wrong has its own error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from headrace.capture.connection import Address, Connection
from headrace.capture.mysql_config import ServerTls
from headrace.capture.select import described, select
from headrace.errors import ConfigError, RetryableError, SourceError, TableChangedError
from headrace.ums.schema import TableSchema
from tests.oracle.test_rows import SOURCE, assert_same, connected, logged, selected
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql

FULL_PACKET_BYTES = (1 << 24) - 1
COUNT = 50_000


@pytest.fixture(scope="module", params=[MariaDb, MySql])
def server(request: pytest.FixtureRequest) -> Iterator[BinlogServer]:
    with request.param("--max-allowed-packet=96M", "--sync-binlog=0") as server:
        yield server


@pytest.fixture
def database(server: BinlogServer) -> Iterator[str]:
    with server.database() as database:
        yield database


@pytest.fixture
def numbers(server: BinlogServer, database: str) -> str:
    """A table of `COUNT` rows; its name."""
    digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
    server.execute(
        "CREATE TABLE numbers (id INT PRIMARY KEY, half INT NULL, `a ``name` VARCHAR(80) NOT NULL)",
        f"INSERT INTO numbers SELECT n, IF(n % 2, NULL, n DIV 2), REPEAT(n, 10) FROM (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d n"
        f" FROM {digits} a, {digits} b, {digits} c, {digits} e, {digits} f) all_of_them WHERE n < {COUNT}",
        database=database,
    )
    return "numbers"


def schema_of(connection: Connection, database: str, table: str) -> TableSchema:
    found = described(connection, SOURCE, database, table)
    assert found is not None
    return found


def all_rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_part_in_an_order(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        condition = "half IS NOT NULL AND `a ``name` <> '?'"
        asked = select(
            connection, table, where=condition, order_by=["id"], limit=1000, batch_rows=300, batch_bytes=1 << 20
        )
        batches = list(asked)
        assert [len(batch) for batch in batches] == [300, 300, 300, 100]
        assert batches[0].schema.names == ["id", "half", "a `name", "_ums_raw_"]
        expected = [{"id": 2 * n, "half": n, "a `name": str(2 * n) * 10, "_ums_raw_": None} for n in range(1000)]
        assert all_rows(iter(batches)) == expected
        # The connection is good for the next ones.
        assert list(select(connection, table, where="id < 0", batch_rows=9, batch_bytes=9)) == []
        assert connection.value("SELECT 7") == 7


@pytest.mark.demand(4)
def test_batches_keep_to_their_sizes(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        sizes = [batch.nbytes for batch in select(connection, table, batch_rows=COUNT, batch_bytes=64 << 10)]
        assert len(sizes) > 20
        assert max(sizes) < 96 << 10
        assert [len(batch) for batch in select(connection, table, limit=3, batch_rows=9, batch_bytes=1)] == [1, 1, 1]


def test_rows_longer_than_a_packet(server: BinlogServer, database: str) -> None:
    head = 1 + 1 + 4 + 4
    """Of the row in front of the bytes: mark, nulls, number, length."""
    sizes = [FULL_PACKET_BYTES - head + more for more in (-1, 0, 1)] + [2 * FULL_PACKET_BYTES - head - 5, 3]
    with closing(server.connect(database)) as writer, writer.cursor() as cursor:
        cursor.execute("CREATE TABLE large (id INT PRIMARY KEY, value LONGBLOB)")
        for id_, size_bytes in enumerate(sizes):
            cursor.execute(f"INSERT INTO large VALUES ({id_}, REPEAT('{id_}', {size_bytes}))")
    with connected(server) as connection:
        table = schema_of(connection, database, "large")
        rows = all_rows(select(connection, table, order_by=["id"], batch_rows=9, batch_bytes=1))
    assert [row["value"] == str(id_).encode() * sizes[id_] for id_, row in enumerate(rows)] == [True] * len(sizes)


def test_tables_that_are_not_what_they_were(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        assert described(connection, SOURCE, database, "none") is None
    for change, told in (
        ("MODIFY half BIGINT", "column half does not hold values of Int32 any more"),
        ("DROP COLUMN half", "Unknown column"),
        ("RENAME TO other", "doesn't exist"),
    ):
        server.execute(f"ALTER TABLE numbers {change}", database=database)
        with connected(server) as connection, pytest.raises(TableChangedError, match=told):
            list(select(connection, table, batch_rows=9, batch_bytes=9))


def test_an_error_behind_some_rows(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        # EXP(710) is more than a DOUBLE holds.
        asked = select(connection, table, where="EXP(id) > 0", order_by=["id"], batch_rows=7, batch_bytes=1 << 20)
        found: list[object] = []
        with pytest.raises(SourceError, match="out of range"):
            found.extend(row["id"] for batch in asked for row in batch.to_pylist())
        assert found == list(range(len(found)))
        assert len(found) > 500


def test_a_server_that_goes_away(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        number = connection.value("SELECT CONNECTION_ID()")
        asked = select(connection, table, where="SLEEP(0.001) = 0", batch_rows=1, batch_bytes=1)
        next(asked)
        server.execute(f"KILL {number}")
        with pytest.raises(RetryableError):
            list(asked)


def test_rows_that_are_not_wanted_any_more(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        asked = select(connection, table, batch_rows=1, batch_bytes=1)
        next(asked)
        asked.close()  # type: ignore[attr-defined]
        with pytest.raises(AssertionError, match="connect first"):
            connection.value("SELECT 1")


def test_a_condition_with_arguments(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        with pytest.raises(ConfigError, match="asks for 1 arguments"):
            list(select(connection, table, where="id = ?", batch_rows=9, batch_bytes=9))


def test_a_user_who_may_not_read(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
    server.execute("CREATE USER blind IDENTIFIED BY 'x'", f"GRANT INSERT ON {database}.* TO blind")
    try:
        connection = Connection(Address(server.host, server.port, "blind", "x"))
        connection.connect()
        with closing(connection), pytest.raises(SourceError, match="GRANT SELECT"):
            list(select(connection, table, batch_rows=9, batch_bytes=9))
    finally:
        server.execute("DROP USER blind")


def test_rows_of_a_moment(server: BinlogServer, database: str, numbers: str) -> None:
    with connected(server) as connection:
        table = schema_of(connection, database, numbers)
        connection.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        server.execute("DELETE FROM numbers WHERE id % 3 = 0", database=database)
        asked = select(connection, table, order_by=["id"], batch_rows=999, batch_bytes=1 << 20)
        assert [row["id"] for row in all_rows(asked)] == list(range(COUNT))


def test_rows_over_tls(mysql: MySql) -> None:
    """Encrypted bytes come in other pieces."""
    connection = Connection(Address(mysql.host, mysql.port, mysql.user, mysql.password, ServerTls(verify="none")))
    connection.connect()
    with mysql.database() as database, closing(connection):
        assert connection.rows("SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
        mysql.execute(
            "SET cte_max_recursion_depth = 100000",
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))",
            "INSERT INTO t WITH RECURSIVE n AS (SELECT 0 id UNION ALL SELECT id + 1 FROM n WHERE id < 9999)"
            " SELECT id, REPEAT(id, 40) FROM n",
            database=database,
        )
        table = schema_of(connection, database, "t")
        rows = all_rows(select(connection, table, order_by=["id"], batch_rows=999, batch_bytes=1 << 20))
        assert [(row["id"], row["v"]) for row in rows] == [(id_, str(id_) * 40) for id_ in range(10_000)]


ODD_TABLES = {
    "no_key": "(id INT, v INT)",
    "unique_key": "(id INT NOT NULL, v VARCHAR(5) NOT NULL, w INT, UNIQUE (w), UNIQUE (v, id))",
    "prefix_key": "(v VARCHAR(50) NOT NULL, id INT, PRIMARY KEY (v(3), id))",
    "computed": "(id INT PRIMARY KEY, v INT, w INT AS (v * 2) VIRTUAL, x INT AS (v * 3) STORED)",
    "zeros": "(id INT UNSIGNED ZEROFILL PRIMARY KEY, v DECIMAL(9, 3) ZEROFILL, w FLOAT ZEROFILL DEFAULT 1.5)",
    "sets": "(id INT PRIMARY KEY, v TEXT, w CHAR(9) COLLATE utf8mb4_bin DEFAULT 'ж', x ENUM('ж') CHARACTER SET koi8r DEFAULT 'ж')"
    " CHARACTER SET cp1251",
    "wide": f"(id INT PRIMARY KEY, v INT, {', '.join(f'c{number} BIGINT' for number in range(900))})",
    "invisible": "(id INT PRIMARY KEY, v INT INVISIBLE DEFAULT 5)",
}
MYSQL_TABLES = {
    "functional": "(id INT PRIMARY KEY, v INT, INDEX ((v + 1)), UNIQUE ((v * 2)))",
}
MARIADB_TABLES = {
    "versioned": "(id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
    "periods": "(id INT PRIMARY KEY, v INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END,"
    " PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
}


def test_odd_tables(server: BinlogServer, database: str) -> None:
    tables = ODD_TABLES | (MYSQL_TABLES if isinstance(server, MySql) else MARIADB_TABLES)
    server.execute("FLUSH BINARY LOGS")
    for name, definition in tables.items():
        server.execute(
            f"CREATE TABLE {name} {definition}",
            f"INSERT INTO {name} (id, v) VALUES (1, 5), (2, 6)",
            database=database,
        )
    by_log = logged(server, database)
    with connected(server) as connection:
        for name in tables:
            found = schema_of(connection, database, name)
            assert found == by_log[name][0]
            assert_same(selected(connection, found), by_log[name][1])
