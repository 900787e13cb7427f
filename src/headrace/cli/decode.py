"""`headrace decode`: the changes in recorded logs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headrace.capture.definitions import Definitions, decode_defined
from headrace.capture.dump import learn_from_dump
from headrace.cli.jsonl import jsonl_lines
from headrace.cli.ums_lines import UmsLines
from headrace.codec.binlog import BinlogReader
from headrace.codec.ums_schema import Dialect
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
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    help="A dump of the tables' definitions as they were where FILES begin (mysqldump --no-data), for logs without names.",
)
@click.option("--format", "form", type=click.Choice(["jsonl", "ums", "ums-dbus"]), default="jsonl", show_default=True)
@click.option("--source", default="db", show_default=True, help="The data source's name in the namespaces of UMS.")
def binlog(
    files: tuple[Path, ...],
    *,
    tables: tuple[str, ...],
    columns: tuple[str, ...],
    schema: Path | None,
    form: str,
    source: str,
) -> None:
    """Print every change in MySQL or MariaDB binlog FILES, one JSON object per line, in log order.

    Formats: jsonl has rows before and after each change; ums has messages of many rows (docs/formats/ums.md), ums-dbus those of the
    original DBus.

    What a log without full metadata leaves out of its tables is told by the statements in it, or by a dump of their definitions; else
    columns are @1, @2, ….

    What stands before damage or before something that cannot be decoded is printed; then comes the error, with file and offset.
    """
    wanted = _columns(columns)
    for pattern in (*tables, *wanted):
        if pattern.count(".") != 1:
            raise ConfigError(f"'{pattern}' names no table", fix="write schema.table, with * and ? if you like")
    definitions = Definitions(lambda _schema, _table: True)
    if schema is not None:
        learn_from_dump(schema, definitions)
    ums = UmsLines(Dialect.DBUS if form == "ums-dbus" else Dialect.HEADRACE, source)
    for path in files:
        reader = BinlogReader(tables, columns=wanted, before_images=form == "jsonl")
        try:
            with path.open("rb") as file:
                for decoded in decode_defined(reader, definitions, file, path.name):
                    lines = jsonl_lines(decoded.items, path.name) if form == "jsonl" else ums.lines(decoded.items)
                    sys.stdout.writelines(f"{line}\n" for line in lines)
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
