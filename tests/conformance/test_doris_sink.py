"""What only Doris has: loads whose answers are lost, tables that are there already, names, compactions; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.doris import DorisSink
from headrace.testing.sink import ORDERS, Change, batch_of, order
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, TableSchema
from tests.servers.doris import Doris


class Store:
    """Tables of the database `db`."""

    def __init__(self, doris: Doris) -> None:
        self.doris = doris

    def open(self, **settings: object) -> DorisSink:
        reached = {"frontends": self.doris.frontend_places, "query": f"127.0.0.1:{self.doris.sql_port}"}
        return DorisSink(
            DorisSink.Config.model_validate({"type": "doris", "database": "db", **reached, **settings}), "flow"
        )

    def deliver(self, *changes: ChangeBatch, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for change in changes:
                sink.prepare(change.table)
                sink.write(change)
            sink.commit(Position("topic", 0, 1, 1, 1))

    def rows(self, columns: str, table: str = "shop_orders") -> list[tuple[Any, ...]]:
        return self.doris.rows(table, columns)


@pytest.fixture
def store() -> Iterator[Store]:
    with Doris(backends=2) as doris:
        yield Store(doris)


def test_a_row_is_a_row_of_a_table_with_a_unique_key_and_a_sequence(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(5, 10)]), replication=1, buckets=3, properties={"compression": "zstd"})
    table = store.doris.store.table("db", "shop_orders")
    assert (table.model, table.keys, table.sequence) == ("UNIQUE", ["id"], "_ums_id_")
    assert [(one.name, one.type) for one in table.fields] == [
        ("id", "BIGINT"), ("_ums_id_", "BIGINT"), ("_ums_ts_", "DATETIME(6)"), ("_is_active_", "TINYINT"),
        ("note", "STRING"), ("amount", "DECIMAL(12,2)"),
    ]  # fmt: skip
    assert table.properties["replication_num"] == "1"
    assert table.properties["compression"] == "zstd"
    assert store.rows("id, note, amount, _ums_id_, _is_active_") == [(10, "by 5", "5.00", 5, 1)]


@pytest.mark.parametrize("delete", ["soft", "hard"])
def test_a_delete_stays_or_is_forgotten_with_a_compaction(store: Store, delete: str) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10), order(4, 10, "d")]), delete=delete)
    store.deliver(batch_of(ORDERS, [order(2, 10, "u")]), delete=delete)
    assert store.rows("id, _is_active_") == ([(10, 0)] if delete == "soft" else [])
    store.doris.store.compact(store.doris.store.table("db", "shop_orders"))
    store.deliver(batch_of(ORDERS, [order(3, 10, "u")]), delete=delete)
    assert store.rows("id, _is_active_") == [(10, 0 if delete == "soft" else 1)]


@pytest.mark.parametrize(
    "fault",
    [
        "fe_cut",
        "fe_500",
        "be_cut_headers",
        "be_cut_body",
        "be_500",
        "be_publish_timeout",
        "be_cut_committed",
        "be_html_committed",
        "state_500",
    ],
)
def test_faults_of_loads_are_settled(store: Store, fault: str) -> None:
    store.doris.faults.add(fault, times=2)
    if fault == "state_500":
        store.doris.faults.add("be_cut_committed")  # so that it is asked
    store.deliver(
        *(batch_of(ORDERS, [order(n, n % 7) for n in range(start, start + 10)]) for start in range(1, 60, 10))
    )
    assert fault in {kind for kind, _ in store.doris.faults.struck}
    with closing(store.open()) as sink:
        found = [row for batch in sink.scan(ORDERS) for row in batch.to_pylist()]
        assert sink.position("topic", 0) == Position("topic", 0, 1, 1, 1)
    assert sorted(row["id"] for row in found) == list(range(7))
    assert {row["note"] for row in found} == {f"by {n}" for n in range(54, 61)}


def test_large_commits_are_loaded_in_parts(store: Store) -> None:
    changes = [order(n, n, note="x" * 500) for n in range(1, 1001)]
    store.deliver(batch_of(ORDERS, changes), batch_bytes=1 << 16)
    loads = [one for one in store.doris.transactions.begun if one.table == "shop_orders"]
    assert len(loads) >= 8
    assert len(store.rows("id")) == 1000


def test_a_value_that_doris_refuses_is_told_with_the_reason(store: Store) -> None:
    table = replace(ORDERS, columns=(*ORDERS.columns, Column("number", pa.float64(), "double")))
    store.deliver(batch_of(table, [Change("i", 1, {"id": 1, "number": 1.5})]))
    store.doris.sql("DROP TABLE shop_orders")
    store.doris.sql(
        "CREATE TABLE shop_orders (id BIGINT NOT NULL, `_ums_id_` BIGINT, `_ums_ts_` DATETIME(6), `_is_active_` TINYINT, note VARCHAR(3),"
        ' amount DECIMAL(12,2), number DOUBLE) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ("function_column.sequence_col" = "_ums_id_")'
    )
    with pytest.raises(DataError, match=r"refuses 1 of 2 rows for db.shop_orders (.|\n)*too long"):
        store.deliver(
            batch_of(table, [Change("i", 2, {"id": 1, "note": "ab"}), Change("i", 3, {"id": 2, "note": "abcd"})])
        )
    assert store.rows("id") == []
    with pytest.raises(DataError, match="no value in the key column"):
        store.deliver(batch_of(table, [Change("i", 1, {"note": "n"})]))


def test_a_table_that_is_there_must_fit(store: Store) -> None:
    store.doris.sql("CREATE TABLE shop_orders (id BIGINT NOT NULL) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1")
    with pytest.raises(ConfigError, match="not one with a unique key and _ums_id_ as its sequence"):
        store.deliver(batch_of(ORDERS, [order(1, 10)]))


HIDDEN = (
    "CREATE TABLE shop_orders (id BIGINT NOT NULL, {system}) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"
    ' PROPERTIES ("function_column.sequence_type" = "{type}")'
)
SYSTEM = "`_ums_id_` BIGINT, `_ums_ts_` DATETIME(6), `_is_active_` TINYINT"


def test_a_table_that_is_there_may_have_a_hidden_sequence_column(store: Store) -> None:
    store.doris.sql(HIDDEN.format(system=SYSTEM, type="bigint"))
    store.deliver(batch_of(ORDERS, [order(5, 10), order(7, 11, "d")]))
    store.deliver(batch_of(ORDERS, [order(4, 10, "u"), order(6, 11, "u")]))
    renamed = replace(
        ORDERS,
        namespace=replace(ORDERS.namespace, version=1),
        columns=(*ORDERS.columns, Column("more", pa.utf8(), "text")),
    )
    store.deliver(batch_of(renamed, [order(9, 12)]))
    assert store.rows("id, note, _ums_id_, _is_active_") == [(10, "by 5", 5, 1), (11, "by 7", 7, 0), (12, "by 9", 9, 1)]
    with closing(store.open()) as sink:
        sink.prepare(renamed)
        sink.clear(Clear(renamed, 20, 0))
    assert store.rows("id, _is_active_") == [(10, 0), (11, 0), (12, 0)]


@pytest.mark.parametrize(
    ("system", "type_", "message"),
    [
        (SYSTEM, "int", "or a hidden one that is BIGINT"),
        ("`_ums_id_` BIGINT", "bigint", "no column _ums_ts_, _is_active_"),
    ],
)
def test_a_table_that_lacks_something_is_told(store: Store, system: str, type_: str, message: str) -> None:
    store.doris.sql(HIDDEN.format(system=system, type=type_))
    with pytest.raises(ConfigError, match=message):
        store.deliver(batch_of(ORDERS, [order(1, 10)]))


def test_names_that_doris_takes_and_those_that_would_meet(store: Store) -> None:
    taken = TableSchema(ORDERS.namespace, (*ORDERS.columns, Column("Größe", pa.int32(), "int")), ("id",))
    store.deliver(batch_of(taken, [Change("i", 1, {"id": 1, "Größe": 7})]))
    assert store.rows("Gr_f6_dfe") == [(7,)]
    meets = TableSchema(ORDERS.namespace, (*ORDERS.columns, Column("NOTE", pa.utf8(), "text")), ("id",))
    with pytest.raises(ConfigError, match=r"'NOTE' .* would be called note in Doris, as 'note' is"):
        store.deliver(batch_of(meets, []))
    with pytest.raises(ConfigError, match="begins with a letter"):
        store.deliver(batch_of(ORDERS, []), table="1{table}")
    upper = replace(ORDERS, namespace=replace(ORDERS.namespace, source="db2"))
    with pytest.raises(ConfigError, match="would be written to the place of"):
        store.deliver(batch_of(upper, [order(2, 10)]))


def test_what_stands_in_the_way_is_told(store: Store) -> None:
    with closing(store.open()) as sink:
        sink.check()
    for wrong, error, message in (
        ({"frontends": ["127.0.0.1:1"]}, RetryableError, "cannot be reached"),
        ({"query": "127.0.0.1:1"}, RetryableError, "is away"),
        ({"password": "wrong"}, ConfigError, "does not let the user in"),
    ):
        with pytest.raises(error, match=message), closing(store.open(**wrong)) as sink:
            sink.check()
    for wrong in ({"table": "{tble}"}, {"frontends": []}, {"query": "host"}, {"database": "a b"}):
        with pytest.raises(ValidationError):
            store.open(**wrong)


def test_decimals_keep_their_digits(store: Store) -> None:
    amount = Decimal("9999999999.99")
    store.deliver(batch_of(ORDERS, [Change("i", 1, {"id": 1, "amount": amount})]))
    with closing(store.open()) as sink:
        assert [row["amount"] for batch in sink.scan(ORDERS) for row in batch.to_pylist()] == [amount]
