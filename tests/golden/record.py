"""Records small binary logs of live servers with what the servers themselves answer: ``python -m tests.golden.record``.

::

    binlog/<server>-types.<number>      the log: every column type, changed and altered (tests/oracle/every_type.py)
    binlog/<server>-types.select.json   {"server": version, "tables": {table: {"types": …, "rows": [row, …]}}}

The values come from SELECT alone; no decoder has a part in them. Long values are left out: the files stay small.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pymysql

from tests.oracle.answers import answers, column_types
from tests.oracle.every_type import Columns, statements, tables_of
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql

FOLDER = Path(__file__).parent / "binlog"
DATABASE = "types"
_LEFT_OUT = tuple(f"E({digits})" for digits in (1, 2, 4, 5)) + tuple(f"P({digits})" for digits in (1, 2, 4, 5))
_LEFT_OUT += (
    "(18,9)",
    "(65,0)",
    "(9,9)",
    "(38,10)",
    "BIT(24)",
    "BIT(33)",
    "BIT(7)",
    "LONGBLOB",
    "MEDIUMBLOB",
    "MULTILINESTRING",
)
"""Ends of the types that are not recorded: they would only make the files larger."""


def record(server: BinlogServer) -> None:
    """Starts a log of its own for the workload, and copies it."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        log = server.binlogs()[-1]
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', timestamp = 1772445600.123456")
        for table, columns in tables_of(server).items():
            if table != "mixed":
                for statement in statements(table, _small(columns)):
                    cursor.execute(statement)
        cursor.execute("FLUSH BINARY LOGS")
        shutil.copyfile(log, FOLDER / f"{server.name}-types{log.suffix}")
        expected = {
            "server": _version(cursor),
            "tables": {name: _answered(connection, name) for name in tables_of(server) if name != "mixed"},
        }
    text = json.dumps(expected, ensure_ascii=False, indent=None, separators=(",", ":"), default=_plain)
    (FOLDER / f"{server.name}-types.select.json").write_text(text + "\n")


def _small(columns: Columns) -> Columns:
    """Without long values and long lists of labels, and of the numbers of fraction digits only some."""
    some = {
        kind: values
        for kind, values in columns.items()
        if len(kind) < 100 and not kind.partition(" ")[0].endswith(_LEFT_OUT)
    }
    return {kind: [value for value in values if "REPEAT" not in value] for kind, values in some.items()}


def _answered(connection: pymysql.Connection[object], table: str) -> dict[str, object]:
    with connection.cursor() as cursor:
        types = column_types(cursor, DATABASE, table)
    return {"types": types, "rows": list(answers(connection, DATABASE, table).values())}


def _version(cursor: pymysql.cursors.Cursor) -> str:
    cursor.execute("SELECT VERSION()")
    [(version,)] = cursor.fetchall()
    return str(version)


def _plain(value: object) -> str:
    assert isinstance(value, bytes), value
    return value.hex()


if __name__ == "__main__":
    for kind in (MariaDb, MySql):
        with kind() as server:
            record(server)
