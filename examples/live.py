"""What the live tutorials have in common: a flow between real servers that is played with, and what is told of that."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

PATIENCE_S = 480.0


def said(text: str) -> None:
    """Told at once, also where output goes into a file."""
    print(text, flush=True)


def begun(directory: Path, program: str) -> Path:
    """The flow file beside a program, copied into a directory that is empty otherwise."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return Path(shutil.copy(Path(program).with_name("flow.yaml"), directory))


@contextmanager
def running(flow: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace check`, which must find nothing, and then `headrace run`, ended in its own time."""
    said(f"headrace check {flow}")
    subprocess.run([sys.executable, "-m", "headrace", "check", str(flow)], env=environment, check=True)
    told = flow.with_name("run.log")
    said(f"headrace run {flow} (what it says: {told})")
    with told.open("wb") as log:
        command = [sys.executable, "-m", "headrace", "run", str(flow)]
        # Ctrl-C is for this program, which ends the run.
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def until(happened: Callable[[], bool], process: subprocess.Popen[bytes], *, every_s: float) -> bool:
    """Waits until it has happened; False when it does not, or cannot any more because the run has ended."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not happened():
        if process.poll() is not None or time.monotonic() > give_up_at:
            return False
        time.sleep(every_s)
    return True


def quantiles(taken_s: Collection[float]) -> str:
    """How long it took, mostly and at the worst."""
    ordered = sorted(taken_s)
    return f"p50 {ordered[len(ordered) // 2]:.2f} s, p99 {ordered[len(ordered) * 99 // 100]:.2f} s"


def ended(main: Callable[[], int]) -> NoReturn:
    """Ends as a program says, and without a traceback when somebody has had enough."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
