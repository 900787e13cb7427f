"""Wishes about full loads: files that every process of a run sees, taken once."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.capture.load import wishes
from headrace.errors import ConfigError


def test_a_pause_lasts_until_it_is_taken_back(tmp_path: Path) -> None:
    state = tmp_path / "sources" / "db1"
    assert not wishes.is_paused(state)
    wishes.resume(state)
    for _ in range(2):
        wishes.pause(state)
        assert wishes.is_paused(state)
    wishes.resume(state)
    assert not wishes.is_paused(state)


def test_requests_and_cancels_are_there_until_they_are_taken(tmp_path: Path) -> None:
    name = wishes.Request([("shop", "orders")], "id < 5").write(tmp_path)
    wishes.cancel(tmp_path, [3, 14])
    assert not wishes.is_taken(tmp_path, name)
    [(path, request)] = wishes.requests(tmp_path)
    assert request == wishes.Request([("shop", "orders")], "id < 5")
    [(_, loads)] = wishes.cancels(tmp_path)
    assert loads == [3, 14]
    path.unlink()
    assert wishes.is_taken(tmp_path, name)


@pytest.mark.parametrize("content", ["{", "{}", '{"tables": 5, "loads": [null]}'])
def test_a_file_that_is_no_wish_is_told(tmp_path: Path, content: str) -> None:
    for kind, read in (("requests", wishes.requests), ("cancels", wishes.cancels)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "x.json").write_text(content)
        with pytest.raises(ConfigError, match="cannot be read"):
            list(read(tmp_path))
