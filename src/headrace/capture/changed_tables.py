"""The newest change of each table at its source (columns, key, name), for those who want to be told of it (docs/how-to/alerts.md).

::

    {"format": 1, "tables": {"mysql.db1.shop.orders": {"id": …, "at_us": …, "became": "version 4", "what": "note added; …: ALTER TABLE …"}, …}}

    id      of the change on the log
    at_us   when capture met it, not when it was made: of a capture that is far behind people are told nevertheless

Crash story: it is written before the change goes onto the log. Who dies in between meets the change again, with its id, and `at_us` stays
as it was. So none is missed, and none is new twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.capture.noted_file import read_noted, write_noted
from headrace.ums.change import Cause, ChangeBatch, Clear, End
from headrace.ums.schema import TableSchema

_FILE = "changed_tables.json"
_KEPT = 1_000
"""Of so many tables, those that changed last."""
_CAUSES = {Cause.DROPPED: "dropped", Cause.RENAMED: "renamed", Cause.CREATED: "created anew"}
"""What is a change of the table, and not of its rows alone."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a table has become."""

    id: int
    at_us: int
    became: str
    """``version 4``, ``dropped``."""
    what: str
    """The difference in columns, and the statement where it is known."""


class ChangedTables:
    """Of one source, in the directory of its state."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = directory / _FILE
        self._clock = clock
        self._known: dict[str, TableChange] | None = None

    def all(self) -> dict[str, TableChange]:
        """By the table's namespace without version; CorruptError when the file is damaged."""
        found = read_noted(
            self._path,
            lambda content: {table: TableChange(**change) for table, change in content["tables"].items()},
        )
        return found or {}

    def note(self, changes: Sequence[ChangeBatch | Clear | End]) -> None:
        """Keeps what of these has changed a table, durably, before they go onto the log."""
        found = dict(_changes(changes))
        if not found:
            return
        known = self._known = self.all() if self._known is None else self._known
        at_us = round(self._clock() * 1e6)
        for table, (id_, became, what) in found.items():
            if table not in known or known[table].id < id_:
                known[table] = TableChange(id_, at_us, became, what)
        newest = sorted(known.items(), key=lambda item: item[1].at_us)[-_KEPT:]
        self._known = dict(newest)
        write_noted(self._path, {"tables": {table: asdict(change) for table, change in newest}})


def _changes(changes: Sequence[ChangeBatch | Clear | End]) -> Iterator[tuple[str, tuple[int, str, str]]]:
    """Table, then id of the change, what it has become, and how; the last of a table counts."""
    for change in changes:
        if isinstance(change, End):
            became = f"version {change.successor.namespace.version}"
            what = f"{difference(change.table, change.successor)} ({change.statement})"
            yield change.successor.namespace.all_versions, (change.id, became, what)
        elif isinstance(change, Clear) and change.cause in _CAUSES:
            yield change.table.namespace.all_versions, (change.id, _CAUSES[change.cause], str(change.statement))


def difference(before: TableSchema, after: TableSchema) -> str:
    """What one version has that the other has not, in words."""
    earlier = {column.identity: column for column in before.columns}
    later = {column.identity: column for column in after.columns}
    found = [f"{column.name} added" for identity, column in later.items() if identity not in earlier]
    found += [f"{column.name} dropped" for identity, column in earlier.items() if identity not in later]
    for identity in earlier.keys() & later.keys():
        old, new = earlier[identity], later[identity]
        if old.name != new.name:
            found.append(f"{old.name} is {new.name} now")
        if old.type != new.type:
            found.append(f"{new.name} is {new.source_type or new.type} now, and was {old.source_type or old.type}")
    if before.key_identities != after.key_identities:
        found.append(f"its key is {', '.join(after.key) or 'none'} now")
    return ", ".join(sorted(found)) or "columns in another order"
