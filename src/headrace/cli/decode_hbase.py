"""`headrace decode hbase-wal`: the changes in files of HBase's write-ahead log."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from headrace.capture.hbase.changes import RowChanges, row_changes
from headrace.capture.hbase.mapping import Mappings, TableMapping
from headrace.codec.hbase_wal import WalReader, read_on
from headrace.codec.texts import moment
from headrace.errors import ConfigError


@click.command("hbase-wal")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--tables", multiple=True, help="Only tables like this, namespace:table; all when left out.")
def hbase_wal(files: tuple[Path, ...], *, tables: tuple[str, ...]) -> None:
    """Print every change of a row in FILES of HBase's write-ahead log, one JSON object per line, in the order of the file.

    Compressed files are read, and files that are still written or whose writer died: up to the last entry that is whole. Bytes that
    are no UTF-8 stand in base64, under the same name with _base64. Before damage comes what stands before it.
    """
    wanted = tables or ("*:*",)
    mappings = Mappings(dict.fromkeys(wanted, TableMapping()))
    for path in files:
        reader = WalReader(path.name, wanted)
        try:
            with path.open("rb") as file:
                for batch in read_on(reader, partial(_bytes, file)):
                    for changes in row_changes(batch, mappings):
                        sys.stdout.writelines(_lines(changes))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", fix="check the path") from error
        end = "whole" if reader.ended else f"not closed by its writer: read up to byte {reader.position:,}"
        click.echo(f"headrace: {path.name}: {end}", err=True)


def _bytes(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(stop - start)


def _lines(changes: RowChanges) -> Iterator[str]:
    names = ("region", "sequence", "cell", "row", "kind", "cells")
    columns = (changes.columns[name].to_pylist() for name in names)
    table = json.dumps(changes.table)
    for written_ms, region, sequence, cell, row, kind, cells in zip(
        changes.written_ms.to_pylist(), *columns, strict=True
    ):
        place = f'"region": "{region}", "sequence": {sequence}, "cell": {cell}'
        written = moment(written_ms * 1000, 3)
        yield f'{{"table": {table}, {place}, "written": "{written}", {_row(row)}, "kind": "{kind}", "cells": {cells}}}\n'


def _row(key: bytes) -> str:
    try:
        return f'"row": {json.dumps(key.decode(), ensure_ascii=False)}'
    except UnicodeDecodeError:
        return f'"row_base64": "{base64.b64encode(key).decode()}"'
