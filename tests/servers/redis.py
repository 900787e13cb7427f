"""A real Redis server that writes what it is told to a file, as production does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.servers.install import find_program
from tests.servers.process import Server

PASSWORD = "head race/secret"
_DATABASES = 64
_counter = itertools.count()


class Redis(Server):
    """``with Redis(maxmemory="100mb") as server: …``; `options` are settings and win over the defaults."""

    def __init__(self, **options: str) -> None:
        super().__init__("redis")
        self.options = options
        self.password = PASSWORD

    @contextmanager
    def database(self) -> Iterator[int]:
        """The number of an empty database."""
        number = next(_counter) % _DATABASES
        with self.connect(number) as client:
            client.flushdb()
        yield number

    def connect(self, database: int = 0) -> redis.Redis:
        return redis.Redis(self.host, self.port, db=database, password=self.password, socket_timeout=10)

    def url(self, database: int) -> str:
        return f"redis://:{self.password.replace(' ', '%20').replace('/', '%2F')}@{self.host}:{self.port}/{database}"

    def install(self) -> None:
        self.data_path.mkdir()

    def command(self) -> list[str]:
        settings = {
            "bind": self.host,
            "port": str(self.port),
            "requirepass": self.password,
            "dir": str(self.data_path),
            "databases": str(_DATABASES),
            "appendonly": "yes",
            "save": "",
            **self.options,
        }
        return [
            find_program("redis-server"),
            *(part for name, value in settings.items() for part in (f"--{name}", value)),
        ]

    def answers(self) -> bool:
        try:
            with self.connect() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
