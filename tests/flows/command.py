"""Runs the real command line in a process of its own, and compares what is in a source with what arrived."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def headrace(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout_s: float = 240
) -> Result:
    """`headrace ARGUMENTS`, waited for."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def run_until_idle(flow: Path, env: Mapping[str, str] | None = None) -> Result:
    """`headrace run FLOW --until-idle`, which must end well."""
    result = headrace("run", flow, "--until-idle", env=env)
    assert result.code == 0, result.err
    return result


@contextmanager
def running(flow: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace run FLOW` in a process group of its own; ended with all its children on leaving."""
    with (flow.parent / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "run", str(flow)],
            env={**os.environ, **(env or {})},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to driver and JVM at once; Python workers, which live in a group of their own, are left to notice by themselves."""
    try:
        workers = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        workers = []
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, left = psutil.wait_procs(workers, timeout=20)
    assert not left, f"processes outlived the run: {left}"


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes], timeout_s: float = 90) -> None:
    """Waits until something has happened, while the process lives."""
    give_up_at = time.monotonic() + timeout_s
    while not happened():
        assert process.poll() is None, f"the run ended by itself with {process.returncode}"
        assert time.monotonic() < give_up_at, f"it did not happen within {timeout_s} s"
        time.sleep(0.02)


def delivering(flow: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether that run's delivery has begun to report; directories of earlier runs do not count."""
    runs = (flow.parent / "state" / "runs").glob(f"*-{process.pid}")
    return any((run / "progress" / "deliver-db1.json").exists() for run in runs)


def sqlite_rows(path: Path, table: str, columns: str) -> list[tuple[object, ...]]:
    """The live rows of a table in a SQLite target, ordered."""
    connection = sqlite3.connect(path)
    try:
        return sorted(connection.execute(f'SELECT {columns} FROM "{table}" WHERE _is_active_ = 1').fetchall(), key=repr)
    finally:
        connection.close()
