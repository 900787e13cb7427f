"""The published end of a partition: up to where its log is durable, who writes it, and where it starts.

::

    file `end`, 64 bytes, written in place by one pwrite
    +-------+-------+-------+-------+---------+----------+-------------+-------+----------+
    | magic | crc32 | epoch | start | segment | position | next offset | clean | reserved |
    | 4     | u32   | u64   | u64   | u64     | u64      | u64         | u8    | zeros    |
    +-------+-------+-------+-------+---------+----------+-------------+-------+----------+
                    '---------------- the crc32 covers all from here on ------------------'

`start` is the oldest kept offset; `segment` the base offset of the newest segment and `position` its durable length; `clean`
is 1 when a writer has closed; it counts as long as `epoch` is the newest (ownership.py). A reader that races with the pwrite may see half of each: the
crc32 tells, and it reads again. A disk writes a sector (512 bytes) whole or not at all, so a power loss leaves the old or
the new end, and an old one is only behind, never wrong.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Self

END_BYTES = 64
_MAGIC = b"HRE1"
_CRC = struct.Struct("<4sI")
_FIELDS = struct.Struct("<QQQQQB15x")


@dataclass(frozen=True, slots=True)
class End:
    """What a writer has published; see the drawing above."""

    epoch: int
    start: int
    segment: int
    position: int
    next_offset: int
    clean: bool = False

    def to_bytes(self) -> bytes:
        fields = _FIELDS.pack(self.epoch, self.start, self.segment, self.position, self.next_offset, self.clean)
        return _CRC.pack(_MAGIC, zlib.crc32(fields)) + fields

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """The end, or None when the bytes are not a whole and undamaged one."""
        if len(data) < END_BYTES:
            return None
        magic, crc32 = _CRC.unpack_from(data)
        if magic != _MAGIC or zlib.crc32(data[_CRC.size : END_BYTES]) != crc32:
            return None
        epoch, start, segment, position, next_offset, clean = _FIELDS.unpack_from(data, _CRC.size)
        return cls(epoch, start, segment, position, next_offset, bool(clean))
