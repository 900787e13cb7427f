"""Any interleaving of changes and DDL on random tables: the log replayed is what SELECT answers, from every boundary the same; and a capture that
knows the tables already, as one that was killed before its log had anything, tells the same once more.

A failure names its seed. HEADRACE_SERVER_HISTORIES sets how many are run on each server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig
from headrace.codec.binlog import BinlogReader, Boundary
from headrace.errors import SourceError
from headrace.ums.change import ChangeBatch, Clear, End
from tests.oracle.answers import differences
from tests.oracle.random_history import RandomHistory
from tests.oracle.replay import Change, Replay, in_order
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql

HISTORIES = int(os.environ.get("HEADRACE_SERVER_HISTORIES", "5"))
STEPS = 60
BOUNDARIES = 25
"""How many boundaries of a history are tried when there are more; all when all histories are run."""


@pytest.fixture(scope="module", params=[MariaDb, MySql])
def server(request: pytest.FixtureRequest) -> Iterator[BinlogServer]:
    """One that does not wait for the disk: nothing crashes here."""
    with request.param("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0") as server:
        yield server


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_replay_equals_select_and_resumes_anywhere(server: BinlogServer, seed: int, tmp_path: Path) -> None:
    with server.database() as database:
        server.execute("FLUSH BINARY LOGS")
        with closing(RandomHistory(server, database, seed)) as history:
            history.run(STEPS)
        log = server.binlogs()[-1]
        replay = Replay().apply([log], database)
        assert replay.changes > STEPS
        with closing(server.connect(database)) as connection:
            assert not differences(connection, database, replay.tables)
        resume_everywhere(log, database)
        config = MySqlConfig(type="mysql", name="db1", files=log, tables=[f"{database}.*"])
        told = captured(config, tmp_path)
        assert len(told) > 1
        assert captured(config, tmp_path) == told


def captured(config: MySqlConfig, state: Path) -> list[str]:
    """All that a capture from the beginning hands out, as text; up to its fault where an image of a row is not whole."""
    lines: list[str] = []
    with closing(MySqlSource(config, state)) as source:
        try:
            for event in source.follow(None):
                lines += [line for change in event.changes for line in as_text(change)]
                if event.caught_up:
                    break
        except SourceError as error:
            lines.append(error.message)
    return lines


def as_text(change: ChangeBatch | Clear | End) -> list[str]:
    if isinstance(change, ChangeBatch):
        return [f"{change.table} {row}" for row in change.data.to_pylist()]
    return [repr(change)]


def resume_everywhere(log: Path, database: str) -> None:
    content = log.read_bytes()
    whole, boundaries = from_boundary(content, log.name, database, None)
    assert len(boundaries) > STEPS / 4
    step = max(1, len(boundaries) // BOUNDARIES) if HISTORIES < 50 else 1
    for boundary in boundaries[::step]:
        rest, _ = from_boundary(content, log.name, database, boundary)
        assert rest == [(id_, text) for id_, text in whole if id_ > boundary.id], boundary


def from_boundary(
    content: bytes, name: str, database: str, boundary: Boundary | None
) -> tuple[list[tuple[int, str]], list[Boundary]]:
    """Everything behind a boundary with its ids, and the boundaries on the way: one at every transaction's end."""
    reader = BinlogReader([f"{database}.*"], before_images=True)
    if boundary is None:
        reader.start(name)
    else:
        reader.start(name, boundary.offset, commit_ts_us=boundary.commit_ts_us, head=content[:4096])
    rest = memoryview(content)[boundary.offset if boundary else 0 :]
    found: list[tuple[int, str]] = []
    boundaries: list[Boundary] = []
    while rest:
        rest = rest[reader.feed(rest, rows=1) :]
        part = reader.take()
        assert part.boundary is not None
        boundaries.append(part.boundary)
        items = in_order(part.items)
        found += [(item.number, item.line) if isinstance(item, Change) else (item.id, item.sql) for item in items]
    return found, boundaries
