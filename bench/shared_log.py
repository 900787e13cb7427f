"""What the embedded log costs on HDFS and S3: append and read against the bare client with the same bytes, on the servers of the tests.

    python -m bench.shared_log

Both sides of a ratio take turns; medians count. HDFS's bare side is hdfs-native's write + hsync, and what WebHDFS needs to append the
same; S3's is a conditional PUT. One DataNode and one volume server, on this machine: what a network adds is not in these figures.
"""

from __future__ import annotations

import os
import statistics
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

import obstore
from hdfs_native import Client
from tests.servers.hdfs import Hdfs
from tests.servers.s3 import S3

from bench.machine import write_results
from headrace.log.base import Entry, Log, Span
from headrace.log.shared.hdfs import HdfsLog
from headrace.log.shared.s3 import S3Log

ROUNDS = 5
APPENDS = 60
MOST_BYTES = 32_000_000
"""Of one round of a side: the servers of the tests are small."""
_number = count(1)


@dataclass(frozen=True)
class Shape:
    """What one append carries."""

    name: str
    value_bytes: int
    entries: int

    @property
    def appends(self) -> int:
        """How often it is appended in a round."""
        return min(APPENDS, MOST_BYTES // (self.value_bytes * self.entries))

    def batch(self) -> list[Entry]:
        return [Entry(b"k" * 24, os.urandom(self.value_bytes), 0) for _ in range(self.entries)]

    def content(self) -> bytes:
        return os.urandom(48 + self.entries * (40 + self.value_bytes))


SHAPES = [
    Shape("one change of 300 B", 300, 1),
    Shape("50 blocks of 4 KiB", 4 << 10, 50),
    Shape("4 blocks of 1 MiB", 1 << 20, 4),
]


def per_call_ms(action: Callable[[], object], calls: int = APPENDS) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        action()
    return (time.perf_counter() - started) / calls * 1000


def medians(sides: list[Callable[[], float]]) -> list[float]:
    rounds = [[side() for side in sides] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def append_and_read(
    log: Log, shape: Shape, bare_append: Callable[[bytes], object], bare_read: Callable[[], int]
) -> list[str]:
    """ms per append, bare and logged; MB/s read, bare and logged."""
    batch, content = shape.batch(), shape.content()
    bare_ms, ms = medians(
        [
            lambda: per_call_ms(lambda: bare_append(content), shape.appends),
            lambda: per_call_ms(lambda: log.append("t", 0, batch), shape.appends),
        ]
    )
    bare, ours = medians([lambda: rate(bare_read), lambda: rate(lambda: read(log))])
    return [f"{bare_ms:.2f}", f"{ms:.2f}", f"{bare_ms / ms:.2f}", f"{bare:.0f}", f"{ours:.0f}", f"{ours / bare:.2f}"]


def read(log: Log) -> int:
    return sum(len(record.entry.value) for record in log.read("t", 0, Span(0, 1 << 60)))


def rate(action: Callable[[], int]) -> float:
    started = time.perf_counter()
    return action() / 1e6 / (time.perf_counter() - started)


def on_hdfs(hdfs: Hdfs, shape: Shape) -> list[str]:
    client, path = Client(hdfs.url), urlsplit(hdfs.place()).path
    writer = client.create(f"{path}/bare")
    log = HdfsLog(HdfsLog.Config(path=f"{hdfs.url}{path}/log", web=hdfs.web))

    def bare_append(content: bytes) -> None:
        writer.write(content)
        writer.hsync()

    def bare_read() -> int:
        writer.close()
        reader = client.read(f"{path}/bare")
        return len(reader.read_range(0, len(reader)))

    return append_and_read(log, shape, bare_append, bare_read)


def on_s3(s3: S3, shape: Shape) -> list[str]:
    client, prefix = s3.store(), f"bare-{next(_number)}"
    log = S3Log(S3Log.Config(path=s3.place(), **s3.options()))
    names: list[str] = []

    def bare_append(content: bytes) -> None:
        names.append(f"{prefix}/{len(names):020d}")
        obstore.put(client, names[-1], content, mode="create", use_multipart=False)

    def bare_read() -> int:
        return sum(len(obstore.get(client, name).bytes()) for name in names)

    return append_and_read(log, shape, bare_append, bare_read)


def webhdfs_append_ms(hdfs: Hdfs) -> float:
    """What was not chosen: each append a request that opens and closes the file."""
    path = f"{urlsplit(hdfs.place()).path}/web"
    Client(hdfs.url).create(path).close()
    asked = urllib.request.Request(
        f"{hdfs.web}/webhdfs/v1{path}?op=APPEND&noredirect=true&user.name=root", method="POST"
    )
    location = (
        urllib.request.urlopen(asked).read().decode().partition('"Location":"')[2].partition('"')[0].replace("\\/", "/")
    )
    headers = {"Content-Type": "application/octet-stream"}
    content = os.urandom(388)
    return per_call_ms(
        lambda: urllib.request.urlopen(urllib.request.Request(location, content, headers, method="POST")).read()
    )


def seen_after_ms(log: Log, reader: Log) -> float:
    """From the return of an append until a reader that polls has the record."""
    taken = []
    for _ in range(APPENDS):
        span = log.append("t", 0, [Entry(b"k", b"v", 0)])
        started = time.perf_counter()
        reader.wait("t", 0, span.start, 10)
        assert list(reader.read("t", 0, span))
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


def main() -> None:
    lines = [
        "| store, one append | bare append, ms | append, ms | ratio | bare read, MB/s | read, MB/s | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    after = []
    with Hdfs() as hdfs, S3() as s3:
        lines += [f"| HDFS, {shape.name} | {' | '.join(on_hdfs(hdfs, shape))} |" for shape in SHAPES]
        lines += [f"| S3, {shape.name} | {' | '.join(on_s3(s3, shape))} |" for shape in SHAPES]
        after.append(f"Append by WebHDFS (not used), one change of 300 B: {webhdfs_append_ms(hdfs):.1f} ms.")
        config = HdfsLog.Config(path=hdfs.place(), web=hdfs.web)
        after.append(
            f"A reader has a record {seen_after_ms(HdfsLog(config), HdfsLog(config)):.1f} ms after its append on HDFS,"
        )
        other = S3Log.Config(path=s3.place(), **s3.options())
        after.append(f"{seen_after_ms(S3Log(other), S3Log(other)):.1f} ms on S3 (medians).")
    write_results("shared_log", [*lines, "", *after])


if __name__ == "__main__":
    main()
