"""``headrace errors ls|show|replay``: the rows that could not be captured, or that a target refused, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headrace.cli.log import OpenedLog, opened_log
from headrace.codec.error_ledger import LedgerName, found_in
from headrace.errors import ConfigError
from headrace.flow.load import load

Json = dict[str, Any]
_LOG = click.argument("log", metavar="LOG")
_SOURCE = click.argument("source", required=False)
_FLOW = click.option("--flow", help="Only rows that the target of this flow refused.")


@click.group()
def errors() -> None:
    """Look into the error ledgers of a log (a directory, hdfs://…, s3://…, kafka://host:port or the log of a flow file), and deliver again."""


@errors.command("ls")
@_LOG
@_SOURCE
@_FLOW
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def ls_command(log: str, *, source: str | None, flow: str | None, as_json: bool) -> None:
    """Rows in the ledgers of all sources (or of SOURCE), counted by table and fault."""
    with opened_log(log) as opened:
        faults: dict[tuple[tuple[str, Any], ...], dict[Any, bool]] = {}
        for row in _rows(opened, log, source, flow):
            fault = {name: row[name] for name in ("namespace", "flow", "column", "mask", "reason") if name in row}
            faults.setdefault(tuple(fault.items()), {})[_identity(row)] = row.get("delivered", False)
        for same, rows in sorted(faults.items()):
            found = {**dict(same), "rows": len(rows), "delivered": sum(rows.values())}
            click.echo(json.dumps(found, ensure_ascii=False) if as_json else _line(found))


@errors.command("show")
@_LOG
@_SOURCE
@_FLOW
def show_command(log: str, *, source: str | None, flow: str | None) -> None:
    """Every row in the ledgers, one JSON object per line: with the reason, its place on the log, and all its values as UMS.

    A row on which a mask failed is masked, and null where it failed.
    """
    with opened_log(log) as opened:
        for row in _rows(opened, log, source, flow):
            click.echo(json.dumps(row, ensure_ascii=False))


@errors.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@_FLOW
@click.option("--json", "as_json", is_flag=True, help="One JSON object per flow and line.")
def replay_command(file: Path, *, flow: str | None, as_json: bool) -> None:
    """Deliver the rows that targets of FILE's flows have refused, as the flows are now.

    A later change of the same key stays. What a target still refuses stays in the ledger; exit code 1 then. Rows on which a mask failed
    lack a value: load their tables again (`headrace load`).
    """
    pipeline = load(file)
    from headrace.stream.replay import replay  # noqa: PLC0415 - Arrow and stores load only when they are needed

    flows = [found for found in pipeline.flows if flow in (None, found.name)]
    if not flows:
        names = ", ".join(found.name for found in pipeline.flows)
        raise ConfigError(f"{file} has no flow {flow}", fix=f"name one of: {names}")
    still = 0
    with opened_log(str(file)) as opened:
        for one in flows:
            done = replay(opened, opened.topics(), one)
            still += len(done.refused)
            if as_json:
                told = {"flow": one.name, "delivered": dict(done.delivered), "refused": done.refused}
                click.echo(json.dumps(told, ensure_ascii=False))
                continue
            for namespace, rows in sorted(done.delivered.items()):
                click.echo(f"{one.name}: {rows:,} rows of {namespace} delivered")
            for message in done.refused:
                click.echo(f"{one.name}: still refused: {message}", err=True)
    if still:
        raise click.exceptions.Exit(1)


def _rows(log: OpenedLog, place: str, source: str | None, flow: str | None) -> Iterator[Json]:
    """The rows of all ledgers that are asked for; those of flows with `delivered`."""
    known = [(topic, name) for topic in log.topics() if (name := LedgerName.of(topic)) is not None]
    wanted = [
        (topic, name)
        for topic, name in known
        if not name.is_done and source in (None, name.source) and flow in (None, name.flow)
    ]
    if not wanted and (source is not None or flow is not None):
        of = " and ".join(text for text in (source and f"source {source}", flow and f"flow {flow}") if text)
        raise ConfigError(f"{place} has no error ledger of {of}", fix="leave it out to see all there are")
    for topic, name in wanted:
        done = {_identity(row) for row in found_in(log, str(LedgerName(name.beside, name.flow, is_done=True)))}
        for row in found_in(log, topic):
            yield {**row, "delivered": _identity(row) in done} if name.flow else row


def _identity(row: Json) -> tuple[int, ...]:
    """What a row has that is in a ledger twice: its place on the log, or its id."""
    return (row["partition"], row["offset"], row["number"]) if "offset" in row else (row["id"],)


def _line(found: Json) -> str:
    where = f"flow {found['flow']}" if "flow" in found else f"{found['column']}  mask {found['mask']}"
    told = f"{found['namespace']}  {where}  {found['reason']}  {found['rows']:,} rows"
    return f"{told}, {found['delivered']:,} delivered since" if found["delivered"] else told
