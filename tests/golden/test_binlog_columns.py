"""Columns that are not asked for are stepped over, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from headrace.cli.decode import decode
from headrace.codec.binlog import BinlogReader, Rows
from headrace.errors import ConfigError, SourceError

LOG = Path(__file__).parent / "binlog" / "mysql9-cut.000005"
SYSTEM = ["_ums_id_", "_ums_ts_", "_ums_op_", "_ums_commit_ts_"]
ORDERS_KEY = ["o_id", "o_w_id"]


def read(columns: dict[str, list[str]] | None, *, before_images: bool = False) -> dict[str, list[Rows]]:
    reader = BinlogReader(["*.*"], columns=columns, before_images=before_images)
    reader.start(LOG.name)
    data = LOG.read_bytes()
    assert reader.feed(data) == len(data)
    found: dict[str, list[Rows]] = {}
    for item in reader.take().items:
        if isinstance(item, Rows):
            found.setdefault(item.table.table, []).append(item)
    return found


@pytest.mark.parametrize("before_images", [False, True])
def test_the_columns_asked_for_have_the_same_values(before_images: bool) -> None:
    whole = read(None, before_images=before_images)
    fewer = read({"*.orders": ["o_entry"], "small.order?": ["o_cnt"]}, before_images=before_images)
    assert fewer.keys() == whole.keys()
    for table, batches in whole.items():
        for all_columns, some in zip(batches, fewer[table], strict=True):
            names = [column.name for column in some.table.columns]
            if table == "orders":
                assert names == ["o_id", "o_w_id", "o_entry", "o_cnt"]
            else:
                assert names == [column.name for column in all_columns.table.columns]
            assert some.table.key == all_columns.table.key
            expected = all_columns.data.select([*SYSTEM, *names])
            assert some.data.select([*SYSTEM, *names]).equals(expected)


def test_before_images_have_the_same_columns() -> None:
    batches = read({"*.orders": ["o_cnt"]}, before_images=True)["orders"]
    before = batches[0].data.column("_ums_before_")
    assert isinstance(before, pa.StructArray)
    assert [field.name for field in before.type] == [*ORDERS_KEY, "o_cnt"]


def test_a_column_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(SourceError, match=r"at \d+: table \w+\.orders: there is no column 'nowhere'") as raised:
        read({"*.orders": ["nowhere"]})
    assert "o_id, o_w_id, o_c_id" in raised.value.fix


def test_the_command_prints_only_these_columns() -> None:
    result = CliRunner().invoke(
        decode, ["binlog", str(LOG), "--tables", "*.orders", "--columns", "*.orders=o_cnt"], catch_exceptions=False
    )
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows
    assert all([*row["after"]] == [*ORDERS_KEY, "o_cnt"] for row in rows if row["after"])


@pytest.mark.parametrize("option", ["*.orders", "*.orders=", "orders=o_cnt"])
def test_what_names_no_columns_is_refused(option: str) -> None:
    with pytest.raises(ConfigError):
        CliRunner().invoke(decode, ["binlog", str(LOG), "--columns", option], catch_exceptions=False)
