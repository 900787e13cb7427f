"""What stands before a search server in production: TLS and a login, here before one that has neither."""

from __future__ import annotations

import base64
import http.client
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.servers.install import find_program

USER, PASSWORD = "head race", "p@ss/word"


def certified(host: str, folder: Path) -> tuple[Path, Path]:
    """A certificate for a server at that address, signed by itself, and its key; both in `folder`."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=front", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = [find_program("openssl"), *new, "-addext", f"subjectAltName=IP:{host}", *files]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@contextmanager
def front(host: str, port: int, folder: Path) -> Iterator[int]:
    """The port of a front of that server; its certificate is `folder`/certificate.pem."""
    certificate, key = certified(host, folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer((host, 0), _handler(host, port)) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _handler(host: str, port: int) -> type[BaseHTTPRequestHandler]:
    login = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("authorization") != login:
                self._answer(401, b'{"error":"who are you?"}')
                return
            behind = http.client.HTTPConnection(host, port)
            kept = {"content-type": self.headers.get("content-type", "application/json")}
            behind.request(self.command, self.path, body, kept)
            answer = behind.getresponse()
            self._answer(answer.status, answer.read())
            behind.close()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    for method in ("DELETE", "GET", "HEAD", "POST", "PUT"):
        setattr(Handler, f"do_{method}", Handler._pass_on)
    return Handler
