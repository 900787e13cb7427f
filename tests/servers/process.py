"""A server process of ours: its data in a temporary folder, its log in a file, ended by its own process id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

START_TIMEOUT_S = 300.0
"""A server in Java that finds its data after a kill takes minutes where much else runs."""
STOP_TIMEOUT_S = 60.0


class ServerError(Exception):
    """A server did not start or end as it should; the message carries the tail of its own log."""


class Server(ABC):
    """Starts on entering, ends and removes its data on leaving. `kill9` and `restart` keep data and port."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.host = "127.0.0.1"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    @property
    def data_path(self) -> Path:
        return self.directory / "data"

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix=f"headrace-{self.name}-"))
        self.port = free_port()
        try:
            self.install()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Starts the server and returns when it answers."""
        self._process = self.spawn(self.command())
        self.wait()

    def wait(self) -> None:
        """Returns when the server answers."""
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self._process is not None and self._process.poll() is not None:
                raise self.failure(f"ended with code {self._process.returncode} while starting")
            if time.monotonic() > give_up_at:
                raise self.failure(f"did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def stop(self) -> None:
        """An orderly end."""
        self._end(self.stop_signal)

    def kill9(self) -> None:
        """A crash: no farewell to clients, nothing flushed."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """An orderly end when it still runs, then a start on the same data and port."""
        self.stop()
        self.start()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.wait()
            raise self.failure(f"did not end within {STOP_TIMEOUT_S:.0f} s of {number.name}") from error
        finally:
            self._process = None

    def spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a program as the server's user with its output in the server's log."""
        user = self.user_of_process()
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                start_new_session=True,  # Ctrl-C in the terminal is for the tests; they end the server
            )

    def run(self, command: Sequence[str]) -> None:
        """Runs a program to its end; a failure carries its output."""
        process = self.spawn(command)
        if process.wait(START_TIMEOUT_S) != 0:
            raise self.failure(f"{Path(command[0]).name} ended with code {process.returncode}")

    def failure(self, what: str) -> ServerError:
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        return ServerError("\n".join([f"{self.name} on port {self.port} {what}; the end of its log:", *lines[-30:]]))

    stop_signal = signal.SIGTERM

    def user_of_process(self) -> str | None:
        """The user to run as; None means ours."""
        return None

    @abstractmethod
    def install(self) -> None:
        """Makes the data directory."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts the server in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """True when a client can log in and ask."""


def free_port(*taken: int, among: Sequence[int] = ()) -> int:
    """A port that nobody listens on and that is not in `taken`, from below the range that the kernel hands to outgoing connections.

    A port of that range could be taken by some client between our look and the server's start, or during a restart. `among`: the ports
    that a server can be given, when it does not take any.
    """
    first = 20000 + os.getpid() * 101 % 10000
    for port in among or [*range(first, 32000), *range(20000, first)]:
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError("no free port")
