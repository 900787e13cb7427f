"""One server: the API on HTTP, and the reconciler in a thread beside it."""

from __future__ import annotations

import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from headrace.control.api.app import application
from headrace.control.api.plane import Plane
from headrace.control.tables import ControlDatabase
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate and key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, how, and how many requests a second each address may make."""

    host: str
    port: int
    tls: Tls | None
    per_s: float


def serve_control(database: ControlDatabase, directory: Path, secrets: Path, address: Address) -> None:
    """Serves until the process is told to end; pipelines go on. ConfigError when the address cannot be had."""
    listening = _listen(address)
    url = f"{'https' if address.tls else 'http'}://{address.host}:{listening.getsockname()[1]}"
    plane = Plane.of(database, directory, secrets, f"{socket.gethostname()} {url}")
    plane.places.create()
    plane.operations.open()
    stop = threading.Event()
    working = [
        threading.Thread(target=part.run, args=(stop,), name=type(part).__name__, daemon=True)
        for part in (plane.reconciler, plane.schedules, plane.watch, plane.courier)
    ]
    for thread in working:
        thread.start()
    _greet(plane, url)
    config = uvicorn.Config(
        application(plane, address.per_s),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=address.tls.certificate if address.tls else None,
        ssl_keyfile=address.tls.key if address.tls else None,
    )
    try:
        uvicorn.Server(config).run([listening])
    finally:
        stop.set()
        for thread in working:
            thread.join()
        plane.operations.close()
        listening.close()


def _listen(address: Address) -> socket.socket:
    try:
        return socket.create_server((address.host, address.port))
    except OSError as error:
        raise ConfigError(
            f"{address.host}:{address.port} cannot be had: {error.strerror or error}",
            fix="name another port, or an address of this machine",
        ) from error


def _greet(plane: Plane, url: str) -> None:
    told = [f"headrace serves {url}/api/v1, and the console at {url}/"]
    if not plane.people.all():
        told.append(
            "headrace: nobody can log in yet: `headrace user add NAME --role admin`, with the same --dir and --store"
        )
    sys.stderr.write("\n".join(told) + "\n")
    sys.stderr.flush()
