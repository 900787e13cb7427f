"""Writes the workload on a fresh MySQL server and keeps its log: one file, made once for each scale and each change of the workload.

::

    <cache>/headrace/bench/decode-<hash of the workload>-<scale>/binlog.000001    the log
                                                                facts.json       what is in it, written last

How many row changes are in the log is what the server says that the statements changed: no decoder is asked, all are checked by it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.servers.install import find_mysql_program
from tests.servers.mysql import MySql

from bench.decode_log import every_type, shop, sysbench
from headrace.files import replace_file

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "bench"
DATABASE = "bench"
END_TABLE = "end_of_log"
"""Its one row is the last of the log: a decoder that follows a running server knows by it that it has seen all."""

_OPTIONS = (
    "--performance-schema=ON",
    "--max-binlog-size=1G",
    "--sync-binlog=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=1G",
    "--innodb-redo-log-capacity=1G",
)


@dataclass(frozen=True)
class RecordedLog:
    """A log on disk: who wrote it, and how many row changes are in it."""

    path: Path
    server: str
    rows: int

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size


def recorded_log(scale: float) -> RecordedLog:
    """The log of the workload at a scale (1 is more than 500 MB), from the cache or made now.

    MissingPackageError when the server or sysbench is not installed.
    """
    folder = CACHE / f"decode-{_workload_hash()}-{scale:g}"
    facts = folder / "facts.json"
    path = folder / "binlog.000001"
    if not facts.exists():
        # What is missing is told now, not after minutes.
        find_mysql_program("mysqld")
        sysbench.find_sysbench()
        print(f"recording the binlog of scale {scale:g} into {folder}, which takes some minutes", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        version, rows = _record(scale, path)
        replace_file(facts, json.dumps({"server": version, "rows": rows}).encode())
    known = json.loads(facts.read_text())
    return RecordedLog(path, known["server"], known["rows"])


def _record(scale: float, target: Path) -> tuple[str, int]:
    """Runs the workload and copies the log; returns the server's version and the number of row changes."""
    with MySql(*_OPTIONS) as server:
        changed_before = _rows_changed(server)
        server.execute("RESET BINARY LOGS AND GTIDS", f"CREATE DATABASE {DATABASE}")
        with closing(server.connect(DATABASE, autocommit=False, binary_prefix=True)) as connection:
            every_type.load(connection, scale)
            shop.load(connection, scale)
        sysbench.load(server, scale)
        server.execute(
            f"CREATE TABLE {END_TABLE} (id INT PRIMARY KEY)", f"INSERT INTO {END_TABLE} VALUES (1)", database=DATABASE
        )
        rows = _rows_changed(server) - changed_before
        server.execute("FLUSH BINARY LOGS")
        log, *empty = server.binlogs()
        assert len(empty) == 1, "the log must be one file: max_binlog_size is too small for this scale"
        shutil.copyfile(log, target)
        return str(server.execute("SELECT VERSION()")[0][0]), rows


def _rows_changed(server: MySql) -> int:
    """Rows that clients' statements have inserted, updated or deleted since the server's start; sysbench's are prepared ones."""
    [[rows]] = server.execute(
        "SELECT SUM(SUM_ROWS_AFFECTED) FROM performance_schema.events_statements_summary_global_by_event_name WHERE EVENT_NAME IN "
        "('statement/sql/insert', 'statement/sql/update', 'statement/sql/delete', 'statement/com/Execute')"
    )
    return int(rows)


def _workload_hash() -> str:
    """Changes with the statements and options that make the log, not with this file."""
    sources = [Path(str(module.__file__)).read_bytes() for module in (every_type, shop, sysbench)]
    return hashlib.sha256(b"".join(sources) + repr(_OPTIONS).encode()).hexdigest()[:12]
