"""The changes of a table in order: across files, versions and flows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import ConfigError
from headrace.lake.commit import Manifest
from headrace.lake.history import history
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.ums.schema import ID, Column
from tests.lake_tables import ID_NAME, ORDERS, changes, land, table, time_of


def ids(path: Path, **bounds: int) -> list[int]:
    found: list[int] = history(Manifest.open(path), ORDERS, **bounds).read_all().column(ID).to_pylist()  # type: ignore[arg-type]
    return found


def test_overlapping_files_come_in_id_order(tmp_path: Path) -> None:
    land(tmp_path, changes(ID_NAME, (10, "i", 1, "a"), (40, "u", 1, "b")), offset=1)
    land(tmp_path, changes(ID_NAME, (-5, "i", 2, "c"), (30, "u", 2, "d"), (50, "d", 2, "d")), offset=2)
    land(tmp_path, changes(ID_NAME, (60, "i", 3, "e")), offset=3)
    assert ids(tmp_path) == [-5, 10, 30, 40, 50, 60]
    assert ids(tmp_path, after_id=10, id=50) == [30, 40, 50]


def test_a_change_that_two_flows_bring_is_there_once(tmp_path: Path) -> None:
    both = changes(ID_NAME, (1, "i", 1, "a"), (2, "u", 1, "b"), (3, "i", 3, "c"))
    land(tmp_path, both, flow="one")
    land(tmp_path, both, flow="other")
    assert ids(tmp_path) == [1, 2, 3]


def test_all_versions_have_the_newest_columns(tmp_path: Path) -> None:
    land(tmp_path, changes(table(("id", pa.int32())), (1, "i", 1)), offset=1)
    newer = table(("id", pa.int64()), Column("note", pa.utf8(), "text", initial_default="none"), version=1)
    land(tmp_path, changes(newer, (2, "u", 1, "x")), offset=2)
    found = history(Manifest.open(tmp_path), ORDERS).read_all()
    assert [(row["id"], row["note"]) for row in found.to_pylist()] == [(1, "none"), (1, "x")]
    assert history(Manifest.open(tmp_path), ORDERS, time=time_of(1)).read_all().column_names[-1] == "id"


def test_a_range_that_begins_before_the_horizon_is_refused(tmp_path: Path) -> None:
    for offset in (1, 2, 3):
        land(tmp_path, changes(ID_NAME, (offset, "u", 1, "a")), offset=offset)
    Caretaker(tmp_path, Policy(keep=1)).tend()
    assert ids(tmp_path) == [2, 3]
    assert ids(tmp_path, after_id=2) == [3]
    with pytest.raises(ConfigError, match="keeps the history"):
        ids(tmp_path, after_id=1)
