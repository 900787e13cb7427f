"""Flows that compute, run on Spark over the recorded shop: checked, killed, gone on with, and compared with a copy that DuckDB computes as a whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb

from headrace.lake.asof import as_of
from tests.flows.command import headrace, kill_group, run_until_idle, running, wait_for

SHOP = Path(__file__).parents[2] / "examples" / "shop"
LARGE = "SELECT id, customer_id, total * 2 AS twice, status, 100 / nullif(length(status), 0) AS share FROM {table} WHERE total > 100"
FLOW = """\
source: {{type: mysql, name: db1, files: "{shop}/binlog/binlog.0*", tables: ["shop.orders"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - name: copy
    from: "mysql.db1.shop.orders"
    to: {{type: lake, path: ./lake}}
  - name: large
    from: "mysql.db1.shop.orders"
    sql: "{sql}"
    to: {{type: database, url: "sqlite:///./large.db", table: large}}
  - name: numbers
    from: "mysql.db1.shop"
    set_aside: 100000
    steps:
      - {{do: filter, where: "status IN ('paid', 'cancelled')"}}
      - {{do: set, columns: {{total: "CASE WHEN status = 'paid' OR id % 20 > 0 THEN total ELSE status::INT END", kind: "'order'"}}}}
      - {{do: lookup, from: {{type: csv, path: ./labels.csv}}, on: {{status: status}}, take: {{label: text}}, missing: drop}}
    to: {{type: lake, path: ./numbers}}
"""


def live(path: Path) -> list[tuple[object, ...]]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'large'").fetchone():
            return []
        query = "SELECT id, customer_id, CAST(round(twice * 100) AS INT), status, share FROM large WHERE _is_active_ = 1 ORDER BY id"
        return connection.execute(query).fetchall()


def test_what_is_computed_on_the_way(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.format(shop=SHOP, sql=LARGE.format(table="orders")))
    (tmp_path / "labels.csv").write_text("status,label\npaid,Has paid\ncancelled,Is off\n")
    checked = headrace("check", flow)
    assert checked.code == 0, checked.out + checked.err
    assert "flow large: mysql.db1.shop.orders becomes (id bigint" in checked.out
    assert "computed row by row: twice, share; keeps no state" in checked.out
    with running(flow) as process:
        wait_for(lambda: bool(live(tmp_path / "large.db")), process)
        kill_group(process)
    run_until_idle(flow)
    orders = as_of(tmp_path / "lake", "mysql.db1.shop.orders")
    with closing(duckdb.connect()) as whole:
        whole.register("orders", orders)
        expected = LARGE.format(table="orders").replace("total * 2 AS twice", "CAST(total * 200 AS INT) AS twice")
        assert live(tmp_path / "large.db") == whole.execute(f"{expected} ORDER BY id").fetchall()
        numbers = whole.execute(
            "SELECT id, total, 'order', 'Has paid' FROM orders WHERE status = 'paid' ORDER BY id"
        ).fetchall()
    found = as_of(tmp_path / "numbers", "mysql.db1.shop.orders").to_pylist()
    assert (
        sorted((row["id"], row["total"], row["kind"], row["label"]) for row in found if row["status"] == "paid")
        == numbers
    )
    ledger = headrace("errors", "ls", flow)
    assert "Could not convert string 'cancelled' to INT32" in ledger.out


def test_what_does_not_fit_is_told_by_check(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.format(shop=SHOP, sql="SELECT id, price FROM orders"))
    (tmp_path / "labels.csv").write_text("status,label\n")
    checked = headrace("check", flow)
    assert checked.code == 2
    assert "flow large: target: wrong: flow large, table mysql.db1.shop.orders" in checked.out
    assert 'column "price" not found' in checked.out
    ran = headrace("run", flow, "--until-idle")
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert 'column "price" not found' in ran.err
