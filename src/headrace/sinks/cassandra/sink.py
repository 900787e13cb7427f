"""The Cassandra sink: a row becomes one row, a table one table, and Cassandra itself keeps the newest change of each cell.

::

    KEYSPACE.shop_orders              the source's columns, "_ums_id_", "_ums_ts_" (to the millisecond), "_is_active_"
    KEYSPACE.headrace_records         name of a table -> its record (growing.py); ``lock`` while a table is made or gets a column
    KEYSPACE.headrace_positions       flow, place, topic and partition -> position

Every cell is written USING TIMESTAMP `_ums_id_` + 2^62, so the order in which changes arrive does not matter: the cell with the larger one
stays. 2^62 is more than any clock says in microseconds, so that what somebody writes by hand does not hide later changes; it does not stay
either. NULL is written as well (a tombstone), else the value of an older change would be seen.

A soft delete writes `_is_active_` = 0 with id and time, and the values stay. A hard delete is Cassandra's own, USING TIMESTAMP, and hides what is
older, or of its own id, until the table's `gc_grace_seconds` (`tombstones`) are over: an older change that comes later than that would be seen.

Crash story. Each write may be repeated, and a position is written after the rows that it speaks of, by the same consistency: it is never
newer than they are. What becomes of rows when columns change, and when that is broken off: growing.py. Here filling a row writes with the
timestamp of the change that the row is of, so a newer change wins, and NULL of the same change, a tombstone, wins as well. Transactions of the
source are not visible as one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DataError
from headrace.sinks import growing
from headrace.sinks.base import Capabilities, Places, Position, refuse_names, refuse_types, require_key
from headrace.sinks.cassandra.columns import column_of, converted, default, kind_of, selected, values_of
from headrace.sinks.cassandra.session import CassandraSession
from headrace.sinks.cassandra.tables import PAGE, POSITIONS, SHIFT, CassandraConfig, Tables, insert_into, quoted
from headrace.sinks.growing import Record, Records
from headrace.sinks.growing_sink import GrowingSink
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import ID, TS, TableSchema
from headrace.ums.values import micros

_GATHERED_ROWS = 20_000
_TELL_APART = "tell them apart in `table`, for instance with '{source}_{schema}_{table}'"


class CassandraSink(GrowingSink):
    """One session of one cluster."""

    Config = CassandraConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=True, remembers_position=True, scans=True)

    def __init__(self, config: CassandraConfig, flow: str) -> None:
        super().__init__(_GATHERED_ROWS, _TELL_APART)
        self._config = config
        self._flow = flow
        self._session = CassandraSession(config, config.keyspace)
        self._tables = Tables(config, self._session)
        self._names = config.system_columns

    # --- the contract

    def prepare(self, table: TableSchema) -> None:
        for check in self._checks(table, self._places):
            check()
        self.flush()
        with self._session.errors():
            self._tables.open()
            self._records[table.namespace] = self._settled(table)

    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], object]]:
        return [
            partial(require_key, table, "a Cassandra target"),
            partial(growing.refuse_policy, self._config.on_change, "a Cassandra target"),
            partial(refuse_names, table, self._names.of_rows),
            partial(refuse_types, table),
            partial(self._tables.refuse_partition, table),
            partial(self._claim, places, table),
        ]

    def _claim(self, places: Places, table: TableSchema) -> None:
        places.take(self._tables.name(table), table, f"the table {self._tables.name(table)}")

    def _rehearse(self, table: TableSchema) -> None:
        with self._session.errors():
            record = self._tables.known(table)
            self._tables.refuse_columns(
                table, growing.grown(record, table, kind_of, self._config.on_change, self._names)
            )

    def flush(self) -> None:
        with self._session.errors():
            for batch in self._take():
                self._send(batch)

    def clear(self, clear: Clear) -> None:
        self.flush()
        with self._session.errors():
            record = growing.cleared(self._tables, clear.table, clear)
            self._records[clear.table.namespace] = record
            self._end_rows(clear.table, record)

    def commit(self, position: Position) -> None:
        self.flush()
        with self._session.errors():
            self._tables.open()
            name = self._position_name(position.topic, position.partition)
            self._session.run(
                f"INSERT INTO {POSITIONS} (name, text) VALUES (?, ?)", (name, json.dumps(asdict(position)))
            )

    def check(self) -> None:
        growing.refuse_policy(self._config.on_change, "a Cassandra target")
        with self._session.errors():
            self._tables.must_have_keyspace()

    def position(self, topic: str, partition: int) -> Position | None:
        with self._session.errors():
            self._tables.open()
            found = self._session.run(
                f"SELECT text FROM {POSITIONS} WHERE name = ?", (self._position_name(topic, partition),)
            )
        return Position(**json.loads(found[0].text)) if found else None

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        with self._session.errors():
            self._tables.open()
            record = self._tables.read(table)
            yield _batch([], table, record)
            placed = [selected(quoted(place.name), place.kind) for _, place in record.placed(table)]
            names = ", ".join([quoted(self._names.active), *placed])
            for page in self._session.pages(f"SELECT {names} FROM {self._tables.name(table)}", PAGE):
                live = [row[1:] for row in page if row[0] == 1]
                if live:
                    yield _batch(live, table, record)

    def close(self) -> None:
        super().close()
        self._session.close()

    # --- rows

    @property
    def _kept(self) -> Records:
        return self._tables

    def _settled(self, table: TableSchema) -> Record:
        return growing.settled(self._tables, table, kind_of, self._config.on_change, self._names)

    def _put(self, batch: ChangeBatch, record: Record) -> None:
        deletes = is_delete(batch.data)
        self._insert(ChangeBatch(batch.table, batch.data.filter(pc.invert(deletes))), record)
        self._delete(ChangeBatch(batch.table, batch.data.filter(deletes)), record)

    def _insert(self, batch: ChangeBatch, record: Record) -> None:
        if not len(batch):
            return
        values: dict[str, Sequence[Any]] = {name: [None] * len(batch) for name in record.fields()}
        for column, place in record.placed(batch.table):
            values[place.name] = values_of(batch.data.column(column.name), place.kind)
        for identity, place in record.later(batch.table).items():
            values[place.name] = [default(place.default, place.kind, record.types[identity])] * len(batch)
        values |= self._said(batch, 1)
        self._session.write(insert_into(self._tables.name(batch.table), values), _rows(values, batch))

    def _delete(self, batch: ChangeBatch, record: Record) -> None:
        if not len(batch):
            return
        places = {column.name: place for column, place in record.placed(batch.table)}
        key = {places[name].name: values_of(batch.data.column(name), places[name].kind) for name in batch.table.key}
        table = self._tables.name(batch.table)
        if self._config.delete == "soft":
            values = key | self._said(batch, 0)
            self._session.write(insert_into(table, values), _rows(values, batch))
            return
        where = " AND ".join(f"{quoted(name)} = ?" for name in key)
        rows = zip(_timestamps(batch), *key.values(), strict=True)
        self._session.write(f"DELETE FROM {table} USING TIMESTAMP ? WHERE {where}", list(rows))

    def _end_rows(self, table: TableSchema, record: Record) -> None:
        """Ends the rows that are older than the record's clear."""
        assert record.cleared is not None
        name, key = self._tables.name(table), [record.places[identity] for identity in record.key]
        columns = ", ".join(
            [quoted(self._names.id), quoted(self._names.active), *(selected(quoted(p.name), p.kind) for p in key)]
        )
        keys = [quoted(place.name) for place in key]
        ended: list[Any] = [record.cleared, record.cleared_us // 1000, 0]
        for page in self._session.pages(f"SELECT {columns} FROM {name}", PAGE):
            old = [
                [converted(value, place.kind, place.kind) for place, value in zip(key, row[2:], strict=True)]
                for row in page
                if row[1] == 1 and row[0] < record.cleared
            ]
            if self._config.delete == "soft":
                insert = insert_into(name, [*(place.name for place in key), *self._names.of_rows])
                self._session.write(insert, [[*row, *ended, record.cleared + SHIFT] for row in old])
            else:
                where = " AND ".join(f"{one} = ?" for one in keys)
                delete = f"DELETE FROM {name} USING TIMESTAMP ? WHERE {where}"
                self._session.write(delete, [[record.cleared + SHIFT, *row] for row in old])

    def _said(self, batch: ChangeBatch, active: int) -> dict[str, Sequence[Any]]:
        us: list[Any] = micros(batch.data.column(TS)).to_pylist()
        said: tuple[list[Any], ...] = (
            batch.data.column(ID).to_pylist(),
            [one // 1000 for one in us],
            [active] * len(batch),
        )
        return dict(zip(self._names.of_rows, said, strict=True))

    def _position_name(self, topic: str, partition: int) -> str:
        return json.dumps([self._config.table, self._flow, topic, partition])


def _timestamps(batch: ChangeBatch) -> list[int]:
    if batch.id_range[1] >= SHIFT:
        raise DataError(
            f"{batch.table.namespace.all_versions} has the id {batch.id_range[1]}, larger than a Cassandra target takes",
            fix="leave the table out of this flow",
        )
    ids: list[Any] = batch.data.column(ID).to_pylist()
    return [id_ + SHIFT for id_ in ids]


def _rows(values: dict[str, Sequence[Any]], batch: ChangeBatch) -> list[Sequence[Any]]:
    return list(zip(*values.values(), _timestamps(batch), strict=True))


def _batch(rows: Sequence[Sequence[Any]], table: TableSchema, record: Record) -> pa.RecordBatch:
    """Rows whose values stand in the order of `Record.placed`."""
    at = {column.name: (n, place.kind) for n, (column, place) in enumerate(record.placed(table))}
    arrays = []
    for column in table.columns:
        n, kind = at.get(column.name, (-1, ""))
        try:
            arrays.append(column_of([None if n < 0 else row[n] for row in rows], column, kind))
        except (ValueError, ArithmeticError, TypeError) as error:
            raise DataError(
                f"rows of {table.namespace.all_versions}, column '{column.name}': a value is not {column.type}: {error}",
                fix="correct the value in the target, or drop the table and load it again",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in table.columns])
