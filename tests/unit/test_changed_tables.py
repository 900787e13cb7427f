"""What is kept of tables that changed at their source, and of log files whose numbers fell or that were lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.capture.changed_tables import ChangedTables, difference
from headrace.capture.log_numbers import LogNumbers
from headrace.capture.position import BinlogPosition
from headrace.errors import CorruptError, PositionLostError
from headrace.ums.change import Cause, Clear, End, Statement
from headrace.ums.schema import Column, Namespace, TableSchema

ID = Column("id", pa.int32(), "int")
NOTE = Column("note", pa.string(), "varchar(9)")


def table(*columns: Column, version: int = 0, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(Namespace("mysql", "db1", "shop", "orders", version), columns, key)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (table(ID, NOTE, Column("v", pa.int8(), "tinyint")), "v added"),
        (table(ID), "note dropped"),
        (table(ID, Column("text", pa.string(), "varchar(9)", born_as="note")), "note is text now"),
        (table(ID, Column("note", pa.int64(), "bigint")), "note is bigint now, and was varchar(9)"),
        (table(ID, NOTE, key=("id", "note")), "its key is id, note now"),
        (table(ID, NOTE, key=()), "its key is none now"),
        (table(NOTE, ID), "columns in another order"),
        (table(Column("id", pa.int32(), "int", born_as="id@7"), NOTE), "id added, id dropped, its key is id now"),
    ],
)
def test_differences_in_words(after: TableSchema, words: str) -> None:
    assert difference(table(ID, NOTE), after) == words


def test_a_change_that_is_met_again_behind_a_crash_is_not_new(tmp_path: Path) -> None:
    now_s = 100.0
    end = End(table(ID), table(ID, NOTE, version=1), 7, 0, Statement("ALTER TABLE orders …", "b.000001:4"))
    ChangedTables(tmp_path, lambda: now_s).note([end])
    now_s = 200.0
    again = ChangedTables(tmp_path, lambda: now_s)
    again.note([end])
    [(name, change)] = again.all().items()
    assert (name, change.at_us, change.became) == ("mysql.db1.shop.orders", 100_000_000, "version 1")
    assert change.what == "note added (b.000001:4: ALTER TABLE orders …)"
    again.note([Clear(end.successor, 9, 0), Clear(end.successor, 10, 0, Cause.RELOADED)])
    assert again.all() == {name: change}, "rows that are gone are no change of their table"
    again.note([Clear(end.successor, 11, 0, Cause.DROPPED)])
    assert (again.all()[name].at_us, again.all()[name].became) == (200_000_000, "dropped")


def test_numbers_are_held_against_those_before(tmp_path: Path) -> None:
    numbers = LogNumbers(tmp_path, lambda: 5)
    numbers.begin(None)
    for number in (3, 3, 4):
        numbers.ends_at(BinlogPosition(f"b.00000{number}", 4, server="one"))
    numbers.begin(
        BinlogPosition("b.000003", 4, server="one")
    )  # again, behind an outage: it had not read as far as the server was
    numbers.ends_at(BinlogPosition("b.000004", 9, server="one"))
    assert numbers.read() == (None, None)
    numbers.ends_at(BinlogPosition("b.000001", 4, server="one"))
    fell, lost = LogNumbers(tmp_path).read()
    assert fell is not None
    assert (fell.at_us, fell.text) == (
        5_000_000,
        "the number of the server's log file fell from b.000004 to b.000001",
    )
    assert lost is None


def test_a_loss_lasts_until_capture_goes_on(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(PositionLostError), LogNumbers(tmp_path, lambda: 5).losses():
            raise PositionLostError("it was reset", fix="skip")
        lost = LogNumbers(tmp_path).read()[1]
        assert lost is not None
        assert lost.text == "it was reset"
    with LogNumbers(tmp_path).losses():
        pass
    assert LogNumbers(tmp_path).read() == (None, None)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 2, "tables": {}}', '{"format": 1, "tables": {"t": {}}}']
)
def test_what_is_damaged_is_told(tmp_path: Path, content: str) -> None:
    for file in ("changed_tables.json", "log_numbers.json"):
        (tmp_path / file).write_text(content)
    with pytest.raises(CorruptError, match="remove it"):
        ChangedTables(tmp_path).all()
    with pytest.raises(CorruptError, match="remove it"):
        LogNumbers(tmp_path).read()
