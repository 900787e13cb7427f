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

A batch with the magic HRT1 is a header alone and holds no entry, only the one offset that it takes: where an offset can be
taken once only, that is how a new writer stops the one before it (shared/s3.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headrace._native import checksum, records_of_chunk
from headrace.errors import DataError
from headrace.log.base import Entry, Record

MAGIC = b"HRL1"
TAKEN = b"HRT1"
_NO_TIME = -(1 << 63)
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


class Run(NamedTuple):
    """Batches that follow one another in a chunk: their records, and where they are in it."""

    records: list[Record]
    stop_at: int
    """Where the next batch begins."""
    next_offset: int
    last_at: int
    """Where the last batch begins."""
    last_offset: int


def encode(entries: Sequence[Entry], base_offset: int, epoch: int) -> list[bytes]:
    """The bytes of a batch of at least one entry, in parts, so that large values are not copied together."""
    try:
        rows = [_ROW.pack(len(key), len(value), time_ms) for key, value, time_ms in entries]
    except struct.error as error:
        raise DataError(
            f"entry {_first_misfit(entries)} of an append does not fit the log: {error}",
            fix="keep keys and values below 4 GiB each and times within 64 bits; split the entry",
        ) from error
    parts = [part for key, value, _ in entries for part in (key, value)]
    if len(parts) > _MOST_PARTS:
        parts = [b"".join(parts)]
    max_time_ms = max(entry.time_ms for entry in entries)
    length = HEADER.size + len(entries) * _ROW.size + sum(map(len, parts))
    head = HEADER.pack(MAGIC, 0, length, base_offset, epoch, max_time_ms, len(entries)) + b"".join(rows)
    crc32 = checksum(head, _CRC_FROM)
    for part in parts:
        crc32 = checksum(part, before=crc32)
    return [_CRC.pack(MAGIC, crc32) + head[_CRC_FROM:], *parts]


def encode_taken(base_offset: int, epoch: int) -> bytes:
    """The bytes of a batch that takes one offset and holds no entry."""
    head = HEADER.pack(TAKEN, 0, HEADER.size, base_offset, epoch, _NO_TIME, 1)
    return _CRC.pack(TAKEN, checksum(head, _CRC_FROM)) + head[_CRC_FROM:]


def _first_misfit(entries: Sequence[Entry]) -> int:
    most = 1 << 32
    fits = (len(key) < most and len(value) < most and abs(2 * time_ms + 1) < 1 << 64 for key, value, time_ms in entries)
    return next(number for number, fit in enumerate(fits) if not fit)


def header_at(chunk: bytes, at: int) -> Header:
    """The header at a place in `chunk` that has at least ``HEADER.size`` bytes left; nothing is checked."""
    return Header._make(HEADER.unpack_from(chunk, at))


def is_plausible(header: Header) -> bool:
    """Whether these can be the first bytes of a batch, as far as a header alone tells."""
    if header.magic == TAKEN:
        return header.length == HEADER.size and header.entries == 1
    return header.magic == MAGIC and header.length >= HEADER.size + header.entries * _ROW.size and header.entries > 0


def is_intact(header: Header, chunk: bytes, at: int) -> bool:
    """Whether a batch that lies whole in `chunk` is what was written."""
    return checksum(chunk, at + _CRC_FROM, at + header.length) == header.crc32


def run_at(chunk: bytes, at: int, next_offset: int, start: int, stop: int) -> Run:
    """The batches from `at` on, where `next_offset` is due, with their records of offsets in [start, stop).

    It ends behind the entry before `stop`, and before the first batch that is not whole in the chunk, intact and in its place.
    """
    return Run(*records_of_chunk(chunk, at, next_offset, start, stop, Record, Entry))
