"""The quickest way known into each store, beside which bench/sinks.py puts the sink: the store's bulk statement, called as directly as the sink's own
driver lets one, with values that are converted before the clock starts.

Databases keep the rule of a larger `_ums_id_` here as well, in the statement that was the quickest of those tried; Redis, HBase, search engines, Cassandra and
ClickHouse are written to without a look at what is there. No peer remembers a position, looks for clears or changes of tables, or drops
changes of one key. Where that is much beside what the statement costs (DuckDB, ClickHouse) a second peer keeps a flow's rules by hand, in as few statements as can
be: one transaction, or one order, of the look at a record of the table, the rows and the position.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import clickhouse_connect
import pgpq
import pyarrow as pa
import pyarrow.compute as pc
from cassandra.query import BatchStatement, BatchType
from duckdb import connect as connect_duckdb
from pyarrow import csv
from tests.servers.cassandra import Cassandra
from tests.servers.clickhouse import ClickHouse
from tests.servers.hbase import HBase
from tests.servers.jdbc import H2, Derby, JdbcServer
from tests.servers.mariadb import MariaDb
from tests.servers.postgresql import PostgreSql
from tests.servers.redis import Redis
from tests.servers.search import Elasticsearch, OpenSearch, Search

from headrace.sinks.hbase.protocol import IDL
from headrace.sinks.jdbc.binding import Binding, add_batch
from headrace.sinks.jdbc.codes import BIGINT, DECIMAL, INTEGER, SMALLINT, TIMESTAMP, VARCHAR

Rows = Sequence[pa.Table]
Peer = Callable[[str, Rows, bool], Callable[[], None]]
"""Of a table's name, its rows, and whether it is to be made: what is timed."""
NAMES = ("id", "customer", "status", "amount", "created", "note", "_ums_id_", "_ums_ts_", "_is_active_")
_LIST = ", ".join(NAMES)
_MARKS = ", ".join("?" * len(NAMES))
_DDL = (
    "id BIGINT PRIMARY KEY, customer INTEGER, status VARCHAR(20), amount DECIMAL(12,2), created {0}, note VARCHAR(100), "
    "_ums_id_ BIGINT NOT NULL, _ums_ts_ {1} NOT NULL, _is_active_ SMALLINT NOT NULL"
)
_KINDS = [
    *map(Binding, (BIGINT, INTEGER, VARCHAR)),
    Binding(DECIMAL, 2),
    *map(Binding, (TIMESTAMP, VARCHAR, BIGINT, TIMESTAMP, SMALLINT)),
]
_ON_CONFLICT = (
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in NAMES[1:])} "
    "WHERE excluded._ums_id_ > target._ums_id_"
)


@dataclass(frozen=True)
class Setting:
    """A server that is up."""

    to: dict[str, Any]
    """What stands under `to` in a flow file."""
    peer: Peer
    rows: int = 5000
    """How many rows the peer sends and commits at once: what the sink does."""
    keeping: Peer | None = None
    """The peer with a flow's rules."""


@contextmanager
def sqlite(folder: Path) -> Iterator[Setting]:
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

        def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
            if is_new:
                connection.execute(f"CREATE TABLE {name} ({_DDL.format('TEXT', 'TEXT')})")
            parts = [texts(part) for part in rows]

            def work() -> None:
                for part in parts:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.executemany(f"INSERT INTO {name} AS target VALUES ({_MARKS}) {_ON_CONFLICT}", part)
                    connection.execute("COMMIT")

            return work

        yield Setting({"type": "database", "url": f"sqlite:///{folder / 'mart.db'}"}, peer)


@contextmanager
def duckdb(folder: Path) -> Iterator[Setting]:
    with closing(connect_duckdb(str(folder / "bare.duckdb"))) as connection:
        connection.execute("SET threads = 1")
        connection.execute("CREATE TABLE positions (flow VARCHAR PRIMARY KEY, next_offset BIGINT)")
        connection.execute("CREATE TABLE records (name VARCHAR PRIMARY KEY, number BIGINT, cleared BIGINT)")
        connection.execute("INSERT INTO positions VALUES ('flow', 0)")

        def written(name: str, rows: Rows, is_new: bool, *, keeps: bool) -> Callable[[], None]:
            if is_new:
                connection.execute(f"CREATE TABLE {name} ({_DDL.format('TIMESTAMP', 'TIMESTAMPTZ')})")
                connection.execute("INSERT INTO records VALUES (?, 0, 0)", [name])

            def work() -> None:
                for part in rows:
                    connection.execute("BEGIN")
                    if keeps:
                        connection.execute("SELECT number, cleared FROM records WHERE name = ?", [name]).fetchall()
                    connection.register("part", part)
                    connection.execute(f"INSERT INTO {name} AS target SELECT * FROM part {_ON_CONFLICT}")
                    if keeps:
                        moved = "UPDATE positions SET next_offset = next_offset + 1 WHERE flow = ?"
                        connection.execute(moved, ["flow"])
                    connection.execute("COMMIT")

            return work

        yield Setting(
            {"type": "database", "url": f"duckdb:///{folder / 'mart.duckdb'}"},
            partial(written, keeps=False),
            keeping=partial(written, keeps=True),
        )


@contextmanager
def postgresql(folder: Path) -> Iterator[Setting]:
    """COPY in binary into a temporary table and one INSERT; MERGE, and UPDATE and INSERT, take longer (docs/decisions/0039-speed-of-sinks.md)."""
    with PostgreSql() as server, server.database() as database, server.connect(database) as connection:
        ddl = _DDL.format("TIMESTAMP", "TIMESTAMPTZ").replace("VARCHAR(20)", "TEXT").replace("VARCHAR(100)", "TEXT")
        connection.execute(
            f"CREATE TEMPORARY TABLE staging ({ddl.replace(' PRIMARY KEY', '')}) ON COMMIT DELETE ROWS".encode()
        )

        def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
            if is_new:
                connection.execute(f"CREATE TABLE {name} ({ddl})".encode())
            parts = [_binary(part.to_batches()[0]) for part in rows]
            insert = f"INSERT INTO {name} AS target ({_LIST}) SELECT * FROM staging {_ON_CONFLICT}".encode()

            def work() -> None:
                for part in parts:
                    with connection.transaction(), connection.cursor() as cursor:
                        with cursor.copy("COPY staging FROM STDIN (FORMAT binary)") as copy:
                            copy.write(part)
                        cursor.execute(insert)

            return work

        yield Setting({"type": "database", "url": server.url(database)}, peer)


def _binary(rows: pa.RecordBatch) -> bytes:
    encoder = pgpq.ArrowToPostgresBinaryEncoder(rows.schema)
    return encoder.write_header() + encoder.write_batch(rows) + encoder.finish()


@contextmanager
def mariadb(folder: Path) -> Iterator[Setting]:
    """LOAD DATA into a temporary table and one INSERT."""
    with (
        MariaDb() as server,
        server.database() as database,
        closing(server.connect(database, autocommit=False, local_infile=True)) as connection,
        connection.cursor() as cursor,
    ):
        ddl = _DDL.format("DATETIME(6)", "DATETIME(6)")
        cursor.execute(
            f"CREATE TEMPORARY TABLE staging ({ddl.replace(' PRIMARY KEY', '')}) ENGINE = Aria TRANSACTIONAL = 0"
        )
        replaced = (*NAMES[1:6], *NAMES[7:], "_ums_id_")  # the id last: the others are compared by it

        def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
            if is_new:
                cursor.execute(f"CREATE TABLE {name} ({ddl})")
            files = [folder / f"{number}.csv" for number in range(len(rows))]
            for file, part in zip(files, rows, strict=True):
                columns = [pc.fill_null(column.cast(pa.utf8()), "\\N") for column in as_text(part).columns]
                csv.write_csv(
                    pa.table(columns, list(NAMES)),
                    file,
                    csv.WriteOptions(include_header=False, quoting_style="none", delimiter="\t"),
                )
            newer = f"VALUES(_ums_id_) > {name}._ums_id_"
            update = ", ".join(f"{name}.{one} = IF({newer}, VALUES({one}), {name}.{one})" for one in replaced)
            insert = f"INSERT INTO {name} SELECT * FROM staging ON DUPLICATE KEY UPDATE {update}"

            def work() -> None:
                for file in files:
                    cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE staging")
                    cursor.execute(insert)
                    cursor.execute("DELETE FROM staging")
                    connection.commit()

            return work

        yield Setting({"type": "database", "url": server.url(database)}, peer)


@contextmanager
def h2(folder: Path) -> Iterator[Setting]:
    with H2() as server:
        yield Setting(server.settings, _merge_of(server))


@contextmanager
def derby(folder: Path) -> Iterator[Setting]:
    with Derby() as server:
        yield Setting(server.settings, _batches_of(server))


def _merge_of(server: JdbcServer) -> Peer:
    """Batches of inserts into a table beside, bound in the JVM as the sink does it, and one MERGE."""
    ddl = _DDL.format("TIMESTAMP", "TIMESTAMP")
    connection = server.connect()
    connection.run(f"CREATE TABLE staging ({ddl})")
    connection.java.commit()
    fill = connection.prepared(f"INSERT INTO staging VALUES ({_MARKS})")

    def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
        if is_new:
            connection.run(f"CREATE TABLE {name} ({ddl})")
            connection.java.commit()
        parts = [list(zip(*texts(part), strict=True)) for part in rows]
        merge = connection.prepared(
            f"MERGE INTO {name} AS t USING staging AS s ON t.id = s.id "
            f"WHEN MATCHED AND t._ums_id_ < s._ums_id_ THEN UPDATE SET {', '.join(f'{n} = s.{n}' for n in NAMES[1:])} "
            f"WHEN NOT MATCHED THEN INSERT ({_LIST}) VALUES ({', '.join(f's.{n}' for n in NAMES)})"
        )

        def work() -> None:
            for part in parts:
                add_batch(fill, part, _KINDS)
                fill.executeBatch()
                merge.executeUpdate()
                connection.run("DELETE FROM staging")
                connection.java.commit()

        return work

    return peer


def _batches_of(server: JdbcServer) -> Peer:
    """Derby's server dies of a MERGE: batches of inserts, then of updates of rows that are older, by one who knows which rows are there."""
    ddl = (
        _DDL.format("TIMESTAMP", "TIMESTAMP")
        .replace("PRIMARY KEY", "NOT NULL PRIMARY KEY")
        .replace("_ums", "ums")
        .replace("_is", "is")
    )
    names = [name.removeprefix("_") for name in NAMES]  # Derby's begin with a letter
    connection = server.connect()

    def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
        if is_new:
            connection.run(f"CREATE TABLE {name} ({ddl})")
            connection.java.commit()
        columns = [list(zip(*texts(part), strict=True)) for part in rows]
        parts = columns if is_new else [[*part[1:], part[0], part[6]] for part in columns]
        kinds = _KINDS if is_new else [*_KINDS[1:], _KINDS[0], _KINDS[6]]
        update = f"UPDATE {name} SET {', '.join(f'{one} = ?' for one in names[1:])} WHERE id = ? AND ums_id_ < ?"
        statement = connection.prepared(f"INSERT INTO {name} VALUES ({_MARKS})" if is_new else update)

        def work() -> None:
            for part in parts:
                add_batch(statement, part, kinds)
                statement.executeBatch()
                connection.java.commit()

        return work

    return peer


@contextmanager
def redis(folder: Path) -> Iterator[Setting]:
    """The server does not rewrite its append-only file meanwhile: that would fall to whoever writes just then."""
    with (
        Redis(**{"auto-aof-rewrite-percentage": "0"}) as server,
        server.database() as number,
        server.connect(number + 1) as client,
    ):

        def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
            parts = [
                [
                    (f"{name}:{row[0]}", {n: v for n, v in zip(NAMES, row, strict=True) if v is not None})
                    for row in texts(part)
                ]
                for part in rows
            ]

            def work() -> None:
                for part in parts:
                    pipeline = client.pipeline(transaction=False)
                    for key, row in part:
                        pipeline.hset(key, mapping=row)  # type: ignore[arg-type]
                    pipeline.execute()

            return work

        yield Setting({"type": "redis", "url": server.url(number)}, peer)


@contextmanager
def hbase(folder: Path) -> Iterator[Setting]:
    with HBase() as server, closing(server.connect()) as client:

        def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
            if is_new:
                family = IDL.TColumnFamilyDescriptor(name=b"cf", maxVersions=3)
                client.createTable(IDL.TTableDescriptor(IDL.TTableName(qualifier=name.encode()), [family]), [])
            names = [one.encode() for one in NAMES]
            parts = [
                [[(n, v.encode()) for n, v in zip(names, row, strict=True) if v is not None] for row in texts(part)]
                for part in rows
            ]
            first = 10**10 if is_new else 2 * 10**10

            def work() -> None:
                version = first
                for part in parts:
                    puts = []
                    for row in part:
                        version += 1
                        puts.append(IDL.TPut(row[0][1], [IDL.TColumnValue(b"cf", n, v, version) for n, v in row]))
                    client.putMultiple(name.encode(), puts)

            return work

        yield Setting({"type": "hbase", "url": server.url}, peer)


@contextmanager
def opensearch(folder: Path) -> Iterator[Setting]:
    with OpenSearch() as server:
        yield Setting({"type": "opensearch", "url": server.address}, _bulk_of(server), 2500)


@contextmanager
def elasticsearch(folder: Path) -> Iterator[Setting]:
    with Elasticsearch() as server:
        yield Setting({"type": "opensearch", "url": server.address}, _bulk_of(server), 2500)


def _bulk_of(server: Search) -> Peer:
    """Bulk requests of documents that are JSON already, two at a time, into an index with the sink's fields."""

    def peer(name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
        if is_new:
            with server.connect() as client:
                [made] = client.indices.get_mapping(index=f"shop.{name.replace('bare', 'orders')}").values()
                client.indices.create(index=name, body=made)
        bodies = [
            "".join(
                f'{{"index":{{"_id":"{row[0]}"}}}}\n{json.dumps(dict(zip(NAMES, row, strict=True)))}\n'
                for row in texts(part, "T")
            ).encode()
            for part in rows
        ]

        def work() -> None:
            with server.connect() as client, ThreadPoolExecutor(2) as pool:
                for answer in pool.map(lambda body: client.bulk(body=body, index=name, filter_path="errors"), bodies):
                    assert not answer["errors"]

        return work

    return peer


@contextmanager
def cassandra(folder: Path) -> Iterator[Setting]:
    with Cassandra() as server, server.connect() as session:
        place = {"hosts": server.address, "keyspace": "bench", "replication": {"datacenter1": 1}}
        yield Setting({"type": "cassandra", **place}, lambda *given: _batches(session, *given), 50)


def _batches(session: Any, name: str, rows: Rows, is_new: bool) -> Callable[[], None]:
    """Unlogged batches of 50 rows, 16 at a time; values as the driver takes them."""
    columns = [f'"{one}"' for one in NAMES]
    if is_new:
        types = ("BIGINT PRIMARY KEY", "INT", "TEXT", "DECIMAL", "TIMESTAMP", "TEXT", "BIGINT", "TIMESTAMP", "TINYINT")
        session.execute(f"CREATE TABLE bench.{name} ({', '.join(map(' '.join, zip(columns, types, strict=True)))})")
    insert = session.prepare(f"INSERT INTO bench.{name} ({', '.join(columns)}) VALUES ({_MARKS})")
    parts = [list(zip(*(column.to_pylist() for column in part.columns), strict=True)) for part in rows]

    def work() -> None:
        under_way: deque[Any] = deque()
        for part in parts:
            statement = BatchStatement(BatchType.UNLOGGED)
            for row in part:
                statement.add(insert, row)
            if len(under_way) >= 16:
                under_way.popleft().result()
            under_way.append(session.execute_async(statement))
        while under_way:
            under_way.popleft().result()

    return work


@contextmanager
def clickhouse(folder: Path) -> Iterator[Setting]:
    """Arrow that is made already; all rows at once, as the sink does within its `commit_interval`."""
    with ClickHouse() as server:
        server.execute(
            "CREATE TABLE positions (flow String, next_offset Int64) ENGINE = ReplacingMergeTree(next_offset) ORDER BY flow"
        )

        def written(name: str, rows: Rows, is_new: bool, *, keeps: bool) -> Callable[[], None]:
            if is_new:
                like = f"orders{name.removeprefix('bare').removeprefix('kept')}"
                server.execute(f"CREATE TABLE {name} AS {like} ENGINE = ReplacingMergeTree(_ums_id_) ORDER BY id")
            client = clickhouse_connect.get_client(host=server.host, port=server.port, compress=False)
            blocks = [_arrow_file(part) for part in rows]
            position = _arrow_file(pa.table({"flow": ["flow"], "next_offset": [2 - is_new]}))
            record = f"SELECT comment FROM system.tables WHERE database = 'default' AND name = '{name}' FORMAT Arrow"

            def work() -> None:
                for block in blocks:
                    client.raw_insert(name, NAMES, block, fmt="Arrow")
                    if keeps:
                        client.raw_query(record)
                        client.raw_insert("positions", ("flow", "next_offset"), position, fmt="Arrow")

            return work

        yield Setting(
            {"type": "clickhouse", "url": server.url("default")},
            partial(written, keeps=False),
            100_000,
            partial(written, keeps=True),
        )


def _arrow_file(rows: pa.Table) -> bytes:
    block = pa.BufferOutputStream()
    with pa.ipc.new_file(block, rows.schema) as file:
        file.write_table(rows)
    return block.getvalue().to_pybytes()


def as_text(part: pa.Table, between: str = " ") -> pa.Table:
    """Numbers and times as text; `between` day and hour."""
    columns = [
        column.cast(pa.utf8()) if not pa.types.is_timestamp(column.type) else _time(column, between)
        for column in part.columns
    ]
    return pa.table(columns, part.column_names)


def _time(column: pa.ChunkedArray[Any], between: str) -> pa.ChunkedArray[Any]:
    text = column.cast(pa.timestamp("us")).cast(pa.utf8())
    return pc.replace_substring(text, " ", between)


def texts(part: pa.Table, between: str = " ") -> list[tuple[Any, ...]]:
    """The rows of a table as text."""
    return list(zip(*(column.to_pylist() for column in as_text(part, between).columns), strict=True))


STORES: dict[str, Callable[[Path], AbstractContextManager[Setting]]] = {
    store.__name__: store
    for store in (
        sqlite,
        duckdb,
        clickhouse,
        postgresql,
        mariadb,
        h2,
        derby,
        redis,
        hbase,
        opensearch,
        elasticsearch,
        cassandra,
    )
}
