"""The embedded log: what users can do wrong, what disks can do wrong, and what it must not do often."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.errors import (
    ConfigError,
    CorruptError,
    FatalError,
    FencedError,
    RetryableError,
    StorageError,
)
from headrace.log import index
from headrace.log.base import Entry, Span
from headrace.log.directory import DirectoryLog
from headrace.log.disk import Disk
from headrace.log.retention import HOUR_MS, Closed, Keep, Retention, expired

EVERYTHING = Span(0, 1 << 60)


class CountingDisk(Disk):
    """A real disk that counts what is read."""

    read_bytes = 0

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        data = super().pread(fd, size_bytes, position)
        self.read_bytes += len(data)
        return data


class FailingDisk(Disk):
    """A real disk on which one system call fails while `fails` is set."""

    fails = ""

    def _check(self, call: str) -> None:
        if call == self.fails:
            raise OSError(5, "Input/output error")

    def pwritev(self, fd: int, parts: Sequence[bytes], position: int) -> int:
        super().pwritev(fd, [b"".join(parts)[:100]], position)
        self._check("pwritev")
        return super().pwritev(fd, parts, position)

    def fdatasync(self, fd: int) -> None:
        self._check("fdatasync")
        super().fdatasync(fd)

    def fsync_directory(self, directory: Path) -> None:
        self._check("fsync_directory")
        super().fsync_directory(directory)


def open_log(path: Path, disk: Disk | None = None, segment_bytes: int = 1 << 27, **more: object) -> DirectoryLog:
    config = DirectoryLog.Config.model_validate(
        {"path": path, "segment_bytes": segment_bytes, "writer_wait_s": 0, **more}
    )
    return DirectoryLog(config, disk)


def entry(value: bytes, time_ms: int = 0) -> Entry:
    return Entry(b"k", value, time_ms)


def values(log: DirectoryLog, span: Span = EVERYTHING) -> list[bytes]:
    return [record.entry.value for record in log.read("t", 0, span)]


def fill(log: DirectoryLog, batches: int, value: bytes = b"v" * 100) -> None:
    for _ in range(batches):
        log.append("t", 0, [entry(value)])


def segments(path: Path) -> list[Path]:
    return sorted((path / "t" / "0").glob("*.log"))


def spoil(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)


# what users do


def test_the_constructor_touches_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    assert dict(log.spans("t")) == {}
    log.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "use", [lambda log: log.append("t", 0, [entry(b"a")]), lambda log: log.spans("t"), DirectoryLog.topics]
)
def test_a_path_that_is_a_file(tmp_path: Path, use: Callable[[DirectoryLog], object]) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(ConfigError, match="log is not a directory"):
        use(open_log(tmp_path / "log"))


def test_a_directory_of_other_things_is_not_made_a_log(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    log = open_log(tmp_path)
    for use in (lambda: log.append("t", 0, [entry(b"a")]), log.topics, lambda: log.spans("t")):
        with pytest.raises(ConfigError, match="is not a log: it holds photos"):
            use()
    assert list(tmp_path.iterdir()) == [tmp_path / "photos"]


def test_topics_of_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no log at"):
        open_log(tmp_path / "log").topics()


def test_any_topic_is_a_safe_file_name(tmp_path: Path) -> None:
    names = ["..", ".", "a/../../b", "ü", "a b", "%2E", ".headrace-log", "\0", "x" * 255]
    log = open_log(tmp_path / "log")
    for name in names:
        log.append(name, 0, [entry(name.encode())])
    assert log.topics() == sorted(names)
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]
    log.close()


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("x" * 256, 0), ("\ud800", 0), ("t", -1)])
def test_impossible_names(tmp_path: Path, topic: str, partition: int) -> None:
    with pytest.raises(ConfigError) as raised:
        open_log(tmp_path / "log").append(topic, partition, [entry(b"a")])
    assert raised.value.fix


def test_offsets_start_at_zero_and_have_no_gaps(tmp_path: Path) -> None:
    log = DirectoryLog(DirectoryLog.Config(path=tmp_path / "log"))
    entries = [Entry(b"k", b"v", 0)] * 2
    assert [log.append("t", 0, entries) for _ in range(2)] == [Span(0, 2), Span(2, 4)]
    assert [record.offset for record in log.read("t", 0, Span(0, 9))] == [0, 1, 2, 3]
    assert dict(log.spans("t")) == {0: Span(0, 4)}
    log.close()


def test_a_second_writer_is_told_who_holds_the_partition(tmp_path: Path) -> None:
    first, second = open_log(tmp_path), open_log(tmp_path)
    fill(first, 1)
    with pytest.raises(RetryableError, match=f"is being written by process {os.getpid()} on"):
        fill(second, 1)
    first.close()
    fill(second, 1)
    second.close()


def test_a_writer_whose_directory_is_deleted_stops(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 1)
    for file in (tmp_path / "t" / "0").iterdir():
        file.unlink()
    for _ in range(2):
        with pytest.raises(FencedError):
            fill(log, 1)
    log.close()


def test_a_deleted_lock_file_does_not_let_two_write(tmp_path: Path) -> None:
    first, second = open_log(tmp_path), open_log(tmp_path)
    fill(first, 1, b"first")
    (tmp_path / "t" / "0" / "lock").unlink()
    fill(second, 1, b"second")
    for _ in range(2):
        with pytest.raises(FencedError, match="was taken over"):
            fill(first, 1, b"zombie")
    first.close()
    fill(second, 1, b"second")
    assert values(second) == [b"first", b"second", b"second"]
    second.close()


def test_a_partition_made_anew_is_read_anew(tmp_path: Path) -> None:
    reader = open_log(tmp_path)
    for value in (b"old", b"new"):
        writer = open_log(tmp_path)
        fill(writer, 1, value)
        writer.close()
        assert values(reader) == [value]
        for file in (tmp_path / "t" / "0").iterdir():
            file.unlink()


# what disks do


def test_damage_is_named_with_file_and_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    file = segments(tmp_path)[0]
    batch_bytes = file.stat().st_size // 3
    spoil(file, batch_bytes + 60)
    with pytest.raises(CorruptError, match=f"{file} is damaged at byte {batch_bytes}: the checksum"):
        values(log)
    assert values(log, Span(0, 1)) == [b"v" * 100]
    log.close()


@pytest.mark.parametrize("position", [0, 4, 9, 16, 24, 60])
def test_damage_before_the_published_end_is_never_cut(tmp_path: Path, position: int) -> None:
    log = open_log(tmp_path)
    fill(log, 2)
    log.close()
    (tmp_path / "t" / "0" / "end").write_bytes(b"")
    file = segments(tmp_path)[0]
    spoil(file, file.stat().st_size // 2 + position)
    before = file.read_bytes()
    with pytest.raises(CorruptError, match="damaged at byte"):
        fill(open_log(tmp_path), 1)
    assert file.read_bytes() == before


def test_a_torn_end_is_cut_and_the_log_goes_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 2)
    log.close()
    file = segments(tmp_path)[0]
    whole = file.read_bytes()
    for torn in (b"H", whole[:40], whole[: len(whole) // 2 - 1], bytes(500)):
        file.write_bytes(whole + torn)
        writer = open_log(tmp_path)
        writer.append("t", 0, [])
        assert file.read_bytes() == whole
        assert len(values(writer)) == 2
        writer.close()


def test_a_bad_batch_with_a_good_one_behind_it_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 1)
    end = (tmp_path / "t" / "0" / "end").read_bytes()
    fill(log, 2)
    log.close()
    (tmp_path / "t" / "0" / "end").write_bytes(end)  # as a power loss may leave it
    file = segments(tmp_path)[0]
    third = file.stat().st_size // 3
    spoil(file, third + 70)
    with pytest.raises(CorruptError, match=f"damaged at byte {third}"):
        fill(open_log(tmp_path), 1)


def test_a_short_segment_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 2)
    log.close()
    file = segments(tmp_path)[0]
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(CorruptError, match="ends before its published end"):
        values(open_log(tmp_path))
    with pytest.raises(CorruptError, match="ends before its published end"):
        fill(open_log(tmp_path), 1)


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=150)
    fill(log, 4)
    log.close()
    for missing in (0, 2):
        content = segments(tmp_path)[missing].read_bytes()
        path = segments(tmp_path)[missing]
        path.unlink()
        with pytest.raises(CorruptError):
            values(open_log(tmp_path))
        path.write_bytes(content)
    segments(tmp_path)[3].unlink()
    with pytest.raises(CorruptError, match="the segment is missing"):
        fill(open_log(tmp_path), 1)


def test_a_damaged_end_is_told_to_readers_and_rebuilt_by_the_writer(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1000)
    fill(log, 20)
    log.close()
    spoil(tmp_path / "t" / "0" / "end", 20)
    with pytest.raises(CorruptError, match="end is damaged"):
        open_log(tmp_path).spans("t")
    writer = open_log(tmp_path)
    assert writer.append("t", 0, [entry(b"a")]) == Span(20, 21)
    assert len(values(writer)) == 21
    writer.close()


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
def test_a_failed_append_leaves_nothing_behind(tmp_path: Path, call: str) -> None:
    disk = FailingDisk()
    log, reader = open_log(tmp_path, disk), open_log(tmp_path)
    fill(log, 1, b"before")
    file = segments(tmp_path)[0]
    size_bytes = file.stat().st_size
    disk.fails = call
    with pytest.raises(StorageError, match="could not append to"):
        fill(log, 1, b"failed" * 1000)
    assert file.stat().st_size == size_bytes
    assert values(reader) == [b"before"]
    disk.fails = ""
    fill(log, 1, b"after")
    assert values(reader) == [b"before", b"after"]
    log.close()


def test_a_segment_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk, segment_bytes=150)
    fill(log, 1)
    disk.fails = "fsync_directory"
    with pytest.raises(StorageError, match="could not sync the directory of"):
        fill(log, 1)
    disk.fails = ""
    fill(log, 3)
    assert len(values(log)) == 4
    log.close()


# the index


def test_the_index_is_not_needed_and_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "STEP_BYTES", 1000)
    log = open_log(tmp_path, segment_bytes=20_000)
    for number in range(400):
        log.append("t", 0, [entry(b"%03d" % number * 20, time_ms=number * 10)])
    log.close()
    indexes = sorted((tmp_path / "t" / "0").glob("*.index"))
    assert len(indexes) > 1
    whole = [path.read_bytes() for path in indexes]
    foreign = [index.Row(at, at * 1111 + 1000, 0).to_bytes() for at in range(1, 9)]
    for contents in (
        whole,
        [b""] * len(whole),
        [w[:50] for w in whole],
        [b"\0" * 84] * len(whole),
        [b"".join(foreign)] * len(whole),
    ):
        for path, content in zip(indexes, contents, strict=True):
            path.write_bytes(content)
        for wanted in range(0, 400, 37):
            reader = open_log(tmp_path)
            assert values(reader, Span(wanted, wanted + 1)) == [b"%03d" % wanted * 20]
            assert reader.offset_at("t", 0, wanted * 10 - 5) == wanted


# what must not be done often


def test_reopening_after_a_close_reads_almost_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 50, b"v" * 100_000)
    log.close()
    disk = CountingDisk()
    log = open_log(tmp_path, disk)
    fill(log, 1)
    assert disk.read_bytes < 300_000
    log.close()


def test_a_follower_reads_each_byte_once(tmp_path: Path) -> None:
    disk = CountingDisk()
    writer, reader = open_log(tmp_path, segment_bytes=50_000), open_log(tmp_path, disk)
    for number in range(300):
        span = writer.append("t", 0, [entry(b"v" * 1000)])
        assert [record.offset for record in reader.read("t", 0, span)] == [number]
    assert disk.read_bytes < 1.3 * sum(file.stat().st_size for file in segments(tmp_path))
    writer.close()


def test_seeking_reads_a_small_part(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 400, b"v" * 50_000)
    disk = CountingDisk()
    assert len(values(open_log(tmp_path, disk), Span(399, 400))) == 1
    assert disk.read_bytes < 2_000_000
    log.close()


# retention


def test_what_may_go() -> None:
    now_ms = 100 * HOUR_MS
    closed = [Closed(base, 100, base * HOUR_MS) for base in (90, 95, 99)]
    assert expired(closed, Keep(None, None), now_ms) == 0
    assert expired(closed, Keep(6 * HOUR_MS, None), now_ms) == 1
    assert expired(closed, Keep(HOUR_MS, None), now_ms) == 2
    assert expired(closed, Keep(None, 250), now_ms) == 1
    assert expired(closed, Keep(None, 0), now_ms) == 2


def test_old_segments_go_and_readers_are_told(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1000, retention=Retention(age_s=7200))
    for number in range(40):
        log.append("t", 0, [entry(b"v" * 300, time_ms=number * 600_000)])
    kept = log.spans("t")[0]
    assert 20 < kept.start < 28
    assert int(segments(tmp_path)[0].stem) == kept.start
    assert len(values(log, kept)) == len(kept)
    with pytest.raises(FatalError, match=f"the log starts at {kept.start}"):
        values(log)
    log.close()


def test_retention_below_an_hour_is_refused() -> None:
    with pytest.raises(ValueError, match="3600"):
        Retention(age_s=60)
