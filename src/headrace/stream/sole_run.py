"""One run at a time uses a state."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import ConfigError, storage_error
from headrace.files import make_directories


def is_running(state: Path) -> bool:
    """Whether a run is using the state."""
    try:
        with sole_run(state):
            return False
    except ConfigError:
        return True


@contextmanager
def sole_run(state: Path) -> Iterator[None]:
    """Keeps a second run off the same state while this one lives; the kernel gives the lock back however it ends."""
    make_directories(state)
    try:
        lock = (state / "lock").open("w")
    except OSError as error:
        raise storage_error("open", state / "lock", error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another run is using the state in {state}",
                fix="stop it first, or give this file a `state` of its own",
            ) from error
        yield
