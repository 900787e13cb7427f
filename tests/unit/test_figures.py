"""Figures of a run over several epochs."""

from __future__ import annotations

from headrace.stream.figures import Figures

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
