"""The embedded log with real processes, real signals and a disk that is really full."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from headrace.errors import FencedError, StorageError
from headrace.log.base import Entry, Record, Span
from headrace.log.directory import DirectoryLog
from tests.faults.log_writer import value

WRITER = Path(__file__).parent / "log_writer.py"
KILLS = 12


def open_log(path: Path) -> DirectoryLog:
    return DirectoryLog(DirectoryLog.Config(path=path, segment_bytes=300_000))


def start_writer(path: Path, batches: int, largest_file_bytes: int = 0) -> subprocess.Popen[str]:
    config = json.dumps({"type": "directory", "path": str(path), "segment_bytes": 300_000})
    command = [sys.executable, str(WRITER), config, str(batches), str(largest_file_bytes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def is_as_written(records: list[Record], start: int) -> bool:
    return [(record.offset, record.entry.value) for record in records] == [
        (number, value(number)) for number in range(start, start + len(records))
    ]


def test_kill_9_in_mid_append_with_a_reader_at_work(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, nothing is torn, and the reader, which never restarts, sees one unbroken log."""
    random = Random(7)
    reader = open_log(tmp_path)
    seen = acknowledged = 0
    for _ in range(KILLS):
        writer = start_writer(tmp_path, batches=1_000_000)
        assert writer.stdout is not None
        for _ in range(random.randint(1, 60)):
            acknowledged = int(writer.stdout.readline())
            assert reader.wait("t", 0, acknowledged - 1, 0.0)
            records = list(reader.read("t", 0, Span(seen, 1 << 60)))
            assert is_as_written(records, seen)
            seen += len(records)
        writer.kill()
        printed = writer.stdout.read().split()
        writer.stdout.close()
        writer.wait()
        acknowledged = max([acknowledged, *map(int, printed[:-1])])
        assert reader.spans("t")[0].stop >= max(acknowledged, seen)
    records = list(reader.read("t", 0, Span(0, 1 << 60)))
    assert is_as_written(records, 0)
    assert len(records) >= acknowledged


def test_a_killed_writer_leaves_the_lock_to_the_next(tmp_path: Path) -> None:
    first = start_writer(tmp_path, batches=1_000_000)
    assert first.stdout is not None
    first.stdout.readline()
    os.kill(first.pid, 9)
    second = start_writer(tmp_path, batches=3)
    output, _ = second.communicate()
    first.stdout.close()
    first.wait()
    assert second.returncode == 0
    assert "error" not in output


def test_a_write_refused_by_the_system_is_taken_back(tmp_path: Path) -> None:
    """The process may not make files longer than 100,000 bytes: one append fails, with a message, and the next one works."""
    writer = start_writer(tmp_path, batches=200, largest_file_bytes=100_000)
    output, _ = writer.communicate()
    assert writer.returncode == 0
    assert output.count("error could not append to") == 1
    assert "Traceback" not in output
    acknowledged = [int(line) for line in output.splitlines() if line.isdecimal()]
    assert len(acknowledged) == 199
    records = list(open_log(tmp_path).read("t", 0, Span(0, 1 << 60)))
    assert is_as_written(records, 0)
    assert len(records) == acknowledged[-1]


def test_a_forked_child_does_not_write_with_its_parents_lock(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append("t", 0, [Entry(b"k", value(0), 0)])
    child = os.fork()
    if child == 0:
        try:
            log.append("t", 0, [Entry(b"k", b"child", 0)])
        except FencedError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    log.append("t", 0, [Entry(b"k", value(1), 0)])
    assert is_as_written(list(log.read("t", 0, Span(0, 1 << 60))), 0)
    log.close()


@pytest.fixture
def free_space(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Makes `tmp_path` a disk with 500 kB left, and frees more when called. Where we may not mount, a limit on files does it."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.getuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        ballast = tmp_path / ".ballast"
        ballast.write_bytes(bytes(500_000))
        yield ballast.unlink
        subprocess.run(["umount", str(tmp_path)], check=True)
    else:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def fill_up(log: DirectoryLog) -> tuple[int, StorageError]:
    for number in range(100_000):
        try:
            log.append("t", 0, [Entry(b"k", value(number), 0)])
        except StorageError as error:
            return number, error
    raise AssertionError("the disk never became full")


def test_a_full_disk(tmp_path: Path, free_space: Callable[[], None]) -> None:
    log = open_log(tmp_path)
    number, error = fill_up(log)
    assert "No space left" in error.message or "File too large" in error.message
    with pytest.raises(StorageError):
        log.append("t", 0, [Entry(b"k", bytes(250_000), 0)])
    assert is_as_written(list(log.read("t", 0, Span(0, 1 << 60))), 0)
    free_space()
    assert log.append("t", 0, [Entry(b"k", value(number), 0)]) == Span(number, number + 1)
    log.close()
    reopened = open_log(tmp_path)
    assert is_as_written(list(reopened.read("t", 0, Span(0, 1 << 60))), 0)
    assert reopened.spans("t")[0].stop == number + 1
    reopened.close()
