"""The main job on a live MariaDB and a live MySQL: as a replica over the network, into every kind of target, again and again."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.lake.asof import as_of
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch, read_block
from tests.flows import compare
from tests.flows.command import headrace, run_until_idle, running, wait_for
from tests.flows.shop import TABLES, Shop
from tests.patience import HANG_S
from tests.servers.binlog_server import BinlogServer
from tests.servers.cassandra import Cassandra
from tests.servers.hbase import HBase
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql
from tests.servers.redis import Redis
from tests.servers.search import OpenSearch

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"], start: {start}}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake}}}}
  - {{name: lite, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
{more}
"""


@pytest.fixture
def database(binlog_server: BinlogServer) -> Iterator[str]:
    with binlog_server.database() as name:
        yield name


def write_flow(
    directory: Path, binlog_server: BinlogServer, database: str, start: str = "earliest", more: str = ""
) -> Path:
    path = directory / "flow.yaml"
    path.write_text(FLOW.format(server=binlog_server, database=database, start=start, more=more))
    return path


def logged(directory: Path) -> list[ChangeBatch]:
    """All changes of rows on the log, in its order."""
    with closing(DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))) as log:
        spans = log.spans("db1")
        blocks = [read_block(record.entry.value) for record in log.read("db1", 0, spans.get(0, Span(0, 0)))]
    return [block for block in blocks if isinstance(block, ChangeBatch)]


def logged_changes(directory: Path) -> list[tuple[str, int]]:
    """(table, id) of every change on the log, in log order."""
    return [
        (change.table.namespace.table, id_)
        for change in logged(directory)
        for id_ in change.data.column("_ums_id_").to_pylist()
    ]


def test_into_every_target_and_on_from_where_it_stopped(
    binlog_server: BinlogServer,
    mariadb: MariaDb,
    postgresql: PostgreSql,
    redis: Redis,
    hbase: HBase,
    opensearch: OpenSearch,
    cassandra: Cassandra,
    database: str,
    tmp_path: Path,
) -> None:
    source = binlog_server.connect(database, autocommit=False)
    shop = Shop(source, seed=1)
    shop.create()
    shop.transact(400)
    with (
        postgresql.database() as target,
        mariadb.database() as other,
        redis.database() as number,
        opensearch.prefix() as prefix,
        cassandra.connect() as session,
    ):
        wide = f"shared.{cassandra.prefix()}"
        more = "\n".join(
            f'  - {{name: {name}, from: "mysql.db1.{database}.*", to: {{type: {kind}, url: "{url}"}}}}'
            for name, kind, url in (
                ("pg", "database", postgresql.url(target)),
                ("maria", "database", mariadb.url(other)),
                ("cache", "redis", redis.url(number)),
                ("regions", "hbase", hbase.url),
            )
        )
        more += f"""
  - {{name: search, from: "mysql.db1.{database}.*", to: {{type: opensearch, url: "{opensearch.address}", index: "{prefix}{{table}}",
     records: "{prefix}own"}}}}
  - {{name: wide, from: "mysql.db1.{database}.*", to: {{type: cassandra, hosts: "{cassandra.address}", keyspace: shared,
     replication: {{datacenter1: 1}}, table: "{wide.partition(".")[2]}{{table}}"}}}}"""
        flow = write_flow(tmp_path, binlog_server, database, more=more)
        for round_ in range(2):
            run_until_idle(flow)
            for table in TABLES:
                expected = compare.source_rows(source, table)
                columns = as_of(tmp_path / "lake", f"mysql.db1.{database}.{table}").column_names
                assert compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.{table}") == expected
                assert compare.sqlite_target_rows(tmp_path / "mart.db", table, columns) == expected
                assert compare.postgresql_rows(postgresql.url(target), table, columns) == expected
                with mariadb.connect(other) as connection:
                    assert compare.mysql_rows(connection, table, columns) == expected
                with redis.connect(number) as client:
                    assert compare.redis_rows(client, f"{database}:{table}:", columns) == expected
                with closing(hbase.connect()) as client:
                    assert compare.hbase_rows(client, f"{database}:{table}", columns) == expected
                with opensearch.connect() as client:
                    assert compare.opensearch_rows(client, f"{prefix}{table}", columns) == expected
                assert compare.cassandra_rows(session, f"{wide}{table}", columns) == expected
            if round_ == 0:
                shop.transact(200)
    changes = logged_changes(tmp_path)
    assert len(changes) == len(set(changes)), "a change was captured twice"


def test_targets_that_were_lost_are_filled_again(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    source = binlog_server.connect(database, autocommit=False)
    shop = Shop(source, seed=5)
    shop.create()
    shop.transact(100)
    flow = write_flow(tmp_path, binlog_server, database)
    run_until_idle(flow)
    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "mart.db").unlink()
    shop.transact(50)
    run_until_idle(flow)
    for table in TABLES:
        expected = compare.source_rows(source, table)
        columns = as_of(tmp_path / "lake", f"mysql.db1.{database}.{table}").column_names
        assert compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.{table}") == expected
        assert compare.sqlite_target_rows(tmp_path / "mart.db", table, columns) == expected


def test_a_second_run_on_the_same_state_is_refused(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    flow = write_flow(tmp_path, binlog_server, database)
    with running(flow) as process:
        wait_for((tmp_path / "mart.db").exists, process)
        second = headrace("run", flow, "--until-idle")
        assert second.code == 2
        assert "another run is using the state" in second.err
        assert process.poll() is None


def test_start_latest_and_start_at_an_offset(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    source = binlog_server.connect(database)
    Shop(source, seed=2).create()
    binlog_server.execute("INSERT INTO customers (id, name) VALUES (1, 'before')", database=database)
    file, offset = binlog_server.position()
    latest, at_offset = tmp_path / "latest", tmp_path / "offset"
    for directory in (latest, at_offset):
        directory.mkdir()
    run_until_idle(write_flow(latest, binlog_server, database, start="latest"))
    binlog_server.execute("INSERT INTO customers (id, name) VALUES (2, 'after')", database=database)
    run_until_idle(write_flow(latest, binlog_server, database, start="latest"))
    run_until_idle(write_flow(at_offset, binlog_server, database, start=f"{file}:{offset}"))
    for directory in (latest, at_offset):
        assert as_of(directory / "lake", f"mysql.db1.{database}.customers").column("name").to_pylist() == ["after"]


@pytest.mark.demand(1)
def test_alters_while_running_and_while_stopped(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, binlog_server, database)
    binlog_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10), b INT)",
        "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2)",
        database=database,
    )
    run_until_idle(flow)
    binlog_server.execute(
        "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7 AFTER a, MODIFY b BIGINT",
        "INSERT INTO t VALUES (3, 'z', 8, 5000000000)",
        "UPDATE t SET a = 'changed' WHERE id = 2",
        "ALTER TABLE t ADD COLUMN d VARCHAR(20) DEFAULT 'näh'",
        "INSERT INTO t (id, a) VALUES (4, 'q')",
        database=database,
    )
    run_until_idle(flow)
    source = binlog_server.connect(database)
    expected = compare.source_rows(source, "t")
    assert compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.t") == expected
    assert compare.sqlite_target_rows(tmp_path / "mart.db", "t", ["id", "a", "c", "b", "d"]) == expected


def test_truncate_empties_the_targets_and_history_stays(
    binlog_server: BinlogServer, database: str, tmp_path: Path
) -> None:
    binlog_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10))",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (2, 'again')",
        database=database,
    )
    run_until_idle(write_flow(tmp_path, binlog_server, database))
    namespace = f"mysql.db1.{database}.t"
    assert compare.lake_rows(tmp_path / "lake", namespace) == [("2", "again")]
    assert compare.sqlite_target_rows(tmp_path / "mart.db", "t", ["id", "a"]) == [("2", "again")]
    before = sorted(id_ for _, id_ in logged_changes(tmp_path))[2]
    assert as_of(tmp_path / "lake", namespace, id=before).num_rows == 3


@pytest.mark.demand(4)
def test_a_large_transaction_arrives_whole(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute(
        "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(100))",
        "SET cte_max_recursion_depth = 300000"
        if isinstance(binlog_server, MySql)
        else "SET max_recursive_iterations = 300000",
        "INSERT INTO big WITH RECURSIVE n AS (SELECT 1 AS seq UNION ALL SELECT seq + 1 FROM n WHERE seq < 300000)"
        " SELECT seq, REPEAT('v', 80) FROM n",
        "UPDATE big SET v = CONCAT(v, id) WHERE id % 3 = 0",
        "DELETE FROM big WHERE id % 7 = 0",
        database=database,
    )
    run_until_idle(write_flow(tmp_path, binlog_server, database))
    with binlog_server.connect(database) as source:
        assert compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.big") == compare.source_rows(source, "big")


def test_columns_are_dropped_and_renamed_on_the_way(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(10), secret VARCHAR(10))",
        "INSERT INTO people VALUES (1, 'Ada', 'pin')",
        database=database,
    )
    more = (
        f'  - {{name: crm, from: "mysql.db1.{database}.people", to: {{type: database, url: "sqlite:///./crm.db"}},'
        " columns: {drop: [secret], rename: {name: full_name}}}"
    )
    run_until_idle(write_flow(tmp_path, binlog_server, database, more=more))
    assert compare.sqlite_target_rows(tmp_path / "crm.db", "people", ["id", "full_name"]) == [("1", "Ada")]
    assert b"pin" not in (tmp_path / "crm.db").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_well_and_the_next_goes_on(
    binlog_server: BinlogServer, database: str, tmp_path: Path, number: signal.Signals
) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", database=database)
    flow = write_flow(tmp_path, binlog_server, database)
    with running(flow) as process:
        wait_for((tmp_path / "mart.db").exists, process)
        binlog_server.execute("INSERT INTO t VALUES (3)", database=database)
        process.send_signal(number)
        assert process.wait(timeout=HANG_S) == 0
    said = (tmp_path / "run.log").read_text()
    assert "Traceback" not in said
    assert "ERROR" not in said
    binlog_server.execute("INSERT INTO t VALUES (4)", database=database)
    run_until_idle(flow)
    assert compare.sqlite_target_rows(tmp_path / "mart.db", "t", ["id"]) == [("1",), ("2",), ("3",), ("4",)]


def test_capture_alone_needs_no_spark(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", database=database)
    flow = write_flow(tmp_path, binlog_server, database)
    result = headrace("capture", flow, "--until-idle")
    assert result.code == 0, result.err
    assert len(logged_changes(tmp_path)) == 2


def test_rows_larger_than_what_is_read_at_once(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    binlog_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)",
        "INSERT INTO t VALUES (1, 'short'), (2, REPEAT('long', 1500000)), (3, REPEAT('longer', 2000000))",
        database=database,
    )
    result = headrace("capture", write_flow(tmp_path, binlog_server, database), "--until-idle")
    assert result.code == 0, result.err
    values = [value for change in logged(tmp_path) for value in change.data.column("v").to_pylist()]
    assert values == ["short", "long" * 1_500_000, "longer" * 2_000_000]
