"""What surrounds a run, for the control plane's alerts: room on its disks, and who of its watermark is not heard of any more.

A thread looks every ten seconds: a file system or a server that does not answer keeps nothing else waiting.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.flow.spec import PipelineSpec
from headrace.stream.figures import Json
from headrace.stream.watermarks import server_of
from headrace.watermark.client import Server

_LOOK_EVERY_S = 10.0


class Surroundings:
    """Of one run; `told` is what was seen last."""

    def __init__(self, pipeline: PipelineSpec) -> None:
        self.told: Json = {"disks": [], "watermarks": []}
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
            self.told = {"disks": list(self._disks()), "watermarks": list(self._watermarks())}

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
