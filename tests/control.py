"""A control plane as users have it: `headrace serve` in a process of its own, and a client of its API."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import urllib3

from headrace.control.journal import Actor
from headrace.control.people import People, Role
from headrace.control.runs import Lease, Runs
from headrace.control.tables import ControlDatabase
from tests import patience

RECORDED = Path(__file__).parents[1] / "examples" / "shop" / "binlog"
PASSWORD = "correct horse battery staple"
TEST = Actor("test")


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class Client:
    """Asks with a token, or without anything."""

    def __init__(self, url: str, token: str = "", pool: urllib3.PoolManager | None = None) -> None:
        self.url = url
        self.token = token
        self._pool = pool or urllib3.PoolManager(retries=False, timeout=patience.HANG_S)

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        given = dict(headers or {}) | ({"authorization": f"Bearer {self.token}"} if self.token else {})
        if body is not None:
            given["content-type"] = "application/json"
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        answer = self._pool.request(method, f"{self.url}/api/v1{path}", body=content, headers=given)
        text = answer.data.decode()
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return Answer(answer.status, json.loads(text) if is_json and text else text, answer.headers)

    def get(self, path: str) -> Any:
        """What is there; it must be."""
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.body

    def fetch(self, path: str) -> bytes:
        """The bytes of what is there; it must be."""
        answer = self._pool.request(
            "GET", f"{self.url}/api/v1{path}", headers={"authorization": f"Bearer {self.token}"}
        )
        assert answer.status == 200, answer.data
        return answer.data

    def do(self, method: str, path: str, body: Any = None) -> Any:
        """Something that must be done."""
        answer = self.ask(method, path, body)
        assert answer.status < 300, answer
        return answer.body

    def state(self, name: str) -> str:
        found: str = self.get(f"/pipelines/{name}")["state"]["name"]
        return found

    def leads(self) -> bool:
        """The server that it asks is the one that reconciles; on a slow machine that may change at any time."""
        leader = self.get("/leader")
        return leader is not None and leader["here"]


class ControlServer:
    """One `headrace serve`; several may share a directory and a store."""

    def __init__(
        self, directory: Path, store: str | None = None, *, rate: int = 10_000, tls: tuple[Path, Path] | None = None
    ) -> None:
        """`tls`: certificate and key; the server then speaks HTTPS."""
        self.directory = directory
        self._store = store
        self._rate = rate
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory.parent / f"serve-{id(self)}.log"
        self.url = ""

    def start(self, env: Mapping[str, str] | None = None) -> None:
        """Starts it, and waits until it says where it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "headrace", "serve", "--dir", str(self.directory), "--port", "0"]
        command += ["--rate", str(self._rate), *(["--store", self._store] if self._store else [])]
        if self._tls is not None:
            command += ["--tls-cert", str(self._tls[0]), "--tls-key", str(self._tls[1])]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdout=log, stderr=log)
        wait_until(lambda: b"/api/v1" in self._log.read_bytes() or self._process.poll() is not None)  # type: ignore[union-attr]
        told = self._log.read_text()
        assert "headrace serves " in told, told
        self.url = told.split("headrace serves ")[1].split("/api/v1")[0]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(patience.HANG_S) in {0, -signal.SIGTERM}, self._log.read_text()

    def wait_for_death(self) -> None:
        assert self._process is not None
        assert self._process.wait(patience.HANG_S) == -signal.SIGKILL

    def client(self, role: Role = "admin") -> Client:
        """Of a user with that role, made in the store."""
        with self._people() as people:
            if role not in {user.name for user in people.all()}:
                people.add(role, role, PASSWORD, TEST)
        return Client(self.url, self.token_of(role, role), self.pool())

    def token_of(self, user: str, role: Role = "viewer") -> str:
        with self._people() as people:
            return people.add_token(user, "test", role, 1, TEST)[1]

    @contextmanager
    def _people(self) -> Iterator[People]:
        with closing(ControlDatabase(self._store or f"sqlite:///{self.directory / 'control.db'}")) as database:
            database.open()
            yield People(database)

    def pool(self) -> urllib3.PoolManager:
        """Connections of those who trust its certificate, when it has one."""
        trusting = self.trusting() if self._tls is not None else None
        return urllib3.PoolManager(retries=False, timeout=patience.HANG_S, ssl_context=trusting)

    def trusting(self) -> ssl.SSLContext:
        assert self._tls is not None
        return ssl.create_default_context(cafile=self._tls[0])

    def printed(self) -> str:
        return self._log.read_text()

    def drivers(self) -> list[psutil.Process]:
        """The processes of pipelines of this directory, however they were begun; a child that is not yet another program is none."""
        found = {process.pid: process for process in self._launched() if "java" not in process.info["cmdline"][0]}
        return [process for process in found.values() if process.info["ppid"] not in found]

    def _launched(self) -> list[psutil.Process]:
        """The same, with what spark-submit keeps beside them."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "ppid"])
            if "launched" in (words := process.info["cmdline"] or []) and str(self.directory) in " ".join(words)
        ]

    def end_all(self) -> None:
        """SIGKILL to the server and to all processes of its pipelines."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        left = []
        for driver in self._launched():
            with suppress(psutil.NoSuchProcess):
                left += [driver, *driver.children(recursive=True)]
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=patience.HANG_S)


@contextmanager
def serving(directory: Path, store: str | None = None, **options: Any) -> Iterator[ControlServer]:
    """A started server; it and all that it began are ended on leaving."""
    server = ControlServer(directory, store, **options)
    try:
        server.start()
        yield server
    finally:
        server.end_all()


def led(runs: Runs, holder: str) -> Lease:
    """The lease of who leads now."""
    lease = runs.lead(holder, "here", 10)
    assert lease is not None
    return lease


def wait_until(happened: Callable[[], object]) -> None:
    """Looks ten times a second: looking is a request, or a walk over all processes."""
    patience.wait_until(happened, every_s=0.1)


def shop(**changes: str) -> str:
    """A flow file of the recorded shop; some of its lines may be others."""
    lines = {
        "source": f'{{type: mysql, name: db1, files: "{RECORDED}/binlog.0000*", tables: ["shop.*"]}}',
        "log": "{type: directory, path: ./log}",
        "state": "./state",
        "epoch": "2s",
        "flows": '[{name: mart, from: "mysql.db1.shop.*", to: {type: database, url: "sqlite:///./mart.db"}}]',
    }
    return "\n".join(f"{name}: {value}" for name, value in {**lines, **changes}.items())
