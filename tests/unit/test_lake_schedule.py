"""Care of lakes while a run lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError
from headrace.flow.spec import PipelineSpec
from headrace.lake.commit import Manifest
from headrace.stream.lake_care import LakeCare
from tests.lake_tables import ID_NAME, ORDERS, changes, ids_in, land
from tests.lake_windows import certified, land_until
from tests.patience import wait_until


def pipeline(path: Path, *cares: dict[str, Any] | None, partitions: int = 1, **to: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "source": {
                "type": "mysql",
                "name": "db1",
                "files": str(path / "none.*"),
                "tables": ["shop.*"],
                "partitions": partitions,
            },
            "log": {"type": "directory", "path": str(path / "log")},
            "state": str(path / "state"),
            "flows": [
                {
                    "name": f"raw{n}",
                    "from": "mysql.db1",
                    "to": {"type": "lake", "path": str(path / "lake"), "care": care, **to},
                }
                for n, care in enumerate(cares)
            ],
        }
    )


def test_small_files_of_days_that_are_over_are_merged_while_a_run_lasts(tmp_path: Path) -> None:
    for offset in (1, 2, 3):
        land(tmp_path / "lake", changes(ID_NAME, (offset, "i", offset, "a")), offset=offset)
    care = LakeCare([pipeline(tmp_path, {"every": "100ms"})])
    with care.at_work():
        wait_until(lambda: len(Manifest.open(tmp_path / "lake").tables[ORDERS]) == 1)
    assert ids_in(tmp_path / "lake") == [1, 2, 3]
    assert care.figures() == {}


def test_what_keeps_a_lake_from_being_tended_is_told(tmp_path: Path) -> None:
    for offset in (1, 2):
        land(tmp_path / "lake", changes(ID_NAME, (offset, "i", offset, "a")), offset=offset)
    next((tmp_path / "lake").rglob("*.parquet")).write_text("damaged")
    care = LakeCare([pipeline(tmp_path, {"every": "100ms"})])
    with care.at_work():
        wait_until(care.figures)
    [figures] = care.figures().values()
    assert "is not what was written" in figures["problem"]


def test_no_care_when_the_flow_says_so(tmp_path: Path) -> None:
    with LakeCare([pipeline(tmp_path, None)]).at_work():
        pass
    assert not (tmp_path / "lake").exists()


def test_flows_into_one_lake_agree_on_its_care(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="different care"):
        LakeCare([pipeline(tmp_path, {"every": "1m"}, {"every": "2m"})])


def test_windows_close_at_the_end_of_a_run_when_all_partitions_have_passed(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    land_until(lake, 25, changes(ID_NAME, (3, "i", 3, "a"), (15, "i", 15, "a")), offset=1, flow="raw0")
    with LakeCare([pipeline(tmp_path, {}, partitions=2, windows="10s")]).at_work():
        pass
    assert certified(lake) == {}, "the other partition may still bring something"
    land_until(lake, 12, offset=1, flow="raw0", partition=1)
    care = LakeCare([pipeline(tmp_path, {}, partitions=2, windows={"length": "10s"})])
    with care.at_work():
        pass
    assert certified(lake) == {0: (0, 1)}
    assert care.figures() == {}


def test_each_flow_that_brings_a_table_must_have_passed(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    land_until(lake, 25, changes(ID_NAME, (3, "i", 3, "a")), offset=1, flow="raw0")
    both = pipeline(tmp_path, {}, {}, windows="10s")
    with LakeCare([both]).at_work():
        pass
    assert certified(lake) == {}
    land_until(lake, 11, offset=1, flow="raw1")
    with LakeCare([both]).at_work():
        pass
    assert certified(lake) == {0: (0, 1)}


def test_windows_close_while_a_run_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.stream.lake_care._LEAST_S", 0.05)
    monkeypatch.setattr("headrace.stream.lake_care._FIRST_S", 0.05)
    lake = tmp_path / "lake"
    land_until(lake, 25, changes(ID_NAME, (3, "i", 3, "a")), offset=1, flow="raw0")
    with LakeCare([pipeline(tmp_path, {}, windows="1s")]).at_work():
        wait_until(lambda: certified(lake))
    assert certified(lake) == {3: (0, 1)}


def test_windows_that_cannot_be_closed_are_a_problem(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    land_until(lake, 25, changes(ID_NAME, (3, "i", 3, "a")), offset=1, flow="raw0")
    care = LakeCare([pipeline(tmp_path, {}, windows={"length": "10s", "event_time": {"shop.orders": "name"}})])
    with care.at_work():
        pass
    [figures] = care.figures().values()
    assert "which is no time" in figures["problem"]


def test_flows_into_one_lake_agree_on_its_windows(tmp_path: Path) -> None:
    one, other = pipeline(tmp_path, {}, windows="1h"), pipeline(tmp_path, {}, windows="2h")
    with pytest.raises(ConfigError, match="different windows"):
        LakeCare([one, other])


@pytest.mark.parametrize(
    ("care", "windows", "message"),
    [
        (None, "1h", "windows are closed by the care of the lake"),
        ({}, "often", "write a duration such as"),
        ({}, "500ms", "greater than or equal to 1"),
        ({}, {"event_time": {"shop.orders": "created"}}, "Field required"),
    ],
)
def test_windows_that_are_wrongly_written(tmp_path: Path, care: Any, windows: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        pipeline(tmp_path, care, windows=windows)


def test_tables_are_derived_while_a_run_lasts_and_complete_at_its_end(tmp_path: Path) -> None:
    place = tmp_path / "current/mysql/db1/shop/orders/latest"
    land(tmp_path / "lake", changes(ID_NAME, (1, "i", 1, "a")))
    derive = {"current": "parquet", "path": str(tmp_path / "current"), "every": "100ms"}
    with LakeCare([pipeline(tmp_path, {}, derive=[derive])]).at_work():
        wait_until(place.exists)
    care = LakeCare([pipeline(tmp_path, {}, derive=[{**derive, "every": "1h"}])], until_idle=True)
    with care.at_work():
        land(tmp_path / "lake", changes(ID_NAME, (2, "i", 2, "b")), offset=2)
    assert pq.read_table(place).column("id").to_pylist() == [1, 2]
    assert care.figures() == {}


def test_what_is_to_be_derived_is_checked(tmp_path: Path) -> None:
    one = {"current": "parquet", "path": str(tmp_path / "current")}
    with pytest.raises(ConfigError, match="different tables to be derived"):
        LakeCare([pipeline(tmp_path, {}, derive=[each]) for each in (one, {**one, "delete": "hard"})])
    for wrong, reason in (
        ({"path": "x"}, "say one of"),
        ({"zipper": "delta", "delete": "hard", "path": "x"}, "leave `delete` out"),
        ({"current": "delta", "path": str(tmp_path / "lake/x")}, "directories of their own"),
    ):
        with pytest.raises(ValidationError, match=reason):
            pipeline(tmp_path, {}, derive=[wrong])
