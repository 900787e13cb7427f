"""What should be against what is: counts, digests, and on a difference the first keys that differ with both rows.

Equal digests of equally many rows end the comparison; only then does it cost more than one pass. Otherwise equal rows of both sides
are counted together, those that occur equally often are set aside, and what is left is put together by key.

`_ums_raw_` (values that the column's type cannot hold, such as zero dates) is compared when both sides have it. A store that has
not keeps NULL in their place, and NULL is then what is compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.ums.schema import RAW, TableSchema
from headrace.ums.values import to_text
from headrace.verify.digest import MISFITS, Rows, canonical

EXPECTED, ACTUAL = "expected", "actual"
_COUNTS = ("~expected", "~actual")
Row = dict[str, str | None]
Kind = Literal["missing", "extra", "different", "repeated"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose rows are not the same; values as text, binary in hex. Without a key, one row that is not there equally often.

    `repeated`: at least one side has more than one row.
    """

    kind: Kind
    key: Row
    expected: tuple[Row, ...]
    actual: tuple[Row, ...]
    columns: tuple[str, ...]
    """`different`: the columns in which the two rows differ."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """How one table compares."""

    table: str
    expected_rows: int
    actual_rows: int
    expected_digest: str
    actual_digest: str
    missing_columns: tuple[str, ...]
    """Columns that one of the sides does not have."""
    differing_keys: int
    differences: tuple[Difference, ...]
    """The first of them, in key order."""

    @property
    def ok(self) -> bool:
        same = (self.expected_rows, self.expected_digest) == (self.actual_rows, self.actual_digest)
        return same and not self.missing_columns


def compare(expected: pa.Table, actual: pa.Table, table: TableSchema, *, limit: int = 10) -> TableResult:
    """Compares rows in the columns of `table`, whatever their order and chunks; lists at most `limit` differing keys.

    Columns that `table` does not have are left out.
    """
    if RAW not in expected.column_names or RAW not in actual.column_names:
        expected, actual = _without_raw(expected), _without_raw(actual)
    sides = canonical(expected, table, EXPECTED), canonical(actual, table, ACTUAL)
    digests = sides[0].digest(), sides[1].digest()
    missing = tuple(dict.fromkeys(sides[0].missing + sides[1].missing))
    same = digests[0] == digests[1] and len(expected) == len(actual)
    differing, found = (0, ()) if same else _differences(sides, table, limit)
    return TableResult(
        table=table.namespace.all_versions,
        expected_rows=len(expected),
        actual_rows=len(actual),
        expected_digest=f"{digests[0]:032x}",
        actual_digest=f"{digests[1]:032x}",
        missing_columns=missing,
        differing_keys=differing,
        differences=found,
    )


def _without_raw(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([RAW]) if RAW in rows.column_names else rows


def _differences(sides: tuple[Rows, Rows], table: TableSchema, limit: int) -> tuple[int, tuple[Difference, ...]]:
    uneven = _uneven(sides)
    key = list(table.key) or [name for name in uneven.column_names if name not in _COUNTS]
    keys = uneven.select(key).group_by(key, use_threads=False).aggregate([])
    first = keys.sort_by([(name, "ascending") for name in table.key])[:limit] if table.key else keys[:limit]
    groups: dict[tuple[str | None, ...], list[Row]] = {tuple(row.values()): [] for row in _as_text(first)}
    wanted = [tuple(row.values()) in groups for row in _as_text(uneven.select(key))]
    for row in _as_text(uneven.filter(pa.array(wanted, pa.bool_()))):
        groups[tuple(row[name] for name in key)].append(row)
    return len(keys), tuple(_difference(rows, table.key) for rows in groups.values())


def _uneven(sides: tuple[Rows, Rows]) -> pa.Table:
    """The distinct rows that do not occur equally often, each with how often it does on either side."""
    names = list(dict.fromkeys(sides[0].data.column_names + sides[1].data.column_names))
    counted = []
    for at, side in enumerate(sides):
        data = side.data if MISFITS not in names or MISFITS in side.data.column_names else _with_no_misfits(side.data)
        for number, count in enumerate(_COUNTS):
            data = data.append_column(count, pa.repeat(pa.scalar(int(number == at), pa.int64()), len(data)))
        counted.append(data.select([*names, *_COUNTS]))
    totals = pa.concat_tables(counted).group_by(names, use_threads=False).aggregate([(n, "sum") for n in _COUNTS])
    totals = totals.rename_columns([*names, *_COUNTS])
    return totals.filter(pc.not_equal(totals.column(_COUNTS[0]), totals.column(_COUNTS[1])))


def _with_no_misfits(data: pa.Table) -> pa.Table:
    return data.append_column(MISFITS, pa.nulls(len(data), pa.utf8()))


def _as_text(rows: pa.Table) -> list[Row]:
    columns = {name: to_text(rows.column(name).combine_chunks()).to_pylist() for name in rows.column_names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _difference(rows: Iterable[Row], key: tuple[str, ...]) -> Difference:
    expected: list[Row] = []
    actual: list[Row] = []
    unfit: set[str] = set()
    for row in rows:
        shown, misfits = _shown(row)
        unfit |= misfits
        expected += [shown] * int(row[_COUNTS[0]] or 0)
        actual += [shown] * int(row[_COUNTS[1]] or 0)
    identity = {name: (expected or actual)[0][name] for name in key}
    kind: Kind = "repeated"
    columns: tuple[str, ...] = ()
    if len(expected) + len(actual) == 1:
        kind = "missing" if expected else "extra"
    elif len(expected) == len(actual) == 1:
        kind = "different"
        columns = tuple(name for name in expected[0] if name in unfit or expected[0][name] != actual[0][name])
    return Difference(kind, identity, tuple(expected), tuple(actual), columns)


def _shown(row: Row) -> tuple[Row, set[str]]:
    """A row for the reader, misfits in their places, and the names of columns that have one."""
    misfits: dict[str, Any] = json.loads(row.get(MISFITS) or "{}")
    values = {name: value for name, value in row.items() if name not in (*_COUNTS, MISFITS)}
    names = misfits.keys() & values.keys()
    return {**values, **{name: str(misfits[name]) for name in names}}, set(names)
