"""A table of a lake as a Spark source, as of any moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.lake.asof import as_of
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.stream.lake_source import LakeDataSource
from headrace.stream.session import start_session
from tests.lake_tables import ID_NAME, ORDERS, changes, land, rows, table, time_of

pytestmark = pytest.mark.filterwarnings("ignore")  # Spark's own


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(2, tmp_path_factory.mktemp("spark"))
    session.dataSource.register(LakeDataSource)
    yield session
    session.stop()


def test_any_moment_of_a_tended_lake(spark: SparkSession, tmp_path: Path) -> None:
    for offset in range(1, 7):
        first = offset * 10
        land(
            tmp_path,
            changes(ID_NAME, *((first + n, "iud"[n % 3], n * offset % 7, f"{n}") for n in range(10))),
            offset=offset,
        )
    Caretaker(tmp_path, Policy(state_changes=15)).tend(all_periods=True)
    reader = spark.read.format("headrace-lake").option("path", str(tmp_path)).option("table", ORDERS)
    for id_ in (10, 27, 44, 65):
        expected = rows(as_of(tmp_path, ORDERS, id=id_))
        assert sorted(map(tuple, reader.option("asof", id_).load().collect()), key=repr) == expected
        assert (
            sorted(map(tuple, reader.option("asof", time_of(id_).isoformat()).load().collect()), key=repr) == expected
        )
    newest = spark.read.format("headrace-lake").options(path=str(tmp_path), table=ORDERS).load()
    newest.createOrReplaceTempView("orders")
    [(count,)] = spark.sql("SELECT count(*) FROM orders").collect()
    assert count == as_of(tmp_path, ORDERS).num_rows


def test_any_moment_in_sql_alone(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b"), (3, "d", 1, "a"), (4, "u", 2, "c")))
    for name, moment in (("before", "2"), ("then", time_of(3).isoformat())):
        spark.sql(
            f"CREATE TEMPORARY VIEW {name} USING `headrace-lake` OPTIONS (path '{tmp_path}', table '{ORDERS}', asof '{moment}')"
        )
    assert sorted(map(tuple, spark.sql("SELECT * FROM before").collect())) == [(1, "a"), (2, "b")]
    gone = spark.sql("SELECT before.* FROM before LEFT ANTI JOIN then USING (id)")
    assert list(map(tuple, gone.collect())) == [(1, "a")]


def test_types_that_spark_has_not(spark: SparkSession, tmp_path: Path) -> None:
    odd = table(
        ("id", pa.uint64()), ("wide", pa.decimal256(60, 2)), ("took", pa.duration("us")), ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()), ("`odd` name", pa.binary()),
    )  # fmt: skip
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    land(tmp_path, changes(odd, (1, "i", 2**64 - 1, Decimal("1.50"), timedelta(hours=-30), at, at.date(), b"\x00")))
    [row] = spark.read.format("headrace-lake").options(path=str(tmp_path), table=ORDERS).load().collect()
    assert row["id"] == 2**64 - 1
    assert row["wide"] == "1.50"
    assert row["took"] == timedelta(hours=-30)
    assert row["at"].astimezone(UTC) == at
    assert row["`odd` name"] == b"\x00"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": ORDERS}, "lacks option 'path'"),
        ({"path": "/nowhere", "table": ORDERS}, "there is no lake at"),
        ({"path": "/nowhere", "table": ORDERS, "when": "now"}, "does not know option 'when'"),
        ({"path": "/nowhere", "table": ORDERS, "asof": "yesterday"}, "neither an id nor a time"),
    ],
)
def test_wrong_options_are_said(spark: SparkSession, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.read.format("headrace-lake").options(**options).load().collect()
