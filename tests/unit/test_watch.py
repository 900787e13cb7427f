"""What the driver says of paths: how far behind, and silent ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.flow.spec import PipelineSpec
from headrace.stream.watch import Watch

BEGAN_S = 1_700_000_000.0
SOURCE = {"type": "mysql", "name": "db1", "host": "h", "user": "u", "tables": ["shop.*"], "heartbeat": "30s"}
BEAT_US = round((BEGAN_S - 2) * 1e6)


class Time:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> float:
        return BEGAN_S + self.passed_s

    def elapsed(self) -> float:
        return self.passed_s


def pipeline(tmp_path: Path, *, commit_interval_s: float = 1, **source: object) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "source": {**SOURCE, **source},
            "log": {"type": "directory", "path": tmp_path / "log"},
            "state": tmp_path / "state",
            "flows": [
                {
                    "name": "raw",
                    "from": "mysql.db1",
                    "to": {"type": "lake", "path": tmp_path / "lake", "commit_interval": commit_interval_s},
                }
            ],
        }
    )


def watched(tmp_path: Path, time: Time, *, until_idle: bool = False, **source: Any) -> Watch:
    specs = [pipeline(tmp_path, **source)]
    return Watch(specs, delivers=True, until_idle=until_idle, clock=time.now, elapsed=time.elapsed)


def reported(beat_us: int | None = None, offset: int = 0, commit_ts_us: int = 0) -> dict[str, Any]:
    beats = {} if beat_us is None else {"db1": [beat_us, beat_us + 5]}
    position = {"topic": "db1", "offset": offset, "commit_ts_us": commit_ts_us}
    part = {"rows": {}, "heartbeats": beats, "problem": ""}
    return {
        "capture-db1": {**part, "ends": {"0": offset}, "commit_ts_us": commit_ts_us},
        "deliver-db1": {"flows": {"raw": {**part, "position": position}}},
    }


def silent(figures: dict[str, Any]) -> list[str]:
    parts = [figures["capture-db1"], figures["deliver-db1"]["flows"]["raw"]]
    return [part["silent"] for part in parts if part["silent"]]


def test_without_a_heartbeat_the_lag_is_unknown(tmp_path: Path) -> None:
    figures = watched(tmp_path, Time()).look(reported(commit_ts_us=5))
    assert figures["capture-db1"]["lag_ms"] is None
    assert figures["deliver-db1"]["flows"]["raw"]["lag_ms"] is None


def test_the_lag_counts_from_the_newest_moment_that_is_complete(tmp_path: Path) -> None:
    time = Time()
    watch = watched(tmp_path, time)
    assert watch.look(reported(BEAT_US))["deliver-db1"]["flows"]["raw"]["lag_ms"] == pytest.approx(2_000)
    time.passed_s = 10
    assert watch.look(reported(BEAT_US))["capture-db1"]["lag_ms"] == pytest.approx(12_000)
    newer = reported(BEAT_US, commit_ts_us=round((BEGAN_S + 9) * 1e6))
    assert watch.look(newer)["deliver-db1"]["flows"]["raw"]["lag_ms"] == pytest.approx(1_000)


@pytest.mark.parametrize("sign", [reported(BEAT_US + 1), reported(BEAT_US, offset=1)])
@pytest.mark.demand(17)
def test_three_periods_without_a_sign_are_silence_and_any_sign_ends_it(tmp_path: Path, sign: dict[str, Any]) -> None:
    time = Time()
    watch = watched(tmp_path, time)
    assert silent(watch.look(reported(BEAT_US))) == []
    time.passed_s = 89
    assert silent(watch.look(reported(BEAT_US))) == []
    time.passed_s = 90
    assert len(silent(watch.look(reported(BEAT_US)))) == 1, "the lake may gather for a second"
    time.passed_s = 91
    told = silent(watch.look(reported(BEAT_US)))
    assert len(told) == 2
    assert "from source db1 since 2023-11-14 22:13:20 UTC" in told[0]
    assert "to flow raw" in told[1]
    assert silent(watch.look(sign)) == []


@pytest.mark.demand(17)
def test_a_task_that_never_tells_anything_is_silent_too(tmp_path: Path) -> None:
    time = Time()
    watch = watched(tmp_path, time, heartbeat="1s")
    assert watch.look({}) == {}
    time.passed_s = 179
    assert watch.look({}) == {}, "Spark takes its time to start"
    time.passed_s = 181
    assert len(silent(watch.look({}))) == 2


def test_nothing_is_expected_where_nothing_is_sent(tmp_path: Path) -> None:
    time = Time()
    quiet = watched(tmp_path, time, heartbeat=False)
    ending = watched(tmp_path, time, until_idle=True)
    for watch in (quiet, ending):
        watch.look(reported(BEAT_US))
        time.passed_s += 1_000
        assert "silent" not in watch.look(reported(BEAT_US))["capture-db1"]


def test_figures_that_are_given_are_left_as_they_are(tmp_path: Path) -> None:
    given = reported(BEAT_US)
    watched(tmp_path, Time()).look(given)
    assert given == reported(BEAT_US)
