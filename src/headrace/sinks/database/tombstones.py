"""Hard deletes: the row goes, what remains is its key's hash and the delete's `_ums_id_` in ``_headrace_tombstones``.

Rows are first stored as with soft deletes; then, in the same transaction, the tombstones move to the side table::

    1  upsert all rows, deletes with _is_active_ = 0      takes the lock of each key's row: writers of one key go one after another
    2  of these keys, remove rows older than the key's tombstone in the side table           (a late change lost against it)
    3  store this batch's deletes in the side table, remove their rows where _is_active_ = 0

Why any order gives the same end: whoever writes a key holds its row's lock from 1 to the commit, so in 2 it sees every tombstone
that was committed before (each statement reads what is committed by then), and what is committed later comes from a writer that
waited in 1 and sees this one's row. A live row newer than a tombstone stays; the side table keeps the largest id of each key.

A tombstone is needed as long as an older change of its key can still come: from another partition or lane of a load that lags behind, or when
somebody goes back (a flow that begins anew, `headrace errors replay`, a backfill). How long that is, the flow says (`tombstones`). It counts from
the delivery, which is what `_ums_ts_` is here, not from the change: a backlog of old changes may come in any order. What is older is removed in a
transaction of its own behind a commit: a delete of those rows waits for nothing but other writers of the same tombstones, and what it
waited for is newer then and stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.sinks.database.dialect import PARAMETER, Destination, Dialect, Row, Target
from headrace.ums.schema import ID, TS, Column
from headrace.ums.values import Array, to_text

TARGET = Target(
    "_headrace_tombstones",
    (Column("table_name", pa.utf8(), "varchar(64)"), Column("key_hash", pa.utf8(), "char(64)")),
    ("table_name", "key_hash"),
)
_KEYS_PER_QUERY = 500


def forget(dialect: Dialect, before_us: int) -> None:
    """Removes the tombstones that were delivered before a time."""
    [before] = dialect.parameters(_times(before_us, 1))
    dialect.run(f"DELETE FROM {dialect.table(TARGET)} WHERE {dialect.quote(TS)} < {PARAMETER}", [(before,)])
    dialect.commit()


def settle(dialect: Dialect, tombstones: Destination, to: Destination, columns: Sequence[Array], now_us: int) -> None:
    """Steps 2 and 3, after the rows of `columns` (in the order of ``to.names``) were upserted."""
    by_name = dict(zip(to.names, columns, strict=True))
    hashes = _hashes([by_name[name] for name in to.target.key])
    keys: list[Row] = list(zip(*(dialect.parameters(by_name[name]) for name in to.target.key), strict=True))
    system = to.target.system
    id_, active = dialect.quote(system.id), dialect.quote(system.active)
    where = " AND ".join(f"{dialect.quote(name)} = {PARAMETER}" for name in to.target.key)
    delete = f"DELETE FROM {dialect.table(to.target)} WHERE {where}"

    buried: dict[str, int] = dict(_buried(dialect, to, hashes))
    late = [(*key, buried[h]) for key, h in zip(keys, hashes, strict=True) if h in buried]
    if late:
        dialect.run(f"{delete} AND {id_} < {PARAMETER}", late)

    deleted = [row for row, is_active in enumerate(by_name[system.active].to_pylist()) if not is_active]
    if deleted:
        names = pa.array([to.target.name] * len(deleted), pa.utf8())
        stones = pa.array([hashes[row] for row in deleted], pa.utf8())
        ids = by_name[system.id].take(pa.array(deleted))
        never: Array = pa.repeat(pa.scalar(0, pa.int16()), len(deleted))
        dialect.upsert(tombstones, [names, stones, ids, _times(now_us, len(deleted)), never])
        dialect.run(f"{delete} AND {active} = 0", [keys[row] for row in deleted])


def _times(us: int, count: int) -> Array:
    times: Array = pa.repeat(pa.scalar(us, pa.timestamp("us", "UTC")), count)
    return times


def _hashes(key: Sequence[Array]) -> list[str]:
    texts = zip(*(to_text(column).to_pylist() for column in key), strict=True)
    return [hashlib.sha256(json.dumps(text).encode()).hexdigest() for text in texts]


def _buried(dialect: Dialect, to: Destination, hashes: Sequence[str]) -> Iterator[Row]:
    for start in range(0, len(hashes), _KEYS_PER_QUERY):
        part = hashes[start : start + _KEYS_PER_QUERY]
        table, key_hash, number = map(dialect.quote, ("table_name", "key_hash", ID))
        sql = (
            f"SELECT {key_hash}, {number} FROM {dialect.table(TARGET)} "
            f"WHERE {table} = {PARAMETER} AND {key_hash} IN ({', '.join([PARAMETER] * len(part))})"
        )
        yield from dialect.run(sql, [(to.target.name, *part)])
