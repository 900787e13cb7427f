"""Statistics: figures as lines, differences per period, the spool, the source."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.base import Event
from headrace.capture.stage import step_of
from headrace.capture.statistics import Spool, StatisticsSource
from headrace.flow.spec import PipelineSpec
from headrace.stream.statistics import Line, Recorder, Stage, lines
from headrace.ums.change import ChangeBatch, Mark

NAME = "mysql.db1.shop.t.{}.0.0"


def pipeline(tmp_path: Path) -> PipelineSpec:
    mysql = {"type": "mysql", "host": "h", "user": "u", "tables": ["shop.*"]}
    return PipelineSpec.model_validate(
        {
            "source": [
                {**mysql, "name": "db1"},
                {**mysql, "name": "db1-b"},
                {"type": "statistics", "name": "stats", "every": "1m"},
            ],
            "log": {"type": "directory", "path": tmp_path / "log"},
            "state": tmp_path / "state",
        }
    )


def part(rows: int, *, version: int = 0, retries: int = 0, slow: int = 0) -> dict[str, Any]:
    """Figures of a stage: `rows` changes of which `slow` took about 900 ms, the others about 3."""
    name = NAME.format(version)
    steps = {str(step_of(3)): rows - slow, str(step_of(900)): slow}
    return {
        "rows": {name: rows},
        "failed": {name: 2},
        "bytes": {name: rows * 10},
        "latency": {name: steps},
        "latency_ms": {name: rows},
        "heartbeats": {"db1": [1_000_000, 1_250_000]},
        "retries": retries,
        "lag_ms": 12.5,
        "silent": "",
    }


def figures(rows: int, *, retries: int = 0, slow: int = 0) -> dict[str, Any]:
    flows = {"raw": part(rows, retries=retries, slow=slow)}
    return {"capture-db1": part(rows), "deliver-db1": {"flows": flows}, "capture-stats": part(1)}


def found(given: dict[str, Any], tmp_path: Path) -> dict[tuple[Stage, str], Line]:
    all_lines = list(lines(given, pipeline(tmp_path).source, 2_000_000))
    assert len({(line.stage, line.table) for line in all_lines}) == len(all_lines)
    return {(line.stage, line.table): line for line in all_lines}


def test_a_line_for_each_stage_and_one_for_each_table_whatever_its_version(tmp_path: Path) -> None:
    given = {"capture-db1": part(3)}
    for key, values in part(4, version=1).items():
        if key in ("rows", "failed", "bytes", "latency", "latency_ms"):
            given["capture-db1"][key] |= values
    stage = Stage("db1", "captured")
    all_lines = found(given, tmp_path)
    assert list(all_lines) == [(stage, ""), (stage, "mysql.db1.shop.t")]
    whole, table = all_lines.values()
    for line in (whole, table):
        assert (line.rows, line.bytes, line.latency_ms, sum(line.latency.values())) == (7, 70, 7, 7)
        assert line.failed == 4
    assert (whole.lag_ms, whole.errors, whole.is_silent) == (12.5, 0, False)
    assert (table.lag_ms, table.errors, table.is_silent, table.heartbeat) == (None, None, None, None)


def test_a_table_with_heartbeats_of_its_own_has_a_lag_of_its_own(tmp_path: Path) -> None:
    given = {"capture-db1": part(3)}
    given["capture-db1"]["heartbeats"]["mysql.db1.shop.quiet"] = [1_500_000, 1_600_000]
    quiet = found(given, tmp_path)[Stage("db1", "captured"), "mysql.db1.shop.quiet"]
    assert (quiet.rows, quiet.lag_ms) == (0, 500)
    assert quiet.heartbeat is not None
    assert quiet.heartbeat.sent_us == 1_500_000


def test_sources_whose_names_begin_alike_are_told_apart(tmp_path: Path) -> None:
    given = {"capture-db1": part(2), "capture-db1-b": part(1), "deliver-db1-b": {"flows": {"raw": part(3)}}}
    rows = {
        (stage.source, stage.name): line.rows for (stage, table), line in found(given, tmp_path).items() if not table
    }
    assert rows == {("db1", "captured"): 2, ("db1-b", "captured"): 1, ("db1-b", "delivered"): 3}


def test_the_workers_of_a_load_are_one_stage_without_latency(tmp_path: Path) -> None:
    rows = {NAME.format(0): 5}
    given = {
        "load-db1-1": {"rows": rows, "problem": ""},
        "load-db1-2": {"rows": rows, "problem": ""},
        "deliver-db1-load": {"flows": {"raw.load.1": part(4), "raw.load.2": part(3)}},
        "deliver-db1": {"flows": {"raw": part(1)}},
    }
    wholes = {stage: line for (stage, table), line in found(given, tmp_path).items() if not table}
    assert {(stage.name, stage.flow): (line.rows, sum(line.latency.values())) for stage, line in wholes.items()} == {
        ("loaded", ""): (10, 0),
        ("load_delivered", "raw"): (7, 0),
        ("delivered", "raw"): (1, 1),
    }


def records(tmp_path: Path) -> list[tuple[int, dict[str, Any]]]:
    return list(Spool(tmp_path / "state" / "sources" / "stats").after(0))


def test_a_period_has_what_came_in_it(tmp_path: Path) -> None:
    now = [1_000.0]
    recorder = Recorder(pipeline(tmp_path), lambda: now[0])
    recorder.look(figures(50))
    assert records(tmp_path) == []
    now[0] = 1_060.0
    recorder.look(figures(50, retries=2))
    now[0] = 1_090.0
    recorder.look(figures(55, retries=2))
    now[0] = 1_120.5
    recorder.look(figures(70, retries=3, slow=20))
    (_, first), (_, second) = records(tmp_path)
    assert (first["began_s"], first["ended_s"], second["began_s"], second["ended_s"]) == (1000, 1060, 1060, 1120.5)
    assert {record["source"] for record in first["records"]} == {"db1"}, "its own figures would never end"
    of_flow = [[one for one in batch["records"] if one["flow"] == "raw"] for batch in (first, second)]
    assert [(one["path"], one["changes"], one["bytes"], one["errors"]) for one in of_flow[0]] == [
        ("", 50, 500, 2),
        ("mysql.db1.shop.t", 50, 500, None),
    ]
    whole = of_flow[1][0]
    assert (whole["changes"], whole["bytes"], whole["errors"]) == (20, 200, 1)
    assert whole["latency_p50_ms"] > 500, "the quick ones were before"
    assert (whole["lag_ms"], whole["heartbeat_at_us"], whole["heartbeat_ms"]) == (12.5, 1_000_000, 250)


def test_nothing_known_is_nothing_written(tmp_path: Path) -> None:
    now = [1_000.0]
    recorder = Recorder(pipeline(tmp_path), lambda: now[0])
    now[0] = 2_000.0
    recorder.look({})
    assert records(tmp_path) == []


@pytest.fixture
def source(tmp_path: Path) -> StatisticsSource:
    return StatisticsSource(StatisticsSource.Config(type="statistics", name="stats"), tmp_path)


def write(tmp_path: Path, ended_s: float, rows: int = 1) -> None:
    now = [0.0]
    spec = pipeline(tmp_path)
    recorder = Recorder(spec, lambda: now[0])
    now[0] = 60.0
    recorder.look({"capture-db1": part(rows)})
    made = records(tmp_path)[-1][1]["records"]
    Spool(tmp_path).write(made, began_s=ended_s - 60, ended_s=ended_s)


def events(source: StatisticsSource, start: Mark | None) -> list[Event]:
    """All up to the moment when nothing more is there."""
    taken: list[Event] = []
    for event in source.follow(start):
        taken.append(event)
        if event.caught_up:
            return taken
    raise AssertionError("it must follow without end")


def test_batches_become_changes_once_and_in_order(source: StatisticsSource, tmp_path: Path) -> None:
    write(tmp_path, 100.0, rows=3)
    write(tmp_path, 160.25)
    first, second, idle = events(source, None)
    assert idle.changes == []
    [batch] = first.changes
    assert isinstance(batch, ChangeBatch)
    assert str(batch.table.namespace) == "statistics.stats.headrace.stages.0.0.0"
    row = batch.data.to_pylist()[1]
    assert (row["stage"], row["path"], row["changes"], row["errors"]) == ("captured", "mysql.db1.shop.t", 3, None)
    assert (row["ended_at"].timestamp(), row["began_at"].timestamp(), row["id"]) == (100.0, 40.0, row["_ums_id_"])
    assert first.mark is not None
    assert second.mark is not None
    assert first.mark.id < second.mark.id
    assert [event.mark for event in events(source, first.mark)] == [second.mark, second.mark]


def test_what_is_durable_on_the_log_is_forgotten_and_numbers_grow_on(source: StatisticsSource, tmp_path: Path) -> None:
    for ended_s in (100.0, 160.0, 220.0):
        write(tmp_path, ended_s)
    *_, newest = events(source, None)
    assert newest.mark is not None
    source.confirm(newest.mark)
    assert len(list((tmp_path / "spool").iterdir())) == 1
    write(tmp_path, 50.0)  # the clock went back
    following, _ = events(source, newest.mark)
    assert following.mark is not None
    assert following.mark.id > newest.mark.id


def test_a_spool_that_nobody_reads_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.capture.statistics._MOST_WAITING", 3)
    spool = Spool(tmp_path)
    for second in range(10):
        spool.write([], began_s=second, ended_s=second + 1.0)
    numbers = [number for number, _ in spool.after(0)]
    assert numbers[-1] == 10_000
    assert len(numbers) <= 4
    assert all(before < after for before, after in pairwise(numbers))
