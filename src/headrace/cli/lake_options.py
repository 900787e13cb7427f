"""Options that several commands of ``headrace lake`` have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from headrace.errors import ConfigError
from headrace.flow.load import load
from headrace.lake.commit import Manifest
from headrace.model import parse_duration
from headrace.sinks.lake import LakeConfig
from headrace.storage.location import resolved, scheme_of


class _Place(click.ParamType[str | Path]):
    """A directory, or a URL of a shared store."""

    name = "path"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str | Path:
        return value if isinstance(value, str) and scheme_of(value) else Path(str(value))


PLACE = _Place()
"""A lake's place, or that of tables derived from one; a store is reached as the environment says."""
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


_FLOW_FILE = (".yaml", ".yml")

flow_option = click.option("--flow", help="Which flow's lake, when PATH is a flow file that has several.")
"""Goes with `opened_lake`."""


def opened_lake(path: str | Path, flow: str | None) -> Manifest:
    """The newest state of a lake at a place, or of one that a flow file fills, with all its options."""
    if isinstance(path, str) or path.suffix not in _FLOW_FILE:
        if flow is not None:
            raise ConfigError(
                "--flow goes with a flow file", fix="name a flow file in place of the lake, or leave it out"
            )
        return Manifest.open(path)
    pipeline = load(path)
    lakes = {each.name: each.to for each in pipeline.flows if isinstance(each.to, LakeConfig)}
    wanted = [to for name, to in lakes.items() if flow in (None, name)]
    if len({resolved(to.path) for to in wanted}) != 1:
        has = f"has the lakes of flows {', '.join(lakes)}" if lakes else "fills no lake"
        raise ConfigError(f"{path} {has}", fix="name one by --flow" if lakes else "name the flow file of one that does")
    return Manifest.open(wanted[0].tree())


def duration(given: object) -> float:
    """``90d``, ``12h``, ``5m``, or a number of seconds."""
    try:
        return float(str(given)) if str(given).isdecimal() else float(str(parse_duration(given)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def key_option(text: str, *, required: bool) -> Decorator:
    """``--key COLUMN=VALUE``, once per column."""
    return click.option("--key", multiple=True, required=required, metavar="COLUMN=VALUE", help=text)


def parse_key(given: Sequence[str]) -> dict[str, str]:
    """Column -> value as text; ConfigError for what has no `=` or names a column twice."""
    key: dict[str, str] = {}
    for text in given:
        column, equals, value = text.partition("=")
        if not equals or not column or column in key:
            raise ConfigError(
                f"'{text}' does not say one column and its value", fix="write --key COLUMN=VALUE, once per column"
            )
        key[column] = value
    return key


def parse_time(text: str) -> datetime:
    """ISO 8601, UTC when it names no zone; ConfigError when it is none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"'{text}' is not a time", fix="write ISO 8601, for instance 2026-01-31T12:00:00Z") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
