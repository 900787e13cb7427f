"""Runs the real command line in a process of its own, and compares what is in a source with what arrived."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.patience import HANG_S, wait_until


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def headrace(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Result:
    """`headrace ARGUMENTS`, waited for."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def run_until_idle(flow: Path, env: Mapping[str, str] | None = None) -> Result:
    """`headrace run FLOW --until-idle`, which must end well."""
    result = headrace("run", flow, "--until-idle", env=env)
    assert result.code == 0, result.err
    return result


@contextmanager
def running(
    flow: Path, verb: str = "run", *options: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace run FLOW` (or another verb) in a process group of its own; ended with all its children on leaving."""
    with (flow.parent / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", verb, str(flow), *options],
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
    _, left = psutil.wait_procs(workers, timeout=HANG_S)
    assert not left, f"processes outlived the run: {left}"


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes], *, every_s: float = 0.02) -> None:
    """Waits until something has happened, while the process lives."""

    def alive() -> None:
        assert process.poll() is None, f"the run ended by itself with {process.returncode}"

    wait_until(happened, alive, every_s=every_s)


def delivering(flow: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether that run's delivery has begun to report; directories of earlier runs do not count."""
    runs = (flow.parent / "state" / "runs").glob(f"*-{process.pid}")
    return any((run / "progress" / "deliver-db1.json").exists() for run in runs)


def sqlite_rows(path: Path, table: str, columns: str, condition: str = "1") -> list[tuple[object, ...]]:
    """The live rows of a table in a SQLite target that fulfil a condition, ordered."""
    connection = sqlite3.connect(path)
    try:
        return sorted(
            connection.execute(f'SELECT {columns} FROM "{table}" WHERE _is_active_ = 1 AND ({condition})').fetchall(),
            key=repr,
        )
    finally:
        connection.close()
