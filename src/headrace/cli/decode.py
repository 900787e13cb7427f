"""`headrace decode`: the changes in recorded logs, and in those of live servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click

from headrace.capture.binlog_files import BinlogFiles
from headrace.capture.definitions import Definitions, decode_defined
from headrace.capture.dump import learn_from_dump
from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig
from headrace.cli.jsonl import jsonl_lines
from headrace.cli.ums_lines import UmsLines
from headrace.codec.binlog import BinlogReader, Decoded
from headrace.codec.ums_schema import Dialect
from headrace.errors import ConfigError
from headrace.flow.load import load


@click.group()
def decode() -> None:
    """Print the changes in recorded logs."""


@decode.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    metavar="FLOW.yaml",
    help="Instead of FILES the sources of a flow file, from their `start` to the end of now.",
)
@click.option(
    "--tables", multiple=True, help="Only tables like this, schema.table; all (those of the source) when left out."
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
@click.option("--name", help="The data source's name in the namespaces of UMS; the source's own, or db.")
def binlog(
    files: tuple[Path, ...],
    *,
    source: Path | None,
    tables: tuple[str, ...],
    columns: tuple[str, ...],
    schema: Path | None,
    form: str,
    name: str | None,
) -> None:
    """Print every change in MySQL or MariaDB binlog FILES, or in the log of a live server (--source), one JSON object per line, in log order.

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
    if bool(files) == (source is not None):
        raise ConfigError("there is nothing to decode, or too much", fix="name binlog FILES, or --source FLOW.yaml")

    def reader_of(all_tables: Sequence[str], *, network: bool) -> BinlogReader:
        return BinlogReader(tables or all_tables, columns=wanted, before_images=form == "jsonl", network=network)

    if source is None:
        _print(_of_files(files, schema, lambda: reader_of(["*.*"], network=False)), form, name or "db")
        return
    pipeline = load(source)
    for config in pipeline.source:
        if not isinstance(config, MySqlConfig):
            raise ConfigError(f"source {config.name} of type {config.type} has no binlog", fix="name one that has")
        dump = schema or config.dump
        if config.files is not None:
            paths = BinlogFiles(config.files).paths()
            decoded = _of_files(paths, dump, lambda: reader_of(config.tables, network=False))  # noqa: B023 - used in this round
        else:
            server = MySqlSource(config.model_copy(update={"dump": dump}), pipeline.state / "sources" / config.name)
            decoded = server.decode(reader_of(config.tables, network=True))
        _print(decoded, form, name or config.name)


def _of_files(files: Iterable[Path], schema: Path | None, new_reader: Callable[[], BinlogReader]) -> Iterator[Decoded]:
    definitions = Definitions(lambda _schema, _table: True)
    if schema is not None:
        learn_from_dump(schema, definitions)
    for path in files:
        reader = new_reader()
        try:
            with path.open("rb") as file:
                yield from decode_defined(reader, definitions, file, path.name)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", fix="check the path") from error
        reader.finish()


def _print(decoded: Iterable[Decoded], form: str, name: str) -> None:
    ums = UmsLines(Dialect.DBUS if form == "ums-dbus" else Dialect.HEADRACE, name)
    for some in decoded:
        lines = jsonl_lines(some.items) if form == "jsonl" else ums.lines(some.items)
        sys.stdout.writelines(f"{line}\n" for line in lines)


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
