"""Names of directories, and orphans."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.lake.commit import Manifest
from headrace.lake.layout import ORPHAN_GRACE_S, directory_of, remove_orphans
from headrace.storage.location import tree_at
from headrace.ums.schema import Namespace
from tests.lake_tables import ID_NAME, changes, land, open_sink, parquet_files


@pytest.mark.parametrize(
    ("namespace", "directory"),
    [
        (Namespace("mysql", "db1", "shop", "orders"), "mysql/db1/shop/orders/v0"),
        (Namespace("mysql", "db1", "shop", "orders", 12, "2", "7-1"), "mysql/db1/shop/orders/v12-2-7%2D1"),
        (Namespace("mysql", "a/b", "..", "_hidden.x", 1), "mysql/a%2Fb/%2E%2E/%5Fhidden%2Ex/v1"),
        (Namespace("mysql", "db1", "shop", "订单_1"), "mysql/db1/shop/订单_1/v0"),
        (Namespace("mysql", "db1", "", "100%"), "mysql/db1/%/100%25/v0"),
    ],
)
def test_a_namespace_has_its_own_directory(namespace: Namespace, directory: str) -> None:
    assert directory_of(namespace) == directory


def test_only_old_files_that_no_commit_lists_are_removed(tmp_path: Path) -> None:
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a")))
    kept = parquet_files(tmp_path)[0]
    names = ("dead-000001.parquet", "_dead-000002.parquet.writing", "young-000001.parquet", "someone's.txt")
    files = [kept.with_name(name) for name in names]
    for file in files:
        file.touch()
    long_ago = time.time() - ORPHAN_GRACE_S - 60
    for file in (kept, files[0], files[1], files[3]):
        os.utime(file, (long_ago, long_ago))
    removed = remove_orphans(tree_at(tmp_path), lambda: Manifest.open(tmp_path).known_paths())
    assert sorted(removed) == sorted(file.relative_to(tmp_path).as_posix() for file in files[:2])
    assert set(kept.parent.iterdir()) == {kept, files[2], files[3]}


def test_opening_to_write_removes_orphans(tmp_path: Path) -> None:
    orphan = tmp_path / "mysql" / "dead.parquet"
    orphan.parent.mkdir()
    orphan.touch()
    os.utime(orphan, (0, 0))
    open_sink(tmp_path).position("db1", 0)
    assert not orphan.exists()
