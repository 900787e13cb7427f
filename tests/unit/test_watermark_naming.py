"""A naming service that is slow: ticks go on beside it, and it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import RetryableError
from headrace.watermark.naming import expected_names
from headrace.watermark.server import WatermarkServer
from headrace.watermark.store import WatermarkStore
from headrace.watermark.topology import Expected, Topology
from headrace.watermark.wire import NEVER
from tests.patience import wait_until

HTTP = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@contextmanager
def naming_service(answers: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers(self)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/hosts"
        finally:
            serving.shutdown()
            thread.join()


def lists(handler: BaseHTTPRequestHandler, names: list[str]) -> None:
    body = json.dumps(names).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_ticks_go_on_while_a_naming_service_is_slow(tmp_path: Path) -> None:
    asked, may_answer, now_s = [], threading.Event(), [1000.0]

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        asked.append(now_s[0])
        may_answer.wait()
        lists(handler, ["web1"])

    store = WatermarkStore(f"sqlite:///{tmp_path / 'store.db'}", lambda: now_s[0])
    with naming_service(slowly) as url, closing(store):
        server = WatermarkServer(store, lambda: now_s[0])
        server.open()
        stages = [{"name": "logs", "expected": {"url": url}}, {"name": "else"}]
        server.register(Topology.model_validate({"name": "shop", "stages": stages}))
        ids = np.array(list(server.join("shop", "else", ["one"]).values()), np.int64)
        server.tick()
        try:
            for tick in range(40):
                now_s[0] += 1
                server.report("shop", "else", ids, np.array([tick]), np.array([1]))
                server.tick()
                assert server.watermarks("shop", "else").output_us == tick
            wait_until(lambda: asked)
            assert len(asked) == 1, "a place that has not answered is not asked again"
            [logs] = [stage for stage in server.show("shop") if stage.name == "logs"]
            assert "has not answered for" in logs.trouble
            assert (logs.members, logs.watermarks.output_us) == (0, NEVER)
        finally:
            may_answer.set()
        wait_until(lambda: (server.tick(), server.known("shop", "logs", ["web1"]) != [None])[1])
        assert [stage.trouble for stage in server.show("shop")] == ["", ""]


def test_an_answer_that_never_ends_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.watermark.naming._TIMEOUT_S", 0.2)
    gone = threading.Event()

    def drips(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(HTTP.encode())
        try:
            while not gone.wait(0.01):
                handler.wfile.write(b" ")
                handler.wfile.flush()
        except OSError:
            pass

    with naming_service(drips) as url:
        try:
            with pytest.raises(RetryableError, match="its answer is not whole"):
                expected_names(Expected(url=url))
        finally:
            gone.set()


def test_a_redirect_is_followed_and_nonsense_is_told() -> None:
    def answers(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/moved":
            handler.send_response(302)
            handler.send_header("Location", "/hosts")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        elif handler.path == "/hosts":
            lists(handler, ["web2", "web1", "web2"])
        else:
            handler.send_error(404)

    with naming_service(answers) as url:
        assert expected_names(Expected(url=url.replace("hosts", "moved"))) == ["web1", "web2"]
        with pytest.raises(RetryableError, match="answers 404, and no JSON list"):
            expected_names(Expected(url=url.replace("hosts", "nothing")))


def test_the_addresses_of_a_name_are_the_members() -> None:
    assert "127.0.0.1" in expected_names(Expected(dns="localhost"))
