"""What only databases have: system columns, hard deletes, crashes of a server, writers side by side, messages to people."""

from __future__ import annotations

import random
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, HeadraceError, RetryableError, StorageError
from headrace.sinks.base import Position
from headrace.sinks.database import DatabaseSink
from headrace.testing.sink import ORDERS, Change, batch_of, in_threads, order, retried, version_of
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.servers.mariadb import MariaDb
from tests.servers.postgresql import PostgreSql

POSITION = Position("topic", 0, 1, 1, 1)


class Store:
    """An empty database of one dialect and a plain client for it."""

    def __init__(self, url: str, query: Callable[[str], list[tuple[Any, ...]]], quote: str = '"') -> None:
        self.url, self.query, self.quote = url, query, quote

    def open(self, **settings: object) -> DatabaseSink:
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


def _sqlite_query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        path = tmp_path / "mart.db"
        yield Store(f"sqlite:///{path}", partial(_sqlite_query, path))
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
        with closing(store.open()) as sink:
            sink.prepare(table)
            wide = ChangeBatch(
                _LONG, batch_of(_LONG, [*good[:-1], Change("i", 9000, {"id": 777, "note": note, "n": n})]).data
            )
            sink.write(wide)
            with pytest.raises(DataError, match=f"(?s)table orders, row with id=777: .*({problem})"):
                sink.commit(POSITION)
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
    for name in ("", "a\0b", *([] if store.url.startswith("sqlite") else ["ü" * 70])):
        table = replace(ORDERS, namespace=replace(ORDERS.namespace, table=name))
        with pytest.raises(HeadraceError, match=r"cannot have the name|naming"), closing(store.open()) as sink:
            sink.prepare(table)


def test_a_decimal_that_is_wider_than_the_target_is_refused_or_kept_exactly(store: Store) -> None:
    table = replace(ORDERS, columns=(ORDERS.columns[0], Column("n", pa.decimal256(70, 35), "decimal(70,35)")))
    value = Decimal("9" * 35 + "." + "1" * 35)
    store.deliver(batch_of(table, [Change("i", 1, {"id": 1, "n": value})]))
    assert [row["n"] for row in store.scan(table)] == [value]
