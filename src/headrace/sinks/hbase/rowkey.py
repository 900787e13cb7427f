"""Row keys: a row's key columns as the bytes that HBase sorts by.

A pattern says what a row key is made of, from left to right::

    {key}              all key columns, joined by ":"            {salt:16}   one of 16 buckets: CRC-32 of {key}, modulo 16
    {customer}         one key column                            {hash:8}    the first 8 digits (binary: bytes) of the MD5 of {key}
    {id:reverse}       its characters backwards (binary: bytes)  anything else stands as it is (text only)
    {id:012}           a whole number, zeros in front of it (text only)

``key_encoding: text`` ::

    "{salt:16}-{customer:reverse}:{id:08}"    ->    0b-24:00000017
                                                    |  |  +-- values as ums.values.to_text writes them; no value at all is "%"
                                                    |  +----- "%" and every sign that the pattern has between parts are %XX in values
                                                    +-------- two hexadecimal digits

``key_encoding: binary``, whose order is that of the values; nothing stands between parts::

    salt                             1 byte
    integers but uint64, dates       8 bytes, big endian, sign bit turned over     (dates: days since 1970)
    timestamps, times                the same, of microseconds
    uint64                           8 bytes, big endian
    boolean                          1 byte, 00 or 01
    float, double                    8 bytes of the double: positive ones with the sign bit turned over, negative ones with all bits
    decimal                          32 bytes, big endian: the digits without point as one number, sign bit turned over
    text (UTF-8), binary             each byte 00 as 00 FF, then 00 00

Why two rows never share a row key. Every key column is in it whole. Binary: the bytes of a value tell where they end. Text: between two columns
stands a sign (checked here) that does not occur in values, so the n-th such sign is always the same one of the pattern; all else that stands
there, salt and hash too, has a fixed length. Why a row always has the same row key: only columns of the key are in it, and a width of a type
that may grow (int to bigint) is not. What would change it (another scale of a decimal, say) is refused: `kinds` is kept with the table.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context
from string import Formatter
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, DataError
from headrace.ums.schema import TableSchema
from headrace.ums.values import Array, is_bytes, is_text, micros, to_text

LONGEST_BYTES = 32767
_KEY_SEPARATOR = ":"
_SIGN_BIT = 1 << 63
_WORD = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_DECIMAL_BYTES = 32
_DECIMAL_SIGN = 1 << (8 * _DECIMAL_BYTES - 1)
_DIGITS = Context(prec=76)
_SPECIAL = ("key", "salt", "hash")


@dataclass(frozen=True, slots=True)
class _Part:
    literal: str = ""
    column: str = ""
    """A column's name, or one of `_SPECIAL`."""
    how: str = ""
    """What stands behind the colon."""


def parse(pattern: str) -> list[_Part]:
    """The parts of a pattern; ValueError says what is wrong with it."""
    try:
        found = list(Formatter().parse(pattern))
    except ValueError as error:
        raise ValueError(f"'{pattern}' is not a pattern: {error}") from error
    parts = []
    for literal, column, how, conversion in found:
        if "%" in literal or conversion:
            raise ValueError(f"'{pattern}': % and ! have no place in a pattern of row keys")
        if literal:
            parts.append(_Part(literal=literal))
        if column is not None:
            _check_part(pattern, column, how or "")
            parts.append(_Part(column=column, how=how or ""))
    if not any(part.column not in ("", "salt", "hash") for part in parts):
        raise ValueError(f"'{pattern}' names no column: write {{key}}, or the names of key columns")
    return parts


def _check_part(pattern: str, column: str, how: str) -> None:
    number = int(how) if how.isdecimal() else 0
    right = {
        "key": how == "",
        "salt": 2 <= number <= 256,
        "hash": 1 <= number <= 32,
        "": False,
    }.get(column, how in ("", "reverse") or (how.startswith("0") and 1 <= number <= 40))
    if not right:
        raise ValueError(
            f"'{pattern}': {{{column}{':' if how else ''}{how}}} is not a part; there are {{key}}, {{column}}, {{column:reverse}}, {{column:012}}, "
            "{salt:2} to {salt:256} and {hash:1} to {hash:32}"
        )


class RowKeys:
    """The row keys of one version of a table."""

    def __init__(self, pattern: str, encoding: str, table: TableSchema) -> None:
        self._table = table
        self._is_text = encoding == "text"
        self._parts = self._in_columns(parse(pattern))
        self._check(pattern)
        signs = {sign for part in self._parts for sign in part.literal if not sign.isalnum()}
        self._signs = "%" + "".join(sorted(signs))

    @property
    def kinds(self) -> list[str]:
        """What each key column is, as far as its bytes depend on it."""
        return [_kind(self._table.column(name).type) for name in self._table.key]

    def of(self, data: pa.RecordBatch) -> list[bytes]:
        """The row key of each row; DataError when a row has none."""
        columns: dict[str, list[bytes]] = {}
        for part in self._parts:
            if part.column and part.column not in _SPECIAL:
                columns[f"{part.column}:{part.how}"] = self._column(data, part)
        if any(part.column in ("salt", "hash") for part in self._parts):
            whole = [self._column(data, _Part(column=name)) for name in self._table.key]
            separator = _KEY_SEPARATOR.encode() if self._is_text else b""
            keys = [separator.join(values) for values in zip(*whole, strict=True)]
        pieces: list[Sequence[bytes]] = []
        for part in self._parts:
            if part.literal:
                pieces.append([part.literal.encode()] * data.num_rows)
            elif part.column in ("salt", "hash"):
                pieces.append([self._digest(key, part) for key in keys])
            else:
                pieces.append(columns[f"{part.column}:{part.how}"])
        return self._checked([b"".join(values) for values in zip(*pieces, strict=True)])

    def _checked(self, keys: list[bytes]) -> list[bytes]:
        if keys and max(map(len, keys)) > LONGEST_BYTES:
            raise DataError(
                f"table {self._table.namespace.all_versions}: a row's key has more than the {LONGEST_BYTES} bytes that HBase takes",
                fix="name shorter key columns with the flow's `key`, or leave the table out",
            )
        return keys

    def _in_columns(self, parts: list[_Part]) -> list[_Part]:
        """The parts with the columns in place of {key}."""
        separator = [_Part(literal=_KEY_SEPARATOR)] if self._is_text else []
        made: list[_Part] = []
        for part in parts:
            if part.column != "key":
                made.append(part)
                continue
            for n, name in enumerate(self._table.key):
                made += [*(separator if n else []), _Part(column=name)]
        return made

    def _check(self, pattern: str) -> None:
        named = {part.column for part in self._parts if part.column not in ("", "salt", "hash")}
        space = self._table.namespace.all_versions
        if named != set(self._table.key):
            raise ConfigError(
                f"the row key '{pattern}' does not have exactly the key columns of {space}: {', '.join(self._table.key)}",
                fix="name each of them once in `row_key`, or write {key}; other key columns are named by the flow's `key`",
            )
        if self._is_text and self._has_columns_side_by_side():
            raise ConfigError(
                f"in the row key '{pattern}' two columns of {space} stand side by side",
                fix="put a sign between them, such as {customer}:{id}, or write `key_encoding: binary`",
            )
        for part in self._parts:
            self._check_how(part, pattern)

    def _has_columns_side_by_side(self) -> bool:
        """Whether there are two columns with no sign between them by which the end of the first is known."""
        apart = True
        for part in self._parts:
            if part.literal:
                apart = apart or not part.literal.isalnum()
            elif part.column not in ("salt", "hash"):
                if not apart:
                    return True
                apart = False
        return False

    def _check_how(self, part: _Part, pattern: str) -> None:
        if not self._is_text and part.literal:
            raise ConfigError(
                f"the row key '{pattern}' has '{part.literal}' between its parts, and binary ones need nothing there",
                fix="leave it away, or write `key_encoding: text`",
            )
        if not part.column or part.column in ("salt", "hash"):
            return
        kind = self._table.column(part.column).type
        whole = pa.types.is_integer(kind)
        wrong = (part.how == "reverse" and not self._is_text and (is_text(kind) or is_bytes(kind))) or (
            part.how.isdecimal() and not (self._is_text and whole)
        )
        if wrong:
            raise ConfigError(
                f"the row key '{pattern}' has {{{part.column}:{part.how}}}, and the column is {kind}",
                fix="zeros go in front of whole numbers in a key of text; binary keys of text cannot be reversed: use {salt:16} or {hash:4}",
            )

    def _column(self, data: pa.RecordBatch, part: _Part) -> list[bytes]:
        column = data.column(part.column)
        if column.null_count:
            raise DataError(
                f"table {self._table.namespace.all_versions}: a row has no value in a key column",
                fix="name key columns that are never null, or leave the table out",
            )
        if not self._is_text:
            values = _sortable(column)
            return [value[::-1] for value in values] if part.how == "reverse" else values
        text = to_text(column)
        if part.how == "reverse":
            text = pc.utf8_reverse(text)
        values_ = [str(value) for value in text.to_pylist()]
        if part.how.isdecimal():
            values_ = [value.zfill(int(part.how)) for value in values_]
        return [self._quoted(value) for value in values_]

    def _quoted(self, value: str) -> bytes:
        if not value:
            return b"%"
        if any(sign in value for sign in self._signs):
            value = re.sub(f"[{re.escape(self._signs)}]", lambda sign: _percent(sign[0]), value)
        return value.encode()

    def _digest(self, key: bytes, part: _Part) -> bytes:
        if part.column == "salt":
            bucket = crc32(key) % int(part.how)
            return b"%02x" % bucket if self._is_text else bytes([bucket])
        digest = hashlib.md5(key, usedforsecurity=False)
        return digest.hexdigest()[: int(part.how)].encode() if self._is_text else digest.digest()[: int(part.how)]


def salt_splits(pattern: str, encoding: str) -> list[bytes]:
    """Where regions begin when a pattern begins with a salt: each bucket is one."""
    first = parse(pattern)[0]
    if first.column != "salt":
        return []
    return [b"%02x" % n if encoding == "text" else bytes([n]) for n in range(1, int(first.how))]


def _percent(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode())


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "uint64" if kind == pa.uint64() else "integer"
    if pa.types.is_decimal(kind):
        return f"decimal with {kind.scale} digits behind the point"
    if is_text(kind):
        return "text"
    return "binary" if is_bytes(kind) else str(kind)


def _sortable(column: Array) -> list[bytes]:
    kind = column.type
    if is_text(kind) or is_bytes(kind):
        raw: list[Any] = column.cast(pa.large_binary()).to_pylist()
        return [value.replace(b"\0", b"\0\xff") + b"\0\0" for value in raw]
    values: list[Any] = _whole(column).to_pylist()
    if pa.types.is_boolean(kind):
        return [b"\1" if value else b"\0" for value in values]
    if pa.types.is_floating(kind):
        return [_sortable_double(value) for value in values]
    if pa.types.is_decimal(kind):
        digits = [int(value.scaleb(kind.scale, _DIGITS)) for value in values]
        return [(number + _DECIMAL_SIGN).to_bytes(_DECIMAL_BYTES, "big") for number in digits]
    return [_WORD.pack(value if kind == pa.uint64() else value + _SIGN_BIT) for value in values]


def _whole(column: Array) -> Array:
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        return micros(column)
    return column.view(pa.int32()) if pa.types.is_date32(column.type) else column


def _sortable_double(value: float) -> bytes:
    [bits] = _WORD.unpack(_DOUBLE.pack(value + 0.0))  # there is no -0.0 beside 0.0 in a key
    return _WORD.pack(bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits & _SIGN_BIT else _SIGN_BIT))
