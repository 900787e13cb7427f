"""A real MariaDB server with a row-based binary log (full images, full metadata), as capture needs it."""

from __future__ import annotations

from tests.servers.binlog_server import CREATE_USER, BinlogServer, as_root
from tests.servers.install import find_program

_SMALL_FILES = ("--innodb-log-file-size=16M", "--innodb-data-file-path=ibdata1:4M:autoextend")


class MariaDb(BinlogServer):
    """MariaDB of the Debian package mariadb-server."""

    show_position = "SHOW MASTER STATUS"

    def __init__(self, *options: str) -> None:
        super().__init__("mariadb", options)

    def install(self) -> None:
        self.run(
            [
                find_program("mariadb-install-db"),
                "--no-defaults",
                f"--datadir={self.data_path}",
                f"--tmpdir={self.directory}",  # as for the server itself
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                *as_root(),
                *_SMALL_FILES,
            ]
        )
        (self.directory / "init.sql").write_text(CREATE_USER)

    def program(self) -> list[str]:
        return [
            find_program("mariadbd"),
            "--no-defaults",
            f"--init-file={self.directory / 'init.sql'}",
            *as_root(),
            *_SMALL_FILES,
            "--aria-pagecache-buffer-size=2M",
            "--skip-slave-start",
        ]
