"""Rows that MariaDB gets as values without SQL (headrace/sinks/database/mysql_bulk.py): what the suite of sinks, which has them too, does not ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest

from headrace.sinks.database.mysql_bulk import BulkConnection
from headrace.ums.values import Array
from tests.servers.binlog_server import BinlogServer
from tests.servers.front import certified
from tests.servers.mariadb import MariaDb

_INSERT = "INSERT INTO {} (id, body) VALUES (?, ?) ON DUPLICATE KEY UPDATE body = VALUES(body)"
_LARGE = 1 << 20
_LENGTHS = (0, 1, 250, 251, 65_535, 65_536, 1 << 24)
"""Both sides of each place from which on a length takes more bytes."""


def _connected(server: BinlogServer, database: str = "", **tls: str) -> BulkConnection:
    with closing(server.connect()) as known:
        return BulkConnection(
            host=server.host,
            port=server.port,
            user=known.user,
            password=known.password,
            database=database or None,
            charset="utf8mb4",
            autocommit=True,
            **tls,
        )


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[str]:
    with mariadb.database() as name:
        yield name


@pytest.fixture
def connection(mariadb: MariaDb, database: str) -> Iterator[BulkConnection]:
    with closing(_connected(mariadb, database)) as made:
        _run(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, body LONGBLOB)")
        yield made


def _run(connection: BulkConnection, sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _insert(
    connection: BulkConnection, rows: dict[int, bytes | None], most_bytes: int = _LARGE, table: str = "t"
) -> None:
    columns: list[Array] = [pa.array(list(rows), pa.int64()), pa.array(list(rows.values()), pa.binary())]
    connection.insert(_INSERT.format(table), columns, most_bytes)


def test_values_of_all_lengths_arrive(mariadb: MariaDb, database: str, connection: BulkConnection) -> None:
    _run(connection, "SET GLOBAL max_allowed_packet = 67108864")
    with closing(_connected(mariadb, database)) as roomy:
        for length in _LENGTHS:
            _insert(roomy, {length: bytes([length % 251]) * length})
        _insert(roomy, dict.fromkeys(_LENGTHS[1:3]))
    found = _run(connection, "SELECT id, LENGTH(body), body = REPEAT(CHAR(id % 251), id) FROM t ORDER BY id")
    assert found == [(length, None, None) if length in _LENGTHS[1:3] else (length, length, 1) for length in _LENGTHS]


@pytest.mark.parametrize("most_bytes", [1, 100, 1000, _LARGE])
def test_rows_are_divided_into_packets(connection: BulkConnection, most_bytes: int) -> None:
    rows: dict[int, bytes | None] = {number: b"x" * (number % 40) for number in range(200)}
    columns: list[Array] = [pa.array([-1, *rows], pa.int64()).slice(1), pa.array([b"-", *rows.values()]).slice(1)]
    connection.insert(_INSERT.format("t"), columns, most_bytes)
    assert dict(_run(connection, "SELECT id, body FROM t")) == rows  # type: ignore[arg-type]


def test_a_table_that_somebody_changes_is_met_anew(mariadb: MariaDb, database: str, connection: BulkConnection) -> None:
    _insert(connection, {1: b"a"})
    with closing(_connected(mariadb, database)) as other:
        _run(other, "ALTER TABLE t ADD COLUMN more INT DEFAULT 7 FIRST")
    _insert(connection, {2: b"b"})
    assert _run(connection, "SELECT more, id, body FROM t ORDER BY id") == [(7, 1, b"a"), (7, 2, b"b")]


def test_of_a_packet_with_a_row_that_is_refused_nothing_is_there(connection: BulkConnection) -> None:
    columns: list[Array] = [pa.array([1, None], pa.int64()), pa.array([b"a", b"b"])]
    with pytest.raises(pymysql.err.IntegrityError, match="cannot be null"):
        connection.insert(_INSERT.format("t"), columns, _LARGE)
    assert _run(connection, "SELECT count(*) FROM t") == [(0,)]
    _insert(connection, {1: b"a"})


def test_a_connection_keeps_some_statements_only(connection: BulkConnection) -> None:
    tables = [f"t{number}" for number in range(40)]
    for number, table in enumerate([*tables, *tables]):
        _run(connection, f"CREATE TABLE IF NOT EXISTS {table} LIKE t")
        _insert(connection, {number: b"a"}, table=table)
    [(_, kept)] = _run(connection, "SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")
    assert 0 < int(str(kept)) < len(tables)
    assert {_run(connection, f"SELECT count(*) FROM {table}")[0] for table in tables} == {(2,)}


def test_mysql_does_not_offer_it(mysql: BinlogServer, mariadb: MariaDb) -> None:
    for server in (mysql, mariadb):
        with closing(_connected(server)) as made:
            assert made.takes_bulk == (server is mariadb)
            assert _run(made, "SELECT 1") == [(1,)]


def test_it_goes_over_tls(tmp_path: Path) -> None:
    certificate, key = certified("127.0.0.1", tmp_path)
    with (
        MariaDb(f"--ssl-cert={certificate}", f"--ssl-key={key}") as server,
        server.database() as name,
        closing(_connected(server, name, ssl_ca=str(certificate))) as made,
    ):
        assert _run(made, "SHOW STATUS LIKE 'Ssl_cipher'") != [("Ssl_cipher", "")]
        _run(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, body LONGBLOB)")
        assert made.takes_bulk
        _insert(made, {1: b"a"})
        assert _run(made, "SELECT id, body FROM t") == [(1, b"a")]
