"""Recorded files of HBase's write-ahead log hold what HBase's own Java reader found in them, and every beginning of one its first entries.

Recorded: HBase 2.6.1 with puts, deletes of all kinds, increments, batches, splits, moves and flushes; `comp` with dictionaries, tags and
values packed by gzip. `.jsonl.gz`: an entry a line, by WALFactory.createStreamReader.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.codec.hbase_wal import KINDS, WalBatch, WalReader, read_on
from headrace.errors import CorruptError, SourceError

FOLDER = Path(__file__).parent / "hbase"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix != ".gz")
SMALL = [path for path in FILES if path.stat().st_size < 8_200]
_JAVA_KINDS = {
    "Put": "put",
    "Delete": "delete version",
    "DeleteFamilyVersion": "delete family version",
    "DeleteColumn": "delete column",
    "DeleteFamily": "delete family",
}


def entries_of(batches: Iterator[WalBatch]) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        cells = batch.cells.to_pylist()
        at = 0
        for entry in batch.entries.to_pylist():
            mine, at = cells[at : at + entry["cells"]], at + entry["cells"]
            found.append(entry | {"cells": [{name: cell[name] for name in cell if name != "entry"} for cell in mine]})
    return found


def read(content: bytes, start: int = 0, name: str = "wal") -> tuple[list[dict[str, Any]], WalReader]:
    reader = WalReader(name, start=start)
    return entries_of(read_on(reader, lambda begin, end: content[begin:end])), reader


def as_java(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("row", "family", "qualifier", "timestamp", "kind", "value", "tags")
    cells = [[KINDS[cell[n]] if n == "kind" else _text(cell[n]) for n in names] for cell in entry["cells"]]
    return {
        "pos": entry["end"],
        "seq": entry["sequence"],
        "region": entry["region"].decode(),
        "table": entry["table"].decode(),
        "wt": entry["write_time"],
        "nonce": entry["nonce"],
        "cells": cells,
    }


def _text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def answered(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in gzip.decompress(Path(f"{path}.jsonl.gz").read_bytes()).splitlines()]
    found = [{name: value for name, value in line.items() if name != "meta"} for line in lines if "eof" not in line]
    for entry in found:
        for cell in entry["cells"]:
            cell[4] = _JAVA_KINDS[cell[4]]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_what_java_reads(path: Path) -> None:
    entries, reader = read(path.read_bytes())
    assert [as_java(entry) for entry in entries] == answered(path)
    assert reader.ended == path.read_bytes().endswith(b"LAWP")


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_every_beginning_of_a_file_has_its_first_entries(path: Path) -> None:
    content = path.read_bytes()
    whole = next(read_on(WalReader("wal"), lambda begin, end: content[begin:end]), None)
    for end in range(len(content)):
        reader = WalReader("wal")
        batches = list(read_on(reader, lambda begin, stop, end=end: content[begin : min(stop, end)]))
        assert not reader.ended
        if whole is None or end < whole.entries["end"][0].as_py():
            assert not batches
            continue
        [batch] = batches
        assert batch.entries == whole.entries.slice(0, len(batch))
        assert batch.cells == whole.cells.slice(0, batch.cells.num_rows)
        assert len(batch) == sum(stop <= end for stop in whole.entries["end"].to_pylist())


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_a_file_that_grows_byte_by_byte(path: Path) -> None:
    content = path.read_bytes()
    whole, _ = read(content)
    reader, entries = WalReader("wal"), []
    for end in range(len(content) + 1):
        entries += entries_of(read_on(reader, lambda begin, stop, end=end: content[begin : min(end, stop)]))
    assert entries == whole


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_reading_goes_on_behind_any_entry(path: Path) -> None:
    content = path.read_bytes()
    whole, _ = read(content)
    for entry in whole:
        entries, _ = read(content, start=entry["end"])
        assert entries == [later for later in whole if later["start"] >= entry["end"]]


def test_only_tables_that_are_wanted() -> None:
    [path] = [path for path in FILES if path.name.endswith("1795220626324")]
    whole, _ = read(path.read_bytes())
    tables = {entry["table"].decode() for entry in whole}
    assert len(tables) > 1
    content = path.read_bytes()
    for table in tables:
        reader = WalReader("wal", [table])
        entries = entries_of(read_on(reader, lambda begin, end: content[begin:end]))
        assert entries == [entry for entry in whole if entry["table"].decode() == table]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"\x12\x03key", "it is encrypted"),
        (b"\x2a\x0eorg.OtherCodec", "written by org.OtherCodec"),
        (b"\x08\x01\x30\x01\x38\x08", "compressed by BROTLI"),
    ],
)
def test_what_is_written_in_another_way_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message) as refused:
        read(b"PWAL" + bytes([len(header)]) + header, name="rs1.123")
    assert refused.value.message.startswith("rs1.123: byte 0: ")
    assert "hbase.regionserver.wal" in refused.value.fix


def test_what_is_no_wal_is_damage() -> None:
    with pytest.raises(CorruptError, match="does not begin with PWAL"):
        read(b"SEQ\x06")
    [path] = [path for path in FILES if path.name.endswith("1795220619277")]
    content = path.read_bytes()
    whole, _ = read(content)
    damaged = bytearray(content)
    damaged[whole[1]["start"] + 2] ^= 0xFF
    with pytest.raises(CorruptError, match=f"byte {whole[1]['start']}: "):
        read(bytes(damaged))
