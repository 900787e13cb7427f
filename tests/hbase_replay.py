"""Changes of an HBase replayed by its own rules, to be compared with what a scan of all versions finds."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.servers.hbase_console import HBaseConsole

QUICK = {"zookeeper.session.timeout": "10000", "hbase.zookeeper.property.tickTime": "1000"}
"""A server that was killed is known to be gone after ten seconds."""
SMALL = {
    "hbase.wal.provider": "multiwal",
    "hbase.wal.regiongrouping.numgroups": "2",
    "hbase.wal.regiongrouping.delegate.provider": "filesystem",
    "hbase.regionserver.wal.enablecompression": "true",
    "hbase.regionserver.wal.tags.enablecompression": "true",
    "hbase.regionserver.wal.value.enablecompression": "true",
    "hbase.regionserver.wal.value.compression.type": "gz",
}

Cells = dict[tuple[str, str, str, int], str]


class Replay:
    """Cells by HBase's rules, out of the changes in their order: a put replaces one of the same timestamp, and what says that something is
    gone hides all that it names, whenever it was written."""

    def __init__(self) -> None:
        self.puts: Cells = {}
        self.gone: set[tuple[str, str, str, str, int]] = set()

    def apply(self, row: str, cell: dict[str, Any]) -> None:
        family, qualifier = cell["family"], _hex(cell, "qualifier")
        if cell["kind"] == "put":
            self.puts[row, family, qualifier, cell["timestamp"]] = _hex(cell, "value")
        else:
            self.gone.add((cell["kind"], row, family, qualifier, cell["timestamp"]))

    def visible(self) -> Cells:
        until: dict[tuple[str, ...], int] = {}
        for kind, row, family, qualifier, timestamp in self.gone:
            if kind in ("delete column", "delete family"):
                place = (row, family, qualifier) if kind == "delete column" else (row, family)
                until[place] = max(timestamp, until.get(place, 0))
        return {
            (row, family, qualifier, timestamp): value
            for (row, family, qualifier, timestamp), value in self.puts.items()
            if timestamp > max(until.get((row, family), 0), until.get((row, family, qualifier), 0))
            and ("delete version", row, family, qualifier, timestamp) not in self.gone
            and ("delete family version", row, family, "", timestamp) not in self.gone
        }


def _hex(cell: dict[str, Any], name: str) -> str:
    return base64.b64decode(cell[f"{name}_base64"]).hex() if f"{name}_base64" in cell else cell[name].encode().hex()


def scanned(console: HBaseConsole, table: str, path: Path) -> Cells:
    """All that a scan of the table shows; `path` is a file that it is written to."""
    console.ask("scan", table, path)
    found = {}
    for line in path.read_text().splitlines():
        row, family, qualifier, timestamp, value = line.split(" ")
        place = bytes.fromhex(row).decode(), bytes.fromhex(family).decode(), qualifier[1:], int(timestamp)
        found[place] = value[1:]
    return found


def replayed(rows: Iterable[dict[str, Any]]) -> Cells:
    """What is visible after all changes, in this order; keys of rows are text."""
    replay = Replay()
    for row in rows:
        for cell in json.loads(row["cells"]):
            replay.apply(row["row"], cell)
    return replay.visible()


def assert_in_order(rows: list[dict[str, Any]]) -> None:
    ids = [row["_ums_id_"] for row in rows]
    assert ids == sorted(set(ids))
    newest: dict[str, tuple[int, int]] = {}
    rows_of: dict[str, int] = {}
    for row in rows:
        place = row["sequence"], row["cell"]
        assert place > newest.get(row["region"], (-1, -1))
        newest[row["region"]] = place
        # A row goes from region to region, and takes the order of its sequence along.
        assert row["sequence"] >= rows_of.get(row["row"], -1)
        rows_of[row["row"]] = row["sequence"]
    assert len(newest) > 3
