"""Tables computed from tables that change, run on Spark over the recorded shop and killed, and their captures killed at every point; compared with
what DuckDB answers over the copy of the shop."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from headrace.lake.asof import as_of
from headrace.ums.change import ChangeBatch, read_block
from headrace.ums.schema import ID, OP
from tests.flows.command import headrace, kill_group, run_until_idle, running, sqlite_rows, wait_for
from tests.sql_tables import open_log

SHOP = Path(__file__).parents[2] / "examples" / "shop"
PER_STATUS = "SELECT status, count(*) AS orders, sum(total) AS amount FROM orders GROUP BY status"
PER_COUNTRY = """SELECT coalesce(c.locale, '?') AS country, p.status, count(*) AS customers, sum(p.orders) AS per_status FROM customers AS c
    LEFT JOIN orders AS o ON o.customer_id = c.id LEFT JOIN per_status AS p ON o.status = p.status WHERE p.status IS NOT NULL GROUP BY ALL"""
SOURCES = f"""\
source:
  - {{type: mysql, name: db1, files: "{SHOP}/binlog/binlog.0*", tables: ["shop.orders", "shop.customers"]}}
  - type: sql
    name: per_status
    from: {{orders: "mysql.db1.shop.orders"}}
    sql: "{PER_STATUS}"
    key: [status]
  - type: sql
    name: per_country
    from: {{customers: "mysql.*.shop.customers", orders: mysql.db1.shop.orders, per_status: sql.per_status}}
    sql: "{" ".join(PER_COUNTRY.split())}"
    key: [country, status]
log: {{type: directory, path: ./log}}
state: ./state
"""
FLOWS = """\
epoch: 2s
flows:
  - {name: copy, from: mysql.db1.shop, to: {type: lake, path: ./lake}}
  - {name: report, from: sql.per_status, to: {type: database, url: "sqlite:///./report.db"}}
  - {name: statuses, from: sql.per_status, to: {type: lake, path: ./statuses}}
  - {name: countries, from: sql.per_country, to: {type: lake, path: ./countries}}
"""


Rows = list[tuple[object, ...]]


def expected(**tables: pa.Table) -> tuple[Rows, Rows]:
    """What both questions answer over tables."""
    with closing(duckdb.connect()) as whole:
        for name, rows in tables.items():
            whole.register(name, rows)
        whole.execute(f"CREATE TABLE per_status AS {PER_STATUS}")
        answers = [whole.execute(sql).fetch_arrow_table().to_pylist() for sql in ("FROM per_status", PER_COUNTRY)]
        return in_order(answers[0]), in_order(answers[1])


def in_order(rows: Iterable[dict[str, object]]) -> Rows:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def test_computed_tables_reach_targets_through_kills(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(SOURCES + FLOWS)
    with running(flow) as process:
        wait_for((tmp_path / "log" / "per_country").exists, process)
        kill_group(process)
    run_until_idle(flow)
    copies = {name: as_of(tmp_path / "lake", f"mysql.db1.shop.{name}") for name in ("orders", "customers")}
    statuses, countries = expected(**copies)
    found = sqlite_rows(tmp_path / "report.db", "per_status", "status, orders, amount")
    assert [(status, orders, Decimal(str(amount))) for status, orders, amount in found] == statuses
    assert in_order(as_of(tmp_path / "countries", "sql.per_country.headrace.per_country").to_pylist()) == countries
    verified = headrace("verify", flow, "--batch")
    assert verified.code == 0, verified.out + verified.err
    assert f"per_country: the same {len(countries):,} rows" in verified.out
    checked = headrace("check", flow)
    assert checked.code == 0, checked.out + checked.err
    assert "source per_status: sql.per_status.headrace.per_status is (status text" in checked.out


@pytest.mark.parametrize("point", ["sql.computed", "sql.told", "sql.kept"])
def test_a_capture_that_is_killed_goes_on_with_what_was_told(tmp_path: Path, point: str) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(SOURCES)
    killed = headrace("capture", flow, "--until-idle", env={**os.environ, "HEADRACE_CRASH_AT": point})
    assert killed.code == -9, killed.err
    ended = headrace("capture", flow, "--until-idle")
    assert ended.code == 0, ended.err
    db1 = {
        name: pa.Table.from_pylist([*newest_rows(tmp_path, "db1", f"shop.{name}").values()])
        for name in ("orders", "customers")
    }
    statuses, countries = expected(**db1)
    assert in_order(newest_rows(tmp_path, "per_status", "headrace.per_status").values()) == statuses
    assert in_order(newest_rows(tmp_path, "per_country", "headrace.per_country").values()) == countries


def newest_rows(directory: Path, topic: str, table: str) -> dict[tuple[object, ...], dict[str, object]]:
    """By key, what a topic says of a table, whose ids must grow."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    newest = 0
    with closing(open_log(directory)) as log:
        for record in log.read(topic, 0, log.spans(topic)[0]):
            change = read_block(record.entry.value)
            if (
                not isinstance(change, ChangeBatch)
                or f"{change.table.namespace.schema}.{change.table.namespace.table}" != table
            ):
                continue
            for row in change.data.to_pylist():
                assert row[ID] > newest, "ids grow"
                newest, key = row[ID], tuple(row[name] for name in change.table.key)
                found[key] = {column.name: row[column.name] for column in change.table.columns}
                if row[OP] == "d":
                    del found[key]
    return found
