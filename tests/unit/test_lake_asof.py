"""A table as of a moment: keys, versions, defaults, odd files."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigError, DataError
from headrace.lake.asof import as_of
from headrace.lake.reshape import initial_value
from headrace.ums.change import Cause, ChangeBatch, Clear
from headrace.ums.schema import Column, TableSchema
from tests.lake_tables import ID_NAME, ORDERS, at, changes, land, open_sink, rows, table, time_of


def land_each(path: Path, *batches: ChangeBatch) -> None:
    """Each batch in a commit and a file of its own."""
    for offset, batch in enumerate(batches, start=1):
        land(path, batch, offset=offset)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    land_each(
        tmp_path,
        changes(ID_NAME, (10, "i", 1, "a"), (20, "i", 2, "b"), (30, "u", 1, "aa")),
        changes(ID_NAME, (40, "d", 2, "b"), (50, "i", 3, "c")),
        changes(ID_NAME, (60, "i", 2, "again"), (70, "d", 1, "aa")),
    )
    return tmp_path


MOMENTS = [
    (9, []),
    (10, [(1, "a")]),
    (29, [(1, "a"), (2, "b")]),
    (30, [(1, "aa"), (2, "b")]),
    (40, [(1, "aa")]),
    (60, [(1, "aa"), (2, "again"), (3, "c")]),
    (70, [(2, "again"), (3, "c")]),
    (2**63 - 1, [(2, "again"), (3, "c")]),
]


@pytest.mark.parametrize(("id_", "expected"), MOMENTS)
def test_as_of_an_id(orders: Path, id_: int, expected: list[tuple[Any, ...]]) -> None:
    assert rows(as_of(orders, ORDERS, id=id_)) == expected


@pytest.mark.parametrize(("id_", "expected"), MOMENTS[:-1])
def test_as_of_a_time(orders: Path, id_: int, expected: list[tuple[Any, ...]]) -> None:
    there = time_of(id_)
    assert rows(as_of(orders, ORDERS, time=there)) == expected
    assert rows(as_of(orders, ORDERS, time=there.replace(tzinfo=None))) == expected
    assert rows(as_of(orders, ORDERS, time=there.astimezone(timezone(timedelta(hours=8))))) == expected


def test_as_of_the_newest_state(orders: Path) -> None:
    assert rows(as_of(orders, ORDERS)) == [(2, "again"), (3, "c")]


def test_only_one_moment(orders: Path) -> None:
    with pytest.raises(ConfigError, match="an id or a time"):
        as_of(orders, ORDERS, id=1, time=datetime.now(UTC))


@pytest.mark.parametrize("name", ["mysql.db1.shop.order", "mysql.db1.shop.orders.9.0.0", "orders", ""])
def test_an_unknown_name_gets_the_near_ones(orders: Path, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        as_of(orders, name)
    assert "mysql.db1.shop.orders" in raised.value.fix


def test_files_that_cannot_matter_are_not_opened(orders: Path) -> None:
    newest = max((orders / "mysql").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_text("unreadable")
    assert rows(as_of(orders, ORDERS, id=50)) == [(1, "aa"), (3, "c")]
    assert rows(as_of(orders, ORDERS, time=time_of(50))) == [(1, "aa"), (3, "c")]


def evolved() -> list[TableSchema]:
    """ADD, widen, DROP, and ADD again under the old name."""
    id_, name = Column("id", pa.int32(), "int"), Column("name", pa.utf8(), "varchar(9)")
    status = Column("status", pa.utf8(), "varchar(9)", initial_default="new")
    price = Column("price", pa.decimal128(10, 2), "decimal(10,2)", initial_default="1.50")
    return [
        table(id_, name, version=0),
        table(id_, name, status, version=1),
        table(Column("id", pa.int64(), "bigint"), status, price, version=2),
        table(Column("id", pa.int64(), "bigint"), replace(name, initial_default="?"), status, price, version=3),
    ]


def test_across_versions(tmp_path: Path) -> None:
    v0, v1, v2, v3 = evolved()
    land_each(
        tmp_path,
        changes(v0, (1, "i", 1, "a"), (2, "i", 2, "b")),
        changes(v1, (3, "i", 3, "c", "paid"), (4, "d", 2, "b", "new")),
        changes(v2, (5, "i", 2**40, "paid", Decimal("9.99")), (6, "u", 3, "done", None)),
        changes(v3, (7, "i", 7, "g", "new", Decimal("3.00"))),
    )
    assert rows(as_of(tmp_path, ORDERS, id=2)) == [(1, "a"), (2, "b")]
    assert rows(as_of(tmp_path, ORDERS, id=4)) == [(1, "a", "new"), (3, "c", "paid")]
    assert rows(as_of(tmp_path, ORDERS, id=6)) == [
        (1, "new", Decimal("1.50")),
        (1099511627776, "paid", Decimal("9.99")),
        (3, "done", None),
    ]
    newest = as_of(tmp_path, ORDERS)
    assert newest.column_names == ["id", "name", "status", "price"]
    assert rows(newest)[0] == (1, "?", "new", Decimal("1.50"))
    assert rows(as_of(tmp_path, f"{ORDERS}.1.0.0")) == [(3, "c", "paid")]


def test_the_columns_before_the_first_change(tmp_path: Path) -> None:
    v0, v1, *_ = evolved()
    land_each(tmp_path, changes(v0, (1, "i", 1, "a")), changes(v1, (3, "i", 3, "c", "paid")))
    assert as_of(tmp_path, ORDERS, id=0).column_names == ["id", "name"]


def test_what_does_not_fit_the_new_type_is_said(tmp_path: Path) -> None:
    v0, v1 = table(("id", pa.int64()), ("n", pa.utf8())), table(("id", pa.int64()), ("n", pa.int32()), version=1)
    land_each(tmp_path, changes(v0, (1, "i", 1, "many")), changes(v1, (2, "i", 2, 5)))
    with pytest.raises(DataError, match=r"column 'n' of .* holds values of version 0"):
        as_of(tmp_path, ORDERS)
    assert rows(as_of(tmp_path, ORDERS, id=1)) == [(1, "many")]


def test_a_key_that_old_rows_lack_is_said(tmp_path: Path) -> None:
    v0, v1 = table(("n", pa.int64()), key=("n",)), table(("n", pa.int64()), ("id", pa.int64()), version=1)
    land_each(tmp_path, changes(v0, (1, "i", 1)), changes(v1, (2, "i", 2, 5)))
    with pytest.raises(DataError, match="key column 'id'"):
        as_of(tmp_path, ORDERS)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (pa.int8(), "-5", -5),
        (pa.uint64(), "18446744073709551615", 2**64 - 1),
        (pa.float64(), "1.5", 1.5),
        (pa.decimal128(10, 2), "1.5", Decimal("1.50")),
        (pa.decimal256(65, 2), "1.50", Decimal("1.50")),
        (pa.utf8(), "", ""),
        (pa.binary(), "AP8=", b"\x00\xff"),
        (pa.date32(), "2026-01-31", date(2026, 1, 31)),
        (pa.timestamp("us"), "2026-01-31 01:02:03.5", datetime(2026, 1, 31, 1, 2, 3, 500000)),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), "2026-01-31 01:02:03", datetime(2026, 1, 31, 1, 2, 3, tzinfo=UTC)),
        (pa.duration("us"), "-838:59:59.25", -timedelta(hours=838, minutes=59, seconds=59, milliseconds=250)),
        (pa.int32(), None, None),
        (pa.date32(), "0000-00-00", None),
        (pa.timestamp("us"), "2024-00-15 00:00:00", None),
    ],
)
def test_initial_defaults_are_read_from_text(type_: pa.DataType, text: str | None, value: object) -> None:
    column = Column("c", type_, "", initial_default=text)
    found = initial_value(column, ID_NAME)
    assert (found.type, found.as_py()) == (type_, value)


@pytest.mark.parametrize("type_", [pa.int8(), pa.duration("us"), pa.timestamp("us"), pa.date32(), pa.decimal128(5, 2)])
def test_an_initial_default_that_is_none_of_its_type(type_: pa.DataType) -> None:
    with pytest.raises(DataError, match="'soon' of column 'c'"):
        initial_value(Column("c", type_, "", initial_default="soon"), ID_NAME)


def test_without_a_key_inserts_are_counted(tmp_path: Path) -> None:
    log = table(("text", pa.utf8()), key=())
    land_each(tmp_path, changes(log, (1, "i", "x"), (2, "i", "x")), changes(log, (3, "i", "y"), (2, "i", "x")))
    assert rows(as_of(tmp_path, ORDERS)) == [("x",), ("x",), ("y",)]


@pytest.mark.parametrize("operation", ["u", "d"])
def test_without_a_key_updates_and_deletes_are_refused(tmp_path: Path, operation: str) -> None:
    log = table(("text", pa.utf8()), key=())
    land_each(tmp_path, changes(log, (1, "i", "x"), (2, operation, "x")))
    with pytest.raises(DataError, match="has no key, and 1 updates or deletes"):
        as_of(tmp_path, ORDERS)
    assert rows(as_of(tmp_path, ORDERS, id=1)) == [("x",)]


def test_a_change_delivered_twice_counts_once(tmp_path: Path) -> None:
    twice = changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b"), (3, "d", 1, "a"))
    land(tmp_path, twice, flow="one")
    land(tmp_path, twice, twice, flow="another")
    assert rows(as_of(tmp_path, ORDERS)) == [(2, "b")]
    assert rows(as_of(tmp_path, ORDERS, id=2)) == [(1, "a"), (2, "b")]


def test_overlapping_files_are_read_in_id_order(tmp_path: Path) -> None:
    land_each(
        tmp_path,
        changes(ID_NAME, (10, "u", 1, "ten"), (40, "u", 2, "forty")),
        changes(ID_NAME, (-5, "i", 1, "loaded"), (-4, "i", 2, "loaded"), (-3, "i", 3, "loaded")),
        changes(ID_NAME, (20, "d", 1, ""), (30, "u", 2, "thirty")),
    )
    assert rows(as_of(tmp_path, ORDERS)) == [(2, "forty"), (3, "loaded")]
    assert rows(as_of(tmp_path, ORDERS, id=30)) == [(2, "thirty"), (3, "loaded")]


def test_shards_are_tables_of_their_own(tmp_path: Path) -> None:
    other = TableSchema(replace(ID_NAME.namespace, tableshard="1"), ID_NAME.columns, ID_NAME.key)
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a")), changes(other, (2, "i", 1, "b")))
    assert rows(as_of(tmp_path, ORDERS)) == [(1, "a"), (1, "b")]


def test_a_key_of_several_columns_with_awkward_names(tmp_path: Path) -> None:
    odd = table(("_last", pa.utf8()), ("x_last", pa.decimal256(50, 1)), ("v", pa.int8()), key=("x_last", "_last"))
    land(
        tmp_path,
        changes(
            odd, (1, "i", "a", Decimal("1.5"), 1), (2, "i", "b", Decimal("1.5"), 2), (3, "u", "a", Decimal("1.5"), 3)
        ),
    )
    assert rows(as_of(tmp_path, ORDERS)) == [("a", Decimal("1.5"), 3), ("b", Decimal("1.5"), 2)]


def test_a_new_table_under_an_old_name_need_not_fit_the_old_one(tmp_path: Path) -> None:
    old, new = table(("id", pa.int64()), ("name", pa.utf8())), table(("code", pa.utf8()), key=("code",), version=1)
    with closing(open_sink(tmp_path)) as sink:
        sink.write(changes(old, (1, "i", 10, "old")))
        sink.clear(Clear(old, 2, 2_000_000, Cause.CREATED))
        sink.write(changes(new, (3, "i", "x")))
        sink.commit(at(1))
        assert [batch.to_pydict() for batch in sink.scan(new)] == [{"code": ["x"]}]
    assert rows(as_of(tmp_path, ORDERS)) == [("x",)]
    assert rows(as_of(tmp_path, ORDERS, id=1)) == [(10, "old")]
