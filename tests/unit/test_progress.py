"""What a run says to people: each thing once, and again when it happens again."""

from __future__ import annotations

from typing import Any

from headrace.cli.progress import News


def reports(problem: str = "", silent: str = "", notices: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "capture-db1": {"rows": {}, "problem": problem, "notices": notices},
        "deliver-db1": {"flows": {"raw": {"rows": {}, "problem": "", "silent": silent}}},
    }


def test_each_thing_is_told_once_until_it_has_gone() -> None:
    news = News()
    assert news.of(reports()) == []
    away = reports(problem="the server is away", silent="nothing comes", notices=("t was dropped",))
    assert news.of(away) == ["waiting: the server is away", "silent: nothing comes", "notice: t was dropped"]
    assert news.of(away) == []
    assert news.of(reports(silent="nothing comes", notices=("t was dropped",))) == []
    assert news.of(away) == ["waiting: the server is away"]


def test_what_several_tasks_say_is_told_once() -> None:
    twice = {**reports(problem="the disk is slow"), "capture-db2": {"rows": {}, "problem": "the disk is slow"}}
    assert News().of(twice) == ["waiting: the disk is slow"]
