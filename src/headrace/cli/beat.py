"""``headrace beat``: signs of life of hosts whose logs are quiet."""

from __future__ import annotations

import time
from pathlib import Path

import click

from headrace.capture.lines.beat import beat
from headrace.model import parse_duration


class _Seconds(click.ParamType[float]):
    name = "DURATION"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(str(parse_duration(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("beat")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--every", type=_Seconds(), default="1s", show_default=True, help="A log that is quiet for so long gets one."
)
@click.option("--once", is_flag=True, help="Do it once and end, for cron; else until stopped.")
def beat_command(logs: tuple[Path, ...], *, every: float, once: bool) -> None:
    """Write a sign of life into each of LOGS that is quiet, so that windows need not wait for a host that has nothing to say.

    The line takes the way of all others (files, shippers, Kafka). A source of lines knows it, and makes no row of it.
    """
    missing: set[Path] = set()
    while True:
        given = {log: beat(log, every) for log in logs}
        before, missing = missing, {log for log, done in given.items() if done is None}
        for log in sorted(missing - before):
            click.echo(f"headrace: {log} is not there; it gets signs of life when it is", err=True)
        if once:
            click.echo(f"{sum(map(bool, given.values()))} of {len(given)} logs were quiet", err=True)
            return
        time.sleep(every)
