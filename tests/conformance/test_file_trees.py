"""What the lake needs of a file system, on a disk and on real servers of HDFS and S3."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.errors import CorruptError
from headrace.lake.commit import Manifest
from headrace.lake.parquet import verify_file
from headrace.storage.base import FileTree, Found
from headrace.storage.location import tree_at
from tests.lake_tables import ID_NAME, changes, land

LARGE = bytes(range(256)) * 20_000
"""More than is read in one request, and than Arrow gathers before it writes."""


@pytest.fixture
def tree(any_place: Path | str) -> FileTree:
    return tree_at(any_place)


def make(tree: FileTree, path: str, content: bytes) -> int:
    file = tree.new_file(path)
    for start in range(0, len(content), 100_000):
        file.target.write(content[start : start + 100_000])
    return file.finish()


def test_of_many_that_create_a_file_one_succeeds(tree: FileTree) -> None:
    contents = [b"%d" % number for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda content: tree.create("a/b/one", content), contents))
    assert sorted(made) == [False] * 7 + [True]
    assert tree.content("a/b/one") == contents[made.index(True)]
    assert not tree.create("a/b/one", b"more")
    tree.claim("a/mark")
    tree.claim("a/mark")
    assert tree.names("a") == ["b", "mark"]


def test_a_large_file_is_there_when_it_is_finished(tree: FileTree) -> None:
    file = tree.new_file("t/v0/one.parquet")
    file.target.write(LARGE)
    assert "one.parquet" not in tree.names("t/v0")
    assert file.finish() == len(LARGE)
    tree.sync(["t/v0"])
    assert list(tree.files("t/v0")) == [Found("one.parquet", len(LARGE))]
    source = tree.source("t/v0/one.parquet", len(LARGE), "nowhere")
    assert (source.size(), source.read()) == (len(LARGE), LARGE)
    for start in (0, 999, len(LARGE) - 10):
        assert source.read_at(20, start) == LARGE[start : start + 20]


def test_what_is_abandoned_is_gone(tree: FileTree) -> None:
    for size in (10, len(LARGE)):
        file = tree.new_file(f"t/{size}.parquet")
        file.target.write(LARGE[:size])
        file.abandon()
    assert list(tree.tree()) == []


@pytest.mark.parametrize("size", [100, len(LARGE)])
def test_a_file_that_is_moved_is_read_all_the_same(tree: FileTree, size: int) -> None:
    make(tree, "t/one.parquet", LARGE[:size])
    before = tree.source("t/one.parquet", size, "t/_one.retired")
    assert before.read_at(10, 20) == LARGE[20:30]
    tree.move("t/one.parquet", "t/_one.retired")
    assert tree.names("t") == ["_one.retired"]
    for source in (before, tree.source("t/one.parquet", size, "t/_one.retired")):
        source.seek(0)
        assert source.read() == LARGE[:size]
    with pytest.raises(FileNotFoundError):
        tree.move("t/one.parquet", "t/_one.retired")
    tree.delete("t/_one.retired")
    tree.delete("t/_one.retired")
    with pytest.raises(FileNotFoundError):
        tree.source("t/one.parquet", size, "t/_one.retired").read()


def test_listings(tree: FileTree) -> None:
    assert (list(tree.tree()), list(tree.files("t")), tree.names("t")) == ([], [], [])
    for path in ("t/3", "t/1", "t/2", "t/deep/down/4", "other"):
        assert tree.create(path, b"12345")
    assert [found.name for found in tree.files("t", after="1") if "/" not in found.name] == ["2", "3"]
    assert tree.names("t") == ["1", "2", "3", "deep"]
    assert {path for path, _ in tree.tree("t")} == {"t/1", "t/2", "t/3", "t/deep/down/4"}
    assert len(list(tree.tree())) == 5
    assert all(abs(modified_s - time.time()) < 600 for _, modified_s in tree.tree())
    with pytest.raises(FileNotFoundError):
        tree.content("t/9")


def test_other_processes_find_the_same_place(tree: FileTree) -> None:
    tree.create("one", b"1")
    other: FileTree = pickle.loads(pickle.dumps(tree))
    assert (other.root, other.content("one"), other.read("one", 0, 1)) == (tree.root, b"1", b"1")


@pytest.mark.parametrize("names", [3, 30_000])
def test_a_file_of_the_lake_that_was_cut_is_named(any_place: Path | str, names: int) -> None:
    """A small one, which is read at once, and a large one."""
    land(any_place, changes(ID_NAME, *((n, "i", n, uuid4().hex + uuid4().hex) for n in range(names))))
    manifest = Manifest.open(any_place)
    [file] = manifest.files()
    content = manifest.lake.content(file.path)
    assert len(content) == file.bytes
    manifest.lake.delete(file.path)
    make(manifest.lake, file.path, content[: len(content) // 2])
    with pytest.raises(CorruptError, match=f"{file.path} is not what was written"):
        verify_file(manifest.lake, file)
    manifest.lake.delete(file.path)
    with pytest.raises(CorruptError, match=f"{file.path} is not what was written: it is missing"):
        verify_file(manifest.lake, file)
