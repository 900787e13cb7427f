"""What only OpenSearch and Elasticsearch have: documents as their readers see them, versions, dated indices, a server that is busy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opensearchpy import OpenSearch as Client
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, RetryableError
from headrace.on_change import OnChange, Policy
from headrace.sinks.base import Position
from headrace.sinks.opensearch import OpenSearchSink
from headrace.testing.sink import ORDERS, Change, batch_of, order, version_of
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import RAW, Column, Namespace, TableSchema
from tests.servers.front import PASSWORD, front
from tests.servers.search import OpenSearch, Search

VISITS = TableSchema(
    Namespace("mysql", "db1", "shop", "visits"),
    (Column("id", pa.int64(), "bigint"), Column("day", pa.date32(), "date"), Column("page", pa.utf8(), "text")),
    ("id", "day"),
)


class Store:
    """A place of its own in a server."""

    def __init__(self, server: Search, prefix: str) -> None:
        self.address = server.address
        self.prefix = prefix
        self.client: Client = server.connect()

    def open(self, **settings: object) -> OpenSearchSink:
        place = {"url": self.address, "index": f"{self.prefix}{{schema}}.{{table}}", "records": f"{self.prefix}own"}
        return OpenSearchSink(OpenSearchSink.Config.model_validate({"type": "opensearch", **place, **settings}), "flow")

    def deliver(self, *changes: ChangeBatch | Clear, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for change in changes:
                sink.prepare(change.table)
                sink.clear(change) if isinstance(change, Clear) else sink.write(change)
            sink.commit(Position("topic", 0, 1, 1, 1))

    def document(self, id_: str, index: str = "shop.orders") -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(index=self.prefix + index, id=id_)
        return found

    def scan(self, table: TableSchema, **settings: object) -> list[tuple[Any, ...]]:
        with closing(self.open(**settings)) as sink:
            return sorted(tuple(row.values()) for batch in sink.scan(table) for row in batch.to_pylist())


@pytest.fixture
def store(opensearch: OpenSearch) -> Iterator[Store]:
    with opensearch.prefix() as prefix:
        made = Store(opensearch, prefix)
        yield made
        made.client.close()


def test_a_row_is_a_document(store: Store) -> None:
    columns = (
        *ORDERS.columns,
        Column("big", pa.decimal128(30, 2), "decimal(30,2)"),
        Column("raw", pa.binary(), "blob"),
        Column("at", pa.timestamp("us"), "datetime(6)"),
        Column("took", pa.duration("us"), "time"),
        Column("many", pa.uint64(), "bigint unsigned"),
        Column("text", pa.utf8(), "text"),
    )
    table = version_of(ORDERS, 0, *columns)
    values = {"id": 10, "note": 'ü"\n', "amount": Decimal("0.50"), "big": Decimal("1234567890123456789012345678.90")}
    values |= {"raw": b"\0\xff", "at": pa.scalar(1, pa.int64()).cast(pa.timestamp("us")).as_py(), "many": 2**64 - 1}
    store.deliver(batch_of(table, [Change("i", 5, values)]))
    found = store.document("10")
    assert found["_version"] == 10**10 + 5
    assert found["_source"] == {
        "_ums_id_": 5, "_ums_ts_": "2023-11-14T22:13:20.000005Z", "_is_active_": 1, "_ums_raw_": None,
        "id": 10, "note": 'ü"\n', "amount": "0.50", "big": "1234567890123456789012345678.90", "raw": "AP8=",
        "at": "1970-01-01T00:00:00.000001", "took": None, "many": 2**64 - 1, "text": None,
    }  # fmt: skip
    [said] = store.client.indices.get_mapping(index=f"{store.prefix}shop.orders").values()
    assert {name: field["type"] for name, field in said["mappings"]["properties"].items()} == {
        "_ums_id_": "long", "_ums_ts_": "date", "_is_active_": "byte", "_ums_raw_": "object",
        "id": "long", "note": "keyword", "amount": "double", "big": "double", "raw": "binary", "at": "date",
        "took": "keyword", "many": "unsigned_long", "text": "text",
    }  # fmt: skip


def test_what_a_type_cannot_hold_stands_beside(store: Store) -> None:
    table = version_of(ORDERS, 0, *ORDERS.columns, Column("day", pa.date32(), "date"))
    plain = batch_of(table, [order(1, 10)])
    raw = plain.data.set_column(4, plain.data.schema.field(RAW), pa.array(['{"day":"0000-00-00"}']))
    store.deliver(ChangeBatch(table, raw))
    found = store.document("10")["_source"]
    assert (found["day"], found["_ums_raw_"]) == (None, {"day": "0000-00-00"})


def test_keys_of_any_length_are_kept_apart(store: Store) -> None:
    table = TableSchema(ORDERS.namespace, (Column("code", pa.utf8(), "varchar(800)"), ORDERS.columns[1]), ("code",))
    codes = ["", "%", ":", "x" * 800, "x" * 799 + "y"]
    store.deliver(batch_of(table, [Change("i", n + 1, {"code": code}) for n, code in enumerate(codes)]))
    assert [row[0] for row in store.scan(table)] == sorted(codes)


def test_a_hard_delete_outlives_the_servers_memory_of_it(store: Store) -> None:
    hard: dict[str, object] = {"delete": "hard", "settings": {"gc_deletes": "0s"}}
    store.deliver(batch_of(ORDERS, [order(5, 10), order(6, 20)]), **hard)
    store.deliver(batch_of(ORDERS, [order(7, 10, "d")]), **hard)
    assert not store.client.exists(index=f"{store.prefix}shop.orders", id="10")
    store.deliver(batch_of(ORDERS, [order(6, 10), order(4, 20)]), **hard)
    assert store.scan(ORDERS) == [(20, "by 6", Decimal(6))]
    store.deliver(batch_of(ORDERS, [order(8, 10)]), **hard)
    assert store.scan(ORDERS) == [(10, "by 8", Decimal(8)), (20, "by 6", Decimal(6))]


def test_rows_go_to_indices_by_a_date_of_their_key(store: Store) -> None:
    dated = {"index": f"{store.prefix}{{table}}-{{day:%Y.%m}}"}
    days = pa.array([0, 31, 31, 59], pa.int32()).view(pa.date32()).to_pylist()
    rows = [{"id": n, "day": day, "page": f"page {n}"} for n, day in enumerate(days)]
    # Another table's indices begin like this one's.
    other = replace(VISITS, namespace=replace(VISITS.namespace, table="visits-old"))
    store.deliver(batch_of(other, [Change("i", 1, rows[0])]), **dated)
    store.deliver(batch_of(VISITS, [Change("i", n + 1, row) for n, row in enumerate(rows)]), **dated)
    store.deliver(batch_of(VISITS, [Change("d", 9, rows[2])]), **dated)
    names = sorted(store.client.indices.get(index=f"{store.prefix}visits-1*"))
    assert [name.removeprefix(store.prefix) for name in names] == ["visits-1970.01", "visits-1970.02", "visits-1970.03"]
    assert [row[0] for row in store.scan(VISITS, **dated)] == [0, 1, 3]
    later = version_of(VISITS, 1, *VISITS.columns, Column("size", pa.int32(), "int", initial_default="7"))
    store.deliver(batch_of(later, [Change("i", 20, {**rows[1], "id": 5, "size": 3})]), **dated)
    store.deliver(Clear(later, 3, 3_000_000), **dated)
    assert [(row[0], row[3]) for row in store.scan(later, **dated)] == [(3, 7), (5, 3)]
    with pytest.raises(ConfigError, match="no date 'day' in its key"):
        store.deliver(batch_of(replace(VISITS, key=("id",)), []), **dated)


def test_a_document_that_is_refused_is_named_with_the_reason(store: Store) -> None:
    index = f"{store.prefix}shop.orders"
    store.client.indices.create(index=index, body={"mappings": {"properties": {"note": {"type": "integer"}}}})
    with closing(store.open()) as sink:
        [told] = sink.misfits([ORDERS])
    assert "those that are no integer will be refused" in told.message
    assert not told.stops
    with pytest.raises(DataError, match=r"shop\.orders, document 11: .*note.*not an int"):
        store.deliver(
            batch_of(ORDERS, [order(1, 10, note="1"), order(2, 11, note="not an int"), order(3, 12, note="3")])
        )
    assert [row[0] for row in store.scan(ORDERS)] == [10, 12]


def test_a_mapping_that_is_there_stays_and_gets_what_is_missing(store: Store) -> None:
    index = f"{store.prefix}shop.orders"
    store.client.indices.create(index=index, body={"mappings": {"properties": {"note": {"type": "text"}}}})
    store.deliver(batch_of(ORDERS, [order(1, 10, note="one two")]))
    store.client.indices.refresh(index=index)
    assert store.client.count(index=index, body={"query": {"match": {"note": "two"}}})["count"] == 1
    [said] = store.client.indices.get_mapping(index=index).values()
    assert {"id", "amount", "_ums_id_"} <= said["mappings"]["properties"].keys()


def test_rows_are_seen_with_each_commit_when_asked(store: Store) -> None:
    settings = {"refresh_interval": "-1"}
    index = f"{store.prefix}shop.orders"
    store.deliver(batch_of(ORDERS, [order(1, 10)]), settings=settings)
    assert store.client.count(index=index)["count"] == 0
    store.deliver(batch_of(ORDERS, [order(2, 20)]), refresh="commit")
    assert store.client.count(index=index)["count"] == 2


def test_two_tables_do_not_share_an_index(store: Store) -> None:
    upper = replace(ORDERS, namespace=replace(ORDERS.namespace, table="Orders"))
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    with pytest.raises(ConfigError, match=r"shop\.Orders would be written to the place of mysql\.db1\.shop\.orders"):
        store.deliver(batch_of(upper, [order(2, 10)]))


@pytest.mark.parametrize(
    ("name", "problem"), [("a.b", "takes for an object"), ("_is_active_", "a name that headrace needs")]
)
def test_a_column_that_cannot_be_a_field_is_refused(store: Store, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem), closing(store.open()) as sink:
        sink.prepare(version_of(ORDERS, 0, *ORDERS.columns, Column(name, pa.int32(), "int")))


@pytest.mark.parametrize(
    "wrong",
    [{"index": "{schema}.{tble}"}, {"index": "{schema"}, {"url": "ftp://x"}, {"url": []}, {"records": "_own"}],
    ids=str,
)
def test_wrong_settings_are_told(store: Store, wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        store.open(**wrong)


def test_what_stands_in_the_way_is_told_without_passwords(store: Store, opensearch: OpenSearch, tmp_path: Path) -> None:
    with (
        pytest.raises(RetryableError, match="away") as away,
        closing(store.open(url="http://me:secret@127.0.0.1:1")) as sink,
    ):
        sink.check()
    assert "secret" not in str(away.value)
    kept = OnChange(retyped=Policy.IGNORE)
    with pytest.raises(ConfigError, match="retyped"), closing(store.open(on_change=kept)) as sink:
        sink.check()
    with front(opensearch.host, opensearch.port, tmp_path) as port:
        where, ca = f"127.0.0.1:{port}", {"ca": str(tmp_path / "certificate.pem")}
        login = f"head%20race:{PASSWORD.replace('@', '%40').replace('/', '%2F')}"
        for url, tls, problem in (
            (f"https://head%20race:no@{where}", ca, "user and password"),
            (f"https://{login}@{where}", {}, "encryption"),
            (f"https://{login}@{where}", {"ca": str(tmp_path / "key.pem")}, "could not be loaded"),
        ):
            with pytest.raises(ConfigError) as found, closing(store.open(url=url, tls=tls)) as sink:
                sink.check()
            assert problem in str(found.value)
            assert PASSWORD not in str(found.value)
        store.deliver(batch_of(ORDERS, [order(1, 10)]), url=f"https://{login}@{where}", tls=ca)
    assert store.scan(ORDERS) == [(10, "by 1", Decimal(1))]


def test_a_server_that_has_too_much_to_do_is_given_time() -> None:
    rows = [Change("i", n, {"id": n, "note": "x" * 900}) for n in range(1, 2001)]
    with OpenSearch(indexing_pressure__memory__limit="300kb") as server, server.prefix() as prefix:
        store = Store(server, prefix)
        store.deliver(batch_of(ORDERS, rows), batch_bytes=110_000, parallel=8)
        assert len(store.scan(ORDERS)) == 2000
        told: Any = store.client.nodes.stats(metric="indexing_pressure")
        store.client.close()
    assert "coordinating_rejections" in json.dumps(told)
    assert '"coordinating_rejections": 0' not in json.dumps(told)
