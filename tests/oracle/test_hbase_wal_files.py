"""What HBase's writer wrote is what we read, as its reader does: dictionaries that are full and give values up, and each way to pack values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.codec.hbase_wal import WalBatch, WalReader, read_on
from tests.servers.hbase_wal_files import run

PACKINGS = ("plain", "dictionaries", "gz", "snappy", "lz4", "zstd")
WIDE = 40_000
"""More rows and regions than the dictionaries of 32,767 hold; of families and qualifiers 300 and 400 where 127 are held."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wal")
    narrow = {packing: f"{packing} 300 3 100" for packing in PACKINGS}
    commands = []
    for name, how in (narrow | {"wide": f"dictionaries 40000 2 {WIDE}", "wide-gz": "gz 3000 5 400"}).items():
        commands += [f"write {directory}/{name} {how}", f"read {directory}/{name} {directory}/{name}.txt"]
    run(commands)
    return directory


def lines(batches: Iterator[WalBatch]) -> Iterator[str]:
    for batch in batches:
        texts = [
            ",".join(
                [
                    *(cell[name].hex() for name in ("row", "family", "qualifier")),
                    str(cell["timestamp"]),
                    *(cell[name].hex() for name in ("value", "tags")),
                ]
            )
            for cell in batch.cells.to_pylist()
        ]
        at = 0
        for entry in batch.entries.to_pylist():
            mine, at = texts[at : at + entry["cells"]], at + entry["cells"]
            place = f"{entry['end']} {entry['region'].decode()} {entry['table'].decode()} {entry['write_time']}"
            yield " ".join([place, *mine])


def between(content: bytes, start: int, stop: int) -> bytes:
    return content[start:stop]


@pytest.mark.parametrize("name", [*PACKINGS, "wide", "wide-gz"])
def test_a_file_of_hbases_writer(files: Path, name: str) -> None:
    expected = (files / f"{name}.txt").read_text().splitlines()
    reader = WalReader(name)
    assert list(lines(read_on(reader, partial(between, (files / name).read_bytes())))) == expected
    assert reader.ended


def test_full_dictionaries_of_a_file_that_grows(files: Path) -> None:
    """Entries that are read in part, again and again, where each part pushes values out."""
    content, expected = (files / "wide-gz").read_bytes(), (files / "wide-gz.txt").read_text().splitlines()
    reader, found = WalReader("wide-gz"), []
    for end in range(0, len(content) + 37, 37):
        found += lines(read_on(reader, lambda start, stop, end=end: content[start : min(stop, end)]))
    assert found == expected
