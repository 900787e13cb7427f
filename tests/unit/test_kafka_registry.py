"""What is asked of a registry before anything is registered, by the words of Confluent's API.

Its server is on no package registry; the one of the tests (tests/conformance/test_kafka_avro.py) answers this question in words of its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from headrace.errors import DataError
from headrace.sinks.kafka_registry import Registry, RegistryConfig

_COMPATIBILITY = "/compatibility/subjects/{}/versions/latest?verbose=true"
_NOT_FOUND = (404, {"error_code": 40401, "message": "Subject not found."})


class Answers(BaseHTTPRequestHandler):
    """Answers by path, and remembers what was asked."""

    of_path: ClassVar[dict[str, tuple[int, dict[str, Any]]]] = {
        "/subjects/new": _NOT_FOUND,
        _COMPATIBILITY.format("new"): _NOT_FOUND,
        "/subjects/there": (200, {"subject": "there", "version": 1, "id": 1, "schema": "{}"}),
        "/subjects/wider": (404, {"error_code": 40403, "message": "Schema not found"}),
        _COMPATIBILITY.format("wider"): (200, {"is_compatible": True}),
        "/subjects/odd": (422, {"error_code": 42201, "message": "Invalid schema"}),
        "/subjects/other": (404, {"error_code": 40403, "message": "Schema not found"}),
        _COMPATIBILITY.format("other"): (200, {"is_compatible": False, "messages": ["reader type: LONG"]}),
    }
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        assert json.loads(self.rfile.read(int(self.headers["Content-Length"]))) == {"schema": "{}"}
        self.asked.append(self.path)
        status, answer = self.of_path[self.path]
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        registry = Registry(RegistryConfig(url=f"http://127.0.0.1:{server.server_port}"))
        yield registry
        registry.close()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("subject", ["new", "there", "wider"])
def test_what_would_be_taken_is_not_told(subject: str, registry: Registry) -> None:
    registry.rehearse(subject, "{}")


def test_what_would_be_refused_is_told_and_nothing_is_registered(registry: Registry) -> None:
    with pytest.raises(DataError, match=r"would refuse the schema of subject other: .*reader type: LONG"):
        registry.rehearse("other", "{}")
    with pytest.raises(DataError, match=r"subject odd \(422\): .*Invalid schema"):
        registry.rehearse("odd", "{}")
    assert not any(path.endswith("/versions") for path in Answers.asked)
