"""A Watermark Server as threads of another process: of a run that names no server, and of simulations."""

from __future__ import annotations

import socket
import threading
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from headrace.guarded_http import listening
from headrace.watermark.api import WatermarkApi
from headrace.watermark.server import WatermarkServer
from headrace.watermark.store import WatermarkStore


class ServingThread:
    """Serves an application on HTTP until it is closed."""

    def __init__(self, app: ASGIApp, *, lifespan: Literal["on", "off"]) -> None:
        config = uvicorn.Config(app, lifespan=lifespan, log_level="warning", access_log=False, server_header=False)
        self._server = uvicorn.Server(config)
        self._listening: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> str:
        """Its URL; port 0 is any that is free. ConfigError when the address cannot be had."""
        self._listening = listening(host, port)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listening],), name="watermarks", daemon=True
        )
        self._thread.start()
        return f"http://{host}:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        """Idempotent."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        if self._listening is not None:
            self._listening.close()


class EmbeddedServer:
    """A Watermark Server over a store of its own."""

    def __init__(self, store: str, token: str) -> None:
        self._store = WatermarkStore(store)
        self._server = WatermarkServer(self._store)
        self._serving = ServingThread(WatermarkApi(self._server, token).app(), lifespan="on")

    def start(self, host: str, port: int) -> str:
        """Goes on from what the store has; its URL. See `ServingThread.start`."""
        self._server.open()
        return self._serving.start(host, port)

    def close(self) -> None:
        """Idempotent."""
        self._serving.close()
        self._store.close()
