"""The bytes of batches and of the published end."""

from __future__ import annotations

import pytest

from headrace.errors import DataError
from headrace.log.base import Entry, Record
from headrace.log.end import END_BYTES, End
from headrace.log.record import HEADER, encode, header_at, is_intact, is_plausible, run_at

ENTRIES = [Entry(b"key", b"value", 7), Entry(b"", b"", -1), Entry(b"k", b"x" * 300, 5)]


def test_a_batch_comes_back() -> None:
    data = b"before" + b"".join(encode(ENTRIES, base_offset=40, epoch=3))
    header = header_at(data, 6)
    assert (header.length, header.base_offset, header.epoch, header.max_time_ms, header.entries) == (
        len(data) - 6, 40, 3, 7, 3,
    )  # fmt: skip
    assert is_plausible(header)
    assert is_intact(header, data, 6)
    run = run_at(data, 6, 40, 0, 99)
    assert run == ([Record(40 + at, entry) for at, entry in enumerate(ENTRIES)], len(data), 43, 6, 40)
    assert run_at(data, 6, 40, 41, 42).records == run.records[1:2]


def test_a_run_ends_before_what_is_torn_spoiled_or_not_due() -> None:
    first, second = (b"".join(encode(ENTRIES, base_offset, 1)) for base_offset in (40, 43))
    both = first + second
    assert [record.offset for record in run_at(both, 0, 40, 0, 99).records] == list(range(40, 46))
    assert [record.offset for record in run_at(both, 0, 40, 44, 45).records] == [44]
    for stop in range(len(both)):
        ends = (0, 40) if stop < len(first) else (len(first), 43)
        assert run_at(both[:stop], 0, 40, 0, 99)[1:3] == ends
    assert run_at(first + b"".join(encode(ENTRIES, 44, 1)), 0, 40, 0, 99)[1:3] == (len(first), 43)
    assert run_at(first, 0, 39, 0, 99)[:3] == ([], 0, 39)
    assert run_at(both, 0, 40, 0, 43)[1:] == (len(first), 43, 0, 40)


def test_every_flipped_bit_is_noticed() -> None:
    data = b"".join(encode(ENTRIES[:2], base_offset=1, epoch=1))
    for bit in range(len(data) * 8):
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        header = header_at(bytes(spoiled), 0)
        whole = is_plausible(header) and header.length <= len(data)
        assert not (whole and is_intact(header, bytes(spoiled), 0)), f"bit {bit}"
        assert run_at(bytes(spoiled), 0, 1, 0, 9).next_offset == 1, f"bit {bit}"


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
