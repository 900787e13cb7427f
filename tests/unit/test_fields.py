"""Columns of stores that have none: what becomes of fields, by each word of `on_change`."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.errors import DataError
from headrace.on_change import OnChange
from headrace.sinks.fields import Evolved, Shape, evolved
from headrace.testing.sink import ORDERS, version_of
from headrace.ums.schema import Column, TableSchema

KEY, NOTE, AMOUNT = ORDERS.columns
SIZE = Column("size", pa.int32(), "int", initial_default="7")
RAW = Column("raw", pa.binary(), "varbinary(4)", initial_default="AP8=")
ROW = {"id": "1", "note": "n", "amount": "2.00"}


def steps(on_change: str, *tables: TableSchema) -> list[Evolved]:
    shape, found = Shape(), []
    for table in tables:
        found.append(evolved(shape, table, OnChange.model_validate(on_change)))
        shape = Shape.from_json(found[-1].shape.to_json())
    return found


def test_nothing_happens_to_the_first_version_nor_to_an_older_one() -> None:
    later = version_of(ORDERS, 1, *ORDERS.columns, SIZE)
    first, second, again = steps("evolve", ORDERS, later, ORDERS)
    assert not first.changes_rows
    assert again.shape == second.shape
    assert second.shape.later(ORDERS) == {"size": "size"}


def test_defaults_reach_rows_that_are_there() -> None:
    *_, change = steps("evolve", ORDERS, version_of(ORDERS, 1, *ORDERS.columns, SIZE, RAW))
    assert change.row(ROW) == {**ROW, "size": "7", "raw": b"\0\xff"}
    assert Evolved.from_json(change.to_json()).row(ROW) == change.row(ROW)


def test_an_ignored_column_stays_ignored() -> None:
    added = version_of(ORDERS, 1, *ORDERS.columns, SIZE)
    more = version_of(ORDERS, 2, *ORDERS.columns, SIZE, RAW)
    for change in steps("ignore", ORDERS, added, more)[1:]:
        assert not change.changes_rows
        assert change.shape.names.keys() == {"id", "note", "amount"}


@pytest.mark.parametrize(
    ("on_change", "row"),
    [
        ("evolve", {"id": "1", "text": "n", "amount": "2.00"}),
        ("lenient", ROW),
        ("ignore", ROW),
    ],
)
def test_a_renamed_column(on_change: str, row: dict[str, str]) -> None:
    renamed = version_of(ORDERS, 1, KEY, replace(NOTE, name="text", born_as="note"), AMOUNT)
    *_, change = steps(on_change, ORDERS, renamed)
    assert change.row(ROW) == row
    field = {column.name: field for column, field in change.shape.placed(renamed)}["text"]
    assert field == ("note" if on_change == "ignore" else "text")


def test_a_dropped_column_goes_or_stays_and_makes_room_for_a_new_one_of_its_name() -> None:
    without = version_of(ORDERS, 1, KEY, AMOUNT)
    anew = version_of(ORDERS, 2, KEY, replace(NOTE, born_as="note@2"), AMOUNT)
    assert steps("evolve", ORDERS, without)[-1].row(ROW) == {"id": "1", "amount": "2.00"}
    *_, kept, change = steps("lenient", ORDERS, without, anew)
    assert kept.row(ROW) == ROW
    assert change.row(ROW) == {"id": "1", "note_v1": "n", "amount": "2.00"}
    assert "note" in {field for _, field in change.shape.placed(anew)}


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("added", (*ORDERS.columns, SIZE)),
        ("dropped", (KEY, AMOUNT)),
        ("renamed", (KEY, replace(NOTE, name="text", born_as="note"), AMOUNT)),
        ("retyped", (KEY, NOTE, replace(AMOUNT, type=pa.float64()))),
    ],
)
def test_a_flow_stops_where_it_is_to(kind: str, columns: tuple[Column, ...]) -> None:
    with pytest.raises(DataError, match=kind):
        steps("fail", ORDERS, version_of(ORDERS, 1, *columns))


def test_another_key_is_refused() -> None:
    with pytest.raises(DataError, match="the key of"):
        steps("evolve", ORDERS, replace(version_of(ORDERS, 1, *ORDERS.columns), key=("amount",)))
