"""Whether a target holds the rows that it should, while both sides keep changing.

Two passes, however large the table is and whatever the orders of the stores are. *First*: both sides are read side by side and summed by parts
(sums.py); parts that differ, and parts of rows that were changed meanwhile, are open. *Second*, over the open parts alone: the reference is
read, then the target, then each row is judged at the target's own position.

Proof. Let L be the end of the log before a read of the reference, H the end once capture has come to where the source was behind it, P the
flow's position (at least) and E the end of the log behind the read of the target.

- *First pass*, L before both reads, and the target has all before L. A row that no change in [L, E) touches was the same all the time at the
  source (what the read did not see is captured behind L, what it saw is captured before E), and in a right target. So a part without such
  changes has equal sums on both sides, or is wrong.
- *Second pass*: the reference is read between L and H, P >= H, the target is read between P and E. A row's state at P is that of its newest
  change in [L, P), or, without one, what the reference had (it had all before L, and nothing behind H). A right target shows the state at P
  or one that a change in [P, E) made. So the row is right exactly when its hash is among those, "absent" being one of them. Nothing
  needs to hold still, and no row is left undecided because it changes too often.

A table that is emptied, altered or replaced meanwhile is looked at anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace._native import PartSums, parts_of_rows
from headrace.ums.change import DELETE, ChangeBatch, Clear, End, Mark
from headrace.ums.schema import OP, TableSchema
from headrace.verify.compare import ACTUAL, EXPECTED, TableResult, compare
from headrace.verify.followed import Followed, Offsets, Place, TableMovedError
from headrace.verify.sums import PARTS, hashes_array, in_one_form, kept, key_hashes, row_hashes, summed

MOST_ROWS = 1_000_000
"""Of each side at most so many rows are looked into, where parts differ."""
Seen = Callable[[ChangeBatch | Clear | End], ChangeBatch | Clear | End | None]


class Side(Protocol):
    """Rows that can be read again and again, in the shape that the target has them in."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """All live rows."""
        ...


class Reference(Side, Protocol):
    """What the target is held against."""

    def wait_for(self, ends: Offsets) -> None:
        """Until it has everything that the log has before `ends`."""
        ...

    def has_come(self) -> Callable[[Mark], bool]:
        """Where its source is now, as a question of the capture's mark."""
        ...


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of a table. `result` counts all rows of both sides, and has the differences that were found."""

    result: TableResult
    changed: int
    """Keys that were changed while they were looked at, and are judged by the log."""
    open_parts: int
    """Parts that differ and were not looked into, because there were too many rows in them."""

    @property
    def ok(self) -> bool:
        return not self.result.differing_keys and not self.result.missing_columns and not self.open_parts


@dataclass(frozen=True, slots=True)
class Subject:
    """One table of one flow."""

    table: TableSchema
    """As the target has it."""
    reference: Reference
    target: Side
    followed: Followed
    seen: Seen
    """What the target gets to see of a change on the log."""


def verify(subject: Subject, limit: int) -> Verified:
    """Compares all rows; lists at most `limit` keys that differ. TableMovedError when it must be done again."""
    sums, open_parts = _first_pass(subject)
    counted = _counted(subject, sums)
    if not open_parts:
        return Verified(counted, 0, 0)
    looked_into = _affordable(open_parts, sums)
    found, changed = _second_pass(subject, looked_into, limit)
    result = replace(
        counted,
        missing_columns=found.missing_columns,
        differing_keys=found.differing_keys,
        differences=found.differences,
    )
    return Verified(result, changed, len(open_parts) - len(looked_into))


def _first_pass(subject: Subject) -> tuple[tuple[PartSums, PartSums], Set[int]]:
    followed, table = subject.followed, subject.table
    begin = followed.ends()
    followed.wait_delivered(begin)
    subject.reference.wait_for(begin)
    with ThreadPoolExecutor(2, thread_name_prefix="verify") as pool:
        expected = pool.submit(lambda: summed(subject.reference.read(), table, EXPECTED))
        actual = pool.submit(lambda: summed(subject.target.read(), table, ACTUAL))
        sums = expected.result(), actual.result()
    followed.wait_captured(subject.reference.has_come())
    touched = {part for change in _changes(subject, begin, followed.ends()) for part in _parts(change.rows, table)}
    return sums, touched | {*sums[0].differing(sums[1])}


def _second_pass(subject: Subject, parts: Set[int], limit: int) -> tuple[TableResult, int]:
    followed, table = subject.followed, subject.table
    begin = followed.ends()
    subject.reference.wait_for(begin)
    expected = kept(subject.reference.read(), table, EXPECTED, parts)
    followed.wait_captured(subject.reference.has_come())
    position = followed.wait_delivered(followed.ends())
    actual = kept(subject.target.read(), table, ACTUAL, parts)
    states = _States(table, parts)
    for change in _changes(subject, begin, followed.ends()):
        states.take(change, is_settled=change.offset < position.get(change.place, 0))
    expected, actual = states.judged(expected, actual)
    return compare(expected, actual, table, limit=limit), states.changed


@dataclass(frozen=True, slots=True)
class _Change:
    """Changes of rows in one form, with whether each deletes its row."""

    place: Place
    offset: int
    rows: pa.RecordBatch
    plain: pa.RecordBatch
    deletes: list[bool]


def _changes(subject: Subject, begin: Offsets, end: Offsets) -> Iterator[_Change]:
    names = [column.name for column in subject.table.columns]
    for found in subject.followed.changes(begin, end):
        seen = subject.seen(found.change)
        if isinstance(seen, Clear | End) or (seen is not None and seen.table.namespace != subject.table.namespace):
            raise TableMovedError(
                f"{subject.table.namespace.all_versions} was emptied or altered while it was looked at",
                fix="verify it again",
            )
        if seen is None or not len(seen):
            continue
        plain = seen.data.select(names)
        deletes = [op == DELETE for op in seen.data.column(OP).to_pylist()]
        for rows in in_one_form(plain, subject.table, EXPECTED):
            yield _Change(found.place, found.offset, rows, plain, deletes)


class _States:
    """Which states each changed row of some parts may be in."""

    def __init__(self, table: TableSchema, parts: Set[int]) -> None:
        self._table = table
        self._parts = parts
        self._settled: dict[bytes, bytes | None] = {}
        """By key the row's hash at the target's position, where a change says it; None: absent."""
        self._possible: dict[bytes, set[bytes | None]] = {}
        """Those that later changes made."""
        self._newest: dict[bytes, pa.RecordBatch | None] = {}

    @property
    def changed(self) -> int:
        return len(self._newest)

    def take(self, change: _Change, *, is_settled: bool) -> None:
        """In the order of the log."""
        rows = zip(
            _parts(change.rows, self._table),
            key_hashes(change.rows, self._table),
            row_hashes(change.rows),
            change.deletes,
            strict=True,
        )
        for at, (part, key, row, is_delete) in enumerate(rows):
            if part not in self._parts:
                continue
            state = None if is_delete else row
            if is_settled:
                self._settled[key] = state
            else:
                self._possible.setdefault(key, set()).add(state)
            self._newest[key] = None if is_delete else change.plain.slice(at, 1)

    def judged(self, expected: pa.Table, actual: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Both sides without the changed rows that are right; of those that are wrong the newest state is expected."""
        base = _by_key(expected, self._table, EXPECTED, self._newest.keys())
        there = _by_key(actual, self._table, ACTUAL, self._newest.keys())
        wrong = {key for key in self._newest if there.get(key) not in self._states_of(key, base)}
        newest = [row for key in wrong if (row := self._newest[key]) is not None]
        expected = _without(expected, self._table, EXPECTED, self._newest.keys())
        if newest:
            expected = pa.concat_tables([expected, pa.Table.from_batches(newest)], promote_options="permissive")
        return expected, _without(actual, self._table, ACTUAL, self._newest.keys() - wrong)

    def _states_of(self, key: bytes, base: dict[bytes, bytes]) -> set[bytes | None]:
        at_position = self._settled[key] if key in self._settled else base.get(key)
        return {at_position, *self._possible.get(key, ())}


def _by_key(rows: pa.Table, table: TableSchema, side: str, keys: Set[bytes]) -> dict[bytes, bytes]:
    """Hashes of the rows that have one of the keys."""
    found: dict[bytes, bytes] = {}
    for batch in rows.to_batches():
        for part in in_one_form(batch, table, side):
            found.update(
                (key, row) for key, row in zip(key_hashes(part, table), row_hashes(part), strict=True) if key in keys
            )
    return found


def _without(rows: pa.Table, table: TableSchema, side: str, keys: Set[bytes]) -> pa.Table:
    left = []
    wanted = hashes_array([*keys])
    for batch in rows.to_batches():
        for part in in_one_form(batch, table, side):
            is_known = pc.is_in(hashes_array(key_hashes(part, table)), wanted)
            left.append(pa.Table.from_batches([batch]).filter(pc.invert(is_known)))
    return pa.concat_tables(left) if left else rows


def _parts(rows: pa.RecordBatch, table: TableSchema) -> list[int]:
    numbers = parts_of_rows(rows.select(list(table.key)), PARTS)
    return [int.from_bytes(numbers[at : at + 2], "little") for at in range(0, len(numbers), 2)]


def _affordable(open_parts: Set[int], sums: tuple[PartSums, PartSums]) -> Set[int]:
    chosen: set[int] = set()
    rows = 0
    for part in sorted(open_parts):
        rows += max(side.rows_of(part) for side in sums)
        if rows > MOST_ROWS and chosen:
            break
        chosen.add(part)
    return chosen


def _counted(subject: Subject, sums: tuple[PartSums, PartSums]) -> TableResult:
    (expected_rows, expected), (actual_rows, actual) = (side.total() for side in sums)
    return TableResult(
        table=subject.table.namespace.all_versions,
        expected_rows=expected_rows,
        actual_rows=actual_rows,
        expected_digest=f"{expected:032x}",
        actual_digest=f"{actual:032x}",
        missing_columns=(),
        differing_keys=0,
        differences=(),
    )
