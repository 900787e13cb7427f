"""Spark queries whose driver is killed again and again, and what their sinks have then."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq

from tests.faults import spark_query
from tests.flows.command import kill_group, wait_for


class KilledQueries:
    """``with KilledQueries(work, queries, kills) as killed: …``: a driver with all queries is killed so often, at random moments; then one stays.

    `queries`: by name what tests/faults/spark_query.py is told. Changes must come until `are_over`.
    """

    def __init__(self, work: Path, queries: dict[str, dict[str, Any]], kills: int) -> None:
        self._work = work
        self._queries = queries
        self._kills = kills
        self._chance = random.Random(7)
        self._driver: subprocess.Popen[bytes] | None = None
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._kill_again_and_again)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._work.mkdir()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._driver is not None:
            kill_group(self._driver)

    @property
    def are_over(self) -> bool:
        """All have been killed as often as they were to be."""
        if self._failed is not None:
            raise self._failed
        return not self._thread.is_alive()

    def rows(self, query: str, count: int) -> list[dict[str, Any]]:
        """What its sink has, in the order of changes, as soon as there are so many rows; the driver is killed then."""
        self._thread.join()
        assert self.are_over
        assert self._driver is not None
        wait_for(lambda: self._count(query) >= count, self._driver)
        rows = [row for path in self._files(query) for row in pq.read_table(path).to_pylist()]
        return sorted(rows, key=lambda row: row["_ums_id_"])

    def _kill_again_and_again(self) -> None:
        try:
            for _ in range(self._kills):
                if not self._over.is_set():
                    self._kill_at_random()
            self._driver = self._start()
        except Exception as error:
            self._failed = error

    def _start(self) -> subprocess.Popen[bytes]:
        told = json.dumps({"work": str(self._work), "queries": self._queries})
        with (self._work / "driver.log").open("ab") as log:
            command = [sys.executable, "-m", spark_query.__name__, told]
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _kill_at_random(self) -> None:
        """Some moment behind the beginning of a new batch of each query."""
        before = {query: self._batches(query) for query in self._queries}
        driver = self._start()

        def begun() -> bool:
            return self._over.is_set() or all(self._batches(query) > number for query, number in before.items())

        try:
            wait_for(begun, driver)
            time.sleep(self._chance.uniform(0, 2))
        finally:
            kill_group(driver)

    def _batches(self, query: str) -> int:
        """How many have been begun."""
        return sum(path.name.isdecimal() for path in (self._work / query / "checkpoint" / "offsets").glob("*"))

    def _count(self, query: str) -> int:
        return sum(pq.read_metadata(path).num_rows for path in self._files(query))

    def _files(self, query: str) -> list[Path]:
        """The files that the sink's log names. Those of killed batches are not among them."""
        sink = self._work / query / "sink"
        logs = {path.name: path for path in sink.glob("_spark_metadata/[0-9]*")}
        compacts = [int(name.removesuffix(".compact")) for name in logs if name.endswith(".compact")]
        newest = max(compacts, default=-1)
        files: dict[str, None] = {}
        for name, path in logs.items():
            if int(name.removesuffix(".compact")) > newest or name == f"{newest}.compact":
                for line in path.read_text().splitlines()[1:]:
                    files[Path(json.loads(line)["path"].removeprefix("file:")).name] = None
        return [sink / name for name in files]
