"""Recorded logs taken apart and put together again, the way a server with compression would have written them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

import pyarrow as pa

HEADER_BYTES = 19
MAGIC = b"\xfebin"
_QUERY, _FORMAT, _XID, _GTID, _PAYLOAD = 2, 15, 16, 33, 40
_ROWS_V1 = {23: 166, 24: 167, 25: 168}
_QUERY_COMPRESSED = 165
NONE = 255


def events(log: bytes) -> Iterator[bytes]:
    """The events of a log with checksums, without them."""
    offset = len(MAGIC)
    while offset < len(log):
        length = struct.unpack_from("<I", log, offset + 9)[0]
        yield log[offset : offset + length - 4]
        offset += length


def event(kind: int, body: bytes, seconds: int = 0) -> bytes:
    """An event without its checksum; `log` fits it into its place."""
    return struct.pack("<IBIIIH", seconds, kind, 1, HEADER_BYTES + len(body), 0, 0) + body


BEGIN_BODY = bytes(14) + b"BEGIN"
"""Of a QUERY event: what opens a transaction."""


def log(parts: Iterable[bytes]) -> bytes:
    """A log of these events, with lengths, positions and checksums that fit."""
    out = bytearray(MAGIC)
    for part in parts:
        whole = bytearray(part)
        struct.pack_into("<II", whole, 9, len(whole) + 4, len(out) + len(whole) + 4)
        out += whole + zlib.crc32(whole).to_bytes(4, "little")
    return bytes(out)


def stream(inner: Iterable[bytes]) -> bytes:
    """Events one behind the other, with lengths that fit."""
    out = bytearray()
    for part in inner:
        whole = bytearray(part)
        struct.pack_into("<I", whole, 9, len(whole))
        out += whole
    return bytes(out)


def payload(plain: bytes, compression: int = 0, *, plain_bytes: int | None = None) -> bytes:
    """A TRANSACTION_PAYLOAD event of a stream; `plain_bytes` is what it says of its size."""
    packed = plain if compression == NONE else pa.Codec("zstd").compress(plain, asbytes=True)
    said = len(plain) if plain_bytes is None else plain_bytes
    fields = _field(2, compression) + _field(1, len(packed)) + _field(3, said) + b"\0"
    return event(_PAYLOAD, fields + packed, struct.unpack_from("<I", plain)[0])


def _field(kind: int, value: int) -> bytes:
    number = bytes([value]) if value < 251 else b"\xfe" + value.to_bytes(8, "little")
    return bytes([kind, len(number)]) + number


def with_payloads(recorded: bytes, compression: int = 0) -> bytes:
    """A log of MySQL with every transaction of rows in a payload."""

    def parts() -> Iterator[bytes]:
        inner: list[bytes] = []
        for part in events(recorded):
            if inner or (part[4] == _QUERY and part.endswith(b"\0BEGIN")):
                inner.append(part)
                if part[4] == _XID:
                    yield payload(stream(inner), compression)
                    inner = []
            else:
                yield part
        yield from inner

    return log(parts())


def with_compressed_events(recorded: bytes) -> bytes:
    """A log of MariaDB with every query and every event of rows compressed."""

    def compressed(part: bytes) -> bytes:
        if part[4] == _QUERY:
            front = (
                HEADER_BYTES + 13 + struct.unpack_from("<H", part, HEADER_BYTES + 11)[0] + part[HEADER_BYTES + 8] + 1
            )
            kind = _QUERY_COMPRESSED
        elif part[4] in _ROWS_V1:
            # Fewer than 251 columns.
            front = HEADER_BYTES + 9 + (part[HEADER_BYTES + 8] + 7) // 8 * (2 if part[4] == 24 else 1)
            kind = _ROWS_V1[part[4]]
        else:
            return part
        plain = part[front:]
        width = (len(plain).bit_length() + 7) // 8
        packed = bytes([0x80 | width]) + len(plain).to_bytes(width, "big") + zlib.compress(plain)
        return part[:4] + bytes([kind]) + part[5:front] + packed

    return log(map(compressed, events(recorded)))


def payload_of_rows(rows: int, compression: int = 0) -> bytes:
    """A log whose one transaction inserts (1), (2), … into s.t (id INT PRIMARY KEY), in a payload of few bytes."""
    table_map = struct.pack("<IHH", 7, 0, 1) + b"\x01s\0\x01t\0\x01\x03\0\0" + _names(b"id")
    inner = [event(_QUERY, bytes(13) + b"\0BEGIN"), event(19, table_map)]
    for first in range(1, rows + 1, 1000):
        images = b"".join(b"\0" + struct.pack("<I", id_) for id_ in range(first, min(first + 1000, rows + 1)))
        inner.append(event(30, struct.pack("<IHHH", 7, 0, 1, 2) + b"\x01\xff" + images))
    inner.append(event(_XID, bytes(8)))
    form = bytearray(struct.pack("<H50sIB", 4, b"8.0.36", 0, HEADER_BYTES) + bytes(40) + b"\x01")
    gtid = b"\0" + bytes(16) + struct.pack("<Q", 1)
    return log([event(_FORMAT, bytes(form)), event(_GTID, gtid), payload(stream(inner), compression)])


def _names(*names: bytes) -> bytes:
    """The table map's optional fields: names of the columns and a key of the first one."""
    listed = b"".join(bytes([len(name)]) + name for name in names)
    return bytes([4, len(listed)]) + listed + b"\x08\x01\0"
