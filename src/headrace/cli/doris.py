"""``headrace doris``: one loader by its file (run, status, refused, accept, load, skip), or many in a service (serve, loads, start, stop, restart)."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from headrace.doris.client import Json, ServiceClient
from headrace.doris.config import LoaderConfig
from headrace.doris.running import Status, run, skip, status
from headrace.doris.store import LoadStore
from headrace.errors import ConfigError
from headrace.flow.load import load_as

_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def doris() -> None:
    """Topics of Kafka into tables of Apache Doris, each message once."""


@doris.command("run")
@_FILE
def run_command(file: Path) -> None:
    """Load until stopped (Ctrl-C, SIGTERM): what is under way is ended first."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    run(load_as(file, LoaderConfig), stop.is_set, _say)


@doris.command("status")
@_FILE
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status_command(file: Path, as_json: bool) -> None:
    """How far a loader is: offsets, lag, its newest loads, and those that are not known to be in Doris."""
    found = status(load_as(file, LoaderConfig))
    click.echo(json.dumps(found.told()) if as_json else "\n".join(_lines(found)))


@doris.command("refused")
@_FILE
@click.option("--rows", type=click.IntRange(1), default=100, show_default=True)
def refused_command(file: Path, rows: int) -> None:
    """Rows that were left out, the newest loads first, with the reasons."""
    config = load_as(file, LoaderConfig)
    with closing(LoadStore(config.store)) as store:
        store.open()
        for sequence, reason in store.refused(config.name, rows):
            click.echo(f"{sequence}: {reason}")


@doris.command("accept")
@_FILE
@click.argument("sequence", type=int)
def accept_command(file: Path, sequence: int) -> None:
    """Say that the rows of a load are in Doris, which has forgotten its label. The next start goes on behind it."""
    _judge(file, sequence, "accept")


@doris.command("load")
@_FILE
@click.argument("sequence", type=int)
def load_command(file: Path, sequence: int) -> None:
    """Say that the rows of a load are not in Doris, which has forgotten its label. The next start loads them."""
    _judge(file, sequence, "load")


@doris.command("skip")
@_FILE
def skip_command(file: Path) -> None:
    """Go on behind offsets that Kafka has removed: they are loaded by nobody. Stop the loader before."""
    click.echo(f"skipped: {skip(load_as(file, LoaderConfig))}")


# --- many of them


_SERVICE = click.option(
    "--url",
    default="http://127.0.0.1:9320",
    show_default=True,
    envvar="HEADRACE_DORIS_URL",
    help="Where the service is.",
)
_TOKEN = click.option(
    "--token", envvar="HEADRACE_DORIS_TOKEN", help="What every request must carry; better as HEADRACE_DORIS_TOKEN."
)
_NAME = click.argument("name")


@doris.command("serve")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), default=9320, show_default=True)
@_TOKEN
def serve_command(files: tuple[Path, ...], host: str, port: int, token: str | None) -> None:
    """Run the loaders of these files, each in a process of its own, until stopped; and let them be watched and steered over HTTP.

    A directory stands for all *.yaml in it.
    """
    from headrace.doris.api import serve  # noqa: PLC0415 - the other verbs need no server
    from headrace.doris.service import Service  # noqa: PLC0415

    loaders = [(file.resolve(), load_as(file, LoaderConfig)) for file in _all(files)]
    serve(Service(loaders, lambda text: click.echo(text, err=True)), host, port, token)


@doris.command("loads")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@_SERVICE
@_TOKEN
def loads_command(as_json: bool, url: str, token: str | None) -> None:
    """The loaders of a service: what each does, and how far it is."""
    for load in ServiceClient(url, token).loads():
        click.echo(json.dumps(load) if as_json else _summary(load))


@doris.command("start")
@_NAME
@_SERVICE
@_TOKEN
def start_command(name: str, url: str, token: str | None) -> None:
    """Start a loader of a service."""
    click.echo(_summary(ServiceClient(url, token).change(name, "start")))


@doris.command("stop")
@_NAME
@_SERVICE
@_TOKEN
def stop_command(name: str, url: str, token: str | None) -> None:
    """Stop a loader of a service: what is under way is ended, and it stays stopped until it is started."""
    click.echo(_summary(ServiceClient(url, token).change(name, "stop")))


@doris.command("restart")
@_NAME
@_SERVICE
@_TOKEN
def restart_command(name: str, url: str, token: str | None) -> None:
    """Start a loader of a service anew, with its file as it is now."""
    click.echo(_summary(ServiceClient(url, token).change(name, "restart")))


def _say(text: str) -> None:
    with suppress(BrokenPipeError):  # the service that listened is gone, and its loaders go on
        click.echo(text, err=True)


def _all(files: Sequence[Path]) -> Iterator[Path]:
    for file in files:
        if not file.is_dir():
            yield file
            continue
        found = sorted(file.glob("*.yaml"))
        if not found:
            raise ConfigError(f"there is no *.yaml in {file}", fix="name the files of loaders, or their directory")
        yield from found


def _summary(load: Json) -> str:
    lag = "unknown" if load.get("lag") is None else sum(load["lag"].values())
    figures = f"{load.get('rows_loaded', 0)} rows loaded, {load.get('rows_refused', 0)} left out, {lag} messages behind"
    said = [f"  {line}" for line in load["said"][-3:]] if load["state"] in ("waiting", "failed") else []
    trouble = [f"  {load['trouble']}"] if load["trouble"] else []
    return "\n".join([f"{load['name']}: {load['state']}; {figures}", *said, *trouble])


def _judge(file: Path, sequence: int, verdict: str) -> None:
    config = load_as(file, LoaderConfig)
    with closing(LoadStore(config.store)) as store:
        store.open()
        if not store.judge(config.name, sequence, verdict):
            raise ConfigError(
                f"the loader '{config.name}' has no load {sequence} that is open",
                fix="`headrace doris status` lists those that are",
            )
    click.echo(f"load {sequence}: {verdict}")


def _lines(found: Status) -> Iterator[str]:
    alive = "never ran" if found.alive_us is None else f"ran at {datetime.fromtimestamp(found.alive_us // 10**6, UTC)}"
    yield f"{found.name}: {alive}; {found.rows_loaded} rows loaded, {found.rows_refused} left out"
    for place in sorted(found.offsets if found.lag is None else found.lag):
        behind = "Kafka does not answer" if found.lag is None else f"{found.lag[place]} behind the end"
        yield f"  {place}: at {found.offsets.get(place, 0)}, {behind}"
    for row in found.newest:
        is_loaded = "skipped" if row.verdict == "skip" else "loaded" if row.range.moved() else "begins"
        state = is_loaded if row.is_loaded else "OPEN"
        yield f"  {state:8}{row.label}  {row.range}"
