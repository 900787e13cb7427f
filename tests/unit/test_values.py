"""Columns as text, and from what drivers return: what has no text is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigError
from headrace.ums.values import from_column, from_text, from_values, has_text, to_text

MOMENT = pa.time64("us")


def test_a_column_of_a_type_that_no_source_has_is_refused_by_name() -> None:
    assert not has_text(MOMENT)
    with pytest.raises(ConfigError, match=r"type time64\[us\]"):
        to_text(pa.array([0], MOMENT))
    with pytest.raises(ConfigError, match=r"type time64\[us\]"):
        from_values(["00:00:00"], MOMENT)
    with pytest.raises(ConfigError, match=r"type time64\[us\]"):
        from_text("00:00:00", MOMENT)


@pytest.mark.parametrize(
    ("column", "to", "expected"),
    [
        (pa.array([1, None], pa.int64()), pa.uint8(), [1, None]),
        (pa.array([True, None]), pa.bool_(), [True, None]),
        (pa.array(["1.5", "-0.004", None]), pa.decimal128(12, 3), ["1.500", "-0.004", None]),
        (pa.array(["1.23456"]), pa.decimal128(12, 2), ["1.23"]),
        (pa.array(["1" * 60 + ".5"]), pa.decimal256(76, 6), ["1" * 60 + ".500000"]),
        (pa.array(["7", None]), pa.int32(), ["7", None]),
        (pa.array([86_400_000_000, None]).view(pa.timestamp("us")), pa.timestamp("us", "UTC"), ["1970-01-02 00:00:00.000000", None]),
        (pa.array([-62_200_000_000_000_000]).view(pa.timestamp("us")), pa.timestamp("us"), ["-0002-12-17 14:13:20.000000"]),
        (pa.array([-1, None], pa.int64()), pa.duration("us"), ["-00:00:00.000001", None]),
        (pa.array([0.1, None]), pa.float32(), ["0.1", None]),
        (pa.array(["é", None]), pa.utf8(), ["é", None]),
    ],
)  # fmt: skip
def test_a_column_of_a_store_becomes_one_of_a_table(
    column: pa.Array[Any], to: pa.DataType, expected: list[Any]
) -> None:
    made = from_column(column, to)
    assert made.type == to
    assert to_text(made).to_pylist() == [None if value is None else str(value).lower() for value in expected]


def test_a_value_that_does_not_fit_is_no_column() -> None:
    with pytest.raises(ValueError, match="300"):
        from_column(pa.array([300], pa.int64()), pa.uint8())
    with pytest.raises(ValueError, match=r"1\.5 is not whole"):
        from_column(pa.array(["1.5"]), pa.int32())
