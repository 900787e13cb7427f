"""A flow file of an HBase, run while its regions and servers come and go: into a lake with windows, a database, and another table, cell by cell."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from subprocess import Popen
from typing import Any

import pyarrow.parquet as pq
import yaml

from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest, is_lake
from headrace.lake.windows import windows_of
from headrace.storage.location import tree_at
from tests.flows.command import headrace, running, sqlite_rows, wait_for

NAMES = ("region", "sequence", "cell", "row", "kind", "cells")
WINDOW_US = 2_000_000
_EVERY_S = 0.3


class HBaseFlow:
    """The changes of `table` since a time; `source`: what a flow file says of it. `url`: the server of the HBase that has a table ``copy:…``."""

    def __init__(self, directory: Path, source: dict[str, Any], table: str, url: str, since: datetime) -> None:
        directory.mkdir()
        self._directory = directory
        self._path = directory / "flow.yaml"
        self._lake = directory / "lake"
        self._namespace = f"hbase.{source['name']}.{table.replace(':', '.')}"
        windows = {"length": "2s", "event_time": {table.replace(":", "."): "_ums_ts_"}}
        lake = {"type": "lake", "path": "./lake", "commit_interval": 0.2, "care": {"every": "500ms"}}
        targets: dict[str, dict[str, Any]] = {
            "raw": lake | {"windows": windows},
            "lite": {"type": "database", "url": "sqlite:///./mart.db"},
            "copy": {"type": "hbase-replica", "url": url, "table": "copy:{table}"},
        }
        content = {
            "source": source | {"type": "hbase", "start": since.isoformat(), "clock_skew": "1s"},
            "log": {"type": "directory", "path": "./log"},
            "state": "./state",
            "epoch": "2s",
            "watermark": {},
            "flows": [{"name": name, "from": self._namespace, "to": to} for name, to in targets.items()],
        }
        self._path.write_text(yaml.safe_dump(content))

    @contextmanager
    def at_work(self) -> Iterator[Popen[bytes]]:
        with running(self._path) as run:
            yield run

    def assert_arrived(self, rows: list[dict[str, Any]], run: Popen[bytes]) -> None:
        """All `rows`, which are those of another capture, come into the database and the lake, and into windows that close."""
        expected = _told(rows)
        by_window = Counter(_us(row["_ums_ts_"]) // WINDOW_US * WINDOW_US for row in rows)
        wait_for(lambda: self._sqlite() == expected, run, every_s=_EVERY_S)
        wait_for(lambda: self._certified() == by_window, run, every_s=_EVERY_S)
        assert _told(as_of(self._lake, self._namespace).to_pylist()) == expected

    def assert_certificates_hold(self, rows: list[dict[str, Any]]) -> None:
        """Of the lake that the run has left; and it is known as of a moment in between."""
        checked = headrace("verify", self._path, "--windows")
        assert checked.code == 0, checked.out + checked.err
        files = (pq.read_table(path).to_pylist() for path in self._lake.rglob("*.parquet"))
        found = {row["_ums_id_"]: row for some in files for row in some}  # merged files have rows once more
        moment = found[sorted(found)[len(found) // 2]]["_ums_commit_ts_"]
        before = [row for row in found.values() if row["_ums_commit_ts_"] <= moment]
        assert 0 < len(before) < len(rows) == len(found)
        assert _told(as_of(self._lake, self._namespace, time=moment).to_pylist()) == _told(before)

    def _sqlite(self) -> list[tuple[object, ...]]:
        try:
            return sqlite_rows(self._directory / "mart.db", "orders", ", ".join(NAMES))
        except sqlite3.OperationalError:
            return []  # there is no such table yet

    def _certified(self) -> dict[int, int]:
        """Rows by window, of the windows that are closed."""
        if not is_lake(tree_at(self._lake)):
            return {}
        manifest = Manifest.open(self._lake)
        found = (window for table in manifest.tables for window in windows_of(manifest, table))
        return {window.start_us: window.rows.rows for window in found if window.state != "open"}


def _told(rows: Iterable[dict[str, Any]]) -> list[tuple[object, ...]]:
    return sorted((tuple(row[name] for name in NAMES) for row in rows), key=repr)


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
