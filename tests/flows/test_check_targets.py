"""`headrace check`: what a target cannot hold is told before anything is started, of a server's tables and of recorded files; nothing is made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.flows.command import Result, headrace
from tests.flows.test_bad_input import SHOP, live
from tests.servers.binlog_server import BinlogServer
from tests.servers.postgresql import PostgreSql

ON_SERVER = (
    "CREATE TABLE {0}.plain (id INT PRIMARY KEY, note VARCHAR(20))",
    "CREATE TABLE {0}.keyless (note VARCHAR(20))",
    "CREATE TABLE {0}.taken (id INT PRIMARY KEY, _is_active_ INT)",
    f"CREATE TABLE {{0}}.wide (id INT PRIMARY KEY, {', '.join(f'c{n} INT' for n in range(1016))}) ENGINE=MyISAM",
    f"CREATE TABLE {{0}}.{'ж' * 40} (id INT PRIMARY KEY)",
)


def check(directory: Path, source: str, *flows: str) -> Result:
    path = directory / "flow.yaml"
    lines = "".join(f"  - {flow}\n" for flow in flows)
    path.write_text(
        f"source: {{type: mysql, name: db1, {source}}}\nlog: {{type: directory, path: ./log}}\nstate: ./state\nflows:\n{lines}"
    )
    result = headrace("check", path)
    assert "Traceback" not in result.err + result.out
    return result


def wrong(result: Result, flow: str) -> list[str]:
    """What is said of a flow's target to be wrong."""
    head = f"flow {flow}: target: wrong: "
    return [line.removeprefix(head) for line in result.out.splitlines() if line.startswith(head)]


def test_tables_of_a_server_that_targets_cannot_hold(
    binlog_server: BinlogServer, postgresql: PostgreSql, tmp_path: Path
) -> None:
    with binlog_server.database() as name, postgresql.database() as mart:
        binlog_server.execute(*(statement.format(name) for statement in ON_SERVER))
        url = postgresql.url(mart)
        result = check(
            tmp_path,
            f'{live(binlog_server)}, tables: ["{name}.*"]',
            f'{{name: pg, from: mysql.db1, to: {{type: database, url: "{url}"}}}}',
            f'{{name: own, from: mysql.db1, to: {{type: database, url: "{binlog_server.url(name)}", table: "to_{{table}}"}},'
            f" system_columns: {{active: is_there}}, key: {{{name}.keyless: [note]}}}}",
            "{name: lake, from: mysql.db1, to: {type: lake, path: ./lake}}",
            '{name: not, from: mysql.db1, columns: {rename: {note: id}}, exclude: ["mysql.db1.*.wide", "mysql.db1.*.taken",'
            ' "mysql.db1.*.keyless", "mysql.db1.*.ж*"], to: {type: lake, path: ./lake}}',
        )
        assert result.code == 2
        told = wrong(result, "pg")
        assert len(told) == 3
        for line, parts in zip(told, (["keyless", "no key"], ["taken", "_is_active_"], ["ж", "63 bytes"]), strict=True):
            assert all(part in line for part in parts), told
            assert "what to do: " in line
        assert len(wrong(result, "own")) == 1, "the server itself does not have a table with three columns more"
        assert "1017" in str(wrong(result, "own")) or "Too many columns" in str(wrong(result, "own"))
        assert wrong(result, "lake") == []
        assert "flow lake: target: fine" in result.out
        assert "two columns id" in str(wrong(result, "not"))
        assert postgresql.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database=mart) == [(0,)]
        assert len(binlog_server.execute(f"SHOW TABLES IN {name}")) == len(ON_SERVER)
    assert not (tmp_path / "lake").exists()
    assert not (tmp_path / "state").exists()


def test_tables_of_recorded_files(tmp_path: Path) -> None:
    source = f'files: "{SHOP}/binlog/binlog.0*", tables: ["shop.*"]'
    mart = tmp_path / "mart.db"
    with closing(sqlite3.connect(mart)) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, mine TEXT)")
    flow = f'{{name: mart, from: mysql.db1, to: {{type: database, url: "sqlite:///{mart}"}}}}'
    before = check(tmp_path, source, flow)
    assert headrace("capture", tmp_path / "flow.yaml", "--until-idle").code == 0
    for result in (before, check(tmp_path, source, flow)):
        assert result.code == 2
        [line] = wrong(result, "mart")
        assert "lacks the column(s) _ums_id_, _ums_ts_, _is_active_" in line
    assert check(tmp_path, source, flow.replace("mart.db", "other.db")).code == 0
