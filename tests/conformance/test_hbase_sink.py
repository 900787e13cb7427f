"""What only HBase has: cells as their readers see them, versions, row keys, other writers, servers and workers that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, FatalError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.hbase import HBaseSink, client
from headrace.sinks.hbase.protocol import IDL
from headrace.testing.sink import ORDERS, Change, batch_of, order, retried, version_of
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.conformance.two_versions import AMOUNT, KEY, NOTE, SWAPPED, written
from tests.faults import hbase_writer
from tests.servers.hbase import HBase, Thrift2

KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
OFFSET = 10**10
Cells = dict[str, tuple[bytes, int]]


class Store:
    """A namespace of the server that is a test's own."""

    def __init__(self, server: HBase) -> None:
        self.space = server.namespace()
        self.url = server.url
        self.client = server.connect()

    @property
    def orders(self) -> bytes:
        return f"{self.space}:orders".encode()

    def open(self, **settings: object) -> HBaseSink:
        config = {"type": "hbase", "url": self.url, "table": f"{self.space}:{{table}}", **settings}
        return HBaseSink(HBaseSink.Config.model_validate(config), "flow")

    def deliver(self, *changes: ChangeBatch | Clear, **settings: object) -> None:
        with closing(self.open(**settings)) as sink:
            for change in changes:
                sink.prepare(change.table)
                sink.clear(change) if isinstance(change, Clear) else sink.write(change)
            sink.commit(Position("topic", 0, 1, 1, 1))

    def cells(self, row: bytes, table: bytes | None = None) -> Cells:
        found = self.client.get(table or self.orders, IDL.TGet(row=row)).columnValues
        return {cell.qualifier.decode(): (cell.value, cell.timestamp) for cell in found}

    def keys(self, table: bytes | None = None) -> list[bytes]:
        return [
            row.row for row in self.client.getScannerResults(table or self.orders, IDL.TScan(maxVersions=1), 10_000)
        ]

    def put(self, row: bytes, version: int | None = None) -> None:
        cell = IDL.TColumnValue(b"cf", b"note", b"other", version)
        self.client.put(self.orders, IDL.TPut(row, [cell]))

    def create(self, **family: Any) -> None:
        if self.space not in self.client.listNamespaces():
            self.client.createNamespace(IDL.TNamespaceDescriptor(self.space))
        descriptor = IDL.TColumnFamilyDescriptor(**family)
        self.client.createTable(IDL.TTableDescriptor(IDL.TTableName(self.space.encode(), b"orders"), [descriptor]), [])

    def scan(self, table: TableSchema, **settings: object) -> list[dict[str, Any]]:
        with closing(self.open(**settings)) as sink:
            return [row for batch in sink.scan(table) for row in batch.to_pylist()]


@pytest.fixture
def store(hbase: HBase) -> Iterator[Store]:
    made = Store(hbase)
    yield made
    made.client.close()


# --- what readers see


def test_a_row_is_a_cell_per_column_with_the_id_as_version(store: Store) -> None:
    id_ = 103_000_012_345_678
    store.deliver(batch_of(ORDERS, [Change("i", id_, {"id": 10, "note": "ü", "amount": Decimal("0.50")})]))
    version = id_ + OFFSET
    assert store.cells(b"10") == {
        "_ums_id_": (str(id_).encode(), version),
        "_ums_ts_": (b"2027-02-19 01:20:12.345678", version),
        "_is_active_": (b"1", version),
        "id": (b"10", version),
        "note": ("ü".encode(), version),
        "amount": (b"0.50", version),
    }


def test_null_is_an_empty_cell_and_the_empty_text_is_not(store: Store) -> None:
    rows = [{"id": 1, "note": ""}, {"id": 2}, {"id": 3, "note": "\0\0"}]
    store.deliver(batch_of(ORDERS, [Change("i", n + 1, row) for n, row in enumerate(rows)]))
    assert [store.cells(row)["note"][0] for row in (b"1", b"2", b"3")] == [b"\0", b"", b"\0\0\0"]
    assert [row["note"] for row in store.scan(ORDERS)] == ["", None, "\0\0"]


@pytest.mark.parametrize("form", ["columns", "json"])
def test_a_newer_null_hides_an_older_value_in_any_order(store: Store, form: str) -> None:
    newer = batch_of(ORDERS, [Change("u", 2, {"id": 10, "amount": Decimal(2)})])
    store.deliver(newer, batch_of(ORDERS, [order(1, 10)]), form=form)
    assert store.scan(ORDERS, form=form) == [{"id": 10, "note": None, "amount": Decimal(2)}]


def test_a_row_may_be_one_cell_of_json(store: Store) -> None:
    table = version_of(ORDERS, 0, *ORDERS.columns, Column("raw", pa.binary(), "blob"))
    store.deliver(batch_of(table, [Change("i", 5, {"id": 10, "note": 'ü"', "raw": b"\0\xff"})]), form="json")
    cells = store.cells(b"10")
    assert cells.keys() == {"_ums_id_", "_ums_ts_", "_is_active_", "row"}
    assert cells["row"] == ('{"id":"10","note":"ü\\"","amount":null,"raw":"AP8="}'.encode(), 5 + OFFSET)


def test_binary_values_are_those_of_java(store: Store) -> None:
    columns = (KEY, AMOUNT, Column("flag", pa.bool_(), "boolean"), Column("ratio", pa.float64(), "double"))
    table = version_of(ORDERS, 0, *columns)
    row = {"id": -2, "amount": Decimal("-1.50"), "flag": True, "ratio": 1.0}
    store.deliver(batch_of(table, [Change("i", 1, row)]), values="binary", key_encoding="binary")
    cells = store.cells(b"\x7f" + b"\xff" * 6 + b"\xfe")
    assert cells["id"][0] == b"\xff" * 7 + b"\xfe"
    assert cells["amount"][0] == b"\0\0\0\2" + b"\xff\x6a"
    assert (cells["flag"][0], cells["ratio"][0]) == (b"\xff", b"\x3f\xf0" + b"\0" * 6)


@pytest.mark.parametrize("form", ["columns", "json"])
def test_a_soft_delete_keeps_values_and_says_when(store: Store, form: str) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]), form=form)
    store.deliver(batch_of(ORDERS, [Change("d", 2, {"id": 10}), Change("d", 3, {"id": 11})]), form=form)
    cells = store.cells(b"10")
    assert (cells["_is_active_"], cells["_ums_id_"]) == ((b"0", 2 + OFFSET), (b"2", 2 + OFFSET))
    assert b"by 1" in cells["row" if form == "json" else "note"][0]
    assert store.cells(b"11")["_is_active_"][0] == b"0"


def test_a_hard_delete_leaves_nothing_to_see_and_other_families_alone(store: Store) -> None:
    store.create(name=b"other")
    store.deliver(batch_of(ORDERS, [order(1, 10)]), delete="hard")
    store.client.put(store.orders, IDL.TPut(b"10", [IDL.TColumnValue(b"other", b"q", b"v")]))
    store.deliver(batch_of(ORDERS, [order(2, 10, "d")]), delete="hard")
    store.deliver(batch_of(ORDERS, [order(1, 10)]), delete="hard")
    assert store.cells(b"10").keys() == {"q"}


def test_three_versions_are_kept_of_a_table_that_headrace_makes(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(n, 10, "u") for n in range(1, 6)]))
    [row] = store.client.getScannerResults(store.orders, IDL.TScan(maxVersions=10), 10)
    notes = [(cell.value, cell.timestamp) for cell in row.columnValues if cell.qualifier == b"note"]
    assert notes == [(f"by {n}".encode(), n + OFFSET) for n in (5, 4, 3)]


def test_what_a_truncate_ended_stays_ended_though_it_comes_again(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10), order(9, 20)]), Clear(ORDERS, 5, 5_000_000))
    store.deliver(batch_of(ORDERS, [order(4, 30), order(-3, 40), order(5, 50)]))
    assert sorted(row["id"] for row in store.scan(ORDERS)) == [20, 50]
    assert [store.cells(row)["_is_active_"][0] for row in (b"10", b"20", b"30", b"40", b"50")] == [
        b"0",
        b"1",
        b"0",
        b"0",
        b"1",
    ]


def test_a_writer_that_did_not_know_of_a_truncate_looks_again(store: Store) -> None:
    with closing(store.open()) as slow:
        slow.prepare(ORDERS)
        slow.write(batch_of(ORDERS, [order(3, 10), order(7, 20)]))
        store.deliver(Clear(ORDERS, 5, 5_000_000))
        slow.commit(Position("topic", 0, 1, 1, 1))
    assert store.cells(b"10")["_is_active_"][0] == b"0"
    assert [row["id"] for row in store.scan(ORDERS)] == [20]


# --- row keys and names


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, b"17:a%3Ab"),
        ({"row_key": "{code}:{id:08}"}, b"a%3Ab:00000017"),
        ({"row_key": "{id:reverse}/{code}"}, b"71/a:b"),
        ({"row_key": "{hash:4}{key}"}, b"953817:a%3Ab"),
        ({"row_key": "{salt:16}-{key}"}, b"05-17:a%3Ab"),
        ({"key_encoding": "binary"}, b"\x80" + b"\0" * 6 + b"\x11" + b"a:b\0\0"),
    ],
)
def test_row_keys_are_what_the_pattern_says(store: Store, settings: dict[str, str], key: bytes) -> None:
    table = replace(ORDERS, columns=(KEY, Column("code", pa.utf8(), "varchar(9)")), key=("id", "code"))
    store.deliver(batch_of(table, [Change("i", 1, {"id": 17, "code": "a:b"})]), **settings)
    assert store.keys() == [key]


def test_a_salted_table_has_a_region_per_bucket_and_splits_may_be_named(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]), row_key="{salt:3}-{key}")
    other = replace(ORDERS, namespace=Namespace("mysql", "db1", "shop", "others"))
    store.deliver(batch_of(other, [order(1, 10)]), splits=["3", "6"], versions=1, compression="gz")
    meta = store.client.getScannerResults(b"hbase:meta", IDL.TScan(maxVersions=1), 10_000)
    regions = [
        row.row.split(b",")[:2] for row in meta if row.row.startswith(f"{store.space}:o".encode()) and b"," in row.row
    ]
    assert [start for name, start in regions if name == store.orders] == [b"", b"01", b"02"]
    assert [start for name, start in regions if name != store.orders] == [b"", b"3", b"6"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"row_key": "{salt:16}"}, {"row_key": "{id:backwards}"}, {"row_key": "{key"}, {"row_key": "100%{key}"}, {"url": "http://x"},
        {"table": "a:b:{table}"}, {"table": "{tble}"}, {"form": "json", "values": "binary"},
    ],
)  # fmt: skip
def test_wrong_settings_are_told(store: Store, wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        store.open(**wrong)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"row_key": "{note}"}, "does not have exactly the key columns"),
        ({"row_key": "{id}{note}"}, "side by side"),
        ({"row_key": "{id}{note:09}", "key_encoding": "binary"}, "zeros go in front"),
        ({"row_key": "{id}:{note}", "key_encoding": "binary"}, "binary ones need nothing there"),
    ],
)
def test_row_keys_that_do_not_suit_a_table_are_refused(store: Store, settings: dict[str, str], told: str) -> None:
    table = replace(ORDERS, key=("id", "note"))
    with closing(store.open(**settings)) as sink, pytest.raises(ConfigError) as error:
        sink.prepare(table)
    assert told in str(error.value)


def test_rows_keep_the_form_that_they_have(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    with pytest.raises(ConfigError, match="have the row key"):
        store.deliver(batch_of(ORDERS, []), row_key="{salt:2}{key}")
    with pytest.raises(ConfigError, match="would both be written"):
        store.deliver(batch_of(replace(ORDERS, namespace=Namespace("mysql", "db2", "shop", "orders")), []))
    text_key = version_of(ORDERS, 1, replace(KEY, type=pa.utf8()), NOTE, AMOUNT)
    with pytest.raises(DataError, match="other row keys"):
        store.deliver(batch_of(text_key, []))


def test_a_row_without_a_key_or_with_too_long_a_one_is_refused(store: Store) -> None:
    table = replace(ORDERS, key=("note",))
    for note, told in ((None, "no value in a key column"), ("x" * 40_000, "32767 bytes")):
        with pytest.raises(DataError, match=told):
            store.deliver(batch_of(table, [Change("i", 1, {"id": 1, "note": note})]))


# --- other writers, other shapes


def test_tables_that_would_lose_changes_are_refused(store: Store) -> None:
    fixed = {"table": f"{store.space}:orders"}
    store.create(name=b"cf", maxVersions=1, timeToLive=86400)
    with closing(store.open(**fixed)) as sink:
        for refused in (sink.check, lambda: sink.prepare(ORDERS)):
            with pytest.raises(ConfigError, match="TTL of 86400"):
                refused()
    store.deliver(batch_of(ORDERS, [order(1, 10)]), family="headrace")
    assert store.cells(b"10")["note"][0] == b"by 1"


def test_another_writer_is_seen_by_its_versions(store: Store) -> None:
    store.create(name=b"cf")
    store.put(b"10")
    with pytest.raises(ConfigError, match="somebody else writes"):
        store.deliver(batch_of(ORDERS, []))
    store.client.deleteMultiple(store.orders, [IDL.TDelete(row=b"10")])
    store.deliver(batch_of(ORDERS, [Change("i", 1_700_000_000_000, {"id": 11})]))
    with closing(store.open()) as sink:
        sink.check()
        store.put(b"12")
        with pytest.raises(ConfigError, match="row b'12'"):
            sink.check()


def test_old_rows_come_to_a_new_shape_and_cells_keep_their_meaning(store: Store) -> None:
    store.deliver(batch_of(ORDERS, [order(1, 10)]))
    later = version_of(
        ORDERS, 1, KEY, replace(NOTE, name="text", born_as="note"), replace(NOTE, born_as="note@5"), AMOUNT
    )
    store.deliver(batch_of(later, [Change("i", 6, {"id": 20, "text": "t", "note": "n"})]))
    assert {name: cell for name, cell in store.cells(b"10").items() if name in ("text", "note")} == {
        "text": (b"by 1", 1 + OFFSET)
    }
    assert [store.cells(b"20")[name][0] for name in ("text", "note_v1")] == [b"t", b"n"]


@pytest.mark.parametrize("form", ["columns", "json"])
def test_writers_of_two_versions_beside_each_other(store: Store, form: str) -> None:
    """Columns exchange their names while both shapes are written: every value ends where it belongs."""
    expected = written(lambda: store.open(form=form), 400)
    found = store.scan(SWAPPED, form=form)
    assert {(row["id"], row["amount"], int(row["note"]), row["size"]) for row in found} == expected
    assert len(found) == 40


def test_a_move_that_was_broken_off_is_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.deliver(batch_of(ORDERS, [order(n, n) for n in range(1, 2501)]))
    with closing(store.open()) as sink:
        calls = iter(range(100))
        move = sink._move

        def dies(*arguments: Any) -> None:
            if next(calls) == 1:
                raise RetryableError("the connection is lost", fix="")
            move(*arguments)

        monkeypatch.setattr(sink, "_move", dies)
        with pytest.raises(RetryableError, match="lost"):
            sink.prepare(SWAPPED)
    store.deliver(batch_of(ORDERS, [order(5000, 1)]))
    found = sorted(store.scan(SWAPPED), key=lambda row: row["id"])
    expected = [("by 5000", 5000), *((f"by {n}", n) for n in range(2, 2501))]
    assert [(row["amount"], int(row["note"])) for row in found] == expected


# --- servers and workers that are away


def test_what_stands_in_the_way_is_told(store: Store) -> None:
    with pytest.raises(RetryableError, match="is away"), closing(store.open(url="thrift://127.0.0.1:1")) as sink:
        sink.check()
    with pytest.raises(RetryableError, match="framed"), closing(store.open(framed=True, timeout="2s")) as sink:
        sink.check()
    with closing(store.open()) as sink, pytest.raises(FatalError, match="there is no HBase table"):
        next(sink._client.pages(f"{store.space}:nowhere"))


def test_a_server_that_speaks_otherwise_and_hangs_up_on_who_is_silent(
    store: Store, hbase: HBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "IDLE_S", 0.3)
    with (
        Thrift2(hbase, "-f", "-c", "-t", "500") as other,
        closing(store.open(url=other.url, framed=True, compact=True)) as sink,
    ):
        sink.prepare(ORDERS)
        time.sleep(1.5)  # longer than it waits
        sink.write(batch_of(ORDERS, [order(1, 10)]))
        sink.commit(Position("topic", 0, 1, 1, 1))
    assert store.cells(b"10")["note"][0] == b"by 1"


@pytest.mark.parametrize("what", ["hbase", "thrift"])
def test_a_server_that_is_killed_in_mid_batch(store: Store, hbase: HBase, what: str) -> None:
    """Retried as the follower does, from the last commit; what is there in the end is what the source has."""
    server = hbase if what == "hbase" else hbase.thrift
    table, done, last = f"{store.space}:{what}", 0, 4 * KILLS + 4
    for round_ in range(KILLS):
        until = last if round_ == KILLS - 1 else done + 4
        timer = threading.Timer(0.2 + random.random(), lambda: server._end(signal.SIGKILL))
        timer.start()
        with suppress(RetryableError), closing(hbase_writer.open_sink(store.url, table)) as sink:
            sink.prepare(ORDERS)
            while timer.is_alive() or done < until:
                hbase_writer.deliver(sink, min(done, last - 1))
                done = min(done + 1, last)
        timer.join()
        server.start()
        until = min(last, max(until, done + 1))  # what was broken off is there in parts, until it is written again

        def rest(until: int = until) -> None:
            nonlocal done
            with closing(hbase_writer.open_sink(store.url, table)) as sink:
                sink.prepare(ORDERS)
                while done < until:
                    hbase_writer.deliver(sink, done)
                    done += 1

        retried(rest)
        assert hbase_writer.live(store.url, table) == hbase_writer.expected(done)


def test_a_worker_that_is_killed_in_mid_batch(store: Store) -> None:
    table, done, last = f"{store.space}:worker", 0, 4 * KILLS + 4
    chance = random.Random()
    for left in reversed(range(KILLS + 1)):
        command = [sys.executable, "-m", "tests.faults.hbase_writer", store.url, table, str(done), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            if left:
                time.sleep(chance.random() / 2)
                worker.kill()
            said = worker.stdout.read().split()
        done = int(said[-1]) if said else done
    assert done == last
    assert hbase_writer.live(store.url, table) == hbase_writer.expected(last)
