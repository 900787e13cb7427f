"""The points at which a test ends a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
from headrace.crash import crash_point
for name in ("first", "second", "first", "first"):
    crash_point(name)
    print(name, flush=True)
"""


@pytest.mark.parametrize(
    ("crash_at", "code", "out"),
    [
        ("", 0, "first second first first"),
        ("first", -signal.SIGKILL, ""),
        ("first:3", -signal.SIGKILL, "first second first"),
        ("second", -signal.SIGKILL, "first"),
        ("second:2", 0, "first second first first"),
    ],
)
def test_a_process_ends_at_its_point(crash_at: str, code: int, out: str) -> None:
    environment = {**os.environ, "HEADRACE_CRASH_AT": crash_at}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (code, out.split())
