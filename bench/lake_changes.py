"""Changes of a table for the benchmarks of the lake: made quickly, in bulk, by Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.ums.change import ChangeBatch
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, Namespace, TableSchema

START_US = 1_767_225_600_000_000
ID_STEP = 180
NAME = "mysql.db1.shop.orders"
TABLE = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    tuple(
        Column(name, type_, str(type_))
        for name, type_ in {
            "id": pa.int64(),
            "customer_id": pa.int64(),
            "amount": pa.decimal128(12, 2),
            "status": pa.utf8(),
            "name": pa.utf8(),
            "note": pa.utf8(),
            "items": pa.int32(),
            "weight": pa.float64(),
            "created": pa.timestamp("us"),
            "due": pa.date32(),
        }.items()
    ),
    ("id",),
)


def changes(first: int, rows: int, keys: int) -> ChangeBatch:
    """Changes number `first` and following: each key is inserted once, in order; then updates (nine of ten) and deletes hit any."""
    numbers = pc.add(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows)), first - 1)
    fresh = pc.less(numbers, keys)
    key = pc.if_else(fresh, numbers, _whole(rows, keys, first))
    operation = pc.if_else(fresh, "i", pc.if_else(pc.less(_whole(rows, 10, first + 1), 1), "d", "u"))
    time_us = pc.add(pc.multiply(pc.divide(numbers, 50), 1_000_000), START_US)
    stamp = time_us.cast(pa.timestamp("us", "UTC"))
    columns: dict[str, Any] = {
        ID: pc.multiply(pc.add(numbers, 1), ID_STEP),
        TS: stamp,
        OP: operation,
        COMMIT_TS: stamp,
        RAW: pa.nulls(rows, pa.utf8()),
        "id": key,
        "customer_id": _whole(rows, 10**5, first + 3),
        "amount": pc.round(pc.multiply(_fractions(rows, first + 2), 10_000.0), 2).cast(pa.decimal128(12, 2)),
        "status": pa.array(["new", "paid", "sent", "done"]).take(_whole(rows, 4, first + 4)),
        "name": _text("customer ", _whole(rows, 10**6, first + 5)),
        "note": pc.if_else(pc.less(_whole(rows, 10, first + 6), 7), None, _text("please ring at door ", numbers)),
        "items": _whole(rows, 12, first + 7).cast(pa.int32()),
        "weight": pc.multiply(_fractions(rows, first + 8), 30.0),
        "created": time_us.cast(pa.timestamp("us")),
        "due": pc.add(_whole(rows, 90, first + 9), 20_000).cast(pa.int32()).cast(pa.date32()),
    }
    schema = TABLE.arrow_schema()
    return ChangeBatch(TABLE, pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema))


def _fractions(rows: int, seed: int) -> pa.Array:
    return pc.random(rows, initializer=seed)


def _whole(rows: int, below: int, seed: int) -> pa.Array:
    return pc.floor(pc.multiply(_fractions(rows, seed), float(below))).cast(pa.int64())


def _text(prefix: str, numbers: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers.cast(pa.utf8()), "")
