"""A store in one file, from any kind of database into any other.

::

    line 1      {"headrace": "control", "format": 1, "version": version of the tables, "at_us": …}
    lines       {"table": name, "row": {column: value}}      tables in the order in which they refer to each other
    last line   {"rows": how many, "sha256": of all bytes before this line}
    (gzip)

Written aside and then moved into place, all tables from one transaction: a file is a whole store of one moment, or it is not there. The last line
proves that it was not cut or changed. Restored in one transaction, into a store without rows: it is all there, or nothing is. Leases
and sessions stay out: they are of the moment.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, insert, select, text

from headrace.control.tables import LEASES, META, MIGRATIONS, SESSIONS, ControlDatabase
from headrace.errors import ConfigError, CorruptError
from headrace.files import replace_file

_FORMAT = 1
_TABLES = [table for table in META.sorted_tables if table not in (LEASES, SESSIONS)]
_AT_ONCE = 500


def backup(database: ControlDatabase, path: Path, clock: Callable[[], float] = time.time) -> int:
    """Writes the store to a file, in place of one that is there; how many rows it has."""
    digest, lines, rows = hashlib.sha256(), [], 0
    head = {"headrace": "control", "format": _FORMAT, "version": len(MIGRATIONS), "at_us": round(clock() * 1e6)}
    with database.transaction() as connection:
        _one_moment(connection)
        for line in (head, *_rows(connection)):
            lines.append(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            digest.update(lines[-1])
        rows = len(lines) - 1
    lines.append(json.dumps({"rows": rows, "sha256": digest.hexdigest()}).encode() + b"\n")
    replace_file(path, gzip.compress(b"".join(lines), mtime=0))
    return rows


def restore(database: ControlDatabase, path: Path) -> int:
    """Fills an empty store from a file; how many rows it has. ConfigError when the store is not empty, CorruptError for a damaged file."""
    rows = _read(path)
    with database.transaction() as connection:
        for table in _TABLES:
            if connection.scalar(select(func.count()).select_from(table)):
                raise ConfigError(
                    f"the store is not empty: {table.name} has rows",
                    fix="restore into a new store, and start the server with that",
                )
        for table in _TABLES:
            of_table = [row["row"] for row in rows if row["table"] == table.name]
            for first in range(0, len(of_table), _AT_ONCE):
                connection.execute(insert(table), of_table[first : first + _AT_ONCE])
            _count_on(connection, table.name, of_table)
    return len(rows)


def _rows(connection: Connection) -> Iterator[dict[str, Any]]:
    for table in _TABLES:
        for row in connection.execute(select(table).order_by(*table.primary_key)).mappings():
            yield {"table": table.name, "row": dict(row)}


def _one_moment(connection: Connection) -> None:
    """All that a transaction reads is of its beginning: PostgreSQL must be asked, MySQL does so, SQLite lets nobody write meanwhile."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


def _count_on(connection: Connection, table: str, rows: list[dict[str, Any]]) -> None:
    """Numbers that PostgreSQL gives itself go on behind those that were put in; the others look at what is there."""
    if connection.dialect.name == "postgresql" and rows and isinstance(rows[0].get("id"), int):
        newest = max(row["id"] for row in rows)
        connection.execute(
            text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :newest)"), {"table": table, "newest": newest}
        )


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {path}", fix="name a file that `headrace backup` has written") from error
    except (OSError, EOFError) as error:
        raise _damaged(path) from error
    lines = content.splitlines(keepends=True)
    try:
        head, *rows, last = [json.loads(line) for line in lines]
        whole = last == {"rows": len(rows), "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
        version = head["version"] if head["format"] == _FORMAT and head["headrace"] == "control" else None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path) from error
    if not whole:
        raise _damaged(path)
    if version != len(MIGRATIONS):
        raise ConfigError(
            f"{path} has version {version} of the tables, and this headrace makes {len(MIGRATIONS)}",
            fix="restore it with the headrace that wrote it; a newer one brings the store up to date when it opens it",
        )
    return rows


def _damaged(path: Path) -> CorruptError:
    return CorruptError(f"{path} is not a whole backup of a store", fix="take another copy of it")
