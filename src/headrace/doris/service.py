"""Loaders under one roof: each in a process of its own, started, stopped, started again when it ends, and watched.

::

                    start                         ends with 0, or was to stop
    STOPPED ------------------------> RUNNING ---------------------------------> STOPPED
       ^                             ^       |
       |                 pause is over       | ends with an error ----> FAILED      exit code 2: its file or its table is wrong; `start`
       |                             |       v                                      tries again
       '------------ stop ---------- WAITING                                        else: pauses grow from 10 s to 5 minutes
                                     ^       |
                    it is silent     '-------'  somebody else says that the loader runs: ELSEWHERE

Whether a loader is wanted is kept in its store, so what a person has stopped stays stopped. All else that is told of a loader stands in
its store too, or in Kafka: the service may be killed at any time. Its loaders go on then, and those of the next service take over from them.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO

from headrace.doris.config import LoaderConfig
from headrace.doris.running import Status, status_of
from headrace.doris.store import LoadStore
from headrace.doris.topic import TopicSource
from headrace.errors import ConfigError, HeadraceError

_WRONG = 2
"""The exit code of ConfigError."""
_SILENT_S = 30.0
_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 300.0
"""Twice as long as a loader is silent at most: so another process that has taken it over is seen before it is started again."""
_WORKED_S = 60.0
"""A process that ran for so long has worked: the next pause is a short one."""
_LINES = 20
_STOP_S = 60.0


class State(StrEnum):
    """What a loader does."""

    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    WAITING = "waiting"
    FAILED = "failed"
    ELSEWHERE = "elsewhere"


@dataclass(slots=True)
class _Load:
    file: Path
    config: LoaderConfig
    store: LoadStore
    state: State = State.STOPPED
    process: subprocess.Popen[str] | None = None
    began_at: float = 0.0
    ended_us: int = 0
    due_at: float = 0.0
    pause_s: float = _PAUSE_S
    starts: int = 0
    is_wanted: bool | None = None
    """What its store says; None until that has answered."""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    status: Status | None = None
    seen_at: float = 0.0
    """When both could be asked."""
    trouble: str = ""
    """Why the store or Kafka cannot be asked."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of a loader."""

    name: str
    state: State
    starts: int
    """How often this service has started it."""
    said: list[str]
    """The last lines that its process wrote."""
    status: Status | None
    status_age_s: float
    trouble: str


class Service:
    """All loaders of some files. `tick` and `look` are called by threads of whoever serves it."""

    def __init__(self, loaders: Sequence[tuple[Path, LoaderConfig]], told: Callable[[str], None]) -> None:
        """ConfigError when two have one name. `told`: hears each line that a loader's process writes."""
        self._loads = {config.name: _Load(file, config, LoadStore(config.store)) for file, config in loaders}
        if len(self._loads) < len(loaders):
            raise ConfigError("two loaders have one name", fix="correct `name`: it is in labels, and must be unique")
        self._told = told
        self._lock = threading.RLock()

    def open(self) -> None:
        """Starts those that nobody has stopped. A store that is away is asked again by `look`."""
        for load in self._loads.values():
            self._learn(load)
        self.tick()

    def close(self) -> None:
        """Stops the processes: what is under way is ended first."""
        with self._lock:
            for load in self._loads.values():
                load.is_wanted = False
                self._end(load)
            for load in self._loads.values():
                if load.process is not None:
                    _wait_or_kill(load.process)
                load.store.close()

    # --- what people want

    def start(self, name: str) -> None:
        """It is to run from now on."""
        load = self._found(name)
        self._want(load, is_wanted=True)
        with self._lock:
            if load.state is State.FAILED:
                load.state = State.WAITING
        self._tend(load)

    def stop(self, name: str) -> None:
        """It is not to run any more, also after a restart of the service."""
        load = self._found(name)
        self._want(load, is_wanted=False)
        with self._lock:
            self._end(load)

    def restart(self, name: str) -> None:
        """Its process ends, and another one begins: with its file as it is then."""
        load = self._found(name)
        self._want(load, is_wanted=True)
        with self._lock:
            if load.process is None:
                load.state = State.WAITING
            self._end(load)
        self._tend(load)

    def judge(self, name: str, sequence: int, verdict: str) -> None:
        """What a person says of a load that nobody can decide. ConfigError when there is no such load."""
        if not self._found(name).store.judge(name, sequence, verdict):
            raise ConfigError(f"the loader '{name}' has no load {sequence} that is open", fix="see its `unloaded`")

    # --- what is known

    def reports(self) -> list[Report]:
        """Of all, by name."""
        return [self.report(name) for name in sorted(self._loads)]

    def report(self, name: str) -> Report:
        """Of one; ConfigError when there is none of the name."""
        load = self._found(name)
        with self._lock:
            age_s = time.monotonic() - load.seen_at
            return Report(name, load.state, load.starts, list(load.lines), load.status, age_s, load.trouble)

    def refused(self, name: str, rows: int) -> list[tuple[int, str]]:
        """Rows that were left out, the newest first: the number of their load, and why."""
        return self._found(name).store.refused(name, rows)

    # --- what is done all the time

    def tick(self) -> None:
        """Takes note of processes that have ended, and starts those that are due."""
        for load in self._loads.values():
            self._tend(load)

    def look(self) -> None:
        """Asks stores and Kafka. Takes long when one of them is away."""
        for name, load in self._loads.items():
            if load.is_wanted is None:
                self._learn(load)
            trouble, kept, status = "", None, load.status
            try:
                with closing(TopicSource(load.config)) as source:
                    kept = source.kept()
            except HeadraceError as error:
                trouble = error.message
            try:
                status = status_of(name, load.store, kept)
            except HeadraceError as error:
                trouble = error.message
            with self._lock:
                load.trouble, load.status = trouble, status
                load.seen_at = load.seen_at if trouble else time.monotonic()

    # --- private

    def _found(self, name: str) -> _Load:
        if name not in self._loads:
            raise ConfigError(f"there is no loader '{name}'", fix=f"name one of: {', '.join(sorted(self._loads))}")
        return self._loads[name]

    def _learn(self, load: _Load) -> None:
        """Whether it is wanted, when its store says so."""
        try:
            load.store.open()
            is_wanted = load.store.loader(load.config.name).is_wanted
        except HeadraceError as error:
            with self._lock:
                load.state, load.trouble = State.WAITING, error.message
            return
        with self._lock:
            load.is_wanted = is_wanted if load.is_wanted is None else load.is_wanted

    def _want(self, load: _Load, *, is_wanted: bool) -> None:
        load.store.open()
        load.store.want(load.config.name, is_wanted=is_wanted)
        with self._lock:
            load.is_wanted, load.due_at, load.pause_s = is_wanted, 0.0, _PAUSE_S

    def _tend(self, load: _Load) -> None:
        with self._lock:
            is_due = self._is_due(load)
        if not is_due:
            return
        is_elsewhere = self._runs_elsewhere(load)  # asks the store, and nobody may wait for that
        with self._lock:
            if is_elsewhere:
                load.state, load.due_at = State.ELSEWHERE, time.monotonic() + 1
            elif self._is_due(load):
                self._begin(load)

    def _is_due(self, load: _Load) -> bool:
        """Whether a process is to be started now."""
        if load.process is not None:
            if (code := load.process.poll()) is None:
                return False
            self._ended(load, code)
        if load.is_wanted is False:
            load.state = State.STOPPED
        return bool(load.is_wanted) and load.state is not State.FAILED and time.monotonic() >= load.due_at

    def _ended(self, load: _Load, code: int) -> None:
        load.process, load.ended_us = None, round(time.time() * 1e6)
        was_to_end = load.state is State.STOPPING
        if time.monotonic() - load.began_at >= _WORKED_S:
            load.pause_s = _PAUSE_S
        load.state = State.FAILED if code == _WRONG and not was_to_end else State.WAITING
        is_at_once = was_to_end or (code < 0 and load.pause_s == _PAUSE_S)  # killed, and not again and again
        load.due_at = time.monotonic() + (0 if is_at_once else load.pause_s)
        if not was_to_end:
            load.pause_s = min(_LONGEST_PAUSE_S, load.pause_s * 2)

    def _runs_elsewhere(self, load: _Load) -> bool:
        """Whether somebody else has said after our process had ended that the loader runs."""
        if load.state not in (State.WAITING, State.ELSEWHERE) or not load.ended_us:
            return False
        try:
            alive_us = load.store.loader(load.config.name).alive_us or 0
        except HeadraceError:
            return False  # the process will say what is wrong with the store
        return alive_us > load.ended_us and time.time() - alive_us / 1e6 < _SILENT_S

    def _begin(self, load: _Load) -> None:
        command = [sys.executable, "-m", "headrace", "doris", "run", str(load.file)]
        load.process = subprocess.Popen(  # noqa: S603 - our own program, no shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        load.began_at, load.state = time.monotonic(), State.RUNNING
        load.starts += 1
        assert load.process.stderr is not None
        threading.Thread(target=self._listen, args=(load, load.process.stderr), daemon=True).start()

    def _listen(self, load: _Load, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._lock:
                    load.lines.append(line.rstrip())
                self._told(f"{load.config.name}: {line.rstrip()}")

    @staticmethod
    def _end(load: _Load) -> None:
        if load.process is None:
            load.state = State.STOPPED if not load.is_wanted else load.state
        elif load.process.poll() is None:
            load.state = State.STOPPING
            load.process.send_signal(signal.SIGTERM)


def _wait_or_kill(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()  # what is under way is settled by the next start
        process.wait()
