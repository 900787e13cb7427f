"""What captured tables are at the server now, learned from there, so that they can be loaded before their first change is logged.

A version belongs to a place in the log, and the server can only tell what a table is now. So a description waits until capture has come to
where the log ended when it was made; when no statement has touched the table on the way, it was so at that place, and that is what the
schema history learns. When one has, the table is described again. A capture that is far behind therefore learns late, and loads of tables
that it does not know wait for it.

So the end of a version is on the log also when no row of the next one follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.capture.definitions import Name
from headrace.capture.history import History
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.capture.replica import Replica
from headrace.capture.select import described
from headrace.errors import SourceError
from headrace.ums.change import End, Mark
from headrace.ums.schema import TableSchema


class ShapesNow:
    """Describes tables over connections of its own."""

    def __init__(self, config: MySqlConfig, history: History, connect: Callable[[], Replica]) -> None:
        self._config = config
        self._history = history
        self._connect = connect
        self._waiting: dict[Name, tuple[TableSchema, BinlogPosition]] = {}
        self._ends: list[End] = []

    def describe(self, names: Iterable[Name]) -> tuple[str, ...]:
        """Asks what tables are now; what a person must know of those that cannot be loaded."""
        wanted = [name for name in names if self._is_wanted(*name)]
        if not wanted:
            return ()
        asked = self._connect()
        notices = []
        try:
            for name in wanted:
                self._waiting.pop(name, None)
                try:
                    found = described(asked.connection, self._config.name, *name)
                except SourceError as error:
                    if self._config.load is not None:
                        notices.append(f"{'.'.join(name)} cannot be loaded: {error.message}")
                    continue
                if found is not None and self._history.like(found) is None:
                    self._waiting[name] = found, asked.last_position()
        finally:
            asked.close()
        return tuple(notices)

    def passed(self, mark: Mark, touched: set[Name]) -> tuple[str, ...]:
        """Capture has come to a mark, and met statements that touch some tables; notices as of `describe`."""
        self._learn(mark, [name for name in self._waiting if name not in touched])
        notices = self.describe(touched)
        self._learn(mark, list(self._waiting))
        self._history.save()
        return notices

    def ends(self) -> list[End]:
        """The versions that are over at the newest mark, before which they belong on the log; handed out once."""
        ends, self._ends = self._ends, []
        return ends

    def _learn(self, mark: Mark, names: Iterable[Name]) -> None:
        reached = BinlogPosition.of(mark)
        for name in names:
            found, asked_at = self._waiting[name]
            if not reached.is_behind(asked_at):
                continue
            del self._waiting[name]
            learned = self._history.learn(found, mark.id)
            ended = None if learned is None else self._history.ended_by(learned, mark.id + 1)
            if learned is not None and ended is not None:
                self._ends.append(End(ended[0], learned, mark.id, mark.commit_ts_us, ended[1]))

    def _is_wanted(self, schema: str, table: str) -> bool:
        load = self._config.load
        return self._config.delivers(schema, table) and (load is None or not load.excludes(schema, table))
