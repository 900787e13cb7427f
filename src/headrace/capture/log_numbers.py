"""What people must know of the numbers of a server's log files: that they fell, or that the server has lost what was not captured.

Ids of changes are made of these numbers, and ids never fall: capture renumbers the files behind another server or a reset (position.py), or it
stops (lost.py). Either way somebody has done something to the server that concerns more than headrace::

    {"format": 1, "fell": {"at_us": …, "text": …} or null, "lost": {"at_us": …, "text": …} or null}

    fell   newest time at which a number was smaller than one before it: the log was reset, or another server answers
    lost   why capture cannot go on; null again as soon as it does

Crash story: it is written when it is seen, and seen again when a capture begins where the newest mark is. A fall that was seen and renumbered is seen
once, as the mark has the new number then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.capture.noted_file import read_noted, write_noted
from headrace.capture.position import BinlogPosition
from headrace.errors import PositionLostError

_FILE = "log_numbers.json"


@dataclass(frozen=True, slots=True)
class Seen:
    """Something that was seen, when, and in words."""

    at_us: int
    text: str


class LogNumbers:
    """Of one source, in the directory of its state. Asked by its capture and by the thread of its heartbeats."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = directory / _FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: BinlogPosition | None = None

    def read(self) -> tuple[Seen | None, Seen | None]:
        """`fell` and `lost`; CorruptError when the file is damaged."""
        found = read_noted(self._path, lambda content: (_seen(content["fell"]), _seen(content["lost"])))
        return found or (None, None)

    def begin(self, position: BinlogPosition | None) -> None:
        """Capture begins (again) here: what the server says from now on is held against this. None: nothing was captured before."""
        with self._lock:
            self._newest = position

    def ends_at(self, position: BinlogPosition) -> None:
        """The server says where its log ends."""
        with self._lock:
            before, self._newest = self._newest, position
            if before is not None and before.file_number > position.file_number:
                by = (
                    ""
                    if position.server in ("", before.server)
                    else f"; {position.server} answers, not {before.server}"
                )
                text = f"the number of the server's log file fell from {before.file} to {position.file}{by}"
                self._write(Seen(self._now_us(), text), self.read()[1])

    @contextmanager
    def losses(self) -> Iterator[None]:
        """Connecting to the server: notes that the position is lost there, or that it is not (any more)."""
        try:
            yield
        except PositionLostError as error:
            with self._lock:
                fell, before = self.read()
                self._write(fell, Seen(self._now_us() if before is None else before.at_us, error.message))
            raise
        with self._lock:
            fell, lost = self.read()
            if lost is not None:
                self._write(fell, None)

    def _write(self, fell: Seen | None, lost: Seen | None) -> None:
        write_noted(self._path, {name: seen and asdict(seen) for name, seen in (("fell", fell), ("lost", lost))})

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)


def _seen(told: dict[str, Any] | None) -> Seen | None:
    return None if told is None else Seen(**told)
