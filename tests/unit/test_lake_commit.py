"""The lake's commit log: numbers, racing, fencing, checkpoints, damage."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import ConfigError, CorruptError, FencedError, StorageError
from headrace.lake import commit as lake_commit
from headrace.lake.commit import CHECKPOINT_COMMITS, CHECKPOINTS_KEPT, Manifest
from headrace.lake.layout import LakeFile
from headrace.lake.records import Cause, Edit, Horizon, LakeState, Landing, Purge, Reached, Stream
from headrace.storage.location import tree_at

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


def test_a_commit_is_read_back_whole(any_place: Path | str) -> None:
    writer = Manifest.open_to_write(any_place)
    first = writer.commit(STREAM, Reached(5, 50, 500), [lake_file(1), lake_file(2, "käufe%2E2")], NOW)
    second = writer.commit(STREAM, Reached(9, 90, 900), [], NOW)
    starts = [one.what.start for one in (first, second) if isinstance(one.what, Landing)]
    assert (starts, second.number) == ([None, Reached(5, 50, 500)], 2)
    reader = Manifest(tree_at(any_place))
    assert reader.refresh() == [first, second]
    assert reader.reached == {STREAM: Reached(9, 90, 900)}
    assert {file.path for file in reader.files()} == {"1.parquet", "2.parquet"}


def test_a_reader_sees_what_appears(any_place: Path | str) -> None:
    writer = Manifest.open_to_write(any_place)
    reader = Manifest.open(any_place)
    assert reader.refresh() == []
    commit(writer, 1)
    assert [seen.number for seen in reader.refresh()] == [1]


def test_writers_of_different_flows_share_the_numbers(any_place: Path | str) -> None:
    each = 20 if isinstance(any_place, Path) else 4

    def write(flow: str) -> None:
        manifest = Manifest.open_to_write(any_place)
        for offset in range(1, each + 1):
            commit(manifest, offset, Stream(flow, "db1", 0))

    flows = [f"flow{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, flows))
    found = Manifest(tree_at(any_place)).refresh()
    assert [one.number for one in found] == list(range(1, 4 * each + 1))
    for flow in flows:
        landings = [one.what for one in found if isinstance(one.what, Landing)]
        assert [one.end.offset for one in landings if one.stream.flow == flow] == list(range(1, each + 1))


def test_two_runs_of_one_flow_one_is_fenced(any_place: Path | str) -> None:
    old, new = Manifest.open_to_write(any_place), Manifest.open_to_write(any_place)
    commit(new, 5)
    with pytest.raises(FencedError, match="another run of it has written commit 1"):
        commit(old, 5)
    assert Manifest.open(any_place).number == 1


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


def test_checkpoints_on_shared_stores(shared_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_commit, "CHECKPOINT_COMMITS", 2)
    tree, manifest = tree_at(shared_place), Manifest.open_to_write(shared_place)
    for offset in range(1, 8):
        commit(manifest, offset)
    assert len(tree.names("_headrace/checkpoints")) == CHECKPOINTS_KEPT
    tree.delete(f"_headrace/commits/{2:020d}.json")
    read = Manifest.open(shared_place)
    assert (read.number, read.time, read.reached, read.tables) == (7, manifest.time, manifest.reached, manifest.tables)
    for number in (6, 7):
        tree.delete(f"_headrace/commits/{number:020d}.json")
    with pytest.raises(CorruptError, match=f"{6:020d}"):
        Manifest.open(shared_place)


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


def test_no_lake_there(any_place: Path | str) -> None:
    with pytest.raises(ConfigError, match="there is no lake at"):
        Manifest.open(any_place)


def test_a_path_that_cannot_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not create the directory"):
        Manifest.open_to_write(tmp_path / "file" / "lake")


def merge_edit(*offsets: int, table: str = "orders") -> Edit:
    old = tuple(lake_file(offset, table).path for offset in offsets)
    return Edit(Cause.COMPACT, f"mysql.db1.shop.{table}", added=(lake_file(100 + offsets[0], table),), removed=old)


def test_of_two_edits_of_a_table_the_second_is_refused(any_place: Path | str) -> None:
    writer = Manifest.open_to_write(any_place)
    for offset in (1, 2, 3, 4):
        commit(writer, offset)
    one, other = Manifest.open_to_write(any_place), Manifest.open_to_write(any_place)
    one.edit(merge_edit(1, 2), NOW)
    with pytest.raises(FencedError, match=r"changed by another process meanwhile \(compact, commit 5\)"):
        other.edit(merge_edit(2, 3), NOW)
    other.edit(merge_edit(3, 4), NOW)
    assert sorted(file.path for file in Manifest.open(any_place).files()) == ["101.parquet", "103.parquet"]


def test_landings_and_edits_of_other_tables_do_not_disturb_an_edit(tmp_path: Path) -> None:
    writer = Manifest.open_to_write(tmp_path)
    items = [lake_file(7, "items")]
    writer.commit(STREAM, Reached(1, 1, 1), [lake_file(1), lake_file(2), *items], NOW)
    one, other = Manifest.open_to_write(tmp_path), Manifest.open_to_write(tmp_path)
    commit(writer, 3)
    other.edit(merge_edit(7, table="items"), NOW)
    one.edit(merge_edit(1, 2), NOW)
    commit(writer, 4)
    paths = {file.path for file in Manifest.open(tmp_path).files()}
    assert paths == {"101.parquet", "107.parquet", "3.parquet", "4.parquet"}


def test_what_edits_say_survives_a_checkpoint(tmp_path: Path) -> None:
    writer = Manifest.open_to_write(tmp_path)
    commit(writer, 1)
    commit(writer, 2)
    table = "mysql.db1.shop.orders"
    state = LakeState("s1", ("0", "0"), 19, 19, 2, (lake_file(9),))
    purge = Purge(table, ("id",), "ab", "asked", 3, 1, NOW)
    writer.edit(Edit(Cause.STATE, table, state=state), NOW)
    writer.edit(Edit(Cause.RETAIN, table, removed=("1.parquet",), horizon=Horizon(5, 6), purge=purge), NOW)
    for offset in range(3, CHECKPOINT_COMMITS + 3):
        commit(writer, offset)
    assert checkpoints(tmp_path)
    commit_path(tmp_path, 3).write_text("not read any more")
    read = Manifest.open(tmp_path)
    assert (read.states, read.horizons, read.purges) == ({table: [state]}, {table: Horizon(5, 6)}, [purge])
    assert read.retired == {"1.parquet": NOW}
    assert {"9.parquet", "1.parquet"} <= set(read.known_paths())
    writer.edit(Edit(Cause.STATE, table, ended=("s1",)), NOW)
    writer.edit(Edit(Cause.SWEEP, "", swept=("1.parquet",)), NOW)
    assert (writer.states[table], writer.retired) == ([], {"9.parquet": NOW})


def test_a_file_knows_the_commit_that_brought_it(tmp_path: Path) -> None:
    writer = Manifest.open_to_write(tmp_path)
    commit(writer, 1)
    commit(Manifest.open_to_write(tmp_path), 2, STREAM._replace(partition=1))
    commit(writer, 3)
    assert [file.since for file in Manifest.open(tmp_path).files()] == [1, 2, 3]
