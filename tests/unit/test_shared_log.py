"""The log on shared file systems, as far as no server is needed: which files count, and what users can do wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError
from headrace.log import layout
from headrace.log.directory import DirectoryLog
from headrace.log.shared import hdfs, s3
from headrace.log.shared.reader import Piece
from headrace.storage.base import Found


def unit(base: int) -> str:
    return f"{base:020d}.log"


def merged(base: int, stop: int) -> str:
    return f"{base:020d}-{stop:020d}.log"


def counting(*names: str, known: tuple[str, ...] = ()) -> list[str]:
    before = [Piece(int(name[:20]), name, 9) for name in known]
    return [piece.name for piece in s3.pieces(before, [Found(name, 9) for name in sorted(names)])]


def test_units_that_a_segment_covers_do_not_count() -> None:
    every = [merged(0, 30), *(unit(base) for base in (0, 10, 20, 30, 40))]
    assert counting(*every) == [merged(0, 30), unit(30), unit(40)]
    assert counting(merged(0, 30), unit(10), unit(30)) == [merged(0, 30), unit(30)]
    assert counting(unit(10), unit(20), unit(30), known=(merged(0, 30),)) == [merged(0, 30), unit(30)]


def test_of_two_merges_that_overlap_all_offsets_count_once() -> None:
    assert counting(merged(0, 20), merged(0, 30), unit(30)) == [merged(0, 30), unit(30)]
    assert counting(merged(0, 20), merged(10, 30), unit(30)) == [merged(0, 20), merged(10, 30), unit(30)]
    assert counting(merged(0, 30), merged(10, 20), unit(30)) == [merged(0, 30), unit(30)]


def test_what_stands_before_a_gap_does_not_count() -> None:
    assert counting(merged(0, 20), merged(50, 70), unit(70)) == [merged(50, 70), unit(70)]


def test_other_files_are_not_pieces() -> None:
    assert counting("readme", "1.log", unit(0) + ".bak", unit(0)) == [unit(0)]
    assert hdfs.segments([], [Found("writer-0000000001", 0), Found(".f00", 9)]) == []


def test_of_segments_with_the_same_offset_that_of_the_newest_writer_counts() -> None:
    names = [f"{0:020d}-{1:010d}.log", f"{7:020d}-{1:010d}.log", f"{7:020d}-{3:010d}.log"]
    pieces = hdfs.segments([], [Found(name, 9) for name in names])
    assert [piece.name for piece in pieces] == [names[0], names[2]]
    assert hdfs.segments(pieces[:1], [Found(name, 9) for name in names[1:]]) == pieces


@pytest.mark.parametrize("path", ["hdfs://nn", "hdfs:///log", "/log", "s3://b/x", "hdfs://nn:8020/with blank"])
def test_a_path_that_is_not_on_hdfs(path: str) -> None:
    with pytest.raises(ValidationError):
        hdfs.HdfsConfig(path=path)


@pytest.mark.parametrize("path", ["s3://", "s3:///x", "bucket/x", "hdfs://nn/x"])
def test_a_path_that_is_not_on_s3(path: str) -> None:
    with pytest.raises(ValidationError):
        s3.S3Config(path=path)


def test_an_address_is_no_path_of_this_machine() -> None:
    with pytest.raises(ValidationError, match="`type: hdfs` and `type: s3`"):
        DirectoryLog.Config.model_validate({"path": "s3://bucket/log"})


def test_half_a_login_has_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(ConfigError, match="SecretAccessKey") as raised:
        s3.S3Log(s3.S3Config(path="s3://bucket/log", access_key="somebody"))
    assert "secret_key" in raised.value.fix


def test_a_place_says_which_log_it_is(tmp_path: Path) -> None:
    places = ["hdfs://nn:8020/log", "s3://bucket", str(tmp_path), "s3", "./hdfs"]
    assert [layout.kind_of(place) for place in places] == ["hdfs", "s3", "directory", "directory", "directory"]
