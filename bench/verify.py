"""`headrace verify` of a table of a live MySQL server against PostgreSQL, beside reading both tables into Python.

Wanted: 500,000 rows a second on each side, or what the database's own limit is. Every way reads all rows of both sides and must find them to be the
same. The sides alone are read one after the other; verification reads them beside each other.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pymysql.cursors
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

from bench.full_load import fill
from bench.machine import write_results
from headrace.capture.load.base import Loadable
from headrace.capture.runner import resume_point
from headrace.flow.load import load
from headrace.flow.spec import PipelineSpec
from headrace.stream.parts import open_log, open_masker, open_sink, open_source
from headrace.verify.checks import Wish, verified
from headrace.verify.compare import ACTUAL, EXPECTED
from headrace.verify.sides import FlowSide, SourceSide, View
from headrace.verify.sums import summed

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
COLUMNS = "id, customer_id, status, amount, note, created, updated"
FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["shop.orders"], start: latest, load: {{workers: 2}}}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: mart, from: "mysql.db1.shop.*", to: {{type: database, url: "{url}"}}}}
"""


def main() -> None:
    with (
        MySql("--innodb-buffer-pool-size=2G") as server,
        PostgreSql() as target,
        target.database() as name,
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as work,
    ):
        fill(server)
        flow = Path(work) / "flow.yaml"
        flow.write_text(FLOW.format(server=server, url=target.url(name)))
        subprocess.run([sys.executable, "-m", "headrace", "run", str(flow), "--until-idle"], check=True)
        pipeline = load(flow)
        costs = {
            "headrace verify": cost(lambda: whole(pipeline)),
            "its source's side alone": cost(lambda: source_side(pipeline)),
            "its target's side alone": cost(lambda: target_side(pipeline)),
            "both tables into Python (PyMySQL, psycopg), rows compared as a set": cost(
                lambda: in_python(server, target, name)
            ),
        }
    limit = costs["both tables into Python (PyMySQL, psycopg), rows compared as a set"][0]
    write_results(
        "verify",
        [
            f"{ROWS:,} rows of 7 columns, MySQL and PostgreSQL on the same machine.",
            "",
            "| way | s | of Python's time | rows/s per side | processor seconds of this process |",
            "|---|---|---|---|---|",
            *(
                f"| {way} | {seconds:.2f} | {seconds / limit:.2f} | {ROWS / seconds:,.0f} | {cpu_s:.2f} |"
                for way, (seconds, cpu_s) in costs.items()
            ),
        ],
    )


def cost(work: Callable[[], int]) -> tuple[float, float]:
    """Seconds, and processor seconds."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    assert work() == ROWS
    return time.perf_counter() - began_s, time.process_time() - cpu_s


def whole(pipeline: PipelineSpec) -> int:
    [checked] = verified(pipeline, Wish(), print)
    assert checked.verified is not None, checked.problem
    assert checked.ok
    return checked.verified.result.actual_rows


def source_side(pipeline: PipelineSpec) -> int:
    config, view = pipeline.source[0], View(pipeline.flows[0])
    with closing(open_log(pipeline)) as log, closing(open_source(config, pipeline)) as source:
        assert isinstance(source, Loadable)
        loader = source.loader(lambda: resume_point(log, config.name))
        assert loader is not None
        with closing(loader):
            table = loader.table("shop", "orders")
            assert table is not None
            side = SourceSide(loader, open_masker(config, pipeline), view, table)
            return summed(side.read(), side.table, EXPECTED).total()[0]


def target_side(pipeline: PipelineSpec) -> int:
    flow, config = pipeline.flows[0], pipeline.source[0]
    with closing(open_source(config, pipeline)) as source, closing(open_sink(flow)) as sink:
        [table] = source.tables()
        return summed(FlowSide(sink, View(flow).shaped(table)).read(), table, ACTUAL).total()[0]


def in_python(server: MySql, target: PostgreSql, name: str) -> int:
    """The plain way: it takes all rows of one side into memory. Times are compared without their zone."""
    with closing(
        server.connect("shop", cursorclass=pymysql.cursors.SSCursor, init_command="SET time_zone = '+00:00'")
    ) as source:
        left = set(_rows(source.cursor()))
    there = 0
    with psycopg.connect(target.url(name)) as connection, connection.cursor("rows") as cursor:
        cursor.itersize = 50_000
        for row in _rows(cursor, " WHERE _is_active_ = 1"):
            left.remove((*row[:6], row[6] and row[6].astimezone(UTC).replace(tzinfo=None)))
            there += 1
    assert not left
    return there


def _rows(cursor: Any, where: str = "") -> Iterator[tuple[Any, ...]]:
    cursor.execute(f"SELECT {COLUMNS} FROM orders{where}")
    yield from cursor


if __name__ == "__main__":
    main()
