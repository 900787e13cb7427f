"""Sets of rows for MariaDB: an INSERT that is prepared once takes the values of many rows in one packet, and no SQL is read for them.

::

    COM_STMT_BULK_EXECUTE   0xfa | statement u32 | 0x0080 u16: types follow | type u8, 0x80 when unsigned u8, per column | rows
    a value in a row        0x00 | an integer: 8 bytes; all others: length, and the text that a literal would have, or the bytes
    NULL                    0x01
    a length                1 byte up to 250; 0xfc and 2 bytes; 0xfd and 3; 0xfe and 8

MySQL has nothing like it, and PyMySQL no prepared statements. A server that has it says so in its greeting, a client that uses it in its answer::

    greeting   version, thread, salt, … | flags u16 | charset u8 | status u16 | flags u16 | length of salt u8 | 6 bytes | MariaDB's own flags u32 | …
    answer     flags u32, the lowest bit not set: of MariaDB | packet u32 | charset u8 | 19 bytes 0 | MariaDB's own flags u32 | user, …

The server takes the rows of a packet as one statement: all of them, or an error and none. It prepares anew by itself when somebody has changed
the table since.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection
from pymysql.constants import COMMAND, FIELD_TYPE

from headrace.ums.values import Array, join, to_text

_BULK_EXECUTE = 0xFA
_TYPES_FOLLOW = 128
_UNSIGNED = 0x80
_OF_MYSQL = 1
"""The flag that servers and clients of MariaDB do not set."""
_HAS_BULK = 1 << 2
"""Of MariaDB's own flags."""
_ANSWER_BYTES = 32
_RESERVED = slice(9, _ANSWER_BYTES)
_MOST_STATEMENTS = 16
"""How many are kept: a server has room for some thousands, for all its clients."""
_VALUE, _NULL = b"\x00", b"\x01"
_SHORT = 250


class BulkConnection(Connection):
    """A connection of PyMySQL that sends sets of rows to servers that take them."""

    takes_bulk = False
    """Whether the server does."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._is_greeted = False
        self._statements: dict[str, int] = {}
        super().__init__(*given, **options)

    def insert(self, sql: str, columns: Sequence[Array], most_bytes: int) -> None:
        """Runs an INSERT once per row of values for its ``?``, in packets of so many bytes (one row may have more)."""
        types = b"".join(map(_type_of, columns))
        head = struct.pack("<IH", self._prepared(sql), _TYPES_FOLLOW) + types
        for rows in _packets(columns, most_bytes):
            self._execute_command(_BULK_EXECUTE, head + rows)  # type: ignore[attr-defined]
            self._read_query_result()  # type: ignore[attr-defined]

    def _prepared(self, sql: str) -> int:
        """The number of the prepared statement; the one that was not used for longest goes when there are many."""
        number = self._statements.pop(sql, None)
        if number is None:
            if len(self._statements) == _MOST_STATEMENTS:
                oldest = self._statements.pop(next(iter(self._statements)))
                self._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", oldest))  # type: ignore[attr-defined]
            number = self._prepare(sql)
        self._statements[sql] = number
        return number

    def _prepare(self, sql: str) -> int:
        self._execute_command(COMMAND.COM_STMT_PREPARE, sql)  # type: ignore[attr-defined]
        number, _, parameters = struct.unpack_from("<IHH", self._read_packet().get_all_data(), 1)
        for _ in range(parameters + 1):  # what is known of them, and the end of that
            self._read_packet()
        return int(number)

    def _read_packet(self, *given: Any) -> Any:
        packet = super()._read_packet(*given)  # type: ignore[no-untyped-call]
        if not self._is_greeted:
            self._is_greeted = True
            self.takes_bulk = _offers_bulk(packet.get_all_data())
        return packet

    def write_packet(self, payload: bytes) -> None:
        # The answer, and the part of it that asks for TLS, are known by what is reserved in them.
        if self.takes_bulk and payload[_RESERVED] == bytes(_ANSWER_BYTES - _RESERVED.start):
            own_flags = struct.pack("<I", _HAS_BULK)
            answered = bytes([payload[0] & ~_OF_MYSQL]) + payload[1 : _ANSWER_BYTES - len(own_flags)] + own_flags
            payload = answered + payload[_ANSWER_BYTES:]
        super().write_packet(payload)


def _offers_bulk(greeting: bytes) -> bool:
    flags_at = greeting.find(b"\0", 1) + 1 + 4 + 8 + 1  # behind version, thread, the first part of the salt and a zero
    own_at = flags_at + 2 + 1 + 2 + 2 + 1 + 6
    if len(greeting) < own_at + 4 or greeting[flags_at] & _OF_MYSQL:
        return False
    return bool(int.from_bytes(greeting[own_at : own_at + 4], "little") & _HAS_BULK)


def _type_of(column: Array) -> bytes:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return bytes([FIELD_TYPE.LONGLONG, _UNSIGNED if pa.types.is_uint64(kind) else 0])
    return bytes([FIELD_TYPE.BLOB if pa.types.is_binary(kind) else FIELD_TYPE.VAR_STRING, 0])


def _packets(columns: Sequence[Array], most_bytes: int) -> Iterator[bytes]:
    """The rows as the server reads them, as many at a time as have so many bytes, at least one."""
    rows = join(*map(_encoded, columns), separator=b"")
    _, offsets, values = rows.buffers()
    assert offsets is not None
    assert values is not None
    ends: list[Any] = pa.Array.from_buffers(pa.int32(), len(rows) + 1, [None, offsets]).to_pylist()
    start = 0
    while start < len(rows):
        stop = max(start + 1, bisect_right(ends, ends[start] + most_bytes) - 1)
        yield values.slice(ends[start], ends[stop] - ends[start]).to_pybytes()
        start = stop


def _encoded(column: Array) -> Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        wide = column.cast(pa.uint64() if pa.types.is_uint64(kind) else pa.int64())
        head: Array | bytes = _VALUE
        value = wide.view(pa.binary(8)).cast(pa.binary())
    else:
        value = (column if pa.types.is_binary(kind) else to_text(column)).cast(pa.binary())
        head = _heads(pc.binary_length(value))  # type: ignore[call-overload]  # the stubs want an array of a named class
    encoded: Array = join(head, value, separator=b"").fill_null(_NULL)
    return encoded


def _heads(lengths: Array) -> Array:
    """What stands in front of values of such lengths."""
    if (pc.max(lengths).as_py() or 0) <= _SHORT:
        return _SHORT_HEADS.take(lengths)
    return pa.array([None if length is None else _head(length) for length in lengths.to_pylist()], pa.binary())


def _head(length: int) -> bytes:
    if length <= _SHORT:
        return _VALUE + bytes([length])
    for mark, size in ((b"\xfc", 2), (b"\xfd", 3)):
        if length < 1 << 8 * size:
            return _VALUE + mark + length.to_bytes(size, "little")
    return _VALUE + b"\xfe" + length.to_bytes(8, "little")


_SHORT_HEADS = pa.array([_head(length) for length in range(_SHORT + 1)], pa.binary())
