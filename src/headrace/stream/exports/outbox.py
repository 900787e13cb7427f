"""What is posted to an HTTP server while a run goes on, by a thread of its own: the run waits for no answer.

What cannot be posted waits, `_MOST` at most: then the oldest goes, for figures are worth less the older they are. What a server
refuses goes at once. Both are said, once until it works again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import urllib3

from headrace.errors import DataError, Finding, HeadraceError, RetryableError
from headrace.stream.exports.base import Tell

_MOST = 1_000
_TIMEOUT_S = 10.0
_LONGEST_PAUSE_S = 30.0
_END_S = 5.0
_AGAIN = {408, 425, 429}
_SHOWN = 200


class Poster:
    """Posts bodies to one URL."""

    def __init__(self, url: str, headers: Mapping[str, str], ca: Path | None) -> None:
        # Opened with the first request: the file of authorities is read then.
        self._url = url
        self._headers = dict(headers)
        self._ca = ca
        self._pool: urllib3.PoolManager | None = None

    def __str__(self) -> str:
        """Without what may be secret in its query."""
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    def post(self, body: bytes) -> None:
        """RetryableError when the server is away or busy, DataError when it refuses the body."""
        status, text = self._asked("POST", body)
        if status < 300:
            return
        message = f"{self} answers {status}: {text}"
        if status in _AGAIN or status >= 500:
            raise RetryableError(message, fix="see what is wrong with it")
        raise DataError(message, fix="see the server's text, and correct the address, the token or what it may take")

    def check(self) -> Iterator[Finding]:
        """Whether there is somebody who would take something. Nothing is posted: it is only asked whether the address is one."""
        try:
            status, text = self._asked("GET", None)
        except RetryableError as error:
            yield Finding(error.message, error.fix, stops=False)
            return
        if status in {401, 403, 404}:
            yield Finding(
                f"{self} answers {status}: {text}", "correct the address, or the token that is shown", stops=False
            )

    def _asked(self, method: str, body: bytes | None) -> tuple[int, str]:
        try:
            if self._pool is None:
                ca = str(self._ca) if self._ca is not None else None
                self._pool = urllib3.PoolManager(retries=False, timeout=_TIMEOUT_S, ca_certs=ca)
            answer = self._pool.request(method, self._url, body=body, headers=self._headers, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RetryableError(f"{self} does not answer: {error}", fix="start it, or correct the address") from error
        return answer.status, answer.data.decode(errors="replace")[:_SHOWN].strip()


class Outbox:
    """Bodies on their way to a poster."""

    def __init__(self, name: str, poster: Poster, tell: Tell) -> None:
        """`name`: of the option, for what is said."""
        self._name = name
        self._poster = poster
        self._tell = tell
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._over_at_s: float | None = None
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, body: bytes) -> None:
        with self._changed:
            self._waiting.append(body)
            is_lost = len(self._waiting) > _MOST
            if is_lost:
                self._waiting.popleft()
            self._changed.notify()
        if is_lost:
            self._say("more waits than is kept: what is oldest is lost")

    def close(self) -> None:
        """Posts what waits, for some seconds at most."""
        with self._changed:
            self._over_at_s = time.monotonic() + _END_S
            self._changed.notify()
        self._thread.join(_END_S + _TIMEOUT_S)

    def _run(self) -> None:
        pause_s = 1.0
        while (body := self._next()) is not None:
            try:
                self._poster.post(body)
                self._problem, pause_s = "", 1.0
            except RetryableError as error:
                self._say(f"{error.message}; it is tried again")
                with self._changed:
                    self._waiting.appendleft(body)
                    self._changed.wait_for(lambda: self._over_at_s is not None, pause_s)
                    if self._over_at_s is not None:
                        # One more attempt each second, until the time is over.
                        self._changed.wait(min(1.0, max(0.0, self._over_at_s - time.monotonic())))
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            except HeadraceError as error:
                self._say(f"{error.message}; {error.fix}")

    def _next(self) -> bytes | None:
        """What is to be posted; None when there is nothing any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over_at_s is not None)
            if not self._waiting:
                return None
            if self._over_at_s is not None and time.monotonic() >= self._over_at_s:
                self._say(f"{len(self._waiting)} messages could not be told before the end")
                return None
            return self._waiting.popleft()

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._tell(f"{self._name}: {problem}")
