"""The recorded day of a shop: what capture and lake make of the binlog is what the server itself answered."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace.capture.mysql import MySqlConfig, MySqlSource
from headrace.lake.asof import as_of, snapshot
from headrace.lake.commit import Manifest
from headrace.sinks.lake import LakeSink
from headrace.ums.change import ChangeBatch, End
from headrace.ums.schema import COMMIT_TS, TableSchema
from headrace.verify.compare import compare
from headrace.verify.expected import read_expected
from tests.lake_tables import at, open_sink

SHOP = Path(__file__).parents[2] / "examples" / "shop"
TABLES = ["customers", "order_lines", "orders", "payments", "products"]
MOMENTS = json.loads((SHOP / "expected" / "asof.json").read_text())
VERSIONS = {"customers": 2, "order_lines": 2, "orders": 2, "payments": 2, "products": 3}


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with all changes of the day."""
    directory = tmp_path_factory.mktemp("shop")
    config = MySqlConfig(type="mysql", name="db1", files=SHOP / "binlog" / "binlog.0*", tables=["shop.*"])
    source = MySqlSource(config, directory / "state")
    sink = open_sink(directory / "lake")
    for event in source.follow(None):
        assert not event.notices
        _write(sink, event.changes)
        if event.caught_up:
            break
    sink.commit(at(1))
    sink.close()
    source.close()
    return directory / "lake"


def _write(sink: LakeSink, changes: object) -> None:
    assert isinstance(changes, (list, tuple))
    for change in changes:
        if isinstance(change, End):
            continue  # of a version; its rows stay
        assert isinstance(change, ChangeBatch)
        sink.write(change)


def _newest(day: Path, table: str) -> TableSchema:
    return snapshot(Manifest.open(day), f"mysql.db1.shop.{table}").table


@pytest.mark.parametrize("table", TABLES)
def test_the_end_of_the_day(day: Path, table: str) -> None:
    schema = _newest(day, table)
    assert schema.namespace.version == VERSIONS[table] - 1
    expected = read_expected(SHOP / "expected" / f"{table}.jsonl", schema)
    assert expected.num_rows > 100
    result = compare(expected, as_of(day, f"mysql.db1.shop.{table}"), schema)
    assert result.ok, result


@pytest.mark.parametrize("moment", MOMENTS, ids=[moment["time"] for moment in MOMENTS])
def test_as_of_a_time_and_as_of_a_position(day: Path, moment: dict[str, str | int]) -> None:
    time = datetime.fromisoformat(str(moment["time"]))
    position = int(str(moment["binlog"]).rpartition(".")[2]) * 10**12 + int(moment["position"])
    name = f"mysql.db1.shop.{moment['table']}"
    schema = snapshot(Manifest.open(day), name, time=time).table
    expected = read_expected(SHOP / "expected" / str(moment["expected"]), schema)
    assert expected.num_rows == moment["rows"]
    for found in (as_of(day, name, time=time), as_of(day, name, id=position)):
        result = compare(expected, found, schema)
        assert result.ok, result


def test_the_moments_are_quiet(day: Path) -> None:
    """As the README says: nothing within ten seconds, so that time and position mean the same."""
    times = pa.concat_arrays(
        [
            pq.read_table(path, columns=[COMMIT_TS]).column(0).combine_chunks().cast(pa.int64())
            for path in day.rglob("*.parquet")
        ]
    )
    for moment in MOMENTS:
        at_us = int(datetime.fromisoformat(moment["time"]).timestamp() * 1e6)
        nearest_us = pc.min(pc.abs(pc.subtract(times, pa.scalar(at_us)))).as_py()
        assert nearest_us >= 10_000_000
