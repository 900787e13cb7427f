"""``headrace lake ls`` and ``headrace lake asof``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from headrace.cli.lake import lake
from headrace.cli.lake_rows import SHOWN_ROWS
from headrace.errors import ConfigError, StorageError
from headrace.lake.commit import Manifest
from tests.lake_tables import ID_NAME, ORDERS, changes, land, table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    land(tmp_path / "lake", changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "[b]"), (3, "u", 1, "aa"), (4, "d", 2, "")))
    return tmp_path / "lake"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(lake, [str(argument) for argument in arguments], catch_exceptions=False)


def test_ls_for_people(path: Path) -> None:
    out = run("ls", path).output
    assert "mysql.db1.shop.orders.0.0.0" in out
    assert "2026-01-01 00:00:01 … 2026-01-01 00:00:04" in out
    assert "last commit: 1 at 20" in out


def test_ls_of_an_empty_lake(tmp_path: Path) -> None:
    Manifest.open_to_write(tmp_path)
    assert "nothing committed yet" in run("ls", tmp_path).output
    assert run("ls", tmp_path, "--json").output == ""


def test_ls_for_programs(path: Path) -> None:
    (line,) = run("ls", path, "--json").output.splitlines()
    found = json.loads(line)
    assert found.pop("bytes") > 0
    assert found.pop("last_commit")["number"] == 1
    assert found == {
        "namespace": "mysql.db1.shop.orders.0.0.0",
        "files": 1,
        "rows": 4,
        "id": [1, 4],
        "commit_time": ["2026-01-01T00:00:01+00:00", "2026-01-01T00:00:04+00:00"],
        "operations": {"d": 1, "i": 2, "u": 1},
    }


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ([], [{"id": 1, "name": "aa"}]),
        (["--id", 2], [{"id": 1, "name": "a"}, {"id": 2, "name": "[b]"}]),
        (["--time", "2026-01-01T00:00:01"], [{"id": 1, "name": "a"}]),
        (["--time", "2026-01-01T08:00:01.5+08:00"], [{"id": 1, "name": "a"}]),
        (["--time", "2025-12-31"], []),
    ],
)
def test_asof_as_lines(path: Path, moment: list[object], expected: list[object]) -> None:
    out = run("asof", path, ORDERS, *moment, "--format", "jsonl").output
    assert [json.loads(line) for line in out.splitlines()] == expected


def test_asof_for_people(path: Path) -> None:
    out = run("asof", path, f"{ORDERS}.0.0.0", "--id", 2).output
    assert "[b]" in out
    assert "2 rows" in out


def test_a_long_table_is_cut_for_people_only(tmp_path: Path) -> None:
    land(tmp_path, changes(ID_NAME, *((n, "i", n, "x") for n in range(1, SHOWN_ROWS + 6))))
    assert f"{SHOWN_ROWS} rows shown, 5 more" in run("asof", tmp_path, ORDERS).output
    run("asof", tmp_path, ORDERS, "--out", tmp_path / "all.txt")
    assert f"{SHOWN_ROWS + 5} rows\n" in (tmp_path / "all.txt").read_text()


def test_asof_into_files(path: Path, tmp_path: Path) -> None:
    run("asof", path, ORDERS, "--format", "parquet", "--out", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [{"id": 1, "name": "aa"}]
    run("asof", path, ORDERS, "--format", "jsonl", "--out", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == '{"id": 1, "name": "aa"}\n'


def test_values_look_as_in_decode(tmp_path: Path) -> None:
    types = {
        "dec": (pa.decimal128(9, 2), Decimal("1.50"), "1.50"),
        "bin": (pa.binary(), b"\x00\xff", "AP8="),
        "day": (pa.date32(), datetime(2026, 1, 31, tzinfo=UTC).date(), "2026-01-31"),
        "at": (
            pa.timestamp("us", "UTC"),
            datetime(2026, 1, 31, 1, 2, 3, 500, tzinfo=UTC),
            "2026-01-31 01:02:03.000500",
        ),
        "took": (pa.duration("us"), -timedelta(hours=100, seconds=1, microseconds=5), "-100:00:01.000005"),
        "none": (pa.int32(), None, None),
        "text": (pa.utf8(), "订单", "订单"),
    }
    odd = table(("id", pa.int64()), *((name, type_) for name, (type_, _, _) in types.items()))
    land(tmp_path, changes(odd, (1, "i", 1, *(value for _, value, _ in types.values()))))
    out = run("asof", tmp_path, ORDERS, "--format", "jsonl").output
    assert json.loads(out) == {"id": 1, **{name: shown for name, (_, _, shown) in types.items()}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ls", "{path}/nowhere"], "there is no lake"),
        (["asof", "{path}/nowhere", ORDERS], "there is no lake"),
        (["asof", "{path}", "mysql.db1.shop.order"], "has no table"),
        (["asof", "{path}", ORDERS, "--time", "yesterday"], "'yesterday' is not a time"),
        (["asof", "{path}", ORDERS, "--time", "2026-01-01", "--id", "1"], "an id or a time"),
        (["asof", "{path}", ORDERS, "--format", "parquet"], "Parquet is not printed"),
    ],
)
def test_wrong_use_is_a_config_error(path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(*(argument.format(path=path) for argument in arguments))


@pytest.mark.parametrize("form", ["table", "jsonl", "parquet"])
def test_an_output_that_cannot_be_written(path: Path, form: str) -> None:
    with pytest.raises(StorageError, match="could not write"):
        run("asof", path, ORDERS, "--format", form, "--out", path / "no" / "file")
