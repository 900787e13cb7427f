"""Who is expected in a stage, asked where the list is kept: a file, a naming service, DNS."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import urllib3

from headrace.errors import RetryableError
from headrace.watermark.topology import Expected

_TIMEOUT_S = 10.0
_PIECE_BYTES = 1 << 16
_RETRY = urllib3.Retry(3, connect=0, read=0)
"""Redirects are followed; who does not answer is asked again at the next time."""


class Asking:
    """One question for a list after the other, each in a thread of its own: however slow the place is, nobody waits for it.

    A place that has not answered is not asked again, so threads do not heap up; its answer counts whenever it comes.
    """

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._open: Future[list[str]] | None = None
        self._since_s = 0.0

    def ask(self, now_s: float) -> None:
        """Asks, unless the question before is still open."""
        if self._open is not None:
            return
        self._open, self._since_s = Future(), now_s
        if self._expected.names is not None:
            self._run(self._open)
        else:
            # Not an executor's: a process that ends does not wait for it.
            threading.Thread(target=self._run, args=(self._open,), name="list of members", daemon=True).start()

    def answer(self, now_s: float) -> list[str] | None:
        """The names, once when they have come; None when nothing is new. RetryableError when they cannot be had, or take too long."""
        if self._open is None:
            return None
        if self._open.done():
            answered, self._open = self._open, None
            return answered.result()
        if now_s - self._since_s > _TIMEOUT_S:
            raise RetryableError(
                f"{place(self._expected)} has not answered for {now_s - self._since_s:.0f} s; who was expected before still is",
                fix="look at the place where the list is kept",
            )
        return None

    def _run(self, answer: Future[list[str]]) -> None:
        try:
            answer.set_result(expected_names(self._expected))
        except Exception as error:  # whatever it is, who takes the answer gets it
            answer.set_exception(error)


def place(expected: Expected) -> str:
    """Where a list is kept, for people."""
    return str(expected.file or expected.url or expected.dns or "`names`")


def expected_names(expected: Expected) -> list[str]:
    """The names that a list has now. RetryableError when it cannot be had, or is empty: an empty list would let every window close."""
    if expected.names is not None:
        found = expected.names
    elif expected.file is not None:
        found = _of_file(expected.file)
    elif expected.url is not None:
        found = _of_service(expected.url)
    else:
        assert expected.dns is not None
        found = _of_dns(expected.dns)
    if not found:
        raise RetryableError(
            f"{place(expected)} lists nobody; who was expected before still is",
            fix="look at the list: an empty one would let windows close without any data",
        )
    return sorted(set(found))


def _of_file(path: Path) -> list[str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RetryableError(f"cannot read the list of members {path}: {error}", fix="bring the file back") from error
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def _of_service(url: str) -> list[str]:
    try:
        status, body = _fetched(url, time.monotonic() + _TIMEOUT_S)
        names = json.loads(body) if status == 200 else None
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise RetryableError(f"the naming service {url} does not answer: {error}", fix="look at the service") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RetryableError(
            f"{url} answers {status}, and no JSON list of names",
            fix="look at the service, or correct `url` of the stage",
        )
    return names


def _fetched(url: str, until_s: float) -> tuple[int, bytes]:
    """Status and body of an answer. Read in pieces: urllib3's limit is for each read of the socket, and a service may send a byte now and then."""
    answer = urllib3.request("GET", url, timeout=_TIMEOUT_S, retries=_RETRY, preload_content=False)
    try:
        body = bytearray()
        while piece := answer.read1(_PIECE_BYTES):
            body += piece
            if time.monotonic() > until_s:
                raise urllib3.exceptions.TimeoutError(f"its answer is not whole after {_TIMEOUT_S:.0f} s")
        return answer.status, bytes(body)
    finally:
        answer.close()


def _of_dns(name: str) -> list[str]:
    try:
        return [str(address[4][0]) for address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:  # UnicodeError: no name at all, a..b
        raise RetryableError(f"DNS has no addresses of {name}: {error}", fix="look at the name and at DNS") from error
