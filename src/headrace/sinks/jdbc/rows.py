"""Rows into a target: looked up, split into new and newer, inserted and updated in sets.

::

    waiting = all rows, which have distinct keys
    while there are such:
        stored = ids of the target's rows with their keys           SELECT, in sets
        a row with a stored id that is not smaller than its own     is done: an older change loses
        a row with a smaller stored id                              UPDATE … WHERE key AND _ums_id_ < its own; done when that met a row
        a row without a stored one                                  INSERT, in one savepoint; done when no key was there meanwhile

Behind rows that were all new, as in a load, the next ones are inserted when a sample of them is new too: the look costs as much as the
INSERT. When a key was there after all the savepoint takes the set back, as if somebody else had come between look and INSERT.

Why two writers of one key end in the newest change, whatever happens between two statements. A row is done in three ways. It was found
with a larger id: ids of a key never become smaller. Its UPDATE met a row: that compares and replaces as one. Its INSERT went through: the
primary key lets one writer do so. All others wait and are looked up again: somebody else's INSERT came first (the savepoint takes back
the set, and the row is compared from then on), or somebody else's UPDATE or DELETE did. The transaction reads what others have committed
(READ COMMITTED), so a look that follows a conflict sees the row that caused it. Each round in which a row waits again is one that another
writer has ended, but for one case: a unique index that is not the key's, or keys that are one to the database and two to the source. Then the
look finds nothing, and after three such rounds the conflict comes out as it is.

A set is looked up by one SELECT for each row, joined by UNION ALL, which says its number: each of them goes by the primary key's index in
every database, with any number of key columns, and it is the database that says what is the same key. Where it takes two texts for the
same that differ, the row is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice

import jpype

from headrace.errors import DataError
from headrace.sinks.database.dialect import Destination
from headrace.sinks.jdbc.binding import Binding, add_batch
from headrace.sinks.jdbc.codes import VARCHAR
from headrace.sinks.jdbc.connection import Bound, Connection, is_conflict, set_parameters

_SETS = (1, 8, 64)
"""How many keys one SELECT looks up; databases compile each of these statements once."""
_ROUNDS_WITHOUT_PROGRESS = 3

Texts = Sequence[Sequence[str | None]]


class Upsert:
    """Rows for one destination."""

    def __init__(
        self,
        to: Destination,
        table: str,
        quote: Callable[[str], str],
        kinds: Sequence[Binding],
        releases_savepoints: bool,
    ) -> None:
        self._to = to
        self._releases = releases_savepoints
        self._table = table
        self._quote = quote
        self._kinds = kinds
        place = {name: at for at, name in enumerate(to.names)}
        self._id = place[to.target.system.id]
        self._key = [place[name] for name in to.target.key]
        self._key_texts = [at for at in self._key if kinds[at].code == VARCHAR]
        self._replaced = [at for name, at in place.items() if name not in to.target.key]
        self._all_were_new = False

    def store(self, connection: Connection, columns: Texts) -> None:
        """Stores rows of distinct keys, columns in the order of ``to.names``."""
        ids = [int(text or 0) for text in columns[self._id]]
        # All writers go through the keys in one order, so that seldom two wait for each other.
        waiting: Sequence[int] = sorted(range(len(ids)), key=lambda row: [columns[at][row] or "" for at in self._key])
        conflict: jpype.JException | None = None
        rounds, sample = 0, _SETS[-1] if self._all_were_new else len(waiting)
        while waiting:
            stored = self._stored(connection, columns, waiting[:sample])
            if stored and len(waiting) > sample:
                stored |= self._stored(connection, columns, waiting[sample:])
            new = [row for row in waiting if row not in stored]
            newer = [row for row in waiting if row in stored and stored[row] < ids[row]]
            rounds = rounds + 1 if conflict is not None and len(new) == len(waiting) else 0
            if conflict is not None and rounds == _ROUNDS_WITHOUT_PROGRESS:
                raise conflict
            missed = self._update(connection, columns, newer)
            conflict = self._insert(connection, columns, new)
            self._all_were_new = conflict is None and len(new) == len(ids)
            waiting = missed if conflict is None else [*missed, *new]
            sample = len(waiting)

    def _stored(self, connection: Connection, columns: Texts, waiting: Collection[int]) -> dict[int, int]:
        """The ids of the target's rows with the same keys."""
        stored: dict[int, int] = {}
        rows = iter(waiting)
        while part := list(islice(rows, _SETS[-1])):
            size = next(size for size in _SETS if size >= len(part))
            padded = part + part[-1:] * (size - len(part))
            statement = connection.prepared(self._select(size))
            set_parameters(statement, [Bound(columns[at][row], self._kinds[at]) for row in padded for at in self._key])
            found = statement.executeQuery()
            while found.next():
                row = padded[found.getInt(1)]
                stored[row] = int(found.getLong(2))
                self._must_be_same(columns, row, [str(found.getString(3 + n)) for n in range(len(self._key_texts))])
            found.close()
        return stored

    def _must_be_same(self, columns: Texts, row: int, found: Sequence[str]) -> None:
        wanted = [columns[at][row] for at in self._key_texts]
        if wanted != found:
            raise DataError(
                f"table {self._to.target.name}: to the target database the key {wanted} is the same as {found}, which it has",
                fix="use a database that compares text exactly, or name other key columns with `key`",
            )

    def _update(self, connection: Connection, columns: Texts, rows: Sequence[int]) -> list[int]:
        """Replaces stored rows that are still older; returns the rows that met none."""
        if not rows:
            return []
        places = [*self._replaced, *self._key, self._id]
        counts = self._execute(connection, self._update_sql(), columns, rows, places)
        return [row for row, count in zip(rows, counts, strict=True) if count < 1]

    def _insert(self, connection: Connection, columns: Texts, rows: Sequence[int]) -> jpype.JException | None:
        """Inserts rows, all or none; returns the conflict when there was one."""
        if not rows:
            return None
        before = connection.java.setSavepoint()
        try:
            self._execute(connection, self._insert_sql(), columns, rows, range(len(columns)))
        except jpype.JException as error:
            if not is_conflict(error):
                raise
            connection.back_to(before)
            conflict: jpype.JException | None = error
        else:
            conflict = None
        if self._releases:
            connection.java.releaseSavepoint(before)
        return conflict

    def _execute(
        self, connection: Connection, sql: str, columns: Texts, rows: Sequence[int], places: Sequence[int]
    ) -> list[int]:
        statement = connection.prepared(sql)
        values = [[columns[at][row] for row in rows] for at in places]
        try:
            add_batch(statement, values, [self._kinds[at] for at in places])
            return list(statement.executeBatch())
        finally:
            statement.clearBatch()

    # --- SQL

    def _select(self, size: int) -> str:
        names = ", ".join(self._quoted([self._id, *self._key_texts]))
        where = " AND ".join(f"{name} = ?" for name in self._quoted(self._key))
        return " UNION ALL ".join(f"SELECT {n}, {names} FROM {self._table} WHERE {where}" for n in range(size))

    def _update_sql(self) -> str:
        brought = [f"{name} = ?" for name in self._quoted(self._replaced)]
        names = {name.lower() for name in self._to.names}
        # A column that the version does not bring gets its default, so that any order of changes ends the same.
        rest = [c for c in self._to.stored.columns if c.name.lower() not in names]
        changes = ", ".join([*brought, *(f"{self._quote(c.name)} = {c.default or 'NULL'}" for c in rest)])
        where = " AND ".join(f"{name} = ?" for name in self._quoted(self._key))
        return f"UPDATE {self._table} SET {changes} WHERE {where} AND {self._quote(self._to.target.system.id)} < ?"

    def _insert_sql(self) -> str:
        names = ", ".join(map(self._quote, self._to.names))
        return f"INSERT INTO {self._table} ({names}) VALUES ({', '.join('?' * len(self._to.names))})"

    def _quoted(self, places: Sequence[int]) -> list[str]:
        return [self._quote(self._to.names[at]) for at in places]
