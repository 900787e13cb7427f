"""An upkeep of a derived table killed at each named point: readers see the old table or the new one, and the next upkeep makes it right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.lake.commit import Manifest
from headrace.lake.derived.spec import Derive
from headrace.lake.derived.upkeep import derive
from tests.lake_tables import ID_NAME, changes, land, rows, table

PLACE = "mysql/db1/shop/orders"
WIDER = table(("id", pa.int64()), ("name", pa.utf8()), ("more", pa.int32()), version=1)
DELTA = ["derived.pieces_written", "derived.columns_added", "derived.committed"]
PARQUET = ["derived.pieces_written", "derived.version_made", "derived.version_named", "derived.committed"]
CASES = [("current", "delta", point) for point in DELTA] + [("zipper", "parquet", point) for point in PARQUET]


def deriver(lake: Path, wanted: Derive, **environment: str) -> int:
    command = [sys.executable, "-m", "tests.faults.lake_deriver", str(lake), wanted.model_dump_json(exclude_none=True)]
    return subprocess.run(command, check=False, env={**os.environ, **environment}).returncode


def seen(wanted: Derive) -> pa.Table:
    """What a reader finds."""
    place = wanted.path / PLACE
    if wanted.format == "delta":
        return pa.table(DeltaTable(place).to_pyarrow_table())
    return pq.read_table(place / "latest")


@pytest.mark.parametrize(("kind", "form", "point"), CASES)
def test_killed_at(kind: str, form: str, point: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    wanted = Derive.model_validate({kind: form, "path": tmp_path / "derived", "grace": 0})
    land(lake, changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b")))
    assert not derive(Manifest.open(lake), wanted).problems
    old = seen(wanted)
    land(lake, changes(WIDER, (3, "u", 1, "c", 7), (4, "d", 2, "b", None), (5, "i", 3, "x", 8)), offset=2)
    expected = Derive.model_validate({kind: form, "path": tmp_path / "expected"})
    derive(Manifest.open(lake), expected)

    assert deriver(lake, wanted, HEADRACE_CRASH_AT=point) == -signal.SIGKILL
    found = seen(wanted).select(old.column_names)
    assert rows(found) in (rows(old), rows(seen(expected).select(old.column_names)))
    assert deriver(lake, wanted) == 0
    names = sorted(seen(expected).column_names)
    assert rows(seen(wanted).select(names)) == rows(seen(expected).select(names))
    left = {path.name for path in (tmp_path / "derived").rglob("*.parquet")}
    land(lake, changes(WIDER, (6, "i", 9, "y", 1)), offset=3)
    assert deriver(lake, wanted) == 0
    assert sum(row["id"] == 9 for row in seen(wanted).to_pylist()) == 1
    assert len({path.name for path in (tmp_path / "derived").rglob("*.parquet")} - left) <= 2
