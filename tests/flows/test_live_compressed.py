"""Servers that compress their logs, each in its way: the same changes as without, from files and as a replica."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.capture.mysql import MySqlConfig, MySqlSource
from headrace.codec.binlog import BinlogReader, Boundary, Ddl, decode_file
from headrace.errors import ConfigError
from headrace.ums.change import ChangeBatch, Mark
from tests.servers.binlog_server import BinlogServer

STATEMENTS = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(2000), n BIGINT)",
    "INSERT INTO t VALUES " + ", ".join(f"({id_}, REPEAT('{id_}', {id_ % 150}), {id_})" for id_ in range(1, 3001)),
    "UPDATE t SET n = n + 1, v = CONCAT('x', v) WHERE id % 3 = 0",
    "UPDATE t SET id = id + 10000 WHERE id <= 100",
    "DELETE FROM t WHERE id % 5 = 0",
    f"ALTER TABLE t ADD COLUMN w INT COMMENT '{'long ' * 100}'",
    "INSERT INTO t VALUES (20000, NULL, 7, 8), (20001, '', 8, 9)",
)
Row = tuple[object, ...]


SWITCH = {"mariadb": "log_bin_compress", "mysql": "binlog_transaction_compression"}
COMPRESSED_KINDS = {"mariadb": {165, 166, 167, 168}, "mysql": {40}}


@pytest.fixture
def server(binlog_server: BinlogServer) -> Iterator[BinlogServer]:
    yield binlog_server
    switch(binlog_server, "OFF")


def switch(server: BinlogServer, compress: str) -> None:
    server.execute(f"SET GLOBAL {SWITCH[server.name]} = {compress}", "FLUSH BINARY LOGS")


@pytest.fixture
def database(server: BinlogServer) -> Iterator[str]:
    with server.database() as name:
        yield name


def run(server: BinlogServer, database: str, compress: str) -> Path:
    """Runs the statements into a file of their own and says which."""
    switch(server, compress)
    server.execute(*STATEMENTS, database=database)
    path = server.binlogs()[-1]
    server.execute("FLUSH BINARY LOGS")
    return path


def decoded(path: Path, database: str) -> tuple[list[int], list[Row], list[str]]:
    """Ids, rows (operation and values) and statements in a file."""
    reader = BinlogReader([f"{database}.*"])
    ids: list[int] = []
    rows: list[Row] = []
    statements: list[str] = []
    with path.open("rb") as file:
        for part in decode_file(reader, file, path.name):
            for item in part.items:
                if isinstance(item, Ddl):
                    ids.append(item.id)
                    statements.append(item.sql)
                    continue
                ids += item.data.column("_ums_id_").to_pylist()
                columns = [item.data.column("_ums_op_"), *item.data.columns[5:]]
                rows += zip(*(column.to_pylist() for column in columns), strict=True)
    reader.finish()
    return ids, rows, statements


def kinds(path: Path) -> set[int]:
    log, offset, found = path.read_bytes(), 4, set()
    while offset < len(log):
        found.add(log[offset + 4])
        offset += int.from_bytes(log[offset + 9 : offset + 13], "little")
    return found


def test_compression_changes_nothing_but_ids(server: BinlogServer, database: str) -> None:
    plain = run(server, database, "OFF")
    server.execute("SET sql_log_bin = 0", "DROP TABLE t", database=database)
    compressed = run(server, database, "ON")
    assert COMPRESSED_KINDS[server.name] <= kinds(compressed)
    assert not COMPRESSED_KINDS[server.name] & kinds(plain)
    assert compressed.stat().st_size < plain.stat().st_size / 2
    ids, rows, statements = decoded(compressed, database)
    assert ids == sorted(set(ids))
    assert (rows, statements) == decoded(plain, database)[1:]
    assert len(rows) > 4000


def boundaries(path: Path, database: str) -> list[Boundary]:
    """The ends of all transactions in a file."""
    reader = BinlogReader([f"{database}.*"])
    reader.start(path.name)
    log, fed = path.read_bytes(), 0
    found = []
    while fed < len(log):
        fed += reader.feed(memoryview(log)[fed:], rows=1)
        boundary = reader.take().boundary
        assert boundary is not None
        found.append(boundary)
    return found


def events(config: MySqlConfig, state: Path, start: Mark | None) -> list[tuple[int, Row]]:
    """All changes with their ids, in their order, until the source has caught up."""
    found: list[tuple[int, Row]] = []
    source = MySqlSource(config, state)
    for event in source.follow(start):
        for batch in event.changes:
            if not isinstance(batch, ChangeBatch):
                continue
            columns = [column.to_pylist() for column in batch.data.columns]
            found += [(row[0], row[1:]) for row in zip(*columns, strict=True)]
        if event.caught_up:
            break
    source.close()
    return sorted(found, key=lambda change: change[0])


def configuration(database: str, **origin: object) -> MySqlConfig:
    return MySqlConfig.model_validate({"type": "mysql", "name": "db1", "tables": [f"{database}.*"], **origin})


def test_server_and_files_agree_from_every_boundary(server: BinlogServer, database: str, tmp_path: Path) -> None:
    path = run(server, database, "ON")
    login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    recorded = {"files": str(server.data_path / "binlog.0*")}
    first = f"{path.name}:4"
    whole = events(configuration(database, **recorded, start=first), tmp_path / "whole", None)
    assert len(whole) > 4000
    assert events(configuration(database, **login, start=first), tmp_path / "live", None) == whole
    ends = boundaries(path, database)
    assert ends[-1].expanded > 10_000
    assert all(end.gtids for end in ends)
    for end in ends:
        after = [change for change in whole if change[0] > end.id]
        position = {
            "file": end.file,
            "offset": end.offset,
            "expanded": end.expanded,
            "gtids": end.gtids,
            "server": "",
            "renumbered": 0,
            "behind_gap": False,
        }
        mark = Mark("db1", position, end.id, end.commit_ts_us)
        named = configuration(database, **recorded, start=f"{end.file}:{end.offset}")
        for number, (config, start) in enumerate(
            [(configuration(database, **recorded), mark), (configuration(database, **login), mark), (named, None)]
        ):
            state = tmp_path / f"{end.offset}-{number}"
            state.mkdir()
            shutil.copy(tmp_path / "whole" / "schemas.json", state)
            assert events(config, state, start) == after


def test_a_start_within_an_event_is_refused(server: BinlogServer, database: str, tmp_path: Path) -> None:
    path = run(server, database, "ON")
    start = f"{path.name}:{path.stat().st_size - 5}"
    config = configuration(database, files=str(server.data_path / "binlog.0*"), start=start)
    with pytest.raises(ConfigError, match="is within an event"):
        events(config, tmp_path, None)
