"""One HTTP request on a connection of its own, whose body is held back until the server asks for it (`Expect: 100-continue`).

Doris wants that: a frontend answers a load with a redirect to a backend and never reads the body, and a backend that refuses a load, because
its label is taken for instance, says so before the body. The libraries that are usual for HTTP do not wait, and none of them may repeat a PUT
by itself. h11 knows the protocol's states, the sockets are ours.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import h11

from headrace.errors import RetryableError

_PIECE = 1 << 18
_MOST_ANSWER_BYTES = 4 << 20


class NoAnswerError(RetryableError):
    """The other side did not answer, or not with what Doris answers. What it has done is not known when the request was `sent`."""

    def __init__(self, message: str, *, fix: str, sent: bool) -> None:
        super().__init__(message, fix=fix)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Place:
    """A host's HTTP port."""

    host: str
    port: int
    tls: bool = False

    @classmethod
    def parse(cls, text: str, *, tls: bool = False) -> Self:
        """``host:port`` or a URL; ValueError when it is neither."""
        parts = urlsplit(text if "://" in text else f"//{text}")
        if not parts.hostname or not parts.port or parts.scheme not in ("", "http", "https"):
            raise ValueError(f"write host:port, not '{text}'")
        return cls(parts.hostname, parts.port, tls if not parts.scheme else parts.scheme == "https")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered; the body is cut behind 4 MiB."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Http:
    """How requests are made."""

    timeout_s: float
    """For each step: connecting, the answer to the headers, each piece of the body, the answer."""
    context: ssl.SSLContext | None

    def request(self, place: Place, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """NoAnswerError when there is none."""
        said = {"Host": str(place), "Content-Length": str(len(body)), **headers, "Connection": "close"}
        if method == "PUT":
            said["Expect"] = "100-continue"
        # Names of columns may have any sign; Doris reads headers as UTF-8.
        head = h11.Request(
            method=method, target=path, headers=[(name.encode(), value.encode()) for name, value in said.items()]
        )
        with closing(self._connected(place)) as connection:
            try:
                return _Exchange(connection).run(head, body)
            except (OSError, h11.RemoteProtocolError) as error:
                raise NoAnswerError(
                    f"{place} did not answer {method} {path}: {error}", fix="see its log", sent=True
                ) from error

    def _connected(self, place: Place) -> socket.socket:
        try:
            plain = socket.create_connection((place.host, place.port), self.timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not place.tls:
                return plain
            return (self.context or ssl.create_default_context()).wrap_socket(plain, server_hostname=place.host)
        except OSError as error:
            raise NoAnswerError(
                f"{place} cannot be reached: {error}", fix="start it, or correct its address", sent=False
            ) from error


class _Exchange:
    """A request and its answer on a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._protocol = h11.Connection(h11.CLIENT)

    def run(self, head: h11.Request, body: bytes) -> Answer:
        self._send(head)
        event = self._next()
        if isinstance(event, h11.InformationalResponse):
            self._send_body(body)
            event = self._next()
        while isinstance(event, h11.InformationalResponse):
            event = self._next()
        if not isinstance(event, h11.Response):
            raise h11.RemoteProtocolError("the connection was closed without an answer")
        headers = {bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in event.headers}
        return Answer(event.status_code, headers, self._rest())

    def _send_body(self, body: bytes) -> None:
        """Stops when the server has something to say: that it refuses."""
        view = memoryview(body)
        try:
            for start in range(0, len(view), _PIECE):
                self._send(h11.Data(data=bytes(view[start : start + _PIECE])))
                if select.select([self._socket], [], [], 0)[0]:
                    return
            self._send(h11.EndOfMessage())
        except (BrokenPipeError, ConnectionResetError):
            return  # perhaps it has answered before it closed

    def _send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        data = self._protocol.send(event)
        if data:
            self._socket.sendall(data)

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(self._socket.recv(1 << 16))
        return event

    def _rest(self) -> bytes:
        parts: list[bytes] = []
        while isinstance(event := self._next(), h11.Data):
            parts.append(bytes(event.data))
            if sum(map(len, parts)) > _MOST_ANSWER_BYTES:
                break
        return b"".join(parts)[:_MOST_ANSWER_BYTES]
