"""What MySQL and MariaDB servers of the tests have in common: one protocol, users, databases, a row-based binary log."""

from __future__ import annotations

import itertools
import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql

from tests.servers.process import Server

USER, PASSWORD = "headrace", "head race/secret"
CREATE_USER = (
    "SET sql_log_bin = 0;\n"
    f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
    f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
)
"""For --init-file: `USER` with all rights, without a trace in the binary log."""

_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--host-cache-size=0",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--server-id=1",
    "--character-set-server=utf8mb4",
    # Small and quick to start; what is on disk at commit is as in production (innodb_flush_log_at_trx_commit=1).
    "--innodb-buffer-pool-size=32M",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
    "--key-buffer-size=1M",
)
_counter = itertools.count(1)


class BinlogServer(Server):
    """``with MySql("--binlog-row-image=MINIMAL") as server: server.execute("CREATE DATABASE shop")``.

    `options` come after the defaults and so win. Users: `USER` with all rights (and root without a password).
    """

    show_position: str
    """The statement that tells where the binary log ends."""

    def __init__(self, name: str, options: tuple[str, ...]) -> None:
        super().__init__(name)
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
            # A test that failed may have left a transaction open, for which DROP would wait.
            users = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
            for (number,) in self.execute(users):
                with suppress(pymysql.err.Error):  # it has just left by itself
                    self.execute(f"KILL {number}")
            self.execute(f"DROP DATABASE IF EXISTS {name}")

    def connect(self, database: str | None = None, **settings: Any) -> pymysql.Connection[Any]:
        defaults = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return pymysql.connect(
            **{"database": database, "charset": "utf8mb4", "autocommit": True, **defaults, **settings}
        )

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Runs statements in one connection (autocommit); the rows of the last one."""
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def url(self, database: str, scheme: str = "mysql") -> str:
        return f"{scheme}://{self.user}:{quote(self.password, safe='')}@{self.host}:{self.port}/{database}"

    def binlogs(self) -> list[Path]:
        """The files of the binary log, oldest first."""
        return sorted(self.data_path.glob("binlog.[0-9]*"))

    def position(self) -> tuple[str, int]:
        """File and offset at which the binary log ends now."""
        [(file, offset, *_)] = self.execute(self.show_position)
        return file, offset

    def command(self) -> list[str]:
        return [
            *self.program(),
            f"--datadir={self.data_path}",
            f"--port={self.port}",
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            # A server that starts removes all #sql* files of its tmpdir: those of another one crash it.
            f"--tmpdir={self.directory}",
            *_OPTIONS,
            *self.options,
        ]

    def answers(self) -> bool:
        try:
            self.connect(connect_timeout=2).close()
        except pymysql.err.OperationalError:
            return False
        return True

    @abstractmethod
    def program(self) -> list[str]:
        """The server's program with the options that only this kind of server has."""


def as_root() -> list[str]:
    """Both servers refuse to run as root unless told so."""
    return ["--user=root"] if os.geteuid() == 0 else []
