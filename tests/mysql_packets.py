"""What a MySQL or MariaDB server answers to a prepared SELECT, made by hand: packets of columns, rows and ends."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FULL_BYTES = (1 << 24) - 1
END = b"\xfe\0\0\2\0"
UTF8MB4, BINARY = 45, 63
UNSIGNED = 0x20
LONG, TIMESTAMP, TIME, DATETIME, BIT, DECIMAL, BLOB, STRING = 3, 7, 11, 12, 16, 246, 252, 254


@dataclass(frozen=True)
class Column:
    """A column as its definition tells it; `code` is one of the types above."""

    name: str
    code: int
    collation: int = BINARY
    flags: int = 0
    decimals: int = 0

    def payload(self) -> bytes:
        names = [b"def", b"shop", b"orders", b"orders", self.name.encode(), self.name.encode()]
        traits = struct.pack("<BHIBHBH", 12, self.collation, 0, self.code, self.flags, self.decimals, 0)
        return b"".join(map(sized, names)) + traits


def sized(value: bytes) -> bytes:
    """Bytes behind their length."""
    length = len(value)
    if length <= 250:
        return bytes([length]) + value
    return (
        b"\xfc" + struct.pack("<H", length) if length < 1 << 16 else b"\xfd" + struct.pack("<I", length)[:3]
    ) + value


def row(values: Sequence[bytes | None]) -> bytes:
    """A row of values in their binary form, None for null."""
    nulls = sum(1 << index + 2 for index, value in enumerate(values) if value is None)
    bitmap = nulls.to_bytes((len(values) + 9) // 8, "little")
    return b"\0" + bitmap + b"".join(value for value in values if value is not None)


def error(code: int, text: str) -> bytes:
    return b"\xff" + struct.pack("<H", code) + b"#HY000" + text.encode()


def packets(payloads: Iterable[bytes]) -> bytes:
    """Payloads with their headers, numbered from 1 on; long ones go on in a packet more."""
    out, number = bytearray(), 1
    for payload in payloads:
        for start in range(0, len(payload) + 1, FULL_BYTES):
            part = payload[start : start + FULL_BYTES]
            out += struct.pack("<I", len(part))[:3] + bytes([number & 255]) + part
            number += 1
    return bytes(out)


def answer(columns: Sequence[Column], rows: Iterable[bytes], end: bytes = END) -> bytes:
    """The whole answer; `end` may be an error."""
    return packets([bytes([len(columns)]), *(column.payload() for column in columns), END, *rows, end])
