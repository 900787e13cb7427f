"""Live servers that write no names into their logs: definitions come from the log's own DDL, from the server, or from a dump."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.ums.change import ChangeBatch, read_block
from tests.flows import compare
from tests.flows.command import headrace, run_until_idle
from tests.flows.test_live_server import write_flow
from tests.servers.install import find_program
from tests.servers.mariadb import MariaDb

TYPES = (
    "id BIGINT UNSIGNED PRIMARY KEY, small TINYINT UNSIGNED, name VARCHAR(20), old VARCHAR(20) CHARACTER SET latin1, raw VARBINARY(9),"
    " note TEXT, kind ENUM('x','it''s'), flags SET('a','b'), code UUID, v4 INET4, v6 INET6, amount DECIMAL(8,2)"
)
VALUES = "255, 'näme', 'größe', x'00ff', 'nöte', 'it''s', 'a,b', 'ad9468eb-e542-11f1-9d9c-02fc00000100', '10.0.0.0', 'fe80::1:0', 1.50"


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with MariaDb("--binlog-row-metadata=NO_LOG") as running:
        yield running


@pytest.fixture
def database(server: MariaDb) -> Iterator[str]:
    with server.database() as name:
        yield name


def forget_the_log(server: MariaDb) -> None:
    """What is in the log up to now is not there any more."""
    server.execute("RESET MASTER")


def captured(directory: Path) -> list[tuple[str, tuple[str, ...], dict[str, object]]]:
    """(table, key, columns) of every change on the log."""
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))
    found = []
    for record in log.read("db1", 0, log.spans("db1").get(0, Span(0, 0))):
        block = read_block(record.entry.value)
        if isinstance(block, ChangeBatch):
            names = [column.name for column in block.table.columns]
            rows = block.data.select(names).to_pylist()
            found += [(block.table.namespace.table, block.table.key, row) for row in rows]
    log.close()
    return found


def test_targets_equal_the_source(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.execute(
        f"CREATE TABLE t ({TYPES})",
        "CREATE TABLE other LIKE t",
        f"INSERT INTO t VALUES (1, {VALUES})",
        database=database,
    )
    forget_the_log(server)
    server.execute(
        f"INSERT INTO t VALUES (2, {VALUES}), (3, {VALUES})",
        f"CREATE TABLE later ({TYPES}) CHARSET=latin1",
        f"INSERT INTO later VALUES (18446744073709551615, {VALUES})",
        database=database,
    )
    flow = write_flow(tmp_path, server, database)
    run_until_idle(flow)
    server.execute(
        "UPDATE t SET small = 200 WHERE id = 2",
        "ALTER TABLE t CHANGE old older VARCHAR(30) CHARACTER SET ucs2 AFTER note, ADD extra INT UNSIGNED DEFAULT 4000000000 FIRST",
        "UPDATE t SET older = '中文' WHERE id IN (2, 3)",
        "DELETE FROM t WHERE id = 1",
        f"INSERT INTO other VALUES (4, {VALUES})",
        "RENAME TABLE later TO latest",
        f"INSERT INTO latest VALUES (5, {VALUES})",
        database=database,
    )
    run_until_idle(flow)
    rows: dict[tuple[str, object], dict[str, object]] = {}
    for table, key, row in captured(tmp_path):
        assert key == ("id",)
        rows[table, row["id"]] = row
    assert rows["latest", 5]["v6"] == "fe80::1:0"
    with server.connect(database) as source:
        for table in ("t", "other"):
            expected = compare.source_rows(source, table)
            columns = [str(name) for (name, *_) in server.execute(f"SHOW COLUMNS FROM {table}", database=database)]
            assert compare.sqlite_target_rows(tmp_path / "mart.db", table, columns) == expected
            assert compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.{table}") == expected


def test_a_definition_of_now_does_not_hold_for_the_past(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", database=database)
    forget_the_log(server)
    server.execute(
        "INSERT INTO t VALUES (1, 2, 3)",
        "ALTER TABLE t RENAME COLUMN a TO c, RENAME COLUMN b TO a",
        "INSERT INTO t VALUES (4, 5, 6)",
        database=database,
    )
    refused = headrace("capture", write_flow(tmp_path, server, database), "--until-idle")
    assert refused.code == 1
    assert f"table {database}.t: the log does not say the names of its columns" in refused.err
    assert "binlog.000001 at " in refused.err
    assert "mysqldump --no-data" in refused.err
    [[position]] = [
        [end]
        for (_, _, kind, _, end, info) in server.execute("SHOW BINLOG EVENTS IN 'binlog.000001'")
        if kind == "Query" and "ALTER TABLE" in info
    ]
    behind = tmp_path / "behind"
    behind.mkdir()
    flow = write_flow(behind, server, database, start=f"binlog.000001:{position}")
    assert headrace("capture", flow, "--until-idle").code == 0
    assert captured(behind) == [("t", ("id",), {"id": 4, "c": 5, "a": 6})]


def test_a_table_that_changes_while_its_definition_is_read(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, c0 INT)", database=database)
    stop = threading.Event()

    def write() -> None:
        with server.connect(database) as connection, connection.cursor() as cursor:
            for number in itertools.count(1):
                cursor.execute(f"ALTER TABLE t RENAME COLUMN c{number - 1} TO c{number}")
                cursor.execute(f"INSERT INTO t (c{number}) VALUES ({number})")
                if stop.wait(0.02):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    flow = write_flow(tmp_path, server, database, start="latest")
    try:
        for _ in range(3):
            result = headrace("capture", flow, "--until-idle")
            assert result.code == 0, result.err
    finally:
        stop.set()
        writer.join()
    assert headrace("capture", flow, "--until-idle").code == 0
    rows = [row for _, _, row in captured(tmp_path)]
    assert len(rows) > 3
    assert all(row == {"id": row["id"], f"c{row['id']}": row["id"]} for row in rows)


def test_a_dump_tells_what_the_log_does_not(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.execute(
        "CREATE TABLE t (id INT UNSIGNED, a VARCHAR(9) CHARSET latin1, u UUID, UNIQUE (id))",
        "ALTER TABLE t MODIFY id INT UNSIGNED NOT NULL",
        database=database,
    )
    dump = subprocess.run(
        [
            find_program("mariadb-dump"),
            "--no-defaults",
            "--no-data",
            f"--host={server.host}",
            f"--port={server.port}",
            f"--user={server.user}",
            f"--password={server.password}",
            database,
        ],
        capture_output=True,
        check=True,
    )
    (tmp_path / "dump.sql").write_bytes(dump.stdout)
    forget_the_log(server)
    server.execute(
        "INSERT INTO t VALUES (4000000000, 'é', 'ad9468eb-e542-11f1-9d9c-02fc00000100')",
        "ALTER TABLE t RENAME COLUMN a TO b, ADD c INT FIRST",
        "INSERT INTO t VALUES (7, 2, 'ü', NULL)",
        "FLUSH BINARY LOGS",
        database=database,
    )
    path = server.binlogs()[0]
    (tmp_path / path.name).write_bytes(path.read_bytes())
    first = {"id": 4_000_000_000, "a": "é", "u": "ad9468eb-e542-11f1-9d9c-02fc00000100"}
    second = {"c": 7, "id": 2, "b": "ü", "u": None}
    flow = tmp_path / "flow.yaml"
    recorded = f'source: {{type: mysql, name: db1, files: "./binlog.0*", tables: ["{database}.*"]'
    rest = "}\nlog: {type: directory, path: ./log}\nstate: ./state\n"
    flow.write_text(recorded + rest)
    refused = headrace("capture", flow, "--until-idle")
    assert refused.code == 1
    assert "the log does not say the names of its columns" in refused.err
    flow.write_text(recorded + ", schema: ./dump.sql" + rest)
    done = headrace("capture", flow, "--until-idle")
    assert done.code == 0, done.err
    assert captured(tmp_path) == [("t", ("id",), first), ("t", ("id",), second)]
    decoded = headrace(
        "decode", "binlog", tmp_path / path.name, "--schema", tmp_path / "dump.sql", "--tables", f"{database}.*"
    )
    assert '"after": {"id": 4000000000, "a": "é", "u": "ad9468eb-e542-11f1-9d9c-02fc00000100"}' in decoded.out
    assert '"after": {"c": 7, "id": 2, "b": "ü", "u": null}' in decoded.out
    unnamed = headrace("decode", "binlog", tmp_path / path.name, "--tables", f"{database}.*")
    assert unnamed.code == 0
    assert '"after": {"@1": -294967296, "@2"' in unnamed.out
    # Masks go by names: what has none cannot be told from what is to be masked.
    flow.write_text(recorded + ', mask: {"*.t.a": {type: default}}' + rest)
    refused = headrace("decode", "binlog", "--source", flow)
    assert (refused.code, refused.out) == (1, "")
    assert "the log does not say the names of its columns" in refused.err


def test_uuid_and_inet_are_known_with_full_metadata_too(mariadb: MariaDb, tmp_path: Path) -> None:
    with mariadb.database() as database:
        mariadb.execute(f"CREATE TABLE t ({TYPES})", f"INSERT INTO t VALUES (1, {VALUES})", database=database)
        [(file, offset, *_)] = mariadb.execute("SHOW MASTER STATUS")
        flow = write_flow(tmp_path, mariadb, database, start=f"{file}:{offset}")
        mariadb.execute(f"INSERT INTO t VALUES (2, {VALUES})", database=database)
        assert headrace("capture", flow, "--until-idle").code == 0
        [(_, _, row)] = captured(tmp_path)
        assert (row["code"], row["v4"], row["v6"]) == ("ad9468eb-e542-11f1-9d9c-02fc00000100", "10.0.0.0", "fe80::1:0")
