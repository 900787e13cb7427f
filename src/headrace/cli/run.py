"""`headrace run`, `capture`, `check`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from headrace.capture.runner import Captured
from headrace.flow.load import load
from headrace.flow.spec import PipelineSpec

_FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
_FILE = click.argument("file", type=click.Path(path_type=Path))
_UNTIL_IDLE = click.option("--until-idle", is_flag=True, help="End when all that is there has been dealt with.")


@click.command()
@_FILES
@_UNTIL_IDLE
@click.option("--json", "as_json", is_flag=True, help="At the end the figures as JSON, one object per task.")
def run(files: tuple[Path, ...], until_idle: bool, as_json: bool) -> None:
    """Run the captures and flows of FILES on Spark, until stopped or (--until-idle) done.

    Ctrl-C or SIGTERM stops at the next whole transaction; everything goes on from there at the next start.
    """
    pipelines = [load(path) for path in files]
    from headrace.cli.progress import shown_progress  # noqa: PLC0415 - rich and Spark load only when they are needed
    from headrace.stream.query import run as run_pipelines  # noqa: PLC0415

    with shown_progress(as_json=as_json) as progress:
        run_pipelines(pipelines, until_idle=until_idle, progress=progress)


@click.command()
@_FILE
@_UNTIL_IDLE
def capture(file: Path, until_idle: bool) -> None:
    """Run the captures of FILE in this process, without Spark: source -> log."""
    pipeline = load(file)
    from headrace.stream.tasks import capture_all  # noqa: PLC0415 - Arrow loads only when it is needed

    said: set[str] = set()

    def say(captured: Captured) -> None:
        told = [f"notice: {notice}" for notice in captured.notices]
        told += [f"waiting: {captured.problem}"] if captured.problem else []
        for text in told:
            if text not in said:
                said.add(text)
                click.echo(f"headrace: {text}", err=True)

    with _stopped_by_signals() as stop:
        captured = capture_all(pipeline, over=stop.is_set, until_idle=until_idle, progress=say)
    for name, rows in captured.items():
        click.echo(f"{name}: {rows:,} changes captured", err=True)


@click.command()
@_FILE
def check(file: Path) -> None:
    """Validate FILE, and test its connections and the settings of its sources."""
    pipeline = load(file)
    from headrace.stream.tasks import check_all  # noqa: PLC0415

    for line in check_all(pipeline):
        click.echo(line)
    _say_what_is_there(pipeline)


def _say_what_is_there(pipeline: PipelineSpec) -> None:
    flows = ", ".join(flow.name for flow in pipeline.flows) or "none"
    click.echo(f"fine: sources {', '.join(source.name for source in pipeline.source)}; flows {flows}")


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
