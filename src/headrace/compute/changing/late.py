"""Rows that came behind the windows that they belong to: a table of its own beside the computed one, ``<table>_late``.

::

    source_table | source_id | over_at                             | event_time | is_deleted | contents
    namespace    | _ums_id_  | end of the window that was over;    | or null    | of a       | what the SQL needs of it, JSON
                 |           | the row's own time where it has none |            | delete     |

A row that is too late for some of its overlapping windows stands once for each of them, and counts in the others. One without a time belongs to nothing
(`over_at` 1970). So what a window lacks is in this table, and nothing is lost without a word; whoever has the result knows what to do
with it: a count is corrected by adding, a top-N is worked out anew.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.compute.changing.windows import Belonging
from headrace.compute.columns import computed
from headrace.compute.engine import Engine
from headrace.compute.steps import quoted
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import ID, Namespace, TableSchema

_LATE = "late"
_KNOWN = "known_late"
_KEY = ("source_table", "source_id", "over_at")
_COLUMNS = (
    ("source_table", pa.utf8()),
    ("source_id", pa.int64()),
    ("over_at", pa.timestamp("us")),
    ("event_time", pa.timestamp("us")),
    ("is_deleted", pa.bool_()),
    ("contents", pa.utf8()),
)
_ROWS_OF_A_BATCH = 65_536


def late_table(table: Namespace) -> TableSchema:
    """The table of late rows beside a computed one."""
    columns = tuple(replace(computed(name, kind), nullable=name not in _KEY) for name, kind in _COLUMNS)
    return TableSchema(replace(table, table=f"{table.table}_late", version=0), columns, _KEY)


class Late:
    """The late rows of a round, until they are told."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_catching_up = False

    def begin(self) -> None:
        """A round begins."""
        columns = ", ".join(f"{name} {_sql_type(kind)}" for name, kind in _COLUMNS)
        self._engine.run(f"CREATE OR REPLACE TEMP TABLE {_LATE} ({columns})")

    def catch_up(self) -> None:
        """What was late is known from now on (`know`), and judged by nothing else."""
        self._engine.run(f"CREATE OR REPLACE TEMP TABLE {_KNOWN} (family VARCHAR, id BIGINT)")
        self._is_catching_up = True

    def know(self, change: ChangeBatch) -> None:
        """These were told."""
        rows = pa.table([change.data.column(name) for name in _KEY[:2]], ["family", "id"])
        self._engine.put(f"INSERT INTO {_KNOWN} FROM fresh", fresh=rows)

    def caught_up(self) -> None:
        """The first round begins."""
        self._is_catching_up = False
        self.begin()

    def judged(self, family: str, belonging: Belonging, bound_us: int | None) -> str:
        """SQL: whether a row is too late for everything.

        Of rows that are taken a second time those were that were told so, whatever the bound was when they came. Rows of windows that are over by now are
        in none that is open, so of them the bound says it as well.
        """
        if self._is_catching_up and belonging.is_by_its_own_time:
            return f"{ID} IN (SELECT id FROM {_KNOWN} WHERE family = '{family}')"
        return belonging.late(bound_us)

    def add(self, family: str, belonging: Belonging, rows: str, names: dict[str, str], bound_us: int | None) -> None:
        """Takes those of some rows (a relation of SQL, with `is_deleted`) that are late. `names`: name -> identity of their columns."""
        members = ", ".join(f"{_text(name)}: {quoted(identity)}" for name, identity in names.items())
        row = f"to_json({{{members}}})::VARCHAR" if members else "'{}'"
        self._engine.run(
            f"""INSERT INTO {_LATE} SELECT '{family}', {ID}, make_timestamp(unnest({belonging.late_for(bound_us)})),
            make_timestamp({belonging.time}), is_deleted, {row} FROM {rows}"""
        )

    def rows(self) -> list[pa.RecordBatch]:
        """What is to be told."""
        names = ", ".join(quoted(name) for name, _ in _COLUMNS)
        return (
            self._engine.rows(f"SELECT {names} FROM {_LATE} ORDER BY ALL", {})
            .combine_chunks()
            .to_batches(_ROWS_OF_A_BATCH)
        )


def path(column: str) -> str:
    """SQL for where `contents` has a column."""
    escaped = column.replace("\\", "\\\\").replace('"', '\\"')
    return _text(f'$."{escaped}"')


def _sql_type(kind: pa.DataType) -> str:
    return {pa.utf8(): "VARCHAR", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN"}.get(kind, "TIMESTAMP")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
