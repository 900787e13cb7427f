"""A workload in the manner of TPC-C: its consistency conditions hold as of every commit time, before, while and after the lake is tended.

Each transaction touches several tables and has one commit time; its changes have growing ids. Warehouse and district are updated in place,
orders and lines are added, and a delivery deletes the oldest order with its lines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from headrace.lake.asof import snapshot
from headrace.lake.commit import Manifest
from headrace.lake.history import history
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.sinks.lake import LakeSink
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import TableSchema
from tests.lake_tables import START, at, open_sink, table, time_of

INT = pa.int64()
WAREHOUSE = table(("w", INT), ("ytd", INT), key=("w",), name="warehouse")
DISTRICT = table(("w", INT), ("d", INT), ("ytd", INT), ("next_o", INT), key=("w", "d"), name="district")
ORDERS = table(("w", INT), ("d", INT), ("o", INT), ("lines", INT), key=("w", "d", "o"), name="orders")
LINES = table(
    ("w", INT), ("d", INT), ("o", INT), ("n", INT), ("amount", INT), key=("w", "d", "o", "n"), name="order_line"
)
TABLES = (WAREHOUSE, DISTRICT, ORDERS, LINES)
WAREHOUSES, DISTRICTS, TRANSACTIONS = 2, 3, 250
Row = tuple[int, ...]


@dataclass
class Shop:
    """The database: applies transactions and tells what they changed."""

    random: Random
    sink: LakeSink
    id: int = 0
    number: int = 0
    tables: dict[str, dict[Row, Row]] = field(default_factory=lambda: {t.namespace.table: {} for t in TABLES})
    changed: list[tuple[TableSchema, str, Row]] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Of each transaction its number, which is its time, and its last id."""

    def put(self, table_: TableSchema, row: Row) -> None:
        rows, key = self.tables[table_.namespace.table], row[: len(table_.key)]
        self.changed.append((table_, "u" if key in rows else "i", row))
        rows[key] = row

    def drop(self, table_: TableSchema, key: Row) -> None:
        self.changed.append((table_, "d", self.tables[table_.namespace.table].pop(key)))

    def commit(self) -> None:
        """All changes of the transaction get ids, and one commit time."""
        self.number += 1
        for table_, operation, row in self.changed:
            self.id += self.random.randint(1, 5)
            now = time_of(self.number)
            values = (self.id, now, operation, now, None, *row)
            schema = table_.arrow_schema()
            self.sink.write(
                ChangeBatch(table_, pa.RecordBatch.from_pylist([dict(zip(schema.names, values, strict=True))], schema))
            )
        self.changed.clear()
        self.ends.append((self.number, self.id))

    def start(self) -> None:
        for w in range(WAREHOUSES):
            self.put(WAREHOUSE, (w, 0))
            for d in range(DISTRICTS):
                self.put(DISTRICT, (w, d, 0, 1))
        self.commit()

    def new_order(self, w: int, d: int) -> None:
        _, _, ytd, o = self.tables["district"][w, d]
        lines = self.random.randint(1, 4)
        self.put(ORDERS, (w, d, o, lines))
        for n in range(lines):
            self.put(LINES, (w, d, o, n, self.random.randint(1, 99)))
        self.put(DISTRICT, (w, d, ytd, o + 1))
        self.commit()

    def payment(self, w: int, d: int) -> None:
        amount = self.random.randint(1, 500)
        _, _, ytd, o = self.tables["district"][w, d]
        self.put(WAREHOUSE, (w, self.tables["warehouse"][w,][1] + amount))
        self.put(DISTRICT, (w, d, ytd + amount, o))
        self.commit()

    def delivery(self, w: int, d: int) -> None:
        oldest = min((key for key in self.tables["orders"] if key[:2] == (w, d)), default=None)
        if oldest is not None and oldest[2] + 1 < self.tables["district"][w, d][3]:
            for key in [key for key in self.tables["order_line"] if key[:3] == oldest]:
                self.drop(LINES, key)
            self.drop(ORDERS, oldest)
            self.commit()


def check(path: Path, moment: dict[str, Any]) -> None:
    """Four conditions over four tables, read from one manifest."""
    manifest = Manifest.open(path)
    found = {
        t.namespace.table: snapshot(manifest, t.namespace.all_versions, **moment).read_all().to_pylist() for t in TABLES
    }
    for warehouse in found["warehouse"]:
        assert warehouse["ytd"] == sum(d["ytd"] for d in found["district"] if d["w"] == warehouse["w"])
    newest = {(d["w"], d["d"]): d["next_o"] - 1 for d in found["district"]}
    for place, last in newest.items():
        assert last == max((o["o"] for o in found["orders"] if (o["w"], o["d"]) == place), default=0)
    lines = Counter((line["w"], line["d"], line["o"]) for line in found["order_line"])
    assert lines == {(o["w"], o["d"], o["o"]): o["lines"] for o in found["orders"]}


def test_transactions_are_whole_as_of_every_moment(tmp_path: Path) -> None:
    random = Random(11)
    sink = open_sink(tmp_path)
    shop = Shop(random, sink)
    shop.start()
    sink.commit(at(1))
    done = Counter[str]()
    while shop.number < TRANSACTIONS:
        work = random.choice([shop.new_order, shop.new_order, shop.payment, shop.delivery])
        work(random.randrange(WAREHOUSES), random.randrange(DISTRICTS))
        if random.random() < 0.2:
            sink.commit(at(shop.number))
            tended = Caretaker(tmp_path, Policy(grace=0, state_changes=40)).tend(all_periods=random.random() < 0.3)
            done.update(states=tended.states, merged=tended.merged_files)
            number, id_ = random.choice([end for end in shop.ends if end[0] <= shop.number])
            check(tmp_path, {"time": time_of(number)})
            check(tmp_path, {"id": id_})
    sink.commit(at(shop.number))
    sink.close()
    assert done["states"]
    assert done["merged"]
    for number, id_ in random.sample(shop.ends, 20):
        check(tmp_path, {"time": time_of(number)})
        check(tmp_path, {"id": id_})
    _check_history(tmp_path, shop)


def _check_history(path: Path, shop: Shop) -> None:
    """Replaying the history of a table gives its newest state, from any id on."""
    for table_ in TABLES:
        name = table_.namespace.all_versions
        manifest = Manifest.open(path)
        middle = shop.ends[len(shop.ends) // 2][1]
        keys = list(table_.key)
        state = {tuple(row[k] for k in keys): row for row in snapshot(manifest, name, id=middle).read_all().to_pylist()}
        behind = history(manifest, name, after_id=middle).read_all().to_pylist()
        assert [row["_ums_id_"] for row in behind] == sorted(row["_ums_id_"] for row in behind)
        for row in behind:
            key = tuple(row[k] for k in keys)
            assert (key in state) == (row["_ums_op_"] != "i")
            state[key] = {column.name: row[column.name] for column in table_.columns}
            if row["_ums_op_"] == "d":
                del state[key]
        newest = {tuple(row.values())[: len(keys)]: tuple(row.values()) for row in state.values()}
        assert newest == shop.tables[table_.namespace.table]
        assert behind[-1]["_ums_commit_ts_"] >= START
