"""``headrace lake compact|retain|purge|purges``: care of a lake by hand; flows may write and others read meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Column, Table
from rich.text import Text

from headrace.cli.lake_options import PLACE, duration, key_option, parse_key
from headrace.cli.lake_rows import console
from headrace.errors import DataError
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.purge import key_digest
from headrace.lake.tend import Caretaker, Tended

_LAKE = click.argument("path", type=PLACE)
_TABLES = click.argument("tables", nargs=-1, metavar="[TABLE]…")
_DEFAULT = Policy()
_GRACE = click.option(
    "--grace",
    type=duration,
    default=_DEFAULT.grace,
    metavar="DURATION",
    help="How long old files stay for readers at work; 1h when left out.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.command("compact")
@_LAKE
@_TABLES
@click.option(
    "--period",
    type=duration,
    default=_DEFAULT.period,
    metavar="DURATION",
    help="Merge within days (1d), hours (1h)…",
)
@click.option("--target-bytes", type=click.IntRange(min=1 << 10), default=_DEFAULT.target_bytes, show_default=True)
@_GRACE
@_JSON
def compact(
    *, path: str | Path, tables: Sequence[str], period: float, target_bytes: int, grace: float, as_json: bool
) -> None:
    """Merge the small files of the lake at PATH, and write states that make reading any moment cheap.

    TABLE is type.source.schema.table; all tables when none is named. Not a row changes.
    """
    _tend(
        path, tables, Policy(period=period, target_bytes=target_bytes, grace=grace), all_periods=True, as_json=as_json
    )


@click.command("retain")
@_LAKE
@_TABLES
@click.option(
    "--keep",
    type=duration,
    required=True,
    metavar="DURATION",
    help="How far back any moment can be restored: 90d.",
)
@_GRACE
@_JSON
def retain(*, path: str | Path, tables: Sequence[str], keep: float, grace: float, as_json: bool) -> None:
    """Give up what was overwritten longer ago; the state of that time and all later changes stay."""
    _tend(path, tables, Policy(keep=keep, grace=grace), all_periods=False, as_json=as_json)


@click.command("purge")
@_LAKE
@click.argument("table")
@key_option("A column of the table's key and its value; once per column.", required=True)
@click.option("--reason", required=True, help="Why, for the record.")
@_GRACE
@_JSON
def purge(*, path: str | Path, table: str, key: Sequence[str], reason: str, grace: float, as_json: bool) -> None:
    """Delete all changes of a key, at all times, and keep a record of it (without the key)."""
    caretaker = Caretaker(path, Policy(grace=grace))
    record = caretaker.purge(table, parse_key(key), reason)
    swept = caretaker.sweep()
    if as_json:
        click.echo(json.dumps(asdict(record), ensure_ascii=False))
        return
    click.echo(
        f"{record.rows:,} changes deleted from {record.files:,} files of {table}; recorded as {record.key_sha256}"
    )
    if record.files and not swept:
        click.echo(
            "the old files are deleted by the next care of the lake after the grace (headrace run, or lake compact)"
        )


@click.command("purges")
@_LAKE
@key_option("Only the records of this key; once per column.", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def purges(*, path: str | Path, key: Sequence[str], as_json: bool) -> None:
    """List the records of deletions."""
    wanted = key_digest(parse_key(key)) if key else None
    found = [record for record in Manifest.open(path).purges if wanted in (None, record.key_sha256)]
    if as_json:
        for record in found:
            click.echo(json.dumps(asdict(record), ensure_ascii=False))
        return
    shown = Table("time", "table", "columns", Column("changes", justify="right"), "reason", "sha-256 of the key")
    for record in found:
        columns = ", ".join(record.columns)
        shown.add_row(
            *map(Text, (record.time, record.table, columns, f"{record.rows:,}", record.reason, record.key_sha256))
        )
    console().print(shown)


def _tend(path: str | Path, tables: Sequence[str], policy: Policy, *, all_periods: bool, as_json: bool) -> None:
    done = Caretaker(path, policy).tend(tables, all_periods=all_periods)
    click.echo(json.dumps(asdict(done), ensure_ascii=False) if as_json else _told(done))
    if done.problems:
        raise DataError(
            f"{len(done.problems)} tables were not tended: {'; '.join(done.problems)}",
            fix="start it again; if it says the same, read the table with `headrace lake asof`, which says what is wrong with it",
        )


def _told(done: Tended) -> str:
    return (
        f"{done.merged_files:,} files ({done.merged_bytes / 1e6:,.1f} MB) merged into {done.into_files:,}, {done.states:,} states"
        f" written, {done.given_up_rows:,} overwritten changes given up, {done.certified_windows:,} windows certified,"
        f" {done.swept_files:,} old files deleted"
    )
