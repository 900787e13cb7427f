"""What surrounds a run, for the control plane's alerts: room on its disks, who of its watermark is not heard of any more, which tables have changed
at their source, and what became of the numbers of its log files.

A thread looks every ten seconds: a file system or a server that does not answer keeps nothing else waiting.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from headrace.capture.changed_tables import ChangedTables
from headrace.capture.log_numbers import LogNumbers
from headrace.errors import CorruptError, HeadraceError
from headrace.flow.spec import PipelineSpec
from headrace.stream.figures import Json
from headrace.stream.parts import state_of
from headrace.stream.watermarks import server_of
from headrace.watermark.client import Server

_LOOK_EVERY_S = 10.0


class Surroundings:
    """Of one run; `told` is what was seen last."""

    def __init__(self, pipeline: PipelineSpec) -> None:
        self.told: Json = {"disks": [], "watermarks": [], "changed_tables": [], "log_numbers": []}
        self._pipeline = pipeline

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looks again and again while it is open."""
        over = threading.Event()

        def look() -> None:
            self.look()
            while not over.wait(_LOOK_EVERY_S):
                self.look()

        threading.Thread(target=look, name="surroundings", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def look(self) -> None:
        with suppress(OSError):  # of a disk that is away the run itself tells
            self.told = {
                "disks": list(self._disks()),
                "watermarks": list(self._watermarks()),
                "changed_tables": list(self._changed_tables()),
                "log_numbers": list(self._log_numbers()),
            }

    def _disks(self) -> Iterator[Json]:
        """Each file system once, by the first path that is on it."""
        seen = set()
        for path in self._paths():
            there = next((each for each in (path, *path.parents) if each.exists()), None)
            if there is None or (device := there.stat().st_dev) in seen:
                continue
            seen.add(device)
            usage = shutil.disk_usage(there)
            yield {"path": str(path), "free_bytes": usage.free, "total_bytes": usage.total}

    def _paths(self) -> Iterator[Path]:
        """Where this machine keeps something of the run."""
        yield self._pipeline.state
        for place in (self._pipeline.log, *(flow.to for flow in self._pipeline.flows)):
            if isinstance(path := getattr(place, "path", None), Path):
                yield path

    def _changed_tables(self) -> Iterator[Json]:
        """The newest change of each table. What is damaged ends the capture, which says so; here it is nothing."""
        for config in self._pipeline.source:
            with suppress(CorruptError):
                for table, change in ChangedTables(state_of(config, self._pipeline)).all().items():
                    yield {"table": table, **asdict(change)}

    def _log_numbers(self) -> Iterator[Json]:
        """Of each source whose server's log files have numbers; nothing that is unknown is told as well."""
        for config in self._pipeline.source:
            with suppress(CorruptError):
                fell, lost = LogNumbers(state_of(config, self._pipeline)).read()
                yield {"source": config.name, "fell": fell and asdict(fell), "lost": lost and asdict(lost)}

    def _watermarks(self) -> Iterator[Json]:
        """Nothing while the server does not answer: then nothing is known of its members."""
        if self._pipeline.watermark is None:
            return
        try:
            spec = server_of(self._pipeline)
            with closing(Server(spec.url[0], spec.token)) as server:
                stages = server.ask(f"/v1/topologies/{spec.topology}")["stages"]
        except HeadraceError:
            return
        for stage in stages:
            gone = [member["name"] for member in stage["gone"] if member["state"] == "abandoned"]
            yield {"name": stage["name"], "gone": gone}
