"""The lake on HDFS and S3: writers and caretakers are really killed, servers go and come back; one truth is left, nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from headrace.errors import RetryableError
from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.parquet import verify_file
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.storage.location import tree_at
from headrace.storage.options import StoreOptions
from tests.faults.lake_writer import PER_COMMIT
from tests.faults.test_lake_care_crash import OWN_POINTS, caretaker, ended, sums
from tests.faults.test_lake_crash import Writer, check_complete, check_whole, run
from tests.lake_tables import ID_NAME, ORDERS, at, changes, ids_in, land, open_sink, rows
from tests.servers.hdfs import Hdfs
from tests.servers.process import Server
from tests.servers.s3 import S3

KILLS = int(os.environ.get("HEADRACE_KILLS", "2"))
ALL = KILLS > 2
"""Whether each point is tried, or of those before and behind what decides one each."""
POLICY = Policy(grace=0, state_changes=20)


def test_a_writer_is_killed_at_random_times(shared_place: str) -> None:
    chance = Random(5)
    kept = 0
    for _ in range(KILLS):
        writer = Writer(shared_place, 10**6).opened().go()
        assert writer.process.stdout is not None
        committed = int(writer.process.stdout.readline())
        time.sleep(chance.uniform(0.0, 0.3))
        writer.process.kill()
        code, seen = writer.end()
        assert code == -signal.SIGKILL
        offset = check_whole(shared_place)
        assert offset >= max(kept, committed, seen) > 0, "what was committed stays"
        kept = offset
    assert run(shared_place, kept + PER_COMMIT) == (0, kept + PER_COMMIT)
    check_complete(shared_place, kept + PER_COMMIT)


@pytest.mark.parametrize("point", ["lake.files_named", "create.written", "create.named"] if ALL else ["create.named"])
def test_a_writer_is_killed_before_and_behind_what_decides(shared_place: str, point: str) -> None:
    done = PER_COMMIT if point == "create.named" else 0
    Manifest.open_to_write(shared_place)
    code, seen = run(shared_place, 9 * PER_COMMIT, f"{point}:2")
    assert code == -signal.SIGKILL
    assert check_whole(shared_place) == seen + done == PER_COMMIT + done
    assert run(shared_place, 3 * PER_COMMIT) == (0, 3 * PER_COMMIT)
    check_complete(shared_place, 3 * PER_COMMIT)


def test_of_two_runs_of_one_flow_one_is_fenced(shared_place: str) -> None:
    writers = [Writer(shared_place, 4 * PER_COMMIT).opened() for _ in range(2)]
    for writer in writers:
        writer.go()
    with ThreadPoolExecutor(2) as threads:
        ends = sorted(threads.map(Writer.end, writers))
    assert [code for code, _ in ends] == [0, 3]
    check_complete(shared_place, 4 * PER_COMMIT)


@pytest.mark.parametrize("point", OWN_POINTS if ALL else ["tend.edited", "tend.swept"])
def test_a_caretaker_is_killed(shared_place: str, point: str) -> None:
    for offset in range(1, 5):
        first = offset * 10
        land(shared_place, changes(ID_NAME, *((first + n, "u", n, str(first + n)) for n in range(10))), offset=offset)
    before, states = sums(shared_place), {id_: rows(as_of(shared_place, ORDERS, id=id_)) for id_ in (14, 33, 49)}
    code, errors = ended(caretaker(shared_place, POLICY, crash_at=point))
    assert code == -signal.SIGKILL, errors
    for id_, expected in states.items():
        assert rows(as_of(shared_place, ORDERS, id=id_)) == expected
    done = Caretaker(shared_place, POLICY).tend(all_periods=True)
    assert not done.problems
    assert sums(shared_place) == before
    manifest = Manifest.open(shared_place)
    assert (len(manifest.tables[ORDERS]), manifest.retired) == (1, {})
    for file in manifest.files():
        verify_file(manifest.lake, file)


@pytest.fixture(params=["hdfs", "s3"])
def server_and_place(request: pytest.FixtureRequest) -> tuple[Server, str, StoreOptions]:
    server = request.getfixturevalue(request.param)
    if isinstance(server, Hdfs):
        return server, server.place(), StoreOptions(timeout=2.0)
    assert isinstance(server, S3)
    return server, server.place(), StoreOptions(timeout=2.0, **server.options())  # type: ignore[arg-type]


def test_the_server_is_away_and_comes_back(server_and_place: tuple[Server, str, StoreOptions]) -> None:
    server, place, options = server_and_place
    reached = options.model_dump(exclude_unset=True)
    tree = tree_at(place, options)
    sink = open_sink(place, **reached)
    sink.write(changes(ID_NAME, (1, "i", 1, "a")))
    sink.commit(at(1))
    manifest = Manifest.open(tree)
    server.kill9()
    try:
        sink.write(changes(ID_NAME, (2, "i", 2, "b")))
        with pytest.raises(RetryableError, match=r"could not .* " + place) as told:
            sink.commit(at(2))
        assert "can be reached" in told.value.fix
        sink.close()
        with pytest.raises(RetryableError):
            Manifest.open(tree)
        with pytest.raises(RetryableError):
            verify_file(tree, next(manifest.files()))
    finally:
        server.start()
    sink = open_sink(place, **reached)
    position = sink.position("db1", 0)
    assert position is not None
    assert position.offset in (1, 2), "what was not acknowledged is there whole or not at all"
    if position.offset == 1:
        sink.write(changes(ID_NAME, (2, "i", 2, "b")))
        sink.commit(at(2))
    assert ids_in(tree) == [1, 2]
