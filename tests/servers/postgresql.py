"""A real PostgreSQL server. It refuses to run as root: when the tests do, it runs as the package's user `postgres`."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psycopg

from tests.servers.install import find_program
from tests.servers.process import Server

USER, PASSWORD = "headrace", "head race/secret"
_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "autovacuum": "off",
    "wal_level": "logical",
}
_counter = itertools.count(1)


class PostgreSql(Server):
    """``with PostgreSql(log_statement="all") as server: …``; `options` are settings and win over the defaults."""

    stop_signal = signal.SIGINT  # "fast" shutdown: does not wait for clients to leave

    def __init__(self, **options: str) -> None:
        super().__init__("postgresql")
        self.options = options
        self.user, self.password = USER, PASSWORD

    @contextmanager
    def database(self) -> Iterator[str]:
        """The name of a fresh database, dropped at the end."""
        name = f"test_{os.getpid()}_{next(_counter)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def connect(self, database: str = "postgres", **settings: Any) -> psycopg.Connection[tuple[Any, ...]]:
        defaults = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return psycopg.connect(dbname=database, autocommit=True, **{**defaults, **settings})

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Runs statements in one connection (autocommit); the rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}:{quote(self.password, safe='')}@{self.host}:{self.port}/{database}"

    def install(self) -> None:
        user = self.user_of_process()
        if user is not None:
            shutil.chown(self.directory, user, user)
        password_file = self.directory / "password"
        password_file.write_text(self.password)
        password_file.chmod(0o644)  # inside a folder that only its owner can enter
        self.run(
            [
                find_program("initdb"),
                "--pgdata",
                str(self.data_path),
                "--username",
                self.user,
                "--pwfile",
                str(password_file),
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ]
        )

    def command(self) -> list[str]:
        settings = {**_OPTIONS, **self.options, "port": str(self.port)}
        return [
            find_program("postgres"),
            "-D",
            str(self.data_path),
            *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
        ]

    def answers(self) -> bool:
        try:
            self.connect(connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def user_of_process(self) -> str | None:
        return "postgres" if os.geteuid() == 0 else None
