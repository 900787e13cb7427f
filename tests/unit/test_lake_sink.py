"""The lake as a sink: files, positions, memory, damage."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import ConfigError, CorruptError, DataError, FencedError, StorageError
from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.parquet import verify_file
from headrace.registry import load
from headrace.sinks import lake as lake_sink
from headrace.sinks.lake import IDLE_COMMIT_ENTRIES, IDLE_COMMIT_S, LakeSink
from headrace.storage.location import tree_at
from headrace.ums.schema import ID, Column, TableSchema
from tests.lake_tables import ID_NAME, ORDERS, at, changes, ids_in, land, open_sink, parquet_files, rows, table


def names(count: int, start: int = 1) -> list[tuple[int, str, int, str]]:
    return [(id_, "i", id_, f"name {id_}") for id_ in range(start, start + count)]


def test_it_is_in_the_registry() -> None:
    assert load("sinks", "lake") is LakeSink


def test_nothing_is_visible_before_the_commit_and_all_after(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    items = table(("id", pa.int64()), name="items")
    sink.write(changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b")))
    sink.write(changes(items, (3, "i", 1)))
    assert not parquet_files(tmp_path)
    sink.commit(at(7, 3))
    assert sorted(Manifest.open(tmp_path).tables) == ["mysql.db1.shop.items", ORDERS]
    assert Manifest.open(tmp_path).number == 1
    assert rows(as_of(tmp_path, ORDERS)) == [(1, "a"), (2, "b")]


def test_the_position_comes_back(tmp_path: Path) -> None:
    assert open_sink(tmp_path).position("db1", 0) is None
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a")), offset=7)
    assert open_sink(tmp_path).position("db1", 0) == at(7)
    assert open_sink(tmp_path).position("db1", 1) is None
    assert open_sink(tmp_path, "another").position("db1", 0) is None


def test_a_file_describes_itself(tmp_path: Path) -> None:
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a"), (2, "u", 1, "b"), (3, "d", 1, "b")))
    (path,) = parquet_files(tmp_path)
    assert TableSchema.from_arrow(pq.read_schema(path)) == ID_NAME
    (file,) = Manifest.open(tmp_path).files()
    assert (file.rows, file.id, file.operations) == (3, (1, 3), {"d": 1, "i": 1, "u": 1})
    assert file.bytes == path.stat().st_size
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert group.sorting_columns[0].column_index == 0
    assert (group.column(0).compression, group.column(0).statistics.max) == ("ZSTD", 3)


def test_any_reader_reads_a_version_s_directory(tmp_path: Path) -> None:
    wide = table(("id", pa.int64()), ("took", pa.duration("us")), ("sum", pa.decimal256(65, 2)), key=())
    sink = open_sink(tmp_path)
    sink.write(changes(wide, (1, "i", 1, None, None)))
    sink.commit(at(1))
    directory = parquet_files(tmp_path)[0].parent
    (directory / "_dead.parquet.writing").write_text("half a file")
    read = pq.read_table(directory)
    physical = pq.ParquetFile(parquet_files(tmp_path)[0]).schema
    assert read.num_rows == 1
    assert [physical.column(at_).physical_type for at_ in (6, 7)] == ["INT64", "BYTE_ARRAY"]
    assert as_of(tmp_path, ORDERS).schema.types == [pa.int64(), pa.duration("us"), pa.decimal256(65, 2)]


def test_the_digest_is_order_free_and_golden(tmp_path: Path) -> None:
    land(tmp_path / "one", changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, None)))
    land(tmp_path / "two", changes(ID_NAME, (1, "i", 1, "a")), offset=1)
    land(tmp_path / "two", changes(ID_NAME, (2, "i", 2, None)), offset=2)
    (whole,) = Manifest.open(tmp_path / "one").files()
    parts = [int(file.digest, 16) for file in Manifest.open(tmp_path / "two").files()]
    assert whole.digest == f"{sum(parts) % 2**128:032x}" == "86d1b30de7a322bca057f626492dd1c1"
    verify_file(tree_at(tmp_path / "one"), whole)


def test_a_changed_row_is_found_by_its_digest(tmp_path: Path) -> None:
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a")))
    (path,) = parquet_files(tmp_path)
    (file,) = Manifest.open(tmp_path).files()
    pq.write_table(pa.Table.from_batches([changes(ID_NAME, (1, "i", 1, "b")).data]), path)
    with pytest.raises(CorruptError, match="digest"):
        verify_file(tree_at(tmp_path), file)


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [damage_middle, lambda path: path.write_bytes(path.read_bytes()[:-20]), Path.unlink, lambda p: p.write_text("")],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: object) -> None:
    land(tmp_path, changes(ID_NAME, *names(1000)))
    (path,) = parquet_files(tmp_path)
    assert callable(damage)
    damage(path)
    with pytest.raises(CorruptError) as raised:
        as_of(tmp_path, ORDERS)
    assert str(path) in raised.value.message


def test_a_backlog_is_written_out_while_it_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_sink, "GATHERED_BYTES", 10_000)
    sink = open_sink(tmp_path)
    for start in range(1, 5000, 100):
        sink.write(changes(ID_NAME, *names(100, start)))
        assert sink.gathered_bytes < 30_000
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".writing"]
    sink.commit(at(1))
    assert ids_in(tmp_path) == list(range(1, 5001))
    (file,) = Manifest.open(tmp_path).files()
    assert pq.ParquetFile(tmp_path / file.path).num_row_groups > 5
    verify_file(tree_at(tmp_path), file)


def test_the_largest_table_makes_room_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_sink, "GATHERED_TOTAL_BYTES", 20_000)
    sink = open_sink(tmp_path)
    for start in range(1, 5000, 100):
        for name in ("orders", "items"):
            sink.write(changes(table(("id", pa.int64()), ("name", pa.utf8()), name=name), *names(100, start)))
        assert sink.gathered_bytes < 40_000
    sink.commit(at(1))
    assert ids_in(tmp_path) == ids_in(tmp_path, "mysql.db1.shop.items") == list(range(1, 5001))


def test_each_file_is_sorted_even_when_a_load_runs_beside_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_sink, "GATHERED_BYTES", 1000)
    sink = open_sink(tmp_path)
    for start in (1, -500, 101, -400):
        sink.write(changes(ID_NAME, *names(100, start)))
    sink.write(changes(ID_NAME, (900, "i", 900, ""), (800, "i", 800, ""), (901, "i", 901, "")))
    sink.commit(at(1))
    for path in parquet_files(tmp_path):
        ids = pq.read_table(path).column(ID).to_pylist()
        assert ids == sorted(ids)
    assert sorted(ids_in(tmp_path)) == [*range(-500, -300), *range(1, 201), 800, 900, 901]


def test_an_idle_flow_commits_its_position_seldom_but_not_never(tmp_path: Path) -> None:
    now = [1_000_000.0]
    sink = LakeSink(LakeSink.Config(type="lake", path=tmp_path), "idle", clock=lambda: now[0])
    sink.commit(at(5))
    numbers = []
    for offset in range(6, 6 + 3 * int(IDLE_COMMIT_S)):
        now[0] += 1
        sink.commit(at(offset))
        numbers.append(Manifest.open(tmp_path).number)
    assert numbers[-1] == 1 + 3
    for _ in range(100):
        now[0] += 1
        sink.commit(at(offset))
    assert Manifest.open(tmp_path).number == 4, "a position that does not move is not committed again"
    sink.commit(at(offset + IDLE_COMMIT_ENTRIES))
    assert Manifest.open(tmp_path).number == 5


def test_a_second_run_fences_the_first_for_good(tmp_path: Path) -> None:
    zombie, new = open_sink(tmp_path), open_sink(tmp_path)
    for sink in (zombie, new):
        assert sink.position("db1", 0) is None
        sink.write(changes(ID_NAME, (1, "i", 1, "a")))
    new.commit(at(3))
    for _ in range(2):
        with pytest.raises(FencedError):
            zombie.commit(at(3))
    with pytest.raises(FencedError):
        zombie.write(changes(ID_NAME, (2, "i", 2, "b")))
    zombie.close()
    assert ids_in(tmp_path) == [1]


def test_close_throws_away_what_was_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_sink, "GATHERED_BYTES", 100)
    sink = open_sink(tmp_path)
    sink.write(changes(ID_NAME, *names(100)))
    sink.close()
    sink.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_type_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    sink.prepare(ID_NAME)
    with pytest.raises(ConfigError, match="cannot keep column 'tags'"):
        sink.prepare(table(("id", pa.int64()), ("tags", pa.list_(pa.utf8()))))


def test_two_shapes_under_one_version_are_refused(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    sink.write(changes(ID_NAME, (1, "i", 1, "a")))
    with pytest.raises(DataError, match="two different sets of columns"):
        sink.write(changes(table(("id", pa.int64())), (2, "i", 2)))


def test_columns_may_be_described_anew(tmp_path: Path) -> None:
    described = table(Column("id", pa.int64(), "bigint"), Column("name", pa.utf8(), "varchar(20)", nullable=False))
    sink = open_sink(tmp_path)
    sink.write(changes(ID_NAME, (1, "i", 1, "a")))
    sink.write(changes(described, (2, "i", 2, "b")))
    sink.commit(at(1))
    assert rows(as_of(tmp_path, ORDERS)) == [(1, "a"), (2, "b")]


def test_scan_gives_the_live_rows_in_the_asked_version(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    assert list(sink.scan(ID_NAME)) == []
    sink.write(changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b"), (3, "d", 1, "a")))
    sink.commit(at(1))
    assert [batch.to_pylist() for batch in sink.scan(ID_NAME)] == [[{"id": 2, "name": "b"}]]


@contextmanager
def no_file_larger_than(size_bytes: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond: what a full disk does, without one."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("limit_bytes", [2_000, 20_000])
def test_a_full_disk_leaves_nothing_half(tmp_path: Path, limit_bytes: int) -> None:
    """The lower limit stops the Parquet file, the higher one the commit that lists 100 files."""
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a")))
    batches = [changes(ID_NAME, *names(10, start=2))]
    batches += [changes(table(("id", pa.int64()), name=f"t{number}"), (number, "i", 1)) for number in range(100)]
    sink = open_sink(tmp_path)
    assert sink.position("db1", 0) == at(1)
    with no_file_larger_than(limit_bytes):
        with pytest.raises(StorageError, match=r"could not (write|create)"):
            deliver(sink, batches)
        with pytest.raises(StorageError):
            sink.commit(at(9))
        sink.close()
    assert (Manifest.open(tmp_path).number, ids_in(tmp_path)) == (1, [1])
    deliver(open_sink(tmp_path), batches)
    assert ids_in(tmp_path) == list(range(1, 12))
    assert len(Manifest.open(tmp_path).tables) == 101


def deliver(sink: LakeSink, batches: list[lake_sink.ChangeBatch]) -> None:
    for batch in batches:
        sink.write(batch)
    sink.commit(at(9))


def test_a_directory_that_refuses(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    sink.position("db1", 0)
    (tmp_path / "mysql").write_text("in the way")
    sink.write(changes(ID_NAME, (1, "i", 1, "a")))
    with pytest.raises(StorageError, match="mysql"):
        sink.commit(at(1))
    assert Manifest.open(tmp_path).number == 0
