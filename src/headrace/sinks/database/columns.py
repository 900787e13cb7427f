"""What a target has of its sources, in the target itself: table ``_headrace_columns``, one row per target and table of a source.

``known`` says which column of the target holds which column of the source. Those are known by their identity (`Column.identity`), so a
rename is seen however many versions lie between, also by a run that starts later, and a change of an older version still finds its
place. ``cleared`` is the id of the newest clear of that source: its rows with a smaller `_ums_id_` are gone, those that are there and those
that come later (rows of a full load, which were read before the table was cleared).

Why no row is written by names that hold no more, and none slips through a clear, whoever else delivers into the target (a lane of a full
load, say): whoever writes rows holds a share of the lock on its row here until the commit, from before it looks at ``cleared`` and at
`_ums_id_`; when that is not the one that it knows, it finds its columns anew. Who clears changes the row before it looks for rows. So a
writer comes before the clear, which then sees its rows, or behind it, and then sees its id. Who shapes the table changes the rows of all
its sources before the first statement and so waits until all writers have committed. MySQL ends a transaction with each ALTER; so that
first change says that the target is being changed, and writers who come between two statements try again later. The last change says
that it is done.

What a crash leaves half done in MySQL stays marked so; the next `prepare` finds it by the names that the target has, but for columns
that exchange their names just then.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.sinks.database.dialect import PARAMETER, Destination, Dialect, Row, Target, own_row_gone
from headrace.ums.change import Clear
from headrace.ums.schema import ID, Column, TableSchema

TARGET = Target(
    "_headrace_columns",
    (
        Column("table_name", pa.utf8(), "varchar(200)"),
        Column("source", pa.utf8(), "varchar(500)"),
        Column("known", pa.utf8(), "text"),
        Column("cleared", pa.int64(), "bigint"),
        Column("is_changing", pa.int16(), "smallint"),
    ),
    ("table_name", "source"),
)
_BEFORE_ALL = -(1 << 63)


@dataclass(frozen=True)
class Known:
    """What is known of one source's columns in a target: nothing before its first version."""

    source: str
    """The table of the source, ``type.source.schema.table``."""
    newest: TableSchema | None = None
    """Its newest version that has shaped the target."""
    names: dict[str, str] = field(default_factory=dict)
    """Folded identity -> column of the target, of all columns that have one."""

    @property
    def version(self) -> int:
        """That of `newest`; -1 when there is none."""
        return -1 if self.newest is None else self.newest.namespace.version

    def text(self) -> str:
        """As the column ``known``."""
        schema = None if self.newest is None else self.newest.arrow_schema().serialize().to_pybytes()
        newest = None if schema is None else base64.b64encode(schema).decode()
        return json.dumps({"newest": newest, "names": self.names}, ensure_ascii=False)

    @classmethod
    def of(cls, source: str, text: str) -> Known:
        found = json.loads(text)
        schema = None if found["newest"] is None else base64.b64decode(found["newest"])
        newest = None if schema is None else TableSchema.from_arrow(pa.ipc.read_schema(pa.py_buffer(schema)))
        return cls(source, newest, found["names"])


@dataclass(frozen=True)
class Memory:
    """What is known of a target: of the source that asks, and of others that share it."""

    own: Known
    others: tuple[Known, ...] = ()
    number: int = 0
    """How often the row of the source that asks was changed."""
    is_changing: bool = False
    """Somebody is shaping the target, or died when he did."""
    is_kept: bool = False
    """There is a row of the source that asks."""


def find(dialect: Dialect, to: Destination, table: str, source: str, *, is_held: bool = False) -> Memory:
    """What is known of a target; nobody changes it until the next commit when it `is_held`."""
    wanted = ", ".join(map(dialect.quote, ("source", "known", "is_changing", ID)))
    where = f"{dialect.quote('table_name')} = {PARAMETER} ORDER BY {dialect.quote('source')}"
    hint, lock = (dialect.lock_hint, dialect.share_lock) if is_held else ("", "")
    sql = f"SELECT {wanted} FROM {dialect.table(to.target)}{hint} WHERE {where}{lock}"
    rows = {row[0]: row[1:] for row in dialect.run(sql, [(table,)])}
    others = tuple(Known.of(name, row[0]) for name, row in rows.items() if name != source)
    if source not in rows:
        return Memory(Known(source), others)
    text, is_changing, number = rows[source]
    return Memory(Known.of(source, text), others, int(number), bool(is_changing), is_kept=True)


def keep(dialect: Dialect, to: Destination, table: str, source: str) -> None:
    """Makes the row that is locked, safe to race, and commits."""
    dialect.upsert(
        to,
        [
            pa.array([table], pa.utf8()),
            pa.array([source], pa.utf8()),
            pa.array([Known(source).text()], pa.utf8()),
            pa.array([_BEFORE_ALL], pa.int64()),
            pa.array([0], pa.int16()),
            pa.array([0], pa.int64()),
            pa.array([0], pa.timestamp("us", "UTC")),
            pa.array([1], pa.int16()),
        ],
    )
    dialect.commit()


def begin(dialect: Dialect, table: str) -> None:
    """The target is shaped from now on; returns when all who wrote rows have committed."""
    number = dialect.quote(ID)
    changes = f"{dialect.quote('is_changing')} = 1, {number} = {number} + 1"
    _update(dialect, changes, f"{dialect.quote('table_name')} = {PARAMETER}", [(table,)])


def end(dialect: Dialect, table: str, known: Sequence[Known]) -> None:
    """The target is shaped, and this is known of its sources."""
    rows = [(one.text(), table, one.source) for one in known]
    number = dialect.quote(ID)
    changes = f"{dialect.quote('known')} = {PARAMETER}, {dialect.quote('is_changing')} = 0, {number} = {number} + 1"
    _update(dialect, changes, _of_source(dialect), rows)


def hold(dialect: Dialect, table: str, source: str) -> tuple[int, int]:
    """`Memory.number` and the id of the newest clear, which nobody changes until the next commit; RetryableError when there is no row."""
    wanted = f"{dialect.quote(ID)}, {dialect.quote('cleared')}"
    sql = f"SELECT {wanted} FROM {dialect.table(TARGET)}{dialect.lock_hint} WHERE {_of_source(dialect)}{dialect.share_lock}"
    for number, cleared in dialect.run(sql, [(table, source)]):
        return int(number), int(cleared)
    raise own_row_gone(TARGET, table)


def clear(dialect: Dialect, table: str, clear: Clear) -> None:
    """Remembers the id of a clear; nobody writes rows of that source until the next commit."""
    row = (clear.id, table, clear.table.namespace.all_versions, clear.id)
    cleared = dialect.quote("cleared")
    _update(dialect, f"{cleared} = {PARAMETER}", f"{_of_source(dialect)} AND {cleared} < {PARAMETER}", [row])


def _of_source(dialect: Dialect) -> str:
    return f"{dialect.quote('table_name')} = {PARAMETER} AND {dialect.quote('source')} = {PARAMETER}"


def _update(dialect: Dialect, changes: str, where: str, rows: Sequence[Row]) -> None:
    dialect.run(f"UPDATE {dialect.table(TARGET)} SET {changes} WHERE {where}", rows)
