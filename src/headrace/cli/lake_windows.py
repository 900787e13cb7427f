"""``headrace lake windows``: which windows of event time a lake has closed, and by which certificates."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from headrace.cli.lake_options import PLACE, flow_option, opened_lake
from headrace.cli.lake_rows import console
from headrace.errors import ConfigError
from headrace.lake.asof import files_named
from headrace.lake.windows import Window, windows_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.command("windows")
@click.argument("path", type=PLACE)
@click.argument("namespace", required=False)
@flow_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per window and line, certificates whole.")
def windows(*, path: str | Path, namespace: str | None, flow: str | None, as_json: bool) -> None:
    """List the windows of event time of the lake at PATH: open, closed with a certificate, or amended by rows that came later.

    NAMESPACE is type.source.schema.table; all tables that have windows when it is left out. `headrace verify FLOW --windows` checks
    the certificates.
    """
    manifest = opened_lake(path, flow)
    tables = [files_named(manifest, namespace)[0].table.all_versions] if namespace else sorted(manifest.tables)
    found = [window for table in tables for window in windows_of(manifest, table)]
    if not found:
        raise ConfigError(
            f"the lake {path} has no windows{f' of {namespace}' if namespace else ''}",
            fix="write `windows: 1h` (or another length) in `to` of the flow that fills it; `headrace run` closes them",
        )
    if as_json:
        for window in found:
            click.echo(json.dumps(_described(window), ensure_ascii=False))
        return
    console().print(_listed(found))


def _listed(found: list[Window]) -> Table:
    shown = Table(
        "table",
        "from (UTC)",
        "to",
        "state",
        *(Column(name, justify="right") for name in ("rows", "files")),
        "watermark",
    )
    for window in found:
        state = (
            f"amended {window.certificate.number}" if window.state == "amended" and window.certificate else window.state
        )
        by = window.round.watermark if window.round else None
        shown.add_row(
            *map(Text, (window.table, iso(window.start_us), iso(window.end_us), state, f"{window.rows.rows:,}")),
            f"{len(window.certificate.files):,}" if window.certificate else "",
            f"{by.of} {iso(by.us)}{f', {len(by.lacking):,} lacking' if by.lacking else ''}" if by else "",
        )
    return shown


def _described(window: Window) -> dict[str, Any]:
    described = {
        "table": window.table,
        "from": iso(window.start_us),
        "to": iso(window.end_us),
        "state": window.state,
        "rows": window.rows.rows,
    }
    if window.certificate is None or window.round is None:
        return {**described, "operations": window.rows.operations}
    round_ = {name: value for name, value in window.round.to_json().items() if name != "certificates"}
    return {**described, "certificate": {**window.certificate.to_json(), "round": round_}}


def iso(time_us: int) -> str:
    """Microseconds since 1970 UTC as text."""
    return (_EPOCH + timedelta(microseconds=time_us)).replace(tzinfo=None).isoformat(sep=" ")
