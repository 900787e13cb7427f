"""`headrace demo`: the main job on the recorded shop, shown and verified against the server's own answers."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from headrace.errors import ConfigError
from headrace.files import make_directories
from headrace.flow.load import load
from headrace.flow.spec import PipelineSpec
from headrace.lake.asof import as_of, snapshot
from headrace.lake.commit import Manifest
from headrace.stream.parts import open_sink
from headrace.stream.query import run
from headrace.ums.schema import TableSchema
from headrace.verify.compare import TableResult, compare
from headrace.verify.expected import read_expected
from headrace.verify.report import Report

SHOP = Path(__file__).parents[3] / "examples" / "shop"
_FLOW = """\
# The flow of `headrace demo`; run it again with:  headrace run {file}
source: {{type: mysql, name: db1, files: "{binlogs}/binlog.0*", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: lake, from: "mysql.db1.shop.*", to: {{type: lake, path: ./lake}}}}
  - {{name: mart, from: "mysql.db1.shop.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""
_NEWEST = 5
_COLUMNS = ("id", "customer_id", "status", "total", "placed", "updated", "comment")
Json = dict[str, Any]


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("headrace-demo"),
    show_default=True,
    help="Where log, lake, database and state of the demo go; made anew each time.",
)
def demo(directory: Path) -> None:
    """Run the main job on the recorded binlog of a small shop: capture -> log -> Spark -> lake and SQLite, verified at the end.

    Exit code 1 when a target differs from what the server itself answered.
    """
    console = Console(width=None if Console().is_terminal else 120)
    flow = _prepare(directory)
    pipeline = load(flow)
    console.print(
        f"A day of a shop, recorded by a real MariaDB server: {SHOP / 'binlog'}\nFlow file: {flow}\n", highlight=False
    )
    with _Progress(console) as shown:
        run([pipeline], until_idle=True, progress=shown)
    lake = directory / "lake"
    console.print(_figures(shown.newest, pipeline))
    for moment in _moments():
        console.print(_newest_rows(lake, moment))
    report = Report(tuple(_verified(lake, pipeline)))
    console.print(report.rendered())
    if not report.ok:
        console.print("[red]The targets differ from the server's own state.")
        raise click.exceptions.Exit(1)
    console.print(
        "[green]Every table is the same as at the server, in the lake and in the database, at all three moments."
    )


def _prepare(directory: Path) -> Path:
    """An empty directory with the demo's flow file; one that holds anything else is left alone."""
    flow = directory / "shop.yaml"
    if not (SHOP / "binlog").is_dir():
        raise ConfigError(f"the recorded shop is not at {SHOP}", fix="run the demo from a checkout of the source")
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory", fix="name another directory with --dir")
    if directory.exists() and any(directory.iterdir()):
        if not flow.exists():
            raise ConfigError(f"{directory} holds something else", fix="name another directory with --dir")
        shutil.rmtree(directory)
    make_directories(directory)
    flow.write_text(_FLOW.format(binlogs=SHOP / "binlog", file=flow))
    return flow


class _Progress:
    """A bar for the capture and one for each flow."""

    def __init__(self, console: Console) -> None:
        self.newest: dict[str, Json] = {}
        self._sizes = {path.name: path.stat().st_size for path in sorted((SHOP / "binlog").glob("binlog.0*"))}
        columns = (
            TextColumn("{task.description:10}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Progress:
        self._bars.start()
        self._bar("Spark", total=1, said="starting")
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, reports: dict[str, Json]) -> None:
        self.newest = reports
        captured = reports.get("capture-db1")
        if captured is None:
            return
        rows = sum(captured["rows"].values())
        self._bar("Spark", total=1, completed=1, said="started")
        self._bar("capture", total=sum(self._sizes.values()), completed=self._read(captured), said=f"{rows:,} changes")
        for name, flow in reports.get("deliver-db1", {}).get("flows", {}).items():
            delivered = sum(flow["rows"].values())
            self._bar(name, total=max(rows, 1), completed=delivered, said=f"{delivered:,} changes")

    def _read(self, captured: Json) -> int:
        position = captured["position"] or {"file": "", "offset": 0}
        return sum(size for name, size in self._sizes.items() if name < position["file"]) + int(position["offset"])

    def _bar(self, name: str, *, total: int, said: str, completed: int = 0) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, said=said)
        self._bars.update(self._tasks[name], total=total, completed=completed, said=said)


def _figures(reports: dict[str, Json], pipeline: PipelineSpec) -> Table:
    """Changes per table, throughput and delay of each flow."""
    flows: dict[str, Json] = reports["deliver-db1"]["flows"]
    table = Table("changes of", *flows, title="Delivered", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    names = sorted({name for flow in flows.values() for name in flow["rows"]})
    for name in names:
        table.add_row(name, *(f"{flow['rows'].get(name, 0):,}" for flow in flows.values()))
    table.add_section()
    table.add_row("all", *(f"{sum(flow['rows'].values()):,}" for flow in flows.values()))
    table.add_row("changes a second", *(_throughput(flow, pipeline) for flow in flows.values()))
    table.add_row("delay, log to target", *(f"{flow['delay_p50_ms']:,.0f} ms" for flow in flows.values()))
    return table


def _throughput(flow: Json, pipeline: PipelineSpec) -> str:
    """From the first epoch's start to the flow's last commit."""
    ends = [json.loads(path.read_bytes())["message"] for path in (pipeline.state / "epochs").glob("*/*.json")]
    seconds = (flow["committed_ms"] - min(end["began_ms"] for end in ends)) / 1000
    return f"{sum(flow['rows'].values()) / seconds:,.0f}"


def _moments() -> list[Json]:
    """The moments of which the server's own answer was recorded."""
    moments: list[Json] = json.loads((SHOP / "expected" / "asof.json").read_text())
    return moments


def _newest_rows(lake: Path, moment: Json) -> Table:
    """The newest rows of a table as of a moment."""
    began = time.perf_counter()
    rows = as_of(lake, f"mysql.db1.shop.{moment['table']}", time=datetime.fromisoformat(moment["time"]))
    took_ms = (time.perf_counter() - began) * 1000
    title = f"{moment['table']} as of {moment['time']}: {rows.num_rows:,} rows, the newest of them (read in {took_ms:.0f} ms)"
    table = Table(*_COLUMNS, title=title, title_justify="left")
    newest = rows.sort_by([("updated", "descending"), ("id", "descending")]).slice(0, _NEWEST)
    for values in zip(*(_shown(newest.column(name)) for name in _COLUMNS), strict=True):
        table.add_row(*values)
    return table


def _shown(column: pa.ChunkedArray[Any]) -> list[str]:
    if pa.types.is_timestamp(column.type):
        return [f"{value:%Y-%m-%d %H:%M:%S}" if value else "" for value in column.to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _verified(lake: Path, pipeline: PipelineSpec) -> Iterator[TableResult]:
    """Every table in both targets against the server's final SELECT, and the lake's earlier moments against the server's then."""
    mart = next(flow for flow in pipeline.flows if flow.name == "mart")
    manifest = Manifest.open(lake)
    for path in sorted((SHOP / "expected").glob("*.jsonl")):
        name, _, moment = path.stem.partition("-")
        if moment:
            continue
        now = snapshot(manifest, f"mysql.db1.shop.{name}")
        expected = read_expected(path, now.table)
        yield replace(compare(expected, now.read_all(), now.table), table=f"lake: {name}")
        with closing(open_sink(mart)) as sink:
            yield replace(
                compare(expected, _table(sink.scan(now.table), now.table), now.table), table=f"SQLite: {name}"
            )
    for earlier in _moments():
        then = snapshot(manifest, f"mysql.db1.shop.{earlier['table']}", time=datetime.fromisoformat(earlier["time"]))
        expected = read_expected(SHOP / "expected" / earlier["expected"], then.table)
        yield replace(
            compare(expected, then.read_all(), then.table), table=f"lake: {earlier['table']} as of {earlier['time']}"
        )


def _table(batches: Iterator[pa.RecordBatch], table: TableSchema) -> pa.Table:
    return pa.Table.from_batches(batches, pa.schema([pa.field(column.name, column.type) for column in table.columns]))
