"""Flows that compute, over a live server: what the target ends with is what the server would have answered, loads and changes of tables included."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from tests.flows.shop import Shop
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer

PAID = """SELECT id AS number, customer_id * 10 AS tenfold, upper(status) AS status, date_trunc('day', placed)::DATE AS day
    FROM orders WHERE status <> 'open' AND customer_id % 3 > 0"""
EXPECTED = """SELECT id, customer_id * 10, UPPER(status), DATE(placed) FROM orders WHERE status <> 'open' AND customer_id % 3 > 0"""


def pipeline(directory: Path, server: BinlogServer, database: str, *flows: dict[str, Any], **source: Any) -> Pipeline:
    written = [{"to": {"type": "database", "url": f"sqlite:///{directory / 'mart.db'}"}, **flow} for flow in flows]
    return Pipeline(directory, server, [f"{database}.*"], written, **source)


def mart(directory: Path, table: str, columns: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(directory / "mart.db")) as connection:
        rows = connection.execute(f'SELECT {columns} FROM "{table}" WHERE _is_active_ = 1').fetchall()
    return sorted(tuple(map(str, row)) for row in rows)


def answer(server: BinlogServer, database: str, query: str) -> list[tuple[str, ...]]:
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return sorted(tuple(map(str, row)) for row in cursor.fetchall())


def test_a_target_has_what_the_query_answers(binlog_server: BinlogServer, tmp_path: Path) -> None:
    with binlog_server.database() as name, binlog_server.connect(name) as connection:
        shop = Shop(connection, seed=random.getrandbits(30))
        shop.create()
        shop.transact(150)
        run = pipeline(
            tmp_path,
            binlog_server,
            name,
            {"name": "paid", "from": f"mysql.db1.{name}.orders", "sql": PAID},
            load=True,
        )
        run.run_until_idle()
        columns = "number, tenfold, status, day"
        assert mart(tmp_path, "orders", columns) == answer(binlog_server, name, EXPECTED)
        for _ in range(3):
            shop.transact(100)
            run.run_until_idle()
            assert mart(tmp_path, "orders", columns) == answer(binlog_server, name, EXPECTED)
        binlog_server.execute(f"TRUNCATE {name}.orders")
        run.run_until_idle()
        assert mart(tmp_path, "orders", columns) == []
    assert mart(tmp_path, "orders", "count(*)") == [("0",)]


def test_the_table_changes_under_the_query(binlog_server: BinlogServer, tmp_path: Path) -> None:
    query = "SELECT *, price * 2 AS twice FROM input WHERE price > 10"
    with binlog_server.database() as name:
        binlog_server.execute(
            f"CREATE TABLE {name}.goods (id INT PRIMARY KEY, price DECIMAL(10,2), colour VARCHAR(10))",
            f"INSERT INTO {name}.goods VALUES (1, 5, 'red'), (2, 15, 'blue')",
        )
        run = pipeline(
            tmp_path, binlog_server, name, {"name": "g", "from": f"mysql.db1.{name}", "sql": query}, start="earliest"
        )
        run.run_until_idle()
        assert mart(tmp_path, "goods", "id, price, colour, twice") == [("2", "15.00", "blue", "30.00")]
        binlog_server.execute(
            f"ALTER TABLE {name}.goods ADD size INT DEFAULT 7, DROP colour",
            f"INSERT INTO {name}.goods VALUES (3, 20, 1)",
            f"UPDATE {name}.goods SET price = 1 WHERE id = 2",
        )
        run.run_until_idle()
        assert mart(tmp_path, "goods", "id, price, size, twice") == [("3", "20.00", "1", "40.00")]
        binlog_server.execute(
            f"ALTER TABLE {name}.goods CHANGE price cost DECIMAL(12,3)", f"UPDATE {name}.goods SET cost = 30"
        )
        run.run_until_idle()
        told = [(str(n), "30.000", "60.000") for n in (1, 2, 3)]
        assert mart(tmp_path, "goods", "id, price, twice") == told, "known by its first name"
        binlog_server.execute(f"ALTER TABLE {name}.goods DROP cost", f"INSERT INTO {name}.goods (id) VALUES (9)")
        with pytest.raises(ConfigError, match=r"flow g, table mysql.db1.*price") as refused:
            run.run_until_idle()
        assert "headrace check" in refused.value.fix
        assert mart(tmp_path, "goods", "id, price, twice") == told
