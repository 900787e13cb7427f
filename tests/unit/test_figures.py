"""Figures of a run over several epochs."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

from headrace.capture.stage import Passed, Passing
from headrace.stream.figures import Figures, passed_figures
from headrace.ums.change import Clear, Heartbeat
from tests.unit.test_stage import TABLE

FIRST = {"rows": {"a": 3}, "commit_ts_us": 5, "idle": False}
SECOND = {"rows": {"a": 2, "b": 1}, "commit_ts_us": None, "idle": True}


def test_epochs_add_up_and_the_newest_value_counts() -> None:
    figures = Figures()
    figures.finished("capture", 1, FIRST)
    figures.finished("capture", 2, SECOND)
    assert figures.now({}) == {"capture": {"rows": {"a": 5, "b": 1}, "commit_ts_us": 5, "idle": True}}


def test_the_current_epoch_is_added_until_it_has_ended() -> None:
    figures = Figures()
    report = {"epoch": 1, "flows": {"x": {"rows": {"a": 1}, "commits": 2, "retries": 0}}}
    assert figures.now({"deliver": report})["deliver"]["flows"]["x"]["commits"] == 2
    figures.finished("deliver", 1, {"flows": {"x": {"rows": {"a": 4}, "commits": 5, "retries": 1}}})
    assert figures.now({"deliver": report})["deliver"]["flows"]["x"] == {"rows": {"a": 4}, "commits": 5, "retries": 1}
    later = {"epoch": 2, "flows": {"x": {"rows": {"a": 1}, "commits": 1, "retries": 0}}}
    assert figures.now({"deliver": later})["deliver"]["flows"]["x"] == {"rows": {"a": 5}, "commits": 6, "retries": 1}


def test_counts_per_table_and_step_add_up_and_a_heartbeat_keeps_its_first_arrival() -> None:
    figures = Figures()
    first = {"latency": {"a": {"3": 1, "4": 2}}, "heartbeats": {"db1": [10, 15], "t": [10, 16]}, "retries": 1}
    again = {"latency": {"a": {"4": 5}, "b": {"0": 1}}, "heartbeats": {"db1": [10, 99], "t": [20, 26]}, "retries": 2}
    figures.finished("capture", 1, first)
    figures.finished("capture", 2, again)
    assert figures.now({})["capture"] == {
        "latency": {"a": {"3": 1, "4": 7}, "b": {"0": 1}},
        "heartbeats": {"db1": [10, 15], "t": [20, 26]},
        "retries": 3,
    }


def test_figures_are_told_while_a_stage_is_at_work() -> None:
    passed, done = Passed(), threading.Event()

    def work() -> None:
        for number in range(3_000):
            passing = Passing()
            passing.add(Clear(replace(TABLE, namespace=replace(TABLE.namespace, table=f"t{number}")), 1, number))
            passing.heartbeats.append(Heartbeat("db1", replace(TABLE.namespace, table=f"t{number}"), 1, 1))
            passed.passed(passing, 1_000_000)
        done.set()

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        while not done.is_set():
            passed_figures(passed)
        worker.join()
    finally:
        sys.setswitchinterval(usual_s)
    figures = passed_figures(passed)
    assert [len(figures[key]) for key in ("rows", "bytes", "latency", "latency_ms", "heartbeats")] == [3_000] * 5
