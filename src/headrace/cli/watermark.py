"""``headrace watermark serve|show|simulate``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headrace.errors import ConfigError
from headrace.flow.load import load
from headrace.stream.watermarks import server_of
from headrace.watermark.api import serve
from headrace.watermark.client import Server
from headrace.watermark.server import WatermarkServer
from headrace.watermark.simulate import METHODS, SCENARIOS, Cell, simulate
from headrace.watermark.store import WatermarkStore

_TOKEN = click.option(
    "--token",
    envvar="HEADRACE_WATERMARK_TOKEN",
    help="What every request must carry; better as HEADRACE_WATERMARK_TOKEN.",
)


@click.group()
def watermark() -> None:
    """The Watermark Server: how far event time is complete."""


@watermark.command("serve")
@click.option(
    "--store",
    envvar="HEADRACE_WATERMARK_STORE",
    default="sqlite:///watermarks.db",
    show_default=True,
    help="URL of the database that keeps what must not be lost. With a password better as HEADRACE_WATERMARK_STORE.",
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), default=9310, show_default=True)
@_TOKEN
def serve_command(store: str, host: str, port: int, token: str | None) -> None:
    """Serve watermarks until stopped. Several servers may share one store (PostgreSQL, MySQL)."""
    opened = WatermarkStore(store)
    server = WatermarkServer(opened)
    server.open()
    try:
        serve(server, host, port, token)
    finally:
        opened.close()


@watermark.command("show")
@click.argument("server", metavar="URL|FLOW.yaml")
@click.argument("topology", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@_TOKEN
def show_command(server: str, topology: str | None, as_json: bool, token: str | None) -> None:
    """The stages of a topology: how far each one is, and who holds it. Without TOPOLOGY, all of them; of a flow file its own."""
    if server.endswith((".yaml", ".yml")):
        spec = server_of(load(Path(server)))
        server, topology, token = spec.url[0], topology or spec.topology, spec.token
    asked = Server(server, token)
    names = [topology] if topology else asked.ask("/v1/topologies")["topologies"]
    if not names and not as_json:
        click.echo(f"{server} serves no topology yet: jobs and flow files register theirs")
    for name in names:
        for stage in asked.ask(f"/v1/topologies/{name}")["stages"]:
            click.echo(json.dumps({"topology": name} | stage) if as_json else "\n".join(_lines(name, stage)))


@watermark.command("simulate")
@click.option("--hosts", type=click.IntRange(10, 100_000), default=10_000, show_default=True)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    help=f"Which troubles the hosts have: {', '.join(SCENARIOS)}; all of them when left out.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    help=f"By which methods windows close: {', '.join(METHODS)}; all of them when left out.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per cell and line.")
def simulate_command(
    hosts: int, scenarios: tuple[str, ...], methods: tuple[str, ...], seed: int, as_json: bool
) -> None:
    """How precise windows close, by this server and by a delay behind the newest row, when hosts are late, wrong or dead.

    The server and the client are the real ones, on a simulated clock. A scenario with 10,000 hosts takes minutes; several may run beside each other, each
    asked for alone.
    """
    for what, wanted, there in (("scenario", scenarios, tuple(SCENARIOS)), ("method", methods, METHODS)):
        for name in wanted:
            if name not in there:
                raise ConfigError(f"there is no {what} '{name}'", fix=f"name one of: {', '.join(there)}")
    if not as_json:
        click.echo(
            f"{'scenario':<18} {'method':<28} {'window':>6} {'lacking':>10} {'closed after p50':>17} {'worst':>7}"
        )
    for cell in simulate(hosts, scenarios or tuple(SCENARIOS), methods or METHODS, seed):
        click.echo(json.dumps(asdict(cell)) if as_json else _cell_line(cell))


def _cell_line(cell: Cell) -> str:
    closing = "never" if cell.close_p50_s is None else f"{cell.close_p50_s:.0f} s"
    worst = "never" if cell.unclosed or cell.close_worst_s is None else f"{cell.close_worst_s:.0f} s"
    difference = f"{cell.difference:.1e}"
    return f"{cell.scenario:<18} {cell.method:<28} {cell.window_s:>4} s {difference:>10} {closing:>17} {worst:>7}"


def _lines(topology: str, stage: dict[str, Any]) -> list[str]:
    head = f"{topology}/{stage['name']}: {_time(stage['output_us'])}, {stage['members']} members"
    trouble = [f"  {stage['trouble']}"] if stage["trouble"] else []
    lowest = [f"  {one['name']}: {_standing(one)}, {one['share']:.3%} of all" for one in stage["lowest"][:5]]
    gone = [f"  {one['name']}: {one['state']} since {_time(one['since_us'])}" for one in stage["gone"][:5]]
    return [head, *trouble, *lowest, *gone]


def _standing(one: dict[str, Any]) -> str:
    """How far a member is; of one of which this server knows nothing, how long it has waited for it."""
    silent = f"{one['silent_s']:.1f} s"
    if one["progress_us"] is None:
        return f"not heard for {silent}"
    return f"{_time(one['progress_us'])}, heard {silent} ago"


def _time(time_us: int | None) -> str:
    return "nothing yet" if time_us is None else datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(sep=" ")
