"""Recorded binlog files read side by side: each by itself, in any process, with the same changes and ids as when they are read in a row.

::

    parts_of:  file 1 --statements--> file 2 --statements--> file 3     once, in order: rows are passed over
                  |                      |                      |
               Part(file, from, to, what tables are there)  …           any number at once
    changes:   rows, and what ends them

What a file's rows mean depends on nothing but the statements before them, so the first pass keeps only these. Transactions do not go from one
file into the next. The last file ends, for all who read it, behind the newest transaction that was whole in the first pass.

Only the commit time that never goes back (`_ums_commit_ts_`) begins anew in each file: when the server's clock was set back between two
files, it goes back there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.befores import with_befores
from headrace.capture.binlog_files import BinlogFiles
from headrace.capture.ddl import Ddl as Statement
from headrace.capture.ddl import Effect
from headrace.capture.ddl_statements import read
from headrace.capture.definitions import Definitions, Name, decode_defined
from headrace.capture.dump import learn_from_dump
from headrace.capture.gather import CAUSES, change_batch, described_table
from headrace.capture.history import History
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import FILE_START, BinlogPosition
from headrace.capture.tokens import without_literals
from headrace.codec.binlog import BinlogReader, Ddl, Decoded, Rows
from headrace.errors import storage_error
from headrace.ums.change import Cause, ChangeBatch, Clear
from headrace.ums.change import Statement as Told
from headrace.ums.schema import ID, Namespace, TableSchema
from headrace.ums.versions import Versions


@dataclass(frozen=True, slots=True)
class Part:
    """A file, where its reading begins, the id before which it ends, and what tables are at its beginning."""

    path: Path
    start: BinlogPosition
    end_id: int
    definitions: Mapping[str, Any]
    not_before_us: int | None


def parts_of(config: MySqlConfig, first: BinlogPosition, not_before_us: int | None) -> Iterator[Part]:
    """The files from a position on. Errors as of `Source.follow`."""
    assert config.files is not None, "the source has recorded files"
    files = BinlogFiles(config.files)
    definitions = Definitions(config.reads)
    if config.dump is not None:
        learn_from_dump(config.dump, definitions)
    name: str | None = first.file
    start = first
    while name is not None:
        [path, *_] = files.paths_from(name)
        known = definitions.encoded()
        end_id = start.id
        for decoded in _decoded(BinlogReader([]), definitions, path, start, None):
            if decoded.boundary is not None:
                boundary = decoded.boundary
                end_id = BinlogPosition(boundary.file, boundary.offset, boundary.expanded).id
        yield Part(path, start, end_id, known, not_before_us)
        name = files.after(name)
        if name is not None:
            start = BinlogPosition(name, FILE_START)


def changes(config: MySqlConfig, part: Part, *, before_images: bool) -> Iterator[ChangeBatch | Clear]:
    """The changes of a part, in the order of the log."""
    history = History(Path(), config.reads, config.helped)
    history.definitions.decode(dict(part.definitions))
    reader = BinlogReader(config.tables, names_required=True, before_images=before_images)
    described, versions = dict[int, TableSchema](), Versions()
    for decoded in _decoded(reader, history.definitions, part.path, part.start, part.not_before_us):
        for item in decoded.items:
            if isinstance(item, Ddl):
                yield from _clears(config, history, item)
            elif config.delivers(item.table.schema, item.table.table):
                table = described.get(item.index)
                if table is None:
                    table = versions.numbered(described_table(config.name, item.table, item.data.schema))
                    table = described[item.index] = with_befores(table) if before_images else table
                yield from _up_to(part.end_id, table, item)


def _decoded(
    reader: BinlogReader, definitions: Definitions, path: Path, start: BinlogPosition, not_before_us: int | None
) -> Iterator[Decoded]:
    try:
        with path.open("rb") as file:
            yield from decode_defined(reader, definitions, file, path.name, start=start, skip_until_us=not_before_us)
    except OSError as error:
        raise storage_error("read", path, error) from error


def _up_to(end_id: int, table: TableSchema, rows: Rows) -> Iterator[ChangeBatch]:
    data = rows.data
    if data.column(ID)[-1].as_py() >= end_id:
        data = data.filter(pc.less(data.column(ID), pa.scalar(end_id)))
    if data.num_rows:
        yield change_batch(table, data)


def _clears(config: MySqlConfig, history: History, ddl: Ddl) -> Iterator[Clear]:
    statement = Statement.of(ddl)
    gone = dict.fromkeys(_with_their_schema(config, history, statement), Cause.DROPPED)
    for notice in history.statement(statement):
        cause, name = CAUSES.get(notice.kind), (notice.schema, notice.table)
        is_swapped = cause is Cause.RENAMED and config.helped(notice.new_schema, notice.new_name) == notice.table
        if cause is not None and config.delivers(*name) and not is_swapped:
            gone[name] = cause
    told = Told(without_literals(ddl.sql), statement.place)
    for place, cause in gone.items():
        table = TableSchema(Namespace(config.type, config.name, *place), ())
        yield Clear(table, statement.id, statement.ts_us, cause, told)


def _with_their_schema(config: MySqlConfig, history: History, statement: Statement) -> list[Name]:
    """The tables that go with a schema that is dropped: those that are known here, or named."""
    dropped = {change.schema for change in read(statement) if change.effect is Effect.DROP_SCHEMA}
    if not dropped:
        return []
    known = [name for name, _ in history.definitions.captured_at(statement.id - 1)]
    named = [(schema, table) for schema, _, table in (text.partition(".") for text in config.tables)]
    return [name for name in dict.fromkeys([*known, *named]) if name[0] in dropped and config.delivers(*name)]
