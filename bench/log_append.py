"""How near the embedded log comes to the raw disk: append against write + fdatasync, read against pread, of the same bytes.

    python -m bench.log_append [--dir DIR] [--megabytes N]

Both sides of a ratio are measured in turns in one run, five times; medians count. The raw side writes the same number of bytes
per unit, and reads the log's own files, from the page cache as after any append and once more after dropping them from it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.machine import write_results
from headrace.log.base import Entry, Span
from headrace.log.directory import DirectoryLog
from headrace.log.segment import CHUNK_BYTES

ROUNDS = 5
EVERYTHING = Span(0, 1 << 60)


@dataclass(frozen=True)
class Shape:
    """What one append call carries."""

    name: str
    value_bytes: int
    entries: int

    @property
    def batch_bytes(self) -> int:
        return 44 + self.entries * (16 + 24 + self.value_bytes)


SHAPES = [
    Shape("one change of 300 B", 300, 1),
    Shape("50 blocks of 4 KiB", 4 << 10, 50),
    Shape("16 blocks of 64 KiB", 64 << 10, 16),
    Shape("4 blocks of 1 MiB", 1 << 20, 4),
    Shape("1000 changes of 300 B", 300, 1000),
]


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def raw_append(path: Path, shape: Shape, batches: int) -> None:
    data = os.urandom(shape.batch_bytes)
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for _ in range(batches):
        os.write(fd, data)
        os.fdatasync(fd)
    os.close(fd)


def append(log: DirectoryLog, shape: Shape, batches: int) -> None:
    entries = [Entry(b"mysql.db1.shop.t.0.0.0.0", os.urandom(shape.value_bytes), 0) for _ in range(shape.entries)]
    for _ in range(batches):
        log.append("t", 0, entries)


def raw_read(path: Path, use: Callable[[bytes], object] = len) -> None:
    for file in sorted(path.rglob("*.log")):
        fd = os.open(file, os.O_RDONLY)
        position = 0
        while chunk := os.pread(fd, CHUNK_BYTES, position):
            position += len(chunk)
            use(chunk)
        os.close(fd)


def read(path: Path) -> None:
    for _ in DirectoryLog(DirectoryLog.Config(path=path)).read("t", 0, EVERYTHING):
        pass


def drop_from_cache(path: Path) -> None:
    for file in path.rglob("*.log"):
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def measure(shape: Shape, directory: Path, megabytes: int) -> dict[str, float]:
    batches = max(20, min(20_000, megabytes * 1_000_000 // shape.batch_bytes))
    took: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        path = directory / "log"
        log = DirectoryLog(DirectoryLog.Config(path=path))
        log.append("t", 0, [])
        parts = {
            "raw append": lambda: raw_append(directory / "raw", shape, batches),
            "append": lambda log=log: append(log, shape, batches),
            "raw read": lambda path=path: raw_read(path),
            "raw read + crc32": lambda path=path: raw_read(path, zlib.crc32),
            "read": lambda path=path: read(path),
        }
        for name, action in parts.items():
            took.setdefault(name, []).append(seconds(action))
        for name in ("raw read", "read"):
            drop_from_cache(path)
            took.setdefault(f"{name}, cold", []).append(seconds(parts[name]))
        log.close()
        shutil.rmtree(path)
    return {name: batches * shape.batch_bytes / 1e6 / statistics.median(times) for name, times in took.items()}


def follow(directory: Path) -> tuple[float, float]:
    """Median milliseconds from the end of an append to a waiting reader's return, and CPU share of an idle wait."""
    writer, reader = (DirectoryLog(DirectoryLog.Config(path=directory / "follow")) for _ in range(2))
    delays_ms: list[float] = []
    for number in range(100):
        appended_at = 0.0

        def write() -> None:
            nonlocal appended_at
            time.sleep(0.02)
            writer.append("t", 0, [Entry(b"k", b"v" * 300, 0)])
            appended_at = time.perf_counter()

        thread = threading.Thread(target=write)
        thread.start()
        reader.wait("t", 0, number, 10.0)
        seen_at = time.perf_counter()
        thread.join()
        delays_ms.append(max(0.0, (seen_at - appended_at) * 1000))
    cpu_before = time.process_time()
    reader.wait("t", 0, 1000, 2.0)
    cpu_share = (time.process_time() - cpu_before) / 2.0
    reopen_ms = []
    for _ in range(20):
        writer.close()
        reopen_ms.append(seconds(lambda: writer.append("t", 0, [])) * 1000)
    writer.close()
    return statistics.median(delays_ms), cpu_share, statistics.median(reopen_ms)


def report(directory: Path, megabytes: int) -> Iterator[str]:
    yield "MB/s, medians of 5 rounds in turns. Read ratios, not absolute values.\n"
    yield "| one append | raw write + fdatasync | append | ratio | raw read | read | ratio | raw read + crc32 | ratio | raw read, cold | read, cold | ratio |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for shape in SHAPES:
        speed = measure(shape, directory, megabytes)
        cells = [shape.name]
        for raw, ours in (
            ("raw append", "append"),
            ("raw read", "read"),
            ("raw read + crc32", "read"),
            ("raw read, cold", "read, cold"),
        ):
            cells.append(f"{speed[raw]:,.0f}")
            if raw != "raw read + crc32":
                cells.append(f"{speed[ours]:,.0f}")
            cells.append(f"{speed[ours] / speed[raw]:.2f}")
        yield f"| {' | '.join(cells)} |"
    delay_ms, cpu_share, reopen_ms = follow(directory)
    yield f"\nA waiting reader returns {delay_ms:.1f} ms (median) after the append has; an idle wait takes {cpu_share:.1%} of a core; reopening after a close takes {reopen_ms:.1f} ms."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--megabytes", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        write_results("log_append", list(report(Path(directory), arguments.megabytes)))


if __name__ == "__main__":
    main()
