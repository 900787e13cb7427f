"""`headrace decode applog`: what the rules of a source make of lines, to try them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click

from headrace.capture.applog.followed import Followed
from headrace.capture.applog.pieces import lines_of
from headrace.capture.applog.source import AppLogConfig
from headrace.capture.lines.rules import UNMATCHED
from headrace.capture.lines.tables import Lines, LinesConfig, LineTables
from headrace.capture.mask import Masker
from headrace.capture.seen_tables import SeenTables
from headrace.cli.jsonl import change_lines
from headrace.errors import ConfigError, DataError
from headrace.flow.load import load
from headrace.model import SourceConfig
from headrace.ums.change import ChangeBatch

_PIECE_BYTES = 8 << 20
_MESSAGES = 10_000


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--rules", "flow", required=True, type=click.Path(path_type=Path), metavar="FLOW.yaml", help="The flow file."
)
@click.option("--source", help="Which source of the flow file; needed when several have rules.")
def applog(files: tuple[Path, ...], flow: Path, source: str | None) -> None:
    """Print the rows that the rules of a source make of the lines in FILES, one JSON object per line; of the rules' samples without FILES.

    For a source of files FILES are log files (packed ones too), for one of topics they have a message of the shipper per line.
    Rows are printed as the source's `mask` makes them. How many lines no rule fits is told at the end.
    """
    config, rules = _source(load(flow).source, source)
    found = (lines for file in files for lines in _lines(config, rules, file)) if files else iter([_samples(rules)])
    tables, masker = LineTables(rules.rules, SeenTables(Path(), config.type, config.name)), Masker(config, None)
    total = unmatched = 0
    for lines in found:
        now_us = time.time_ns() // 1000
        total += len(lines.fields)
        for change in tables.changes(lines, now_us, now_us):
            if isinstance(change, ChangeBatch):
                unmatched += len(change) * (change.table.namespace.table == UNMATCHED)
                sys.stdout.writelines(f"{line}\n" for line in change_lines(_masked(change, masker)))
    click.echo(f"headrace: {total:,} lines, {unmatched:,} of them for {UNMATCHED}", err=True)


def _source(sources: Sequence[SourceConfig], name: str | None) -> tuple[SourceConfig, LinesConfig]:
    having = {config.name: (config, config) for config in sources if isinstance(config, LinesConfig) and config.rules}
    if not having:
        raise ConfigError(
            "no source of this flow file has rules", fix="write `rules` in the source (docs/how-to/app-logs.md)"
        )
    if name is None and len(having) == 1:
        [name] = having
    if name not in having:
        raise ConfigError(f"{name or 'no name'} is not one source with rules", fix=f"--source {' or '.join(having)}")
    return having[name]


def _samples(rules: LinesConfig) -> Lines:
    samples = [sample for rule in rules.rules for sample in rule.sample]
    if not samples:
        raise ConfigError("there is nothing to decode", fix="name FILES, or give the rules a `sample`")
    try:
        return rules.lines_of(samples)
    except ValueError as error:
        raise ConfigError(f"a sample is not one of this source's lines: {error}", fix="correct the sample") from error


def _lines(config: SourceConfig, rules: LinesConfig, file: Path) -> Iterator[Lines]:
    found = _file_lines(config, file) if isinstance(config, AppLogConfig) else _message_lines(rules, file)
    try:
        yield from found
    except FileNotFoundError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", fix="check the path") from error


def _file_lines(config: AppLogConfig, file: Path) -> Iterator[Lines]:
    """The lines of a log file, with the ids that they have when it is the first file that is captured."""
    pattern, path = config.pattern(), file.absolute()
    base = pattern.base.absolute() if path.is_relative_to(pattern.base.absolute()) else path.parent
    name = str(path.relative_to(base))
    followed = Followed(name, name, pattern.host_of(name) or config.host, file.stat().st_ino, found_s=0)
    read_bytes, longest_bytes = 0, config.longest_line_bytes
    if not followed.open(base):
        raise FileNotFoundError(2, "No such file")
    followed.note_beginning(is_final=True)
    try:
        while True:
            piece = followed.take(max(_PIECE_BYTES, longest_bytes + 1), longest_bytes, sys.maxsize, is_final=True)
            if piece is None:
                return
            if piece.data:
                yield lines_of([piece], read_bytes, longest_bytes, config.encoding)
            read_bytes += piece.used
    finally:
        followed.close()


def _message_lines(rules: LinesConfig, file: Path) -> Iterator[Lines]:
    with file.open(encoding="utf-8", errors="backslashreplace") as messages:
        number = 0
        while some := list(islice(messages, _MESSAGES)):
            try:
                yield rules.lines_of([message for message in some if message.strip()])
            except ValueError as error:
                raise DataError(
                    f"one of lines {number + 1} to {number + len(some)} of {file} is not a message of this source: {error}",
                    fix="check `format` of the source",
                ) from error
            number += len(some)


def _masked(batch: ChangeBatch, masker: Masker) -> ChangeBatch:
    masked = masker.mask(batch)
    for failed in masked.failed:
        raise DataError(
            f"mask `{failed.pattern}` failed ({failed.reason}) on column {failed.column} of {batch.table.namespace.table}",
            fix="correct the mask; a capture puts such rows into its error ledger (`headrace errors`)",
        )
    assert isinstance(masked.change, ChangeBatch)
    return masked.change
