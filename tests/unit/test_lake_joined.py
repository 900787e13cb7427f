"""Files that become parts of others as they are: what comes out is what a decoding merge gives, and damage is never hidden."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace._native import ParquetJoin
from headrace.errors import CorruptError
from headrace.lake import joined
from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.layout import LakeFile
from headrace.lake.parquet import open_file, table_in, verify_file
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.storage.location import tree_at
from headrace.ums.schema import ID
from tests.lake_tables import ID_NAME, ORDERS, changes, ids_in, land, rows
from tests.unit.test_lake_derived import ODD, ODD_ROW

LARGE = 20


@pytest.fixture(autouse=True)
def twenty_rows_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "_LARGE_ROWS", LARGE)


def land_each(path: Path, *sizes: int) -> list[LakeFile]:
    """A commit with a file of so many rows each, one behind the other."""
    first = 1
    for offset, size in enumerate(sizes, start=1):
        ids = range(first, first + size)
        land(path, changes(ID_NAME, *((id_, "iu"[id_ % 2], id_ % 7, f"name {id_}") for id_ in ids)), offset=offset)
        first += size
    return Manifest.open(path).tables[ORDERS]


def merged(path: Path, target_bytes: int = 1 << 20) -> list[LakeFile]:
    done = Caretaker(path, Policy(state_changes=10**9, target_bytes=target_bytes)).tend(all_periods=True)
    assert not done.problems
    return Manifest.open(path).tables[ORDERS]


def groups(path: Path, file: LakeFile) -> list[int]:
    footer = pq.read_metadata(path / file.path)
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def test_large_files_are_copied_and_small_ones_written_anew(tmp_path: Path) -> None:
    before = land_each(tmp_path, 3, 4, 30, 5, 25, 21, 6)
    newest = rows(as_of(tmp_path, ORDERS))
    [file] = merged(tmp_path)
    assert groups(tmp_path, file) == [7, 30, 5, 25, 21, 6]
    assert ids_in(tmp_path) == list(range(1, 95))
    assert rows(as_of(tmp_path, ORDERS)) == newest
    assert (file.rows, file.id, file.operations) == (94, (1, 94), {"i": 47, "u": 47})
    assert file.commit_ts == (before[0].commit_ts[0], before[-1].commit_ts[1])
    verify_file(tree_at(tmp_path), file)


def test_files_that_overlap_are_written_anew(tmp_path: Path) -> None:
    land(tmp_path, changes(ID_NAME, *((id_, "i", id_, "odd") for id_ in range(1, 100, 2))))
    land(tmp_path, changes(ID_NAME, *((id_, "i", id_, "even") for id_ in range(2, 99, 2))), offset=2)
    land(tmp_path, changes(ID_NAME, *((id_, "i", id_, "behind") for id_ in range(100, 130))), offset=3)
    [file] = merged(tmp_path)
    assert ids_in(tmp_path) == list(range(1, 130))
    assert groups(tmp_path, file) == [99, 30]
    verify_file(tree_at(tmp_path), file)


def test_what_a_file_says_of_itself_stays(tmp_path: Path) -> None:
    """All types, nulls as well; other readers, and what may be skipped by statistics."""
    nothing = [None] * (len(ODD_ROW) - 1)
    for start in (1, 41):
        made = [(id_, "i", id_, *(ODD_ROW[1:] if id_ % 3 else nothing)) for id_ in range(start, start + 40)]
        land(tmp_path, changes(ODD, *made), offset=start)
    before = [open_file(tree_at(tmp_path), file) for file in Manifest.open(tmp_path).tables[ORDERS]]
    expected = pa.concat_tables([file.read() for file in before])
    [file] = merged(tmp_path)
    opened = open_file(tree_at(tmp_path), file)
    assert table_in(opened) == table_in(before[0])
    assert opened.schema_arrow.equals(before[0].schema_arrow, check_metadata=True)
    assert opened.read().equals(expected)
    for number in range(2):
        was, now = before[number].metadata.row_group(0), opened.metadata.row_group(number)
        assert now.sorting_columns == was.sorting_columns
        for place in range(was.num_columns):
            assert now.column(place).statistics == was.column(place).statistics
            assert set(now.column(place).encodings) == set(was.column(place).encodings)
    count = f"SELECT count(*), count(part), max({ID}) FROM '{tmp_path / file.path}' WHERE {ID} > 60"
    assert duckdb.execute(count).fetchone() == (20, 14, 80)


def test_a_file_is_cut_between_files(tmp_path: Path) -> None:
    sizes = [file.bytes for file in land_each(tmp_path, *([40] * 6))]
    files = merged(tmp_path, target_bytes=max(sizes) * 3)
    assert [groups(tmp_path, file) for file in files] == [[40] * 3] * 2
    for file in files:
        verify_file(tree_at(tmp_path), file)
    assert ids_in(tmp_path) == list(range(1, 241))


def test_a_file_that_is_another_one_is_told(tmp_path: Path) -> None:
    first, second = land_each(tmp_path, 30, 30)
    (tmp_path / second.path).write_bytes((tmp_path / first.path).read_bytes())
    with pytest.raises(
        CorruptError, match=r"its footer tells of 30 rows with ids \(1, 30\), not of 30 with \(31, 60\)"
    ):
        Caretaker(tmp_path, Policy()).tend(all_periods=True)
    assert len(Manifest.open(tmp_path).tables[ORDERS]) == 2


def test_damage_is_told_or_stays_to_be_found(tmp_path: Path) -> None:
    """A byte flipped anywhere: the merge says so, or the new file shows it as the old one did, or the byte did not matter."""
    told = 0
    chance = Random(7)
    for number in range(40):
        path = tmp_path / str(number)
        file = land_each(path, 30, 30)[0]
        damaged = bytearray((path / file.path).read_bytes())
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        (path / file.path).write_bytes(damaged)
        try:
            [new] = merged(path)
        except CorruptError:
            told += 1
            assert len(Manifest.open(path).tables[ORDERS]) == 2, "nothing was changed"
            continue
        try:
            verify_file(tree_at(path), new)
        except CorruptError:
            continue
        assert ids_in(path) == list(range(1, 61))
    assert told > 25


def test_whatever_is_damaged_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """Bytes exchanged, most of them in the footer, and files that are cut."""
    [file] = land_each(tmp_path, 30)
    content = (tmp_path / file.path).read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    chance = Random(11)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 2, 5])):
            first = footer if chance.random() < 0.8 else 0
            damaged[chance.randrange(first, len(damaged))] = chance.choice([0, 1, 127, 128, 255])
        cut = len(damaged) if chance.random() < 0.95 else chance.randrange(len(damaged))
        join = ParquetJoin()
        try:
            join.append(bytes(damaged[:cut]))
            join.finish()
        except ValueError:
            refused += 1
    assert refused > 1000
