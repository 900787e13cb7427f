"""A real MariaDB server with a row-based binary log (full images, full metadata), as capture needs it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql

from tests.servers.install import find_program
from tests.servers.process import Server

USER, PASSWORD = "headrace", "head race/secret"
_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--server-id=1",
    "--character-set-server=utf8mb4",
    # Small and quick to start; what is on disk at commit is as in production (innodb_flush_log_at_trx_commit=1).
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=2M",
    "--skip-host-cache",
    "--skip-slave-start",
)
_counter = itertools.count(1)


class MariaDb(Server):
    """``with MariaDb("--binlog-row-image=MINIMAL") as server: server.execute("CREATE DATABASE shop")``.

    `options` come after the defaults and so win. Users: `USER` with all rights (and root without a password).
    """

    def __init__(self, *options: str) -> None:
        super().__init__("mariadb")
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
            self.execute(f"DROP DATABASE IF EXISTS {name}")

    def connect(self, database: str | None = None, **settings: Any) -> pymysql.Connection[Any]:
        defaults = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return pymysql.connect(
            **{"database": database, "charset": "utf8mb4", "autocommit": True, **defaults, **settings}
        )

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Runs statements in one connection (autocommit); the rows of the last one."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def url(self, database: str, scheme: str = "mysql") -> str:
        return f"{scheme}://{self.user}:{quote(self.password, safe='')}@{self.host}:{self.port}/{database}"

    def binlogs(self) -> list[Path]:
        """The files of the binary log, oldest first."""
        return sorted(self.data_path.glob("binlog.[0-9]*"))

    def install(self) -> None:
        program = find_program("mariadb-install-db")
        self.run(
            [
                program,
                "--no-defaults",
                f"--datadir={self.data_path}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                *_as_root(),
                "--innodb-log-file-size=16M",
                "--innodb-data-file-path=ibdata1:4M:autoextend",
            ]
        )
        (self.directory / "init.sql").write_text(
            "SET sql_log_bin = 0;\n"
            f"CREATE USER IF NOT EXISTS '{self.user}'@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'%' WITH GRANT OPTION;\n"
        )

    def command(self) -> list[str]:
        return [
            find_program("mariadbd"),
            "--no-defaults",
            f"--datadir={self.data_path}",
            f"--port={self.port}",
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            # A server that starts removes all #sql* files of its tmpdir: those of another one crash it.
            f"--tmpdir={self.directory}",
            f"--init-file={self.directory / 'init.sql'}",
            *_as_root(),
            *_OPTIONS,
            *self.options,
        ]

    def answers(self) -> bool:
        try:
            self.connect(connect_timeout=2).close()
        except pymysql.err.OperationalError:
            return False
        return True


def _as_root() -> list[str]:
    """mariadbd refuses to run as root unless told so."""
    return ["--user=root"] if os.geteuid() == 0 else []
