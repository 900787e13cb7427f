"""``headrace lake``: what a lake holds, a table of it as of any moment, and its changes; other verbs stand in files of
their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from headrace.cli.lake_backfill import backfill
from headrace.cli.lake_care import compact, purge, purges, retain
from headrace.cli.lake_derived import current, register, zipper
from headrace.cli.lake_options import PLACE, flow_option, key_option, opened_lake, parse_key, parse_time
from headrace.cli.lake_rows import Form, console, print_rows
from headrace.cli.lake_windows import windows
from headrace.lake.asof import snapshot
from headrace.lake.commit import Manifest
from headrace.lake.history import history
from headrace.lake.layout import LakeFile

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.group()
def lake() -> None:
    """The lake: every change kept in Parquet, any moment restored."""


for _command in (backfill, compact, current, register, retain, purge, purges, windows, zipper):
    lake.add_command(_command)


def _rows_options(command: Callable[..., None]) -> Callable[..., None]:
    """What commands that print rows have in common."""
    options = (
        click.argument("path", type=PLACE),
        click.argument("namespace"),
        flow_option,
        click.option("--time", "time_text", metavar="T", help="Up to this time: ISO 8601, UTC when it names no zone."),
        click.option("--id", "id_", type=int, metavar="N", help="All changes with an _ums_id_ up to N."),
        click.option(
            "--format", "form", type=click.Choice(["table", "jsonl", "parquet"]), default="table", show_default=True
        ),
        click.option(
            "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file instead of standard output."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@lake.command("ls")
@click.argument("path", type=PLACE)
@flow_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per table version and line.")
def ls(path: str | Path, *, flow: str | None, as_json: bool) -> None:
    """List the tables of the lake at PATH (or of the one that a flow file fills), version by version."""
    manifest = opened_lake(path, flow)
    listed = list(_listed(manifest))
    if as_json:
        for version in listed:
            click.echo(json.dumps(version.to_json(manifest), ensure_ascii=False))
        return
    shown = Table(
        "namespace",
        *(Column(name, justify="right") for name in ("files", "rows", "bytes")),
        "ids",
        "commit times (UTC)",
    )
    for version in listed:
        shown.add_row(
            Text(version.namespace),
            *(f"{number:,}" for number in (version.files, version.rows, version.bytes)),
            f"{version.id[0]} … {version.id[1]}",
            f"{_moment(version.commit_ts[0])} … {_moment(version.commit_ts[1])}",
        )
    screen = console()
    screen.print(shown)
    screen.print(f"last commit: {manifest.number} at {manifest.time}" if manifest.number else "nothing committed yet")


@lake.command("asof")
@_rows_options
def asof(
    *,
    path: str | Path,
    namespace: str,
    flow: str | None,
    time_text: str | None,
    id_: int | None,
    form: Form,
    out: Path | None,
) -> None:
    """Print a table as it was at a moment; the newest state without --time and --id.

    NAMESPACE is type.source.schema.table for all schema versions as one table, or all seven parts for one version's changes.
    """
    time = parse_time(time_text) if time_text is not None else None
    found = snapshot(opened_lake(path, flow), namespace, id=id_, time=time)
    print_rows(found.schema, found.batches, form, out)


@lake.command("history")
@_rows_options
@click.option("--after-id", type=int, metavar="N", help="Only changes with an _ums_id_ above N.")
@key_option("Only changes of keys with this value; once per column.", required=False)
def history_(
    *,
    path: str | Path,
    namespace: str,
    flow: str | None,
    time_text: str | None,
    id_: int | None,
    form: Form,
    out: Path | None,
    after_id: int | None,
    key: tuple[str, ...],
) -> None:
    """Print the changes of a table in the order in which they happened, oldest first.

    NAMESPACE is type.source.schema.table for all schema versions in the newest one's columns, or all seven parts for one version's.
    """
    time = parse_time(time_text) if time_text is not None else None
    found = history(opened_lake(path, flow), namespace, after_id=after_id, id=id_, time=time, key=parse_key(key))
    print_rows(found.schema, found.batches, form, out)


@dataclass(frozen=True, slots=True)
class _Listed:
    """One table version in the list."""

    namespace: str
    files: int
    rows: int
    bytes: int
    id: tuple[int, int]
    commit_ts: tuple[int, int]
    operations: dict[str, int]

    @classmethod
    def of(cls, namespace: str, files: list[LakeFile]) -> _Listed:
        operations = {name for file in files for name in file.operations}
        return cls(
            namespace,
            len(files),
            sum(file.rows for file in files),
            sum(file.bytes for file in files),
            _span(file.id for file in files),
            _span(file.commit_ts for file in files),
            {name: sum(file.operations.get(name, 0) for file in files) for name in sorted(operations)},
        )

    def to_json(self, manifest: Manifest) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.bytes,
            "id": list(self.id),
            "commit_time": [_iso(commit_ts) for commit_ts in self.commit_ts],
            "operations": self.operations,
            "last_commit": {"number": manifest.number, "time": manifest.time},
        }


def _listed(manifest: Manifest) -> Iterator[_Listed]:
    versions: dict[str, list[LakeFile]] = {}
    for file in manifest.files():
        versions.setdefault(file.namespace, []).append(file)
    for namespace, files in sorted(versions.items()):
        yield _Listed.of(namespace, files)


def _span(ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


def _iso(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat()


def _moment(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).strftime("%Y-%m-%d %H:%M:%S")
