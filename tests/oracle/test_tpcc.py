"""TPC-C on a real server, by terminals that work at the same time: its consistency conditions (TPC-C 5.11, 3.3.2) hold in the lake as of every
transaction's end and every commit time, while it is filled and tended and afterwards. So transactions are visible whole, over all tables.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest

from headrace.lake.asof import as_of, snapshot
from headrace.lake.commit import Manifest
from headrace.lake.history import history
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.ums.schema import COMMIT_TS, ID, OP
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer

TERMINALS, WAREHOUSES, DISTRICTS, CUSTOMERS, ITEMS = 4, 2, 3, 4, 50
PER_TERMINAL = max(40, int(os.environ.get("HEADRACE_SERVER_HISTORIES", "0")) * 10)
MOMENTS = 25 if PER_TERMINAL == 40 else 500
DEADLOCK, LOCK_TIMEOUT = 1213, 1205
MONEY = "DECIMAL(12,2) NOT NULL DEFAULT 0"
TABLES = {
    "warehouse": f"w_id INT PRIMARY KEY, w_ytd {MONEY}",
    "district": f"d_w_id INT, d_id INT, d_ytd {MONEY}, d_next_o_id INT NOT NULL DEFAULT 1, PRIMARY KEY (d_w_id, d_id)",
    "customer": f"c_w_id INT, c_d_id INT, c_id INT, c_balance {MONEY}, c_ytd_payment {MONEY}, PRIMARY KEY (c_w_id, c_d_id, c_id)",
    "history": f"h_id INT AUTO_INCREMENT PRIMARY KEY, h_c_w_id INT, h_c_d_id INT, h_c_id INT, h_w_id INT, h_d_id INT, h_amount {MONEY}",
    "new_order": "no_w_id INT, no_d_id INT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
    "orders": "o_w_id INT, o_d_id INT, o_id INT, o_c_id INT, o_ol_cnt INT, o_carrier_id INT, PRIMARY KEY (o_w_id, o_d_id, o_id)",
    "order_line": f"""ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT, ol_amount {MONEY}, ol_delivery_d DATETIME(6),
        PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)""",
    # Not of TPC-C: the last statement of each transaction writes a row, so that it is known where transactions end.
    "ends": "number INT AUTO_INCREMENT PRIMARY KEY, terminal INT",
}
CONDITIONS = {
    "1: w_ytd = sum(d_ytd)": """SELECT w_id FROM warehouse JOIN district ON d_w_id = w_id GROUP BY w_id, w_ytd HAVING w_ytd <> sum(d_ytd)""",
    "2: d_next_o_id - 1 = max(o_id), and max(no_o_id) where there is one": """SELECT * FROM district
        LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS o FROM orders GROUP BY ALL) ON o_w_id = d_w_id AND o_d_id = d_id
        LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS n FROM new_order GROUP BY ALL) ON no_w_id = d_w_id AND no_d_id = d_id
        WHERE d_next_o_id - 1 <> coalesce(o, 0) OR n > coalesce(o, 0)""",
    "3: new orders have no gap": """SELECT no_w_id, no_d_id FROM new_order GROUP BY ALL
        HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)""",
    "4 and 6: each order has its lines": """SELECT * FROM orders FULL JOIN
        (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS lines FROM order_line GROUP BY ALL)
        ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id WHERE o_ol_cnt IS DISTINCT FROM lines""",
    "5: no carrier means a new order": """SELECT * FROM orders FULL JOIN new_order
        ON o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id
        WHERE o_id IS NULL OR (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)""",
    "7: lines are delivered with their order": """SELECT * FROM orders JOIN order_line
        ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id WHERE (o_carrier_id IS NULL) <> (ol_delivery_d IS NULL)""",
    "8: w_ytd = sum(h_amount)": """SELECT w_id FROM warehouse LEFT JOIN history ON h_w_id = w_id
        GROUP BY w_id, w_ytd HAVING w_ytd <> coalesce(sum(h_amount), 0)""",
    "9: d_ytd = sum(h_amount)": """SELECT d_w_id, d_id FROM district LEFT JOIN history ON h_w_id = d_w_id AND h_d_id = d_id
        GROUP BY d_w_id, d_id, d_ytd HAVING d_ytd <> coalesce(sum(h_amount), 0)""",
    "10 and 12: balances are what was delivered less what was paid": """SELECT * FROM customer
        LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS due FROM orders JOIN order_line
            ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id WHERE ol_delivery_d IS NOT NULL GROUP BY ALL)
            ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY ALL)
            ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
        WHERE c_balance <> coalesce(due, 0) - coalesce(paid, 0) OR c_ytd_payment <> coalesce(paid, 0)""",
}  # fmt: skip


class Terminal:
    """Does one transaction after the other by a connection of its own; one that meets a deadlock is begun again."""

    def __init__(self, connection: pymysql.Connection[Any], number: int) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._number = number
        self._random = random.Random(number)
        self.done = 0

    def work(self, transactions: int) -> None:
        kinds = [self._new_order] * 4 + [self._payment] * 4 + [self._delivery]
        while self.done < transactions:
            try:
                self._random.choice(kinds)(self._random.randint(1, WAREHOUSES))
                if self._random.random() < 0.05:
                    self._connection.rollback()  # an unused item, TPC-C says
                    continue
                self._run("INSERT INTO ends (terminal) VALUES (%s)", self._number)
                self._connection.commit()
                self.done += 1
            except pymysql.err.OperationalError as error:
                if error.args[0] not in (DEADLOCK, LOCK_TIMEOUT):
                    raise
                self._connection.rollback()

    def _run(self, statement: str, *values: object) -> tuple[Any, ...]:
        self._cursor.execute(statement, values)
        return self._cursor.fetchone() or ()

    def _new_order(self, w: int) -> None:
        d, c = self._random.randint(1, DISTRICTS), self._random.randint(1, CUSTOMERS)
        (o,) = self._run("SELECT d_next_o_id FROM district WHERE d_w_id = %s AND d_id = %s FOR UPDATE", w, d)
        self._run("UPDATE district SET d_next_o_id = %s WHERE d_w_id = %s AND d_id = %s", o + 1, w, d)
        lines = self._random.randint(5, 15)
        self._run("INSERT INTO orders VALUES (%s, %s, %s, %s, %s, NULL)", w, d, o, c, lines)
        self._run("INSERT INTO new_order VALUES (%s, %s, %s)", w, d, o)
        for number in range(1, lines + 1):
            amount = f"{self._random.randint(1, 99)}.{self._random.randint(10, 99)}"
            item = self._random.randint(1, ITEMS)
            self._run("INSERT INTO order_line VALUES (%s, %s, %s, %s, %s, %s, NULL)", w, d, o, number, item, amount)

    def _payment(self, w: int) -> None:
        d, c = self._random.randint(1, DISTRICTS), self._random.randint(1, CUSTOMERS)
        amount = f"{self._random.randint(1, 500)}.{self._random.randint(10, 99)}"
        self._run("UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %s", amount, w)
        self._run("UPDATE district SET d_ytd = d_ytd + %s WHERE d_w_id = %s AND d_id = %s", amount, w, d)
        cw, cd = self._random.choice(
            [(w, d), (self._random.randint(1, WAREHOUSES), self._random.randint(1, DISTRICTS))]
        )
        self._run(
            "UPDATE customer SET c_balance = c_balance - %s, c_ytd_payment = c_ytd_payment + %s WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
            amount, amount, cw, cd, c,
        )  # fmt: skip
        self._run(
            "INSERT INTO history (h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_amount) VALUES (%s, %s, %s, %s, %s, %s)",
            cw, cd, c, w, d, amount,
        )  # fmt: skip

    def _delivery(self, w: int) -> None:
        for d in range(1, DISTRICTS + 1):
            oldest = self._run(
                "SELECT no_o_id FROM new_order WHERE no_w_id = %s AND no_d_id = %s ORDER BY no_o_id LIMIT 1 FOR UPDATE",
                w, d,
            )  # fmt: skip
            if not oldest:
                continue
            order = (w, d, oldest[0])
            self._run("DELETE FROM new_order WHERE no_w_id = %s AND no_d_id = %s AND no_o_id = %s", *order)
            self._run("UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = %s AND o_d_id = %s AND o_id = %s", *order)
            lines = "order_line {} WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s"
            self._run(f"UPDATE {lines.format('SET ol_delivery_d = NOW(6)')}", *order)
            (due,) = self._run(f"SELECT sum(ol_amount) FROM {lines.format('')}", *order)
            (c,) = self._run("SELECT o_c_id FROM orders WHERE o_w_id = %s AND o_d_id = %s AND o_id = %s", *order)
            self._run(
                "UPDATE customer SET c_balance = c_balance + %s WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
                due, w, d, c,
            )  # fmt: skip


@pytest.fixture
def database(binlog_server: BinlogServer) -> Iterator[str]:
    with binlog_server.database() as name:
        yield name


def create(server: BinlogServer, database: str) -> None:
    places = [(w, d) for w in range(1, WAREHOUSES + 1) for d in range(1, DISTRICTS + 1)]
    server.execute(
        *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()),
        "BEGIN",
        *(f"INSERT INTO warehouse (w_id) VALUES ({w})" for w in range(1, WAREHOUSES + 1)),
        *(f"INSERT INTO district (d_w_id, d_id) VALUES ({w}, {d})" for w, d in places),
        *(
            f"INSERT INTO customer (c_w_id, c_d_id, c_id) VALUES ({w}, {d}, {c})"
            for w, d in places
            for c in range(1, CUSTOMERS + 1)
        ),
        "INSERT INTO ends (terminal) VALUES (0)",
        "COMMIT",
        database=database,
    )


def broken(lake: Path, database: str, **moment: Any) -> list[str]:
    """The conditions that do not hold as of a moment, over all tables, read from one manifest."""
    manifest = Manifest.open(lake)
    with duckdb.connect() as shop:
        for name in TABLES:
            whole = f"mysql.db1.{database}.{name}"
            if whole not in manifest.tables:
                return []
            shop.register(name, snapshot(manifest, whole, **moment).read_all())
        return [told for told, query in CONDITIONS.items() if shop.execute(query).fetchall()]


def work_and_look(server: BinlogServer, database: str, lake: Path) -> None:
    """All terminals at once; meanwhile the lake is tended and looked at."""
    failed: list[BaseException] = []

    def at_work(number: int) -> None:
        try:
            with closing(server.connect(database, autocommit=False)) as connection:
                Terminal(connection, number).work(PER_TERMINAL)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=at_work, args=(number,)) for number in range(1, TERMINALS + 1)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (lake / "_headrace" / "commits").exists():
            assert broken(lake, database) == []
            Caretaker(lake, Policy(grace=60, state_changes=100)).tend(all_periods=True)
    for thread in threads:
        thread.join()
    assert not failed


def test_conditions_hold_as_of_every_moment(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    flow = {"name": "raw", "from": "mysql.db1", "to": {"type": "lake", "path": str(lake), "commit_interval": 0.2}}
    pipeline = Pipeline(tmp_path, binlog_server, [f"{database}.*"], [flow])
    with pipeline.running():
        create(binlog_server, database)
        work_and_look(binlog_server, database, lake)
    done = Caretaker(lake, Policy(grace=60, state_changes=100)).tend(all_periods=True)
    assert not done.problems
    manifest = Manifest.open(lake)
    ends = history(manifest, f"mysql.db1.{database}.ends").read_all().sort_by(ID)
    assert ends.num_rows == 1 + TERMINALS * PER_TERMINAL
    assert len(set(ends.column("terminal").to_pylist())) == 1 + TERMINALS
    assert all(manifest.states[f"mysql.db1.{database}.{name}"] for name in ("order_line", "ends"))

    chance = random.Random(5)
    ids = ends.column(ID).to_pylist()
    for id_ in chance.sample(ids, min(MOMENTS, len(ids))):
        assert broken(lake, database, id=id_) == [], id_
    times = sorted(set(ends.column(COMMIT_TS).to_pylist()))
    for time in chance.sample(times, min(MOMENTS, len(times))):
        assert broken(lake, database, time=time) == [], time
    paid = history(manifest, f"mysql.db1.{database}.warehouse").read_all()
    for id_ in chance.sample(paid.filter(pc.equal(paid.column(OP), pa.scalar("u"))).column(ID).to_pylist(), 3):
        assert broken(lake, database, id=id_), "within a payment the conditions do not hold, or they are no test"
    with closing(binlog_server.connect(database)) as connection, connection.cursor() as cursor:
        for name in TABLES:
            cursor.execute(f"SELECT * FROM {name}")
            newest = as_of(lake, f"mysql.db1.{database}.{name}")
            found = [tuple(row.values()) for row in newest.to_pylist()]
            assert sorted(found, key=repr) == sorted(cursor.fetchall(), key=repr)
