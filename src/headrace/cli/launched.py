"""`headrace launched`: what the control plane begins. It runs a flow file as `headrace run` does, and tells the server through files."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from headrace.cli.run import served_metrics
from headrace.control.launch import Launch
from headrace.control.secrets import Secrets
from headrace.errors import HeadraceError
from headrace.flow.load import load
from headrace.flow.spec import PipelineSpec

Json = dict[str, Any]
_LOOK_EVERY_S = 0.2
_TELL_EVERY_S = 1.0


@click.command("launched", hidden=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--secrets", type=click.Path(path_type=Path), required=True, help="Where what ${NAMES} stand for is.")
def launched(file: Path, directory: Path, secrets: Path) -> None:
    """Run FILE as the launch of DIRECTORY, unless it has been called off."""
    launch = Launch(directory)
    with launch.claimed() as may_begin:
        if not may_begin:
            click.echo("called off", err=True)
            return
        with _stopped_by(launch):
            pipeline = load(file, {**os.environ, **Secrets(secrets).values()})
            _run(pipeline, launch)


def _run(pipeline: PipelineSpec, launch: Launch) -> None:
    from headrace.cli.progress import shown_progress  # noqa: PLC0415 - Spark loads only when the launch is ours
    from headrace.stream.figures import Throttle  # noqa: PLC0415
    from headrace.stream.query import run  # noqa: PLC0415
    from headrace.stream.surroundings import Surroundings  # noqa: PLC0415
    from headrace.stream.told import Teller  # noqa: PLC0415

    due, teller, surroundings = Throttle(_TELL_EVERY_S), Teller(pipeline), Surroundings(pipeline)
    with (
        served_metrics([pipeline], None) as publish,
        shown_progress(as_json=False) as show,
        surroundings.watched(),
    ):
        newest: dict[str, Json] = {}

        def tell() -> None:
            everything, summary = teller.told(newest)
            launch.tell(everything, summary | surroundings.told)

        def progress(figures: dict[str, Json]) -> None:
            nonlocal newest
            newest = figures
            publish(figures)
            show(figures)
            if due.is_due():
                tell()
                launch.bound_log()

        try:
            run([pipeline], until_idle=False, progress=progress)
        finally:  # what ended it may be what somebody is to be told of
            surroundings.look()
            tell()


@contextmanager
def _stopped_by(launch: Launch) -> Iterator[None]:
    """Turns the server's wish into the signal that `headrace run` stops by."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            try:
                wished = launch.stop_requested()
            except (HeadraceError, OSError):  # a file system that is away for a moment
                continue
            if wished:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=look, name="stop", daemon=True).start()
    try:
        yield
    finally:
        over.set()
