"""Rows for PostgreSQL's COPY: types without their length, values that it does not have, and columns that go as text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import DataError
from headrace.sinks.database.dialect import Destination, StoredColumn, StoredTable, Target
from headrace.sinks.database.postgresql_rows import Staging, without_length
from headrace.ums.schema import ID, TS, Column

OWN = ("bigint", "timestamp without time zone", "bigint", "timestamp with time zone", "smallint")


def staging(*declared: str) -> Staging:
    """Of a target with the columns id and at."""
    columns = (Column("id", pa.int64(), "bigint"), Column("at", pa.timestamp("us"), "datetime(6)"))
    names = ("id", "at", ID, TS, "_is_active_")
    stored = StoredTable(tuple(map(StoredColumn, names, (*declared, *OWN[2:]), [True] * 5)), ("id",))
    return Staging.of("pg_temp.rows", Destination(Target("orders", columns, ("id",)), stored, (0, 1)), OWN)


def test_what_is_declared_otherwise_goes_as_text() -> None:
    own, other = staging("bigint", OWN[1]), staging("character varying(5)", OWN[1])
    assert not any(own.as_text)
    assert other.as_text == (True, False, False, False, False)
    assert other.taken[:2] == ('"0"::character varying', '"1"')
    assert '"0" text, "1" timestamp without time zone,' in other.create


def test_a_time_beyond_the_server_s_is_refused() -> None:
    utc = pa.timestamp("us", "UTC")
    columns = [pa.array([1], pa.int64()), pa.array([-(2**63)], pa.timestamp("us")), pa.array([1], pa.int64())]
    with pytest.raises(DataError, match="out of PostgreSQL's reach"):
        staging("bigint", OWN[1]).content([*columns, pa.array([0], utc), pa.array([1], pa.int16())])


@pytest.mark.parametrize(
    ("declared", "bare"),
    [
        ("bigint", "bigint"),
        ("numeric(12,2)", "numeric"),
        ("numeric(3,-2)", "numeric"),
        ("character varying(5)", "character varying"),
        ("character varying(5)[]", "character varying[]"),
        ("timestamp(3) without time zone", "timestamp without time zone"),
        ("interval(3)", "interval"),
        ("character(3)", '"bpchar"'),
        ("bit(3)", '"bit"'),
        ("bit varying(3)", "bit varying"),
        ("double precision", "double precision"),
    ],
)
def test_a_type_without_its_length(declared: str, bare: str) -> None:
    assert without_length(declared) == bare
