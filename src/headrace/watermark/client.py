"""What reports progress to Watermark Servers, and asks them how far everything is.

In a job of any kind it is three lines::

    stage = WatermarkClient(["http://wm1:9310", "http://wm2:9310"]).stage("orders", "web-logs")
    stage.passed({"web1": newest_us, "web2": other_us})      # after the rows are durable, not when they were read
    if stage.low().input_us >= window_end_us: ...

What was passed is gathered, of each member the largest, and sent once a second to all servers: each of them reckons by itself, so any of
them may go away. When none answers, watermarks stand, and what was passed is sent when one is back.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import urllib3

from headrace.errors import ConfigError, HeadraceError, RetryableError
from headrace.watermark.wire import MEDIA_TYPE, MOST_ROWS, NEVER, Watermarks, decode_answer, encode_report

REPORT_EVERY_S = 1.0
_TIMEOUT_S = 5.0
_LONGEST_WAIT_S = 30.0
T = TypeVar("T")
Json = dict[str, Any]


@dataclass(slots=True)
class _Untold:
    """Of one server: what it has not been told yet, its ids of members, and which life of it knows what it was told."""

    members: set[str] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    life: int = -1


class WatermarkClient:
    """Watermark Servers over one store. `token` when they ask for one."""

    def __init__(self, servers: Sequence[str], token: str | None = None) -> None:
        if not servers:
            raise ConfigError("no Watermark Server is named", fix="name at least one, http://HOST:9310")
        self._servers = [Server(server, token) for server in servers]

    def register(self, topology: str, stages: Sequence[Mapping[str, object]]) -> None:
        """Registers an application (`headrace.watermark.topology`), or its changed form. RetryableError when no server answers."""
        _ask_any(
            self._servers, lambda server: server.tell("PUT", f"/v1/topologies/{topology}", {"stages": list(stages)})
        )

    def stage(self, topology: str, name: str, *, report_every_s: float = REPORT_EVERY_S) -> StageClient:
        """A stage to report for. Close it when its work ends."""
        return StageClient(self._servers, topology, name, report_every_s)

    def low(self, topology: str, stage: str) -> Watermarks:
        """What a stage's watermarks are. RetryableError when no server answers."""
        return _ask_any(self._servers, lambda server: _marks(server.ask(f"{_path(topology, stage)}/watermark")))

    def complete(self, topology: str) -> tuple[int | None, list[Json]]:
        """The global low watermark, None where there is none yet, and the members that it has not waited for: `stage`, `name`, `us`,
        `is_abandoned`. RetryableError when no server answers."""
        told = _ask_any(self._servers, lambda server: server.ask(f"/v1/topologies/{topology}/complete"))
        return told["global_us"], told["lacking"]

    def wait(self, topology: str, stage: str, until_us: int, timeout_s: float) -> Watermarks:
        """The watermarks when the input one has got to a time, or when the time is out."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            wait_s = min(left_s, _LONGEST_WAIT_S)
            path = f"{_path(topology, stage)}/watermark?until={until_us}&timeout_s={wait_s}"
            marks = _ask_any(self._servers, partial(_waited, path=path))
            if marks.input_us >= until_us or time.monotonic() >= deadline_s:
                return marks

    def close(self) -> None:
        """Idempotent."""
        for server in self._servers:
            server.close()


class Server:
    """One Watermark Server, over connections that stay open. RetryableError when it is away, ConfigError when it refuses."""

    def __init__(self, url: str, token: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"'{url}' is no URL of a Watermark Server", fix="write http://HOST:9310")
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(maxsize=4)

    def ask(self, path: str, timeout_s: float = _TIMEOUT_S) -> Json:
        return self._json(self._request("GET", path, timeout_s=timeout_s))

    def tell(self, method: str, path: str, body: Json) -> Json:
        return self._json(self._request(method, path, json.dumps(body).encode(), "application/json"))

    def report(self, path: str, body: bytes) -> bytes:
        return self._request("POST", path, body, MEDIA_TYPE)

    def close(self) -> None:
        """Idempotent."""
        self._pool.clear()

    def _request(
        self, method: str, path: str, body: bytes | None = None, media: str = "", timeout_s: float = _TIMEOUT_S
    ) -> bytes:
        headers = self._headers | ({"Content-Type": media} if media else {})
        try:
            answer = self._pool.request(
                method,
                f"{self._url}{path}",
                body=body,
                headers=headers,
                timeout=timeout_s,
                retries=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RetryableError(
                f"the Watermark Server {self._url} does not answer: {error}",
                fix="start it (`headrace watermark serve`); watermarks stand until it is there",
                retry_after_s=1.0,
            ) from error
        if answer.status == 200:
            return answer.data
        raise self._failure(answer)

    def _failure(self, answer: urllib3.BaseHTTPResponse) -> HeadraceError:
        try:
            told = answer.json()
            message, fix = str(told["error"]), str(told["fix"])
        except (ValueError, KeyError, TypeError):
            message, fix = f"it answers {answer.status}", "look at the server's address and log"
        if answer.status >= 500:
            return RetryableError(f"the Watermark Server {self._url} cannot: {message}", fix=fix, retry_after_s=1.0)
        return ConfigError(f"the Watermark Server {self._url} refuses: {message}", fix=fix)

    def _json(self, body: bytes) -> Json:
        try:
            told = json.loads(body)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise ConfigError(f"what answers at {self._url} is no Watermark Server", fix="correct the address")
        return told


class StageClient:
    """Reports for members of one stage, in a thread of its own."""

    def __init__(
        self,
        servers: Sequence[Server],
        topology: str,
        stage: str,
        report_every_s: float,
    ) -> None:
        self._servers = servers
        self._path = _path(topology, stage)
        self._every_s = report_every_s
        self._lock = threading.Lock()
        self._progress_us: dict[str, int] = {}
        self._untold = [_Untold() for _ in servers]
        self._marks = Watermarks(NEVER, NEVER, NEVER)
        self._trouble: HeadraceError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watermark {topology}/{stage}", daemon=True)
        self._thread.start()

    def passed(self, progress_us: Mapping[str, int], rows: Mapping[str, int] | None = None) -> None:
        """No row with a time below each member's (µs since 1970) will come from it, and all of its rows below are durable downstream.

        `rows`: how many rows each member has sent since the last call; the tolerated share of volume is reckoned by them.
        """
        with self._lock:
            for member, time_us in progress_us.items():
                self._progress_us[member] = max(time_us, self._progress_us.get(member, NEVER))
            for untold in self._untold:
                untold.members.update(progress_us)
                _add(untold.rows, rows or {})

    def low(self) -> Watermarks:
        """The largest watermarks that a server has told; NEVER before the first answer. Raises what a server refused."""
        if self._trouble is not None and not isinstance(self._trouble, RetryableError):
            raise self._trouble
        return self._marks

    def trouble(self) -> str:
        """Why the last report reached no server; empty when it did."""
        return "" if self._trouble is None else str(self._trouble)

    def report(self) -> None:
        """Sends what was passed now, to all servers. RetryableError when none of them answers; it is sent again with the next report."""
        failed: HeadraceError | None = None
        reached = False
        for server, untold in zip(self._servers, self._untold, strict=True):
            try:
                self._report_to(server, untold)
                reached = True
            except HeadraceError as error:
                failed = error
        self._trouble = None if reached else failed
        if not reached and failed is not None:
            raise failed

    def leave(self, members: Sequence[str]) -> None:
        """Nothing will come from these members any more: they hold the watermark no longer."""
        self.report()
        body = {"leave": list(members)}
        _ask_any(self._servers, lambda server: server.tell("POST", f"{self._path}/members", body))

    def close(self) -> None:
        """Sends what is left, where a server is there. Idempotent."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        self._try_report()  # at once: whoever has passed nothing yet learns the watermarks
        while not self._stop.wait(self._every_s):
            self._try_report()
        self._try_report()

    def _try_report(self) -> None:
        try:
            self.report()
        except HeadraceError as error:
            self._trouble = error

    def _report_to(self, server: Server, untold: _Untold) -> None:
        with self._lock:
            members, untold.members = untold.members, set()
            rows, untold.rows = untold.rows, {}
            progress_us = {member: self._progress_us[member] for member in members}
        try:
            marks, life = self._send(server, untold, progress_us, rows)
        except HeadraceError:
            untold.ids.clear()  # the server may be another one by now
            with self._lock:
                untold.members |= members
                _add(untold.rows, rows)
            raise
        with self._lock:
            # Who is not expected yet may be soon, when the list of members is looked at again.
            untold.members |= members - untold.ids.keys()
            if life != untold.life:
                untold.life = life
                untold.members |= self._progress_us.keys() - members
        self._take(marks)

    def _send(
        self, server: Server, untold: _Untold, progress_us: Mapping[str, int], rows: Mapping[str, int]
    ) -> tuple[Watermarks, int]:
        if new := [member for member in progress_us if member not in untold.ids]:
            untold.ids.update(server.tell("POST", f"{self._path}/members", {"join": new})["ids"])
        known = [member for member in progress_us if member in untold.ids]
        body = encode_report(
            [untold.ids[member] for member in known],
            [progress_us[member] for member in known],
            [min(rows.get(member, 0), MOST_ROWS) for member in known],
        )
        return decode_answer(server.report(f"{self._path}/report", body))

    def _take(self, marks: Watermarks) -> None:
        known = self._marks
        self._marks = Watermarks(
            max(known.input_us, marks.input_us),
            max(known.output_us, marks.output_us),
            max(known.global_us, marks.global_us),
        )


def _ask_any(servers: Sequence[Server], ask: Callable[[Server], T]) -> T:
    """What the first server says that is there: they share a store."""
    failed: RetryableError | None = None
    for server in servers:
        try:
            return ask(server)
        except RetryableError as error:
            failed = error
    assert failed is not None
    raise failed


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for member, count in more.items():
        counts[member] = counts.get(member, 0) + count


def _path(topology: str, stage: str) -> str:
    return f"/v1/topologies/{topology}/stages/{stage}"


def _waited(server: Server, path: str) -> Watermarks:
    return _marks(server.ask(path, timeout_s=_TIMEOUT_S + _LONGEST_WAIT_S))


def _marks(told: Json) -> Watermarks:
    low = {name: NEVER if told[name] is None else int(told[name]) for name in ("input_us", "output_us", "global_us")}
    return Watermarks(**low)
