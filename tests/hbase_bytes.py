"""Files of HBase's log, byte by byte as drawn at the head of rust/src/hbase/mod.rs."""

from __future__ import annotations

import struct

TABLE = "shop:orders"
OPEN = b"HBASE::REGION_EVENT::REGION_OPEN"
TRAILER = b"\0\0\0\0LAWP"


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def sized(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def numbered(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def cell(row: bytes, family: bytes, qualifier: bytes, value: bytes, timestamp: int = 1, kind: int = 4) -> bytes:
    key = (
        struct.pack(">H", len(row))
        + row
        + bytes([len(family)])
        + family
        + qualifier
        + struct.pack(">qB", timestamp, kind)
    )
    content = struct.pack(">ii", len(key), len(value)) + key + value
    return struct.pack(">i", len(content)) + content


def entry(region: str, sequence: int, *cells: bytes, written: int = 1000, table: str = TABLE) -> bytes:
    names = sized(1, region.encode()) + sized(2, table.encode())
    key = names + numbered(3, sequence) + numbered(4, written) + numbered(7, len(cells))
    return varint(len(key)) + key + b"".join(cells)


def put(region: str, sequence: int, row: str, written: int = 1000, table: str = TABLE) -> bytes:
    return entry(region, sequence, cell(row.encode(), b"d", b"q", str(sequence).encode()), written=written, table=table)


def opened(region: str, sequence: int, written: int = 1000) -> bytes:
    return entry(region, sequence, cell(b"", b"METAFAMILY", OPEN, b""), written=written)


def wal(*entries: bytes) -> bytes:
    return b"PWAL" + varint(0) + b"".join(entries)
