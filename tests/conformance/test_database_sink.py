"""What only databases have: system columns, hard deletes, crashes of a server, writers side by side, messages to people."""

from __future__ import annotations

import random
import re
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, HeadraceError, RetryableError, StorageError
from headrace.sinks.base import Position
from headrace.sinks.database import DatabaseSink
from headrace.sinks.database.sink import TablesSink
from headrace.sinks.jdbc import JdbcSink
from headrace.stream.refused import Part, Place, refused
from headrace.testing.sink import ORDERS, Change, batch_of, in_threads, order, retried, version_of
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.servers.jdbc import Derby, JdbcServer
from tests.servers.mariadb import MariaDb
from tests.servers.postgresql import PostgreSql

POSITION = Position("topic", 0, 1, 1, 1)
KEY, NOTE, AMOUNT = ORDERS.columns
SIZE = Column("size", pa.int32(), "int")
ANOTHER_NOTE = version_of(ORDERS, 1, KEY, replace(NOTE, born_as="note@9"), AMOUNT)
RENAMED_NOTE = version_of(ORDERS, 1, KEY, replace(NOTE, name="text", born_as="note"), AMOUNT)


class Store:
    """An empty database of one dialect and a plain client for it."""

    def __init__(self, url: str, query: Callable[[str], list[tuple[Any, ...]]], quote: str = '"') -> None:
        self.url, self.query, self.quote = url, query, quote

    def open(self, **settings: object) -> TablesSink:
        config = DatabaseSink.Config.model_validate({"type": "database", "url": self.url, **settings})
        return DatabaseSink(config, "flow")

    def deliver(self, *batches: ChangeBatch, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for batch in batches:
                sink.prepare(batch.table)
                sink.write(batch)
            sink.commit(POSITION)

    def scan(self, table: TableSchema) -> list[dict[str, Any]]:
        with closing(self.open()) as sink:
            return [row for batch in sink.scan(table) for row in batch.to_pylist()]


class JdbcStore(Store):
    """A schema of a database with a JDBC driver. Names stand in their case there, so the client's SQL gets them quoted."""

    def __init__(self, server: JdbcServer, settings: dict[str, object]) -> None:
        super().__init__(server.url, self._query)
        self._server, self._settings = server, settings

    def open(self, **settings: object) -> TablesSink:
        return JdbcSink(JdbcSink.Config.model_validate({**self._settings, **settings}), "flow")

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        if isinstance(self._server, Derby):
            statement = re.sub(r"ALTER TABLE (\w+) RENAME COLUMN ", r"RENAME COLUMN \1.", statement)
        quoted = re.sub(r"(?<!\")\b([a-z_][a-z_0-9]*)\b(?!\")(?![^']*'(?:[^']*'[^']*')*[^']*$)", r'"\1"', statement)
        return self._server.execute(quoted, schema=str(self._settings["schema"]))


def _sqlite_query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def _duckdb_query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(duckdb.connect(str(path))) as connection:
        found = connection.sql(statement)  # by way of Arrow: DuckDB's own to Python's times needs pytz
        return [] if found is None else [tuple(row.values()) for row in pa.table(found).to_pylist()]


_FILES = {"sqlite": _sqlite_query, "duckdb": _duckdb_query}


@pytest.fixture(params=["sqlite", "duckdb", "postgresql", "mariadb", "h2", "derby"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param in _FILES:
        path = tmp_path / "mart.db"
        yield Store(f"{request.param}:///{path}", partial(_FILES[request.param], path))
        return
    if request.param in ("h2", "derby"):
        java: JdbcServer = request.getfixturevalue(request.param)
        with java.schema() as settings:
            yield JdbcStore(java, settings)
        return
    server: MariaDb | PostgreSql = request.getfixturevalue(request.param)
    with server.database() as name:
        yield Store(
            server.url(name), partial(server.execute, database=name), '"' if request.param == "postgresql" else "`"
        )


# --- shape of the target


def test_a_deleted_row_keeps_its_last_values(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10), order(2, 20), order(3, 10, "d", note="before")]))
    rows = store.query("SELECT id, note, _ums_id_, _is_active_ FROM orders ORDER BY id")
    assert [tuple(row) for row in rows] == [(10, "before", 3, 0), (20, "by 2", 2, 1)]


def test_a_hard_delete_leaves_a_tombstone_elsewhere(store: Store) -> None:
    changes = [order(1, 10), order(2, 20), order(3, 10, "d")]
    for _ in range(2):
        store.deliver(*(batch_of(ORDERS, [change]) for change in changes), delete="hard")
        assert store.query("SELECT id FROM orders") in ([(20,)], ((20,),))
    stones = store.query("SELECT table_name, _ums_id_, _is_active_ FROM _headrace_tombstones")
    assert [tuple(row) for row in stones] == [("orders", 3, 0)]


def test_tombstones_are_forgotten_when_no_older_change_can_come(store: Store) -> None:
    """With 0 seconds they are gone behind the commit, with the usual week they count against whatever is older."""
    deleted, older = batch_of(ORDERS, [order(3, 10, "d")]), batch_of(ORDERS, [order(2, 10)])
    store.deliver(deleted, delete="hard")
    store.deliver(older, delete="hard")
    assert store.scan(ORDERS) == []
    store.deliver(batch_of(ORDERS, [order(4, 20)]), delete="hard", tombstones=0)
    assert len(store.query("SELECT key_hash FROM _headrace_tombstones")) == 0
    store.deliver(older, delete="hard")
    assert {row["id"] for row in store.scan(ORDERS)} == {10, 20}


def test_a_tombstone_is_as_old_as_its_delivery(store: Store) -> None:
    """The changes are years old; what is kept for a week counts from now."""
    store.deliver(batch_of(ORDERS, [order(3, 10, "d")]), delete="hard")
    store.deliver(batch_of(ORDERS, [order(4, 20)]), delete="hard")
    assert len(store.query("SELECT key_hash FROM _headrace_tombstones")) == 1


def test_the_target_may_have_another_name(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]), table="{type}_{source}_{schema}_{table}_copy")
    assert len(store.query("SELECT id FROM mysql_db1_shop_orders_copy")) == 1


def test_columns_of_no_version_at_hand_keep_their_values_or_become_null(store: Store) -> None:
    later = version_of(ORDERS, 1, *ORDERS.columns, Column("size", pa.int32(), "int", initial_default="7"))
    last = version_of(ORDERS, 2, ORDERS.columns[0])
    with closing(store.open()) as sink:
        for table, changes in ((ORDERS, [order(1, 10)]), (later, [order(2, 20)]), (last, [order(3, 30), order(4, 20)])):
            sink.prepare(table)
            sink.write(batch_of(table, changes))
        sink.commit(POSITION)
    rows = store.query("SELECT id, note, size FROM orders ORDER BY id")
    assert [tuple(row) for row in rows] == [(10, "by 1", 7), (20, None, None), (30, None, None)]


def test_a_type_that_cannot_be_taken_is_refused(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    blob = version_of(ORDERS, 1, ORDERS.columns[0], Column("note", pa.binary(), "blob"))
    with pytest.raises(DataError, match="column 'note' of orders"), closing(store.open()) as sink:
        sink.prepare(blob)
    with pytest.raises(DataError, match="the key of orders"), closing(store.open()) as sink:
        sink.prepare(replace(ORDERS, key=("id", "note")))
    assert len(store.scan(ORDERS)) == 1


@pytest.mark.parametrize(
    ("kind", "columns", "told"),
    [
        ("added", (KEY, NOTE, SIZE, AMOUNT), "amount"),
        ("dropped", (KEY, SIZE), "note"),
        ("retyped", (KEY, NOTE, Column("size", pa.utf8(), "text")), "size"),
        ("renamed", (KEY, replace(NOTE, name="text", born_as="note"), SIZE), "note"),
    ],
)
def test_a_change_at_which_the_flow_is_to_stop_changes_nothing(
    kind: str, columns: tuple[Column, ...], told: str, store: Store
) -> None:
    first = version_of(ORDERS, 0, KEY, NOTE, SIZE)
    later = version_of(ORDERS, 1, *columns)
    store.deliver(batch_of(first, [order(1, 10)]), on_change={kind: "fail"})
    before = store.query("SELECT * FROM orders")
    message = rf"^mysql\.db1\.shop\.orders has column\(s\) {kind} in version 1: {told}, and the flow is to stop then"
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            store.deliver(batch_of(later, [Change("i", 2, {"id": 20})]), on_change={kind: "fail"})
    store.deliver(batch_of(first, [order(3, 10)]), on_change={kind: "fail"})
    assert len(store.query("SELECT * FROM orders")[0]) == len(before[0])
    others = dict.fromkeys({"added", "dropped", "retyped", "renamed"} - {kind}, "fail")
    store.deliver(batch_of(later, [Change("i", 4, {"id": 20})]), on_change=others)
    store.deliver(batch_of(later, [Change("i", 5, {"id": 30})]), on_change="fail")
    assert [row["id"] for row in store.scan(later)] == [10, 20, 30]


@pytest.mark.demand(1)
@pytest.mark.parametrize("delete", ["soft", "hard"])
def test_another_key_and_what_comes_of_the_old_one(store: Store, delete: str) -> None:
    another = "b" if store.url.startswith("jdbc:derby") else "a "  # one key to Derby
    later = replace(version_of(ORDERS, 1, *ORDERS.columns), key=("note",))
    old = [order(1, 10, note="A"), order(2, 20, note="gone"), order(3, 20, "d", note="gone"), order(4, 30, note="gone")]
    # Two rows that only a gap can have left: the source has the newer one.
    old += [order(5, 40, note="twice"), order(6, 50, note="twice"), Change("d", 7, {"id": 60})]
    store.deliver(batch_of(ORDERS, old), delete=delete)
    for _ in range(2):
        with closing(store.open(delete=delete)) as sink:
            sink.prepare(later)
            sink.write(
                batch_of(later, [order(11, 70, note="a"), order(12, 10, "d", note="A"), order(13, 71, note=another)])
            )
            sink.commit(POSITION)
        store.deliver(batch_of(ORDERS, [order(8, 80, note="late")]), delete=delete)
        live = {(row["id"], row["note"]) for row in store.scan(later)}
        assert live == {(30, "gone"), (50, "twice"), (70, "a"), (71, another)}
    kept = store.query("SELECT note, _is_active_ FROM orders WHERE _is_active_ = 0")
    assert [tuple(row) for row in kept] == ([("A", 0)] if delete == "soft" else [])


@pytest.mark.demand(1)
def test_a_key_that_the_rows_do_not_have_is_told_and_the_table_can_be_made_anew(store: Store) -> None:
    later = replace(version_of(ORDERS, 1, *ORDERS.columns), key=("note",))
    store.deliver(batch_of(ORDERS, [Change("i", 1, {"id": 10}), order(2, 20)]))
    for told in ("which only the server knows", "the key of orders is"):
        with pytest.raises(DataError, match=told) as stopped:
            store.deliver(batch_of(ORDERS, [order(3, 30)]), batch_of(later, [order(4, 40, note="x")]))
        assert "rename or drop the target table orders" in stopped.value.fix
    store.query("DROP TABLE orders")
    store.deliver(batch_of(ORDERS, [order(3, 30)]), batch_of(later, [order(4, 40, note="x")]))
    assert [(row["id"], row["note"]) for row in store.scan(later)] == [(40, "x")]


def test_a_key_of_columns_that_the_target_is_not_to_have_is_refused(store: Store) -> None:
    later = replace(version_of(ORDERS, 1, *ORDERS.columns, SIZE), key=("size",))
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    with pytest.raises(DataError, match="the key of orders is"):
        store.deliver(batch_of(later, [Change("i", 2, {"id": 20, "size": 1})]), on_change={"added": "ignore"})


@pytest.mark.parametrize("word", ["fail", "ignore"])
def test_a_flow_may_stop_at_another_key(store: Store, word: str) -> None:
    later = replace(version_of(ORDERS, 1, *ORDERS.columns), key=("note",))
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    with pytest.raises(DataError, match=r"has the key \(note\) in version 1, and the flow is to stop then"):
        store.deliver(batch_of(later, [order(4, 40)]), on_change={"rekeyed": word})
    store.deliver(batch_of(ORDERS, [order(2, 20)]))
    assert {row["id"] for row in store.scan(ORDERS)} == {10, 20}


def test_a_longer_text_is_no_change_at_which_a_flow_stops(store: Store) -> None:
    table = replace(ORDERS, key=("id", "note"))
    store.deliver(batch_of(table, [order(1, 10)]), on_change="fail")
    longer = replace(NOTE, source_type="varchar(80)")
    later = replace(version_of(ORDERS, 1, KEY, longer, AMOUNT, SIZE), key=table.key)
    note = "x" * 80
    store.deliver(batch_of(later, [order(2, 20, note=note)]), on_change={"all": "fail", "added": "evolve"})
    assert {row["note"] for row in store.scan(later)} == {"by 1", note}


def test_a_table_of_the_user_is_taken_when_it_has_the_system_columns(store: Store) -> None:
    store.query("CREATE TABLE orders (id BIGINT PRIMARY KEY, note VARCHAR(40) NOT NULL)")
    with pytest.raises(ConfigError, match="_ums_id_, _ums_ts_, _is_active_"), closing(store.open()) as sink:
        sink.prepare(ORDERS)
    for column in ("_ums_id_ BIGINT", "_ums_ts_ VARCHAR(40)", "_is_active_ INTEGER"):
        store.query(f"ALTER TABLE orders ADD COLUMN {column}")
    store.deliver(batch_of(ORDERS, [order(1, 10), Change("i", 2, {"id": 20})]))
    assert [row["note"] for row in store.scan(ORDERS)] == ["by 1", None]


def test_a_key_without_a_value_is_refused(store: Store) -> None:
    with pytest.raises(DataError, match="no value in the key column 'id'"):
        store.deliver(batch_of(ORDERS, [Change("i", 3, {})]))


@pytest.mark.demand(2)
def test_a_column_that_is_there_before_the_source_adds_it_is_taken(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    store.query("ALTER TABLE orders ADD COLUMN size INT DEFAULT 7")
    later = version_of(ORDERS, 1, *ORDERS.columns, SIZE)
    for _ in range(2):
        store.deliver(batch_of(later, [Change("i", 2, {"id": 20, "size": 8})]))
    assert {row["id"]: row["size"] for row in store.scan(later)} == {10: 7, 20: 8}


@pytest.mark.demand(7)
def test_a_table_without_a_key_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="has no key"), closing(store.open()) as sink:
        sink.prepare(replace(ORDERS, key=()))


def test_two_tables_with_one_target_are_refused(store: Store) -> None:
    other = replace(ORDERS, namespace=Namespace("mysql", "db1", "shop2", "orders"))
    with closing(store.open()) as sink:
        sink.prepare(ORDERS)
        with pytest.raises(ConfigError, match="would both be written to the table orders"):
            sink.prepare(other)


# --- crashes and company


def test_writers_of_the_same_keys_side_by_side(store: Store) -> None:
    chance = random.Random(1)
    changes = [order(n, chance.randrange(20), chance.choice("iuud")) for n in range(1, 241)]
    expected = {c.values["id"]: c for c in sorted(changes, key=lambda change: change.id)}
    parts = [chance.sample(changes, len(changes)) for _ in range(3)]
    with closing(store.open()) as sink:
        sink.prepare(ORDERS)

    def write(changes: list[Change]) -> None:
        for start in range(0, len(changes), 30):
            piece = batch_of(ORDERS, changes[start : start + 30])
            retried(partial(store.deliver, piece))

    in_threads(*(partial(write, part) for part in parts))
    rows = store.query("SELECT id, _ums_id_, _is_active_ FROM orders ORDER BY id")
    assert [tuple(row) for row in rows] == [
        (key, expected[key].id, int(expected[key].op != "d")) for key in sorted(expected)
    ]


def test_hard_deletes_side_by_side(store: Store) -> None:
    chance = random.Random(2)
    changes = [order(n, chance.randrange(10), chance.choice("ud")) for n in range(1, 121)]
    newest = {c.values["id"]: c for c in changes}
    parts = [chance.sample(changes, len(changes)) for _ in range(3)]
    with closing(store.open(delete="hard")) as sink:
        sink.prepare(ORDERS)

    def write(changes: list[Change]) -> None:
        for start in range(0, len(changes), 10):
            piece = batch_of(ORDERS, changes[start : start + 10])
            retried(partial(store.deliver, piece, delete="hard"))

    in_threads(*(partial(write, part) for part in parts))
    rows = store.query("SELECT id, _ums_id_, _is_active_ FROM orders ORDER BY id")
    live = sorted((key, change.id, 1) for key, change in newest.items() if change.op != "d")
    assert [tuple(row) for row in rows] == live


@pytest.mark.parametrize(("later", "kept_as"), [(ANOTHER_NOTE, "note_v0"), (RENAMED_NOTE, "text")])
def test_a_writer_of_an_older_version_finds_what_another_one_has_made_of_the_table(
    store: Store, later: TableSchema, kept_as: str
) -> None:
    with closing(store.open()) as lane, closing(store.open()) as main:
        for sink, table, change in (
            (lane, ORDERS, order(-9, 10)),
            (main, later, Change("i", 5, {"id": 20, later.columns[1].name: "new"})),
        ):
            sink.prepare(table)
            sink.write(batch_of(table, [change]))
            sink.commit(POSITION)
        lane.write(batch_of(ORDERS, [order(-8, 30)]))
        lane.commit(replace(POSITION, topic="lane"))
    rows = store.query(f"SELECT id, {kept_as} FROM orders WHERE id <> 20 ORDER BY id")
    assert [tuple(row) for row in rows] == [(10, "by -9"), (30, "by -8")]
    assert [row[later.columns[1].name] for row in store.scan(later) if row["id"] == 20] == ["new"]


def test_a_column_that_somebody_else_renames_is_met_by_another_try(store: Store) -> None:
    with closing(store.open()) as sink:
        sink.prepare(ORDERS)
        sink.commit(POSITION)
        store.query("ALTER TABLE orders RENAME COLUMN note TO remark")
        sink.write(batch_of(ORDERS, [order(1, 10)]))
        with pytest.raises(RetryableError, match="note"):
            sink.commit(POSITION)
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    assert [row["note"] for row in store.scan(ORDERS)] == ["by 1"]


@pytest.mark.parametrize("delete", ["soft", "hard"])
def test_no_value_gets_into_a_column_of_another_version_while_the_table_changes(store: Store, delete: str) -> None:
    versions = [ORDERS]
    for version in range(1, 7):
        columns = KEY, replace(NOTE, born_as=f"note@{version}"), AMOUNT
        versions.append(version_of(ORDERS, version, *columns))
    store.deliver(batch_of(ORDERS, [order(1, 1000)]), delete=delete)

    def follow(batches: list[ChangeBatch]) -> None:
        """As a task does: one sink as long as it works, a new one when it does not."""

        def attempt() -> None:
            with closing(store.open(delete=delete)) as sink:
                prepared = None
                while batches:
                    if batches[0].table != prepared:
                        prepared = batches[0].table
                        sink.prepare(prepared)
                    sink.write(batches[0])
                    sink.commit(POSITION)
                    del batches[0]

        retried(attempt)

    lanes = [[batch_of(ORDERS, [order(-1000 + key, key)]) for key in range(lane, 120, 2)] for lane in range(2)]
    main = [batch_of(table, [order(10 + n, 200 + n)]) for n, table in enumerate(versions)]
    in_threads(*(partial(follow, batches) for batches in (*lanes, main)))
    loaded = {key: f"by {-1000 + key}" for key in range(120)}
    assert {row["id"]: row["note"] for row in store.scan(ORDERS) if row["id"] < 120} == loaded
    newest = {row["id"]: row["note"] for row in store.scan(versions[-1])}
    assert newest == {**dict.fromkeys([*range(120), 1000, *range(200, 206)]), 206: "by 16"}


def test_nobody_writes_where_a_change_was_broken_off_until_it_is_ended(mariadb: MariaDb) -> None:
    """A MySQL server has no transaction for it: a row too long for it is found at the last of these columns."""
    too_long = [Column(f"c{n}", pa.utf8(), "varchar(255)") for n in range(70)]
    with mariadb.database() as name:
        store = Store(mariadb.url(name), partial(mariadb.execute, database=name), "`")
        with closing(store.open()) as lane, closing(store.open()) as main:
            lane.prepare(ORDERS)
            with pytest.raises(ConfigError, match="1118"):
                main.prepare(version_of(ORDERS, 1, *ORDERS.columns, *too_long))
            main.close()
            lane.write(batch_of(ORDERS, [order(1, 10)]))
            with pytest.raises(RetryableError, match="columns of the target table orders are being changed"):
                lane.commit(POSITION)
        store.deliver(batch_of(ORDERS, [order(1, 10)]))
        assert store.scan(ORDERS) == [{"id": 10, "note": "by 1", "amount": Decimal(1)}]


@pytest.mark.parametrize("kind", [MariaDb, PostgreSql])
def test_a_server_that_crashes_in_the_middle_loses_nothing(kind: type[MariaDb] | type[PostgreSql]) -> None:
    with kind() as server, server.database() as name:
        store = Store(server.url(name), partial(server.execute, database=name))
        batches = [batch_of(ORDERS, [order(n * 100 + row, row) for row in range(1, 51)]) for n in range(4)]
        store.deliver(batches[0])
        with closing(store.open(batch_rows=10)) as sink:
            sink.prepare(ORDERS)
            sink.write(batches[1])
            sink.commit(POSITION)
            sink.write(batches[2])
            server.kill9()
            with pytest.raises(RetryableError, match=f"{server.host}:{server.port}"):
                sink.write(batches[3])
            with pytest.raises(RetryableError, match=f"{server.host}:{server.port}"):
                sink.commit(POSITION)
        with pytest.raises(RetryableError, match=f"{server.host}:{server.port}"):
            store.deliver(batches[2])
        server.start()
        assert {row["note"] for row in store.scan(ORDERS)} == {f"by {100 + row}" for row in range(1, 51)}
        store.deliver(batches[2], batches[3])
        assert {row["note"] for row in store.scan(ORDERS)} == {f"by {300 + row}" for row in range(1, 51)}


# --- several sources


def test_shards_of_one_table_with_system_columns_of_their_own_names(store: Store) -> None:
    settings: dict[str, Any] = {
        "merge": True, "table": "all_orders", "system_columns": {"id": "ums_id", "active": "order", "source": "Shard"},
    }  # fmt: skip
    other = replace(ORDERS, namespace=replace(ORDERS.namespace, source="db2"))
    store.deliver(batch_of(ORDERS, [order(1, 10), order(2, 20)]), batch_of(other, [order(9, 10)]), **settings)
    store.deliver(batch_of(other, [order(8, 10, "u")]), batch_of(ORDERS, [order(3, 20, "d")]), **settings)
    q = store.quote
    names = ", ".join(f"{q}{name}{q}" for name in ("id", "Shard", "note", "ums_id", "order"))
    found = sorted(store.query(f"SELECT {names} FROM all_orders"))
    assert [(*row[:4], int(row[4])) for row in found] == [
        (10, "mysql.db1.shop.orders", "by 1", 1, 1),
        (10, "mysql.db2.shop.orders", "by 9", 9, 1),
        (20, "mysql.db1.shop.orders", "by 3", 3, 0),
    ]
    with closing(store.open(**settings)) as sink:
        sink.prepare(ORDERS)
        sink.clear(Clear(ORDERS, 5, 5_000_000))
        sink.commit(POSITION)
        assert [row["note"] for batch in sink.scan(other) for row in batch.to_pylist()] == ["by 9"]
        assert not any(len(batch) for batch in sink.scan(ORDERS))


def test_rows_of_another_source_are_not_mixed_with_those_that_are_there(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    other = replace(ORDERS, namespace=replace(ORDERS.namespace, source="db2"))
    with closing(store.open()) as sink:
        [told] = sink.misfits([other])
        with pytest.raises(ConfigError, match=r"orders has the rows of mysql\.db1\.shop\.orders") as refusal:
            sink.prepare(other)
    assert told.message == refusal.value.message
    store.query("DROP TABLE orders")
    store.deliver(batch_of(other, [order(2, 20)]))
    assert [row["id"] for row in store.scan(other)] == [20]


# --- messages


_LONG = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    (Column("id", pa.int64(), "bigint"), Column("note", pa.utf8(), "varchar(40)"), Column("n", pa.int64(), "bigint")),
    ("id",),
)


@pytest.mark.parametrize("rows", [1, 3, 700])
@pytest.mark.parametrize(
    ("fixture", "note", "n", "problem"),
    [
        ("postgresql", "a\0b", 1, "NUL|0x00"),
        ("postgresql", "a", 40_000, "out of range"),
        ("postgresql", "x" * 41, 1, "too long"),
        ("mariadb", "x" * 41, 1, "note"),
        ("mariadb", "a", 40_000, "'n'"),
    ],
)
def test_a_value_that_a_server_refuses_names_its_row(
    fixture: str, note: str, n: int, problem: str, rows: int, request: pytest.FixtureRequest
) -> None:
    server: MariaDb | PostgreSql = request.getfixturevalue(fixture)
    with server.database() as name:
        store = Store(server.url(name), partial(server.execute, database=name))
        store.query(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, note VARCHAR(40), n SMALLINT, _ums_id_ BIGINT NOT NULL, "
            f"_ums_ts_ {'TIMESTAMPTZ' if fixture == 'postgresql' else 'DATETIME(6)'} NOT NULL, _is_active_ SMALLINT NOT NULL)"
        )
        table = version_of(_LONG, 0, *_LONG.columns[:2], Column("n", pa.int16(), "smallint"))
        good = [Change("i", row + 1, {"id": row, "note": "good", "n": 1}) for row in range(rows)]
        wide = batch_of(_LONG, [*good[:-1], Change("i", 9000, {"id": 777, "note": note, "n": n})])
        wide = ChangeBatch(table, wide.data)
        [found] = refused([Part([Place(0, 0, number) for number in range(rows)], wide, wide)], store.open)
        assert found.row.places == [Place(0, 0, rows - 1)]
        assert re.match(f"(?s)table shop.orders, row with id=777: .*({problem})", found.named().message)
        assert store.query("SELECT id FROM orders") in ([], ())


@pytest.mark.parametrize("fixture", ["postgresql", "mariadb"])
def test_logins_that_fail_say_what_to_do(fixture: str, request: pytest.FixtureRequest) -> None:
    server: MariaDb | PostgreSql = request.getfixturevalue(fixture)
    right = server.url("nowhere")
    server.execute(
        "CREATE USER IF NOT EXISTS reader IDENTIFIED BY 'pw'"
        if fixture == "mariadb"
        else "DO $$ BEGIN CREATE USER reader PASSWORD 'pw'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    with server.database() as name:
        if fixture == "mariadb":
            server.execute(f"GRANT SELECT ON {name}.* TO reader")
        reader = server.url(name).replace(server.url(name).split("//")[1].split("@")[0], "reader:pw")
        cases = {
            right: "nowhere",
            server.url(name).replace("secret", "wrong"): server.user,
            reader: "denied|permission",
        }
        for url, message in cases.items():
            with pytest.raises(ConfigError, match=message) as raised:
                Store(url, server.execute).deliver(batch_of(ORDERS, [order(1, 1)]))
            assert "wrong" not in str(raised.value)


def test_a_lock_that_is_held_is_waited_for_and_then_retryable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sinks.database.sqlite._BUSY_TIMEOUT_S", 0.05)
    store = Store(f"sqlite:///{tmp_path / 'mart.db'}", partial(_sqlite_query, tmp_path / "mart.db"))
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    with closing(sqlite3.connect(tmp_path / "mart.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryableError, match="locked"):
            store.deliver(batch_of(ORDERS, [order(2, 10)]))
    store.deliver(batch_of(ORDERS, [order(2, 10)]))
    assert [row["note"] for row in store.scan(ORDERS)] == ["by 2"]


def test_a_full_disk_is_a_storage_error_and_loses_nothing(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'mart.db'}", partial(_sqlite_query, tmp_path / "mart.db"))
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageError, match=r"mart\.db"):
            store.deliver(batch_of(ORDERS, [order(n, n, note="x" * 40) for n in range(2, 9000)]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row["id"] for row in store.scan(ORDERS)] == [10]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "oracle://h/db"}, "no known database"),
        ({"url": "mart.db"}, "no known database"),
        ({"url": "sqlite://mart.db"}, "names no file"),
        ({"url": "sqlite:///:memory:"}, "in memory"),
        ({"url": "sqlite:///no/such/folder/mart.db"}, "folder of no/such/folder/mart.db"),
        ({"url": "sqlite:///x.db", "schema": "s"}, "no schemas"),
        ({"url": "duckdb://mart.db"}, "names no file"),
        ({"url": "duckdb:///:memory:"}, "DuckDB database in memory"),
        ({"url": "duckdb:///no/such/folder/mart.db"}, "folder of no/such/folder/mart.db"),
        ({"url": "duckdb:///x.db?access_mode=READ_ONLY"}, "unknown option.* access_mode"),
        ({"url": "postgresql:///db"}, "no host"),
        ({"url": "postgresql://u:geheim@h:port/db"}, "cannot be read"),
        ({"url": "postgresql://u:geheim@h/db?ssl=1"}, "unknown option.* ssl"),
        ({"url": "mysql://u:geheim@h"}, "names no database"),
        ({"url": "sqlite:///x.db", "table": "{tabel}"}, "no naming pattern"),
        ({"url": "sqlite:///x.db", "table": "{table"}, "no naming pattern"),
        ({"url": "sqlite:///x.db", "table": "{table.__class__}"}, "no naming pattern"),
        ({"url": "sqlite:///x.db", "table": ""}, "no naming pattern"),
    ],
)
def test_wrong_settings_say_what_to_write(settings: dict[str, object], message: str) -> None:
    def deliver() -> None:
        config = DatabaseSink.Config.model_validate({"type": "database", **settings})
        with closing(DatabaseSink(config, "flow")) as sink:
            sink.prepare(ORDERS)

    with pytest.raises((ConfigError, ValidationError), match=message) as raised:
        deliver()
    assert "geheim" not in str(raised.value)


def test_the_schema_may_name_the_database_of_a_mysql_server(mariadb: MariaDb) -> None:
    with mariadb.database() as name:
        store = Store(mariadb.url(""), partial(mariadb.execute, database=name), "`")
        store.deliver(batch_of(ORDERS, [order(1, 10)]), schema=name)
        assert store.query("SELECT id FROM orders") == [(10,)]


def test_names_that_a_store_cannot_have_are_refused(store: Store) -> None:
    for name in ("", "a\0b", *([] if store.url.startswith(tuple(_FILES)) else ["ü" * 300])):
        table = replace(ORDERS, namespace=replace(ORDERS.namespace, table=name))
        with pytest.raises(HeadraceError, match=r"cannot have the name|naming|too long"), closing(store.open()) as sink:
            sink.prepare(table)


def test_a_decimal_that_is_wider_than_the_target_is_refused_or_kept_exactly(store: Store) -> None:
    table = replace(ORDERS, columns=(ORDERS.columns[0], Column("n", pa.decimal256(70, 35), "decimal(70,35)")))
    value = Decimal("9" * 35 + "." + "1" * 35)
    store.deliver(batch_of(table, [Change("i", 1, {"id": 1, "n": value})]))
    assert [row["n"] for row in store.scan(table)] == [value]
