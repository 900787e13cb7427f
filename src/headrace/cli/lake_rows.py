"""Rows as commands print them: a table for people, JSON lines, or a Parquet file."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from headrace.errors import ConfigError, storage_error

SHOWN_ROWS = 100
Form = Literal["table", "jsonl", "parquet"]


def print_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], form: Form, out: Path | None) -> None:
    """Prints rows as they come, or writes them to a file; StorageError when it cannot be written."""
    if form == "parquet":
        if out is None:
            raise ConfigError("Parquet is not printed", fix="name a file with --out")
        _write_parquet(schema, batches, out)
        return
    rows = _rows(batches)
    with _opened(out) as file:
        _write_lines(rows, file) if form == "jsonl" else _write_table(schema, rows, file, to_file=out is not None)


def console(file: IO[str] | None = None) -> Console:
    """Prints to where click prints; rows are never cut when it is no terminal."""
    out = file or sys.stdout
    return Console(file=out, width=None if out.isatty() else 10_000)


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


def _write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: Path) -> None:
    try:
        with pq.ParquetWriter(out, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
    except OSError as error:
        raise storage_error("write", out, error) from error


def _write_lines(rows: Iterator[dict[str, Any]], file: IO[str]) -> None:
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_table(schema: pa.Schema, rows: Iterator[dict[str, Any]], file: IO[str], *, to_file: bool) -> None:
    """For people: the first rows in a terminal, all of them in a file."""
    shown = Table(*(Column(Text(name)) for name in schema.names))
    for row in rows if to_file else islice(rows, SHOWN_ROWS):
        shown.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    more = sum(1 for _ in rows)
    screen = console(file)
    screen.print(shown)
    screen.print(f"{shown.row_count:,} rows" + (f" shown, {more:,} more: use --format jsonl" if more else ""))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
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
