"""A real HTTP server that keeps what is posted to it, and answers what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass(frozen=True)
class Request:
    """What was posted."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What the server says to it."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Webhook:
    """``with Webhook() as server: server.url``. Requests that are answered with 2xx are `taken`."""

    def __init__(self, answer: Callable[[Request], Answer] = lambda request: Answer()) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.taken: list[Request] = []
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/hook"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Answers; at the same place as before when it was stopped."""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                owner.requests.append(request)
                answer = owner.answer(request)
                if 200 <= answer.status < 300:
                    owner.taken.append(request)
                self.send_response(answer.status)
                for name, value in (*answer.headers, ("Content-Length", str(len(answer.body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None: ...

        class HttpServer(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that has not waited for its answer."""

        self._server = HttpServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuses connections from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
