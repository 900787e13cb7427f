"""ClickHouse for the tests. No registry has its server; chdb is the same engine as a library, and chdb_server.py its HTTP interface."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from tests.servers.process import Server

_counter = itertools.count(1)


class ClickHouse(Server):
    """``with ClickHouse() as server: server.execute("SELECT 1")``."""

    def __init__(self) -> None:
        super().__init__("clickhouse")

    def url(self, database: str) -> str:
        return f"http://{self.host}:{self.port}/{database}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """A database of its own, which is dropped at the end."""
        name = f"test_{os.getpid()}_{next(_counter)}"
        self.execute(f"CREATE DATABASE {name} ENGINE = Atomic")
        yield name
        self.execute(f"DROP DATABASE IF EXISTS {name}")

    def execute(self, sql: str, database: str = "default") -> list[tuple[Any, ...]]:
        """Runs a statement with a plain client and returns its rows."""
        address = f"http://{self.host}:{self.port}/?database={quote(database)}"
        asks = sql.lstrip().upper().startswith("SELECT")
        text = f"{sql} FORMAT JSONCompactEachRow" if asks else sql
        with urlopen(address, data=text.encode(), timeout=60) as answer:
            return [tuple(json.loads(line)) for line in answer.read().splitlines()] if asks else []

    def install(self) -> None:
        self.data_path.mkdir()

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("chdb_server.py")), str(self.port), str(self.data_path)]

    def answers(self) -> bool:
        try:
            return bool(self.execute("SELECT 1"))
        except (URLError, OSError):
            return False
