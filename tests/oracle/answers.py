"""What a server answers to SELECT, in the form of `headrace decode` (one expression per type where the two differ)."""

from __future__ import annotations

import base64
import ipaddress
import struct
import uuid
from typing import Any

import pymysql

from tests.oracle.replay import KEY, Row, load

_BYTES = {
    "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector", "geometry", "point", "linestring", "polygon",
    "multipoint", "multilinestring", "multipolygon", "geomcollection", "geometrycollection",
}  # fmt: skip
_AS_TEXT = {"date", "time", "datetime", "timestamp", "decimal", "json"}


def answers(connection: pymysql.Connection[Any], database: str, table: str) -> dict[Any, Row]:
    """The rows by their key. TIMESTAMP comes in UTC."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        types = column_types(cursor, database, table)
        expressions = ", ".join(_expression(name, kind) for name, kind in types.items())
        cursor.execute(f"SELECT {expressions} FROM `{database}`.`{table}`")
        rows = [
            {name: _answer(kind, value) for (name, kind), value in zip(types.items(), row, strict=True)}
            for row in cursor.fetchall()
        ]
    return {row[KEY]: row for row in rows}


def column_types(cursor: pymysql.cursors.Cursor, database: str, table: str) -> dict[str, str]:
    cursor.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        " ORDER BY ordinal_position",
        (database, table),
    )
    return {name: kind if isinstance(kind, str) else kind.decode() for name, kind in cursor.fetchall()}


def _expression(name: str, kind: str) -> str:
    column = f"`{name}`"
    if kind in _BYTES:
        return f"HEX({column})"
    if kind in _AS_TEXT:
        return f"CAST({column} AS CHAR)"
    return {"bit": f"{column} + 0", "float": f"CAST({column} AS DOUBLE)"}.get(kind, column)


def _answer(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind in _BYTES:
        return base64.b64encode(bytes.fromhex(value)).decode()
    if kind == "json":
        return load(value)
    if kind in ("float", "double"):
        return _as_wide_as(kind, float(value))
    if kind in ("uuid", "inet4", "inet6"):
        return packed(kind, value)
    return int(value) if kind == "bit" else value


def comparable(types: dict[str, str], row: Row) -> Row:
    """A row out of the log in the form of `answers`: numbers with a fraction as numbers, addresses as bytes."""
    return {name: _comparable(types.get(name, ""), value) for name, value in row.items()}


def _comparable(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind in ("float", "double"):
        return _as_wide_as(kind, float(value[1] if isinstance(value, tuple) else value))
    return packed(kind, value) if kind in ("uuid", "inet4", "inet6") else value


def _as_wide_as(kind: str, number: float) -> bytes:
    """The bits: a zero has a sign."""
    return struct.pack("<f" if kind == "float" else "<d", number)


def packed(kind: str, value: str) -> bytes:
    """UUID, INET4 and INET6 by their bytes: a log does not mark them, so that a reader may know them only as BINARY."""
    if not set("-.:") & set(value):
        return base64.b64decode(value)
    return uuid.UUID(value).bytes if kind == "uuid" else ipaddress.ip_address(value).packed


def differences(connection: pymysql.Connection[Any], database: str, tables: dict[str, dict[Any, Row]]) -> list[str]:
    """Every value that the log and the server do not agree on."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_type = 'BASE TABLE'",
            (database,),
        )
        names = [name for (name,) in cursor.fetchall()]
    for table in names:
        with connection.cursor() as cursor:
            types = column_types(cursor, database, table)
        wanted = answers(connection, database, table)
        have = {key: comparable(types, row) for key, row in tables.get(table, {}).items()}
        found += [f"{table}: row {key} is only at the server" for key in wanted.keys() - have.keys()]
        found += [f"{table}: row {key} is only in the log" for key in have.keys() - wanted.keys()]
        for key in wanted.keys() & have.keys():
            for name in wanted[key].keys() | have[key].keys():
                log, server = have[key].get(name, "(no column)"), wanted[key].get(name, "(no column)")
                if log != server:
                    found.append(f"{table}.{name} ({types.get(name)}), row {key}: log {log!r}, server {server!r}")
    return found
