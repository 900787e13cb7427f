"""What the driver and the tasks of one run tell each other while an epoch lasts: small files in a directory both can see.

::

    STATE/runs/<run>/stop                   present: end the epoch at the next whole transaction
    STATE/runs/<run>/progress/<task>.json   newest figures of a task, replaced about four times a second
    STATE/runs/<run>/captured/<source>      where the log ended when this source had nothing more (--until-idle)
    STATE/runs/<run>/error/<task>           the error that ended a task (pickled HeadraceError)

Nothing here is needed after the run: positions are in the log, the lake and the ledger.
"""

from __future__ import annotations

import json
import pickle
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.files import make_directories, replace_file

_LOOK_EVERY_S = 0.05
_KEEP_RUNS = 5


class RunDirectory:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Makes the directory; of earlier runs only the newest are kept, for who looks for the reason of a failure."""
        for part in ("progress", "captured", "error"):
            make_directories(self.path / part)
        for old in sorted(self.path.parent.iterdir())[:-_KEEP_RUNS]:
            shutil.rmtree(old, ignore_errors=True)

    def request_stop(self) -> None:
        replace_file(self.path / "stop", b"")

    def stop_requested(self) -> bool:
        return (self.path / "stop").exists()

    def report(self, task: str, figures: dict[str, Any]) -> None:
        # Not synced, and no reason to fail: losing it costs nothing.
        path = self.path / "progress" / f"{task}.json"
        aside = path.with_suffix(".new")
        with suppress(OSError):
            aside.write_text(json.dumps(figures))
            aside.replace(path)

    def reports(self) -> dict[str, dict[str, Any]]:
        return {path.stem: json.loads(path.read_text()) for path in sorted((self.path / "progress").glob("*.json"))}

    def source_is_captured(self, source: str, end_offset: int) -> None:
        replace_file(self.path / "captured" / source, str(end_offset).encode())

    def captured_end(self, source: str) -> int | None:
        try:
            return int((self.path / "captured" / source).read_bytes())
        except FileNotFoundError:
            return None

    def fail(self, task: str, error: HeadraceError) -> None:
        replace_file(self.path / "error" / task, pickle.dumps(error))
        self.request_stop()

    def errors(self) -> dict[str, HeadraceError]:
        return {path.name: pickle.loads(path.read_bytes()) for path in sorted((self.path / "error").glob("[!.]*"))}  # noqa: S301 - our own file


class Until:
    """When an epoch is over: its time has passed, or a stop was requested. Cheap to ask in a loop."""

    def __init__(
        self, run: RunDirectory, epoch: int, epoch_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.epoch = epoch
        self._run = run
        self._clock = clock
        self._deadline = clock() + epoch_s
        self._look_again = clock()
        self._stopped = False

    def over(self) -> bool:
        now = self._clock()
        if now >= self._look_again:
            self._look_again = now + _LOOK_EVERY_S
            self._stopped = self._run.stop_requested()
        return self._stopped or now >= self._deadline
