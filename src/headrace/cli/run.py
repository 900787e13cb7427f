"""`headrace run`, `capture`, `check`."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import click

from headrace.flow.load import load
from headrace.flow.spec import PipelineSpec

_FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.command()
@_FILES
@click.option("--until-idle", is_flag=True, help="End when all that is there has been delivered.")
@click.option("--json", "as_json", is_flag=True, help="Figures as JSON, one object per task, at the end.")
def run(files: tuple[Path, ...], until_idle: bool, as_json: bool) -> None:
    """Run the captures and flows of FILES on Spark, until stopped or (--until-idle) done.

    Ctrl-C or SIGTERM stops at the next whole transaction; everything goes on from there at the next start.
    """
    pipelines = [load(path) for path in files]
    from headrace.cli.progress import shown_progress  # noqa: PLC0415 - rich and Spark load only when they are needed
    from headrace.stream.query import run as run_pipelines  # noqa: PLC0415

    with shown_progress(as_json=as_json) as progress:
        run_pipelines(pipelines, until_idle=until_idle, progress=progress)
