"""However a log is cut, damaged, fed or resumed, the decoder gives the same rows, a prefix of them, or one clear error."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from io import BytesIO
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.codec.binlog import BinlogReader, Boundary, Ddl, Rows, skim_file
from headrace.errors import CorruptError, HeadraceError
from tests import binlog_events

DATA = Path(__file__).parents[1] / "golden" / "binlog"
NAME = "mysql9-cut.000005"
LOG = (DATA / NAME).read_bytes()
SMALL_NAME = "maria-special.mariabin.000011"
SMALL = (DATA / SMALL_NAME).read_bytes()[:2090]
PACKED_NAME = "mysql8-txpayload.000011"
LOGS = {
    NAME: LOG,
    SMALL_NAME: SMALL,
    PACKED_NAME: (DATA / PACKED_NAME).read_bytes(),
    "packed-" + SMALL_NAME: binlog_events.with_compressed_events(SMALL),
}
LARGE = pytest.mark.parametrize("name", [NAME, PACKED_NAME])
SMALL_ONES = pytest.mark.parametrize("name", [SMALL_NAME, "packed-" + SMALL_NAME])

Change = tuple[object, ...]


def changes(items: tuple[Rows | Ddl, ...]) -> list[Change]:
    """Every row with its id and all its values, and every DDL statement, in the order of ids."""
    found: list[Change] = []
    for item in items:
        if isinstance(item, Ddl):
            found.append((item.id, item.sql))
            continue
        table = (item.table.schema, item.table.table)
        columns = [_comparable(column).to_pylist() for column in item.data.columns]
        found.extend((row[0], table, *row[1:]) for row in zip(*columns, strict=True))
    return sorted(found, key=lambda change: str(change[0]))


def _comparable(column: pa.Array) -> pa.Array:
    plain = pa.types.is_temporal(column.type) and not pa.types.is_date(column.type)
    return column.cast(pa.int64()) if plain else column


def decode(data: bytes, name: str, sizes: Iterator[int] | None = None) -> tuple[list[Change], HeadraceError | None]:
    """Feeds the log in pieces of the given sizes (whole without them), taking after each."""
    reader = BinlogReader(["*.*"])
    reader.start(name)
    found: list[Change] = []
    fed, there = 0, 0
    error: HeadraceError | None = None
    while there < len(data) and error is None:
        there = min(len(data), there + next(sizes)) if sizes else len(data)
        try:
            fed += reader.feed(data[fed:there])
        except HeadraceError as raised:
            error = raised
        found.extend(changes(reader.take().items))
    return found, error


@cache
def whole(name: str) -> list[Change]:
    found, error = decode(LOGS[name], name)
    assert error is None
    return found


@cache
def boundaries(name: str) -> list[Boundary]:
    log = LOGS[name]
    reader = BinlogReader(["*.*"])
    reader.start(name)
    found: list[Boundary] = []
    fed = 0
    while fed < len(log):
        fed += reader.feed(memoryview(log)[fed:], rows=1)
        boundary = reader.take().boundary
        assert boundary is not None
        assert boundary.offset == fed
        found.append(boundary)
    return found


@SMALL_ONES
def test_a_file_cut_anywhere_gives_a_prefix(name: str) -> None:
    rows = whole(name)
    for end in range(len(LOGS[name])):
        found, error = decode(LOGS[name][:end], name)
        assert error is None
        assert found == rows[: len(found)]


@LARGE
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_large_file_cut_anywhere_gives_a_prefix(name: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(LOGS[name])))
    found, error = decode(LOGS[name][:end], name)
    assert error is None
    assert found == whole(name)[: len(found)]


@LARGE
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_flipped_bit_is_never_decoded(name: str, data: st.DataObject) -> None:
    damaged = bytearray(LOGS[name])
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    found, error = decode(bytes(damaged), name)
    assert found == whole(name)[: len(found)]
    # A length that became larger reads as an event that is not all there yet; the mark of a file in use is not summed up.
    assert error is None or isinstance(error, CorruptError)


@pytest.mark.parametrize("name", LOGS)
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damage_under_a_right_checksum_is_an_error_or_other_rows(name: str, data: st.DataObject) -> None:
    unchecked = without_checksums(name)
    damaged = bytearray(unchecked)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    # Values are decoded many rows at a time, yet a broken one ends the log where it stands: as if fed event by event.
    found, error = decode(bytes(damaged), name)
    found_in_pieces, error_in_pieces = decode(bytes(damaged), name, repeat(5000))
    assert str(error) == str(error_in_pieces)
    assert found == found_in_pieces
    with suppress(HeadraceError):
        skim_file(BytesIO(damaged), name, len(damaged))


@cache
def without_checksums(name: str) -> bytes:
    """The same log as a server with binlog_checksum=NONE writes it: damage goes through to the readers of values."""
    log = LOGS[name]
    out = bytearray(log[:4])
    offset = 4
    while offset < len(log):
        kind, length = log[offset + 4], struct.unpack_from("<I", log, offset + 9)[0]
        event = bytearray(log[offset : offset + length])
        if kind == 15:
            event[-5] = 0
            event[-4:] = zlib.crc32(event[:-4]).to_bytes(4, "little")
        else:
            del event[-4:]
        struct.pack_into("<II", event, 9, len(event), len(out) + len(event))
        out += event
        offset += length
    return bytes(out)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_without_checksums_has_the_same_values(name: str) -> None:
    found, error = decode(without_checksums(name), name)
    assert error is None
    assert [change[1:] for change in found] == [change[1:] for change in whole(name)]


@LARGE
@given(st.lists(st.integers(min_value=1, max_value=20_000), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_pieces_of_any_size_give_the_same_rows(name: str, sizes: list[int]) -> None:
    def endless() -> Iterator[int]:
        yield from sizes
        while True:
            yield 10_000

    assert decode(LOGS[name], name, endless()) == (whole(name), None)


@pytest.mark.parametrize("name", LOGS)
def test_every_boundary_is_a_place_to_resume(name: str) -> None:
    rows, log = whole(name), LOGS[name]
    found = boundaries(name)
    assert len(found) > 2
    assert [boundary.id for boundary in found] == sorted(boundary.id for boundary in found)
    for boundary in found:
        reader = BinlogReader(["*.*"])
        place = {"expanded": boundary.expanded, "commit_ts_us": boundary.commit_ts_us}
        reader.start(name, boundary.offset, head=log[:4096], **place)
        assert reader.feed(log[boundary.offset :]) == len(log) - boundary.offset
        assert changes(reader.take().items) == [row for row in rows if str(row[0]) > str(boundary.id)]


def test_damage_behind_the_format_is_told_with_its_place() -> None:
    damaged = bytearray(LOG)
    behind_format = len(binlog_events.MAGIC) + struct.unpack_from("<I", LOG, 13)[0]
    struct.pack_into("<I", damaged, behind_format + 9, 9)
    with pytest.raises(CorruptError, match=rf"{NAME} at {behind_format}: an event of 9 bytes"):
        BinlogReader(["*.*"]).start(NAME, boundaries(NAME)[-1].offset, head=bytes(damaged[:4096]))


@pytest.mark.parametrize(
    ("name_bytes", "label_bytes", "error"),
    [
        (256, 1020, None),
        (257, 1020, "s.t: a column's name of 257 bytes"),
        (256, 1021, "s.t: a label of 1021 bytes"),
    ],
)
def test_names_and_labels_that_rows_repeat_are_short(name_bytes: int, label_bytes: int, error: str | None) -> None:
    """One byte of a row stands for a label, and three for a note with a name: a long one would fill the memory."""
    listed = b"\x04" + _sized(_sized(b"n" * name_bytes)) + b"\x06" + _sized(b"\x01" + _sized(b"l" * label_bytes))
    table_map = struct.pack("<IHH", 7, 0, 1) + b"\x01s\0\x01t\0\x01\xfe\x02\xf7\x01\0" + listed
    row = struct.pack("<IHHH", 7, 0, 1, 2) + b"\x01\xff\0\x01"
    form = next(binlog_events.events(LOG))
    begin = binlog_events.event(2, binlog_events.BEGIN_BODY)
    log = binlog_events.log([form, begin, binlog_events.event(19, table_map), binlog_events.event(30, row)])
    found, raised = decode(log, NAME)
    assert [change[-1] for change in found] == ([] if error else ["l" * label_bytes])
    assert (raised is None) == (error is None)
    assert raised is None or str(error) in raised.message


@pytest.mark.parametrize("before_images", [False, True])
def test_the_widest_table(before_images: bool) -> None:
    """One row has more cells than a block of the decoder has room for."""
    count = b"\xfc" + struct.pack("<H", 4096)
    table_map = struct.pack("<IHH", 7, 0, 1) + b"\x01s\0\x01t\0" + count + b"\x01" * 4096 + b"\0" + bytes(512)
    rows = struct.pack("<IHHH", 7, 0, 1, 2) + count + b"\xff" * 512 + (bytes(512) + b"\x01" * 4096) * 3
    form = next(binlog_events.events(LOG))
    begin = binlog_events.event(2, binlog_events.BEGIN_BODY)
    log = binlog_events.log([form, begin, binlog_events.event(19, table_map), binlog_events.event(30, rows)])
    reader = BinlogReader(["*.*"], before_images=before_images)
    reader.start(NAME)
    assert reader.feed(log) == len(log)
    (decoded,) = reader.take().items
    assert isinstance(decoded, Rows)
    assert decoded.data.column("@4096").to_pylist() == [1, 1, 1]


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.demand(4)
def test_an_event_whose_rows_would_fill_the_memory_comes_in_parts(broken: bool) -> None:
    """Two bytes per row in the log, and 40 kB in memory: one of 4,096 columns is there, and each row names those that are not."""
    count = b"\xfc" + struct.pack("<H", 4096)
    table_map = struct.pack("<IHH", 7, 0, 1) + b"\x01s\0\x01t\0" + count + b"\x01" * 4096 + b"\0" + bytes(512)
    rows = b"".join(bytes([0, number % 100]) for number in range(1500)) + b"\0" * broken
    rows_event = struct.pack("<IHHH", 7, 0, 1, 2) + count + b"\x01" + bytes(511) + rows
    head = [next(binlog_events.events(LOG)), binlog_events.event(2, binlog_events.BEGIN_BODY)]
    head.append(binlog_events.event(19, table_map))
    log = binlog_events.log([*head, binlog_events.event(30, rows_event)])
    rows_offset = len(binlog_events.log(head))
    reader = BinlogReader(["*.*"], before_images=True)
    reader.start(NAME)
    parts: list[list[int]] = []
    data: bytes | None = log
    error: HeadraceError | None = None
    while data is not None:
        try:
            reader.feed(data, size_bytes=1 << 20)
        except HeadraceError as raised:
            error = raised
        data = b"" if reader.in_payload and error is None else None
        parts.append([])
        for item in reader.take().items:
            assert isinstance(item, Rows)
            parts[-1].extend(item.data.column("@1").to_pylist())
            assert item.data.column("_ums_offset_").unique().to_pylist() == [rows_offset]
    assert [value for part in parts for value in part] == [number % 100 for number in range(1500)]
    assert max(map(len, parts)) < 500
    assert (error is not None) == broken
    assert error is None or f"{NAME} at {rows_offset}: table s.t: 2 bytes are needed where 1 are left" in error.message


def _sized(value: bytes) -> bytes:
    """Bytes behind their length."""
    return b"\xfc" + len(value).to_bytes(2, "little") + value


def test_no_boundary_within_a_transaction() -> None:
    end = boundaries(NAME)[-3].offset
    reader = BinlogReader(["*.*"])
    reader.start(NAME)
    fed = reader.feed(LOG[: end - 40])
    reader.take()
    assert not reader.at_boundary
    reader.feed(LOG[fed:end])
    decoded = reader.take()
    assert decoded.boundary is not None
    assert decoded.boundary.offset == end


@LARGE
@pytest.mark.parametrize("limit", [1, 100, 5000, 1 << 24])
def test_packets_of_a_connection_give_the_same_rows(name: str, limit: int) -> None:
    reader = BinlogReader(["*.*"], network=True)
    reader.start(name, 4)
    stream = packets(name)
    found: list[Change] = []
    fed, there = 0, 0
    while there < len(stream):
        there = min(len(stream), there + max(limit, 3000))
        while used := reader.feed(memoryview(stream)[fed:there], rows=limit):
            fed += used
            found.extend(changes(reader.take().items))
    assert found == whole(name)


@pytest.mark.parametrize("name", LOGS)
def test_a_connection_begins_at_every_boundary(name: str) -> None:
    rows = whole(name)
    for boundary in boundaries(name):
        reader = BinlogReader(["*.*"], network=True)
        reader.start(name, boundary.offset, expanded=boundary.expanded, commit_ts_us=boundary.commit_ts_us)
        stream = packets(name, boundary.offset)
        assert reader.feed(stream) == len(stream)
        assert changes(reader.take().items) == [row for row in rows if str(row[0]) > str(boundary.id)]


@pytest.mark.parametrize("moved", [0, 5 << 30])
@pytest.mark.parametrize("older", [0, 1])
@pytest.mark.parametrize("name", [NAME, SMALL_NAME])
def test_a_connection_asked_by_gtid_finds_its_place(name: str, older: int, moved: int) -> None:
    """Such a server begins at the start of the file, and leaves out what is known: positions there have 32 bits. What MySQL says
    of its end can name `older` transactions than those before the place: what it sends of these is passed over, but for its name."""
    rows, found = whole(name), boundaries(name)
    middle = len(found) // 2
    boundary, known_to = found[middle], found[middle - older]
    assert boundary.expanded == known_to.expanded
    reader = BinlogReader(["*.*"], network=True)
    place = {"expanded": boundary.expanded, "gtids": known_to.gtids, "commit_ts_us": known_to.commit_ts_us}
    reader.start(name, boundary.offset + moved, **place)
    begun = _packets(name, 4, LOGS[name][: _first_transaction(LOGS[name])])
    known = len(_packet(_rotate(name, 4), 1))
    stream = begun + _packets(name, known_to.offset, LOGS[name], moved)[known:]
    assert reader.feed(stream) == len(stream)
    decoded = reader.take()
    expected = [row for row in rows if int(str(row[0])) > boundary.id]
    assert expected
    assert [int(str(row[0])) - moved for row in changes(decoded.items)] == [row[0] for row in expected]
    assert decoded.boundary is not None
    assert decoded.boundary.id > max(row[0] for row in expected if isinstance(row[0], int))
    assert decoded.boundary.gtids == found[-1].gtids


def _first_transaction(log: bytes) -> int:
    """Where the first event is that names a transaction."""
    offset = 4
    while log[offset + 4] not in (33, 34, 162):
        offset += struct.unpack_from("<I", log, offset + 9)[0]
    return offset


def test_an_update_that_moves_a_row_is_whole_or_not_there() -> None:
    """The delete that it begins with is not handed out when the insert cannot be decoded."""
    names = b"\x04\x05\x02id\x01j\x08\x01\0"
    table_map = struct.pack("<IHH", 7, 0, 1) + b"\x01s\0\x01t\0\x02\x03\xf5\x01\x04\x02" + names
    fine, broken = b"\x0c\x01a", b"\x7f\x01a"

    def image(id_: int, json: bytes) -> bytes:
        return b"\0" + struct.pack("<II", id_, len(json)) + json

    def rows(kind: int, bitmaps: bytes, *images: bytes) -> bytes:
        return binlog_events.event(kind, struct.pack("<IHHH", 7, 0, 1, 2) + b"\x02" + bitmaps + b"".join(images))

    insert = rows(30, b"\x03", image(1, fine), image(2, fine))
    update = rows(31, b"\x03\x03", image(1, fine), image(3, fine), image(2, fine), image(4, broken))
    form = next(binlog_events.events(LOG))
    begin = binlog_events.event(2, binlog_events.BEGIN_BODY)
    log = binlog_events.log([form, begin, binlog_events.event(19, table_map), insert, update])
    reader = BinlogReader(["*.*"])
    reader.start(NAME)
    with pytest.raises(CorruptError, match=r"s\.t"):
        reader.feed(log)
    (decoded,) = reader.take().items
    assert isinstance(decoded, Rows)
    ops_and_keys = zip(*(decoded.data.column(name).to_pylist() for name in ("_ums_op_", "id")), strict=True)
    assert list(ops_and_keys) == [("i", 1), ("i", 2), ("d", 1), ("i", 3)]


@cache
def packets(name: str, start: int = 4) -> bytes:
    """What a server sends for COM_BINLOG_DUMP: an artificial rotate event, the format, then the events, each in a packet."""
    return _packets(name, start, LOGS[name])


def test_a_log_never_goes_on_where_it_has_been() -> None:
    body = struct.pack("<Q", 4) + NAME.encode()
    back = struct.pack("<IBIIIH", 1, 4, 9, 23 + len(body), len(LOG) + 23 + len(body), 0) + body
    back += zlib.crc32(back).to_bytes(4, "little")
    reader = BinlogReader(["*.*"], network=True)
    reader.start(NAME, 4)
    with pytest.raises(CorruptError, match=f"the log goes on at {NAME} at 4, before this place"):
        reader.feed(_packets(NAME, 4, LOG) + _packet(back, 1))


def _packets(name: str, start: int, log: bytes, moved: int = 0) -> bytes:
    """`moved`: how much larger positions are than those in the log."""
    out = bytearray(_packet(_rotate(name, start), 1))
    offset, sequence = start, 2
    if start > 4:
        form = bytearray(log[4 : 4 + struct.unpack_from("<I", log, 13)[0]])
        form[13:17] = bytes(4)
        form[-4:] = zlib.crc32(form[:-4]).to_bytes(4, "little")
        out += _packet(bytes(form), sequence)
        sequence += 1
    while offset < len(log):
        length = struct.unpack_from("<I", log, offset + 9)[0]
        event = bytearray(log[offset : offset + length])
        struct.pack_into("<I", event, 13, (offset + length + moved) % 2**32)
        event[-4:] = zlib.crc32(event[:-4]).to_bytes(4, "little")
        out += _packet(bytes(event), sequence)
        offset, sequence = offset + length, sequence + 1
    return bytes(out)


def _rotate(name: str, start: int) -> bytes:
    body = struct.pack("<Q", start) + name.encode()
    return struct.pack("<IBIIIH", 0, 4, 9, 19 + len(body), 0, 0x20) + body


def _packet(event: bytes, sequence: int) -> bytes:
    return struct.pack("<I", len(event) + 1)[:3] + bytes([sequence % 256, 0]) + event
