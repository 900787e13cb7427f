"""What a program spends, seen from outside: the same way for all, whatever language they are written in."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

TIMEOUT_S = 900.0
_LOOK_S = 0.02
_REASON_LETTERS = 300


class PeerError(Exception):
    """A peer cannot be built or run; the message says why in one line."""


@dataclass(frozen=True)
class Run:
    """`seconds` and `cpu_s` (all threads, user and system) count from `begin`, `startup_cpu_s` is what came before.

    `rows` is None when the program does not count.
    """

    rows: int | None
    seconds: float
    cpu_s: float
    startup_cpu_s: float
    peak_bytes: int


def measure(command: Sequence[str], *, stdin: Path | None = None, counts: bool = True) -> Run:
    """Runs a program to its end; without `counts` its output is thrown away and all that it spends counts.

    PeerError when it ends with a code other than 0, or does not end within `TIMEOUT_S`.
    """
    with (stdin or Path(os.devnull)).open("rb") as given, tempfile.TemporaryFile() as errors:
        launched = began = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=given, stdout=subprocess.PIPE if counts else subprocess.DEVNULL, stderr=errors, text=True
        )
        limit = threading.Timer(TIMEOUT_S, process.kill)
        limit.start()
        rows: int | None = None
        startup_cpu_s = 0.0
        with _PeakMemory(process.pid) as memory:
            for line in process.stdout or ():
                if line == "begin\n":
                    began, startup_cpu_s = time.perf_counter(), _cpu_s(process.pid)
                else:
                    rows = int(line)
            # Its process id must stay its own as long as the memory is looked at.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ended = time.perf_counter()
        limit.cancel()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.stdout:
            process.stdout.close()
        if ended - launched > TIMEOUT_S:
            raise PeerError(f"did not end within {TIMEOUT_S:.0f} s")
        if process.returncode != 0:
            errors.seek(0)
            raise PeerError(_reason(process.returncode, errors.read()))
        cpu_s = usage.ru_utime + usage.ru_stime - startup_cpu_s
        return Run(rows, ended - began, cpu_s, startup_cpu_s, memory.peak_bytes)


class _PeakMemory:
    """The largest resident memory of a process. (Its rusage would include what this process had when it forked.)"""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._status = Path(f"/proc/{pid}/status")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            for line in self._status.read_text().splitlines():  # a process that has ended has no such line
                if line.startswith("VmHWM:"):
                    self.peak_bytes = int(line.split()[1]) * 1024


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _reason(code: int, errors: bytes) -> str:
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "Exception" in line] or lines
    return f"ended with code {code}: {told[-1][:_REASON_LETTERS] if told else 'it said nothing'}"
