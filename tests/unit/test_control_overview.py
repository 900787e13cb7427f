"""All pipelines at one glance: of a store and the files of launches, whatever state these are in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.control.overview import Overview
from headrace.control.pipelines import Pipelines
from headrace.control.placement import Local
from headrace.control.places import Places
from headrace.control.runs import Runs
from headrace.control.tables import ControlDatabase
from tests.control import TEST


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    with closing(ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")) as opened:
        opened.open()
        yield opened


def stage(name: str, flow: str, **said: Any) -> dict[str, Any]:
    known = dict.fromkeys(
        ("errors", "lag_ms", "latency_p50_ms", "latency_p99_ms", "silent", "rows_per_s", "bytes_per_s", "watermark_us")
    )
    return {
        "source": "db1",
        "stage": name,
        "flow": flow,
        "table": "",
        "rows": 0,
        "failed": 0,
        "bytes": 0,
        **known,
        **said,
    }


def test_each_pipeline_is_shown_whatever_its_files_say(tmp_path: Path, database: ControlDatabase) -> None:
    pipelines, runs, places = Pipelines(database), Runs(database), Places(tmp_path, tmp_path / "secrets")
    lease = runs.lead("me", "here", 10)
    assert lease is not None
    pipelines.create("idle", "", Local(), TEST)
    for name in ("broken", "busy", "new"):
        pipelines.create(name, "", Local(), TEST)
        assert runs.launching(lease, name.ljust(32, "0"), pipelines.start(name, TEST), "host", 1)
        runs.running(lease, runs.get(name, name.ljust(32, "0")), "host", 7)
        places.launch_of(name, name.ljust(32, "0")).create()
    stages = [stage("captured", "", rows=9), stage("delivered", "mart", rows=7, rows_per_s=1.5, watermark_us=1_000_000)]
    told = {"at_us": time.time_ns() // 1000, "problems": [], "stages": stages}
    places.launch_of("busy", "busy".ljust(32, "0")).tell(told, told)
    (places.launch_of("broken", "broken".ljust(32, "0")).directory / "summary").write_text("{")

    shown = {line["name"]: line for line in json.loads(Overview(runs, places).json())}
    assert {name: line["state"]["name"] for name, line in shown.items()} == {
        "broken": "stalled", "busy": "running", "idle": "stopped", "new": "running",
    }  # fmt: skip
    assert "not what was written" in shown["broken"]["state"]["why"]
    assert [source["rows"] for source in shown["busy"]["sources"]] == [9]
    [flow] = shown["busy"]["flows"]
    assert (flow["flow"], flow["rows"], flow["rows_per_s"], flow["lag_ms"]) == ("mart", 7, 1.5, None)
    assert flow["watermark"].startswith("1970-01-01T00:00:01")
    assert (shown["new"]["flows"], shown["new"]["at"]) == ([], None)
