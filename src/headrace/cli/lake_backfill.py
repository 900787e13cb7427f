"""``headrace lake backfill`` (回灌): a range of a lake once more into a target."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from headrace.cli.lake_options import parse_time
from headrace.errors import ConfigError
from headrace.flow.load import load
from headrace.flow.spec import FlowSpec
from headrace.lake.backfill import Range
from headrace.sinks.lake import LakeConfig
from headrace.ums.schema import COMMIT_TS, ID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.command("backfill")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "low",
    metavar="T|ID",
    help="From this commit time (ISO 8601, UTC) or _ums_id_ on; from the first one when left out.",
)
@click.option(
    "--to", "high", metavar="T|ID", help="Before this commit time or _ums_id_; to the last one when left out."
)
@click.option("--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="Only this one; may use * and ?.")
@click.option("--from-flow", metavar="NAME", help="The flow whose lake is read; needed when FILE has several.")
@click.option(
    "--to-flow", metavar="NAME", required=True, help="The flow whose target gets the changes, shaped as it says."
)
@click.option("--to-file", type=click.Path(path_type=Path), help="The flow file with --to-flow, when it is not FILE.")
@click.option("--replace", is_flag=True, help="Put the range in the place of what the target, a lake, has of it.")
@click.option("--json", "as_json", is_flag=True, help="What was done as one JSON object.")
def backfill(
    *,
    file: Path,
    low: str | None,
    high: str | None,
    tables: tuple[str, ...],
    from_flow: str | None,
    to_flow: str,
    to_file: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Deliver a range of a lake of FILE once more, into the target of any flow, as if it came from the log.

    What is there already is not changed by it, so it may be repeated, and begun again when it was stopped. Runs may go on meanwhile.
    """
    pipeline, target = load(file), load(to_file) if to_file else load(file)
    source = _lake_flow([flow for flow in pipeline.flows if isinstance(flow.to, LakeConfig)], from_flow, file)
    to = next((flow for flow in target.flows if flow.name == to_flow), None)
    if to is None:
        names = ", ".join(flow.name for flow in target.flows)
        raise ConfigError(f"{to_file or file} has no flow '{to_flow}'", fix=f"name one of: {names or 'none is there'}")
    assert isinstance(source.to, LakeConfig), "only flows into lakes were chosen from"
    from headrace.stream.backfill import Backfill, fill  # noqa: PLC0415 - drivers load only when they are needed

    job = Backfill(source.to, to, _range(low, high), tables, replace, target.give_up_after)
    done = fill(job)
    if as_json:
        click.echo(json.dumps(asdict(done), ensure_ascii=False))
        return
    for table, rows in sorted(done.rows.items()):
        click.echo(f"{table}: {rows:,} changes")
    for notice in done.notices:
        click.echo(f"notice: {notice}")
    if replace:
        click.echo(f"replaced: {', '.join(done.replaced) or 'nothing, as all of it was there'}")


def _lake_flow(flows: list[FlowSpec], name: str | None, file: Path) -> FlowSpec:
    named = [flow for flow in flows if name in (None, flow.name)]
    if len(named) == 1:
        return named[0]
    names = ", ".join(flow.name for flow in flows)
    raise ConfigError(
        f"{file} has {'several flows' if named else 'no such flow'} into a lake",
        fix=f"name the one to read with --from-flow: {names}" if names else "name a flow file with a flow into a lake",
    )


def _range(low: str | None, high: str | None) -> Range:
    bounds = [_bound(text) for text in (low, high)]
    columns = {column for column, _ in bounds if column}
    if len(columns) > 1:
        raise ConfigError("a range is of times or of ids, not of both", fix="give --from and --to in the same kind")
    (_, first), (_, last) = bounds
    if first is not None and last is not None and first >= last:
        raise ConfigError(f"the range from {low} to {high} is empty", fix="give a --to behind --from")
    return Range(columns.pop() if columns else ID, first, last)


def _bound(text: str | None) -> tuple[str, int | None]:
    if text is None:
        return "", None
    if text.removeprefix("-").isdecimal():
        return ID, int(text)
    return COMMIT_TS, (parse_time(text) - _EPOCH) // timedelta(microseconds=1)
