"""sysbench's OLTP tests, whose small transactions on narrow rows are what most logs are full of."""

from __future__ import annotations

import shutil
import subprocess

from tests.servers.install import MissingPackageError
from tests.servers.mysql import MySql

DATABASE = "sbtest"
TABLES = 4
ROWS_PER_TABLE, READ_WRITE, WRITE_ONLY = 50_000, 10_000, 60_000
"""At scale 1: rows at the beginning, and transactions of the two tests; each transaction makes four row changes."""


def find_sysbench() -> str:
    path = shutil.which("sysbench")
    if path is None:
        raise MissingPackageError("the program 'sysbench' is not installed: apt-get install sysbench")
    return path


def load(server: MySql, scale: float) -> None:
    """Fills its tables and runs the tests; one client and a fixed seed, so that the changes are the same each time."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    _run(server, scale, "oltp_write_only", "prepare")
    _run(server, scale, "oltp_read_write", "run", f"--events={int(READ_WRITE * scale)}")
    _run(server, scale, "oltp_write_only", "run", f"--events={int(WRITE_ONLY * scale)}")


def _run(server: MySql, scale: float, test: str, *command: str) -> None:
    connection = [f"--mysql-host={server.host}", f"--mysql-port={server.port}", f"--mysql-user={server.user}"]
    size = [
        f"--tables={TABLES}",
        f"--table-size={int(ROWS_PER_TABLE * scale)}",
        "--threads=1",
        "--time=0",
        "--rand-seed=44",
    ]
    done = subprocess.run(
        [
            find_sysbench(),
            test,
            "--db-driver=mysql",
            *connection,
            f"--mysql-password={server.password}",
            *size,
            *command,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"sysbench {test} failed: {(done.stdout + done.stderr)[-2000:]}")
