"""`headrace decode`: the changes in recorded logs, and in those of live servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import click

from headrace.capture.binlog_files import in_order, mixed
from headrace.capture.definitions import Definitions, decode_defined
from headrace.capture.dump import learn_from_dump
from headrace.capture.mask import Masker
from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.cli.decode_applog import applog
from headrace.cli.decode_hbase import hbase_wal
from headrace.cli.jsonl import foreign_lines, jsonl_lines
from headrace.cli.masked_rows import masked_rows
from headrace.cli.ums_lines import UmsLines
from headrace.codec.binlog import BinlogReader, Ddl, Decoded, Rows
from headrace.codec.foreign import WRITERS
from headrace.codec.ums_schema import Dialect
from headrace.errors import ConfigError
from headrace.flow.load import load


@click.group()
def decode() -> None:
    """Print the changes in recorded logs."""


decode.add_command(applog)
decode.add_command(hbase_wal)


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
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "ums", "ums-dbus", *WRITERS]), default="jsonl", show_default=True
)
@click.option("--name", help="The data source's name in messages; the source's own, or db.")
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
    original DBus; debezium, debezium-schema (with its envelope), canal and maxwell are what those write (docs/formats/foreign.md).

    What a log without full metadata leaves out of its tables is told by the statements in it, or by a dump of their definitions; else
    columns are @1, @2, ….

    The sources of a flow file are printed as their `mask` makes them: nothing is shown that a capture would not write.

    What stands before damage or before something that cannot be decoded is printed; then comes the error, with file and offset.
    """
    wanted = _columns(columns)
    for pattern in (*tables, *wanted):
        if pattern.count(".") != 1:
            raise ConfigError(f"'{pattern}' names no table", fix="write schema.table, with * and ? if you like")
    if not files and source is None:
        raise ConfigError("there is nothing to decode", fix="name binlog FILES, or --source FLOW.yaml")
    if files and source is not None:
        raise ConfigError("FILES and --source are two things to decode", fix="leave one of them out")

    before_images = not form.startswith("ums")
    seen = _Seen()
    if source is None:
        reader = partial(BinlogReader, tables or ["*.*"], columns=wanted, before_images=before_images)
        _print(seen.of(_of_files(_in_order(files), schema, reader)), form, name or "db")
        seen.tell(tables, wanted)
        return
    pipeline = load(source)
    for config in pipeline.source:
        if not isinstance(config, MySqlConfig):
            raise ConfigError(f"source {config.name} of type {config.type} has no binlog", fix="name one that has")
        dump = schema or config.dump
        # Masks go by names: where the log does not have them, nothing can be printed.
        reader = partial(
            BinlogReader,
            tables or config.tables,
            columns=wanted,
            before_images=before_images,
            names_required=bool(config.mask),
        )
        server = MySqlSource(config.model_copy(update={"dump": dump}), pipeline.state / "sources" / config.name)
        if config.files is not None:
            paths, start, skip_until_us = server.recorded()
            decoded = _of_files(paths, dump, reader, start, skip_until_us)
        else:
            decoded = server.decode(reader(network=True))
        if config.mask:
            decoded = masked_rows(decoded, Masker(config, None), config.name)
        _print(seen.of(decoded), form, name or config.name)
    seen.tell(tables, wanted)


class _Seen:
    """The tables whose changes were decoded."""

    def __init__(self) -> None:
        self._tables: set[str] = set()

    def of(self, decoded: Iterable[Decoded]) -> Iterator[Decoded]:
        for some in decoded:
            self._tables.update(
                f"{item.table.schema}.{item.table.table}" for item in some.items if isinstance(item, Rows)
            )
            yield some

    def tell(self, tables: Iterable[str], columns: Iterable[str]) -> None:
        """A pattern that fits no table may be misspelt."""
        for option, patterns in (("--tables", tables), ("--columns", columns)):
            for pattern in patterns:
                if not any(fnmatchcase(table, pattern) for table in self._tables):
                    click.echo(f"headrace: notice: no changes of a table like {option} {pattern} were found", err=True)


def _in_order(files: Sequence[Path]) -> Sequence[Path]:
    """By number when all are of one log; else as they were named, and that is told."""
    if len(files) < 2:
        return files
    if all(path.suffix[1:].isdecimal() for path in files) and not mixed(files):
        return in_order(files)
    names = ", ".join(mixed(files)) or "not numbered"
    click.echo(f"headrace: notice: these are not files of one log ({names}): decoded in the order given", err=True)
    return files


def _of_files(
    files: Iterable[Path],
    schema: Path | None,
    new_reader: Callable[[], BinlogReader],
    start: BinlogPosition | None = None,
    skip_until_us: int | None = None,
) -> Iterator[Decoded]:
    """`start`: where the first of the files is begun."""
    definitions = Definitions(lambda _schema, _table: True)
    if schema is not None:
        learn_from_dump(schema, definitions)
    for path in files:
        reader = new_reader()
        try:
            with path.open("rb") as file:
                yield from decode_defined(
                    reader, definitions, file, path.name, start=start, skip_until_us=skip_until_us
                )
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", fix="check the path") from error
        reader.finish()
        start = None


def _print(decoded: Iterable[Decoded], form: str, name: str) -> None:
    lines_of = _lines_of(form, name)
    for some in decoded:
        sys.stdout.writelines(f"{line}\n" for line in lines_of(some.items))


def _lines_of(form: str, name: str) -> Callable[[Iterable[Rows | Ddl]], Iterable[str]]:
    if form == "jsonl":
        return jsonl_lines
    if form in WRITERS:
        return lambda items: foreign_lines(items, WRITERS[form], name)
    return UmsLines(Dialect.DBUS if form == "ums-dbus" else Dialect.HEADRACE, name).lines


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
