"""Is the target the same as the source? Both sides become plain text rows in the form of MariaDB's own SELECT."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import redis
from cassandra.cluster import Session
from cassandra.util import Date
from opensearchpy import OpenSearch
from opensearchpy.helpers import scan
from thriftpy2.thrift import TClient

from headrace.lake.asof import as_of
from headrace.sinks.hbase.protocol import IDL
from headrace.storage.base import FileTree
from tests.flows.command import sqlite_rows

Rows = list[tuple[object, ...]]


def source_rows(connection: pymysql.Connection[Any], table: str) -> Rows:
    """The live rows at the source, time zone UTC."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT * FROM {table}")
        return plain(cursor.fetchall())


def lake_rows(lake: Path | FileTree, namespace: str) -> Rows:
    table = as_of(lake, namespace)
    return plain(zip(*(column.to_pylist() for column in table.columns), strict=True))


def postgresql_rows(url: str, table: str, columns: list[str]) -> Rows:
    with psycopg.connect(url) as connection:
        names = ", ".join(f'"{name}"' for name in columns)
        return plain(connection.execute(f'SELECT {names} FROM "{table}" WHERE _is_active_ = 1').fetchall())


def mysql_rows(connection: pymysql.Connection[Any], table: str, columns: list[str]) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE _is_active_ = 1")
        return plain(cursor.fetchall())


def sqlite_target_rows(path: Path, table: str, columns: list[str]) -> Rows:
    return plain(sqlite_rows(path, table, ", ".join(f'"{name}"' for name in columns)))


def redis_rows(client: redis.Redis, prefix: str, columns: list[str]) -> Rows:
    """Hashes whose keys begin so; NULL is a field that is not there."""
    rows = [client.hgetall(key) for key in client.scan_iter(match=f"{prefix}*")]
    live = [row for row in rows if row[b"_is_active_"] == b"1"]
    fields = [[row.get(name.encode()) for name in columns] for row in live]
    return plain([None if value is None else value.decode() for value in row] for row in fields)


def hbase_rows(client: TClient, table: str, columns: list[str]) -> Rows:
    """Rows with a cell per column; NULL is a cell without bytes, and the empty text is the byte 00."""
    found = client.getScannerResults(table.encode(), IDL.TScan(maxVersions=1), 1_000_000)
    rows = [{cell.qualifier: cell.value for cell in row.columnValues} for row in found]
    live = [row for row in rows if row[b"_is_active_"] == b"1"]
    fields = [[row[name.encode()] for name in columns] for row in live]
    return plain([value.replace(b"\0", b"").decode() if value else None for value in row] for row in fields)


def opensearch_rows(client: OpenSearch, index: str, columns: list[str]) -> Rows:
    """Documents of rows that are there."""
    client.indices.refresh(index=index)
    hits = scan(client, index=index, query={"query": {"term": {"_is_active_": 1}}})
    return plain([hit["_source"][name] for name in columns] for hit in hits)


def cassandra_rows(session: Session, table: str, columns: list[str]) -> Rows:
    names = ", ".join(f'"{name}"' for name in ("_is_active_", *columns))
    return plain(row[1:] for row in session.execute(f"SELECT {names} FROM {table}") if row[0] == 1)


def plain(rows: Any) -> Rows:
    """Rows as tuples of text, ordered: numbers without trailing zeros, times in UTC without a zone."""
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return naive.isoformat(" ").removesuffix("+00:00")
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, (int, float, date, timedelta, Date)):
        return str(value)
    if isinstance(value, str):
        return _plain_text(value)
    return value


def _plain_text(text: str) -> str:
    """Stores without decimals and times keep them as text: bring that into the same form."""
    try:
        return f"{Decimal(text).normalize():f}"
    except ArithmeticError:
        pass
    try:
        return str(_plain(datetime.fromisoformat(text))) if len(text) > 10 and text[4:5] == "-" else text
    except ValueError:
        return text
