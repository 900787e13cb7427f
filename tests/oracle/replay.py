"""Replays binary logs to the final state of every table, through the form that `headrace decode` prints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.cli.jsonl import jsonl_lines
from headrace.codec.binlog import BinlogReader, Ddl, Rows, decode_file

Row = dict[str, Any]
KEY = "id"
"""Every table of the workloads has its primary key in this column, or in this and others."""


def lines(paths: Iterable[Path], database: str) -> Iterator[list[dict[str, Any]] | None]:
    """What was decoded of one database, change by change; None where a statement changed what tables are."""
    for path in paths:
        reader = BinlogReader([f"{database}.*"], before_images=True)
        with path.open("rb") as file:
            for decoded in decode_file(reader, file, path.name):
                yield from _lines_of(decoded.items, path.name)
        reader.finish()


def _lines_of(items: Iterable[Rows | Ddl], file: str) -> Iterator[list[dict[str, Any]] | None]:
    between: list[Rows | Ddl] = []
    for item in items:
        if isinstance(item, Ddl):
            yield [load(line) for line in jsonl_lines(between, file)]
            yield None
            between = []
        else:
            between.append(item)
    yield [load(line) for line in jsonl_lines(between, file)]


def load(text: str) -> Any:
    """JSON with all digits of its numbers and the order and repetition of its keys."""
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
        for changes in lines(paths, database):
            if changes is None:
                self._untouched.clear()
            else:
                for change in changes:
                    self._change(change)
        return self

    def _change(self, change: dict[str, Any]) -> None:
        assert change["ums_id"] > self._last_id, change
        self._last_id = change["ums_id"]
        self.changes += 1
        table = self.tables.setdefault(change["table"], {})
        before, after = change["before"], change["after"]
        if before is not None:
            key = before[KEY]
            was = table.pop(key, None)
            if (change["table"], key) in self._untouched:
                assert before == was, (change, was)
                self._untouched.remove((change["table"], key))
        if after is not None:
            table[after[KEY]] = after
            self._untouched.add((change["table"], after[KEY]))
