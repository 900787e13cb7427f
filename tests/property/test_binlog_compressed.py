"""Compressed logs give what the same logs give without compression; their ids are unique, ordered and equal when read again."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.capture.mysql import MySqlConfig, MySqlSource
from headrace.codec.binlog import BinlogReader, Boundary, Decoded, Rows, decode_file, skim_file
from headrace.errors import CorruptError, HeadraceError, SourceError
from tests import binlog_events
from tests.property.test_binlog_damage import Change, changes, decode

DATA = Path(__file__).parents[1] / "golden" / "binlog"
MYSQL, PAYLOADS, MARIADB = "mysql9-cut.000005", "mysql8-txpayload.000011", "maria-special.mariabin.000011"
ROWS = int(os.environ.get("HEADRACE_PAYLOAD_ROWS", "300000"))


@cache
def log(form: str) -> tuple[str, bytes]:
    """The name and the bytes of a compressed log."""
    mysql, mariadb = (DATA / MYSQL).read_bytes(), (DATA / MARIADB).read_bytes()[:2090]
    match form:
        case "recorded":
            return PAYLOADS, (DATA / PAYLOADS).read_bytes()
        case "zstd":
            return MYSQL, binlog_events.with_payloads(mysql)
        case "none":
            return MYSQL, binlog_events.with_payloads(mysql, binlog_events.NONE)
        case _:
            return MARIADB, binlog_events.with_compressed_events(mariadb)


def in_steps(data: bytes, name: str, start: Boundary | None = None) -> list[Decoded]:
    """Decoded one transaction at a time."""
    reader = BinlogReader(["*.*"])
    if start is None:
        reader.start(name)
    else:
        place = {"expanded": start.expanded, "commit_ts_us": start.commit_ts_us}
        reader.start(name, start.offset, head=data[:4096], **place)
    found: list[Decoded] = []
    fed = start.offset if start else 0
    while fed < len(data) or reader.in_payload:
        fed += reader.feed(memoryview(data)[fed:], rows=1)
        found.append(reader.take())
    reader.finish()
    return found


def all_changes(steps: list[Decoded]) -> list[Change]:
    return [change for decoded in steps for change in changes(decoded.items)]


@pytest.mark.parametrize("form", ["zstd", "none", "mariadb"])
def test_compression_changes_nothing_but_ids(form: str) -> None:
    name, data = log(form)
    plain = (DATA / MYSQL).read_bytes() if name == MYSQL else (DATA / MARIADB).read_bytes()[:2090]
    assert data != plain
    found, error = decode(data, name)
    expected, _ = decode(plain, name)
    assert error is None
    assert [change[1:] for change in found] == [change[1:] for change in expected]


@pytest.mark.parametrize("form", ["recorded", "zstd", "none", "mariadb"])
def test_ids_grow_and_are_the_same_from_every_boundary(form: str) -> None:
    name, data = log(form)
    steps = in_steps(data, name)
    whole = all_changes(steps)
    ids = [int(str(change[0])) for change in whole]
    assert ids == sorted(set(ids))
    boundaries = [decoded.boundary for decoded in steps if decoded.boundary]
    assert len(boundaries) > 2
    assert any(boundary.expanded for boundary in boundaries) == (form != "none")
    file = BytesIO(data)
    for number, boundary in enumerate(boundaries):
        assert skim_file(file, name, boundary.offset) == (boundary.offset, boundary.expanded)
        if number % max(1, len(boundaries) // 12) == 0:
            after = sum(id_ > boundary.id for id_ in ids)
            assert sum(id_ < boundary.id for id_ in ids) == len(ids) - after
            assert all_changes(in_steps(data, name, boundary)) == whole[len(ids) - after :]


def test_a_skim_stops_before_an_event_that_is_not_whole() -> None:
    name, data = log("recorded")
    boundaries = [decoded.boundary for decoded in in_steps(data, name) if decoded.boundary]
    last = boundaries[-2]
    assert skim_file(BytesIO(data), name, last.offset + 10) == (last.offset, last.expanded)


def test_a_payload_larger_than_memory_comes_in_parts() -> None:
    data = binlog_events.payload_of_rows(ROWS)
    reader = BinlogReader(["*.*"])
    parts: list[int] = []
    expected = 1
    last_id = 0
    for decoded in decode_file(reader, BytesIO(data), "binlog.000001"):
        parts.append(sum(len(item) for item in decoded.items if isinstance(item, Rows)))
        for item in decoded.items:
            assert isinstance(item, Rows)
            ids = item.data.column("_ums_id_").to_pylist()
            assert last_id < ids[0]
            assert ids == sorted(set(ids))
            last_id = ids[-1]
            assert item.data.column("id").to_pylist() == list(range(expected, expected + len(item)))
            expected += len(item)
        whole = expected == ROWS + 1 and not reader.in_payload
        assert (decoded.boundary is None) == (not whole and expected > 1)
    reader.finish()
    assert expected == ROWS + 1
    assert max(parts) < 1 << 17


# The peak of the process that was started, not (as ru_maxrss) also of the one that started it.
_MEASURED = """
import re, sys
from headrace.codec.binlog import BinlogReader, decode_file
def peak_mib():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) // 1024
rows, before = 0, peak_mib()
with open(sys.argv[1], "rb") as file:
    for decoded in decode_file(BinlogReader(["*.*"]), file, "binlog.000001"):
        rows += sum(len(item.data) for item in decoded.items)
print(rows, before, peak_mib())
"""


@pytest.mark.demand(4)
def test_memory_does_not_grow_with_a_payload(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(binlog_events.payload_of_rows(ROWS))
    done = subprocess.run([sys.executable, "-c", _MEASURED, path], capture_output=True, text=True, check=True)
    rows, before_mib, peak_mib = map(int, done.stdout.split())
    assert rows == ROWS
    assert peak_mib < 300
    assert peak_mib - before_mib < 100


@pytest.mark.parametrize(("rows", "compression"), [(ROWS, 0), (2_000_000, binlog_events.NONE)])
@pytest.mark.parametrize("then", ["nothing", "a cut transaction", "another file"])
@pytest.mark.demand(4)
def test_capture_hands_on_a_large_payload_in_parts(tmp_path: Path, rows: int, compression: int, then: str) -> None:
    """Without compression, its event is larger than a chunk of the reader."""
    data = binlog_events.payload_of_rows(rows, compression)
    form, gtid, payload = binlog_events.events(data)
    parts = [form, gtid, payload, gtid] if then == "a cut transaction" else [form, gtid, payload]
    (tmp_path / "binlog.000001").write_bytes(binlog_events.log(parts))
    if then == "another file":
        (tmp_path / "binlog.000002").write_bytes(binlog_events.log([form]))
    config = {"type": "mysql", "name": "db1", "files": str(tmp_path / "binlog.0*"), "tables": ["s.*"]}
    source = MySqlSource(MySqlConfig.model_validate(config), tmp_path / "state")
    ids: list[int] = []
    ends: dict[str, tuple[int, int]] = {}
    for event in source.follow(None):
        found = [id_ for batch in event.changes for id_ in batch.data.column("_ums_id_").to_pylist()]
        assert len(found) < 1 << 17
        ids += found
        if event.mark:
            assert event.mark.id > ids[-1]
            ends[event.mark.position["file"]] = (event.mark.position["offset"], event.mark.position["expanded"])
        if event.caught_up:
            break
    # What is read again behind a mark comes again with the same ids.
    assert len(set(ids)) == rows
    offset, expanded = ends["binlog.000001"]
    assert offset == len(data)
    assert (expanded > rows) == (compression == 0)
    assert ends.get("binlog.000002", (0, 0))[1] == 0


def _failing(data: bytes) -> HeadraceError:
    _, error = decode(data, "binlog.000001")
    assert error is not None
    return error


def _with_payload(payload: bytes) -> bytes:
    """A log with this event behind the beginning of a real one."""
    parts = list(binlog_events.events(log("recorded")[1]))
    return binlog_events.log([*parts[:2], payload])


def _inner() -> bytes:
    return binlog_events.stream(list(binlog_events.events((DATA / MYSQL).read_bytes()))[2:6])


@pytest.mark.parametrize("said", [0, 100, 1 << 39])
def test_a_payload_that_lies_about_its_size_is_corrupt(said: int) -> None:
    error = _failing(_with_payload(binlog_events.payload(_inner(), plain_bytes=said)))
    assert isinstance(error, CorruptError)
    assert error.message.startswith("binlog.000001 at ")


def test_a_payload_that_would_overflow_ids_is_refused() -> None:
    error = _failing(_with_payload(binlog_events.payload(_inner(), plain_bytes=10**12)))
    assert isinstance(error, SourceError)
    assert "10^12 bytes" in error.message


@pytest.mark.parametrize("compression", [0, binlog_events.NONE])
@pytest.mark.parametrize("length", [0, 18, 1 << 29, (1 << 32) - 1])
def test_an_event_in_a_payload_that_lies_about_its_length_is_corrupt(length: int, compression: int) -> None:
    lying = bytearray(_inner())
    struct.pack_into("<I", lying, 9, length)
    assert isinstance(_failing(_with_payload(binlog_events.payload(bytes(lying), compression))), CorruptError)


def test_a_payload_inside_a_payload_is_corrupt() -> None:
    nested = binlog_events.payload(binlog_events.stream([binlog_events.payload(_inner())]))
    error = _failing(_with_payload(nested))
    assert "an event of type 40 inside a compressed transaction" in error.message


def test_ids_that_would_overflow_are_refused() -> None:
    name, data = log("recorded")
    reader = BinlogReader(["*.*"])
    with pytest.raises(SourceError, match=r"10\^12 bytes"):
        reader.start(name, 4, expanded=10**12 - 4)
    reader.start(name, 4, expanded=10**12 - 700)
    with pytest.raises(SourceError, match=r"10\^12 bytes"):
        reader.feed(data[4:])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damage_within_a_payload_is_an_error_or_other_rows(data: st.DataObject) -> None:
    parts = list(binlog_events.events((DATA / MYSQL).read_bytes()))
    first = next(number for number, part in enumerate(parts) if part[4] == 19)
    inner = [bytearray(part) for part in parts[first : first + 3]]
    for _ in range(data.draw(st.integers(1, 4))):
        part = data.draw(st.sampled_from(inner))
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    compression = data.draw(st.sampled_from([0, binlog_events.NONE]))
    packed = binlog_events.payload(binlog_events.stream(map(bytes, inner)), compression)
    decode(binlog_events.log([parts[0], packed]), MYSQL)
