"""The embedded log on HDFS and S3 with real servers that are really killed: writers, the DataNode, the NameNode, the S3 server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

import pytest

from headrace.errors import FencedError, RetryableError
from headrace.log.base import Entry, Log, Span
from tests.faults.log_writer import opened, value
from tests.patience import HANG_S
from tests.servers.hdfs import Hdfs
from tests.servers.process import Server
from tests.servers.s3 import S3

WRITER = Path(__file__).parent / "log_writer.py"
KILLS = int(os.environ.get("HEADRACE_KILLS", "2"))
EVERYTHING = Span(0, 1 << 60)


@dataclass
class Place:
    """A log of a test's own, and what its servers are called."""

    config: str
    servers: dict[str, Server]

    def open(self) -> Log:
        return opened(self.config)


@pytest.fixture(params=["hdfs", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    server = request.getfixturevalue(request.param)
    if isinstance(server, Hdfs):
        options = {"web": server.web, "timeout": "20s"}
        servers: dict[str, Server] = {"datanode": server.datanode, "namenode": server}
    else:
        assert isinstance(server, S3)
        options = server.options() | {"timeout": "20s"}
        servers = {"s3": server}
    config = {"type": request.param, "path": server.place(), "segment_bytes": 300_000, **options}
    return Place(json.dumps(config), servers)


@pytest.fixture
def start_writer(place: Place) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, str(WRITER), place.config, "1000000", "0"]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for writer in started:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()


def entries(log: Log, span: Span = EVERYTHING) -> list[bytes]:
    return [record.entry.value for record in log.read("t", 0, span)]


def is_as_written(found: list[bytes], first: int = 0) -> bool:
    return found == [value(number) for number in range(first, first + len(found))]


def retried(action: Callable[[], object]) -> None:
    """Until it works, as a capture does."""
    give_up_at = time.monotonic() + HANG_S
    while True:
        try:
            action()
        except FencedError:
            raise
        except RetryableError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.2)
        else:
            return


def test_kill_9_in_mid_append_with_a_reader_at_work(
    place: Place, start_writer: Callable[[], subprocess.Popen[str]]
) -> None:
    """Nothing acknowledged is lost, nothing is torn, and the reader, which never restarts, sees one unbroken log."""
    random = Random(7)
    reader = place.open()
    seen = reached = acknowledged = 0
    for _ in range(KILLS):
        writer = start_writer()
        assert writer.stdout is not None
        for _ in range(random.randint(1, 30)):
            acknowledged = int(writer.stdout.readline())
            stop = reader.spans("t")[0].stop
            found = entries(reader, Span(reached, stop))
            assert is_as_written(found, seen)
            seen += len(found)
            reached = stop
            assert seen >= acknowledged
        writer.kill()
        printed = writer.stdout.read().split()
        acknowledged = max([acknowledged, *map(int, printed[:-1])])
        assert len(entries(reader)) >= max(acknowledged, seen)
    found = entries(place.open())
    assert is_as_written(found)
    assert len(found) >= acknowledged


@pytest.mark.parametrize(
    ("place", "victim"), [("hdfs", "datanode"), ("hdfs", "namenode"), ("s3", "s3")], indirect=["place"]
)
def test_a_server_that_is_killed(place: Place, victim: str) -> None:
    """Appends fail while it is away and are tried again; each is then in the log once, or twice when its fate was open."""
    log, reader = place.open(), place.open()
    for number in range(5):
        log.append("t", 0, [Entry(b"k", value(number), number)])
    place.servers[victim].kill9()
    with pytest.raises(RetryableError) as raised:
        log.append("t", 0, [Entry(b"k", value(5), 5)])
    assert raised.value.fix
    place.servers[victim].start()
    retried(lambda: log.spans("t"))
    done = len(entries(log))
    assert done in (5, 6)
    for number in range(done, 10):
        retried(lambda number=number: log.append("t", 0, [Entry(b"k", value(number), number)]))
    assert is_as_written(entries(log))
    assert entries(reader) == entries(log)
    log.close()


@pytest.mark.parametrize("place", ["s3"] if KILLS < 20 else ["s3", "hdfs"], indirect=True)
def test_the_server_is_killed_under_a_writer(place: Place) -> None:
    """The server that holds the bytes goes at any moment of an append: what was acknowledged is there, what was not is there or not.

    HDFS only in `make test-long`: a NameNode tries the recovery of a block again after thirty heartbeats at the earliest.
    """
    victim = next(iter(place.servers.values()))
    random = Random(3)
    log = place.open()
    there: list[bytes] = []
    for kill in range(min(KILLS, 20)):
        log.append("t", 0, [Entry(b"k", b"%d" % kill, 0)])
        there.append(b"%d" % kill)
        killer = threading.Timer(random.random() / 5, victim.kill9)
        killer.start()
        for number in count():
            content = b"%d-%d" % (kill, number)
            try:
                log.append("t", 0, [Entry(b"k", content, 0)])
            except RetryableError:
                break
            there.append(content)
        killer.join()
        victim.start()
        retried(lambda: log.spans("t"))
        found = entries(log)
        assert found[: len(there)] == there
        assert found[len(there) :] in ([], [content])
        there = found
    log.close()
