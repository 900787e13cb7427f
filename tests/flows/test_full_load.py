"""Full load of a live server while it changes: into a lake and databases, killed at random, as quick as it may be, and again."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.capture.load.base import Range
from headrace.capture.mysql import MySqlSource
from headrace.lake.asof import as_of
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch, read_block
from tests.flows import compare
from tests.flows.command import headrace, kill_group, run_until_idle, running, wait_for
from tests.flows.shop import TABLES, Shop, traffic
from tests.servers.binlog_server import BinlogServer
from tests.servers.mysql import MySql

# More would need more rows: each waits until some more are loaded.
KILLS = min(int(os.environ.get("HEADRACE_KILLS", "1")), 4)
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"], start: latest, load: {load}}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake}}}}
  - {{name: lite, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""

KEYS = {
    "BIGINT": "3 * n - 500",
    "BIGINT UNSIGNED": "18446744073709551615 - n",
    "INT, b INT": "n DIV 7, n % 7",
    "VARCHAR(30) COLLATE utf8mb4_unicode_ci": "CONCAT(CHAR(97 + n % 26), ELT(1 + n % 4, 'é', 'ß', '\\'', 'Z'), n)",
    "VARCHAR(30) CHARACTER SET latin1": "CONCAT(ELT(1 + n % 3, 'ä', 'z', '%'), n)",
    "VARBINARY(20)": "LEFT(UNHEX(SHA2(n, 224)), 20)",
    "CHAR(36)": "INSERT(INSERT(INSERT(INSERT(LEFT(SHA2(n, 224), 32), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')",
    "DECIMAL(20,5)": "n * 1.12345 - 300",
    "DOUBLE": "1 / (n + 1)",
    "DATETIME(6)": "'1999-12-31 23:59:59.999999' + INTERVAL n * 1000003 MICROSECOND",
    "TIMESTAMP(3)": "'2020-03-29 00:00:00' + INTERVAL n SECOND",
    "DATE": "'1000-01-01' + INTERVAL n DAY",
    "TIME(2)": "SEC_TO_TIME(n * 1000 - 500000)",
    "YEAR": "1901 + n % 250",
    "ENUM('b','a','c')": "1 + n % 3",
    "BIT(12)": "n",
    "FLOAT": "n / 3",
}
"""Key columns, and as SQL their values in row number n."""


@pytest.fixture
def database(binlog_server: BinlogServer) -> Iterator[str]:
    with binlog_server.database() as name:
        yield name


@pytest.fixture
def mysql_database(mysql: MySql) -> Iterator[str]:
    with mysql.database() as name:
        yield name


def write_flow(directory: Path, server: BinlogServer, database: str, load: str) -> Path:
    path = directory / "flow.yaml"
    path.write_text(FLOW.format(server=server, database=database, load=load))
    return path


def assert_arrived(directory: Path, server: BinlogServer, database: str, tables: list[str]) -> None:
    with server.connect(database) as source:
        for table in tables:
            expected = compare.source_rows(source, table)
            found = as_of(directory / "lake", f"mysql.db1.{database}.{table}")
            columns = found.column_names
            if table.startswith("k"):
                # Drivers and stores show some of these keys each in its own way.
                columns, expected = ["v"], compare.plain(row[-1:] for row in expected)
            assert compare.plain(zip(*(found.column(name).to_pylist() for name in columns), strict=True)) == expected
            assert compare.sqlite_target_rows(directory / "mart.db", table, columns) == expected


def fill(server: BinlogServer, database: str, shop: Shop) -> list[str]:
    """The shop with some transactions, and a table for every kind of key."""
    shop.create()
    shop.transact(300)
    for number, (type_, value) in enumerate(KEYS.items()):
        names = "a, b" if ", b" in type_ else "a"
        server.execute(
            "SET SESSION sql_mode = '', time_zone = '+00:00'",
            f"CREATE TABLE k{number} (a {type_} NOT NULL, v VARCHAR(20), PRIMARY KEY ({names}))",
            f"INSERT IGNORE INTO k{number} ({names}, v) WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s"
            f" WHERE n < 800) SELECT {value}, CONCAT('row ', n) FROM s",
            database=database,
        )
    return [*TABLES, *(f"k{number}" for number in range(len(KEYS)))]


@pytest.mark.demand(3)
def test_a_load_beside_changes_and_kills(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    shop = Shop(binlog_server.connect(database, autocommit=False), seed=1)
    tables = fill(binlog_server, database, shop)
    flow = write_flow(tmp_path, binlog_server, database, "{workers: 2, chunk_rows: 97, rows_per_s: 4000}")
    chance = random.Random(7)
    with traffic(shop, transactions=3, pause_s=0.005):
        for _ in range(KILLS):
            with running(flow) as process:
                grown = loaded_entries(tmp_path) + chance.randint(5, 60)
                wait_for(lambda grown=grown: loaded_entries(tmp_path) >= grown, process)  # type: ignore[misc]
                kill_group(process)
        binlog_server.execute("TRUNCATE TABLE k0", "INSERT INTO k0 VALUES (1, 'behind')", database=database)
    write_flow(tmp_path, binlog_server, database, "{workers: 3, chunk_rows: 97}")
    run_until_idle(flow)
    assert_arrived(tmp_path, binlog_server, database, tables)


def loaded_entries(directory: Path) -> int:
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))
    try:
        return sum(log.spans(f"db1.load.{lane}").get(0, Span(0, 0)).stop for lane in (1, 2, 3))
    finally:
        log.close()


@pytest.mark.demand(15)
def test_loading_again_repairs_targets(mysql: MySql, mysql_database: str, tmp_path: Path) -> None:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO other VALUES (1, 'one')",
        database=mysql_database,
    )
    flow = write_flow(tmp_path, mysql, mysql_database, "true")
    run_until_idle(flow)
    # What no log knows: as after a log that was purged.
    mysql.execute(
        "SET sql_log_bin = 0",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET v = 'TWO' WHERE id = 2",
        "INSERT INTO t VALUES (4, 'four')",
        "UPDATE other SET v = 'ONE'",
        database=mysql_database,
    )
    run_until_idle(flow)
    with pytest.raises(AssertionError):
        assert_arrived(tmp_path, mysql, mysql_database, ["t"])
    loaded = headrace("load", flow, "--table", f"{mysql_database}.t")
    assert loaded.code == 0, loaded.err
    assert_arrived(tmp_path, mysql, mysql_database, ["t"])
    with pytest.raises(AssertionError):
        assert_arrived(tmp_path, mysql, mysql_database, ["other"])
    mysql.execute("SET sql_log_bin = 0", "UPDATE t SET v = 'three!' WHERE id = 3", database=mysql_database)
    loaded = headrace("load", flow, "--table", f"{mysql_database}.t", "--where", "id = 3")
    assert loaded.code == 0, loaded.err
    assert_arrived(tmp_path, mysql, mysql_database, ["t"])


@pytest.mark.demand(15)
def test_a_table_asked_for_while_a_run_is_active(mysql: MySql, mysql_database: str, tmp_path: Path) -> None:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'one')", database=mysql_database
    )
    flow = write_flow(tmp_path, mysql, mysql_database, "true")
    with running(flow) as process:
        wait_for((tmp_path / "state" / "sources" / "db1" / "loaded.json").exists, process)
        mysql.execute("SET sql_log_bin = 0", "INSERT INTO t VALUES (2, 'two')", database=mysql_database)
        mysql.execute("ALTER TABLE t ADD COLUMN w INT DEFAULT 5", database=mysql_database)
        loaded = headrace("load", flow, "--table", f"{mysql_database}.t")
        assert loaded.code == 0, loaded.err
        assert process.poll() is None
    run_until_idle(flow)
    assert_arrived(tmp_path, mysql, mysql_database, ["t"])


@pytest.mark.demand(7)
def test_what_cannot_be_loaded_is_told(mysql: MySql, mysql_database: str, tmp_path: Path) -> None:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE visits (day DATE, page INT NOT NULL)",
        database=mysql_database,
    )
    mysql.execute("INSERT INTO visits VALUES ('2026-11-21', 1)", database=mysql_database)
    flow = write_flow(tmp_path, mysql, mysql_database, "true")
    refused = headrace("run", flow, "--until-idle")
    assert refused.code == 2
    assert f"the table {mysql_database}.visits has no key" in refused.err
    assert "load: {key:" in refused.err
    nullable = write_flow(tmp_path, mysql, mysql_database, f'{{key: {{"{mysql_database}.visits": [day]}}}}')
    refused = headrace("run", nullable, "--until-idle")
    assert "can be NULL" in refused.err
    unknown = headrace("load", flow, "--table", f"{mysql_database}.nothing")
    assert unknown.code == 2
    assert "no captured table" in unknown.err
    run_until_idle(write_flow(tmp_path, mysql, mysql_database, f'{{exclude: ["{mysql_database}.visits"]}}'))


@pytest.mark.parametrize("kind", range(len(KEYS)), ids=list(KEYS))
@pytest.mark.demand(4)
def test_shards_of_any_kind_of_key(binlog_server: BinlogServer, database: str, kind: int, tmp_path: Path) -> None:
    """Divided and read from key to key, every row is there once."""
    type_, value = list(KEYS.items())[kind]
    names = "a, b" if ", b" in type_ else "a"
    binlog_server.execute(
        "SET SESSION sql_mode = '', time_zone = '+00:00'",
        f"CREATE TABLE t (a {type_} NOT NULL, v VARCHAR(20), PRIMARY KEY ({names}))",
        f"INSERT IGNORE INTO t ({names}, v) WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s"
        f" WHERE n < 300) SELECT {value}, CONCAT('row ', n) FROM s",
        database=database,
    )
    config = MySqlSource.Config(
        type="mysql",
        name="db1",
        host=binlog_server.host,
        port=binlog_server.port,
        user=binlog_server.user,
        password=binlog_server.password,
        tables=[f"{database}.*"],
        start="latest",
        load=True,
    )
    source = MySqlSource(config, tmp_path)
    next(source.follow(None))
    source.close()
    loader = source.loader(lambda: None)
    table = loader.table(database, "t")
    assert table is not None
    last = loader.last_key(table, "")
    found: list[object] = []
    range_ = Range(None, last)
    while True:
        end = loader.key_behind(table, range_, "", 40) if last else None
        for part in loader.read(table, Range(range_.after, end or range_.to), "", 13):
            found += part.data.column("v").to_pylist()
        if end is None or end == last:
            break
        range_ = Range(end, last)
    loader.close()
    expected = [row[0] for row in binlog_server.execute("SELECT v FROM t", database=database)]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_negative_ids_and_progress(mysql: MySql, mysql_database: str, tmp_path: Path) -> None:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s",
        database=mysql_database,
    )
    flow = write_flow(tmp_path, mysql, mysql_database, "{workers: 2, chunk_rows: 100}")
    run_until_idle(flow)
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))
    ids = []
    for lane in (1, 2):
        for record in log.read(f"db1.load.{lane}", 0, log.spans(f"db1.load.{lane}")[0]):
            block = read_block(record.entry.value)
            if isinstance(block, ChangeBatch):
                ids += block.data.column("_ums_id_").to_pylist()
    log.close()
    assert len(ids) == len(set(ids)) == 900
    assert -(10**10) < min(ids) <= max(ids) < 0
    tasks = json.loads((tmp_path / "state" / "last_epoch.json").read_text())["tasks"]
    assert tasks["load-db1-1"]["load"][f"{mysql_database}.t"]["shards_done"] == 9
