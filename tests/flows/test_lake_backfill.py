"""Windows and backfill on a real source: closed by a run, checked, and the lake brought into databases that lost rows, or never had any."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from tests.flows import compare
from tests.flows.command import run_until_idle
from tests.flows.shop import TABLES, Shop
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"], start: earliest}}
log: {{type: directory, path: ./log}}
state: ./{name}-state
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake, windows: 1s}}}}
  - {{name: mart, from: "mysql.db1.{database}.*", to: {{type: database, url: "{url}"}}}}
"""


@pytest.fixture
def database(mysql: MySql) -> Iterator[str]:
    with mysql.database() as name:
        yield name


def test_windows_are_closed_and_targets_filled_again(
    mysql: MySql, postgresql: PostgreSql, database: str, tmp_path: Path
) -> None:
    with mysql.connect(database) as source, postgresql.database() as mart, postgresql.database() as other:
        flows = {}
        for name, target in (("flow", mart), ("other", other)):
            flows[name] = tmp_path / f"{name}.yaml"
            url = postgresql.url(target)
            flows[name].write_text(FLOW.format(server=mysql, database=database, name=name, url=url))
        shop = Shop(source, 7)
        shop.create()
        for _ in range(3):
            shop.transact(15)
            time.sleep(1.1)
        shop.transact(1)
        run_until_idle(flows["flow"])
        expected = {table: compare.source_rows(source, table) for table in TABLES}

        listed = [json.loads(line) for line in said("lake", "windows", tmp_path / "lake", "--json")]
        # That of the last commit too, when the quiet source has proven that its second is over.
        assert {window["state"] for window in listed} <= {"closed", "open"}
        checked = said("verify", flows["flow"], "--windows", "--json")
        assert len(checked) == sum(window["state"] == "closed" for window in listed) >= 3

        def differing(target: str) -> list[str]:
            return [
                table
                for table in TABLES
                if compare.postgresql_rows(postgresql.url(target), table, _columns(mysql, database, table))
                != expected[table]
            ]

        def content(target: str) -> dict[str, list[tuple[object, ...]]]:
            return {
                table: sorted(postgresql.execute(f"SELECT * FROM {table}", database=target), key=repr)
                for table in TABLES
            }

        assert differing(mart) == []
        before = content(mart)
        postgresql.execute("DELETE FROM orders WHERE id % 3 = 0", "TRUNCATE order_lines", database=mart)
        assert differing(mart) == ["orders", "order_lines"]
        for _ in range(2):
            said("lake", "backfill", flows["flow"], "--to-flow", "mart")
            assert content(mart) == before
        said("lake", "backfill", flows["flow"], "--to-flow", "mart", "--to-file", flows["other"])
        assert differing(other) == []


def said(*arguments: object) -> list[str]:
    """What a command prints, which must end well."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def _columns(server: MySql, database: str, table: str) -> list[str]:
    return [row[0] for row in server.execute(f"SHOW COLUMNS FROM {table}", database=database)]
