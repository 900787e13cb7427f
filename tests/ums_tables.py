"""A table with a column of every type that UMS has a form for, and values of each."""

# ruff: noqa: DTZ001 - columns without a zone hold wall clock
from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema

TYPES: dict[str, tuple[pa.DataType, str]] = {
    "flag": (pa.bool_(), "boolean"),
    "tiny": (pa.int8(), "tinyint"),
    "small": (pa.int16(), "smallint"),
    "whole": (pa.int32(), "int"),
    "id": (pa.int64(), "bigint"),
    "tiny_u": (pa.uint8(), "tinyint unsigned"),
    "small_u": (pa.uint16(), "smallint unsigned"),
    "whole_u": (pa.uint32(), "int unsigned"),
    "big_u": (pa.uint64(), "bigint unsigned"),
    "few_bits": (pa.uint64(), "bit(8)"),
    "many_bits": (pa.uint64(), "bit(63)"),
    "single": (pa.float32(), "float"),
    "double": (pa.float64(), "double"),
    "price": (pa.decimal128(10, 2), "decimal(10,2)"),
    "huge": (pa.decimal256(65, 30), "decimal(65,30)"),
    "name": (pa.utf8(), "varchar"),
    "long_name": (pa.large_utf8(), "longtext"),
    "doc": (pa.utf8(), "json"),
    "token": (pa.binary(), "varbinary"),
    "photo": (pa.large_binary(), "longblob"),
    "born": (pa.date32(), "date"),
    "second": (pa.timestamp("us"), "datetime"),
    "milli": (pa.timestamp("us"), "datetime(3)"),
    "instant": (pa.timestamp("us", "UTC"), "timestamp(6)"),
    "coarse": (pa.timestamp("s"), "instant"),
    "nano": (pa.timestamp("ns", "Asia/Shanghai"), "instant"),
    "lasted": (pa.duration("us"), "time(6)"),
}

TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "every.type", 3),
    tuple(
        Column(name, kind, source, nullable=name != "id", initial_default="7" if name == "whole" else None)
        for name, (kind, source) in TYPES.items()
    ),
    ("id",),
)

FIRST_DAY_S = -62_135_596_800  # 0001-01-01; the databases that feed headrace end at 9999-12-31
LAST_DAY_S = 253_402_300_799
DAY_NS = 86_400 * 10**9
"""Wall clock is up to a day away from UTC, and 64 bits of nanoseconds end in 1677 and 2262."""


def values(kind: pa.DataType, source_type: str) -> st.SearchStrategy[Any]:
    """Values of a column, numbers of units for dates and times."""
    if source_type.startswith("bit("):
        return st.integers(0, 2 ** int(source_type[4:-1]) - 1)
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        return st.integers(-(2 ** (kind.bit_width - 1)) if signed else 0, 2 ** (kind.bit_width - signed) - 1)
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width, allow_nan=False)
    if pa.types.is_decimal(kind):
        digits = 10**kind.precision - 1
        return st.integers(-digits, digits).map(lambda units: Decimal((units < 0, _digits(units), -kind.scale)))
    if pa.types.is_date(kind):
        return st.integers(-(2**31), 2**31 - 1)
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            return st.integers(-(2**63) + DAY_NS, 2**63 - 1 - DAY_NS)
        unit = {"s": 1, "us": 10**6}[kind.unit]
        return st.integers(FIRST_DAY_S * unit, LAST_DAY_S * unit)
    if pa.types.is_duration(kind):
        return st.integers(-(2**62), 2**62)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return st.text(max_size=40)
    return st.binary(max_size=40)


def _digits(units: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(units))))


def column(items: list[Any], kind: pa.DataType) -> pa.Array:
    """An array out of values as `values` gives them."""
    if pa.types.is_date(kind):
        return pa.array(items, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.array(items, pa.int64()).cast(kind)
    return pa.array(items, kind)


@st.composite
def batches(draw: st.DrawFn, table: TableSchema = TABLE) -> ChangeBatch:
    """Batches of a few rows with every kind of value, null among them."""
    rows = draw(st.integers(0, 5))
    arrays = [
        pa.array(draw(_lists(st.integers(-(10**10), 922_000 * 10**12 + 10**11), rows)), pa.int64()),
        column(draw(_lists(st.integers(0, LAST_DAY_S * 10**6), rows)), pa.timestamp("us", "UTC")),
        pa.array(draw(_lists(st.sampled_from("iud"), rows)), pa.utf8()),
        column(draw(_lists(st.integers(0, LAST_DAY_S * 10**6), rows)), pa.timestamp("us", "UTC")),
        pa.array(draw(_lists(st.none() | st.just('{"born":"0000-00-00"}'), rows)), pa.utf8()),
    ]
    arrays += [column(draw(_lists(st.none() | values(c.type, c.source_type), rows)), c.type) for c in table.columns]
    return ChangeBatch(table, pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema()))


def _lists(items: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, min_size=rows, max_size=rows)


def example() -> ChangeBatch:
    """Three rows: ordinary values, the ends of ranges, nulls."""
    ordinary: dict[str, Any] = {
        "flag": True, "tiny": -1, "small": -2, "whole": 3, "id": 23, "tiny_u": 5, "small_u": 6, "whole_u": 7, "big_u": 8,
        "few_bits": 9, "many_bits": 10, "single": 0.1, "double": 0.1, "price": Decimal("12.50"), "huge": Decimal("-0.5"),
        "name": 'Søren "S" \\ 北京\n', "long_name": "\u0001", "doc": '{"a": [1]}', "token": b"\x00\xff", "photo": b"",
        "born": date(2016, 4, 11), "second": datetime(2016, 4, 11, 12, 23, 34), "milli": datetime(2016, 4, 11, 12, 23, 34, 345000),
        "instant": datetime(2016, 4, 11, 12, 23, 34, 345678, tzinfo=UTC), "coarse": datetime(1969, 12, 31, 23, 59, 59),
        "nano": datetime(2016, 4, 11, 12, 23, 34, tzinfo=UTC), "lasted": timedelta(hours=-838, minutes=-59, seconds=-59, microseconds=-1),
    }  # fmt: skip
    ends: dict[str, Any] = {
        "flag": False, "tiny": 127, "small": -32768, "whole": -(2**31), "id": 2**63 - 1, "tiny_u": 255, "small_u": 65535,
        "whole_u": 2**32 - 1, "big_u": 2**64 - 1, "few_bits": 255, "many_bits": 2**63 - 1, "single": float("inf"),
        "double": 1.7976931348623157e308, "price": Decimal("-99999999.99"), "huge": Decimal("9" * 35 + "." + "9" * 30),
        "name": "", "long_name": "a" * 20, "doc": "null", "token": b"", "photo": bytes(range(20)), "born": date(1, 1, 1),
        "second": datetime(9999, 12, 31, 23, 59, 59), "milli": datetime(1, 1, 1, 0, 0, 0, 1), "instant": datetime(1970, 1, 1, tzinfo=UTC),
        "coarse": datetime(9999, 12, 31), "nano": datetime(1970, 1, 1, tzinfo=UTC), "lasted": timedelta(0),
    }  # fmt: skip
    system = [
        {
            "_ums_id_": 103_000012345678,
            "_ums_ts_": datetime(2016, 4, 11, 12, 23, 34, 345000, tzinfo=UTC),
            "_ums_op_": "i",
        },
        {"_ums_id_": 103_000012345702, "_ums_ts_": datetime(2016, 4, 11, 12, 23, 35, 1, tzinfo=UTC), "_ums_op_": "u"},
        {"_ums_id_": -7, "_ums_ts_": datetime(2016, 4, 11, 12, 23, 36, tzinfo=UTC), "_ums_op_": "d"},
    ]
    users: list[dict[str, Any]] = [ordinary, ends, {"_ums_raw_": '{"born":"0000-00-00"}'}]
    rows = [s | {"_ums_commit_ts_": s["_ums_ts_"]} | user for s, user in zip(system, users, strict=True)]
    return ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))
