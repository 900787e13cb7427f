"""Inputs of computed tables: changes of two tables put on a real log as a capture does, and what is told of a computed table read back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headrace.capture.base import Source
from headrace.capture.mask import Masker
from headrace.capture.partitions import Parts
from headrace.capture.runner import Captured, resume_point, run_capture
from headrace.codec.entries import EntryWriter
from headrace.compute.changing.config import SqlSourceConfig
from headrace.compute.changing.reading import told_on
from headrace.compute.changing.source import SqlSource
from headrace.errors import Finding
from headrace.log.base import EntryForm, Log
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.ums.change import ChangeBatch, Clear, End, Mark
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, Namespace, TableSchema

INPUT = "db1"
Row = dict[str, Any]


def table(name: str, *columns: tuple[str, pa.DataType], key: Sequence[str] = ("id",), version: int = 0) -> TableSchema:
    made = tuple(Column(column, kind, str(kind)) for column, kind in columns)
    return TableSchema(Namespace("mysql", INPUT, "shop", name, version), made, tuple(key))


ORDERS = table(
    "orders",
    ("id", pa.int64()),
    ("customer", pa.int64()),
    ("status", pa.utf8()),
    ("amount", pa.decimal128(12, 2)),
    ("placed", pa.timestamp("us")),
)
CUSTOMERS = table("customers", ("id", pa.int64()), ("region", pa.utf8()))


def batch(of: TableSchema, rows: Sequence[tuple[int, str, Row]]) -> ChangeBatch:
    """Changes: id, operation and values."""
    made = [{ID: id_, TS: id_, OP: op, COMMIT_TS: id_, RAW: None, **_full(of, row)} for id_, op, row in rows]
    return ChangeBatch(of, pa.RecordBatch.from_pylist(made, schema=of.arrow_schema()))


def _full(of: TableSchema, row: Row) -> Row:
    return {column.name: row.get(column.name) for column in of.columns}


@dataclass
class Writer:
    """Puts changes on the input's topic."""

    directory: Path
    partitions: int = 1
    id: int = 1000

    def transact(self, *changes: ChangeBatch | Clear | End, topic: str = INPUT, commit_us: int | None = None) -> None:
        """Changes and their mark, as one unit. `commit_us`: when they were committed; with their id when left out."""
        self.id += 1000
        parts = Parts(EntryWriter(EntryForm(), "mysql"), self.partitions)
        with closing(open_log(self.directory)) as log:
            unit = parts.of(changes, [], Mark(topic, {"n": self.id}, self.id, commit_us or self.id), now_ms=0)
            log.append_together(topic, unit)


def open_log(directory: Path) -> DirectoryLog:
    return DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))


@dataclass
class OnLog:
    """The upstream of a source in this process: everything that is on the log will have come."""

    directory: Path
    topics_: Sequence[str] = (INPUT,)
    tables: Sequence[TableSchema] = (ORDERS, CUSTOMERS)
    is_finite: bool = True
    low_us: Callable[[], int | None] | None = None

    def log(self) -> Log:
        return open_log(self.directory)

    def topics(self, log: Log) -> Sequence[str]:
        return self.topics_

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        yield from self.tables

    def end(self, topic: str, partition: int, now: int) -> int | None:
        return now


@dataclass
class Computed:
    """A computed table on a log in a directory."""

    directory: Path
    sql: str
    key: Sequence[str]
    inputs: dict[str, str] = field(
        default_factory=lambda: {"orders": "mysql.db1.shop.orders", "customers": "mysql.db1.shop.customers"}
    )
    options: Row = field(default_factory=dict)
    upstream: OnLog | None = None
    name: str = "made"

    @property
    def config(self) -> SqlSourceConfig:
        said = {"type": "sql", "name": self.name, "from": self.inputs, "sql": self.sql, "key": list(self.key)}
        return SqlSourceConfig.model_validate({**said, **self.options})

    @property
    def state(self) -> Path:
        return self.directory / "state" / self.name

    def source(self) -> SqlSource:
        source = SqlSource(self.config, self.state)
        source.read_from(self.upstream or OnLog(self.directory))
        return source

    def run(self, wrapped: Callable[[Source], Source] = lambda source: source) -> Captured:
        """Computes until nothing is left."""
        source = wrapped(self.source())
        with closing(open_log(self.directory)) as log, closing(source):
            return run_capture(
                source,
                log,
                self.name,
                Masker(self.config, None),
                source_type="sql",
                partitions=self.config.partitions,
                over=lambda: False,
                until_idle=True,
                backoff=Backoff(10),
                progress=lambda captured: None,
            )

    @contextmanager
    def rounds(self, source: SqlSource) -> Iterator[Callable[[], int]]:
        """A source that follows on, nothing of it put on the log; what is yielded does what is there and says how many changes that told."""
        with closing(open_log(self.directory)) as log:
            events = source.follow(resume_point(log, self.name))

        def advance() -> int:
            while True:
                event = next(events)
                if event.mark is not None:
                    source.confirm(event.mark)
                if event.changes:
                    return sum(map(len, event.changes))

        with closing(events):  # type: ignore[type-var]
            yield advance

    def told(self) -> list[ChangeBatch | Clear | End]:
        """Every change on its topic."""
        with closing(open_log(self.directory)) as log:
            return list(told_on(log, self.name, {}))

    def rows(self) -> list[tuple[Any, ...]]:
        """What who has read everything that was told has, in the columns of the newest version; that operations fit and ids grow is checked on the way."""
        there: dict[tuple[Any, ...], Row] = {}
        newest, names = 0, list[str]()
        for change in self.told():
            if isinstance(change, End):
                assert change.id >= newest
                newest, names = change.id, [column.name for column in change.successor.columns]
                continue
            assert isinstance(change, ChangeBatch)
            names = [column.name for column in change.table.columns]
            for row in change.data.to_pylist():
                assert row[ID] > newest or self.config.partitions > 1, "ids grow"
                newest = row[ID]
                key = tuple(row[name] for name in self.key)
                assert (row[OP] == "i") == (key not in there), f"{row[OP]} of {key}"
                if row[OP] == "d":
                    del there[key]
                else:
                    there[key] = row
        return in_order(tuple(row.get(name) for name in names) for row in there.values())

    def answer(self, **inputs: pa.Table) -> list[tuple[Any, ...]]:
        """What DuckDB answers over inputs as they are."""
        with closing(duckdb.connect()) as whole:
            for name, rows in inputs.items():
                whole.register(name, rows)
            return in_order(whole.execute(self.sql).fetchall())


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


class Shop:
    """Two tables that change at random, and what is in them."""

    def __init__(self, seed: int, keys: int = 12) -> None:
        self._random = random.Random(seed)
        self._keys = keys
        self.orders: dict[int, Row] = {}
        self.customers: dict[int, Row] = {}

    def changes(self, first_id: int, count: int) -> list[ChangeBatch]:
        """So many changes, in their order, with ids from one on."""
        return [self._change(first_id + number) for number in range(count)]

    def clear(self, id_: int) -> Clear:
        """The orders are gone."""
        self.orders.clear()
        return Clear(ORDERS, id_, id_)

    def inputs(self) -> dict[str, pa.Table]:
        """Both as relations."""
        return {"orders": _relation(ORDERS, self.orders), "customers": _relation(CUSTOMERS, self.customers)}

    def _change(self, id_: int) -> ChangeBatch:
        draw = self._random
        of, there = (ORDERS, self.orders) if draw.random() < 0.7 else (CUSTOMERS, self.customers)
        key = draw.randrange(self._keys)
        if key in there and draw.random() < 0.3:
            return batch(of, [(id_, "d", there.pop(key))])
        op = "u" if key in there else "i"
        there[key] = {
            "id": key,
            **(self._order() if of is ORDERS else {"region": draw.choice(["north", "south", None])}),
        }
        return batch(of, [(id_, op, there[key])])

    def _order(self) -> Row:
        draw = self._random
        placed = 1_700_000_000_000_000 + draw.randrange(600) * 1_000_000
        status = draw.choice(["new", "paid", "sent"])
        return {
            "customer": draw.randrange(self._keys),
            "status": status,
            "amount": draw.randrange(1000),
            "placed": placed,
        }


def _relation(of: TableSchema, rows: dict[int, Row]) -> pa.Table:
    schema = pa.schema([pa.field(column.name, column.type) for column in of.columns])
    return pa.Table.from_pylist(list(rows.values()), schema=schema)
