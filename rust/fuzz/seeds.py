"""Inputs to begin with, out of the recorded logs: `python rust/fuzz/seeds.py` writes rust/fuzz/corpus/TARGET/."""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests import binlog_events, mysql_packets  # noqa: E402  -- the repository's root is not on the path of a script

GOLDEN = ROOT / "tests" / "golden" / "binlog"
CORPUS = Path(__file__).parent / "corpus"
_FORMAT, _TABLE_MAP, _WRITE_ROWS, _PAYLOAD = 15, 19, 30, 40
_OPENING = (33, 34, 42, 162)
MAX_EVENT_BYTES = 3000
MAX_SEED_BYTES = 8000
BEFORE_IMAGES, AT_DDL, NAMES_REQUIRED, CHECKSUMS, RAW = 1, 2, 4, 8, 128
KINDS = {
    1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 8: "bigint", 9: "mediumint", 10: "date",
    13: "year", 15: "varchar", 16: "bit", 17: "timestamp", 18: "datetime", 19: "time", 245: "json", 246: "decimal",
    252: "blob", 254: "char", 255: "geometry", 140: "text", 141: "varchar",
}  # fmt: skip
"""Type codes of a table map -> what a definition calls such a column."""

GTID_TEXTS = [
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7-9:blue:1|3e11fa47-71ca-11e1-9e33-c80aa9429562:2-8",
    "0-1-5,1-2-3|0-2-9",
]
JSON_TEXTS = [
    '{"@timestamp":"2026-01-02T03:04:05.678Z","message":"GET /a \\"b\\" \\u00e4\\ud83d\\ude00","host":{"name":"web1"},"log":{"offset":1234567890123456789012}}',
    ' { "a" : [ 1 , -0.50e+3 , true , null , " \\" ä " , [ ] , { } ] , "a" : { "b" : [ { "c" : 1 } ] } } ',
    '[[1,[2,[3]]],{"":{"":""}},"\\\\","水",1E-9,false]',
    '{"a":{"b":1},"a":{"c":NaN},"d":-Infinity}',
    '{"a":1} x',
]
"""In JSON's own escapes."""
RECORDS = [
    'a\t\t\\N\n\nä\\\t"b"\t',
    "1,two,3.5\n\n\\N,,x\r\n",
    "a||b|\r\nc|||\r\n",
    "7\x01\\N\x02\x02x",
    "a;b||",
    "äxä€",
    *([""] * 10),
    '1\t"a\t""b"""\n"\\N"',
    '"a\\"b\\\\"\\,,\\\\N\n"\\\\N"',
]
"""Each in the form of its number (the head of targets/bodies.rs)."""


def chunk(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("<BBH", kind, flags, len(body)) + body


def chunk_of(event: bytes) -> bytes:
    """An event without checksum as a chunk: long rows are cut, transactions are unpacked."""
    kind, flags, body = event[4], event[17], event[binlog_events.HEADER_BYTES :]
    if kind == _PAYLOAD and len(body) > MAX_EVENT_BYTES:
        body = b"\0" + b"".join(chunk_of(inner) for inner in unpacked(body))[:MAX_SEED_BYTES]
    return chunk(kind, body if kind == _PAYLOAD else body[:MAX_EVENT_BYTES], flags)


def unpacked(body: bytes) -> Iterator[bytes]:
    """The events of a compressed transaction."""
    fields, at = {}, 0
    while kind := body[at]:
        length = body[at + 1]
        value = body[at + 2 : at + 2 + length]
        fields[kind] = int.from_bytes(value if length == 1 else value[1:], "little")
        at += 2 + length
    plain = pa.Codec("zstd").decompress(body[at + 1 :], fields[3], asbytes=True)
    at = 0
    while at < len(plain):
        length = struct.unpack_from("<I", plain, at + 9)[0]
        yield plain[at : at + length]
        at += length


def transactions(log: bytes) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    for event in binlog_events.events(log):
        if event[4] in _OPENING and group:
            yield group
            group = []
        if event[4] != _FORMAT:
            group.append(event)
    yield group


def definition(table_map: bytes) -> bytes:
    """A chunk that defines a table by the types that its map has."""
    body = table_map[binlog_events.HEADER_BYTES + 8 :]
    schema = body[1 : 1 + body[0]]
    body = body[2 + len(schema) :]
    table = body[1 : 1 + body[0]]
    body = body[2 + len(table) :]
    codes = body[1 : 1 + body[0]]
    columns = [f"c{index} {KINDS.get(code, 'int')} - utf8mb4 a b" for index, code in enumerate(codes)]
    return chunk(0, schema + b"\0" + table + b"\0" + "\n".join(columns).encode())


def seeds(log: bytes) -> Iterator[tuple[str, bytes]]:
    for group in transactions(log):
        chunks = b"".join(map(chunk_of, group))[:MAX_SEED_BYTES]
        defined = b"".join(definition(event) for event in group if event[4] == _TABLE_MAP)
        for target in ("binlog_events", "binlog_wire"):
            yield target, bytes([CHECKSUMS]) + chunks
            yield target, bytes([BEFORE_IMAGES | AT_DDL]) + chunks
            yield target, bytes([NAMES_REQUIRED]) + defined + chunks
    events = list(binlog_events.events(log))
    while sum(map(len, events)) > MAX_SEED_BYTES:
        events.pop()
    yield "binlog_file", bytes([0]) + binlog_events.log(events)
    yield "binlog_file", bytes([BEFORE_IMAGES]) + without_checksums(events)
    packets = (struct.pack("<I", len(event) + 1)[:3] + b"\0\0" + event for event in events)
    yield "binlog_wire", bytes([RAW]) + b"".join(packets)


def without_checksums(events: list[bytes]) -> bytes:
    """Events without checksums and positions, so that damage goes through."""
    out = bytearray(binlog_events.MAGIC)
    for event in events:
        whole = bytearray(event)
        if whole[4] == _FORMAT:
            whole[-1] = 0
            whole = bytearray(binlog_events.log([bytes(whole)])[len(out) :])
        else:
            struct.pack_into("<II", whole, 9, len(whole), 0)
        out += whole
    return bytes(out)


def widest() -> bytes:
    """Chunks of the widest table that servers have, and two rows of nulls."""
    count, all_of_them = b"\xfc" + struct.pack("<H", 4096), b"\xff" * 512
    table_map = struct.pack("<IHH", 7, 0, 1) + b"\x01s\0\x01t\0" + count + b"\x01" * 4096 + b"\0" + all_of_them
    rows = struct.pack("<IHHH", 7, 0, 1, 2) + count + all_of_them * 3
    return chunk(_TABLE_MAP, table_map) + chunk(_WRITE_ROWS, rows)


def all_seeds() -> Iterator[tuple[str, bytes]]:
    for path in sorted(GOLDEN.iterdir()):
        log = path.read_bytes()
        if log.startswith(binlog_events.MAGIC):
            yield from seeds(log)
            if path.name.startswith("maria"):
                yield from seeds(binlog_events.with_compressed_events(log))
    yield from answers()
    yield from (("hbase_wal", file) for file in wal_seeds())
    yield "binlog_events", bytes([0]) + widest()
    yield "binlog_events", bytes([BEFORE_IMAGES]) + widest()
    for text in JSON_TEXTS:
        yield "json_texts", text.encode()
    yield "json_texts", "\0".join(JSON_TEXTS).encode()
    for number, text in enumerate(RECORDS):
        yield "bodies", bytes([number]) + text.encode()
    for text in GTID_TEXTS:
        yield "gtid_set", b"\0" + text.encode()
    run = struct.pack("<QQQ", 1, 5, 9)
    yield "gtid_set", b"\1" + struct.pack("<Q", 1) + bytes(range(16)) + run
    yield "gtid_set", b"\1" + struct.pack("<Q", 1 << 56 | 1 << 8 | 1) + bytes(range(16)) + b"\x08blue" + run
    yield "gtid_set", b"\2" + struct.pack("<IIIQ", 1, 0, 7, 5)


def answers() -> Iterator[tuple[str, bytes]]:
    """Columns of all kinds (src/answers.rs) with rows that fit them, and an answer as it comes."""
    moment = struct.pack("<BHBBBBBI", 11, 2024, 2, 29, 1, 2, 3, 456)
    time = struct.pack("<BBIBBBI", 12, 1, 2, 1, 2, 3, 456)
    fixed = [bytes([7]) * width for width in (1, 1, 2, 2, 2, 4, 4, 8, 8, 4, 8)]
    decimals = [mysql_packets.sized(text) for text in (b"-12.50", b"123", b"1." + b"0" * 29 + b"5")]
    texts = [
        mysql_packets.sized(text) for text in (b"\1", b"\2\3", "é水".encode(), b"\xe9", b"\xd6\xd0", b"\0a", b"{}")
    ]
    values = [
        *fixed,
        *decimals,
        mysql_packets.sized(b"\1\2"),
        moment[:1].replace(b"\x0b", b"\4") + moment[1:5],
        moment,
        moment,
        time,
        *texts,
    ]
    rows = [
        mysql_packets.row(values),
        mysql_packets.row([None, b"\0\0"[:1], *values[2:]]),
        mysql_packets.error(1317, "x"),
    ]
    framed = b"".join(struct.pack("<H", len(row)) + row for row in rows)
    yield "rows_wire", b"\0" + bytes([len(values), *range(len(values))]) + framed
    for kind, value in enumerate(values):
        row = mysql_packets.row([value])
        yield "rows_wire", bytes([3, 1, kind]) + struct.pack("<H", len(row)) + row
    columns = [mysql_packets.Column("id", mysql_packets.LONG), mysql_packets.Column("text", mysql_packets.STRING, 45)]
    some = [mysql_packets.row([b"\1\0\0\0", mysql_packets.sized(b"text")])] * 3
    yield "rows_wire", bytes([RAW]) + mysql_packets.answer(columns, some)


def wal_seeds() -> Iterator[bytes]:
    """Small files of HBase's log."""
    for path in sorted((ROOT / "tests" / "golden" / "hbase").iterdir()):
        if path.suffix != ".gz" and path.stat().st_size < MAX_SEED_BYTES:
            yield b"\x10" + path.read_bytes()


def main() -> None:
    for target, data in all_seeds():
        directory = CORPUS / target
        directory.mkdir(parents=True, exist_ok=True)
        (directory / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


if __name__ == "__main__":
    main()
