"""Blocks of the log that hold no rows, and what two versions of a table have to do with each other."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.errors import CorruptError
from headrace.ums.change import Cause, Clear, End, Statement, read_block, read_header
from headrace.ums.schema import Column, Namespace, TableSchema

ID, NAME = Column("id", pa.int32(), "int", nullable=False), Column("name", pa.utf8(), "varchar(20)")
TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (ID, NAME), ("id",))
STATEMENT = Statement("ALTER TABLE t …", "binlog.000001:4711")


def newer(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return replace(TABLE.with_version(1), columns=columns, key=key)


def test_an_end_and_back() -> None:
    end = End(TABLE, newer(ID, replace(NAME, name="title", born_as="name")), 99, 1_000, STATEMENT)
    block = end.to_block()
    assert read_block(block) == end
    assert read_header(block) == {
        "kind": "end", "namespace": "mysql.db1.shop.t.0.0.0", "next": "mysql.db1.shop.t.1.0.0", "id": 99, "commit_ts": 1_000,
        "compatible": False, "sql": "ALTER TABLE t …", "at": "binlog.000001:4711",
    }  # fmt: skip
    assert end.key() == b"mysql.db1.shop.t.0.0.0"


@pytest.mark.parametrize("cause", Cause)
def test_a_clear_and_back(cause: Cause) -> None:
    clear = Clear(TABLE, 99, 1_000, cause, STATEMENT)
    assert read_block(clear.to_block()) == clear


def test_a_long_statement_is_cut() -> None:
    end = read_block(End(TABLE, TABLE, 1, 1, Statement("x" * 10_000, "f:4")).to_block())
    assert isinstance(end, End)
    assert len(end.statement.sql) == 500


def test_an_end_that_is_cut_off_is_an_error() -> None:
    block = End(TABLE, TABLE, 1, 1).to_block()
    for length in range(len(block) - 400, len(block), 40):
        with pytest.raises(CorruptError):
            read_block(block[:length])


@pytest.mark.parametrize(
    ("table", "fits"),
    [
        (newer(ID, NAME, Column("more", pa.int8(), "tinyint")), True),
        (newer(NAME, ID), True),
        (newer(replace(ID, type=pa.int64()), NAME), True),
        (newer(replace(ID, type=pa.int16()), NAME), False),
        (newer(replace(ID, type=pa.uint64()), NAME), False),
        (newer(ID, replace(NAME, type=pa.binary())), False),
        (newer(ID), False),
        (newer(ID, replace(NAME, name="title", born_as="name")), False),
        (newer(ID, replace(NAME, born_as="name@7")), False),
        (newer(ID, NAME, key=("id", "name")), False),
    ],
)
def test_what_a_newer_version_takes(table: TableSchema, *, fits: bool) -> None:
    assert TABLE.fits(table) is fits


def test_a_renamed_column_is_written_with_its_identity() -> None:
    table = newer(ID, replace(NAME, name="title", born_as="name"))
    assert TableSchema.from_arrow(table.arrow_schema()) == table
    assert table.columns[1].identity == "name"
    assert NAME.identity == "name"
