"""The lake's commit log: numbers, racing, fencing, checkpoints, damage."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import ConfigError, CorruptError, FencedError, StorageError
from headrace.lake.commit import CHECKPOINT_COMMITS, CHECKPOINTS_KEPT, Manifest, Reached, Stream
from headrace.lake.layout import LakeFile

NOW = "2026-01-31T12:00:00+00:00"
STREAM = Stream("orders_lake", "db1", 0)


def lake_file(number: int, table: str = "orders") -> LakeFile:
    ids = (number * 10, number * 10 + 9)
    return LakeFile(f"{number}.parquet", f"mysql.db1.shop.{table}.0.0.0", 10, ids, ids, ids, {"i": 10}, 99, "0" * 32)


def commit(manifest: Manifest, offset: int, stream: Stream = STREAM) -> int:
    return manifest.commit(stream, Reached(offset, offset, offset), [lake_file(offset)], NOW).number


def commit_path(lake: Path, number: int) -> Path:
    return lake / "_headrace" / "commits" / f"{number:020d}.json"


def checkpoints(lake: Path) -> list[Path]:
    return sorted((lake / "_headrace" / "checkpoints").iterdir())


def test_a_commit_is_read_back_whole(tmp_path: Path) -> None:
    writer = Manifest.open_to_write(tmp_path)
    first = writer.commit(STREAM, Reached(5, 50, 500), [lake_file(1), lake_file(2, "käufe%2E2")], NOW)
    second = writer.commit(STREAM, Reached(9, 90, 900), [], NOW)
    assert (first.start, second.start, second.number) == (None, Reached(5, 50, 500), 2)
    reader = Manifest(tmp_path)
    assert reader.refresh() == [first, second]
    assert reader.reached == {STREAM: Reached(9, 90, 900)}
    assert {file.path for file in reader.files()} == {"1.parquet", "2.parquet"}


def test_a_reader_sees_what_appears(tmp_path: Path) -> None:
    writer = Manifest.open_to_write(tmp_path)
    reader = Manifest.open(tmp_path)
    assert reader.refresh() == []
    commit(writer, 1)
    assert [seen.number for seen in reader.refresh()] == [1]


def test_writers_of_different_flows_share_the_numbers(tmp_path: Path) -> None:
    def write(flow: str) -> None:
        manifest = Manifest.open_to_write(tmp_path)
        for offset in range(1, 21):
            commit(manifest, offset, Stream(flow, "db1", 0))

    flows = [f"flow{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, flows))
    found = Manifest(tmp_path).refresh()
    assert [one.number for one in found] == list(range(1, 81))
    for flow in flows:
        assert [one.end.offset for one in found if one.stream.flow == flow] == list(range(1, 21))


def test_two_runs_of_one_flow_one_is_fenced(tmp_path: Path) -> None:
    old, new = Manifest.open_to_write(tmp_path), Manifest.open_to_write(tmp_path)
    commit(new, 5)
    with pytest.raises(FencedError, match="another run of it has written commit 1"):
        commit(old, 5)
    assert Manifest.open(tmp_path).number == 1


def test_other_partitions_of_the_same_flow_do_not_fence(tmp_path: Path) -> None:
    one, other = Manifest.open_to_write(tmp_path), Manifest.open_to_write(tmp_path)
    assert commit(one, 5) == 1
    assert commit(other, 7, STREAM._replace(partition=1)) == 2


def test_a_position_never_goes_back(tmp_path: Path) -> None:
    manifest = Manifest.open_to_write(tmp_path)
    commit(manifest, 5)
    with pytest.raises(FencedError, match="has come to offset 5"):
        commit(manifest, 4)


def test_a_checkpoint_saves_reading_and_can_be_lost(tmp_path: Path) -> None:
    manifest = Manifest.open_to_write(tmp_path)
    for offset in range(1, 3 * CHECKPOINT_COMMITS + 5):
        commit(manifest, offset)
    assert len(checkpoints(tmp_path)) == CHECKPOINTS_KEPT
    expected = (manifest.number, manifest.time, manifest.reached, manifest.tables)
    for damage in (lambda path: path, lambda path: path.write_bytes(path.read_bytes()[:-9]), Path.unlink):
        damage(checkpoints(tmp_path)[-1])
        read = Manifest.open(tmp_path)
        assert (read.number, read.time, read.reached, read.tables) == expected


def test_opening_reads_the_checkpoint_not_the_history(tmp_path: Path) -> None:
    manifest = Manifest.open_to_write(tmp_path)
    for offset in range(1, CHECKPOINT_COMMITS + 3):
        commit(manifest, offset)
    commit_path(tmp_path, 3).write_text("not read any more")
    assert Manifest.open(tmp_path).number == CHECKPOINT_COMMITS + 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(b'"rows":10', b'"rows":11')),
        lambda path: path.write_bytes(path.read_bytes()[:40]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_bytes(b"[]\n[]\n"),
        lambda path: path.write_bytes(b'{}\n{"crc32":2745614147}\n'),
        lambda path: path.write_bytes(commit_path(path.parents[2], 1).read_bytes()),
        Path.unlink,
    ],
)
def test_a_damaged_commit_is_named(tmp_path: Path, damage: object) -> None:
    manifest = Manifest.open_to_write(tmp_path)
    for offset in (1, 2, 3):
        commit(manifest, offset)
    assert callable(damage)
    damage(commit_path(tmp_path, 2))
    with pytest.raises(CorruptError, match=r"commits/00000000000000000002\.json"):
        Manifest.open(tmp_path)


def test_a_later_format_is_not_guessed(tmp_path: Path) -> None:
    commit(Manifest.open_to_write(tmp_path), 1)
    line = commit_path(tmp_path, 1).read_bytes().partition(b"\n")[0].replace(b'"format":1', b'"format":2')
    commit_path(tmp_path, 1).write_bytes(b'%b\n{"crc32":%d}\n' % (line, zlib.crc32(line)))
    with pytest.raises(ConfigError, match="has format 2"):
        Manifest.open(tmp_path)


def test_commits_lost_behind_a_checkpoint_are_noticed(tmp_path: Path) -> None:
    manifest = Manifest.open_to_write(tmp_path)
    for offset in range(1, CHECKPOINT_COMMITS + 1):
        commit(manifest, offset)
    commit_path(tmp_path, CHECKPOINT_COMMITS).unlink()
    with pytest.raises(CorruptError, match=f"{CHECKPOINT_COMMITS:020d}"):
        Manifest.open(tmp_path)


def test_no_lake_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no lake at"):
        Manifest.open(tmp_path)


def test_a_path_that_cannot_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not create the directory"):
        Manifest.open_to_write(tmp_path / "file" / "lake")
