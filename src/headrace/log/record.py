"""The bytes of a batch: what one call of `append` writes, as one unit.

::

    +-------+-------+--------+-------------+-------+-------------+---------+---------------+-----------------+
    | magic | crc32 | length | base offset | epoch | max time ms | entries | rows          | keys and values |
    | 4     | u32   | u64    | u64         | u64   | i64         | u32     | 16 bytes each | key value key … |
    +-------+-------+--------+-------------+-------+-------------+---------+---------------+-----------------+
                    '-------------------------- the crc32 covers all from here on ---------------------------'
    a row:  u32 length of key | u32 length of value | i64 time ms                    all numbers little-endian

`length` counts the whole batch, header included, so the next batch starts there. Entry number i has the offset base + i.
`epoch` is the number of the writer that wrote it (directory.py). A batch is valid or it is not: nothing is read from one
whose crc32 differs, so half a batch is never seen as a shorter one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.errors import DataError
from headrace.log.base import Entry, Record

MAGIC = b"HRL1"
HEADER = struct.Struct("<4sIQQQqI")
_ROW = struct.Struct("<IIq")
_CRC_FROM = 8
_CRC = struct.Struct("<4sI")
_MOST_PARTS = 500


class Header(NamedTuple):
    """The fixed fields at the start of a batch, in their order on disk."""

    magic: bytes
    crc32: int
    length: int
    base_offset: int
    epoch: int
    max_time_ms: int
    entries: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.entries


class Batch(NamedTuple):
    """A batch found at `position` of a segment; its bytes start at `at` in `chunk`."""

    position: int
    header: Header
    chunk: bytes
    at: int


def encode(entries: Sequence[Entry], base_offset: int, epoch: int) -> list[bytes]:
    """The bytes of a batch of at least one entry, in parts, so that large values are not copied together."""
    rows: list[bytes] = []
    parts: list[bytes] = []
    try:
        for entry in entries:
            rows.append(_ROW.pack(len(entry.key), len(entry.value), entry.time_ms))
            parts += (entry.key, entry.value)
    except struct.error as error:
        raise DataError(
            f"entry {len(rows)} of an append does not fit the log: {error}",
            fix="keep keys and values below 4 GiB each and times within 64 bits; split the entry",
        ) from error
    if len(parts) > _MOST_PARTS:
        parts = [b"".join(parts)]
    max_time_ms = max(entry.time_ms for entry in entries)
    length = HEADER.size + len(entries) * _ROW.size + sum(map(len, parts))
    head = HEADER.pack(MAGIC, 0, length, base_offset, epoch, max_time_ms, len(entries)) + b"".join(rows)
    crc32 = zlib.crc32(head[_CRC_FROM:])
    for part in parts:
        crc32 = zlib.crc32(part, crc32)
    return [_CRC.pack(MAGIC, crc32) + head[_CRC_FROM:], *parts]


def header_at(chunk: bytes, at: int) -> Header:
    """The header at a place in `chunk` that has at least ``HEADER.size`` bytes left; nothing is checked."""
    return Header._make(HEADER.unpack_from(chunk, at))


def is_plausible(header: Header) -> bool:
    """Whether these can be the first bytes of a batch, as far as a header alone tells."""
    return header.magic == MAGIC and header.length >= HEADER.size + header.entries * _ROW.size and header.entries > 0


def is_intact(header: Header, chunk: bytes, at: int) -> bool:
    """Whether a batch that lies whole in `chunk` is what was written."""
    return zlib.crc32(memoryview(chunk)[at + _CRC_FROM : at + header.length]) == header.crc32


def records(batch: Batch, start: int, stop: int) -> Iterator[Record]:
    """The records of an intact batch with offsets in [start, stop)."""
    _, header, chunk, at = batch
    rows_at = at + HEADER.size
    key_at = rows_at + header.entries * _ROW.size
    rows = _ROW.iter_unpack(memoryview(chunk)[rows_at:key_at])
    for offset, (key_bytes, value_bytes, time_ms) in enumerate(rows, header.base_offset):
        if offset >= stop:
            return
        value_at = key_at + key_bytes
        end = value_at + value_bytes
        if offset >= start:
            yield Record(offset, Entry(chunk[key_at:value_at], chunk[value_at:end], time_ms))
        key_at = end
