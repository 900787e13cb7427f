"""Files of a real HDFS that somebody is writing, followed as they grow and move."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.storage.hdfs import HdfsFileStore
from headrace.storage.options import HdfsOptions
from tests.servers.hdfs import Hdfs


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The servers that were asked over HTTP."""
    found: list[str] = []
    urlopen = urllib.request.urlopen

    def noted(url: str, **more: Any) -> Any:
        found.append(urlsplit(url).netloc)
        return urlopen(url, **more)

    monkeypatch.setattr(urllib.request, "urlopen", noted)
    return found


def test_a_file_is_read_on_as_it_grows_and_until_it_moves(hdfs: Hdfs, asked: list[str]) -> None:
    store = HdfsFileStore(hdfs.place(), HdfsOptions(web=hdfs.web))
    file = store.grow("WALs/one")
    file.append([b"one"])
    assert store.read_on("WALs/one", 3, 100) == b""
    file.append([b"two"])
    assert store.read_on("WALs/one", 3, 100) == b"two"
    asked.clear()
    for end in (100, 7, 5, 100):
        assert store.read_on("WALs/one", 3, end) == b"two"[: end - 3]
    assert asked
    file.append([b"three"])
    assert store.read_on("WALs/one", 6, 100) == b"three"
    file.close()
    assert store.read_on("WALs/one", 6, 100) == b"three"
    assert store.read_on("WALs/one", 11, 100) == b""
    store.create("oldWALs/other", b"")
    store.move("WALs/one", "oldWALs/one")
    with pytest.raises(FileNotFoundError):
        store.read_on("WALs/one", 11, 100)
    assert store.read_on("oldWALs/one", 0, 100) == b"onetwothree"


def test_a_file_that_is_followed_is_asked_of_its_datanode_alone(hdfs: Hdfs, asked: list[str]) -> None:
    store = HdfsFileStore(hdfs.place(), HdfsOptions(web=hdfs.web))
    file = store.grow("WALs/one")
    file.append([b"one"])
    offset = len(store.read_on("WALs/one", 0, 100))
    for _ in range(3):
        file.append([b"more"])
        asked.clear()
        assert store.read_on("WALs/one", offset, 100) == b"more"
        offset += 4
        asked.clear()
        assert store.read_on("WALs/one", offset, 100) == b""
        assert urlsplit(hdfs.web).netloc not in asked
    file.close()
