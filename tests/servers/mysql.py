"""A real MySQL 9 server with GTIDs and a row-based binary log (full images, full metadata), as capture needs it.

Debian has MySQL only in its development suite, so `tests/servers/install.py` puts it into a folder of the user's cache, with all
the libraries that it needs. The program runs with those libraries, in the tests' own file system and as the tests' own user.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.servers.binlog_server import CREATE_USER, BinlogServer, as_root
from tests.servers.install import MYSQL_FOLDER, find_mysql_program

_EMPTY = MYSQL_FOLDER / "var" / "lib" / "headrace-empty"
"""A data directory as a fresh server has it, copied for each one: to make it takes ten times as long."""


class MySql(BinlogServer):
    """MySQL as Debian's development suite has it, with caching_sha2_password, TLS by its own certificate and gtid_mode=ON."""

    show_position = "SHOW BINARY LOG STATUS"

    def __init__(self, *options: str) -> None:
        super().__init__("mysql", options)

    def install(self) -> None:
        if not _EMPTY.exists():
            self._make_empty()
        shutil.copytree(_EMPTY, self.data_path)

    def program(self) -> list[str]:
        return [
            *_program(),
            *as_root(),
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--mysqlx=OFF",
            "--performance-schema=OFF",
            "--secure-file-priv=",
            "--skip-replica-start",
        ]

    def _make_empty(self) -> None:
        """Whole or absent, also when several test runs come here at once: the first one's is kept."""
        making = Path(tempfile.mkdtemp(dir=_EMPTY.parent))
        try:
            users = making / "init.sql"
            users.write_text(CREATE_USER)
            data = making / "data"
            options = [f"--datadir={data}", "--initialize-insecure", f"--init-file={users}"]
            self.run([*_program(), *as_root(), *options])
            # Every server makes an identity of its own, and so GTIDs of its own.
            (data / "auto.cnf").unlink()
            with suppress(OSError):
                data.rename(_EMPTY)
        finally:
            shutil.rmtree(making)


def _program() -> list[str]:
    # --no-defaults must come first. Without the second, the machine's own MySQL or MariaDB would lend its character sets.
    shared = MYSQL_FOLDER / "usr" / "share" / "mysql"
    return [
        *find_mysql_program("mysqld"),
        "--no-defaults",
        f"--character-sets-dir={shared / 'charsets'}",
        "--innodb-redo-log-capacity=16M",
    ]
