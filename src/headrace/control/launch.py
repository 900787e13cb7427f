"""A launch: one process of a pipeline, as it and the server see each other through the files of a directory.

::

    DIR/pipelines/<pipeline>/r<number>.yaml     a revision of the flow file; paths in it are relative to here
    DIR/pipelines/<pipeline>/launches/<id>/
        lock      held (flock) by the process as long as it lives
        claim     {"host": …, "pid": …}, or {} when the server has called the launch off: made once, by whoever is first
        stop      the server wants it to stop
        end       {"code": …, "why": …, "fix": …}: how it ended, when it could still say so
        figures   what has passed each stage and table, about once a second (stream/told.py)
        summary   the same without tables: what overviews of many pipelines read
        log       what it and its children printed; they append to it
        log.1     what it had when it grew beyond 16 MB

**Crash story.** The server notes a launch in the store, makes its directory and begins a process; that takes the lock, then makes the claim,
and only then does anything. Whoever dies in between:

- *Server after the note*: the next one finds a launch without a claim. It makes the claim itself, which calls the launch off, and begins
  another. A process that comes too late (it waited in a cluster's queue, or its server was asleep) cannot make the claim, and ends. So of one
  launch there is never a process that nobody knows of, and of a pipeline never two.
- *Server later*: the process does not notice. The claim says who it is, the lock that it lives.
- *Process*: the kernel gives the lock back, however it died. With an `end` it says why, without it was ended from outside.

The lock is the process's own, so a process of the same number that came later is never taken for it. Directory and locks work between
machines where the file system does (NFS 4, CephFS), as the state of a run on a cluster needs anyway.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import CorruptError, HeadraceError, storage_error
from headrace.files import create_file, make_directories, replace_file

_KEEP = 5
_LOG_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended. `code` is None when it could not say."""

    code: int | None
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the files say of a launch: not begun (neither), alive at a place, or ended."""

    host: str = ""
    pid: int | None = None
    end: End | None = None

    @property
    def is_alive(self) -> bool:
        return self.pid is not None and self.end is None


class Launch:
    """The files of one launch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self) -> None:
        """By the server, before it begins the process. Of earlier launches only the newest are kept."""
        make_directories(self.directory)
        replace_file(self.directory / "lock", b"")
        others = sorted(self.directory.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in others[_KEEP:]:
            shutil.rmtree(old, ignore_errors=True)

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def last_lines(self, size: int) -> list[str]:
        """The end of what was printed, about so many bytes; empty when nothing is there any more."""
        content = b"".join(_tail(path, size) for path in (self._older_log, self.log))
        return content[-size:].decode("utf-8", "replace").splitlines()

    def bound_log(self, most_bytes: int = _LOG_BYTES) -> None:
        """By the process, now and then. Its children have the same file open, so it stays the same and is emptied: what they print between the copy
        and that is lost, which are lines for people."""
        with suppress(OSError):  # a full disk is no reason to end, and the next call tries again
            if self.log.stat().st_size > most_bytes:
                aside = self.directory / "log.new"
                shutil.copyfile(self.log, aside)
                aside.replace(self._older_log)
                os.truncate(self.log, 0)

    @property
    def _older_log(self) -> Path:
        return self.directory / "log.1"

    def look(self) -> Seen:
        """What is to be seen now. StorageError when that cannot be said."""
        try:
            return self._look()
        except OSError as error:
            raise storage_error("look at", self.directory, error) from error

    def _look(self) -> Seen:
        if not self._claim.exists():
            return Seen()
        claim = _read(self._claim)
        if not claim:
            return Seen(end=End(None, "it was called off before it began"))
        # The end is read after the lock was found free: a process writes it before it gives the lock back.
        if self._is_locked():
            return Seen(claim["host"], claim["pid"])
        said = _read(self.directory / "end")
        end = End(**said) if said else End(None, f"process {claim['pid']} on {claim['host']} was ended from outside")
        return Seen(claim["host"], claim["pid"], end)

    def call_off(self) -> bool:
        """Sees to it that the process never begins; False when it has begun already."""
        make_directories(self.directory)
        return create_file(self._claim, b"{}")

    def request_stop(self) -> None:
        """Idempotent."""
        if not self.stop_requested():
            create_file(self.directory / "stop", b"")

    def stop_requested(self) -> bool:
        return (self.directory / "stop").exists()

    def kill(self) -> bool:
        """Ends the process without asking it; False when it lives on another machine, or not at all."""
        seen = self.look()
        if seen.pid is None or seen.host != socket.gethostname():
            return False
        # What the handle means was alive before, and the lock says that it is: the number has not gone to another process between.
        try:
            handle = os.pidfd_open(seen.pid)
        except ProcessLookupError:
            return False
        try:
            if self.look().is_alive:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
        return False

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """By the process, around all that it does: whether it may do it. How it ends is left for the server."""
        try:
            with (self.directory / "lock").open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                who = {"host": socket.gethostname(), "pid": os.getpid()}
                if not create_file(self._claim, json.dumps(who).encode()):
                    yield False
                    return
                with self._told_end():
                    yield True
        except FileNotFoundError as error:
            raise storage_error("open", self.directory / "lock", error) from error

    def tell(self, figures: dict[str, Any], summary: dict[str, Any]) -> None:
        """By the process, now and then."""
        # Not synced, and no reason to fail: losing it costs nothing.
        with suppress(OSError):
            for name, told in (("figures", figures), ("summary", summary)):
                aside = self.directory / f"{name}.new"
                aside.write_text(json.dumps(told))
                aside.replace(self.directory / name)

    def figures(self) -> dict[str, Any]:
        """The newest that were told; empty before the first."""
        return _read(self.directory / "figures")

    def summary(self) -> dict[str, Any]:
        """The newest that was told; empty before the first."""
        return _read(self.directory / "summary")

    @property
    def _claim(self) -> Path:
        return self.directory / "claim"

    def _is_locked(self) -> bool:
        with (self.directory / "lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def _told_end(self) -> Iterator[None]:
        try:
            yield
        except HeadraceError as error:
            self._end(End(error.exit_code, error.message, error.fix))
            raise
        except BaseException as error:
            self._end(End(1, f"{type(error).__name__}: {error}", "see its log"))
            raise
        self._end(End(0, "it has stopped"))

    def _end(self, end: End) -> None:
        replace_file(self.directory / "end", json.dumps(asdict(end)).encode())


def _tail(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise storage_error("read", path, error) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise storage_error("read", path, error) from error
    except ValueError as error:
        raise CorruptError(
            f"{path} is not what was written: {error}", fix="remove the directory of this launch"
        ) from error
    return found
