"""The bytes of batches and of the published end."""

from __future__ import annotations

import pytest

from headrace.errors import DataError
from headrace.log.base import Entry, Record
from headrace.log.end import END_BYTES, End
from headrace.log.record import HEADER, Batch, encode, header_at, is_intact, is_plausible, records

ENTRIES = [Entry(b"key", b"value", 7), Entry(b"", b"", -1), Entry(b"k", b"x" * 300, 5)]


def test_a_batch_comes_back() -> None:
    data = b"before" + b"".join(encode(ENTRIES, base_offset=40, epoch=3))
    header = header_at(data, 6)
    assert (header.length, header.base_offset, header.epoch, header.max_time_ms, header.entries) == (
        len(data) - 6, 40, 3, 7, 3,
    )  # fmt: skip
    assert is_plausible(header)
    assert is_intact(header, data, 6)
    found = list(records(Batch(0, header, data, 6), 0, 99))
    assert found == [Record(40 + at, entry) for at, entry in enumerate(ENTRIES)]
    assert list(records(Batch(0, header, data, 6), 41, 42)) == found[1:2]


def test_every_flipped_bit_is_noticed() -> None:
    data = b"".join(encode(ENTRIES[:2], base_offset=1, epoch=1))
    for bit in range(len(data) * 8):
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        header = header_at(bytes(spoiled), 0)
        whole = is_plausible(header) and header.length <= len(data)
        assert not (whole and is_intact(header, bytes(spoiled), 0)), f"bit {bit}"


def test_an_entry_that_does_not_fit_is_named() -> None:
    with pytest.raises(DataError, match="entry 1 of an append"):
        encode([ENTRIES[0], Entry(b"", b"", 1 << 63)], 0, 1)


def test_the_header_is_as_drawn() -> None:
    assert HEADER.size == 4 + 4 + 8 + 8 + 8 + 8 + 4


def test_an_end_comes_back_and_half_of_one_does_not() -> None:
    old = End(epoch=1, start=0, segment=0, position=10, next_offset=2).to_bytes()
    end = End(epoch=2, start=5, segment=50, position=1 << 40, next_offset=60, clean=True)
    new = end.to_bytes()
    assert len(new) == END_BYTES
    assert End.from_bytes(new) == end
    for torn_at in range(END_BYTES):
        assert End.from_bytes(new[:torn_at]) is None
        mixed = new[:torn_at] + old[torn_at:]
        assert mixed in (old, new) or End.from_bytes(mixed) is None
