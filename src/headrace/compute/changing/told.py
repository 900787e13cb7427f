"""What has been told of a computed table: its rows as they are on the log, and how they come to be others.

A round compares what the SQL answers now with what was told, key by key, and the difference is what is told next: a key that is new is an insert, one
with another row an update, one that is gone a delete. So nothing is told twice, and whoever has read everything that was told has the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.compute.changing.windows import END
from headrace.compute.columns import computed, values
from headrace.compute.engine import Engine
from headrace.compute.steps import quoted
from headrace.errors import ConfigError, DataError
from headrace.ums.change import DELETE, INSERT, UPDATE, ChangeBatch, Clear, End, is_delete
from headrace.ums.schema import SYSTEM_FIELDS, Namespace, TableSchema
from headrace.ums.values import Array

_TOLD = "told"
_ROWS_OF_A_BATCH = 65_536
DIFFERENCE = "_headrace_op_"
"""The column of a difference that says what is to be told of a row."""


def answered(engine: Engine, sql: str, namespace: Namespace, key: Sequence[str]) -> TableSchema:
    """The table that an SQL makes of the relations that are there. ConfigError when it does not fit them, or makes no table with that key."""
    schema = engine.rows(f"SELECT * FROM (\n{sql}\n) LIMIT 0", {}).schema
    if taken := [name for name in schema.names if name.casefold() in {field.name for field in SYSTEM_FIELDS}]:
        raise ConfigError(f"the SQL makes a column {taken[0]}, a name that headrace needs", fix="give it another by AS")
    missing = [name for name in key if name not in schema.names]
    if missing:
        raise ConfigError(
            f"the SQL makes no column {missing[0]}, which is of the `key`", fix=f"it makes {', '.join(schema.names)}"
        )
    columns = [replace(computed(field.name, field.type), nullable=field.name not in key) for field in schema]
    return TableSchema(namespace, tuple(columns), tuple(key))


class Told:
    """The rows that were told, in the state. Everything happens in the transaction that the engine is in."""

    def __init__(self, engine: Engine, table: TableSchema | None) -> None:
        self._engine = engine
        self.table = table

    def become(self, table: TableSchema) -> None:
        """Rows that were told are in the columns of another version from now on, as a target has them: new columns are null."""
        before = self.table
        self.table = table
        self._engine.put("CREATE OR REPLACE TABLE becoming AS FROM nothing", nothing=_empty(table))
        if before is not None:
            there = {column.name for column in before.columns}
            same = ", ".join(quoted(column.name) for column in table.columns if column.name in there)
            self._engine.run(f"INSERT INTO becoming BY NAME SELECT {same} FROM {_TOLD}")
            self._engine.run(f"DROP TABLE {_TOLD}")
        self._engine.run(f"ALTER TABLE becoming RENAME TO {_TOLD}")

    def follow(self, change: ChangeBatch | Clear | End) -> None:
        """What stands on the log was told."""
        table = change.successor if isinstance(change, End) else change.table
        if table != self.table:
            self.become(table)
        if isinstance(change, ChangeBatch):
            self._replay(change)

    def _replay(self, batch: ChangeBatch) -> None:
        newest = batch.newest_per_key()
        rows = pa.Table.from_batches([newest.data])
        self._engine.put(f"DELETE FROM {_TOLD} AS t USING changed AS c WHERE {self._same('t', 'c')}", changed=rows)
        there = pa.Table.from_batches([newest.data.filter(pa.compute.invert(is_delete(newest.data)))])
        self._engine.put(f"INSERT INTO {_TOLD} BY NAME SELECT {self._names('c')} FROM changed AS c", changed=there)

    def difference(self, answer: str, told: str = "TRUE") -> list[pa.RecordBatch]:
        """What is to be told now that the SQL answers this, and is told with it: rows of the table behind their operation.

        `told`: which of the rows that were told the answer is in the place of. DataError when rows of the answer have no key of their own.
        """
        assert self.table is not None
        self._engine.run(f"CREATE OR REPLACE TEMP TABLE answer AS FROM {_TOLD} LIMIT 0")
        self._engine.run(f"INSERT INTO answer BY NAME {answer}")
        self._require_keys()
        first = quoted(self.table.key[0])
        same = [f"a.{quoted(c.name)} IS NOT DISTINCT FROM t.{quoted(c.name)}" for c in self.table.columns]
        self._engine.run(
            f"""CREATE OR REPLACE TEMP TABLE changed AS
            SELECT CASE WHEN t.{first} IS NULL THEN '{INSERT}' ELSE '{UPDATE}' END AS {DIFFERENCE}, a.*
            FROM answer AS a LEFT JOIN {_TOLD} AS t ON {self._same("a", "t")}
            WHERE t.{first} IS NULL OR NOT ({" AND ".join(same)})
            UNION ALL
            SELECT '{DELETE}', t.* FROM {_TOLD} AS t ANTI JOIN answer AS a ON {self._same("a", "t")} WHERE {told}"""
        )
        self._engine.run(f"DELETE FROM {_TOLD} AS t USING changed AS c WHERE {self._same('t', 'c')}")
        self._engine.run(
            f"INSERT INTO {_TOLD} SELECT {self._names('c')} FROM changed AS c WHERE {DIFFERENCE} <> '{DELETE}'"
        )
        return self._engine.rows("FROM changed", {}).combine_chunks().to_batches(_ROWS_OF_A_BATCH)

    def pass_by(self, bound_us: int) -> None:
        """Rows that end at a time or before are final: nothing will be compared with them."""
        if self.table is not None:
            self._engine.run(f"DELETE FROM {_TOLD} WHERE epoch_us({END}) <= {bound_us}")

    def count(self) -> int:
        """How many rows there are."""
        return 0 if self.table is None else int(self._engine.value(f"SELECT count(*) FROM {_TOLD}"))

    def _require_keys(self) -> None:
        assert self.table is not None
        keys = ", ".join(map(quoted, self.table.key))
        null = " OR ".join(f"{quoted(name)} IS NULL" for name in self.table.key)
        found = self._engine.run(
            f"SELECT count(*), {keys} FROM answer GROUP BY ALL HAVING count(*) > 1 OR {null} LIMIT 1"
        )
        for rows, *key in found:
            named = ", ".join(f"{name}={value}" for name, value in zip(self.table.key, key, strict=True))
            if None in key:
                raise DataError(
                    f"the SQL makes a row whose key is null: {named}",
                    fix="leave such rows out (WHERE … IS NOT NULL) or give them a value (coalesce), and a new name to the source",
                )
            raise DataError(
                f"the SQL makes {rows} rows with the key {named}",
                fix="name the columns that tell its rows apart in `key`, or aggregate, and give the source a new name",
            )

    def _names(self, of: str) -> str:
        assert self.table is not None
        return ", ".join(f"{of}.{quoted(column.name)}" for column in self.table.columns)

    def _same(self, one: str, other: str) -> str:
        assert self.table is not None
        return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in self.table.key)


def as_changes(table: TableSchema, rows: pa.RecordBatch, first_id: int, time_us: int) -> ChangeBatch:
    """Rows that are to be told as changes, with ids that count up: of a difference by what it says of each, others as new."""
    count = rows.num_rows
    ids = pa.array(range(first_id, first_id + count), pa.int64())
    times = pa.repeat(pa.scalar(time_us, pa.timestamp("us", "UTC")), count)
    ops = rows.column(DIFFERENCE).cast(pa.utf8()) if DIFFERENCE in rows.schema.names else pa.repeat(INSERT, count)
    system: list[Array] = [ids, times, ops, times, pa.nulls(count, pa.utf8())]
    columns = [values(pa.chunked_array([rows.column(c.name)]), c.type) for c in table.columns]
    return ChangeBatch(table, pa.RecordBatch.from_arrays([*system, *columns], schema=table.arrow_schema()))


def _empty(table: TableSchema) -> pa.Table:
    return pa.schema([pa.field(column.name, column.type) for column in table.columns]).empty_table()
