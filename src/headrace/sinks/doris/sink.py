"""The Doris sink: a row becomes one row of a table with a unique key, and Doris itself keeps the newest change of each key.

::

    DATABASE.shop_orders       the key's columns, `_ums_id_`, `_ums_ts_`, `_is_active_`, all other columns;
                               UNIQUE KEY, merge on write, "function_column.sequence_col" = "_ums_id_"; one that is there already may
                               have "function_column.sequence_type" = "bigint" instead (sequence.py)
    DATABASE.headrace          name, revision, text: ``table:shop_orders`` -> its record (growing.py), ``position:[…]`` -> how far a flow is

Of two rows of a key Doris keeps the one with the larger `_ums_id_`, or the later one of the same, in whatever order they come, also when they
come again. So each change has its effect once, though a load may be done twice.

A soft delete is a row with `_is_active_` = 0. A hard delete carries Doris' delete sign with its `_ums_id_`: older changes lose against it until a
compaction removes it, and then an older change that comes late would be seen.

Crash story. A load is visible as a whole or not at all, and settled before the next one (delivery.py); the position is loaded behind the
rows that it speaks of. So it is never newer than they are, and what was loaded behind it is loaded again. What becomes of rows when
columns change, and when that is broken off: growing.py; a row that is filled is loaded with its own id, so a newer change wins.
Transactions of the source are not visible as one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DataError
from headrace.sinks import growing
from headrace.sinks.base import Capabilities, Places, Position, refuse_names, refuse_types, require_key
from headrace.sinks.doris.cluster import Cluster
from headrace.sinks.doris.columns import cell, cells, column_of, default, kind_of, lines
from headrace.sinks.doris.loads import Loads
from headrace.sinks.doris.sql import Row, Sql, quoted
from headrace.sinks.doris.tables import DorisConfig, Tables, column_name, refuse_columns
from headrace.sinks.growing import Kinds, Record, Records
from headrace.sinks.growing_sink import GrowingSink
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import ID, TS, TableSchema
from headrace.ums.values import Array, to_text

_SIGN = "__DORIS_DELETE_SIGN__"
_TELL_APART = "tell them apart in `table`, for instance with '{source}_{schema}_{table}'"


class DorisSink(GrowingSink):
    """One client of one cluster."""

    Config = DorisConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=True, remembers_position=True, scans=True)

    def __init__(self, config: DorisConfig, flow: str) -> None:
        super().__init__(config.batch_rows, _TELL_APART)
        self._config = config
        self._flow = flow
        self._sql = Sql(config, config.database)
        self._loads = Loads(Cluster(config), config.database, flow, config.give_up_after)
        self._tables = Tables(config, self._sql, self._loads)
        self._names = config.system_columns
        self._asked: set[str] = set()
        """Names of positions whose revision is known."""
        self.commit_interval_s = config.commit_interval

    # --- the contract

    def prepare(self, table: TableSchema) -> None:
        for check in self._checks(table, self._places):
            check()
        self.flush()
        self._records[table.namespace] = self._settled(table)

    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], object]]:
        return [
            partial(require_key, table, "a Doris target"),
            partial(growing.refuse_policy, self._config.on_change, "a Doris target"),
            partial(refuse_names, table, (*self._names.of_rows, _SIGN)),
            partial(refuse_types, table),
            partial(refuse_columns, table),
            partial(self._claim, places, table),
        ]

    def _claim(self, places: Places, table: TableSchema) -> None:
        places.take(self._tables.place(table), table, f"the table {self._tables.name(table)}")

    def _rehearse(self, table: TableSchema) -> None:
        growing.grown(self._tables.known(table), table, _kinds(table), self._config.on_change, self._names)
        self._tables.refuse_table(table)

    def flush(self) -> None:
        for batch in self._take():
            self._send(batch)

    def clear(self, clear: Clear) -> None:
        self.flush()
        record = growing.cleared(self._tables, clear.table, clear)
        self._records[clear.table.namespace] = record
        self._tables.make(clear.table, record)
        ts = to_text(pa.array([clear.commit_ts_us], pa.int64()).view(pa.timestamp("us")))[0].as_py()
        id_, ts_, active = self._names.of_rows
        said = {id_: str(record.cleared), ts_: ts, active: "0"} | self._sign("1")
        where = f"{quoted(active)} = 1 AND {quoted(id_)} < {record.cleared}"
        self._tables.rewrite(clear.table, record, where, {}, said)

    def commit(self, position: Position) -> None:
        self.flush()
        name = self._position_name(position.topic, position.partition)
        if name not in self._asked:
            self._tables.kept(name)
            self._asked.add(name)
        self._tables.keep(name, json.dumps(asdict(position)))

    def check(self) -> None:
        growing.refuse_policy(self._config.on_change, "a Doris target")
        self._loads.check()
        self._sql.run("SELECT 1")

    def position(self, topic: str, partition: int) -> Position | None:
        name = self._position_name(topic, partition)
        found = self._tables.kept(name)
        self._asked.add(name)
        return None if found is None else Position(**json.loads(found))

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        record = self._tables.read(table)
        yield _batch([], table, record)
        placed = [quoted(column_name(place.name)) for _, place in record.placed(table)]
        name, active = quoted(self._tables.name(table)), quoted(self._names.active)
        for page in self._sql.pages(f"SELECT {', '.join(placed)} FROM {name} WHERE {active} = 1"):
            yield _batch(page, table, record)

    def close(self) -> None:
        super().close()
        self._sql.close()

    # --- rows

    @property
    def _kept(self) -> Records:
        return self._tables

    def _settled(self, table: TableSchema) -> Record:
        record = growing.settled(self._tables, table, _kinds(table), self._config.on_change, self._names)
        self._tables.make(table, record)
        return record

    def _put(self, batch: ChangeBatch, record: Record) -> None:
        if not len(batch):
            return
        if len(batch) > 1 and batch.data.nbytes > self._config.batch_bytes:
            half = len(batch) // 2
            self._put(ChangeBatch(batch.table, batch.data.slice(0, half)), record)
            self._put(ChangeBatch(batch.table, batch.data.slice(half)), record)
            return
        columns = self._columns(batch, record)
        name = self._tables.name(batch.table)
        self._loads.send(name, self._tables.headers(name, [column for column, _ in columns]), lines(columns))

    def _columns(self, batch: ChangeBatch, record: Record) -> list[tuple[str, Array | str]]:
        data = batch.data
        deletes = is_delete(data)
        active: Array = pc.if_else(deletes, pa.scalar("0"), pa.scalar("1"))
        parts: list[tuple[str, Array | str]] = [
            (self._names.id, cells(data.column(ID), "bigint")),
            (self._names.ts, cells(data.column(TS), "datetime(6)")),
            (self._names.active, active),
        ]
        parts += [
            (column_name(place.name), cells(data.column(column.name), place.kind))
            for column, place in record.placed(batch.table)
        ]
        parts += [
            (column_name(place.name), cell(default(place.default, place.kind)))
            for place in record.later(batch.table).values()
        ]
        signs: Array = pc.if_else(deletes, pa.scalar("1"), pa.scalar("0"))
        return [*parts, *((name, signs) for name in self._sign("1"))]

    def _sign(self, value: str) -> dict[str, str]:
        return {_SIGN: value} if self._config.delete == "hard" else {}

    def _position_name(self, topic: str, partition: int) -> str:
        return f"position:{json.dumps([self._config.table, self._flow, topic, partition])}"


def _kinds(table: TableSchema) -> Kinds:
    return partial(kind_of, keys=frozenset(table.key_identities))


def _batch(rows: Sequence[Row], table: TableSchema, record: Record) -> pa.RecordBatch:
    """Rows whose values stand in the order of `Record.placed`."""
    at = {column.name: (n, place.kind) for n, (column, place) in enumerate(record.placed(table))}
    arrays = []
    for column in table.columns:
        n, kind = at.get(column.name, (-1, ""))
        try:
            arrays.append(column_of([None if n < 0 else row[n] for row in rows], column, kind))
        except (ValueError, ArithmeticError) as error:
            raise DataError(
                f"rows of {table.namespace.all_versions}, column '{column.name}': a value is not {column.type}: {error}",
                fix="correct the value in the target, or drop the table and load it again",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in table.columns])
