"""`headrace decode`: the changes in recorded logs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headrace.cli.jsonl import jsonl_lines
from headrace.codec.binlog import BinlogReader, decode_file
from headrace.errors import ConfigError


@click.group()
def decode() -> None:
    """Print the changes in recorded logs."""


@decode.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--tables", multiple=True, default=("*.*",), show_default=True, help="Only tables like this, schema.table."
)
@click.option(
    "--columns",
    multiple=True,
    metavar="TABLES=COLUMN,…",
    help="Of tables like this only these columns, and the key: shop.orders=status,total.",
)
@click.option("--format", "form", type=click.Choice(["jsonl"]), default="jsonl", show_default=True)
def binlog(files: tuple[Path, ...], tables: tuple[str, ...], columns: tuple[str, ...], form: str) -> None:
    """Print every change in MySQL or MariaDB binlog FILES, one JSON object per line, in log order.

    What stands before damage or before something that cannot be decoded is printed; then comes the error, with file and offset.
    """
    wanted = _columns(columns)
    for pattern in (*tables, *wanted):
        if pattern.count(".") != 1:
            raise ConfigError(f"'{pattern}' names no table", fix="write schema.table, with * and ? if you like")
    for path in files:
        reader = BinlogReader(tables, columns=wanted, before_images=True)
        try:
            with path.open("rb") as file:
                for decoded in decode_file(reader, file, path.name):
                    sys.stdout.writelines(f"{line}\n" for line in jsonl_lines(decoded.items, path.name))
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise ConfigError(f"cannot read {path}: {error.strerror}", fix="check the path") from error
        reader.finish()


def _columns(options: tuple[str, ...]) -> dict[str, list[str]]:
    """The names of columns by pattern of tables."""
    wanted: dict[str, list[str]] = {}
    for option in options:
        pattern, equals, names = option.partition("=")
        listed = [name.strip() for name in names.split(",")]
        if not equals or not all(listed):
            raise ConfigError(f"'{option}' names no columns", fix="write --columns shop.orders=status,total")
        wanted.setdefault(pattern, []).extend(listed)
    return wanted
