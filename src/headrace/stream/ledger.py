"""Where each task stood at the end of each epoch: the durable memory of following epochs.

::

    STATE/epochs/<task>/<epoch, 20 digits>.json     {"state": what the next epoch starts from, "message": figures for the driver}

A file is created once, whole, and never changed. Whoever creates the file of an epoch has decided its end; an attempt that comes
second (a zombie, or a task that Spark runs again) finds it and takes over what it says. Only the newest files are kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import CorruptError
from headrace.files import create_file

_KEEP = 20
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one epoch of one task."""

    epoch: int
    state: Json
    message: Json


class Ledger:
    """The ends of all epochs of one task."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def newest(self) -> Ended | None:
        """The newest epoch that has ended; None when there was none."""
        epochs = self._epochs()
        return self._read(epochs[-1]) if epochs else None

    def end(self, ended: Ended) -> Ended:
        """Makes the end of an epoch durable; returns what counts, which is another attempt's end when that came first."""
        path = self._path(ended.epoch)
        if not create_file(path, json.dumps({"state": ended.state, "message": ended.message}).encode()):
            return self._read(ended.epoch)
        for old in self._epochs()[:-_KEEP]:
            self._path(old).unlink(missing_ok=True)
        return ended

    def _epochs(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("[0-9]*.json"))

    def _path(self, epoch: int) -> Path:
        return self._directory / f"{epoch:020d}.json"

    def _read(self, epoch: int) -> Ended:
        path = self._path(epoch)
        try:
            content = json.loads(path.read_bytes())
            return Ended(epoch, content["state"], content["message"])
        except (ValueError, KeyError) as error:
            raise CorruptError(
                f"{path} is damaged: {error}",
                fix="remove this file: the flows then go on from the epoch before, and targets take the repeats by `_ums_id_`",
            ) from error
