"""``headrace lake``: what a lake holds, and a table of it as of any moment."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import click
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from headrace.errors import ConfigError, storage_error
from headrace.lake.asof import Snapshot, snapshot
from headrace.lake.commit import Manifest
from headrace.lake.layout import LakeFile

SHOWN_ROWS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.group()
def lake() -> None:
    """The lake: every change kept in Parquet, any moment restored."""


@lake.command("ls")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per table version and line.")
def ls(path: Path, as_json: bool) -> None:
    """List the tables of the lake at PATH, version by version."""
    manifest = Manifest.open(path)
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
    console = _console()
    console.print(shown)
    console.print(f"last commit: {manifest.number} at {manifest.time}" if manifest.number else "nothing committed yet")


@lake.command("asof")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("namespace")
@click.option("--time", "time_text", metavar="T", help="ISO 8601; UTC when it names no zone.")
@click.option("--id", "id_", type=int, metavar="N", help="All changes with an _ums_id_ up to N.")
@click.option("--format", "form", type=click.Choice(["table", "jsonl", "parquet"]), default="table", show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file instead of standard output."
)
def asof(*, path: Path, namespace: str, time_text: str | None, id_: int | None, form: str, out: Path | None) -> None:
    """Print a table as it was at a moment; the newest state without --time and --id.

    NAMESPACE is type.source.schema.table for all schema versions as one table, or all seven parts for one version's changes.
    """
    if form == "parquet" and out is None:
        raise ConfigError("Parquet is not printed", fix="name a file with --out")
    time = _parse_time(time_text) if time_text is not None else None
    found = snapshot(Manifest.open(path), namespace, id=id_, time=time)
    if form == "parquet" and out is not None:
        _write_parquet(found, out)
        return
    with _opened(out) as file:
        _write_lines(found, file) if form == "jsonl" else _write_table(found, file, to_file=out is not None)


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


def _parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"'{text}' is not a time", fix="write ISO 8601, for instance 2026-01-31T12:00:00Z") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise storage_error("write", out, error) from error


def _write_parquet(found: Snapshot, out: Path) -> None:
    try:
        with pq.ParquetWriter(out, found.schema, compression="zstd") as writer:
            for batch in found.batches:
                writer.write_batch(batch)
    except OSError as error:
        raise storage_error("write", out, error) from error


def _write_lines(found: Snapshot, file: IO[str]) -> None:
    for row in _rows(found):
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_table(found: Snapshot, file: IO[str], *, to_file: bool) -> None:
    """For people: the first rows in a terminal, all of them in a file."""
    rows = _rows(found)
    shown = Table(*(Column(Text(name)) for name in found.schema.names))
    for row in rows if to_file else islice(rows, SHOWN_ROWS):
        shown.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    more = sum(1 for _ in rows)
    console = _console(file)
    console.print(shown)
    console.print(f"{shown.row_count:,} rows" + (f" shown, {more:,} more: use --format jsonl" if more else ""))


def _rows(found: Snapshot) -> Iterator[dict[str, Any]]:
    rows = chain.from_iterable(batch.to_pylist() for batch in found.batches)
    return ({name: _plain(value) for name, value in row.items()} for row in rows)


def _plain(value: Any) -> Any:
    """A value as `headrace decode` prints it: decimals and times as text, bytes in base64."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, timedelta):
        return _duration(value)
    return str(value) if isinstance(value, (Decimal, date)) else value


def _duration(value: timedelta) -> str:
    seconds, fraction = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return ("-" if value < timedelta(0) else "") + text + (f".{fraction:06}" if fraction else "")


def _iso(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat()


def _moment(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).strftime("%Y-%m-%d %H:%M:%S")


def _console(file: IO[str] | None = None) -> Console:
    """Prints to where click prints; rows are never cut when it is no terminal."""
    out = file or sys.stdout
    return Console(file=out, width=None if out.isatty() else 10_000)
