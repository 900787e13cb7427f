"""What derived tables say of themselves in each commit: how far they have come, and what is certified of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import duckdb_ext
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.lake.commit import Manifest
from headrace.lake.derived.spec import Derive
from headrace.lake.derived.upkeep import IDLE_COMMITS, derive
from headrace.ums.change import Clear
from tests.lake_tables import ID_NAME, ORDERS, at, changes, land, open_sink, table
from tests.lake_windows import START_US, caretaker, land_until

PLACE = "mysql/db1/shop/orders"


def keep_up(path: Path, **said: str) -> Path:
    """Derives once; where the table lies."""
    wanted = Derive.model_validate({**said, "path": path / "derived"})
    assert not derive(Manifest.open(path / "lake"), wanted).problems
    return wanted.path / PLACE


def told(place: Path) -> dict[str, Any]:
    """What the newest commit says."""
    if (place / "latest").exists():
        about: dict[str, Any] = json.loads((place / "latest" / "_headrace.json").read_bytes())["told"]
        return about
    [commit] = DeltaTable(place).history(1)
    said: dict[str, Any] = json.loads(commit["userMetadata"])
    return said


def read_by_all(place: Path) -> list[tuple[int, str]]:
    """The rows, as delta-rs, DuckDB and Polars see them."""
    if (place / "latest").exists():
        return [tuple(row.values()) for row in pq.read_table(place / "latest").select(["id", "name"]).to_pylist()]
    found = DeltaTable(place).to_pyarrow_table().select(["id", "name"]).sort_by("id").to_pylist()
    rows = [(row["id"], row["name"]) for row in found]
    assert pl.read_delta(str(place)).select("id", "name").sort("id").rows() == rows
    duck = duckdb.connect()
    [extension] = Path(next(iter(duckdb_ext.__path__))).rglob("delta.duckdb_extension")
    duck.execute(f"LOAD '{extension}'")
    assert duck.execute(f"SELECT id, name FROM delta_scan('{place}') ORDER BY id").fetchall() == rows
    return rows


def test_a_commit_says_how_far_the_table_has_come(tmp_path: Path) -> None:
    land(tmp_path / "lake", changes(ID_NAME, (5, "i", 1, "a")))
    place = keep_up(tmp_path, current="delta")
    said = told(place)
    assert (said["lake_commit"], said["newest_id"], said["certificate"]) == (1, 5, None)
    assert said["reached"] == [
        {"flow": "orders_lake", "topic": "db1", "partition": 0, "offset": 1, "id": 0, "commit_ts_us": 0}
    ]
    sink = open_sink(tmp_path / "lake", "other")
    for offset in range(1, IDLE_COMMITS + 1):
        sink.clear(Clear(table(("id", pa.int64()), name="other"), offset, 0))
        sink.commit(at(offset))
    sink.close()
    keep_up(tmp_path, current="delta")
    assert DeltaTable(place).transaction_version("headrace.commit") == IDLE_COMMITS + 1


@pytest.mark.parametrize("said", [{"current": "delta"}, {"zipper": "delta"}, {"current": "parquet"}])
def test_a_commit_says_what_is_certified_of_the_rows_that_it_has(tmp_path: Path, said: dict[str, str]) -> None:
    lake = tmp_path / "lake"
    land_until(lake, 25, changes(ID_NAME, (2, "i", 1, "a"), (12, "i", 2, "b"), (21, "i", 3, "c")), offset=1)
    before = Manifest.open(lake)
    place = keep_up(tmp_path, **said)
    assert told(place)["certificate"] is None
    assert told(place)["watermark_us"] == START_US + 25_000_000

    caretaker(lake).certify()
    place = keep_up(tmp_path, **said)
    certificate = told(place)["certificate"]
    assert (certificate["round"], certificate["commit"]) == (1, 1)
    assert (certificate["until_us"], certificate["watermark"]["us"]) == (START_US + 20_000_000, START_US + 25_000_000)
    [member] = certificate["members"]
    assert (member["from"], member["to"]["offset"]) == (None, 1)
    window = certificate["window"]
    assert (window["start_us"], window["operations"], window["id"]) == (START_US + 10_000_000, {"i": 1}, [12, 12])
    assert len(window["digest"]) == 32
    assert read_by_all(place) == [(1, "a"), (2, "b"), (3, "c")]

    versions = sorted(path.name for path in place.rglob("*"))
    keep_up(tmp_path, **said)
    assert sorted(path.name for path in place.rglob("*")) == versions, "nothing is new, so nothing is said"
    assert before.number == told(place)["lake_commit"] == 1


def test_a_certificate_of_rows_that_the_table_has_not_is_not_told(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    land_until(lake, 15, changes(ID_NAME, (2, "i", 1, "a")), offset=1)
    caretaker(lake).certify()
    old = Manifest.open(lake)
    land_until(lake, 35, changes(ID_NAME, (21, "u", 1, "b")), offset=2)
    caretaker(lake).certify()
    wanted = Derive.model_validate({"current": "delta", "path": tmp_path / "derived"})
    derive(old, wanted, tables=[ORDERS])
    assert told(wanted.path / PLACE)["certificate"]["round"] == 1
    derive(Manifest.open(lake), wanted)
    assert told(wanted.path / PLACE)["certificate"]["round"] == 2
