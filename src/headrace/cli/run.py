"""`headrace run`, `capture`, `check`, `skip`."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from headrace.errors import ConfigError, Finding
from headrace.flow.load import load
from headrace.flow.spec import MetricsSpec, PipelineSpec

Json = dict[str, Any]

_FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
_FILE = click.argument("file", type=click.Path(path_type=Path))


class _Address(click.ParamType[MetricsSpec]):
    name = "HOST:PORT"

    def convert(
        self, value: str | MetricsSpec, param: click.Parameter | None, ctx: click.Context | None
    ) -> MetricsSpec:
        try:
            return value if isinstance(value, MetricsSpec) else MetricsSpec.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_METRICS = click.option(
    "--metrics", type=_Address(), help="Serve figures for Prometheus there, instead of where FILE says."
)
_UNTIL_IDLE = click.option("--until-idle", is_flag=True, help="End when all that is there has been dealt with.")


@click.command()
@_FILES
@_UNTIL_IDLE
@_METRICS
@click.option("--json", "as_json", is_flag=True, help="At the end the figures as JSON, one object per task.")
def run(files: tuple[Path, ...], until_idle: bool, metrics: MetricsSpec | None, as_json: bool) -> None:
    """Run the captures and flows of FILES on Spark, until stopped or (--until-idle) done.

    Ctrl-C or SIGTERM stops at the next whole transaction; everything goes on from there at the next start.
    """
    pipelines = [load(path) for path in files]
    from headrace.cli.progress import shown_progress  # noqa: PLC0415 - rich and Spark load only when they are needed
    from headrace.stream.query import run as run_pipelines  # noqa: PLC0415

    with served_metrics(pipelines, metrics) as publish, shown_progress(as_json=as_json) as show:

        def progress(figures: dict[str, Json]) -> None:
            publish(figures)
            show(figures)

        run_pipelines(pipelines, until_idle=until_idle, progress=progress)


@click.command()
@_FILE
@_UNTIL_IDLE
@_METRICS
def capture(file: Path, until_idle: bool, metrics: MetricsSpec | None) -> None:
    """Run the captures of FILE in this process, without Spark: source -> log."""
    pipeline = load(file)
    from headrace.cli.progress import News  # noqa: PLC0415 - rich and Arrow load only when they are needed
    from headrace.stream.alone import capture_all  # noqa: PLC0415

    news = News()
    with served_metrics([pipeline], metrics) as publish, _stopped_by_signals() as stop:

        def progress(figures: dict[str, Json]) -> None:
            publish(figures)
            for text in news.of(figures):
                click.echo(f"headrace: {text}", err=True)

        captured = capture_all(pipeline, over=stop.is_set, until_idle=until_idle, progress=progress)
    for name, rows in captured.items():
        click.echo(f"{name}: {rows:,} changes captured", err=True)


@click.command("load")
@_FILE
@click.option("--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="Only this one; may use * and ?.")
@click.option("--where", default="", metavar="SQL", help="Only rows for which this holds.")
@click.option("--pause", "wish", flag_value="pause", help="Read nothing more for loads that go on, until --resume.")
@click.option("--resume", "wish", flag_value="resume", help="Let loads go on.")
@click.option("--cancel", "wish", flag_value="cancel", help="End loads that go on; what they have read stays.")
def load_tables(file: Path, tables: tuple[str, ...], where: str, wish: str | None) -> None:
    """Load tables of FILE's sources again, and repair what the targets have of them.

    A run of FILE that is active does it while it goes on; without one this command runs FILE until all has been delivered.
    Rows that the source does not have any more are ended, unless --where is given.
    """
    if wish is not None and (where or (tables and wish != "cancel")):
        raise click.UsageError(f"--{wish} goes without --where" + ("" if wish == "cancel" else " and --table"))
    pipeline = load(file)
    if wish is not None:
        _steer_loads(pipeline, wish, tables)
        return
    from headrace.cli.progress import shown_progress  # noqa: PLC0415 - rich and Spark load only when they are needed
    from headrace.stream.load import load_again  # noqa: PLC0415

    with shown_progress(as_json=False) as progress:
        names = load_again(pipeline, tables, where, progress=progress)
    for name in names:
        click.echo(f"{name}: loaded", err=True)


def _steer_loads(pipeline: PipelineSpec, wish: str, tables: Sequence[str]) -> None:
    from headrace.stream.load import cancel_loads, pause_loads, resume_loads  # noqa: PLC0415 - Spark loads with it

    if wish == "pause":
        pause_loads(pipeline)
        click.echo("full loads are paused", err=True)
    elif wish == "resume":
        resume_loads(pipeline)
        click.echo("full loads go on", err=True)
    else:
        for name in cancel_loads(pipeline, tables):
            click.echo(f"{name}: its load ends; `headrace load FILE --table {name}` would load all of it", err=True)


@click.command()
@_FILE
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding and line.")
def check(file: Path, as_json: bool) -> None:
    """Validate FILE, and test its connections, the settings of its sources, and whether its targets can hold the tables as they are
    now: every finding at once, each with its remedy. Nothing is made or changed.

    Exit code 2 when something would stop a run.
    """
    pipeline = load(file)
    from headrace.stream.alone import check_all  # noqa: PLC0415

    stopping = 0
    for name, finding in check_all(pipeline):
        stopping += isinstance(finding, Finding) and finding.stops
        if as_json:
            click.echo(json.dumps({"name": name, **_of_finding(finding)}, ensure_ascii=False))
        elif finding is None:
            click.echo(f"{name}: fine")
        elif isinstance(finding, str):
            click.echo(f"{name}: {finding}")
        else:
            click.echo(
                f"{name}: {'wrong' if finding.stops else 'advice'}: {finding.message}; what to do: {finding.fix}"
            )
    if stopping:
        raise ConfigError(
            f"{stopping} of these findings would stop a run", fix="repair what is marked as wrong, then check again"
        )
    if not as_json:
        _say_what_is_there(pipeline)


def _of_finding(finding: Finding | str | None) -> Json:
    if finding is None:
        return {"result": "fine"}
    if isinstance(finding, str):
        return {"result": "computed", "message": finding}
    return {"result": "wrong" if finding.stops else "advice", "message": finding.message, "fix": finding.fix}


def _say_what_is_there(pipeline: PipelineSpec) -> None:
    flows = ", ".join(flow.name for flow in pipeline.flows) or "none"
    click.echo(f"fine: sources {', '.join(source.name for source in pipeline.source)}; flows {flows}")


@click.command()
@_FILE
@click.option("--source", help="Which source of FILE; needed when it has several.")
@click.option(
    "--to",
    default="earliest",
    show_default=True,
    help="Where capture goes on: earliest (what the source still has), latest, FILE:OFFSET or behind a set of GTIDs.",
)
def skip(file: Path, source: str | None, to: str) -> None:
    """Let a capture go on behind a gap: changes that its source does not have any more, or that cannot be captured.

    What is between is not on the log, so the tables must be loaded again. Stop the capture first.
    """
    pipeline = load(file)
    names = [config.name for config in pipeline.source]
    if source is None and len(names) == 1:
        source = names[0]
    if source not in names:
        raise ConfigError(f"{source or 'no source'} is not one source of {file}", fix=f"--source {' or '.join(names)}")
    from headrace.stream.alone import skip_gap  # noqa: PLC0415

    before, after, tables = skip_gap(pipeline, source, to)
    click.echo(f"{source}: capture goes on at {after.position}, and was at {before.position}")
    click.echo(f"what was changed between is not on the log: load again {', '.join(tables) or 'the tables'}")
    if tables:
        click.echo(f"  headrace load {file} {' '.join(f'--table {table}' for table in tables)}")


@contextmanager
def served_metrics(
    pipelines: Sequence[PipelineSpec], address: MetricsSpec | None
) -> Iterator[Callable[[dict[str, Json]], None]]:
    """Serves the figures that the callback is given, where somebody wants them served, and tells them to whom the flow files name."""
    with ExitStack() as stack:
        told: list[Callable[[dict[str, Json]], None]] = []
        if address is not None or any(pipeline.metrics is not None for pipeline in pipelines):
            from headrace.stream.metrics import served  # noqa: PLC0415 - only when it is needed

            told.append(stack.enter_context(served(pipelines, address)))
        if any(pipeline.is_exported for pipeline in pipelines):
            from headrace.stream.exports.base import exporting  # noqa: PLC0415 - only when it is needed

            told.append(
                stack.enter_context(exporting(pipelines, lambda text: click.echo(f"headrace: {text}", err=True)))
            )

        def publish(figures: dict[str, Json]) -> None:
            for tell in told:
                tell(figures)

        yield publish


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets."""
    stop = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        stop.set()

    earlier = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
