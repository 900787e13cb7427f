"""What the driver and the tasks of one run tell each other while an epoch lasts: small files in a directory both can see.

::

    STATE/runs/<run>/stop                   present: end the epoch at the next whole transaction
    STATE/runs/<run>/progress/<task>.json   newest figures of a task, replaced about four times a second
    STATE/runs/<run>/captured/<topic>.p<n>  where a partition ended when its source had nothing more (--until-idle)
    STATE/runs/<run>/over                   the newest epoch whose time is over
    STATE/runs/<run>/error/<task>           the error that ended a task (pickled HeadraceError)
    STATE/runs/<run>/checkpoint/            what Spark keeps of the epochs of this run

Nothing here is needed after the run: positions are in the log, the lake and the ledger.
"""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError, HeadraceError
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

    def require(self) -> None:
        """ConfigError where the directory is not to be seen: on an executor whose machine does not share it with the driver's."""
        if not self.path.is_dir():
            raise ConfigError(
                f"the state directory {self.path.parent.parent} of the run is not on the executor's machine {socket.gethostname()}",
                fix="put `state` on a file system that driver and executors mount under the same path (docs/how-to/cluster.md)",
            )

    def request_stop(self) -> None:
        replace_file(self.path / "stop", b"")

    def stop_requested(self) -> bool:
        return (self.path / "stop").exists()

    def epoch_is_over(self, epoch: int) -> None:
        """Its time has passed for one task, and so for all, also for one that began late because the process before it had died."""
        replace_file(self.path / "over", str(epoch).encode())

    def newest_over(self) -> int:
        try:
            return int((self.path / "over").read_bytes())
        except FileNotFoundError:
            return 0

    def report(self, task: str, figures: dict[str, Any]) -> None:
        # Not synced, and no reason to fail: losing it costs nothing.
        path = self.path / "progress" / f"{task}.json"
        aside = path.with_suffix(".new")
        with suppress(OSError):
            aside.write_text(json.dumps(figures))
            aside.replace(path)

    def reports(self) -> dict[str, dict[str, Any]]:
        return {path.stem: json.loads(path.read_text()) for path in sorted((self.path / "progress").glob("*.json"))}

    def is_captured(self, topic: str, partition: int, end_offset: int) -> None:
        replace_file(self._captured(topic, partition), str(end_offset).encode())

    def captured_end(self, topic: str, partition: int) -> int | None:
        try:
            return int(self._captured(topic, partition).read_bytes())
        except FileNotFoundError:
            return None

    def _captured(self, topic: str, partition: int) -> Path:
        return self.path / "captured" / f"{topic}.p{partition}"

    def fail(self, task: str, error: HeadraceError) -> None:
        replace_file(self.path / "error" / task, pickle.dumps(error))
        self.request_stop()

    def has_failed(self) -> bool:
        return any((self.path / "error").iterdir())

    def errors(self) -> dict[str, HeadraceError]:
        return {path.name: pickle.loads(path.read_bytes()) for path in sorted((self.path / "error").glob("[!.]*"))}  # noqa: S301 - our own file


class Until:
    """When an epoch is over: its time has passed, here or for another task, or a stop was requested. Cheap to ask in a loop."""

    def __init__(
        self, run: RunDirectory, epoch: int, epoch_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.epoch = epoch
        self._run = run
        self._clock = clock
        self._deadline = clock() + epoch_s
        self._look_again = clock()
        self._over = False

    def over(self) -> bool:
        now = self._clock()
        if not self._over and now >= self._look_again:
            self._look_again = now + _LOOK_EVERY_S
            self._over = self._run.stop_requested() or self._run.newest_over() >= self.epoch
        if not self._over and now >= self._deadline:
            self._run.epoch_is_over(self.epoch)
            self._over = True
        return self._over
