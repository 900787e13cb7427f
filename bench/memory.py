"""The memory of processes that are forked from each other, counted once."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil

_LOOK_S = 0.05


class PeakMemory:
    """The largest memory of a process and all that it starts, the JVM left out, looked at twenty times a second.

    PSS: a page that several processes share (of a library, or from before a fork) counts as a part for each of them, so the sum
    is what they take of the machine's memory together. Resident sizes would count such a page once for each process.
    """

    def __init__(self, pid: int) -> None:
        self.peak_mb = 0.0
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                processes = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self.peak_mb = max(self.peak_mb, sum(map(_pss_mb, processes)))


def _pss_mb(process: psutil.Process) -> float:
    try:
        if process.name() == "java":
            return 0.0
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except (OSError, psutil.NoSuchProcess):
        return 0.0  # it has just ended
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")) / 1e6
