"""How a run shows itself: a live table on a terminal, a line now and then elsewhere, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from headrace.stream.figures import Progress

Json = dict[str, Any]
_LINE_EVERY_S = 10.0
_TOLD = {"problem": "waiting", "silent": "silent"}


@contextmanager
def shown_progress(*, as_json: bool) -> Iterator[Progress]:
    """A callback for `stream.query.run` that shows figures while it is called, and the last ones at the end."""
    console = Console(stderr=True)
    view = _Live(console) if console.is_terminal and not as_json else _Lines(console, quiet=as_json)
    with view:
        yield view.show
    if as_json:
        for task, figures in view.newest.items():
            sys.stdout.write(json.dumps({"task": task, **figures}) + "\n")
    elif not console.is_terminal:
        console.print(_table(view.newest, view.elapsed_s))


class News:
    """What a person must be told: outages, silent paths, notices."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def of(self, reports: dict[str, Json]) -> list[str]:
        """What was not told the last time."""
        now = [f"{kind}: {part[key]}" for part in _parts(reports) for key, kind in _TOLD.items() if part.get(key)]
        now += [f"notice: {text}" for part in _parts(reports) for text in part.get("notices", [])]
        news = [text for text in dict.fromkeys(now) if text not in self._told]
        self._told = set(now)
        return news


class _View:
    def __init__(self, console: Console) -> None:
        self.newest: dict[str, Json] = {}
        self._began = time.monotonic()
        self._console = console
        self._news = News()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def say(self, reports: dict[str, Json]) -> None:
        """Outages and notices, each once."""
        for text in self._news.of(reports):
            self._console.print(f"headrace: {text}", highlight=False, soft_wrap=True, markup=False)


class _Live(_View):
    """Redraws a table in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, refresh_per_second=4)

    def __enter__(self) -> None:
        self._live.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._live.update(_table(self.newest, self.elapsed_s))
        self._live.__exit__(*error)

    def show(self, reports: dict[str, Json]) -> None:
        self.newest = reports
        self.say(reports)
        self._live.update(_table(reports, self.elapsed_s))


class _Lines(_View):
    """Writes a line every ten seconds, and at once when a target or source goes away."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        super().__init__(console)
        self._quiet = quiet
        self._line_at = 0.0

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, reports: dict[str, Json]) -> None:
        self.newest = reports
        self.say(reports)
        if self._quiet:
            return
        if reports and time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_EVERY_S
            counts = ", ".join(f"{name} {rows:,}" for name, rows, _ in _rows(reports))
            self._console.print(f"{datetime.now(UTC):%H:%M:%S} {counts}", highlight=False, soft_wrap=True)


def _parts(reports: dict[str, Json]) -> list[Json]:
    flows = [flow for figures in reports.values() for flow in figures.get("flows", {}).values()]
    return [*reports.values(), *flows]


def _rows(reports: dict[str, Json]) -> Iterator[tuple[str, int, Json]]:
    for task, figures in reports.items():
        if "flows" in figures:
            yield from ((name, sum(flow["rows"].values()), flow) for name, flow in figures["flows"].items())
        else:
            yield task, sum(figures["rows"].values()), figures


def _table(reports: dict[str, Json], elapsed_s: float) -> Table:
    table = Table(title=f"headrace  {elapsed_s:,.0f} s", title_justify="left", expand=False)
    for name, justify in (
        ("", "left"),
        ("changes", "right"),
        ("delay p50 / p99", "right"),
        ("up to", "left"),
        ("behind at most", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, rows, figures in _rows(reports):
        told = figures.get("problem") or figures.get("silent") or ""
        table.add_row(name, f"{rows:,}", _delay(figures), _moment(figures), _lag(figures), told)
    for name, loaded in _loads(reports):
        table.add_row(f"  {name}", "", "", "", "", _shards(loaded))
    return table


def _loads(reports: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """Tables of full loads that have not ended."""
    for figures in reports.values():
        yield from ((name, loaded) for name, loaded in figures.get("load", {}).items() if not loaded["ended"])


def _shards(loaded: Json) -> str:
    so_far = "" if loaded["planned"] else " so far"
    return f"{loaded['shards_done']:,} of {loaded['shards']:,} shards{so_far}, about {loaded['rows_expected']:,} rows"


def _delay(figures: Json) -> str:
    if figures.get("delay_p50_ms") is None:
        return ""
    return f"{figures['delay_p50_ms']:,.0f} / {figures['delay_p99_ms']:,.0f} ms"


def _lag(figures: Json) -> str:
    lag_ms = figures.get("lag_ms")
    return "" if lag_ms is None else f"{lag_ms / 1000:,.1f} s"


def _moment(figures: Json) -> str:
    source = figures.get("position") or {}
    commit_ts_us = figures.get("commit_ts_us") or source.get("commit_ts_us")
    if not commit_ts_us:
        return ""
    return f"{datetime.fromtimestamp(commit_ts_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
