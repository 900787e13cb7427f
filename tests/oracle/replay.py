"""Replays binary logs to the final state of every table, through the form that `headrace decode` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from headrace.cli.jsonl import jsonl_lines
from headrace.codec.binlog import BinlogReader, Ddl, Rows, decode_file

Row = dict[str, Any]
KEY = "id"
"""Every table of the workloads has this column as its primary key."""

_EMPTIED = re.compile(r"(?:TRUNCATE|DROP) TABLE (?:IF EXISTS )?`?(\w+)`?", re.IGNORECASE)
_RENAMED = re.compile(r"RENAME TABLE `?(\w+)`? TO `?(\w+)`?", re.IGNORECASE)


@dataclass(frozen=True)
class Change:
    """A line that `headrace decode` prints, and the names of all columns that its table has there."""

    line: str
    columns: tuple[str, ...]

    @property
    def number(self) -> int:
        """Its place in the order of changes."""
        return int(json.loads(self.line)["ums_id"])


def decoded(paths: Iterable[Path], database: str) -> Iterator[Ddl | Change]:
    """The changes of one database, and the statements between them."""
    for path in paths:
        reader = BinlogReader([f"{database}.*"], before_images=True)
        with path.open("rb") as file:
            for part in decode_file(reader, file, path.name):
                yield from in_order(part.items)
        reader.finish()


def in_order(items: Iterable[Rows | Ddl]) -> Iterator[Ddl | Change]:
    for is_ddl, group in groupby(items, key=lambda item: isinstance(item, Ddl)):
        if is_ddl:
            yield from (item for item in group if isinstance(item, Ddl))
            continue
        rows = [item for item in group if isinstance(item, Rows)]
        columns = {item.table.table: tuple(column.name for column in item.table.columns) for item in rows}
        for line in jsonl_lines(rows):
            yield Change(line, columns[json.loads(line)["table"]])


def load(text: str) -> Any:
    """JSON with all digits of its numbers."""
    return json.loads(text, parse_float=lambda digits: ("number", digits))


class Replay:
    """The tables of a database as its log leaves them; a before image that is not the row as it was fails at once."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Row]] = {}
        self.changes = 0
        self._last_id = 0
        self._untouched: set[tuple[str, Any]] = set()
        """Rows that no statement can have changed without row events since they were replayed."""

    def apply(self, paths: Iterable[Path], database: str) -> Replay:
        for item in decoded(paths, database):
            if isinstance(item, Ddl):
                self._statement(item)
            else:
                self._change(load(item.line), item.columns)
        return self

    def _statement(self, ddl: Ddl) -> None:
        self._untouched.clear()
        if found := _EMPTIED.match(ddl.sql):
            self.tables.pop(found[1], None)
        elif found := _RENAMED.match(ddl.sql):
            self.tables[found[2]] = self.tables.pop(found[1], {})

    def _change(self, change: dict[str, Any], columns: tuple[str, ...]) -> None:
        assert change["ums_id"] > self._last_id, change
        self._last_id = change["ums_id"]
        self.changes += 1
        name, before, after = change["table"], change["before"], change["after"]
        table = self.tables.setdefault(name, {})
        row: Row = {}
        if before is not None:
            key = before[KEY]
            row = table.pop(key, {})
            if (name, key) in self._untouched:
                assert all(row[column] == value for column, value in before.items()), (change, row)
                self._untouched.remove((name, key))
        if after is not None:
            # A minimal row image has only what changed.
            row = {column: value for column, value in {**row, **after}.items() if column in columns}
            table[row[KEY]] = row
            self._untouched.add((name, row[KEY]))
