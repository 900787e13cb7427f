"""`headrace verify` on a running flow file: right while everything changes, red when a target is broken on purpose, right again after a repair."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.flows.command import headrace, running, wait_for
from tests.flows.shop import TABLES, Shop, traffic
from tests.servers.mysql import MySql

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}", password: "{server.password}",
          tables: ["{database}.*"], start: latest, load: {{workers: 1}}, mask: {{"{database}.fixed.secret": {{type: constant, value: "***"}}}}}}
log: {{type: directory, path: ./log}}
state: ./state
epoch: 2s
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake}}}}
  - {{name: mart, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


@pytest.fixture
def database(mysql: MySql) -> Iterator[str]:
    with mysql.database() as name:
        yield name


def verified(flow: Path, *options: str) -> tuple[int, list[Any]]:
    """Exit code and what was said of each table, the last said of each of them."""
    result = headrace("verify", flow, "--json", *options)
    assert "Traceback" not in result.err, result.err
    return result.code, [json.loads(line) for line in result.out.splitlines()]


def broken(mart: Path, *statements: str) -> None:
    with closing(sqlite3.connect(mart, timeout=60, isolation_level=None)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount == 1, statement


@pytest.mark.timeout(1800)
def test_a_target_that_was_broken_is_found_and_repaired(tmp_path: Path, mysql: MySql, database: str) -> None:
    shop = Shop(mysql.connect(database, autocommit=False), 14)
    shop.create()
    shop.transact(50)
    mysql.execute(
        "CREATE TABLE fixed (id INT PRIMARY KEY, v VARCHAR(20), secret VARCHAR(20))",
        "INSERT INTO fixed WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900)"
        " SELECT n, CONCAT('row ', n), 'secret' FROM s",
        database=database,
    )
    flow, mart = tmp_path / "flow.yaml", tmp_path / "mart.db"
    flow.write_text(FLOW.format(server=mysql, database=database))
    with running(flow) as process, traffic(shop, transactions=2, pause_s=0.05):
        wait_for(lambda: verified(flow, "--flow", "mart")[0] == 0, process)
        wait_for(lambda: verified(flow, "--flow", "raw")[0] == 0, process)
        code, told = verified(flow)
        assert (code, {(each["flow"], each["ok"]) for each in told}) == (0, {("raw", True), ("mart", True)})
        assert len(told) == 2 * (len(TABLES) + 1)
        mysql.execute("DELETE FROM fixed WHERE id = 3", database=database)
        wait_for(lambda: verified(flow, "--table", "*.fixed")[1][0].get("actual_rows") == 899, process)

        broken(
            mart,
            "DELETE FROM fixed WHERE id = 1",
            "UPDATE fixed SET v = 'row two' WHERE id = 2",
            "UPDATE fixed SET _is_active_ = 1 WHERE id = 3",
        )
        for against in ((), ("--against", "raw")):
            code, told = verified(flow, "--flow", "mart", *against)
            assert code == 1
            assert [each["table"] for each in told if not each["ok"]] == [f"{database}.fixed"]
            (red,) = (each for each in told if not each["ok"])
            assert {(found["key"]["id"], found["kind"]) for found in red["differences"]} == {
                ("1", "missing"), ("2", "different"), ("3", "extra"),
            }  # fmt: skip
        assert verified(flow, "--flow", "raw")[0] == 0

        code, told = verified(flow, "--flow", "mart", "--table", "*.fixed", "--repair")
        assert (code, [each["ok"] for each in told]) == (0, [False, True])
        broken(mart, "DELETE FROM fixed WHERE id = 10")
        code, told = verified(flow, "--flow", "mart", "--table", "*.fixed", "--repair")
        assert (code, [each["ok"] for each in told]) == (0, [False, True]), "one row is loaded again, by its key"


def test_what_cannot_be_verified_is_said(tmp_path: Path, mysql: MySql, database: str) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.format(server=mysql, database=database))
    nobody = headrace("verify", flow, "--flow", "nobody")
    assert (nobody.code, "there is no such flow" in nobody.err) == (2, True)
    assert "what to do" in nobody.err
    unknown = headrace("verify", flow, "--table", "*.nothing")
    assert (unknown.code, "no flow takes a table" in unknown.err) == (2, True)
    stopped = headrace("verify", flow, "--flow", "mart")
    assert (stopped.code, "not compared" in stopped.out) == (1, True), "nothing was captured, and no run is active"
