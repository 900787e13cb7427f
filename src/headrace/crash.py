"""Dying on purpose: named points in the code where a test ends the process as a power cut would.

``HEADRACE_CRASH_AT=create.named:3`` kills the process (SIGKILL, nothing is flushed or closed) the third time it passes the
point of that name; without a number the first time. Unset, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from itertools import count

_name, _, _nth = os.environ.get("HEADRACE_CRASH_AT", "").partition(":")
_passed = count(1)


def crash_point(name: str) -> None:
    """Ends the process here when the environment says so."""
    if _name and name == _name and next(_passed) == int(_nth or 1):
        os.kill(os.getpid(), signal.SIGKILL)
