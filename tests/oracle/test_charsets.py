"""Every character of every character set that a server knows: the log has it as SELECT answers it, and so do rows of the table."""

from __future__ import annotations

import itertools
from contextlib import closing

import pyarrow as pa
import pymysql

from headrace.capture.select import described, select
from headrace.codec.binlog import BinlogReader, Rows, decode_file
from headrace.ums.schema import RAW
from tests.oracle.test_rows import connected
from tests.servers.binlog_server import BinlogServer

_UNICODE = ("utf8mb4", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32")
_MARK = "\ufffd"


def test_every_character_of_every_set(binlog_server: BinlogServer) -> None:
    with binlog_server.database() as database, closing(binlog_server.connect(database)) as connection:
        with connection.cursor() as cursor:
            sets = _write_all(cursor)
            answers = {name: _select(cursor, name) for name in sets}
        decoded = _decoded(binlog_server, database)
        selected = _selected(binlog_server, database, sets)
    assert len(sets) > 35
    for name in sets:
        assert selected[name] == decoded[name]
        wrong = []
        for code, text in answers[name].items():
            have, raw = decoded[name][code]
            # What is no character at the server has a mark here, and the bytes beside it.
            if (text == "?" and code.strip(b"\0") != b"?") or text == _MARK:
                right = _MARK in have and raw == f"0x{code.hex()}"
            else:
                right = have == text and raw is None
            if not right:
                wrong.append((code.hex(), text, have, raw))
        assert not wrong, (name, len(wrong), wrong[:10])


def _write_all(cursor: pymysql.cursors.Cursor) -> list[str]:
    """One table for each set, with a row for each character: the code's bytes and the character in that set."""
    cursor.execute("SET sql_mode = ''")
    cursor.execute("CREATE TABLE codes (code VARBINARY(4) PRIMARY KEY)")
    cursor.execute("CREATE TABLE texts (t VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY)")
    _insert(cursor, "codes", [f"x'{code.hex()}'" for code in _codes()])
    _insert(cursor, "texts", [f"x'{chr(point).encode().hex()}'" for point in _points()])
    cursor.execute("SHOW CHARACTER SET")
    sets = [str(name) for name, *_ in cursor.fetchall() if name not in ("binary", "utf8")]
    for name in sets:
        cursor.execute(
            f"CREATE TABLE {name} (code VARBINARY(4) PRIMARY KEY, t VARCHAR(1) CHARACTER SET {name}, e ENUM('a') CHARACTER SET {name})"
        )
        if name in _UNICODE:
            origin, text = f"texts WHERE CONVERT(t USING {name}) = t COLLATE utf8mb4_bin", "t"
            code = f"CAST(CONVERT(t USING {name}) AS BINARY)"
        else:
            text, code = f"CONVERT(code USING {name})", "code"
            origin = f"codes WHERE CHAR_LENGTH({text}) = 1 AND HEX({text}) = HEX(code)"
        cursor.execute(f"INSERT INTO {name} (code, t) SELECT {code}, {text} FROM {origin}")
    return sets


def _insert(cursor: pymysql.cursors.Cursor, table: str, literals: list[str]) -> None:
    for first in range(0, len(literals), 20_000):
        cursor.execute(f"INSERT IGNORE INTO {table} VALUES ({'), ('.join(literals[first : first + 20_000])})")


def _codes() -> list[bytes]:
    """What can be a character in some set: one byte, two from 0x80 on, three of Japanese sets, and the begin of gb18030's four."""
    pairs = [bytes(pair) for pair in itertools.product(range(0x80, 256), range(0x20, 256))]
    japanese = [bytes([0x8F, *pair]) for pair in itertools.product(range(0xA1, 255), repeat=2)]
    digits = range(0x30, 0x3A)
    leads = (0x81, 0x82, 0x83, 0x84, 0x90, 0xE3)
    chinese = [bytes(four) for four in itertools.product(leads, digits, range(0x81, 255), digits)]
    return [bytes([byte]) for byte in range(256)] + pairs + japanese + chinese


def _points() -> list[int]:
    return [*range(1, 0xD800), *range(0xE000, 0x10000, 3), *range(0x10000, 0x110000, 997), 0x10FFFF]


def _select(cursor: pymysql.cursors.Cursor, name: str) -> dict[bytes, str]:
    cursor.execute(f"SELECT code, t FROM {name}")
    found = dict(cursor.fetchall())
    assert len(found) > 100
    return found


def _decoded(server: BinlogServer, database: str) -> dict[str, dict[bytes, tuple[str, str | None]]]:
    reader = BinlogReader([f"{database}.*"])
    found: dict[str, dict[bytes, tuple[str, str | None]]] = {}
    for path in server.binlogs():
        with path.open("rb") as file:
            for part in decode_file(reader, file, path.name):
                for rows in part.items:
                    if isinstance(rows, Rows) and rows.table.table not in ("codes", "texts"):
                        _gather(rows.data, found.setdefault(rows.table.table, {}))
    return found


def _selected(server: BinlogServer, database: str, sets: list[str]) -> dict[str, dict[bytes, tuple[str, str | None]]]:
    found: dict[str, dict[bytes, tuple[str, str | None]]] = {name: {} for name in sets}
    with connected(server) as connection:
        for name in sets:
            table = described(connection, "src", database, name)
            assert table is not None
            for batch in select(connection, table, batch_rows=10_000, batch_bytes=1 << 20):
                _gather(batch, found[name])
    return found


def _gather(rows: pa.RecordBatch, into: dict[bytes, tuple[str, str | None]]) -> None:
    columns = [rows.column(name).to_pylist() for name in ("code", "t", RAW)]
    for code, text, raw in zip(*columns, strict=True):
        into[code] = (text, None if raw is None else raw.split('"')[3])


def test_every_collation_is_known(binlog_server: BinlogServer) -> None:
    """A column of each collation, and a letter that its set has in common with ASCII."""
    with binlog_server.database() as database:
        collations = [row[0] for row in binlog_server.execute("SHOW COLLATION") if row[0] != "binary"]
        names = [name for name in collations if "_uca1400" not in name or name.startswith("utf8mb4")]
        for first in range(0, len(names), 100):
            some = names[first : first + 100]
            columns = ", ".join(f"{name} VARCHAR(3) COLLATE {name}" for name in some)
            values = ", ".join(["'x1'"] * len(some))
            binlog_server.execute(
                "DROP TABLE IF EXISTS t",
                f"CREATE TABLE t ({columns}) CHARACTER SET utf8mb4",
                f"INSERT INTO t VALUES ({values})",
                database=database,
            )
            with connected(binlog_server) as connection:
                table = described(connection, "src", database, "t")
                assert table is not None
                [batch] = select(connection, table, batch_rows=9, batch_bytes=1 << 20)
                assert batch.to_pylist() == [dict.fromkeys(some, "x1") | {RAW: None}]
        reader = BinlogReader([f"{database}.*"])
        seen: dict[str, str] = {}
        for path in binlog_server.binlogs():
            with path.open("rb") as file:
                for part in decode_file(reader, file, path.name):
                    for rows in part.items:
                        if isinstance(rows, Rows):
                            row = rows.data.select([column.name for column in rows.table.columns]).to_pylist()[0]
                            seen |= row
        assert seen == dict.fromkeys(names, "x1")
