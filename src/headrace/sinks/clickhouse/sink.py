"""The ClickHouse sink: a row becomes one row, a table one table, and ClickHouse itself keeps the newest change of each key.

::

    orders                  the source's columns, _ums_id_, _ums_ts_, _is_active_; ReplacingMergeTree(_ums_id_), ORDER BY the key
    headrace_record.orders.7    the record of the table (growing.py, tables.py)
    headrace_positions      flow, topic and partition -> position; ReplacingMergeTree(next_offset)

Nothing is read before it is written: each commit adds a part, and when parts are merged, or are read with FINAL, of the rows of one key that with
the largest `_ums_id_` stays, of equal ones that which was inserted last. The version column is signed, so the negative ids of a full
load are older than every change without being shifted (docs/decisions/0030-clickhouse-duckdb-avro.md). Without FINAL a reader may see older rows of a
key until they are merged.

A delete writes `_is_active_` = 0 with id, time and the values before it.

Crash story. Each write may be repeated, and a position is written after the rows that it speaks of, which are on the disk by then: it is never
newer than they are. What becomes of rows when columns change, and when that is broken off: growing.py. Transactions of the source
are not visible as one; those of one table that are gathered together are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DataError
from headrace.sinks import growing
from headrace.sinks.base import Capabilities, Places, Position, refuse_names, refuse_types, require_key
from headrace.sinks.clickhouse.columns import array_of, column_of, default, kind_of, quoted_text
from headrace.sinks.clickhouse.server import Server
from headrace.sinks.clickhouse.tables import POSITIONS, ClickHouseConfig, Tables, quoted
from headrace.sinks.growing import Kinds, Record, Records
from headrace.sinks.growing_sink import GrowingSink
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import ID, TS, TableSchema
from headrace.ums.values import Array

_TELL_APART = "tell them apart in `table`, for instance with '{schema}_{table}'"


class ClickHouseSink(GrowingSink):
    """One connection to one database."""

    Config = ClickHouseConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=True, remembers_position=True, scans=True)

    def __init__(self, config: ClickHouseConfig, flow: str) -> None:
        super().__init__(config.batch_rows, _TELL_APART)
        self.commit_interval_s = config.commit_interval
        self._config = config
        self._flow = flow
        self._server = Server(config)
        self._tables = Tables(config, self._server)
        self._names = config.system_columns
        self._has_positions = False

    # --- the contract

    def prepare(self, table: TableSchema) -> None:
        for check in self._checks(table, self._places):
            check()
        self.flush()
        with self._server.errors():
            self._records[table.namespace] = self._settled(table)

    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], object]]:
        return [
            partial(require_key, table, "a ClickHouse target"),
            partial(growing.refuse_policy, self._config.on_change, "a ClickHouse target"),
            partial(refuse_names, table, self._names.of_rows),
            partial(refuse_types, table),
            partial(self._claim, places, table),
        ]

    def _claim(self, places: Places, table: TableSchema) -> None:
        name = self._tables.name(table)
        places.take(name, table, f"the table {name}")

    def _rehearse(self, table: TableSchema) -> None:
        with self._server.errors():
            record = self._tables.read(table)
            grown = growing.grown(record, table, _kinds(table), self._config.on_change, self._names)
            self._tables.refuse_columns(table, grown)

    def flush(self) -> None:
        # A part for each table, not for each time that it had its turn in the log.
        self._gathered.sort(key=lambda batch: str(batch.table.namespace))
        with self._server.errors():
            for batch in self._take():
                self._send(batch)

    def clear(self, clear: Clear) -> None:
        self.flush()
        with self._server.errors():
            record = growing.cleared(self._tables, clear.table, clear)
            self._records[clear.table.namespace] = record
            self._end_rows(clear.table, record)

    def commit(self, position: Position) -> None:
        self.flush()
        with self._server.errors():
            self._make_positions()
            self._server.insert(POSITIONS, _position_row(self._flow, position))

    def check(self) -> None:
        growing.refuse_policy(self._config.on_change, "a ClickHouse target")
        with self._server.errors():
            self._server.select("SELECT 1")

    def position(self, topic: str, partition: int) -> Position | None:
        with self._server.errors():
            self._make_positions()
            found = self._server.select(
                f"SELECT next_offset, mark_id, commit_ts_us FROM {POSITIONS} FINAL"
                f" WHERE flow = {quoted_text(self._flow)} AND topic = {quoted_text(topic)} AND part = {partition}"
            ).to_pylist()
        return Position(topic, partition, *found[0].values()) if found else None

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        with self._server.errors():
            record = self._tables.read(table)
            yield _batch(None, table, record)
            fields = ", ".join(quoted(place.name) for _, place in record.placed(table))
            name, active = quoted(self._tables.name(table)), quoted(self._names.active)
            for rows in self._server.stream(f"SELECT {fields} FROM {name} FINAL WHERE {active} = 1"):
                yield _batch(rows, table, record)

    def close(self) -> None:
        super().close()
        self._server.close()

    # --- rows

    @property
    def _kept(self) -> Records:
        return self._tables

    def _settled(self, table: TableSchema) -> Record:
        record = growing.settled(self._tables, table, _kinds(table), self._config.on_change, self._names)
        self._tables.ensure(table, record)  # who put it in place may have died before
        return record

    def _put(self, batch: ChangeBatch, record: Record) -> None:
        if not len(batch):
            return
        values: dict[str, Array] = {
            place.name: array_of(batch.data.column(column.name), place.kind)
            for column, place in record.placed(batch.table)
        }
        for place in record.later(batch.table).values():
            values[place.name] = pa.repeat(default(place.default or "", place.kind)[0], len(batch))
        values[self._names.id], values[self._names.ts] = batch.data.column(ID), batch.data.column(TS)
        values[self._names.active] = pc.cast(pc.invert(is_delete(batch.data)), pa.int8())
        self._server.insert(quoted(self._tables.name(batch.table)), pa.table(values))

    def _end_rows(self, table: TableSchema, record: Record) -> None:
        """Rows that are older than the record's clear get a newer one with `_is_active_` = 0."""
        name, fields = quoted(self._tables.name(table)), ", ".join(map(quoted, record.fields()))
        id_, ts_, active = map(quoted, self._names.of_rows)
        self._server.run(
            f"INSERT INTO {name} ({fields}, {id_}, {ts_}, {active})"
            f" SELECT {fields}, {record.cleared}, fromUnixTimestamp64Micro({record.cleared_us}, 'UTC'), 0"
            f" FROM {name} FINAL WHERE {id_} < {record.cleared} AND {active} = 1"
        )

    def _make_positions(self) -> None:
        if not self._has_positions:
            self._tables.make_positions()
            self._has_positions = True


def _kinds(table: TableSchema) -> Kinds:
    return lambda column, held: kind_of(column, held, in_key=column.name in table.key)


def _position_row(flow: str, position: Position) -> pa.Table:
    return pa.table(
        {
            "flow": [flow],
            "topic": [position.topic],
            "part": [position.partition],
            "next_offset": [position.offset],
            "mark_id": [position.id],
            "commit_ts_us": [position.commit_ts_us],
        }
    )


def _batch(rows: pa.RecordBatch | None, table: TableSchema, record: Record) -> pa.RecordBatch:
    """Rows whose columns stand in the order of `Record.placed`, as the version has them; what the target lacks is null."""
    at = {column.name: n for n, (column, _) in enumerate(record.placed(table))}
    size = 0 if rows is None else rows.num_rows
    arrays: list[Array] = []
    for column in table.columns:
        if rows is None or column.name not in at:
            arrays.append(pa.array([None] * size, column.type))
            continue
        try:
            arrays.append(column_of(rows.column(at[column.name]), column))
        except (ValueError, ArithmeticError, TypeError) as error:
            raise DataError(
                f"rows of {table.namespace.all_versions}, column '{column.name}': a value is not {column.type}: {error}",
                fix="correct the value in the target, or drop the table and load it again",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in table.columns])
